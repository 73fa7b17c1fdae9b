// `tessera video`: a video from a prompt, and from first frames.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/flags.h"
#include "apps/cli/folder_keys.h"
#include "apps/cli/progress.h"
#include "apps/cli/sampling_flags.h"
#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "apps/runtime/first_frames.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/metadata.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/output_names.h"
#include "apps/runtime/output_settings.h"
#include "apps/runtime/sha256.h"
#include "apps/runtime/video_facts.h"
#include "apps/runtime/video_task.h"
#include "apps/studio/settings.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "video/frame_sink.h"
#include "video/frame_writer.h"
#include "video/png_sequence.h"
#include "vision/image/png.h"
#include "vision/image/xmp.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxVideoSeed = std::numeric_limits<std::int64_t>::max();
constexpr const char* kAiMark = "trainedAlgorithmicMedia";  // IPTC digital source type

struct VideoFlags {
  std::optional<std::string> model, prompt, negative_prompt, first_frames, text_features, text_encoder;
  std::optional<std::int64_t> seed, frames, fps;
  std::optional<std::string> preview;
  std::int64_t preview_interval = 1;
  std::int64_t quality = truncate<std::int64_t>(*setting::kQuality.fallback);
  std::string output = "clip.mkv";
  std::string continuation{setting::kContinue.text_fallback};
  bool overwrite = false, endless = false, sidecar = false, disable_metadata = false;
  SettingValues sampling, decode;
  DeviceFlags device;
};

[[noreturn]] void refuse_video(std::string code, std::string where, std::string expected,
                               std::string found, std::string hint = "") {
  throw Error({ErrorKind::kUsage, std::move(code), "", std::move(where), std::move(expected),
               std::move(found), std::move(hint)});
}

// What a video says of its making, but for figures that are known at its end.
VideoTexts texts_of(const PreparedVideo& video, const VideoFlags& flags, std::int64_t rate) {
  nlohmann::ordered_json more = {{"fps", rate}};
  if (!video.first_frames.empty()) more["first_frames"] = video.first_frames.size();
  if (video.continuation != Continuation::kRecompute) more["continue"] = flags.continuation;
  return video_texts(video.facts, more,
                     flags.disable_metadata ? RecordFacts::kOnlyAiMark : RecordFacts::kAll);
}

[[noreturn]] void refuse_taken(const fs::path& path) {
  throw Error({.kind = ErrorKind::kStorage,
               .code = "E_OUTPUT_EXISTS",
               .file = path.string(),
               .expected = "a name that is free",
               .found = "a file of that name",
               .hint = "--overwrite replaces it"});
}

// "clip.mkv.json"; of a sequence next to its XMP sidecar.
fs::path facts_file(const fs::path& path) {
  if (is_png_sequence(path)) return xmp_sidecar(path).replace_extension(".json");
  return path.string() + ".json";
}

// Of a sequence that has a folder of its own, an empty one is free; of another its first file
// stands for all.
void check_output(const VideoFlags& flags) {
  const fs::path path = flags.output;
  fs::path file = path, folder = path.parent_path();
  bool free = false;
  if (const std::optional<SequenceName> sequence = sequence_name(path)) {
    const bool own = sequence->own_folder;
    file = own ? sequence->folder : sequence->folder / sequence->of(1);
    folder = own ? sequence->folder.parent_path() : sequence->folder;
    free = own && is_folder(file) && list_folder(file).empty();
  } else {
    container_of(path);
  }
  ensure_output_folder(folder.empty() ? fs::path(".") : folder);
  const auto taken = [&](const fs::path& name) {
    std::error_code error;
    return !flags.overwrite && fs::symlink_status(name, error).type() != fs::file_type::not_found;
  };
  if (!free && taken(file)) refuse_taken(file);
  if (!flags.sidecar) return;
  for (const fs::path& next_to : {xmp_sidecar(path), facts_file(path)}) {
    if (taken(next_to)) refuse_taken(next_to);
  }
}

// Of the file; of a sequence, of the lines "SHA-256  name" of its files, as `sha256sum` writes
// them.
std::string sum_of_output(const fs::path& path, std::int64_t frames) {
  const std::optional<SequenceName> sequence = sequence_name(path);
  if (!sequence) return sha256_of_file(path);
  std::string lines;
  for (std::int64_t i = 1; i <= frames; ++i) {
    const std::string name = sequence->of(narrow<std::uint64_t>(i));
    lines += sha256_of_file(sequence->folder / name) + "  " + name + "\n";
  }
  return sha256_hex(lines);
}

VideoRequest video_request_of(const VideoTask& task, const VideoFlags& flags, std::int64_t rate) {
  if (!flags.prompt && task.takes_prompts()) {
    refuse_video("E_FLAG_MISSING", "--prompt", "a text", "none");
  }
  if (flags.endless && flags.frames) {
    refuse_video("E_FLAG_CONFLICT", "--endless", "either a number of --frames or no end", "both");
  }
  const std::int64_t wanted = flags.seed.value_or(-1);
  VideoRequest request{.prompt = flags.prompt.value_or(""),
                       .negative_prompt = flags.negative_prompt,
                       .sampling = flags.sampling,
                       .seed = wanted < 0 ? random_seed() : narrow<std::uint64_t>(wanted),
                       .frames = flags.frames.value_or(0),
                       .endless = flags.endless,
                       .continuation = flags.continuation == "sinks" ? Continuation::kSinks
                                                                     : Continuation::kRecompute,
                       .first_frames = {},
                       .text_features = flags.text_features.value_or("")};
  if (!flags.first_frames) return request;
  if (task.max_first_frames() == 0) {
    refuse_video("E_VIDEO_FIRST", "--first-frames", "none, as this model writes one grid of frames",
                 *flags.first_frames);
  }
  const ModelSpec& spec = task.spec();
  request.first_frames =
      read_first_frames(*flags.first_frames,
                        {spec.image_width(), spec.image_height(), rate, task.max_first_frames()});
  if (request.first_frames.empty()) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_VIDEO_FIRST",
                 .file = *flags.first_frames,
                 .expected = "a video with frames",
                 .found = "none"});
  }
  return request;
}

// Frames go to the file as they come; the preview shows the newest one, and the grid that comes.
class VideoFile : public VideoListener {
 public:
  VideoFile(const Session& session, const VideoFlags& flags, FrameSink& writer)
      : session_(session), flags_(flags), writer_(writer), reporter_(session) {}

  Flow on_progress(const VideoProgress& progress) override {
    reporter_.show(progress);
    if (newest_) write_preview(*newest_);
    newest_.reset();
    return session_.stop_requested() ? Flow::kStop : Flow::kContinue;
  }
  std::int64_t preview_rows() const override {
    return flags_.preview ? flags_.preview_interval : 0;
  }
  void on_preview(const VideoProgress&, const Image& frame) override { write_preview(frame); }
  void on_frame(std::int64_t index, const Image& frame) override {
    writer_.put(frame.rgb, index);
    if (flags_.preview) newest_ = frame;
  }
  void clear_progress() { reporter_.clear(); }

 private:
  void write_preview(const Image& frame) {
    save_png(*flags_.preview, frame, {}, ai_media_xmp(program_version()));
  }

  const Session& session_;
  const VideoFlags& flags_;
  FrameSink& writer_;
  VideoReporter reporter_;
  std::optional<Image> newest_;  // since the last pass
};

void report_video(const Session& session, const VideoFlags& flags, const GeneratedVideo& video,
                  const std::string& codec, std::int64_t rate) {
  const double duration = to_double(video.frames) / to_double(rate);
  const fs::path path = flags.output;
  nlohmann::ordered_json line;
  if (session.json || flags.sidecar) {
    line = image_line(path.string(), sum_of_output(path, video.frames),
                      xmp_sidecar(path).stem().string(), video.facts, video.seconds);
    line.update(nlohmann::ordered_json{{"frames", video.frames},
                                       {"first_frames", video.first_frames},
                                       {"fps", rate},
                                       {"duration", duration},
                                       {"codec", codec},
                                       {"windows", video.windows},
                                       {"continue", flags.continuation},
                                       {"prefilled", video.prefilled},
                                       {"finished", video.status == ImageStatus::kDone}});
  }
  if (flags.sidecar) {
    nlohmann::ordered_json record = {{"clip", line}, {"digital_source_type", kAiMark}};
    record["clip"].erase("seconds");
    record["clip"]["path"] = xmp_sidecar(path).stem().string() + path.extension().string();
    if (!flags.disable_metadata) record["facts"] = facts_json(video.facts);
    write_file_atomic(facts_file(path), record.dump(1) + "\n");
  }
  if (session.json) {
    line["meters"] = meters_json(video.meters);
    return print_json_line(line);
  }
  char text[160];
  std::snprintf(
      text, sizeof text,
      "%" PRId64 " frames, %.2f s at %" PRId64 " a second, %s  %.2f s, %.2f tokens a pass",
      video.frames, duration, rate, codec.c_str(), video.seconds, video.facts.tokens_per_pass());
  print_line(escape_for_terminal(path.string()) + "  seed " + std::to_string(video.facts.seed) +
             "  " + std::to_string(video.facts.width) + "x" + std::to_string(video.facts.height) +
             "  " + text);
}

void report_failure(const Session& session, const VideoFlags& flags, const GeneratedVideo& video) {
  ErrorInfo error = video.error;
  if (session.json) {
    print_json_line(
        {{"path", flags.output}, {"frames", video.frames}, {"error", error_json(error)}});
  }
  error.file = flags.output;
  warn(session, format_error(error));
}

int run_video(const Session& session, const VideoFlags& flags) {
  check_output(flags);
  if (flags.preview) NamePattern{*flags.preview};
  GenerateOptions options = generation_options(flags.model, flags.device, {}, 1);
  choose_method(options, flags.decode);
  options.text_encoder = flags.text_encoder.value_or("");
  Runtime runtime;
  VideoTask task(runtime, options);
  warn_of_keys(session, task.spec().account.get());
  const std::int64_t rate = flags.fps.value_or(task.rate());
  check_rate(flags.output, rate);
  const PreparedVideo video = task.prepare(video_request_of(task, flags, rate));
  const MemoryPlan plan = task.plan(video);
  if (flags.preview) {
    const fs::path folder = fs::path(*flags.preview).parent_path();
    ensure_output_folder(folder.empty() ? fs::path(".") : folder);
  }
  check_memory(plan, task.model_name());
  note(session, task.spec().title + " as " + std::string(dtype_name(task.storage())) + " on " +
                    task.backend().name() + ", " + format_bytes(plan.total()));
  const VideoTexts texts = texts_of(video, flags, rate);
  const std::unique_ptr<FrameSink> sink =
      open_frame_sink(flags.output, {.width = video.facts.width,
                                     .height = video.facts.height,
                                     .tick = {1, rate},
                                     .quality = narrow<int>(flags.quality),
                                     .comment = texts.comment});
  VideoFile file(session, flags, *sink);
  const GeneratedVideo made = generate_video(task, video, file);
  file.clear_progress();
  if (const std::string why = task.window_report(); !why.empty()) note(session, why);
  // What stands is kept, also of a video that was stopped or failed.
  if (made.frames > 0) {
    const Publish publish = flags.overwrite ? Publish::kReplace : Publish::kNew;
    if (!sink->finish(made.frames, publish)) refuse_taken(flags.output);
    if (flags.sidecar && !save_xmp_sidecar(flags.output, texts.xmp, publish)) {
      refuse_taken(xmp_sidecar(flags.output));
    }
    report_video(session, flags, made, sink->codec(), rate);
  }
  if (made.status == ImageStatus::kFailed) {
    report_failure(session, flags, made);
    return made.frames > 0 ? 3 : 1;
  }
  return made.status == ImageStatus::kStopped ? session.stop_exit_code() : 0;
}

}  // namespace

void add_video(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("video", "generate a video from text, or go on with one");
  const auto flags = std::make_shared<VideoFlags>();
  text_flag(*app, "-m,--model", flags->model,
            "bundled name, folder or org/name of a model of videos; default " +
                std::string(kDefaultVideoModel));
  text_flag(*app, "-p,--prompt", flags->prompt, "text");
  text_flag(*app, "-n,--negative-prompt", flags->negative_prompt, "what guidance leads away from");
  text_flag(*app, "--first-frames", flags->first_frames,
            "video or image that the video begins with: as many of its last frames as fit");
  text_flag(*app, "--text-features", flags->text_features,
            "file of a text encoder's rows, in place of a prompt that is encoded here");
  text_encoder_flag(*app, flags->text_encoder);
  setting_flag(*app, setting::kFrames, flags->frames);
  setting_flag(*app, setting::kContinue, flags->continuation);
  app->add_flag("--endless", flags->endless, "go on until a signal; the video is kept");
  setting_flag(*app, setting::kFps, flags->fps);
  integer_flag(*app, "-s,--seed", flags->seed, -1, kMaxVideoSeed, "-1 = random, and recorded");
  const std::string group = "Output";
  text_flag(*app, "-o,--output", flags->output,
            "file name: .mkv or .webp (lossless), .mp4, .webm or .gif; name-%04d.png or a folder: "
            "PNG files")
      ->group(group);
  app->add_flag("--overwrite", flags->overwrite, "replace an existing file")->group(group);
  setting_flag(*app, setting::kQuality, flags->quality, {.group = group});
  app->add_flag("--sidecar", flags->sidecar, "also NAME.json with what was done, and NAME.xmp")
      ->group(group);
  app->add_flag("--disable-metadata", flags->disable_metadata,
                "record no prompt and no settings (the AI mark stays)")
      ->group(group);
  text_flag(*app, "--preview", flags->preview,
            "file that shows the newest frame, and the next one as its rows are written")
      ->group(group);
  setting_flag(*app, setting::kPreviewInterval, flags->preview_interval, {.group = group});
  add_sampling_flags(*app, Door::kVideo, flags->sampling);
  add_decode_flags(*app, Door::kVideo, flags->decode);
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_video(session, *flags); };
  });
}

}  // namespace tessera
