#include "apps/studio/server_images.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "engine/decoding/decode_settings.h"

namespace tessera {

namespace {

constexpr double kModelsSeconds = 10;

std::string field_of(const Setting& row) {
  std::string out(row.name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

[[noreturn]] void refuse_setting(const char* where, std::string expected, std::string found,
                                 const char* hint = "") {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_CONNECT_SETTING",
               .where = where,
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = hint});
}

std::string size_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

}  // namespace

Json image_request(const GenerateSettings& settings, const std::string& model) {
  Json out = {{"prompt", settings.prompt},
              {"seed", settings.seed},
              {"stream", true},
              {"partial_images", ServerImages::kPartials}};
  const std::string& name = settings.model.empty() ? model : settings.model;
  if (!name.empty()) out["model"] = name;
  if (settings.negative_prompt) out["negative_prompt"] = *settings.negative_prompt;
  if (settings.width > 0) out["size"] = size_text(settings.width, settings.height);
  for (const auto& [row, value] : settings.sampling.entries()) {
    out[field_of(*row)] = setting_text(*row, value);
  }
  out[field_of(setting::kDecode)] = settings.method.name;
  const SettingValues own = values_of(decode_method(settings.method.name));
  const SettingValues chosen = values_of(settings.method);
  for (const auto& [row, value] : chosen.entries()) {
    const SettingValue* const same = own.find(*row);
    if (same == nullptr || !(*same == value)) out[field_of(*row)] = setting_text(*row, value);
  }
  if (needs_of(settings.method).draft_model && !settings.draft_model.empty()) {
    out[field_of(setting::kModelDraft)] = settings.draft_model;
  }
  return out;
}

// What a server is not asked for, before it is asked.
void ServerImages::check(const GenerateSettings& settings,
                         const ServerLink::Cancelled& cancelled) const {
  if (settings.frames > 0) {
    refuse_setting("frames", "an image", "a video", "a server gives the viewer no videos");
  }
  if (!settings.storage) return;
  const std::string wanted(dtype_name(*settings.storage));
  const std::string models = server_.get("/v1/models", kModelsSeconds, cancelled);
  if (models.empty()) return;  // cancelled
  const std::string& name = settings.model.empty() ? model_ : settings.model;
  const std::string has = read_dtype(models, name, server_.url());
  if (!has.empty() && has != wanted) {
    refuse_setting("weights", has + ", as the server keeps them", wanted, "choose: as stored");
  }
}

void ServerImages::make(const GenerateJob& job, Generation& generation, StopRequest& stop_request) {
  generation.from = server_.url();
  const auto stopped = [&] { return stop_request.asked(0).has_value(); };
  check(job.settings, stopped);
  tell(generation);
  const double began = monotonic_seconds();
  const auto done = [&] { return generation.state == GenerateState::kDone; };
  bool whole = false;
  try {
    whole = server_.stream("/v1/images/generations", image_request(job.settings, model_), stopped,
                           [&](const ServerEvent& event) {
                             if (done()) return;
                             generation.seconds = monotonic_seconds() - began;
                             take_image(job, generation, read_image_event(event, server_.url()));
                             if (!done()) tell(generation);
                           });
  } catch (const Error&) {
    if (!done()) throw;  // else the image is there, whatever became of the connection
  }
  if (done()) return;
  if (whole) refuse_answer(server_.url(), "an image", "the end of its events");
  generation.state = GenerateState::kStopped;
  generation.seconds = monotonic_seconds() - began;
  if (generation.image == nullptr) return;
  // What was settled is not known yet: the file says by what it was made, and no more.
  ImageFacts facts;
  facts.program = program_version();
  facts.prompt = job.settings.prompt;
  facts.seed = job.settings.seed;
  generation.file =
      save_generation(job.folder, *generation.image, facts, true, RecordFacts::kOnlyAiMark);
}

void ServerImages::take_image(const GenerateJob& job, Generation& generation, ImageNews&& news) {
  auto image = std::make_shared<const Image>(server_.decode(news.png));
  if (news.partial >= 0) {
    if (news.partial >= kPartials) {
      refuse_answer(server_.url(), std::to_string(kPartials) + " partial images", "more");
    }
    generation.state = GenerateState::kGeneration;
    generation.image = std::move(image);
    generation.share_done = to_double(news.partial + 1) / to_double(kPartials + 1);
    generation.seconds_left = generation.seconds * (1 / generation.share_done - 1);
    return;
  }
  const ImageFacts& facts = news.facts;
  if (facts.seed != job.settings.seed || facts.prompt != job.settings.prompt) {
    refuse_answer(server_.url(), "the prompt and the seed that were asked for", "others");
  }
  if (facts.width != image->width || facts.height != image->height) {
    refuse_answer(server_.url(), size_text(facts.width, facts.height) + " pixels, as recorded",
                  size_text(image->width, image->height));
  }
  generation.facts = std::move(news.facts);
  generation.image = std::move(image);
  generation.share_done = 1;
  generation.seconds = news.seconds;
  if (news.seconds > 0) generation.tokens_per_second = to_double(facts.tokens) / news.seconds;
  generation.file = save_generation(job.folder, *generation.image, generation.facts, false);
  generation.state = GenerateState::kDone;
  events_.push(
      GeneratorEvent{generation.facts.backend, generation.facts.model, generation.facts.dtype, 0});
}

}  // namespace tessera
