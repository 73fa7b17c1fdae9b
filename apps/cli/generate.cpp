// `tessera generate`: images from a prompt, a file of prompts, or the record of an earlier
// image.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/flags.h"
#include "apps/cli/folder_keys.h"
#include "apps/cli/interleave.h"
#include "apps/cli/progress.h"
#include "apps/cli/sampling_flags.h"
#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "apps/runtime/caption_settings.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/image_saver.h"
#include "apps/runtime/metadata.h"
#include "apps/runtime/output_names.h"
#include "apps/runtime/output_settings.h"
#include "apps/runtime/prompt_expansion.h"
#include "apps/studio/settings.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "vision/image/image_reader.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr auto kMaxImages = truncate<std::int64_t>(setting::kBatchCount.high);
constexpr std::int64_t kGenerateSheetGap = 4;  // pixels

struct GenerateFlags {
  std::optional<std::string> model, prompt, negative_prompt, prompt_file, from_image, sheet,
      preview, expand_prompt, text_encoder;
  std::optional<PromptExpansion> recorded_expansion;  // of --from-image, with its prompt
  std::optional<std::int64_t> seed;
  SizeFlags size;
  std::string output = "out_%04d.png";
  std::string output_dir;
  bool overwrite = false;
  std::int64_t batch_count = 1, batch_size = 1;
  SettingValues sampling, decode;
  DecodeMethod recorded_method;  // of --from-image
  std::string recorded_draft, recorded_encoder;
  std::int64_t preview_interval = 1;
  DeviceFlags device;
  bool list_devices = false;
  bool disable_metadata = false;
  bool interleave = false;
  std::optional<std::int64_t> max_tokens, max_images;  // of --interleave
  std::vector<std::string> images;                     // of its question
};

[[noreturn]] void refuse_generate(std::string code, std::string where, std::string expected,
                                  std::string found, std::string hint = "") {
  throw Error({ErrorKind::kUsage, std::move(code), "", std::move(where), std::move(expected),
               std::move(found), std::move(hint)});
}

// What the record of an image says, under whatever was given by flag.
void take_from_image(GenerateFlags& flags) {
  if (!flags.from_image) return;
  const ImageMetadata metadata = read_metadata(*flags.from_image, ErrorKind::kUsage);
  if (!metadata.facts) {
    const std::string found =
        metadata.warnings.empty()
            ? "metadata of kind " + std::string(metadata_origin_name(metadata.origin))
            : metadata.warnings.front();
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FROM_IMAGE",
                 .file = *flags.from_image,
                 .where = "--from-image",
                 .expected = "an image with the record of this program",
                 .found = found});
  }
  if ((metadata.facts->answer_image > 0) != flags.interleave) {
    throw Error(
        {.kind = ErrorKind::kUsage,
         .code = "E_FROM_IMAGE",
         .file = *flags.from_image,
         .where = "--from-image",
         .expected = flags.interleave ? "an image of an answer of texts and images"
                                      : "an image that its prompt alone leads to",
         .found = flags.interleave
                      ? "one that stands alone"
                      : "image " + std::to_string(metadata.facts->answer_image) + " of an answer",
         .hint = flags.interleave ? "leave --interleave out" : "add --interleave"});
  }
  if (metadata.facts->prompt_images != std::ssize(flags.images)) {
    refuse_generate("E_FROM_IMAGE", "--from-image",
                    std::to_string(metadata.facts->prompt_images) +
                        " files by --image, as its question had images",
                    std::to_string(flags.images.size()));
  }
  const GenerateSettings recorded = settings_of(*metadata.facts);
  const auto fill = [](auto& flag, const auto& value) {
    if (!flag) flag = value;
  };
  if (!flags.prompt_file && !flags.prompt) {
    const auto& expansion = metadata.facts->expansion;
    flags.prompt = flags.expand_prompt && expansion ? expansion->from : recorded.prompt;
    flags.recorded_expansion = expansion;
  }
  if (recorded.negative_prompt) fill(flags.negative_prompt, *recorded.negative_prompt);
  fill(flags.model, recorded.model);
  fill(flags.seed, to_index(recorded.seed));
  fill(flags.size.width, recorded.width);
  fill(flags.size.height, recorded.height);
  flags.sampling.fill(recorded.sampling);
  flags.recorded_method = recorded.method;
  flags.recorded_draft = recorded.draft_model;
  flags.recorded_encoder = metadata.facts->text_encoder;
  if (flags.device.dtype == "auto") flags.device.dtype = metadata.facts->dtype;
}

std::vector<std::string> prompts_of(const GenerateFlags& flags) {
  if (flags.prompt_file && flags.prompt) {
    refuse_generate("E_FLAG_CONFLICT", "--prompt-file", "either a file of prompts or --prompt",
                    "both");
  }
  if (flags.prompt_file) return read_prompt_file(*flags.prompt_file);
  if (!flags.prompt) {
    refuse_generate("E_FLAG_MISSING", "--prompt", "a text, --prompt-file or --from-image",
                    "none of them");
  }
  return {*flags.prompt};
}

// The prompts, or what a text model makes of them. Nothing once the program is to stop.
std::optional<std::vector<ExpandedPrompt>> expanded(const Session& session,
                                                    const GenerateFlags& flags,
                                                    const GenerateTask& task,
                                                    const std::vector<std::string>& given) {
  if (flags.expand_prompt) {
    if (task.spec().prompt.kind == PromptKind::kClass) {
      refuse_generate("E_FLAG_CONFLICT", "--expand-prompt", "a model whose prompts are texts",
                      task.model_name() + ", whose prompts are class numbers");
    }
    CompleteOptions options;
    options.model = *flags.expand_prompt;
    options.device = flags.device.device;
    options.cuda = cuda_choice(flags.device);
    options.threads = narrow<int>(flags.device.threads);
    return expand_prompts(std::move(options), given, [&] { return session.stop_requested(); });
  }
  std::vector<ExpandedPrompt> out;
  for (const std::string& prompt : given) out.push_back({prompt, flags.recorded_expansion});
  return out;
}

void tell_expanded(const Session& session, const std::vector<ExpandedPrompt>& prompts) {
  for (const ExpandedPrompt& prompt : prompts) note(session, "prompt: " + prompt.text);
}

GenerateOptions generate_options(const GenerateFlags& flags) {
  GenerateOptions options =
      generation_options(flags.model, flags.device, flags.size, flags.batch_size);
  choose_method(options, flags.decode, flags.recorded_method);
  options.text_encoder = flags.text_encoder.value_or("");
  // What an image records counts only as far as its method still stands.
  if (options.draft_model.empty() && needs_of(options.method).draft_model) {
    options.draft_model = flags.recorded_draft;
  }
  return options;
}

// They count up over all images and stay within what a flag can say.
class Seeds {
 public:
  explicit Seeds(const GenerateFlags& flags) {
    const std::int64_t wanted = flags.seed.value_or(-1);
    first_ = wanted < 0 ? random_seed() : narrow<std::uint64_t>(wanted);
  }
  std::uint64_t of(std::size_t number) const {
    return (first_ + number) & narrow<std::uint64_t>(kMaxSeed);
  }

 private:
  std::uint64_t first_ = 0;
};

// Of requests that may lead to `each` images.
void check_count(std::size_t prompts, const GenerateFlags& flags, std::int64_t each = 1) {
  const std::size_t count = prompts * to_size(flags.batch_count) * to_size(each);
  if (count <= to_size(kMaxImages)) return;
  refuse_generate("E_FLAG_VALUE", "--batch-count", "at most 100000 images in all",
                  std::to_string(count));
}

std::vector<PreparedRequest> prepare_all(const GenerateTask& task, const GenerateFlags& flags,
                                         const std::vector<ExpandedPrompt>& prompts) {
  const Seeds seeds(flags);
  std::vector<PreparedRequest> requests;
  for (const ExpandedPrompt& prompt : prompts) {
    for (std::int64_t i = 0; i < flags.batch_count; ++i) {
      requests.push_back(task.prepare({prompt.text, flags.negative_prompt, flags.sampling,
                                       seeds.of(requests.size()), prompt.expansion}));
    }
  }
  return requests;
}

fs::path in_output_folder(const GenerateFlags& flags, const std::string& name) {
  return fs::path(flags.output_dir) / name;
}

// Prints what becomes of images, in their order.
class ImageReporter final : public SavedImageListener {
 public:
  ImageReporter(const Session& session, const GenerateFlags& flags,
                const std::vector<fs::path>& paths)
      : session_(session), flags_(flags), paths_(paths), reporter_(session, paths.size()) {}

  Flow on_progress(const GenerateProgress& progress) override {
    reporter_.show(progress);
    return session_.stop_requested() ? Flow::kStop : Flow::kContinue;
  }
  std::int64_t preview_rows() const override {
    return flags_.preview ? flags_.preview_interval : 0;
  }
  void on_preview(const std::vector<Image>& images) override { write_preview(images); }
  bool keeps_pixels() const override { return flags_.sheet.has_value(); }

  void on_saved(SavedImage&& saved) override {
    GeneratedImage& image = saved.image;
    reporter_.clear();
    if (image.status == ImageStatus::kFailed) {
      ++failed_;
      report_failure(image);
    } else if (image.status == ImageStatus::kStopped) {
      if (!image.image.rgb.empty()) write_preview({image.image});
    } else {
      report_saved(image, saved.sha256);
      if (flags_.sheet) sheet_.push_back(std::move(image.image));
    }
  }

  void write_sheet() {
    if (!flags_.sheet || sheet_.empty()) return;
    const fs::path path = in_output_folder(flags_, *flags_.sheet);
    save_png(path, contact_sheet(sheet_, columns_of(sheet_.size()), kGenerateSheetGap), {},
             ai_media_xmp(program_version()));
    note(session_, "sheet: " + path.string());
  }

  std::size_t failed() const { return failed_; }
  void clear_progress() { reporter_.clear(); }

 private:
  static std::int64_t columns_of(std::size_t images) {
    std::int64_t columns = 1;
    while (columns * columns < to_index(images)) ++columns;
    return columns;
  }

  void write_preview(const std::vector<Image>& images) {
    save_png(*flags_.preview,
             images.size() == 1
                 ? images.front()
                 : contact_sheet(images, columns_of(images.size()), kGenerateSheetGap),
             {}, ai_media_xmp(program_version()));
  }

  void report_failure(const GeneratedImage& image) {
    ErrorInfo error = image.error;
    const std::string path = paths_[image.index].string();
    if (session_.json) print_json_line({{"path", path}, {"error", error_json(error)}});
    error.file = path;
    warn(session_, format_error(error));
  }

  void report_saved(const GeneratedImage& image, const std::string& sha256) const {
    const fs::path& path = paths_[image.index];
    const ImageFacts& facts = image.facts;
    if (session_.json) {
      nlohmann::ordered_json line =
          image_line(path.string(), sha256, path.stem().string(), facts, image.seconds);
      if (facts.expansion) line["prompt"] = facts.prompt;
      line["meters"] = meters_json(image.meters);
      print_json_line(line);
      return;
    }
    char seconds[64];
    std::snprintf(seconds, sizeof seconds, "%.2f s", image.seconds);
    if (facts.method.speculative()) {
      std::snprintf(seconds, sizeof seconds, "%.2f s, %" PRId64 " passes, %.2f tokens a pass",
                    image.seconds, facts.passes, facts.tokens_per_pass());
    }
    print_line(escape_for_terminal(path.string()) + "  seed " + std::to_string(facts.seed) + "  " +
               std::to_string(facts.width) + "x" + std::to_string(facts.height) + "  " + seconds);
  }

  const Session& session_;
  const GenerateFlags& flags_;
  const std::vector<fs::path>& paths_;
  ProgressReporter reporter_;
  std::vector<Image> sheet_;
  std::size_t failed_ = 0;
};

// Answers of texts and images.
int answer(const Session& session, const GenerateFlags& flags) {
  const auto refuse_with = [](bool given, const char* flag) {
    if (given) refuse_generate("E_FLAG_CONFLICT", flag, "no such flag with --interleave", flag);
  };
  refuse_with(flags.negative_prompt.has_value(), "--negative-prompt");
  refuse_with(flags.expand_prompt.has_value(), "--expand-prompt");
  refuse_with(flags.sheet.has_value(), "--sheet");
  refuse_with(flags.preview.has_value(), "--preview");
  const std::int64_t max_images = flags.max_images.value_or(InterleaveOptions{}.max_images);
  std::vector<InterleaveRequest> requests;
  const std::vector<std::string> prompts = prompts_of(flags);
  check_count(prompts.size(), flags, max_images);
  const Seeds seeds(flags);
  std::vector<std::shared_ptr<const DecodedImage>> images;
  ImageReader reader;
  for (const std::string& file : flags.images) {
    images.push_back(std::make_shared<const DecodedImage>(reader.read(file)));
  }
  for (const std::string& prompt : prompts) {
    for (std::int64_t i = 0; i < flags.batch_count; ++i) {
      requests.push_back({.prompt = prompt,
                          .images = images,
                          .sampling = flags.sampling,
                          .seed = seeds.of(requests.size())});
    }
  }
  return run_interleave(
      session,
      {.generate = generate_options(flags),
       .max_tokens = flags.max_tokens.value_or(InterleaveOptions{}.max_tokens),
       .max_images = max_images,
       .sees = !images.empty()},
      std::move(requests),
      {.name = flags.output,
       .folder = flags.output_dir,
       .existing = flags.overwrite ? Existing::kOverwrite : Existing::kKeep,
       .record = flags.disable_metadata ? RecordFacts::kOnlyAiMark : RecordFacts::kAll});
}

// Another text encoder found next to the model would lead to another image.
void check_encoder(const GenerateFlags& flags, const ImageFacts& facts) {
  if (flags.text_encoder || facts.text_encoder == flags.recorded_encoder ||
      flags.recorded_encoder.empty()) {
    return;
  }
  refuse_generate("E_FROM_IMAGE", "--from-image",
                  "the text encoder of its record, " + flags.recorded_encoder, facts.text_encoder,
                  "name a folder: --text-encoder " + flags.recorded_encoder);
}

void prove_writable(const fs::path& file) {
  ensure_output_folder(file.has_parent_path() ? file.parent_path() : fs::path("."));
}

int run_generate(const Session& session, GenerateFlags flags) {
  if (flags.list_devices) return print_devices(session);
  settle_size(flags.size);
  take_from_image(flags);
  if (flags.interleave) return answer(session, flags);
  if (flags.max_tokens || flags.max_images || !flags.images.empty()) {
    const char* flag = flags.max_tokens   ? "--max-tokens"
                       : flags.max_images ? "--max-images"
                                          : "--image";
    refuse_generate("E_FLAG_CONFLICT", flag, "--interleave with it", flag);
  }
  const std::vector<std::string> prompts = prompts_of(flags);
  check_count(prompts.size(), flags);
  const NamePattern pattern(flags.output);
  if (flags.sheet) NamePattern{*flags.sheet};
  if (flags.preview) NamePattern{*flags.preview};

  Runtime runtime;
  GenerateTask task(runtime, generate_options(flags));
  warn_of_keys(session, task.spec().account.get());
  const auto texts = expanded(session, flags, task, prompts);
  if (!texts) return session.stop_exit_code();
  if (flags.expand_prompt) tell_expanded(session, *texts);
  const std::vector<PreparedRequest> requests = prepare_all(task, flags, *texts);
  check_encoder(flags, requests.front().facts);
  const std::vector<fs::path> paths =
      plan_outputs(pattern, flags.output_dir, requests.size(),
                   flags.overwrite ? Existing::kOverwrite : Existing::kKeep);
  if (flags.preview) prove_writable(*flags.preview);
  if (flags.sheet) prove_writable(in_output_folder(flags, *flags.sheet));
  const MemoryPlan plan = task.plan(requests);
  check_memory(plan, task.model_name());
  note(session, task.spec().title + " as " + std::string(dtype_name(task.storage())) + " on " +
                    task.backend().name() + ", " + format_bytes(plan.total()));

  if (requests.front().item.dist.temperature == 0) {
    warn(session,
         "greedy decoding (--temp 0) generates flat images; a temperature near 1 does not");
  }
  ImageReporter reporter(session, flags, paths);
  ImageSaver saver(reporter, paths,
                   flags.disable_metadata ? RecordFacts::kOnlyAiMark : RecordFacts::kAll);
  runtime.finish(task.submit(requests, saver));
  reporter.clear_progress();
  if (const std::string why = task.window_report(); !why.empty()) note(session, why);
  if (!saver.whole()) return session.stop_exit_code();
  reporter.write_sheet();
  if (reporter.failed() == 0) return 0;
  return reporter.failed() == requests.size() ? 1 : 3;
}

void add_output_flags(CLI::App& app, GenerateFlags& flags) {
  const std::string group = "Output";
  text_flag(app, "-o,--output", flags.output, "file name, %04d stands for a number")->group(group);
  text_flag(app, "--output-dir", flags.output_dir, "folder for images")->group(group);
  app.add_flag("--overwrite", flags.overwrite, "replace existing files")->group(group);
  setting_flag(app, setting::kBatchCount, flags.batch_count, {.short_name = "-b", .group = group});
  setting_flag(app, setting::kBatchSize, flags.batch_size, {.group = group});
  text_flag(app, "--sheet", flags.sheet, "also one image with all of them")->group(group);
  text_flag(app, "--preview", flags.preview, "file that shows the image as its rows are generated")
      ->group(group);
  setting_flag(app, setting::kPreviewInterval, flags.preview_interval, {.group = group});
  app.add_flag("--disable-metadata", flags.disable_metadata,
               "record no prompt and no settings (the AI mark stays)")
      ->group(group);
}

}  // namespace

void add_generate(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("generate", "generate images from text");
  const auto flags = std::make_shared<GenerateFlags>();
  text_flag(*app, "-m,--model", flags->model,
            "bundled name, folder, weight file or org/name; default " + std::string(kDefaultModel));
  text_flag(*app, "-p,--prompt", flags->prompt, "text, or a class number");
  text_flag(*app, "-n,--negative-prompt", flags->negative_prompt, "what guidance leads away from");
  text_flag(*app, "--prompt-file", flags->prompt_file, "one prompt a line, # for comments");
  text_flag(*app, "--expand-prompt", flags->expand_prompt,
            "a text model with a chat template that rewrites prompts in more detail");
  text_encoder_flag(*app, flags->text_encoder);
  text_flag(*app, "--from-image", flags->from_image,
            "generate again what this image records; other flags win");
  add_size_flags(*app, flags->size);
  app->add_flag("--interleave", flags->interleave,
                "an answer of text and images in turn: text to stdout, images to files");
  app->add_option("--image", flags->images, "an image of a question of --interleave; several for one")
      ->allow_extra_args(false);
  setting_flag(*app, setting::kMaxTokens, flags->max_tokens);
  setting_flag(*app, setting::kMaxImages, flags->max_images);
  integer_flag(*app, "-s,--seed", flags->seed, -1, kMaxSeed, "-1 = random, and recorded");
  add_sampling_flags(*app, Door::kGenerate, flags->sampling);
  add_decode_flags(*app, Door::kGenerate, flags->decode);
  add_output_flags(*app, *flags);
  add_device_flags(*app, flags->device);
  app->add_flag("--list-devices", flags->list_devices, "list devices and end")->group("Device");
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_generate(session, *flags); };
  });
}

}  // namespace tessera
