#include "video/frame_sampler.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"

namespace tessera {

namespace {

// numpy.linspace(0, total - 1, count).astype(int): double steps, the last one exact.
std::vector<std::size_t> evenly_truncated(std::size_t total, std::size_t count) {
  std::vector<std::size_t> out(count, 0);
  if (count < 2) return out;
  const double last = static_cast<double>(total - 1);
  const double step = last / static_cast<double>(count - 1);
  for (std::size_t i = 0; i + 1 < count; ++i) {
    out[i] = static_cast<std::size_t>(static_cast<double>(i) * step);
  }
  out.back() = total - 1;
  return out;
}

// torch.linspace(0, total - 1, count).round().long(): single precision, the upper half counted from
// the end, halves to even.
std::vector<std::size_t> evenly_rounded(std::size_t total, std::size_t count) {
  std::vector<std::size_t> out(count, 0);
  if (count < 2) return out;
  const auto last = static_cast<float>(total - 1);
  const float step = last / static_cast<float>(count - 1);
  for (std::size_t i = 0; i < count; ++i) {
    const float at = i < count / 2 ? step * static_cast<float>(i)
                                   : last - step * static_cast<float>(count - 1 - i);
    out[i] = static_cast<std::size_t>(std::nearbyint(at));
  }
  return out;
}

double rate_of(std::span<const std::int64_t> times, const VideoInfo& info) {
  if (info.rate.num > 0) return info.rate.value();
  if (times.size() < 2) return 1.0;
  const double seconds = static_cast<double>(times.back() - times.front()) * info.tick.value();
  return static_cast<double>(times.size() - 1) / seconds;
}

std::vector<std::size_t> by_rate(const FrameSampling& sampling, std::span<const std::int64_t> times,
                                 const VideoInfo& info) {
  std::vector<std::size_t> out;
  const double tick = info.tick.value();
  const double end = static_cast<double>(times.back()) * tick;
  std::size_t at = 0;
  for (std::int64_t i = 0;; ++i) {
    const double moment = static_cast<double>(i) / sampling.rate;
    if (moment > end && i > 0) break;
    // A frame that begins within a billionth of the moment is on the screen.
    while (at + 1 < times.size() && static_cast<double>(times[at + 1]) * tick <= moment + 1e-9)
      ++at;
    out.push_back(at);
  }
  const auto most = static_cast<std::size_t>(sampling.frames);
  if (out.size() <= most) return out;
  std::vector<std::size_t> thin;
  for (const std::size_t i : evenly_truncated(out.size(), most)) thin.push_back(out[i]);
  return thin;
}

// smart_nframes of qwen-vl-utils: total / rate of the file * wanted rate, kept between 4 and the
// cap, not more than there are, made even by leaving one out.
std::vector<std::size_t> by_qwen(const FrameSampling& sampling, std::span<const std::int64_t> times,
                                 const VideoInfo& info) {
  const auto total = static_cast<double>(times.size());
  const double cap = std::floor(std::min(static_cast<double>(sampling.frames), total) / 2.0) * 2.0;
  double count = total / rate_of(times, info) * sampling.rate;
  count = std::min(std::min(std::max(count, 4.0), cap), total);
  count = std::floor(count / 2.0) * 2.0;
  // The processor refuses a clip of one frame; here it is shown twice, as a picture is.
  if (count < 2.0) return {0, times.size() - 1};
  return evenly_rounded(times.size(), static_cast<std::size_t>(count));
}

}  // namespace

std::vector<std::size_t> sample_frames(const FrameSampling& sampling,
                                       std::span<const std::int64_t> times, const VideoInfo& info) {
  expects(!times.empty(), "a clip with frames");
  expects(sampling.frames >= (sampling.rule == FrameRule::kQwen ? 4 : 1) && sampling.rate > 0,
          "frames to sample");
  switch (sampling.rule) {
    case FrameRule::kUniform:
      return evenly_truncated(times.size(), static_cast<std::size_t>(sampling.frames));
    case FrameRule::kRate:
      return by_rate(sampling, times, info);
    case FrameRule::kQwen:
      return by_qwen(sampling, times, info);
  }
  return {};
}

}  // namespace tessera
