// `tessera-lab eval`: how well a model generates the scenes (eval scenes) or videos (eval videos,
// eval_clips.h) it is asked for, scored from pixels, with intervals, ceiling and floor.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/flags.h"
#include "apps/cli/sampling_flags.h"
#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "apps/lab/cli/commands.h"
#include "apps/lab/cli/eval_progress.h"
#include "apps/lab/cli/eval_videos.h"
#include "apps/lab/eval/eval_scenes.h"
#include "apps/runtime/output_settings.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/sampling/sampling_settings.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxImages = 100000;
constexpr std::int64_t kMaxVideos = 1000;  // their frames are kept to the end
constexpr std::int64_t kSheetGap = 2;      // pixels

struct EvalFlags {
  std::string model;
  std::string split = "both";
  std::string scorer;
  std::optional<std::int64_t> count;
  std::int64_t ceiling = 1000, reconstructions = 200, floor = 100;
  std::int64_t seed = 1, scene_seed = 1000;
  std::int64_t batch_size = 8;
  SettingValues sampling, decode;
  DeviceFlags device;
  std::optional<std::string> sheet;
  std::int64_t sheet_count = 32, columns = 8;
  bool overwrite = false;
  // Of videos.
  std::int64_t frames = 0, first_frames = 0;
  std::optional<std::string> save;

  std::int64_t prompts() const { return count.value_or(200); }
};

GenerateOptions pipeline_of(const EvalFlags& flags) {
  GenerateOptions options;
  options.model = flags.model;
  options.device = flags.device.device;
  options.cuda = cuda_choice(flags.device);
  options.threads = narrow<int>(flags.device.threads);
  options.storage = storage_choice(flags.device);
  options.batch_size = flags.batch_size;
  choose_method(options, flags.decode);
  return options;
}

EvalScenesRequest request_of(const EvalFlags& flags) {
  EvalScenesRequest request;
  request.options = pipeline_of(flags);
  request.sampling = flags.sampling;
  request.scorer = flags.scorer;
  request.seed = low_bits<std::uint64_t>(flags.seed);
  request.scene_seed = low_bits<std::uint64_t>(flags.scene_seed);
  if (flags.split != "both") request.splits = {parse_split(flags.split)};
  request.prompts = flags.prompts();
  request.ceiling = flags.ceiling;
  request.reconstructions = flags.reconstructions;
  request.floor = flags.floor;
  return request;
}

nlohmann::ordered_json settings_json(const EvalScenesReport& report, const EvalFlags& flags) {
  nlohmann::ordered_json out = {{"model", report.model},
                                {"judge", report.scorer},
                                {"prompts", flags.prompts()},
                                {"seed", flags.seed},
                                {"scene_seed", flags.scene_seed}};
  write_dist(out, report.dist);
  out.update(method_report(report.method));
  for (const Setting* row : {&setting::kRowLead, &setting::kRowWindow}) {
    write_setting(out, *row, report.method.settings.get(*row));
  }
  return out;
}

std::string figures_text(const EvalScenesReport& report) {
  char text[256];
  std::string out;
  if (report.psnr_db.count > 0) {
    std::snprintf(
        text, sizeof text, "Tokenizer: %.2f dB PSNR (%.2f-%.2f) on %" PRId64 " val renders.\n",
        report.psnr_db.mean, report.psnr_db.low, report.psnr_db.high, report.psnr_db.count);
    out += text;
  }
  if (report.mismatched_accepted.count > 0) {
    std::snprintf(text, sizeof text,
                  "Judge %s: %.1f %% of %" PRId64 " mismatched pairs accepted.\n",
                  report.scorer.c_str(), 100.0 * report.mismatched_accepted.mean,
                  report.mismatched_accepted.count);
    out += text;
  }
  const Interval& rate = report.tokens_per_pass;
  std::snprintf(text, sizeof text,
                "Decoding %s, window %" PRId64
                ": %.2f tokens a pass (%.2f-%.2f), acceptance %.3f, entropy "
                "%.3f nats a token, z %.2f, PIT %.2f.\n",
                report.method.name.c_str(), report.method.window, rate.mean, rate.low, rate.high,
                report.meters.acceptance(), report.meters.mean_entropy(), report.meters.z_score(),
                report.meters.pit_statistic());
  return out + text;
}

std::string report_text(const EvalScenesReport& report, const EvalFlags& flags) {
  char settings[256];
  std::snprintf(settings, sizeof settings,
                "%s: guidance %g, temperature %g, top-k %" PRId64 ", top-p %g, seed %" PRId64
                ", scene seed "
                "%" PRId64 ". Per cent right, 95 %% bootstrap interval.\n\n",
                report.model.c_str(), report.dist.guidance, report.dist.temperature,
                report.dist.top_k, report.dist.top_p, flags.seed, flags.scene_seed);
  return settings + markdown_table(report.rows) + "\n" + figures_text(report);
}

void save_sheet(const fs::path& path, const EvalScenesReport& report, const EvalFlags& flags) {
  std::vector<Image> images;
  std::string prompts;
  for (const EvalSample& sample : report.samples) {
    if (images.size() == to_size(flags.sheet_count)) break;
    images.push_back(sample.image);
    prompts += sample.prompt + "\n";
  }
  if (images.empty()) return;
  const PngText texts[] = {{"Description", prompts}};
  save_png(path, contact_sheet(images, flags.columns, kSheetGap), texts, ai_media_xmp("tessera"));
}

int run_eval_scenes(const Session& session, const EvalFlags& flags) {
  if (flags.sheet) check_eval_output(*flags.sheet, flags.overwrite);
  EvalListener listener;
  listener.on_progress = EvalProgress(session);
  listener.on_part = [&](const EvalPart& part) {
    if (!session.json) return;
    if (part.figure.empty()) {
      print_json_line(row_json(part.row));
    } else {
      nlohmann::ordered_json line = {{"figure", part.figure}};
      line.update(interval_json(part.value));
      print_json_line(line);
    }
  };
  const EvalScenesReport report = eval_scenes(request_of(flags), listener);
  if (report.stopped) return session.stop_exit_code();
  if (flags.sheet) save_sheet(*flags.sheet, report, flags);
  const std::string text = report_text(report, flags);
  if (session.json) {
    print_json_line({{"settings", settings_json(report, flags)}});
    print_json_line({{"meters", meters_json(report.meters)}});
    std::fputs(text.c_str(), stderr);
  } else {
    print_line(text.substr(0, text.size() - 1));
  }
  return 0;
}

int run_videos(const Session& session, const EvalFlags& flags) {
  const std::int64_t videos = flags.count.value_or(50);
  if (videos > kMaxVideos) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_VALUE",
                 .where = "--count",
                 .expected = "1 to " + std::to_string(kMaxVideos) + " videos",
                 .found = std::to_string(videos)});
  }
  EvalVideosRequest request;
  request.options = pipeline_of(flags);
  request.sampling = flags.sampling;
  if (!flags.scorer.empty()) request.scorer = flags.scorer;
  request.seed = low_bits<std::uint64_t>(flags.seed);
  request.scene_seed = low_bits<std::uint64_t>(flags.scene_seed);
  if (flags.split != "both") request.splits = {parse_split(flags.split)};
  request.videos = videos;
  request.frames = flags.frames;
  request.first_frames = flags.first_frames;
  return run_eval_videos(session, request, {flags.save, flags.overwrite});
}

constexpr const char* kOfScenes[] = {"--ceiling", "--reconstructions", "--floor",  "--batch-size",
                                     "--sheet",   "--sheet-count",     "--columns"};
constexpr const char* kOfVideos[] = {"--frames", "--first-frames", "--save"};

// A flag of the command line that the other evaluation has.
void check_own_flags(const CLI::App& app, const std::string& what) {
  const bool videos = what == "clips";
  for (const char* name : videos ? std::span<const char* const>(kOfScenes) : kOfVideos) {
    if (app.get_option(name)->count() == 0) continue;
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_CONFLICT",
                 .where = name,
                 .expected = std::string("flags of eval ") + what,
                 .found = std::string("one of eval ") + (videos ? "scenes" : "clips")});
  }
}

}  // namespace

void add_eval(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("eval", "measure how good a model's images or videos are");
  auto flags = std::make_shared<EvalFlags>();
  auto what = std::make_shared<std::string>();
  app->add_option("what", *what, "scenes or clips: of the tabletop world, scored from pixels")
      ->required()
      ->check(CLI::IsMember({"scenes", "clips"}));
  text_flag(*app, "-m,--model", flags->model, "bundled name, folder, or org/name of the hub cache");
  choice_flag(*app, "--split", flags->split, {"both", "val", "holdout", "train"},
              "prompts of which split; both: val and holdout");
  integer_flag(*app, "-b,--count", flags->count, 1, kMaxImages,
               "prompts of each split; default 200 scenes or 50 videos");
  integer_flag(*app, "-s,--seed", flags->seed, 0, std::int64_t{1} << 53, "seed of the generation");
  integer_flag(*app, "--scene-seed", flags->scene_seed, 0, std::int64_t{1} << 53,
               "seed of the scenes");
  integer_flag(*app, "--ceiling", flags->ceiling, 0, kMaxImages,
               "true renders that the scorer reads; 0 = none");
  integer_flag(*app, "--reconstructions", flags->reconstructions, 0, kMaxImages,
               "renders through the tokenizer; 0 = none");
  integer_flag(*app, "--floor", flags->floor, 0, kMaxImages,
               "prompts for the untrained model; 0 = none");
  setting_flag(*app, setting::kBatchSize, flags->batch_size);
  text_flag(*app, "--judge", flags->scorer,
            "captioner that reads the images, or a scoring network such as tabletop-judge");
  text_flag(*app, "--sheet", flags->sheet, "PNG with the first images on a grid");
  integer_flag(*app, "--sheet-count", flags->sheet_count, 1, 1024, "images on the sheet");
  integer_flag(*app, "--columns", flags->columns, 1, 256, "images a row of the sheet");
  integer_flag(*app, "--frames", flags->frames, 0, kMaxEvalFrames,
               "of a video; 0 = the model's window");
  integer_flag(*app, "--first-frames", flags->first_frames, 0, kMaxEvalFrames,
               "of the true video that are given");
  text_flag(*app, "--save", flags->save, "folder for sheets of the videos, one a row");
  app->add_flag("--overwrite", flags->overwrite, "replace a sheet that is there");
  add_sampling_flags(*app, Door::kEval, flags->sampling);
  add_decode_flags(*app, Door::kEval, flags->decode);
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, app, flags, what] {
    check_own_flags(*app, *what);
    session.run = [&session, flags, what] {
      return *what == "clips" ? run_videos(session, *flags) : run_eval_scenes(session, *flags);
    };
  });
}

}  // namespace tessera
