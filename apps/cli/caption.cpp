// `tessera caption`: texts about pictures, one picture or a million; or an answer to a question
// about one picture or several.
#include <CLI/CLI.hpp>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/captions/inputs.h"
#include "apps/captions/prompt_template.h"
#include "apps/captions/sink.h"
#include "apps/captions/text_forms.h"
#include "apps/cli/commands.h"
#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/draft_flags.h"
#include "apps/cli/flags.h"
#include "apps/cli/progress.h"
#include "apps/cli/prune_flags.h"
#include "apps/cli/session.h"
#include "apps/pipeline/caption_model.h"
#include "apps/pipeline/caption_pipeline.h"
#include "apps/pipeline/facts.h"
#include "apps/pipeline/model_catalog.h"
#include "engine/core/io.h"
#include "vision/image/picture_reader.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefaultPrompt = "Describe the picture.";

struct CaptionFlags {
  std::optional<std::string> model, prompt, output;
  std::vector<std::string> inputs, images;
  bool recursive = false, retry_failed = false, anew = false, raw_csv = false;
  std::string existing;  // empty = as the output is used to
  std::string extension = "txt", decode = "auto";
  std::optional<std::int64_t> window;
  std::int64_t batch_size = 8, most_tokens = 256, seed = 0;
  SamplingChoice sampling;
  PruneFlags prune;
  TextDraftFlags draft;
  DeviceFlags device;
};

[[noreturn]] void refuse(std::string code, std::string where, std::string expected,
                         std::string found, std::string hint = "") {
  throw Error({ErrorKind::kUsage, std::move(code), "", std::move(where), std::move(expected),
               std::move(found), std::move(hint)});
}

CaptionOptions pipeline_options(const CaptionFlags& flags, std::int64_t batch) {
  CaptionOptions options;
  options.model = flags.model.value_or("");
  options.device = flags.device.device;
  options.threads = static_cast<int>(flags.device.threads);
  options.storage = storage_choice(flags.device);
  options.batch_size = batch;
  options.most_tokens = flags.most_tokens;
  options.draft = draft_choice(flags.draft);
  options.method = text_method(flags.decode, options.draft.on(), flags.most_tokens);
  if (flags.window) {
    if (!options.method.speculative()) {
      refuse("E_FLAG_CONFLICT", "--window", "a method that guesses", "--decode " + flags.decode);
    }
    options.method.window = *flags.window;
  }
  options.prune = prune_choice(flags.prune);
  options.sampling = flags.sampling;
  options.seed = static_cast<std::uint64_t>(flags.seed);
  return options;
}

Json caption_fields(const Caption& caption, const std::string& path, const std::string& prune) {
  Json sizes = Json::array();
  for (const auto& size : caption.sizes) sizes.push_back({size[0], size[1]});
  Json out = {{"path", path},
              {"caption", caption.text},
              {"tokens", caption.tokens},
              {"passes", caption.passes},
              {"visual_tokens", caption.visual_tokens},
              {"kept_tokens", caption.kept_tokens},
              {"prune", prune.empty() ? "none" : prune},
              {"seconds", caption.seconds.total},
              {"encode_seconds", caption.seconds.encode},
              {"first_token_seconds", caption.seconds.first},
              {"sizes", sizes},
              {"cut_short", caption.cut_short}};
  if (caption.prune_source != RowSource::kNone) {
    out["prune_source"] = std::string(name_of(caption.prune_source));
  }
  if (!caption.draft.empty()) {
    out["draft"] = caption.draft;
    out["draft_kept_tokens"] = caption.draft_kept_tokens;
    out["draft_seconds"] = caption.seconds.draft;
  }
  if (!caption.notes.empty()) out["notes"] = caption.notes;
  return out;
}

// --- a question ---------------------------------------------------------------------------------

// Prints an answer as it is written.
class AnswerPrinter final : public CaptionListener {
 public:
  AnswerPrinter(const Session& session, std::string prune)
      : session_(session), prune_(std::move(prune)) {}
  void on_text(const std::string&, std::string_view more) override {
    if (session_.json) return;
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
    if (session_.json) return print_json_line(caption_fields(caption, caption.id, prune_));
    if (streamed_) print_line("");
    note(session_, std::to_string(caption.tokens) + " tokens in " + std::to_string(caption.passes) +
                       " passes, " + std::to_string(caption.kept_tokens) + " of " +
                       std::to_string(caption.visual_tokens) + " visual tokens kept");
  }
  void on_notice(std::string_view text) override { warn(session_, text); }
  Flow on_pass() override { return session_.stop_requested() ? Flow::kStop : Flow::kContinue; }
  bool failed() const { return failed_; }

 private:
  const Session& session_;
  std::string prune_;
  bool streamed_ = false, failed_ = false;
};

int answer(const Session& session, const CaptionFlags& flags) {
  CaptionPipeline pipeline(pipeline_options(flags, 1));
  CaptionRequest request;
  for (const std::string& image : flags.images) {
    PictureSource& source = request.pictures.emplace_back();
    source.file = image;
    source.name = image;
    request.id += (request.id.empty() ? "" : ", ") + image;
  }
  request.prompt = flags.prompt.value_or(std::string(kDefaultPrompt));
  AnswerPrinter printer(session, flags.prune.method.value_or(""));
  bool given = false;
  const bool finished = pipeline.run(
      [&]() -> std::optional<CaptionRequest> {
        if (std::exchange(given, true)) return std::nullopt;
        return request;
      },
      printer);
  if (!finished) return session.stop_exit_code();
  return printer.failed() ? 1 : 0;
}

// --- many pictures ------------------------------------------------------------------------------

// The run of a job: hands items to the pipeline and captions to the sink.
class Job final : public CaptionListener {
 public:
  Job(const Session& session, const CaptionFlags& flags, CaptionInputs& inputs, CaptionSink& sink)
      : session_(session),
        inputs_(inputs),
        sink_(sink),
        carry_(flags.output && output_form(*flags.output) == OutputForm::kTar),
        prune_(flags.prune.method.value_or("")),
        progress_(session),
        prompt_(flags.prompt.value_or(std::string(kDefaultPrompt))) {}

  // Called on the reading thread.
  std::optional<CaptionRequest> next() {
    while (!session_.stop_requested()) {
      std::optional<CaptionItem> item = inputs_.next();
      if (!item) break;
      const std::lock_guard lock(mutex_);
      if (item->failure) {
        failed_at_input_.push_back(std::move(*item));
        continue;
      }
      if (items_.contains(item->id)) {  // given twice, and at work
        ++skipped_;
        continue;
      }
      try {
        if (!sink_.wants(*item)) {
          const bool failed = sink_.journal().state(item->id) == ItemState::kFailed;
          ++(failed ? failed_before_ : skipped_);
          continue;
        }
        if (carry_) read_picture(*item);
      } catch (const Error& error) {  // the boundary of one item
        if (error.info().kind != ErrorKind::kGeneral) throw;
        item->failure = error.info();
        failed_at_input_.push_back(std::move(*item));
        continue;
      }
      CaptionRequest request;
      request.id = item->id;
      request.number = std::stoull(content_hash(item->id), nullptr, 16);
      PictureSource& source = request.pictures.emplace_back();
      source.name = item->path;
      if (!item->picture.bytes.empty()) {
        source.bytes.assign(item->picture.bytes.begin(), item->picture.bytes.end());
      } else {
        source.file = item->file;
      }
      request.prompt = item->prompt ? *item->prompt : prompt_.fill(item->name, item->directory);
      items_.emplace(item->id, std::move(*item));
      return request;
    }
    return std::nullopt;
  }

  void on_caption(Caption&& caption) override {
    CaptionItem item;
    {
      const std::lock_guard lock(mutex_);
      auto node = items_.extract(caption.id);
      expects(!node.empty(), "a caption of an item");
      item = std::move(node.mapped());
    }
    report_failed_inputs();
    if (caption.failed) return report(item, caption.error);
    caption.text = clean_caption(caption.text);  // the same on the terminal and in files
    const Json fields = caption_fields(caption, item.path, prune_);
    try {
      const std::lock_guard lock(mutex_);
      sink_.add(item, fields, caption.text);
    } catch (const Error& error) {  // the boundary of one item
      if (error.info().kind != ErrorKind::kGeneral) throw;
      return report(item, error.info());
    }
    ++done_;
    progress_.clear();
    if (session_.json) {
      print_json_line(fields);
    } else {
      print_text(escape_for_terminal(item.path) + ": " + caption.text + "\n");
    }
    progress_.show(done_, failed_);
  }
  void on_notice(std::string_view text) override {
    progress_.clear();
    warn(session_, text);
  }
  Flow on_pass() override { return session_.stop_requested() ? Flow::kStop : Flow::kContinue; }

  void report_failed_inputs() {
    std::vector<CaptionItem> failed;
    {
      const std::lock_guard lock(mutex_);
      failed.swap(failed_at_input_);
    }
    for (const CaptionItem& item : failed) report(item, *item.failure);
  }

  // Before anything else is said on stderr.
  void end_progress() { progress_.finish(done_, failed_); }
  std::uint64_t done() const { return done_; }
  std::uint64_t failed() const { return failed_; }
  std::uint64_t failed_before() const { return failed_before_; }
  std::uint64_t skipped() const { return skipped_; }

 private:
  // An archive holds the bytes that were described.
  static void read_picture(CaptionItem& item) {
    if (item.file.empty()) return;
    item.picture = {item.file_extension,
                    read_file(item.file, SampleReader::kMaxMemberBytes, ErrorKind::kGeneral)};
  }
  void report(const CaptionItem& item, ErrorInfo error) {
    {
      const std::lock_guard lock(mutex_);
      sink_.fail(item, error);
    }
    ++failed_;
    progress_.clear();
    if (session_.json) {
      print_json_line(failure_json(item.id, item.path, error));
    }
    if (error.file.empty()) error.file = item.path;
    warn(session_, format_error(error));
    progress_.show(done_, failed_);
  }

  const Session& session_;
  CaptionInputs& inputs_;
  CaptionSink& sink_;
  bool carry_;  // pictures go into the output
  std::string prune_;
  CountProgress progress_;
  CaptionPrompt prompt_;
  std::mutex mutex_;  // sink and lists: the reading thread asks whether an item is wanted
  std::map<std::string, CaptionItem> items_;  // at work
  std::vector<CaptionItem> failed_at_input_;
  std::uint64_t done_ = 0, failed_ = 0, failed_before_ = 0, skipped_ = 0;
};

// What makes a job another job.
Json job_of(const CaptionFlags& flags, const CaptionPipeline& pipeline,
            const CaptionInputs& inputs) {
  Json prune = Json::object();
  if (flags.prune.method) {
    prune = {{"method", *flags.prune.method}, {"options", flags.prune.options}};
    if (flags.prune.rate) prune["rate"] = *flags.prune.rate;
    if (flags.prune.keep) prune["keep"] = *flags.prune.keep;
  }
  Json sampling = Json::object();
  const SamplingChoice& chosen = flags.sampling;
  if (chosen.temperature) sampling["temperature"] = *chosen.temperature;
  if (chosen.top_k) sampling["top_k"] = *chosen.top_k;
  if (chosen.top_p) sampling["top_p"] = *chosen.top_p;
  if (chosen.min_p) sampling["min_p"] = *chosen.min_p;
  return {{"inputs", inputs.description()},
          {"model", pipeline.model_name()},
          {"dtype", std::string(dtype_name(pipeline.storage()))},
          {"prompt", flags.prompt.value_or(std::string(kDefaultPrompt))},
          {"max_tokens", flags.most_tokens},
          {"sampling", sampling},
          {"seed", flags.seed},
          {"prune", prune},
          {"output", flags.output ? fs::path(*flags.output).filename().string() : "sidecars"},
          {"existing", flags.existing},
          {"caption_ext", flags.extension},
          {"csv_raw", flags.raw_csv}};
}

SinkOptions sink_options(const CaptionFlags& flags) {
  SinkOptions options{.output = flags.output.value_or(""),
                      .input = flags.inputs.front(),
                      .columns = {"path", "caption", "tokens", "passes", "prune", "visual_tokens",
                                  "kept_tokens", "seconds"},
                      .formula_safe = !flags.raw_csv,
                      .extension = flags.extension,
                      .start = flags.anew ? Start::kAnew : Start::kResume,
                      .retry_failed = flags.retry_failed};
  if (!flags.existing.empty()) options.existing = existing_caption(flags.existing);
  return options;
}

void check_output_flags(const CaptionFlags& flags) {
  const std::optional<OutputForm> form = output_form(flags.output.value_or(""));
  if (flags.output && !form) {
    refuse("E_OUTPUT_FORM", "--output", "a name that ends in .jsonl, .csv or .tar", *flags.output);
  }
  if (!flags.existing.empty() && flags.output && *form != OutputForm::kTar) {
    refuse("E_FLAG_CONFLICT", "--existing", "text files or a .tar, which have captions already",
           *flags.output);
  }
  if (flags.raw_csv && !(flags.output && *form == OutputForm::kCsv)) {
    refuse("E_FLAG_CONFLICT", "--csv-raw", "an output that ends in .csv",
           flags.output.value_or("text files"));
  }
  check_caption_extension(flags.extension);
}

// Without it every picture would fail.
void check_helper() {
  const fs::path helper = helper_beside_program();
  if (file_exists(helper)) return;
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_PICTURE_HELPER",
               .file = helper.string(),
               .expected = "the process that reads pictures, beside the program",
               .found = "none"});
}

int run_job(const Session& session, const CaptionFlags& flags) {
  check_output_flags(flags);
  CaptionPrompt{flags.prompt.value_or("")};
  std::vector<fs::path> arguments(flags.inputs.begin(), flags.inputs.end());
  const bool tar = flags.output && *output_form(*flags.output) == OutputForm::kTar;
  CaptionInputs inputs(
      std::move(arguments),
      {.recursive = flags.recursive, .carry = tar ? Carry::kEverything : Carry::kPictureOnly});
  if (const std::vector<ErrorInfo> errors = inputs.check(); !errors.empty()) {
    for (std::size_t i = 0; i + 1 < errors.size(); ++i) warn(session, format_error(errors[i]));
    throw Error(errors.back());
  }
  CaptionPipeline pipeline(pipeline_options(flags, flags.batch_size));
  const Json job = job_of(flags, pipeline, inputs);
  const std::unique_ptr<CaptionSink> sink = make_caption_sink(sink_options(flags), job);
  note(session, pipeline.model().spec().title + " as " +
                    std::string(dtype_name(pipeline.storage())) + " on " +
                    pipeline.backend().name());
  Job run(session, flags, inputs, *sink);
  const bool finished = pipeline.run([&] { return run.next(); }, run);
  run.report_failed_inputs();
  run.end_progress();
  if (const std::string why = pipeline.window_report(); !why.empty()) note(session, why);
  if (!finished) {
    sink->stop();
    warn(session, "stopped; the same command goes on where it ended");
    return 75;
  }
  sink->finish();
  note(session, std::to_string(run.done()) + " done, " + std::to_string(run.skipped()) +
                    " were there already, " + std::to_string(run.failed()) + " failed");
  if (run.failed_before() > 0) {
    warn(session, std::to_string(run.failed_before()) +
                      " failed in an earlier run; --retry-failed tries them again");
  }
  if (run.failed() + run.failed_before() == 0) return 0;
  return run.done() + run.skipped() == 0 ? 1 : 3;
}

int run_caption(const Session& session, const CaptionFlags& flags) {
  if (flags.images.empty() == flags.inputs.empty()) {
    refuse("E_FLAG_MISSING", "inputs",
           "pictures, folders, shards (.tar) or lists (.jsonl); or --image for one question",
           flags.images.empty() ? "none" : "both");
  }
  check_helper();
  if (flags.images.empty()) return run_job(session, flags);
  if (flags.output) {
    refuse("E_FLAG_CONFLICT", "--output", "inputs without --image", *flags.output);
  }
  return answer(session, flags);
}

void add_job_flags(CLI::App& app, CaptionFlags& flags) {
  const std::string group = "Output";
  text_flag(app, "-o,--output", flags.output,
            "one file for all: .jsonl, .csv or .tar (WebDataset); default a text file beside each "
            "picture")
      ->group(group);
  text_flag(app, "--caption-ext", flags.extension, "ending of text files")->group(group);
  choice_flag(app, "--existing", flags.existing, {"skip", "overwrite", "append", "prepend"},
              "what becomes of a caption that is there; default skip, in a .tar overwrite")
      ->group(group);
  app.add_flag("--recursive", flags.recursive, "folders in folders too")->group(group);
  app.add_flag("--retry-failed", flags.retry_failed, "try failed pictures of the last run again")
      ->group(group);
  app.add_flag("--anew", flags.anew, "forget what an earlier run of this job did")->group(group);
  app.add_flag("--csv-raw", flags.raw_csv,
               "no apostrophe before cells that a spreadsheet would compute")
      ->group(group);
  integer_flag(app, "--batch-size", flags.batch_size, 1, 256, "texts written at once")
      ->group(group);
}

}  // namespace

void add_caption(CLI::App& root, Session& session) {
  CLI::App* app =
      root.add_subcommand("caption", "describe pictures, or answer questions about them");
  const auto flags = std::make_shared<CaptionFlags>();
  app->add_option("inputs", flags->inputs,
                  "pictures, folders, WebDataset shards (.tar), lists (.jsonl)");
  app->add_option("--image", flags->images, "a picture of one question; several for one prompt")
      ->allow_extra_args(false);
  text_flag(*app, "-m,--model", flags->model,
            "bundled name, folder or org/name; default " + std::string(kDefaultCaptioner));
  text_flag(*app, "-p,--prompt", flags->prompt,
            "what is asked; {name} and {directory} stand for the picture's");
  integer_flag(*app, "--max-tokens", flags->most_tokens, 1, 4096, "longest text");
  integer_flag(*app, "-s,--seed", flags->seed, 0, std::numeric_limits<std::int64_t>::max(),
               "of texts that are drawn");
  const std::string sampling = "Sampling (default: greedy)";
  number_flag(*app, "--temp", flags->sampling.temperature, 0, 100, "temperature; 0 = greedy")
      ->group(sampling);
  integer_flag(*app, "--top-k", flags->sampling.top_k, 0, 1 << 20, "keep the k likeliest; 0 = all")
      ->group(sampling);
  number_flag(*app, "--top-p", flags->sampling.top_p, 1e-6, 1,
              "keep the likeliest that hold this mass")
      ->group(sampling);
  number_flag(*app, "--min-p", flags->sampling.min_p, 0, 1, "keep what is this fraction as likely")
      ->group(sampling);
  choice_flag(*app, "--decode", flags->decode, {"plain", "auto", "lookup", "recycle", "draft"},
              "who guesses, with --model-draft that model; the text is plain's")
      ->group("Decoding");
  integer_flag(*app, "--window", flags->window, 1, 128, "rows of a text in one pass")
      ->group("Decoding");
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
