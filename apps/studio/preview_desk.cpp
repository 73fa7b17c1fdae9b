#include "apps/studio/preview_desk.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera {

namespace {

// An image is shown at its full height once so much of it is there.
constexpr std::size_t kMinShare = 64;

[[noreturn]] void refuse_order(const char* where, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_PREVIEW_ORDER",
               .where = where,
               .expected = std::move(expected),
               .found = std::move(found)});
}

// The rows that came, and below them their mean colour, as far as they pay for it.
std::shared_ptr<const Image> image_of(const std::vector<std::uint8_t>& rgb,
                                      const PreviewBegin& begin) {
  const std::size_t row_bytes = std::size_t{begin.width} * 3;
  const std::size_t all = row_bytes * begin.height;
  const std::size_t size = std::min(all, rgb.size() * kMinShare / row_bytes * row_bytes);
  Image image;
  image.width = begin.width;
  image.height = to_index(size / row_bytes);
  image.rgb = rgb;
  if (size == rgb.size()) return std::make_shared<const Image>(std::move(image));
  std::uint64_t sum[3] = {};
  for (std::size_t i = 0; i < rgb.size(); i += 3) {
    for (std::size_t c = 0; c < 3; ++c) sum[c] += rgb[i + c];
  }
  std::vector<std::uint8_t> row(row_bytes);
  for (std::size_t i = 0; i < row_bytes; i += 3) {
    for (std::size_t c = 0; c < 3; ++c) {
      row[i + c] = narrow<std::uint8_t>(sum[c] / (rgb.size() / 3));
    }
  }
  image.rgb.reserve(size);
  while (image.rgb.size() < size) image.rgb.insert(image.rgb.end(), row.begin(), row.end());
  return std::make_shared<const Image>(std::move(image));
}

}  // namespace

Generation PreviewDesk::take(PreviewMessage&& message, std::uint64_t number) {
  if (auto* begin = std::get_if<PreviewBegin>(&message)) {
    return begin_image(std::move(*begin), number);
  }
  if (auto* rows = std::get_if<PreviewRows>(&message)) return take_rows(std::move(*rows));
  return end_image(std::get<PreviewEnd>(message));
}

PreviewDesk::Desk& PreviewDesk::at(std::uint64_t decoded_image) {
  const auto found = open_.find(decoded_image);
  if (found == open_.end()) refuse_order("picture", "one that was begun", std::to_string(decoded_image));
  return found->second;
}

Generation PreviewDesk::begin_image(PreviewBegin&& begin, std::uint64_t number) {
  if (open_.contains(begin.image))
    refuse_order("picture", "a new one", std::to_string(begin.image));
  if (open_.size() >= kMaxImages) {
    refuse_order("pictures", "at most " + std::to_string(kMaxImages) + " at once", "one more");
  }
  std::uint64_t pixels = std::uint64_t{begin.width} * begin.height;
  for (const auto& [id, desk] : open_) {
    pixels += std::uint64_t{desk.begin.width} * desk.begin.height;
  }
  if (pixels > kPreviewPixels)
    refuse_order("pixels", "at most 16 megapixels", std::to_string(pixels));
  const std::uint64_t decoded_image = begin.image;
  Desk& desk = open_[decoded_image];
  Generation& generation = desk.generation;
  generation.number = number;
  generation.state = GenerateState::kGeneration;
  generation.from = from_;
  generation.settings.prompt = generation.facts.prompt =
      escape_for_terminal(begin.prompt, kPreviewTextBytes);
  generation.settings.model = generation.facts.model = escape_for_terminal(begin.model);
  generation.settings.seed = generation.facts.seed = begin.seed;
  generation.settings.width = generation.facts.width = begin.width;
  generation.settings.height = generation.facts.height = begin.height;
  generation.grid_rows = begin.grid_rows;
  generation.grid_columns = begin.grid_columns;
  desk.begin = std::move(begin);
  return generation;
}

Generation PreviewDesk::take_rows(PreviewRows&& rows) {
  Desk& desk = at(rows.image);
  Generation& generation = desk.generation;
  const std::size_t row_bytes = std::size_t{desk.begin.width} * 3;
  if (rows.rgb.size() != row_bytes * rows.rows) {
    refuse_order("pixels", std::to_string(row_bytes * rows.rows) + " bytes",
                 std::to_string(rows.rgb.size()));
  }
  if (rows.first + rows.rows > desk.begin.height) {
    refuse_order("rows", "at most " + std::to_string(desk.begin.height),
                 std::to_string(rows.first + rows.rows));
  }
  if (rows.rows_done > desk.begin.grid_rows) {
    refuse_order("rows done", "at most " + std::to_string(desk.begin.grid_rows),
                 std::to_string(rows.rows_done));
  }
  // An image comes from its top down, without gaps.
  if (rows.rows > 0) {
    if (rows.first == 0) desk.rgb.clear();
    if (rows.first * row_bytes != desk.rgb.size()) {
      refuse_order("first row", std::to_string(desk.rgb.size() / row_bytes),
                   std::to_string(rows.first));
    }
    desk.rgb.insert(desk.rgb.end(), rows.rgb.begin(), rows.rgb.end());
    if (rows.last) {
      generation.image = image_of(desk.rgb, desk.begin);
      generation.image_rows = rows.rows_done;
      desk.rgb = {};
    }
  }
  generation.rows_done = rows.rows_done;
  generation.facts.passes = rows.passes;
  generation.facts.tokens = rows.tokens;
  generation.seconds = rows.seconds;
  if (rows.seconds > 0) generation.tokens_per_second = rows.tokens / rows.seconds;
  const double all = to_double(desk.begin.grid_rows) * desk.begin.grid_columns;
  if (generation.tokens_per_second > 0) {
    generation.seconds_left = std::max(0.0, all - rows.tokens) / generation.tokens_per_second;
  }
  return generation;
}

Generation PreviewDesk::end_image(const PreviewEnd& end) {
  Generation generation = std::move(at(end.image).generation);
  open_.erase(end.image);
  generation.seconds_left = 0;
  generation.state = end.state == PreviewState::kDone      ? GenerateState::kDone
                   : end.state == PreviewState::kStopped ? GenerateState::kStopped
                                                         : GenerateState::kFailed;
  if (generation.state == GenerateState::kFailed) {
    generation.error = {.kind = ErrorKind::kGeneral,
                      .code = "E_PREVIEW_FAILED",
                      .where = from_,
                      .expected = "an image",
                      .found = "its generation failed there"};
  }
  return generation;
}

std::vector<Generation> PreviewDesk::close() {
  std::vector<Generation> out;
  for (auto& [id, desk] : open_) {
    Generation& generation = out.emplace_back(std::move(desk.generation));
    generation.state = GenerateState::kFailed;
    generation.seconds_left = 0;
    generation.error = {.kind = ErrorKind::kGeneral,
                      .code = "E_PREVIEW_GONE",
                      .where = from_,
                      .expected = "the end of the image",
                      .found = "the sender has gone"};
  }
  open_.clear();
  return out;
}

}  // namespace tessera
