#include "video/frame_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// numpy.linspace(0, total - 1, count).astype(int): double steps, the last one exact.
std::vector<std::size_t> evenly_truncated(std::size_t total, std::size_t count) {
  std::vector<std::size_t> out(count, 0);
  if (count < 2) return out;
  const double last = to_double(total - 1);
  const double step = last / to_double(count - 1);
  for (std::size_t i = 0; i + 1 < count; ++i) {
    out[i] = truncate<std::size_t>(to_double(i) * step);
  }
  out.back() = total - 1;
  return out;
}

// torch.linspace(0, total - 1, count).round().long(): single precision, the upper half counted from
// the end, halves to even.
std::vector<std::size_t> evenly_rounded(std::size_t total, std::size_t count) {
  std::vector<std::size_t> out(count, 0);
  if (count < 2) return out;
  const auto last = to_float(total - 1);
  const float step = last / to_float(count - 1);
  for (std::size_t i = 0; i < count; ++i) {
    const float at = i < count / 2 ? step * to_float(i) : last - step * to_float(count - 1 - i);
    out[i] = truncate<std::size_t>(std::nearbyint(at));
  }
  return out;
}

double seconds_between(std::int64_t from, std::int64_t to, const VideoInfo& info) {
  return (to_double(to) - to_double(from)) * info.tick.value();
}

double rate_of(std::span<const std::int64_t> times, const VideoInfo& info) {
  if (info.rate.num > 0) return info.rate.value();
  if (times.size() < 2) return 1.0;
  return to_double(times.size() - 1) / seconds_between(times.front(), times.back(), info);
}

[[noreturn]] void fail_count(std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_VIDEO_SAMPLES",
               .expected = "at most " + std::to_string(kMaxSamples) +
                           " frames to sample, out of at most 2^52 moments",
               .found = std::move(found)});
}

// How many moments i / rate are not after `end` seconds; the first always counts.
std::size_t moments_until(double end, double rate) {
  constexpr double kMax = 0x1p52;  // whole numbers up to there are exact
  const double draft = std::floor(std::max(end, 0.0) * rate);
  if (!(draft < kMax)) {
    fail_count(std::to_string(rate) + " a second of " + std::to_string(end) + " s");
  }
  // The product may be rounded over a moment or under it: the moments decide.
  auto i = truncate<std::size_t>(draft);
  while (i > 0 && to_double(i) / rate > end) --i;
  while (to_double(i + 1) / rate <= end) ++i;
  return i + 1;
}

std::vector<std::size_t> by_rate(const FrameSampling& sampling, std::span<const std::int64_t> times,
                                 const VideoInfo& info) {
  const double tick = info.tick.value();
  const std::size_t moments = moments_until(to_double(times.back()) * tick, sampling.rate);
  const auto most = to_size(sampling.frames);
  if (std::min(moments, most) > kMaxSamples) fail_count(std::to_string(std::min(moments, most)));
  std::vector<std::size_t> out;
  if (moments > most) {
    out = evenly_truncated(moments, most);
  } else {
    out.resize(moments);
    std::iota(out.begin(), out.end(), std::size_t{0});
  }
  for (std::size_t& i : out) {
    // A frame that begins within a billionth of the moment is on the screen.
    const double moment = to_double(i) / sampling.rate + 1e-9;
    const auto later = std::partition_point(times.begin() + 1, times.end(), [&](std::int64_t time) {
      return to_double(time) * tick <= moment;
    });
    i = to_size(later - times.begin()) - 1;
  }
  return out;
}

// smart_nframes of qwen-vl-utils: total / rate of the file * wanted rate, kept between 4 and the
// cap, not more than there are, made even by leaving one out.
std::vector<std::size_t> by_qwen(const FrameSampling& sampling, std::span<const std::int64_t> times,
                                 const VideoInfo& info) {
  const auto total = to_double(times.size());
  const double cap = std::floor(std::min(to_double(sampling.frames), total) / 2.0) * 2.0;
  double count = total / rate_of(times, info) * sampling.rate;
  count = std::min(std::min(std::max(count, 4.0), cap), total);
  count = std::floor(count / 2.0) * 2.0;
  // The processor refuses a video of one frame; here it is shown twice, as an image is.
  if (count < 2.0) return {0, times.size() - 1};
  return evenly_rounded(times.size(), static_cast<std::size_t>(count));
}

}  // namespace

std::vector<std::size_t> sample_frames(const FrameSampling& sampling,
                                       std::span<const std::int64_t> times, const VideoInfo& info) {
  expects(!times.empty(), "a video with frames");
  expects(sampling.frames >= (sampling.rule == FrameRule::kQwen ? 4 : 1) && sampling.rate > 0,
          "frames to sample");
  if (!std::isfinite(sampling.rate)) fail_count("an endless rate");
  switch (sampling.rule) {
    case FrameRule::kUniform:
      if (sampling.frames > to_index(kMaxSamples)) {
        fail_count(std::to_string(sampling.frames));
      }
      return evenly_truncated(times.size(), to_size(sampling.frames));
    case FrameRule::kRate:
      return by_rate(sampling, times, info);
    case FrameRule::kQwen:
      return by_qwen(sampling, times, info);
  }
  return {};
}

}  // namespace tessera
