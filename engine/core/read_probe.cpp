// Sums a buffer piece by piece and takes the time of each.
#include "engine/core/read_probe.h"

#include <emmintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::int64_t kProbeChunk = std::int64_t{128} << 10;
constexpr std::size_t kProbePiece = std::size_t{32} << 20;  // as long as a product or two

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ReadProbe::ReadProbe(ThreadPool& threads, std::size_t bytes)
    : threads_(threads), bytes_(bytes), buffer_(allocate_host(bytes)) {
  auto* words = static_cast<std::uint64_t*>(buffer_.get());
  for (std::size_t i = 0; i < bytes_ / 8; ++i) words[i] = i * 0x9E3779B97F4A7C15u;
}

void ReadProbe::one_pass(std::vector<double>& rates) {
  const auto* start = static_cast<const char*>(buffer_.get());
  for (std::size_t at = 0; at + kProbePiece <= bytes_; at += kProbePiece) {
    std::atomic<std::uint64_t> total{0};
    const double begin_time = now();
    threads_.parallel_for(kProbePiece, kProbeChunk, [&](std::int64_t begin, std::int64_t end, int) {
      const auto* word = reinterpret_cast<const __m128i*>(start + at + begin);
      const auto* stop = reinterpret_cast<const __m128i*>(start + at + end);
      __m128i sum[8] = {};
      for (; word + 8 <= stop; word += 8) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) sum[i] = _mm_add_epi64(sum[i], _mm_load_si128(word + i));
      }
      for (int i = 1; i < 8; ++i) sum[0] = _mm_add_epi64(sum[0], sum[i]);
      total.fetch_add(low_bits<std::uint64_t>(_mm_cvtsi128_si64(sum[0])));
    });
    rates.push_back(to_double(kProbePiece) / (now() - begin_time) * 1e-9);
    sum_ += total.load();
  }
}

double ReadProbe::gigabytes_per_second(int passes) {
  std::vector<double> rates;
  for (int i = 0; i < passes; ++i) one_pass(rates);
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() * 9 / 10];
}

}  // namespace tessera
