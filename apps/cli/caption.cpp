// `tessera caption`: texts about images, one image or a million; or an answer to a question
// about one image or several.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "apps/captions/prompt_template.h"
#include "apps/captions/text_forms.h"
#include "apps/cli/caption_reporter.h"
#include "apps/cli/caption_reports.h"
#include "apps/cli/commands.h"
#include "apps/cli/devices.h"
#include "apps/cli/draft_flags.h"
#include "apps/cli/flags.h"
#include "apps/cli/folder_keys.h"
#include "apps/cli/logprobs_flag.h"
#include "apps/cli/prune_flags.h"
#include "apps/cli/sampling_flags.h"
#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "apps/cli/video_flags.h"
#include "apps/runtime/caption_dump.h"
#include "apps/runtime/caption_model.h"
#include "apps/runtime/caption_method.h"
#include "apps/runtime/caption_settings.h"
#include "apps/runtime/describe_task.h"
#include "apps/runtime/facts.h"
#include "apps/runtime/logprobs_json.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/model_digest.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/decoding/loop_settings.h"
#include "engine/sampling/sampling_settings.h"
#include "video/cuts/compare_module.h"
#include "vision/image/image_reader.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxCaptionSeed = std::numeric_limits<std::int64_t>::max();
constexpr std::string_view kDefaultPrompt = "Describe the picture.";

struct CaptionFlags {
  std::optional<std::string> model, projector, chat_template, prompt, negative_prompt, output,
      shard, dump;
  std::vector<std::string> inputs, images;
  VideoInputFlags videos;
  bool recursive = false, retry_failed = false, anew = false, raw_csv = false;
  std::optional<std::int64_t> skip_similar, logprobs;
  std::string existing;  // empty = as the output is used to
  std::optional<std::string> extension;
  SettingValues decode, loop;
  std::int64_t batch_size = 8, seed = 0;
  std::int64_t max_tokens = truncate<std::int64_t>(*setting::kMaxTokens.fallback);
  SettingValues sampling;
  PruneFlags prune;
  TextDraftFlags draft;
  DeviceFlags device;
};

[[noreturn]] void refuse_caption(std::string code, std::string where, std::string expected,
                                 std::string found, std::string hint = "") {
  throw Error({ErrorKind::kUsage, std::move(code), "", std::move(where), std::move(expected),
               std::move(found), std::move(hint)});
}

bool draws(const CaptionFlags& flags) {
  return flags.sampling.number(setting::kTemperature) > 0 ||
         (flags.prune.method && pruner_row(*flags.prune.method).drawn);
}

// Drawn once for -1.
std::uint64_t settle_seed(const CaptionFlags& flags) {
  if (flags.seed >= 0) return narrow<std::uint64_t>(flags.seed);
  std::random_device device;
  const std::uint64_t high = device();
  return (high << 32 | device()) & narrow<std::uint64_t>(kMaxCaptionSeed);
}

DescribeOptions describe_options(const CaptionFlags& flags, std::int64_t batch,
                                 std::uint64_t seed) {
  DescribeOptions options;
  options.model = flags.model.value_or("");
  options.projector = flags.projector.value_or("");
  options.chat_template = flags.chat_template.value_or("");
  options.device = flags.device.device;
  options.cuda = cuda_choice(flags.device);
  options.threads = narrow<int>(flags.device.threads);
  options.storage = storage_choice(flags.device);
  options.batch_size = batch;
  options.max_tokens = flags.max_tokens;
  options.draft = draft_choice(flags.draft);
  SettingValues decode = flags.decode;
  decode.fill(flags.loop);
  options.method = text_method(decode, options.draft.on(), flags.max_tokens);
  options.prune = prune_choice(flags.prune);
  options.sampling = flags.sampling;
  options.seed = seed;
  return options;
}

// --- a question ---------------------------------------------------------------------------------

void say_model(const Session& session, const DescribeTask& task) {
  warn_of_keys(session, task.model().describe().account.get());
  for (const std::string& text : task.model_notes()) {
    warn(session, task.model_name() + ": " + text);
  }
}

void say_kept(const Session& session, std::int64_t kept, std::int64_t total) {
  warn(session, std::to_string(kept) + " of " + std::to_string(total) + " visual tokens kept");
}

// The prompt of a question; fields have a meaning when there is one image.
std::string question_of(const CaptionFlags& flags) {
  const std::string text = flags.prompt.value_or(std::string(kDefaultPrompt));
  const CaptionPrompt prompt(text);
  if (prompt.has_fields() && flags.images.size() > 1) {
    refuse_caption("E_PROMPT_FIELD", "--prompt", "no {name} or {directory} for several images",
                   text);
  }
  const fs::path image = flags.images.front();
  return prompt.fill(stable_text(image.stem().string()),
                     stable_text(image.parent_path().filename().string()));
}

// Prints an answer as it is written.
class AnswerPrinter final : public DescribeListener {
 public:
  AnswerPrinter(const Session& session, std::string prune, std::optional<std::uint64_t> seed,
                bool logprobs)
      : session_(session), prune_(std::move(prune)), seed_(seed), logprobs_(logprobs) {}
  void on_text(const std::string&, std::string_view more) override {
    if (session_.json) return;
    if (!streamed_) more.remove_prefix(std::min(more.find_first_not_of(" \t\n"), more.size()));
    if (more.empty()) return;
    print_text(more);
    streamed_ = true;
  }
  void on_caption(Caption&& caption) override {
    if (caption.failed) {
      failed_ = true;
      if (session_.json) {
        print_json_line({{"id", caption.id}, {"error", error_json(caption.error)}});
      }
      return warn(session_, format_error(caption.error));
    }
    caption.text = clean_caption(caption.text);
    if (session_.json) {
      Json fields = caption_fields(caption, caption.id, prune_, seed_);
      if (logprobs_) fields["logprobs"] = logprobs_json(caption.listed);
      return print_json_line(fields);
    }
    if (streamed_) print_line("");
    note(session_, std::to_string(caption.tokens) + " tokens in " + std::to_string(caption.passes) +
                       " passes");
    if (!prune_.empty()) say_kept(session_, caption.kept_tokens, caption.visual_tokens);
  }
  void on_notice(std::string_view text) override { warn(session_, text); }
  Flow on_pass() override { return session_.stop_requested() ? Flow::kStop : Flow::kContinue; }
  void on_over(bool finished) override { finished_ = finished; }
  bool failed() const { return failed_; }
  bool finished() const { return finished_; }

 private:
  const Session& session_;
  std::string prune_;
  std::optional<std::uint64_t> seed_;
  bool logprobs_ = false, streamed_ = false, failed_ = false, finished_ = false;
};

// What the model computes instead of what it says.
int dump(const CaptionFlags& flags, DescribeTask& task, const std::string& prompt) {
  constexpr std::int64_t kMaxSteps = 16;
  task.load();
  std::vector<DecodedImage> images;
  ImageReader reader;
  for (const std::string& image : flags.images) images.push_back(reader.read(image));
  dump_caption(task.model(), prompt, images, std::min(flags.max_tokens, kMaxSteps), *flags.dump);
  return 0;
}

int answer(const Session& session, const CaptionFlags& flags) {
  DescribeRequest request;
  request.prompt = question_of(flags);
  request.negative_prompt = flags.negative_prompt;
  request.logprobs = flags.logprobs.value_or(kNoLogprobs);
  const std::uint64_t seed = settle_seed(flags);
  const std::optional<std::uint64_t> drawn = draws(flags) ? std::optional(seed) : std::nullopt;
  Runtime runtime;
  DescribeTask task(runtime, describe_options(flags, 1, seed));
  say_model(session, task);
  task.check_memory();
  if (flags.dump) return dump(flags, task, request.prompt);
  for (const std::string& image : flags.images) {
    ImageSource& source = request.images.emplace_back();
    source.file = image;
    source.name = image;
    request.id += (request.id.empty() ? "" : ", ") + image;
  }
  AnswerPrinter printer(session, flags.prune.method.value_or(""), drawn,
                        flags.logprobs.has_value());
  runtime.finish(task.submit({std::move(request)}, printer));
  if (!printer.finished()) return session.stop_exit_code();
  return printer.failed() ? 1 : 0;
}

// --- many images ------------------------------------------------------------------------------

Json prune_of(const CaptionFlags& flags) {
  const PruneChoice choice = prune_choice(flags.prune);
  if (!choice.on()) return Json::object();
  Json options = Json::object();
  for (const PruneOption& option : choice.options) options[option.name] = option.value;
  Json out = {{"method", choice.method}, {"options", options}};
  out["keep"] = choice.budget.tokens ? Json(*choice.budget.tokens) : Json(choice.budget.ratio);
  if (choice.budget.adaptive) out["adaptive"] = true;
  if (!flags.prune.scope.empty()) out["scope"] = flags.prune.scope;
  return out;
}

// What makes a job another job: all that a text or a file depends on. Who drafts is no part of it.
Json job_of(const CaptionFlags& flags, const DescribeTask& task, const CaptionInputs& inputs) {
  Json sampling = Json::object();
  for (const Setting* row : sampling_group().rows) {
    if (const SettingValue* value = flags.sampling.find(*row)) {
      std::string word(row->shown_word());
      std::replace(word.begin(), word.end(), '-', '_');
      sampling[word] = setting_json(*row, *value);
    }
  }
  Json out = {{"inputs", inputs.description()},
              {"model", task.model_name()},
              {"model_files", model_digest(task.model())},
              {"dtype", std::string(dtype_name(task.storage()))},
              {"prompt", flags.prompt.value_or(std::string(kDefaultPrompt))},
              {"max_tokens", flags.max_tokens},
              {"sampling", sampling},
              {"seed", flags.seed < 0 ? Json("random") : Json(flags.seed)},
              {"prune", prune_of(flags)},
              {"output", flags.output ? fs::path(*flags.output).filename().string() : "sidecars"},
              {"existing", flags.existing},
              {"caption_ext", flags.extension.value_or("txt")},
              {"csv_raw", flags.raw_csv}};
  if (flags.negative_prompt) out["negative_prompt"] = *flags.negative_prompt;
  for (const auto& [row, value] : flags.loop.entries()) {
    if (value != fallback_of(*row)) write_setting(out, *row, value);
  }
  if (flags.skip_similar) out[kSkipSimilarKey] = *flags.skip_similar;
  return out;
}

bool writes_subtitles(const CaptionFlags& flags) {
  return !flags.output && flags.extension.value_or("") == "srt";
}

std::vector<fs::path> all_inputs(const CaptionFlags& flags) {
  std::vector<fs::path> out(flags.inputs.begin(), flags.inputs.end());
  out.insert(out.end(), flags.videos.videos.begin(), flags.videos.videos.end());
  return out;
}

CaptionStoreOptions store_options(const CaptionFlags& flags, const Shard& shard) {
  CaptionStoreOptions options{.output = flags.output.value_or(""),
                              .inputs = all_inputs(flags),
                              .formula_safe = !flags.raw_csv,
                              .extension = flags.extension.value_or("txt"),
                              .start = flags.anew ? Start::kAnew : Start::kResume,
                              .retry_failed = flags.retry_failed,
                              .shard = shard};
  if (!flags.existing.empty()) options.existing = existing_caption(flags.existing);
  return options;
}

void check_output_flags(const CaptionFlags& flags) {
  const std::optional<OutputForm> form = output_form(flags.output.value_or(""));
  if (flags.output && !form) {
    refuse_caption("E_OUTPUT_FORM", "--output", "a name that ends in .jsonl, .csv or .tar",
                   *flags.output);
  }
  if (!flags.existing.empty() && flags.output && *form != OutputForm::kTar) {
    refuse_caption("E_FLAG_CONFLICT", "--existing",
                   "text files or a .tar, which have captions already", *flags.output);
  }
  if (flags.raw_csv && !(flags.output && *form == OutputForm::kCsv)) {
    refuse_caption("E_FLAG_CONFLICT", "--csv-raw", "an output that ends in .csv",
                   flags.output.value_or("text files"));
  }
  check_caption_extension(flags.extension.value_or("txt"));
  const bool joins = flags.existing == "append" || flags.existing == "prepend";
  if (writes_subtitles(flags) && joins) {
    refuse_caption("E_FLAG_CONFLICT", "--existing", "skip or overwrite for --caption-ext srt",
                   flags.existing);
  }
}

// Without it every image would fail.
void check_helper() {
  const fs::path helper = helper_next_to_program();
  if (file_exists(helper)) return;
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_PICTURE_HELPER",
               .file = helper.string(),
               .expected = "the process that reads images, next to the program",
               .found = "none"});
}

// What inputs held that is no item, and what pruning kept.
void say_more(const Session& session, const CaptionInputs& inputs, const CaptionJobEnd& job,
              bool pruned) {
  const InputCounts counts = inputs.counts();
  const auto say = [&](std::uint64_t count, const char* what) {
    if (count > 0) warn(session, std::to_string(count) + what);
  };
  say(counts.tar.skipped, " members of archives passed over: links, devices or unsafe names");
  say(counts.without_key, " members of archives passed over: names without a key or an ending");
  say(counts.links_skipped, " links to folders not followed");
  if (pruned && job.visual_tokens > 0) say_kept(session, job.kept_tokens, job.visual_tokens);
}

// Returns the exit code.
int say_end(const Session& session, const CaptionJobEnd& job) {
  if (job.end == JobEnd::kDrained) {
    warn(session, "stopped; the same command goes on where it ended");
    return 75;
  }
  note(session, caption_counts_text(job.done, job.skipped, job.repeats, job.failed));
  if (job.failed_before > 0) {
    warn(session, std::to_string(job.failed_before) +
                      " failed in an earlier run; --retry-failed tries them again");
  }
  if (job.failed + job.failed_before == 0) return 0;
  return job.done + job.skipped + job.repeats == 0 ? 1 : 3;
}

bool writes_tar(const CaptionFlags& flags) {
  return flags.output && *output_form(*flags.output) == OutputForm::kTar;
}

CaptionInputs open_inputs(const Session& session, const CaptionFlags& flags) {
  CaptionInputs inputs({flags.inputs.begin(), flags.inputs.end()},
                       {.recursive = flags.recursive,
                        .carry = writes_tar(flags) ? Carry::kEverything : Carry::kImageOnly,
                        .by_ending = true,
                        .videos = {flags.videos.videos.begin(), flags.videos.videos.end()}});
  if (!flags.output && inputs.has_shards()) {
    refuse_caption("E_FLAG_MISSING", "--output",
                   "a file for all captions: an archive has no place for text files", "none",
                   "try -o captions.jsonl");
  }
  if (const std::vector<ErrorInfo> errors = inputs.check(); !errors.empty()) {
    for (std::size_t i = 0; i + 1 < errors.size(); ++i) warn(session, format_error(errors[i]));
    throw Error(errors.back());
  }
  return inputs;
}

int run_job(const Session& session, const CaptionFlags& flags) {
  check_output_flags(flags);
  CaptionPrompt{flags.prompt.value_or("")};
  const Shard shard = flags.shard ? shard_from(*flags.shard, process_environment()) : Shard{};
  CaptionInputs inputs = open_inputs(session, flags);
  const std::uint64_t seed = settle_seed(flags);
  Runtime runtime;
  DescribeTask task(runtime, describe_options(flags, flags.batch_size, seed));
  say_model(session, task);
  task.check_memory();
  Json job = job_of(flags, task, inputs);
  add_video_settings(flags.videos, job);
  std::optional<SimilarImages> similar;
  if (flags.skip_similar) {
    compare_function(kFingerprintFunction);  // without it every image would fail
    similar.emplace(narrow<int>(*flags.skip_similar));
  }
  CaptionStoreOptions place = store_options(flags, shard);
  if (similar) place.notes = [&](const Json& record) { similar->replay(record); };
  const std::unique_ptr<CaptionStore> store = open_caption_store(place, job);
  note(session, task.model().spec().title + " as " + std::string(dtype_name(task.storage())) +
                    " on " + task.backend().name());
  if (flags.seed < 0 && draws(flags)) warn(session, "seed " + std::to_string(seed));
  CaptionReporter reporter(session, flags.output.has_value());
  const CaptionJobEnd end = write_captions(
      runtime, task, inputs, *store,
      {.items = {.carry = writes_tar(flags),
                 .subtitles = writes_subtitles(flags),
                 .retry_failed = flags.retry_failed,
                 .shard = shard,
                 .similar = similar ? &*similar : nullptr},
       .prune = flags.prune.method.value_or(""),
       .prompt = flags.prompt.value_or(std::string(kDefaultPrompt)),
       .negative_prompt = flags.negative_prompt,
       .seed = draws(flags) ? std::optional(seed) : std::nullopt,
       .videos = video_input_settings(flags.videos, task.model().spec(), flags.max_tokens)},
      reporter);
  reporter.end_progress();
  say_more(session, inputs, end, flags.prune.method.has_value());
  if (const std::string why = task.window_report(); !why.empty()) note(session, why);
  return say_end(session, end);
}

// A question writes no file.
void check_question_flags(const CaptionFlags& flags) {
  const std::pair<bool, const char*> of_jobs[] = {
      {flags.output.has_value(), "--output"},
      {flags.extension.has_value(), "--caption-ext"},
      {!flags.existing.empty(), "--existing"},
      {flags.recursive, "--recursive"},
      {flags.retry_failed, "--retry-failed"},
      {flags.anew, "--anew"},
      {flags.raw_csv, "--csv-raw"},
      {flags.skip_similar.has_value(), "--skip-similar"},
      {flags.shard.has_value(), "--shard"}};
  for (const auto& [given, name] : of_jobs) {
    if (given) refuse_caption("E_FLAG_CONFLICT", name, "inputs without --image", "both");
  }
  if (const std::string of_videos = flags.videos.given(); !of_videos.empty()) {
    refuse_caption("E_FLAG_CONFLICT", of_videos, "inputs without --image", "both");
  }
}

// `caption status PLACE...` and `caption merge PLACE...`.
int report_job(const Session& session, const CaptionFlags& flags, const std::string& word) {
  const std::vector<fs::path> places(flags.inputs.begin() + 1, flags.inputs.end());
  if (places.empty() || (word == "status" && places.size() > 1)) {
    refuse_caption("E_FLAG_VALUE", word == "status" ? "caption status" : "caption merge",
                   "an output (.jsonl, .csv, .tar) or a folder of images",
                   std::to_string(places.size()));
  }
  if (word == "status") return caption_status(session, places.front());
  return caption_merge(session, places, flags.output.value_or(""));
}

void check_negative_prompt(const CaptionFlags& flags) {
  const SettingValue* guidance = flags.sampling.find(setting::kGuidance);
  if (!flags.negative_prompt || (guidance != nullptr && guidance->number != 1)) return;
  refuse_caption("E_FLAG_CONFLICT", "--negative-prompt", "guidance: a --cfg-scale other than 1",
                 "none");
}

// What is dumped is the plain greedy text's: flags that ask for another one are refused.
void check_dump_flags(const CaptionFlags& flags) {
  const auto refuse = [](const std::string& flag) {
    refuse_caption("E_FLAG_CONFLICT", "--dump",
                   "no " + flag + ", as raw logits of the plain greedy text are written", flag);
  };
  if (flags.images.empty()) {
    refuse_caption("E_FLAG_CONFLICT", "--dump", "--image, of which it is", "inputs");
  }
  for (const auto& [row, value] : flags.sampling.entries()) refuse("--" + std::string(row->name));
  if (flags.negative_prompt) refuse("--negative-prompt");
  if (flags.logprobs) refuse("--logprobs");
  if (flags.prune.method || flags.prune.rate || flags.prune.keep) refuse("--prune");
}

int run_caption(const Session& session, const CaptionFlags& flags) {
  const std::string word = flags.inputs.empty() ? "" : flags.inputs.front();
  if (word == "status" || word == "merge") return report_job(session, flags, word);
  if (flags.images.empty() == (flags.inputs.empty() && flags.videos.videos.empty())) {
    refuse_caption(
        "E_FLAG_MISSING", "inputs",
        "images, videos, folders, shards (.tar, .tar.gz, .tar.zst) or lists (.jsonl); or --image "
        "for one question",
        flags.images.empty() ? "none" : "both");
  }
  check_helper();
  check_negative_prompt(flags);
  check_logprobs_flag(session, flags.logprobs, flags.images.empty());
  if (flags.dump) check_dump_flags(flags);
  if (flags.images.empty()) return run_job(session, flags);
  check_question_flags(flags);
  return answer(session, flags);
}

void add_job_flags(CLI::App& app, CaptionFlags& flags) {
  const std::string group = "Output";
  text_flag(app, "-o,--output", flags.output,
            "one file for all: .jsonl, .csv or .tar (WebDataset); default a text file next to each "
            "image")
      ->group(group);
  text_flag(app, "--caption-ext", flags.extension, "ending of text files")->group(group);
  choice_flag(app, "--existing", flags.existing, {"skip", "overwrite", "append", "prepend"},
              "what becomes of a caption that is there; default skip, in a .tar overwrite")
      ->group(group);
  app.add_flag("--recursive", flags.recursive, "folders in folders too")->group(group);
  text_flag(app, "--shard", flags.shard, "describe part I of N: I/N, auto or auto/N")->group(group);
  app.add_flag("--retry-failed", flags.retry_failed, "try failed images of the last run again")
      ->group(group);
  app.add_flag("--anew", flags.anew, "forget what an earlier run of this job did")->group(group);
  app.add_flag("--csv-raw", flags.raw_csv,
               "no apostrophe before cells that a spreadsheet would compute")
      ->group(group);
  setting_flag(app, setting::kSkipSimilar, flags.skip_similar, {.group = group, .bare = "6"});
  integer_flag(app, "--batch-size", flags.batch_size, 1, 256, "texts written at once")
      ->group(group);
}

}  // namespace

void add_caption(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("caption", "describe images, or answer questions about them");
  const auto flags = std::make_shared<CaptionFlags>();
  app->add_option("inputs", flags->inputs,
                  "images, videos, folders, WebDataset shards (.tar, .tar.gz, .tar.zst), lists "
                  "(.jsonl); or status or merge and an output or a folder (a folder of that "
                  "name: ./status)");
  app->add_option("--image", flags->images, "an image of one question; several for one prompt")
      ->allow_extra_args(false);
  add_video_flags(*app, flags->videos);
  text_flag(*app, "-m,--model", flags->model,
            "a folder, a .gguf file, or a name that `tessera models` lists; default " +
                std::string(kDefaultCaptioner));
  text_flag(*app, "--mmproj", flags->projector,
            "the .gguf file of the model's image encoder; default mmproj*.gguf next to the model");
  text_flag(*app, "--chat-template", flags->chat_template,
            "a Jinja template in place of the model's own");
  text_flag(*app, "-p,--prompt", flags->prompt,
            "what is asked; {name} and {directory} stand for the image's");
  text_flag(*app, "-n,--negative-prompt", flags->negative_prompt,
            "what guidance leads away from, asked without the image; default the prompt itself");
  text_flag(*app, "--dump", flags->dump,
            "with --image: features and the first logits to this .safetensors, and no text");
  setting_flag(*app, setting::kMaxTokens, flags->max_tokens);
  integer_flag(*app, "-s,--seed", flags->seed, -1, kMaxCaptionSeed,
               "of texts that are drawn; -1 = random, and recorded");
  logprobs_flag(*app, flags->logprobs);
  add_sampling_flags(*app, Door::kCaption, flags->sampling);
  add_text_decode_flags(*app, flags->decode);
  add_loop_flags(*app, flags->loop);
  add_text_draft_flags(*app, flags->draft);
  add_prune_flags(*app, flags->prune);
  add_job_flags(*app, *flags);
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_caption(session, *flags); };
  });
}

}  // namespace tessera
