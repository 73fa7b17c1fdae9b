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

void clear_line() {
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace

ProgressStyle progress_style(const Session& session) {
  if (session.progress == ProgressMode::kJson) return ProgressStyle::kJson;
  if (session.progress == ProgressMode::kNone) return ProgressStyle::kNone;
  return isatty(STDERR_FILENO) == 1 ? ProgressStyle::kBar : ProgressStyle::kLines;
}

ProgressReporter::ProgressReporter(const Session& session, std::size_t images)
    : session_(session), images_(images), started_(monotonic_seconds()) {
  style_ = progress_style(session);
  if (style_ == ProgressStyle::kLines) last_shown_ = started_;
}

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
std::string ProgressReporter::json_text(const GenerateProgress& progress,
                                        const std::optional<JobCounts>& job,
                                        const std::optional<VideoCounts>& video) const {
  const auto known = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  const Figures figures = figures_of(progress);
  const ProcessUse use = process_use();
  nlohmann::ordered_json line = {{"progress",
                                  {{"first", progress.first},
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
                                   {"descriptors", use.descriptors}}}};
  if (job) {
    line["progress"].update(nlohmann::ordered_json{{"done", job->done},
                                                   {"failed", job->failed},
                                                   {"skipped", job->skipped},
                                                   {"pending", job->pending},
                                                   {"total", job->total}});
  }
  if (video) {
    line["progress"].update(nlohmann::ordered_json{{"frames_done", video->frames_done},
                                                   {"frames", video->frames},
                                                   {"segments", video->segments}});
  }
  return line.dump();
}

void ProgressReporter::show(const GenerateProgress& progress, const std::optional<JobCounts>& job,
                            const std::optional<VideoCounts>& video) {
  if (style_ == ProgressStyle::kNone) return;
  const double now = monotonic_seconds();
  const bool last = progress.tokens_done == progress.tokens;
  const double interval = style_ == ProgressStyle::kLines ? kLineSeconds : kBarSeconds;
  if (now - last_shown_ < interval && !(last && style_ == ProgressStyle::kJson)) return;
  last_shown_ = now;
  if (style_ == ProgressStyle::kJson) {
    std::fprintf(stderr, "%s\n", json_text(progress, job, video).c_str());
    return;
  }
  if (style_ == ProgressStyle::kLines) {
    std::fprintf(stderr, "tessera: %s\n", describe(progress).c_str());
    return;
  }
  const double share = images_ > 0 ? std::min(1.0, images_done(progress) / to_double(images_)) : 0;
  const int filled = truncate<int>(share * kBarWidth);
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) bar += i < filled ? '#' : '.';
  const bool color = session_.color_on_stderr();
  std::fprintf(stderr, "\r\033[K%s[%s]%s %s", color ? "\033[36m" : "", bar.c_str(),
               color ? "\033[0m" : "", describe(progress).c_str());
  std::fflush(stderr);
  bar_open_ = true;
}

void ProgressReporter::clear() {
  if (!bar_open_) return;
  clear_line();
  bar_open_ = false;
}

VideoReporter::VideoReporter(const Session& session) : style_(progress_style(session)) {
  if (style_ == ProgressStyle::kLines) last_shown_ = monotonic_seconds();
}

void VideoReporter::show(const VideoProgress& progress) {
  if (style_ == ProgressStyle::kNone) return;
  const double now = monotonic_seconds();
  const double interval = style_ == ProgressStyle::kLines ? kLineSeconds : kBarSeconds;
  const bool last = progress.frames > 0 && progress.frames_done == progress.frames;
  if (now - last_shown_ < interval && !(last && style_ == ProgressStyle::kJson)) return;
  last_shown_ = now;
  if (style_ == ProgressStyle::kJson) {
    const nlohmann::ordered_json line = {
        {"progress",
         {{"frames_done", progress.frames_done},
          {"frames", progress.frames > 0 ? nlohmann::ordered_json(progress.frames)
                                         : nlohmann::ordered_json()},
          {"tokens_done", progress.tokens_done},
          {"tokens", progress.tokens},
          {"passes", progress.passes},
          {"seconds", progress.seconds},
          {"resident_bytes", process_use().resident_bytes}}}};
    std::fprintf(stderr, "%s\n", line.dump().c_str());
    return;
  }
  char text[160];
  const std::string of = progress.frames > 0 ? "/" + std::to_string(progress.frames) : "";
  std::snprintf(text, sizeof text,
                "frame %" PRId64 "%s  token %" PRId64 "/%" PRId64 " of the window  %s",
                progress.frames_done, of.c_str(), progress.tokens_done, progress.tokens,
                clock_text(progress.seconds).c_str());
  if (style_ == ProgressStyle::kLines) {
    std::fprintf(stderr, "tessera: %s\n", text);
    return;
  }
  std::fprintf(stderr, "\r\033[K%s", text);
  std::fflush(stderr);
  line_open_ = true;
}

void VideoReporter::clear() {
  if (!line_open_) return;
  clear_line();
  line_open_ = false;
}

CountProgress::CountProgress(const Session& session)
    : style_(progress_style(session)), started_(monotonic_seconds()) {
  if (style_ == ProgressStyle::kLines) last_shown_ = started_;
}

void CountProgress::show(std::uint64_t done, std::uint64_t failed) {
  if (style_ == ProgressStyle::kNone) return;
  const double now = monotonic_seconds();
  const double interval = style_ == ProgressStyle::kBar ? kBarSeconds : kLineSeconds;
  if (now - last_shown_ >= interval) print(done, failed, now);
}

void CountProgress::print(std::uint64_t done, std::uint64_t failed, double now) {
  last_shown_ = now;
  const double seconds = now - started_;
  if (style_ == ProgressStyle::kJson) {
    const nlohmann::ordered_json line = {
        {"progress", {{"done", done}, {"failed", failed}, {"seconds", seconds}}}};
    std::fprintf(stderr, "%s\n", line.dump().c_str());
    return;
  }
  char text[120];
  std::snprintf(text, sizeof text, "%" PRIu64 " described, %" PRIu64 " failed, %.1f images/s, %s",
                done, failed, seconds > 0 ? to_double(done) / seconds : 0,
                clock_text(seconds).c_str());
  if (style_ == ProgressStyle::kLines) {
    std::fprintf(stderr, "tessera: %s\n", text);
    return;
  }
  std::fprintf(stderr, "\r\033[K%s", text);
  std::fflush(stderr);
  line_open_ = true;
}

void CountProgress::clear() {
  if (!line_open_) return;
  clear_line();
  line_open_ = false;
}

void CountProgress::finish(std::uint64_t done, std::uint64_t failed) {
  clear();
  if (style_ == ProgressStyle::kJson) print(done, failed, monotonic_seconds());
}

ByteProgress::ByteProgress(const Session& session)
    : style_(progress_style(session)),
      last_shown_(style_ == ProgressStyle::kLines ? monotonic_seconds() : -1e9) {}

void ByteProgress::show(std::string_view name, std::uint64_t written, std::uint64_t all) {
  if (style_ == ProgressStyle::kNone) return;
  const double now = monotonic_seconds();
  if (now - last_shown_ < (style_ == ProgressStyle::kBar ? kBarSeconds : kLineSeconds)) return;
  last_shown_ = now;
  if (style_ == ProgressStyle::kJson) {
    const nlohmann::ordered_json line = {
        {"progress", {{"tensor", name}, {"bytes_done", written}, {"bytes", all}}}};
    std::fprintf(stderr, "%s\n", line.dump().c_str());
    return;
  }
  const std::string text =
      format_bytes(written) + " of " + format_bytes(all) + "  " + escape_for_terminal(name, 80);
  if (style_ == ProgressStyle::kLines) {
    std::fprintf(stderr, "tessera: %s\n", text.c_str());
    return;
  }
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  line_open_ = true;
}

void ByteProgress::clear() {
  if (!line_open_) return;
  clear_line();
  line_open_ = false;
}

}  // namespace tessera
