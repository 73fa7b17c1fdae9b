#include "apps/lab/cli/eval_videos.h"

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/lab/cli/eval_progress.h"
#include "engine/core/index.h"
#include "engine/decoding/decode_settings.h"
#include "engine/sampling/sampling_settings.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSheetVideos = 50;
constexpr std::int64_t kVideoSheetGap = 2;  // pixels

// A sheet holds some videos of a split, one a row.
fs::path sheet_path(const std::string& folder, SceneSplit split, std::size_t sheet) {
  return fs::path(folder) /
         (std::string(name_of(split)) + "-" + std::to_string(sheet + 1) + ".png");
}

void check_sheets(const EvalVideosRequest& request, const EvalVideosOutput& output) {
  if (!output.folder) return;
  const auto count = to_size(request.videos);
  for (const SceneSplit split : request.splits) {
    for (std::size_t sheet = 0; sheet * kSheetVideos < count; ++sheet) {
      check_eval_output(sheet_path(*output.folder, split, sheet).string(), output.overwrite);
    }
  }
}

void save_sheets(const EvalVideosRequest& request, const EvalVideosReport& report,
                 const std::string& folder) {
  const auto count = to_size(request.videos);
  for (std::size_t part = 0; part < request.splits.size(); ++part) {
    for (std::size_t first = 0; first < count; first += kSheetVideos) {
      std::vector<Image> frames;
      std::string prompts;
      for (std::size_t i = first; i < std::min(first + kSheetVideos, count); ++i) {
        const VideoSample& sample = report.samples[part * count + i];
        if (sample.frames.empty()) continue;  // it failed
        frames.insert(frames.end(), sample.frames.begin(), sample.frames.end());
        prompts += sample.prompt + "\n";
      }
      if (frames.empty()) continue;
      const PngText texts[] = {{"Description", prompts}};
      save_png(sheet_path(folder, request.splits[part], first / kSheetVideos),
               contact_sheet(frames, report.frames, kVideoSheetGap), texts, ai_media_xmp("tessera"));
    }
  }
}

nlohmann::ordered_json settings_json(const EvalVideosReport& report,
                                     const EvalVideosRequest& request) {
  nlohmann::ordered_json out = {{"model", report.model},
                                {"judge", report.scorer},
                                {"clips", request.videos},
                                {"frames", report.frames},
                                {"first_frames", report.first_frames},
                                {"seed", request.seed},
                                {"scene_seed", request.scene_seed}};
  write_dist(out, report.dist);
  out.update(method_report(report.method));
  return out;
}

nlohmann::ordered_json generation_json(const EvalVideosReport& report) {
  return {{"tokens_per_pass", interval_json(report.tokens_per_pass)},
          {"passes", interval_json(report.passes)},
          {"entropy", interval_json(report.entropy)},
          {"failed", report.failed}};
}

std::string report_text(const EvalVideosReport& report, const EvalVideosRequest& request) {
  char text[320];
  std::snprintf(text, sizeof text,
                "%s: %" PRId64 " frames, %" PRId64
                " of them given, guidance %g, temperature %g, top-k %" PRId64
                ", "
                "top-p %g, seed %" PRIu64 ", scene seed %" PRIu64
                ". 95 %% bootstrap intervals over videos.\n\n",
                report.model.c_str(), report.frames, report.first_frames, report.dist.guidance,
                report.dist.temperature, report.dist.top_k, report.dist.top_p, request.seed,
                request.scene_seed);
  std::string out = text + video_tables(report.rows) + "\n";
  const Interval &rate = report.tokens_per_pass, &passes = report.passes;
  const Interval &entropy = report.entropy, &seconds = report.seconds;
  std::snprintf(text, sizeof text,
                "Decoding %s, window %" PRId64
                ": %.2f tokens a pass (%.2f-%.2f), %.1f passes (%.1f-%.1f) "
                "and %.2f s (%.2f-%.2f) a video, acceptance %.3f, entropy %.3f nats a token "
                "(%.3f-%.3f), z %.2f, PIT %.2f.\n",
                report.method.name.c_str(), report.method.window, rate.mean, rate.low, rate.high,
                passes.mean, passes.low, passes.high, seconds.mean, seconds.low, seconds.high,
                report.meters.acceptance(), entropy.mean, entropy.low, entropy.high,
                report.meters.z_score(), report.meters.pit_statistic());
  out += text;
  if (report.failed > 0) out += std::to_string(report.failed) + " videos failed.\n";
  return out;
}

}  // namespace

int run_eval_videos(const Session& session, const EvalVideosRequest& request,
                   const EvalVideosOutput& output) {
  check_sheets(request, output);
  EvalVideosListener listener;
  listener.on_progress = EvalProgress(session);
  listener.on_row = [&](const VideoRow& row) {
    if (session.json) print_json_line(row_json(row));
  };
  const EvalVideosReport report = eval_videos(request, listener);
  if (report.stopped) return session.stop_exit_code();
  if (output.folder) save_sheets(request, report, *output.folder);
  const std::string text = report_text(report, request);
  if (session.json) {
    print_json_line({{"settings", settings_json(report, request)}});
    print_json_line({{"painting", generation_json(report)}});
    print_json_line({{"meters", meters_json(report.meters)}});
    std::fputs(text.c_str(), stderr);
  } else {
    print_line(text.substr(0, text.size() - 1));
  }
  return report.failed > 0 ? 3 : 0;
}

}  // namespace tessera
