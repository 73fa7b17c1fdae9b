// Progress reporting.
#include "apps/cli/progress.h"

#include <unistd.h>
#include <cinttypes>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/runtime/memory.h"
#include "apps/runtime/process_use.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr double kBarSeconds = 0.1;   // between two drawings of the bar
constexpr double kLineSeconds = 5.0;  // between two lines
constexpr int kBarWidth = 24;         // characters

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  char text[32];
  std::snprintf(text, sizeof text, "%" PRId64 ":%02d", whole / 60, narrow<int>(whole % 60));
  return text;
}

// Those that are over, and those at work as far as they are.
double images_done(const GenerateProgress& progress) {
  const double share =
      progress.tokens > 0 ? to_double(progress.tokens_done) / to_double(progress.tokens) : 0;
  return to_double(progress.first) + share * to_double(progress.images);
}

ProgressStyle style_of(const Session& session) {
  if (session.progress == ProgressMode::kJson) return ProgressStyle::kJson;
  if (session.progress == ProgressMode::kNone) return ProgressStyle::kNone;
  return isatty(STDERR_FILENO) == 1 ? ProgressStyle::kBar : ProgressStyle::kLines;
}

}  // namespace

ProgressLine::ProgressLine(const Session& session, double json_seconds)
    : style_(style_of(session)),
      interval_(style_ == ProgressStyle::kLines  ? kLineSeconds
                : style_ == ProgressStyle::kJson ? json_seconds
                                                 : kBarSeconds),
      last_shown_(style_ == ProgressStyle::kLines ? monotonic_seconds() : -1e9) {}

bool ProgressLine::due(bool last) {
  if (style_ == ProgressStyle::kNone) return false;
  const double now = monotonic_seconds();
  if (now - last_shown_ < interval_ && !(last && style_ == ProgressStyle::kJson)) return false;
  last_shown_ = now;
  return true;
}

void ProgressLine::write(const std::function<Json()>& json,
                         const std::function<std::string()>& text) {
  if (style_ == ProgressStyle::kJson) {
    std::fprintf(stderr, "%s\n", Json{{"progress", json()}}.dump().c_str());
  } else if (style_ == ProgressStyle::kLines) {
    std::fprintf(stderr, "tessera: %s\n", text().c_str());
  } else {
    std::fprintf(stderr, "\r\033[K%s", text().c_str());
    std::fflush(stderr);
    open_ = true;
  }
}

void ProgressLine::clear() {
  if (!open_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  open_ = false;
}

ProgressReporter::ProgressReporter(const Session& session, std::size_t images)
    : session_(session),
      line_(session, kBarSeconds),
      images_(images),
      started_(monotonic_seconds()) {}

ProgressReporter::Figures ProgressReporter::figures_of(const GenerateProgress& progress) const {
  Figures out;
  const auto images = to_double(std::max<std::size_t>(progress.images, 1));
  const auto run_tokens = to_double(progress.run_tokens);
  if (progress.seconds > 0) out.tokens_per_second = run_tokens / progress.seconds;
  out.tokens_per_pass = run_tokens / to_double(std::max<std::int64_t>(progress.image_passes, 1));
  if (out.tokens_per_second > 0) {
    // Images still to come count like those at work.
    const auto waiting = to_double(images_ - std::min(images_, progress.first + progress.images));
    const double missing = to_double(progress.tokens - progress.tokens_done) +
                           waiting * to_double(progress.tokens) / images;
    out.eta_seconds = missing / out.tokens_per_second;
  }
  if (progress.first > 0) {
    // Images at work count as far as they are.
    const double seconds = monotonic_seconds() - started_;
    out.images_per_hour = images_done(progress) * 3600 / std::max(seconds, 1e-3);
  }
  return out;
}

std::string ProgressReporter::describe(const GenerateProgress& progress) const {
  const Figures figures = figures_of(progress);
  char text[200], hourly[48] = "";
  if (figures.images_per_hour) {
    std::snprintf(hourly, sizeof hourly, "%.0f images/h  ", *figures.images_per_hour);
  }
  std::snprintf(text, sizeof text,
                "image %zu/%zu  row %" PRId64 "/%" PRId64
                "  %s%.1f tokens/s  %.2f tokens/pass  ETA %s",
                std::min(progress.first + progress.images, images_), images_, progress.rows_done,
                progress.rows, hourly, figures.tokens_per_second, figures.tokens_per_pass,
                figures.eta_seconds ? clock_text(*figures.eta_seconds).c_str() : "?");
  return text;
}

// What is not known yet is null.
Json ProgressReporter::json_of(const GenerateProgress& progress,
                               const std::optional<JobCounts>& job,
                               const std::optional<VideoCounts>& video) const {
  const auto known = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  const Figures figures = figures_of(progress);
  const ProcessUse use = process_use();
  Json out = {{"first", progress.first},
              {"pictures", progress.images},
              {"of", images_},
              {"rows_done", progress.rows_done},
              {"rows", progress.rows},
              {"tokens_done", progress.tokens_done},
              {"tokens", progress.tokens},
              {"passes", progress.passes},
              {"seconds", progress.seconds},
              {"tokens_per_pass", figures.tokens_per_pass},
              {"pictures_per_hour", known(figures.images_per_hour)},
              {"eta_seconds", known(figures.eta_seconds)},
              {"resident_bytes", use.resident_bytes},
              {"descriptors", use.descriptors}};
  if (job) {
    out.update(Json{{"done", job->done},
                    {"failed", job->failed},
                    {"skipped", job->skipped},
                    {"pending", job->pending},
                    {"total", job->total}});
  }
  if (video) {
    out.update(Json{{"frames_done", video->frames_done},
                    {"frames", video->frames},
                    {"segments", video->segments}});
  }
  return out;
}

void ProgressReporter::show(const GenerateProgress& progress, const std::optional<JobCounts>& job,
                            const std::optional<VideoCounts>& video) {
  if (!line_.due(progress.tokens_done == progress.tokens)) return;
  line_.write([&] { return json_of(progress, job, video); },
              [&] {
                if (line_.style() == ProgressStyle::kLines) return describe(progress);
                const double share =
                    images_ > 0 ? std::min(1.0, images_done(progress) / to_double(images_)) : 0;
                const int filled = truncate<int>(share * kBarWidth);
                std::string bar = session_.color_on_stderr() ? "\033[36m[" : "[";
                for (int i = 0; i < kBarWidth; ++i) bar += i < filled ? '#' : '.';
                bar += session_.color_on_stderr() ? "]\033[0m " : "] ";
                return bar + describe(progress);
              });
}

VideoReporter::VideoReporter(const Session& session) : line_(session, kBarSeconds) {}

void VideoReporter::show(const VideoProgress& progress) {
  if (!line_.due(progress.frames > 0 && progress.frames_done == progress.frames)) return;
  const auto json = [&]() -> Json {
    return {{"frames_done", progress.frames_done},
            {"frames", progress.frames > 0 ? Json(progress.frames) : Json()},
            {"tokens_done", progress.tokens_done},
            {"tokens", progress.tokens},
            {"passes", progress.passes},
            {"seconds", progress.seconds},
            {"resident_bytes", process_use().resident_bytes}};
  };
  line_.write(json, [&]() -> std::string {
    char text[160];
    const std::string of = progress.frames > 0 ? "/" + std::to_string(progress.frames) : "";
    std::snprintf(text, sizeof text,
                  "frame %" PRId64 "%s  token %" PRId64 "/%" PRId64 " of the window  %s",
                  progress.frames_done, of.c_str(), progress.tokens_done, progress.tokens,
                  clock_text(progress.seconds).c_str());
    return text;
  });
}

CountProgress::CountProgress(const Session& session)
    : line_(session, kLineSeconds), started_(monotonic_seconds()) {}

void CountProgress::show(std::uint64_t done, std::uint64_t failed) {
  if (line_.due()) print(done, failed);
}

void CountProgress::print(std::uint64_t done, std::uint64_t failed) {
  const double seconds = monotonic_seconds() - started_;
  const auto json = [&]() -> Json {
    return {{"done", done}, {"failed", failed}, {"seconds", seconds}};
  };
  line_.write(json, [&]() -> std::string {
    char text[120];
    std::snprintf(text, sizeof text, "%" PRIu64 " described, %" PRIu64 " failed, %.1f images/s, %s",
                  done, failed, seconds > 0 ? to_double(done) / seconds : 0,
                  clock_text(seconds).c_str());
    return text;
  });
}

void CountProgress::finish(std::uint64_t done, std::uint64_t failed) {
  clear();
  if (line_.style() == ProgressStyle::kJson) print(done, failed);
}

ByteProgress::ByteProgress(const Session& session) : line_(session, kLineSeconds) {}

void ByteProgress::show(std::string_view name, std::uint64_t written, std::uint64_t all) {
  if (!line_.due()) return;
  const auto json = [&]() -> Json {
    return {{"tensor", name}, {"bytes_done", written}, {"bytes", all}};
  };
  line_.write(json, [&] {
    return format_bytes(written) + " of " + format_bytes(all) + "  " +
           escape_for_terminal(name, 80);
  });
}

}  // namespace tessera
