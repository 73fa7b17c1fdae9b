// Median cut (Heckbert 1982) over a histogram of 2^15 cells: the box that spreads widest, weighed
// by its pixels, is cut until there are 256. Every cell then goes to the nearest of the means.
#include "video/codec/palette.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::size_t kColours = 256;

struct Cell {
  std::uint32_t key = 0;               // 5 bits a channel
  std::uint64_t count = 0;             // pixels
  std::array<std::uint64_t, 3> sum{};  // of their channels
  int mean(int channel) const { return static_cast<int>(nth(sum, channel) / count); }
};

struct Range {
  std::size_t begin = 0, end = 0;  // of the cells
  int channel = 0;                 // that spreads widest
  std::uint64_t weight = 0;        // spread x pixels; 0: one cell
};

std::uint32_t opaque(std::uint32_t red, std::uint32_t green, std::uint32_t blue) {
  return 0xff000000u | red << 16 | green << 8 | blue;
}

bool keeps_every_colour(std::span<const std::uint8_t> rgb, std::span<std::uint8_t> indices,
                        GifPalette& out) {
  std::unordered_map<std::uint32_t, std::uint8_t> known;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::uint32_t colour = opaque(rgb[i * 3], rgb[i * 3 + 1], rgb[i * 3 + 2]);
    auto at = known.find(colour);
    if (at == known.end()) {
      if (known.size() == kColours) return false;
      out.colours[known.size()] = colour;
      at = known.emplace(colour, low_bits<std::uint8_t>(known.size())).first;
    }
    indices[i] = at->second;
  }
  std::fill(out.colours.begin() + std::ssize(known), out.colours.end(), opaque(0, 0, 0));
  return true;
}

std::uint32_t key_of(const std::uint8_t* rgb) {
  return low_bits<std::uint32_t>(rgb[0] >> 3) << 10 | low_bits<std::uint32_t>(rgb[1] >> 3) << 5 |
         low_bits<std::uint32_t>(rgb[2] >> 3);
}

std::vector<Cell> cells_of(std::span<const std::uint8_t> rgb) {
  std::vector<Cell> all(std::size_t{1} << 15);
  for (std::size_t i = 0; i < rgb.size(); i += 3) {
    Cell& cell = all[key_of(&rgb[i])];
    ++cell.count;
    for (std::size_t channel = 0; channel < 3; ++channel) cell.sum[channel] += rgb[i + channel];
  }
  std::vector<Cell> used;
  for (std::uint32_t key = 0; key < all.size(); ++key) {
    if (all[key].count == 0) continue;
    all[key].key = key;
    used.push_back(all[key]);
  }
  return used;
}

Range range_of(const std::vector<Cell>& cells, std::size_t begin, std::size_t end) {
  Range out{begin, end, 0, 0};
  std::uint64_t pixels = 0;
  for (std::size_t i = begin; i < end; ++i) pixels += cells[i].count;
  int widest = -1;
  for (int channel = 0; channel < 3; ++channel) {
    int low = 255, high = 0;
    for (std::size_t i = begin; i < end; ++i) {
      low = std::min(low, cells[i].mean(channel));
      high = std::max(high, cells[i].mean(channel));
    }
    if (high - low > widest) {
      widest = high - low;
      out.channel = channel;
    }
  }
  if (end - begin > 1) out.weight = low_bits<std::uint64_t>(widest) * pixels + 1;
  return out;
}

// Where the cells of the range, in order of its channel, have half of its pixels on either side.
std::size_t cut(std::vector<Cell>& cells, const Range& range) {
  const auto at = [&](std::size_t i) { return cells.begin() + to_index(i); };
  std::sort(at(range.begin), at(range.end), [&](const Cell& a, const Cell& b) {
    const int x = a.mean(range.channel), y = b.mean(range.channel);
    return x != y ? x < y : a.key < b.key;
  });
  std::uint64_t pixels = 0, passed = 0;
  for (std::size_t i = range.begin; i < range.end; ++i) pixels += cells[i].count;
  std::size_t middle = range.begin;
  while (middle + 1 < range.end && passed * 2 < pixels) passed += cells[middle++].count;
  return std::clamp(middle, range.begin + 1, range.end - 1);
}

std::vector<Range> ranges_of(std::vector<Cell>& cells) {
  std::vector<Range> ranges = {range_of(cells, 0, cells.size())};
  while (ranges.size() < kColours) {
    const auto widest =
        std::max_element(ranges.begin(), ranges.end(),
                         [](const Range& a, const Range& b) { return a.weight < b.weight; });
    if (widest->weight == 0) break;
    const Range whole = *widest;
    const std::size_t middle = cut(cells, whole);
    *widest = range_of(cells, whole.begin, middle);
    ranges.push_back(range_of(cells, middle, whole.end));
  }
  return ranges;
}

std::uint32_t mean_of(const std::vector<Cell>& cells, const Range& range) {
  Cell all;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    all.count += cells[i].count;
    for (std::size_t channel = 0; channel < 3; ++channel) all.sum[channel] += cells[i].sum[channel];
  }
  const auto rounded = [&](std::size_t channel) {
    return low_bits<std::uint32_t>((all.sum[channel] + all.count / 2) / all.count);
  };
  return opaque(rounded(0), rounded(1), rounded(2));
}

std::uint8_t nearest(const GifPalette& palette, std::size_t count, const Cell& cell) {
  const std::array<int, 3> mean = {cell.mean(0), cell.mean(1), cell.mean(2)};
  int best = -1;
  std::size_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t colour = palette.colours[i];
    const int red = static_cast<int>(colour >> 16 & 255) - mean[0];
    const int green = static_cast<int>(colour >> 8 & 255) - mean[1];
    const int blue = static_cast<int>(colour & 255) - mean[2];
    const int far = red * red + green * green + blue * blue;
    if (best >= 0 && far >= best) continue;
    best = far;
    found = i;
  }
  return low_bits<std::uint8_t>(found);
}

}  // namespace

GifPalette quantize(std::span<const std::uint8_t> rgb, std::span<std::uint8_t> indices) {
  GifPalette out;
  if (keeps_every_colour(rgb, indices, out)) return out;
  std::vector<Cell> cells = cells_of(rgb);
  const std::vector<Range> ranges = ranges_of(cells);
  out.colours.fill(opaque(0, 0, 0));
  for (std::size_t i = 0; i < ranges.size(); ++i) out.colours[i] = mean_of(cells, ranges[i]);
  std::vector<std::uint8_t> index_of(std::size_t{1} << 15);
  for (const Cell& cell : cells) index_of[cell.key] = nearest(out, ranges.size(), cell);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = index_of[key_of(&rgb[i * 3])];
  return out;
}

}  // namespace tessera
