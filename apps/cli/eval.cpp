// `tessera eval scenes`: how well a model paints the scenes it is asked for, judged from pixels,
// with intervals, ceiling and floor.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/decode_flags.h"
#include "apps/cli/devices.h"
#include "apps/cli/flags.h"
#include "apps/cli/sampling_flags.h"
#include "apps/cli/session.h"
#include "apps/pipeline/eval_scenes.h"
#include "engine/core/io.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostPictures = 100000;
constexpr std::int64_t kSheetGap = 2;  // pixels

struct EvalFlags {
  std::string model;
  std::string split = "both";
  std::string judge;
  std::int64_t count = 200, ceiling = 1000, reconstructions = 200, floor = 100;
  std::int64_t seed = 1, scene_seed = 1000;
  std::int64_t batch_size = 8;
  SamplingChoice sampling;
  DecodeFlags decode;
  DeviceFlags device;
  std::optional<std::string> sheet;
  std::int64_t sheet_count = 32, columns = 8;
  bool overwrite = false;
};

EvalScenesRequest request_of(const EvalFlags& flags) {
  EvalScenesRequest request;
  request.options.model = flags.model;
  request.options.device = flags.device.device;
  request.options.threads = static_cast<int>(flags.device.threads);
  request.options.storage = storage_choice(flags.device);
  request.options.batch_size = flags.batch_size;
  request.options.draft_model = flags.decode.draft_model.value_or("");
  request.options.method = method_of(flags.decode);
  request.sampling = flags.sampling;
  request.judge = flags.judge;
  request.seed = static_cast<std::uint64_t>(flags.seed);
  request.scene_seed = static_cast<std::uint64_t>(flags.scene_seed);
  if (flags.split != "both") request.splits = {parse_split(flags.split)};
  request.prompts = flags.count;
  request.ceiling = flags.ceiling;
  request.reconstructions = flags.reconstructions;
  request.floor = flags.floor;
  return request;
}

nlohmann::ordered_json settings_json(const EvalScenesReport& report, const EvalFlags& flags) {
  return {{"model", report.model},
          {"judge", report.judge},
          {"prompts", flags.count},
          {"seed", flags.seed},
          {"scene_seed", flags.scene_seed},
          {"cfg_scale", report.law.guidance},
          {"temp", report.law.temperature},
          {"top_k", report.law.top_k},
          {"top_p", report.law.top_p},
          {"min_p", report.law.min_p},
          {"typical", report.law.typical},
          {"decode", report.method.name},
          {"drafter", report.method.drafter},
          {"tail", report.method.tail},
          {"accept", report.method.rule},
          {"tree", report.method.tree},
          {"row_lead", report.method.row_lead},
          {"promise", promise_name(promise_of(report.method))},
          {"window", report.method.window}};
}

std::string figures_text(const EvalScenesReport& report) {
  char text[256];
  std::string out;
  if (report.psnr_db.count > 0) {
    std::snprintf(text, sizeof text, "Tokenizer: %.2f dB PSNR (%.2f-%.2f) on %lld val renders.\n",
                  report.psnr_db.mean, report.psnr_db.low, report.psnr_db.high,
                  static_cast<long long>(report.psnr_db.count));
    out += text;
  }
  if (report.mismatched_accepted.count > 0) {
    std::snprintf(text, sizeof text, "Judge %s: %.1f %% of %lld mismatched pairs accepted.\n",
                  report.judge.c_str(), 100.0 * report.mismatched_accepted.mean,
                  static_cast<long long>(report.mismatched_accepted.count));
    out += text;
  }
  const Interval& rate = report.tokens_per_pass;
  std::snprintf(
      text, sizeof text,
      "Decoding %s, window %lld: %.2f tokens a pass (%.2f-%.2f), acceptance %.3f, entropy "
      "%.3f nats a token, z %.2f, PIT %.2f.\n",
      report.method.name.c_str(), static_cast<long long>(report.method.window), rate.mean, rate.low,
      rate.high, report.meters.acceptance(), report.meters.mean_entropy(), report.meters.z_score(),
      report.meters.pit_statistic());
  return out + text;
}

std::string report_text(const EvalScenesReport& report, const EvalFlags& flags) {
  char settings[256];
  std::snprintf(settings, sizeof settings,
                "%s: guidance %g, temperature %g, top-k %lld, top-p %g, seed %lld, scene seed "
                "%lld. Per cent right, 95 %% bootstrap interval.\n\n",
                report.model.c_str(), report.law.guidance, report.law.temperature,
                static_cast<long long>(report.law.top_k), report.law.top_p,
                static_cast<long long>(flags.seed), static_cast<long long>(flags.scene_seed));
  return settings + markdown_table(report.rows) + "\n" + figures_text(report);
}

void save_sheet(const fs::path& path, const EvalScenesReport& report, const EvalFlags& flags) {
  std::vector<Image> images;
  std::string prompts;
  for (const EvalSample& sample : report.samples) {
    if (images.size() == static_cast<std::size_t>(flags.sheet_count)) break;
    images.push_back(sample.image);
    prompts += sample.prompt + "\n";
  }
  if (images.empty()) return;
  const PngText texts[] = {{"Description", prompts}};
  save_png(path, contact_sheet(images, flags.columns, kSheetGap), texts, ai_media_xmp("tessera"));
}

void check_sheet(const EvalFlags& flags) {
  if (!flags.sheet) return;
  const fs::path path = *flags.sheet;
  if (file_exists(path) && !flags.overwrite) {
    throw Error({.kind = ErrorKind::kStorage,
                 .code = "E_OUTPUT_EXISTS",
                 .file = path.string(),
                 .expected = "a name that is free",
                 .found = "a file that is there",
                 .hint = "--overwrite replaces it"});
  }
  ensure_output_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

// A line on stderr every few seconds.
class Reporter {
 public:
  explicit Reporter(const Session& session) : session_(session) {}
  Flow operator()(const std::string& what, std::int64_t done, std::int64_t of) {
    const double now = monotonic_seconds();
    if (session_.progress != ProgressMode::kNone && now >= next_) {
      next_ = now + 5.0;
      if (session_.progress == ProgressMode::kJson) {
        const nlohmann::ordered_json line = {{"part", what}, {"done", done}, {"of", of}};
        std::fprintf(stderr, "%s\n", line.dump().c_str());
      } else {
        std::fprintf(stderr, "%s: %lld of %lld\n", what.c_str(), static_cast<long long>(done),
                     static_cast<long long>(of));
      }
    }
    return session_.stop_requested() ? Flow::kStop : Flow::kContinue;
  }

 private:
  const Session& session_;
  double next_ = monotonic_seconds() + 2.0;
};

int run_eval_scenes(const Session& session, const EvalFlags& flags) {
  check_sheet(flags);
  EvalListener listener;
  listener.on_progress = Reporter(session);
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

}  // namespace

void add_eval(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("eval", "measure how good a model's pictures are");
  auto flags = std::make_shared<EvalFlags>();
  auto what = std::make_shared<std::string>();
  app->add_option("what", *what, "scenes: pictures of the tabletop world, judged from pixels")
      ->required()
      ->check(CLI::IsMember({"scenes"}));
  text_flag(*app, "-m,--model", flags->model, "bundled name, folder, or org/name of the hub cache");
  choice_flag(*app, "--split", flags->split, {"both", "val", "holdout", "train"},
              "prompts of which split; both: val and holdout");
  integer_flag(*app, "-b,--count", flags->count, 1, kMostPictures, "prompts of each split");
  integer_flag(*app, "-s,--seed", flags->seed, 0, std::int64_t{1} << 53, "seed of the painting");
  integer_flag(*app, "--scene-seed", flags->scene_seed, 0, std::int64_t{1} << 53,
               "seed of the scenes");
  integer_flag(*app, "--ceiling", flags->ceiling, 0, kMostPictures,
               "true renders that the judge reads; 0 = none");
  integer_flag(*app, "--reconstructions", flags->reconstructions, 0, kMostPictures,
               "renders through the tokenizer; 0 = none");
  integer_flag(*app, "--floor", flags->floor, 0, kMostPictures,
               "prompts for the untrained model; 0 = none");
  integer_flag(*app, "--batch-size", flags->batch_size, 1, 256, "pictures painted at once");
  text_flag(*app, "--judge", flags->judge,
            "captioner that reads the pictures, or a judge network such as tabletop-judge");
  text_flag(*app, "--sheet", flags->sheet, "PNG with the first pictures on a grid");
  integer_flag(*app, "--sheet-count", flags->sheet_count, 1, 1024, "pictures on the sheet");
  integer_flag(*app, "--columns", flags->columns, 1, 256, "pictures a row of the sheet");
  app->add_flag("--overwrite", flags->overwrite, "replace a sheet that is there");
  add_sampling_flags(*app, flags->sampling);
  add_decode_flags(*app, flags->decode);
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, flags, what] {
    session.run = [&session, flags, what] { return run_eval_scenes(session, *flags); };
  });
}

}  // namespace tessera
