#include "apps/runtime/code_patches.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

CodePatches::CodePatches(std::int64_t codes, std::int64_t factor)
    : codes_(codes), factor_(factor), side_(std::min(factor, kMaxSide)) {
  while (factor_ % side_ != 0) --side_;
  colours_.resize(to_size(codes_) * patch_size());
  seen_.resize(to_size(codes_));
  sums_.resize(colours_.size());
}

std::optional<CodePatches> CodePatches::load(const std::filesystem::path& folder,
                                             std::int64_t codes, std::int64_t factor) {
  const std::filesystem::path path = folder / "patches.safetensors";
  if (folder.empty() || !file_exists(path)) return std::nullopt;
  const Checkpoint file = Checkpoint::open(path);
  const ConstTensorView* view = file.find("patches");
  CodePatches out(codes, factor);
  const Shape wanted{codes, out.side_, out.side_, 3};
  if (view == nullptr || view->dtype != DType::kU8 || view->shape != wanted) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_PATCHES",
                 .file = path.string(),
                 .where = "patches",
                 .expected = "U8 " + wanted.to_string(),
                 .found = view == nullptr ? "no such tensor"
                                          : std::string(dtype_name(view->dtype)) + " " +
                                                view->shape.to_string()});
  }
  const auto* bytes = static_cast<const std::uint8_t*>(view->data);
  out.colours_.assign(bytes, bytes + out.colours_.size());
  file.verify_unchanged();
  std::ranges::fill(out.seen_, 1u);
  out.sums_ = {};
  out.fixed_ = true;
  return out;
}

void CodePatches::learn(std::span<const std::int32_t> codes, std::int64_t rows,
                        std::int64_t columns, const Image& image) {
  expects(std::ssize(codes) == rows * columns, "a code a place");
  expects(image.width == columns * factor_ && image.height == rows * factor_,
          "an image of these places");
  if (fixed_) return;
  const std::int64_t block = factor_ / side_;  // pixels a colour is the mean of, a side
  const float share = 1.0f / to_float(block * block);
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x) {
      const std::int32_t code = nth(codes, y / factor_ * columns + x / factor_);
      if (code < 0 || code >= codes_) continue;
      const std::int64_t cell = y % factor_ / block * side_ + x % factor_ / block;
      const std::size_t to = to_size(code) * patch_size();
      for (std::size_t c = 0; c < 3; ++c) {
        const std::size_t from = to_size(y * image.width + x) * 3 + c;
        sums_[to + to_size(cell) * 3 + c] += share * image.rgb[from];
      }
    }
  }
  for (const std::int32_t code : codes) {
    if (code >= 0 && code < codes_) ++nth(seen_, code);
  }
  for (const std::int32_t code : codes) {
    if (code < 0 || code >= codes_) continue;
    const std::size_t at = to_size(code) * patch_size();
    const auto count = to_float(nth(seen_, code));
    for (std::size_t i = at; i < at + patch_size(); ++i) {
      colours_[i] = low_bits<std::uint8_t>(std::lround(sums_[i] / count));
    }
  }
}

bool CodePatches::knows(std::int32_t code) const {
  return code >= 0 && code < codes_ && nth(seen_, code) > 0;
}

double CodePatches::known_share(std::span<const std::int32_t> codes) const {
  const auto standing = std::ranges::count_if(codes, [](std::int32_t code) { return code >= 0; });
  const auto known = std::ranges::count_if(codes, [&](std::int32_t code) { return knows(code); });
  return standing == 0 ? 0 : to_double(known) / to_double(standing);
}

Image CodePatches::draw(std::span<const std::int32_t> codes, std::int64_t rows,
                        std::int64_t columns) const {
  expects(std::ssize(codes) == rows * columns, "a code a place");
  double mean[3] = {0, 0, 0};
  double count = 0;
  for (const std::int32_t code : codes) {
    if (!knows(code)) continue;
    const std::uint8_t* patch = colours_.data() + to_size(code) * patch_size();
    for (std::size_t i = 0; i < patch_size(); ++i) mean[i % 3] += patch[i];
    count += to_double(side_ * side_);
  }
  std::uint8_t rest[3];
  for (int c = 0; c < 3; ++c) {
    rest[c] = low_bits<std::uint8_t>(count > 0 ? std::lround(mean[c] / count) : 0);
  }
  const std::int64_t block = factor_ / side_;
  Image image;
  image.width = columns * factor_;
  image.height = rows * factor_;
  image.rgb.resize(to_size(image.width * image.height * 3));
  std::uint8_t* out = image.rgb.data();
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x, out += 3) {
      const std::int32_t code = nth(codes, y / factor_ * columns + x / factor_);
      const std::int64_t cell = y % factor_ / block * side_ + x % factor_ / block;
      const std::uint8_t* colour =
          knows(code) ? colours_.data() + to_size(code) * patch_size() + to_size(cell) * 3 : rest;
      std::copy_n(colour, 3, out);
    }
  }
  return image;
}

}  // namespace tessera
