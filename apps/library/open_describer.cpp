// A model that describes images.
#include <algorithm>

#include "apps/library/images.h"
#include "apps/library/named_settings.h"
#include "apps/library/task_options.h"
#include "apps/library/tasks.h"
#include "apps/runtime/caption_model.h"
#include "apps/runtime/caption_settings.h"
#include "apps/runtime/describe_task.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/visual_tiles.h"
#include "engine/core/index.h"
#include "engine/sampling/sampling_settings.h"
#include "vision/pruning/registry.h"

namespace tessera {

namespace {

// What an image in a file counts as before it is read.
constexpr std::int64_t kUsualWidth = 640, kUsualHeight = 480;

std::vector<api::ViewPatches> patches_of(const Caption& made) {
  std::vector<api::ViewPatches> out;
  for (std::size_t image = 0; image < std::min(made.whole.size(), made.kept.size()); ++image) {
    for (const VisualTile& tile :
         visual_tiles(made.whole[image], made.kept[image], {}, made.parts[image])) {
      api::ViewPatches& view = out.emplace_back(api::ViewPatches{.image = to_index(image),
                                                                 .columns = tile.columns,
                                                                 .rows = tile.rows,
                                                                 .left = tile.left,
                                                                 .top = tile.top,
                                                                 .width = tile.width,
                                                                 .height = tile.height});
      for (std::size_t at = 0; at < tile.kept.size(); ++at) {
        if (tile.kept[at] != 0) view.kept.push_back(to_index(at));
      }
    }
  }
  return out;
}

api::Description description_of(Caption&& made) {
  std::vector<api::ViewPatches> patches = patches_of(made);
  return {.text = std::move(made.text),
          .cut_short = made.cut_short,
          .stopped_by_text = made.stopped_by_text,
          .tokens = made.tokens,
          .passes = made.passes,
          .prompt_tokens = made.prompt_tokens,
          .reused_tokens = made.reused_tokens,
          .known_images = made.known_images,
          .visual_tokens = made.visual_tokens,
          .kept_tokens = made.kept_tokens,
          .patches = std::move(patches),
          .seconds = made.seconds.total,
          .notes = std::move(made.notes),
          .listed = public_tokens(made.listed)};
}

// One request: the callbacks of many, without places.
api::DescribeAllCallbacks callbacks_of_one(api::DescribeCallbacks one) {
  api::DescribeAllCallbacks out{.on_progress = std::move(one.on_progress),
                                .on_notice = std::move(one.on_notice)};
  if (one.on_tokens) {
    out.on_tokens = [to = std::move(one.on_tokens)](
                        std::size_t, std::vector<api::TextToken>&& tokens) { to(std::move(tokens)); };
  }
  if (one.on_text) {
    out.on_text = [to = std::move(one.on_text)](std::size_t, std::string_view more) { to(more); };
  }
  if (one.on_description) {
    out.on_description = [to = std::move(one.on_description)](
                             std::size_t, api::Description&& made) { to(std::move(made)); };
  }
  if (one.on_error) {
    out.on_error = [to = std::move(one.on_error)](std::size_t, const api::Error& why) { to(why); };
  }
  return out;
}

// The id of a request is its place.
class DescribeForwarder final : public Forwarder, public DescribeListener {
 public:
  explicit DescribeForwarder(api::DescribeAllCallbacks callbacks)
      : callbacks_(std::move(callbacks)) {}

  void on_listed(const std::string& id, std::span<const TextToken> tokens) override {
    if (!silent() && callbacks_.on_tokens) callbacks_.on_tokens(place_of(id), public_tokens(tokens));
  }
  void on_text(const std::string& id, std::string_view more) override {
    if (!silent() && callbacks_.on_text) callbacks_.on_text(place_of(id), more);
  }
  void on_notice(std::string_view text) override {
    if (!silent() && callbacks_.on_notice) callbacks_.on_notice(text);
  }
  Flow on_pass() override {
    const bool stops = !silent() && callbacks_.on_progress && !callbacks_.on_progress();
    if (stops) stop_();
    return silent() ? Flow::kStop : Flow::kContinue;
  }
  void on_caption(Caption&& made) override {
    if (silent()) return;
    const std::size_t place = place_of(made.id);
    if (made.failed) {
      api::OnError listener;
      if (callbacks_.on_error) {
        listener = [&](const api::Error& why) { callbacks_.on_error(place, why); };
      }
      return report_error(listener, made.error);
    }
    if (callbacks_.on_description)
      callbacks_.on_description(place, description_of(std::move(made)));
  }
  void on_over(bool) override { end(); }

  // How the request is cancelled: a text at work is else finished.
  void set_stop(std::function<void()> stop) { stop_ = std::move(stop); }

 private:
  static std::size_t place_of(const std::string& id) { return std::stoull(id); }

  api::DescribeAllCallbacks callbacks_;
  std::function<void()> stop_;
};

// `request`: its images are taken.
DescribeRequest internal_request(api::DescribeRequest&& request, std::size_t place) {
  if (request.seed) check_seed(*request.seed);
  DescribeRequest out{.id = std::to_string(place),
                      .prompt = std::move(request.question),
                      .turns = internal_turns(request.turns),
                      .negative_prompt = std::move(request.negative_question),
                      .number = request.number,
                      .sampling = read_settings(request.settings, api::Task::kDescribe,
                                                api::SettingPlace::kRequest),
                      .max_tokens = request.max_tokens,
                      .seed = request.seed,
                      .stop = std::move(request.stop),
                      .logprobs = request.logprobs};
  for (std::size_t i = 0; i < request.images.size(); ++i) {
    auto& source = out.images.emplace_back();
    source.name = "image " + std::to_string(i);
    source.image =
        std::make_shared<const Image>(internal_image(std::move(request.images[i]), source.name));
  }
  for (const std::filesystem::path& file : request.files) {
    auto& source = out.images.emplace_back();
    source.name = file.string();
    source.file = file;
  }
  for (std::size_t i = 0; i < request.encoded.size(); ++i) {
    auto& source = out.images.emplace_back();
    source.name = "encoded image " + std::to_string(i);
    source.bytes.assign(request.encoded[i].begin(), request.encoded[i].end());
  }
  return out;
}

class OpenDescriber final : public OpenTask {
 public:
  OpenDescriber(Runtime& runtime, const DescribeOptions& options)
      : OpenTask(runtime), task_(runtime, options) {}

  api::ModelInfo info() const override {
    api::ModelInfo out = model_info(api::Task::kDescribe, task_.model().spec(), task_.model_name(),
                                    task_.backend(), task_.storage(), task_.method());
    out.notes = model_notes(task_.model().describe().account.get(), task_.model_notes());
    return out;
  }

  api::MemoryPlan plan(const api::DescribeRequest& request) const override;

  Ticket submit(const api::DescribeRequest& request, api::DescribeCallbacks callbacks) override {
    return submit(std::vector{request}, callbacks_of_one(std::move(callbacks)));
  }

  Ticket submit(std::vector<api::DescribeRequest> given,
                api::DescribeAllCallbacks callbacks) override {
    std::vector<DescribeRequest> requests;
    for (api::DescribeRequest& request : given) {
      requests.push_back(internal_request(std::move(request), requests.size()));
      task_.check(requests.back());
    }
    // Once its weights are there, the lane says what fits.
    if (!planned_) task_.check_memory();
    planned_ = true;
    return keep(std::make_unique<DescribeForwarder>(std::move(callbacks)),
                [&](DescribeForwarder& to) {
                  const Ticket ticket = task_.submit(std::move(requests), to);
                  to.set_stop([this, ticket] { cancel(ticket); });
                  return ticket;
                });
  }

 private:
  DescribeTask task_;
  bool planned_ = false;  // a request was found to fit
};

api::MemoryPlan OpenDescriber::plan(const api::DescribeRequest& request) const {
  const PreprocessPolicy& policy = task_.model().describe().policy;
  std::vector<PreprocessPlan> images;
  for (const api::Image& image : request.images) {
    images.push_back(plan_preprocess(policy, image.width, image.height));
  }
  for (std::size_t i = 0; i < request.files.size() + request.encoded.size(); ++i) {
    images.push_back(plan_preprocess(policy, kUsualWidth, kUsualHeight));
  }
  return public_plan(task_.plan({request.question, internal_turns(request.turns)}, images),
                     task_.backend());
}

// `option` is OpenOptions::prune.
PruneChoice prune_of(const std::string& option, const SettingValues& settings) {
  if (!option.empty() && settings.has(setting::kPrune)) {
    refuse_setting("prune", "a setting or OpenOptions::prune", "both");
  }
  const std::string name = option.empty() ? settings.text(setting::kPrune) : option;
  PruneChoice out;
  if (name == setting::kNoPruner) {
    for (const Setting* row : {&setting::kPruneRate, &setting::kKeepTokens}) {
      if (settings.has(*row)) refuse_setting(std::string(row->name), "a pruner by prune", "none");
    }
    return out;
  }
  out.method = pruner_row(name).name;
  if (!settings.has(setting::kKeepTokens)) {
    out.budget.ratio = 1 - settings.number(setting::kPruneRate);
    return out;
  }
  if (settings.has(setting::kPruneRate)) {
    refuse_setting("keep-tokens", "either a number or prune-rate", "both");
  }
  out.budget.tokens = settings.integer(setting::kKeepTokens);
  out.budget.shared = true;
  return out;
}

std::vector<GroupRows> describe_settings(api::SettingPlace place) {
  if (place == api::SettingPlace::kRequest) return {with_door(sampling_group(), Door::kCaption)};
  std::vector<GroupRows> out = text_decoding_rows();
  out.push_back({&caption_group(), {&setting::kMaxTokens, &setting::kPrune, &setting::kPruneRate,
                                  &setting::kKeepTokens}});
  return out;
}

std::unique_ptr<OpenTask> open_describer(Runtime& runtime, const Installation& place,
                                         const std::string& model,
                                         const api::OpenOptions& options) {
  check_seed(options.seed);
  SettingValues settings =
      read_settings(options.settings, api::Task::kDescribe, api::SettingPlace::kOpen);
  auto out = open_with<DescribeOptions>(
      place, model.empty() ? std::string(kDefaultCaptioner) : model, options);
  out.projector = options.mmproj.string();
  out.chat_template = options.chat_template.string();
  out.max_tokens = settings.integer(setting::kMaxTokens);
  TextDecoding decoding = take_text_decoding(settings, out.max_tokens);
  out.method = std::move(decoding.method);
  out.draft.model = place.model(decoding.draft);
  out.prune = prune_of(options.prune, settings);
  out.seed = options.seed;
  out.image_cache = options.image_cache;
  out.helper = place.helper();
  return std::make_unique<OpenDescriber>(runtime, out);
}

}  // namespace

constinit const TaskRow kDescribeTask{
    .task = api::Task::kDescribe,
    .does = "describes images",
    .reads = {.seed = true, .prune = true, .chat_template = true, .mmproj = true, .image_cache = true},
    .settings = describe_settings,
    .open = open_describer};

}  // namespace tessera
