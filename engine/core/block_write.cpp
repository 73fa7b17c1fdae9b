#include "engine/core/block_write.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "engine/core/dtype.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

void put_half_bits(std::uint16_t half, std::byte* to) { std::memcpy(to, &half, sizeof half); }

void put_bits(unsigned bits, unsigned shift, std::byte* out, std::int64_t at) {
  out[at] |= std::byte(low_bits<std::uint8_t>(bits << shift));
}

template <bool kFive, bool kOffset>
void put_small(const BlockParts& parts, std::byte* out) {
  put_half_bits(parts.scale, out);
  out += 2;
  if constexpr (kOffset) {
    put_half_bits(parts.offset, out);
    out += 2;
  }
  if constexpr (kFive) {
    for (unsigned n = 0; n < 32; ++n) put_bits(parts.quants[n] >> 4 & 1u, n % 8, out, n / 8);
    out += 4;
  }
  for (unsigned n = 0; n < 32; ++n) put_bits(parts.quants[n] & 15u, n / 16 * 4, out, n % 16);
}

// Two-bit fields: halves of 128 numbers have 32 bytes each, a quarter of a half is one field.
void put_two_bits(unsigned bits, std::int64_t n, std::byte* out) {
  put_bits(bits, narrow<unsigned>(n % 128 / 32 * 2), out, n / 128 * 32 + n % 32);
}

void put_q2_k(const BlockParts& parts, std::byte* out) {
  for (std::int64_t i = 0; i < 16; ++i) {
    put_bits(narrow<unsigned>(nth(parts.scales, i)), 0, out, i);
    put_bits(nth(parts.offsets, i), 4, out, i);
  }
  for (std::int64_t n = 0; n < kSuperBlock; ++n) {
    put_two_bits(nth(parts.quants, n), n, out + 16);
  }
  put_half_bits(parts.scale, out + 80);
  put_half_bits(negated_half(parts.offset), out + 82);
}

void put_q3_k(const BlockParts& parts, std::byte* out) {
  for (std::int64_t n = 0; n < kSuperBlock; ++n) {
    const unsigned q = nth(parts.quants, n);
    put_bits(q >> 2, narrow<unsigned>(n / 32), out, n % 32);
    put_two_bits(q & 3u, n, out + 32);
  }
  for (std::int64_t i = 0; i < 16; ++i) {
    const auto scale = narrow<unsigned>(nth(parts.scales, i) + 32);
    put_bits(scale & 15u, i < 8 ? 0 : 4, out + 96, i % 8);
    put_bits(scale >> 4, narrow<unsigned>(i / 4 * 2), out + 96, 8 + i % 4);
  }
  put_half_bits(parts.scale, out + 108);
}

template <bool kFive>
void put_q45_k(const BlockParts& parts, std::byte* out) {
  put_half_bits(parts.scale, out);
  put_half_bits(negated_half(parts.offset), out + 2);
  std::byte* const scales = out + 4;
  for (std::int64_t group = 0; group < 8; ++group) {
    const auto scale = narrow<unsigned>(nth(parts.scales, group));
    const unsigned minimum = nth(parts.offsets, group);
    if (group < 4) {
      put_bits(scale, 0, scales, group);
      put_bits(minimum, 0, scales, group + 4);
    } else {
      put_bits(scale & 15u, 0, scales, group + 4);
      put_bits(scale >> 4, 6, scales, group - 4);
      put_bits(minimum & 15u, 4, scales, group + 4);
      put_bits(minimum >> 4, 6, scales, group);
    }
  }
  std::byte* const nibbles = out + (kFive ? 48 : 16);
  for (std::int64_t n = 0; n < kSuperBlock; ++n) {
    const std::int64_t group = n / 32, j = n % 32;
    const unsigned q = nth(parts.quants, n);
    put_bits(q & 15u, narrow<unsigned>(group % 2 * 4), nibbles, group / 2 * 32 + j);
    if constexpr (kFive) put_bits(q >> 4, narrow<unsigned>(group), out + 16, j);
  }
}

void put_q6_k(const BlockParts& parts, std::byte* out) {
  for (std::int64_t n = 0; n < kSuperBlock; ++n) {
    const std::int64_t half = n / 128, in = n % 128;
    const unsigned q = nth(parts.quants, n);
    put_bits(q & 15u, narrow<unsigned>(in / 64 * 4), out, half * 64 + in % 64);
    put_two_bits(q >> 4, n, out + 128);
  }
  std::memcpy(out + 192, parts.scales.data(), parts.scales.size());
  put_half_bits(parts.scale, out + 208);
}

// What writing needs to know of a form, besides what readers do.
struct WrittenForm {
  std::uint32_t id;
  std::size_t bytes;
  int least_factor, most_factor;  // of scales; 0 without factors
  int most_offset;                // factor of offsets
  void (*put)(const BlockParts& parts, std::byte* out);
};
constexpr WrittenForm kWritten[] = {
    {2, 18, 0, 0, 0, put_small<false, false>},
    {3, 20, 0, 0, 0, put_small<false, true>},
    {6, 22, 0, 0, 0, put_small<true, false>},
    {7, 24, 0, 0, 0, put_small<true, true>},
    {10, 84, 0, 15, 15, put_q2_k},
    {11, 110, -32, 31, 0, put_q3_k},
    {12, 144, 0, 63, 63, put_q45_k<false>},
    {13, 176, 0, 63, 63, put_q45_k<true>},
    {14, 210, -128, 127, 0, put_q6_k},
};

const WrittenForm& written_form(const BlockForm& form) {
  return *std::find_if(std::begin(kWritten), std::end(kWritten),
                       [&](const WrittenForm& written) { return written.id == form.id; });
}

float within_half(float value) { return std::clamp(value, -kMaxF16, kMaxF16); }
float rounded_half(float value) { return f16_to_float(float_to_f16(within_half(value))); }

bool all_finite(const float* from, int count) {
  return std::all_of(from, from + count, [](float number) { return std::isfinite(number); });
}

// A block that reads as NaN throughout.
void no_numbers(BlockParts& out) {
  out = {};
  out.scale = float_to_f16(std::numeric_limits<float>::quiet_NaN());
  out.scales.fill(1);
}

// --- a group of numbers with one scale and one offset

struct Step {
  float scale = 0, offset = 0;
};

// Sums over a group in eight lanes, in one order.
class Sum {
 public:
  float& lane(std::size_t i) { return lanes_[i]; }
  double total() const {
    double out = 0;
    for (const float lane : lanes_) out += to_double(lane);
    return out;
  }

 private:
  std::array<float, 8> lanes_{};
};

using Levels = std::array<float, 32>;  // quants less the middle

class Group {
 public:
  Group(const QuantForm& form, const float* numbers, const float* weights)
      : form_(form), count_(to_size(32 / form.groups)), most_(to_float((1 << form.bits) - 1)) {
    std::copy_n(numbers, count_, numbers_.begin());
    double all = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      weights_[i] = weights == nullptr ? 1.0f : weights[i];
      all += to_double(weights_[i]);
    }
    if (all <= 0) weights_.fill(1.0f);  // nothing was seen of these columns
  }

  // The nearest levels under `step`, and the weighted error with them.
  double round(Step step, Levels& levels) const {
    constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: numbers next to it are whole
    const float inverse = step.scale == 0.0f ? 0.0f : 1.0f / step.scale;
    const float least = to_float(-form_.middle), most = most_ - to_float(form_.middle);
    Sum error;
    for (std::size_t i = 0; i < count_; i += 8) {
      for (std::size_t lane = 0; lane < 8; ++lane) {
        const float at = (numbers_[i + lane] - step.offset) * inverse;
        const float within = at < least ? least : (at > most ? most : at);
        const float level = (within + kWhole) - kWhole;
        const float off = numbers_[i + lane] - (step.scale * level + step.offset);
        levels[i + lane] = level;
        error.lane(lane) += weights_[i + lane] * off * off;
      }
    }
    return error.total();
  }

  // The step with the least error for these levels. Offsets of forms with factors are none above 0.
  Step fitted(const Levels& levels) const {
    Sum sum_w, sum_l, sum_ll, sum_x, sum_lx;
    for (std::size_t i = 0; i < count_; i += 8) {
      for (std::size_t lane = 0; lane < 8; ++lane) {
        const float weight = weights_[i + lane], level = levels[i + lane];
        const float number = numbers_[i + lane];
        sum_w.lane(lane) += weight;
        sum_l.lane(lane) += weight * level;
        sum_ll.lane(lane) += weight * level * level;
        sum_x.lane(lane) += weight * number;
        sum_lx.lane(lane) += weight * level * number;
      }
    }
    const double w = sum_w.total(), l = sum_l.total(), ll = sum_ll.total(), x = sum_x.total(),
                 lx = sum_lx.total();
    const Step alone{ll > 0 ? to_float(lx / ll) : 0.0f, 0.0f};
    if (!form_.offsets) return alone;
    const double determinant = w * ll - l * l;
    if (determinant <= 1e-6 * w * ll) return {0.0f, to_float(x / w)};
    const double scale = (w * lx - l * x) / determinant;
    const double offset = (x - scale * l) / w;
    if (form_.factors && offset > 0) return alone;
    return {to_float(scale), to_float(offset)};
  }

  // Calls try_step(step) for steps around the usual one.
  template <typename TryStep>
  void candidates(TryStep&& try_step) const {
    const auto [least, greatest] =
        std::minmax_element(numbers_.begin(), numbers_.begin() + to_index(count_));
    if (!form_.offsets) {
      const float largest = std::abs(*least) > std::abs(*greatest) ? *least : *greatest;
      // A larger number of little weight may be cut off.
      for (int i = 0; i < 30; ++i) {
        const float levels = to_float(form_.middle) * (0.85f + 0.03f * to_float(i));
        try_step(Step{largest / -levels, 0.0f});
        if (levels > 1.5f) try_step(Step{largest / (levels - 1.0f), 0.0f});
      }
      return;
    }
    constexpr std::array kCuts = {0.0f, 0.03f, 0.06f, 0.1f, 0.15f};
    const float low = form_.factors ? std::min(*least, 0.0f) : *least;
    const float range = *greatest - low;
    for (const float from : kCuts) {
      for (const float to : kCuts) {
        try_step(Step{range * (1.0f - from - to) / most_, low + range * from});
      }
    }
  }

  void put_quants(const Levels& levels, std::uint8_t* out) const {
    for (std::size_t i = 0; i < count_; ++i) {
      out[i] = narrow<std::uint8_t>(truncate<int>(levels[i]) + form_.middle);
    }
  }

 private:
  const QuantForm& form_;
  std::size_t count_;
  float most_;
  std::array<float, 32> numbers_{}, weights_{};
};

// The best step found; `kept` says how a step is stored.
template <typename Kept>
Step search(const Group& group, Kept&& kept) {
  Step best;
  double least = std::numeric_limits<double>::infinity();
  Levels levels{};
  bool found = false;
  const auto consider = [&](Step step) {
    step = kept(step);
    const double error = group.round(step, levels);
    if (error < least || !found) {
      found = true;
      least = error;
      best = step;
    }
  };
  group.candidates([&](Step step) {
    consider(step);
    consider(group.fitted(levels));
  });
  return best;
}

// --- whole blocks

void search_plain(const BlockForm& form, const float* from, const float* weights, BlockParts& out) {
  const Group group(form.form, from, weights);
  const Step best = search(group, [](Step step) {
    return Step{rounded_half(step.scale), rounded_half(step.offset)};
  });
  Levels levels{};
  group.round(best, levels);
  group.put_quants(levels, out.quants.data());
  out.scale = float_to_f16(best.scale);
  out.offset = float_to_f16(best.offset);
}

// Scales and offsets of all groups as a whole one times factors; then the best factors near by.
void search_factors(const BlockForm& form, const WrittenForm& written, const float* from,
                    const float* weights, BlockParts& out) {
  const int size = 32 / form.form.groups, count = form.numbers() / size;
  std::array<Step, 16> steps;
  const auto group_of = [&](int g) {
    return Group(form.form, from + g * size, weights == nullptr ? nullptr : weights + g * size);
  };
  float scale = 0, offset = 0;
  for (int g = 0; g < count; ++g) {
    const Step step = search(group_of(g), [](Step own) { return own; });
    nth(steps, g) = step;
    if (std::abs(step.scale) > std::abs(scale)) scale = step.scale;
    offset = std::max(offset, -step.offset);
  }
  // Signed factors: the largest becomes the one with the larger size.
  const int end = written.least_factor < 0 ? written.least_factor : written.most_factor;
  scale = rounded_half(scale / to_float(end));
  offset = written.most_offset == 0 ? 0.0f : rounded_half(offset / to_float(written.most_offset));
  Levels levels{};
  for (int g = 0; g < count; ++g) {
    const Group group = group_of(g);
    const auto near = [](float value, float whole) {
      const float factor = whole == 0.0f ? 0.0f : std::nearbyint(value / whole);
      return truncate<int>(std::clamp(factor, -128.0f, 127.0f));
    };
    const int own_scale =
        std::clamp(near(nth(steps, g).scale, scale), written.least_factor, written.most_factor);
    const int own_offset = std::clamp(near(-nth(steps, g).offset, offset), 0, written.most_offset);
    double least = std::numeric_limits<double>::infinity();
    bool found = false;
    for (int s = own_scale - 1; s <= own_scale + 1; ++s) {
      if (s < written.least_factor || s > written.most_factor) continue;
      for (int o = own_offset - 1; o <= own_offset + 1; ++o) {
        if (o < 0 || o > written.most_offset) continue;
        const double error = group.round({scale * to_float(s), -offset * to_float(o)}, levels);
        if (error >= least && found) continue;
        found = true;
        least = error;
        nth(out.scales, g) = narrow<std::int8_t>(s);
        nth(out.offsets, g) = narrow<std::uint8_t>(o);
        group.put_quants(levels, out.quants.data() + g * size);
      }
    }
  }
  out.scale = float_to_f16(scale);
  out.offset = negated_half(float_to_f16(offset));
}

// As the reference writers: the scale before it is rounded to f16 divides, and halves go up.
void round_plain(const BlockForm& form, const float* from, BlockParts& out) {
  const int most = (1 << form.form.bits) - 1;
  const auto [least, greatest] = std::minmax_element(from, from + 32);
  float scale = 0, offset = 0, half = 0.5f;
  if (form.form.offsets) {
    scale = (*greatest - *least) / to_float(most);
    offset = *least;
  } else {
    float largest = from[0];
    for (int i = 0; i < 32; ++i) {
      if (std::abs(from[i]) > std::abs(largest)) largest = from[i];
    }
    scale = largest / to_float(-form.form.middle);
    half += to_float(form.form.middle);
  }
  scale = within_half(scale);
  offset = within_half(offset);
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (int i = 0; i < 32; ++i) {
    const float q = std::trunc((from[i] - offset) * inverse + half);
    nth(out.quants, i) = narrow<std::uint8_t>(truncate<int>(std::clamp(q, 0.0f, to_float(most))));
  }
  out.scale = float_to_f16(scale);
  out.offset = float_to_f16(offset);
}

}  // namespace

void put_together(const BlockForm& form, const BlockParts& parts, std::byte* out) {
  const WrittenForm& written = written_form(form);
  std::fill_n(out, written.bytes, std::byte{0});
  written.put(parts, out);
}

void write_rounded(const BlockForm& form, std::size_t bytes, const float* from, std::int64_t blocks,
                   std::byte* out) {
  BlockParts parts;
  for (std::int64_t b = 0; b < blocks; ++b, from += 32, out += bytes) {
    all_finite(from, 32) ? round_plain(form, from, parts) : no_numbers(parts);
    put_together(form, parts, out);
  }
}

void write_searched(const BlockForm& form, std::size_t bytes, const float* from,
                    const float* weights, std::int64_t blocks, std::byte* out) {
  const WrittenForm& written = written_form(form);
  BlockParts parts{};
  for (std::int64_t b = 0; b < blocks; ++b, out += bytes) {
    if (!all_finite(from, form.numbers())) {
      no_numbers(parts);
    } else if (form.form.factors) {
      search_factors(form, written, from, weights, parts);
    } else {
      search_plain(form, from, weights, parts);
    }
    put_together(form, parts, out);
    from += form.numbers();
    if (weights != nullptr) weights += form.numbers();
  }
}

}  // namespace tessera
