#include "apps/studio/preview_desk.h"

#include <algorithm>

namespace tessera {

namespace {

// An image is shown at its full height once so much of it is there.
constexpr std::size_t kLeastShare = 64;

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
  const std::size_t size = std::min(all, rgb.size() * kLeastShare / row_bytes * row_bytes);
  Image image;
  image.width = begin.width;
  image.height = static_cast<std::int64_t>(size / row_bytes);
  image.rgb = rgb;
  if (size == rgb.size()) return std::make_shared<const Image>(std::move(image));
  std::uint64_t sum[3] = {};
  for (std::size_t i = 0; i < rgb.size(); i += 3) {
    for (std::size_t c = 0; c < 3; ++c) sum[c] += rgb[i + c];
  }
  std::vector<std::uint8_t> row(row_bytes);
  for (std::size_t i = 0; i < row_bytes; i += 3) {
    for (std::size_t c = 0; c < 3; ++c) {
      row[i + c] = static_cast<std::uint8_t>(sum[c] / (rgb.size() / 3));
    }
  }
  image.rgb.reserve(size);
  while (image.rgb.size() < size) image.rgb.insert(image.rgb.end(), row.begin(), row.end());
  return std::make_shared<const Image>(std::move(image));
}

}  // namespace

Painting PreviewDesk::take(PreviewMessage&& message, std::uint64_t number) {
  if (auto* begin = std::get_if<PreviewBegin>(&message)) {
    return begin_picture(std::move(*begin), number);
  }
  if (auto* rows = std::get_if<PreviewRows>(&message)) return take_rows(std::move(*rows));
  return end_picture(std::get<PreviewEnd>(message));
}

PreviewDesk::Desk& PreviewDesk::at(std::uint64_t picture) {
  const auto found = open_.find(picture);
  if (found == open_.end()) refuse_order("picture", "one that was begun", std::to_string(picture));
  return found->second;
}

Painting PreviewDesk::begin_picture(PreviewBegin&& begin, std::uint64_t number) {
  if (open_.contains(begin.picture))
    refuse_order("picture", "a new one", std::to_string(begin.picture));
  if (open_.size() >= kMostPictures) {
    refuse_order("pictures", "at most " + std::to_string(kMostPictures) + " at once", "one more");
  }
  std::uint64_t pixels = std::uint64_t{begin.width} * begin.height;
  for (const auto& [id, desk] : open_) {
    pixels += std::uint64_t{desk.begin.width} * desk.begin.height;
  }
  if (pixels > kPreviewPixels)
    refuse_order("pixels", "at most 16 megapixels", std::to_string(pixels));
  const std::uint64_t picture = begin.picture;
  Desk& desk = open_[picture];
  Painting& painting = desk.painting;
  painting.number = number;
  painting.state = PaintState::kPainting;
  painting.from = from_;
  painting.settings.prompt = painting.facts.prompt =
      escape_for_terminal(begin.prompt, kPreviewTextBytes);
  painting.settings.model = painting.facts.model = escape_for_terminal(begin.model);
  painting.settings.seed = painting.facts.seed = begin.seed;
  painting.settings.width = painting.facts.width = begin.width;
  painting.settings.height = painting.facts.height = begin.height;
  painting.grid_rows = begin.grid_rows;
  painting.grid_columns = begin.grid_columns;
  desk.begin = std::move(begin);
  return painting;
}

Painting PreviewDesk::take_rows(PreviewRows&& rows) {
  Desk& desk = at(rows.picture);
  Painting& painting = desk.painting;
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
      painting.image = image_of(desk.rgb, desk.begin);
      painting.image_rows = rows.rows_done;
      desk.rgb = {};
    }
  }
  painting.rows_done = rows.rows_done;
  painting.facts.passes = rows.passes;
  painting.facts.tokens = rows.tokens;
  painting.seconds = rows.seconds;
  if (rows.seconds > 0) painting.tokens_per_second = rows.tokens / rows.seconds;
  const double all = static_cast<double>(desk.begin.grid_rows) * desk.begin.grid_columns;
  if (painting.tokens_per_second > 0) {
    painting.seconds_left = std::max(0.0, all - rows.tokens) / painting.tokens_per_second;
  }
  return painting;
}

Painting PreviewDesk::end_picture(const PreviewEnd& end) {
  Painting painting = std::move(at(end.picture).painting);
  open_.erase(end.picture);
  painting.seconds_left = 0;
  painting.state = end.state == PreviewState::kDone      ? PaintState::kDone
                   : end.state == PreviewState::kStopped ? PaintState::kStopped
                                                         : PaintState::kFailed;
  if (painting.state == PaintState::kFailed) {
    painting.error = {.kind = ErrorKind::kGeneral,
                      .code = "E_PREVIEW_FAILED",
                      .where = from_,
                      .expected = "a picture",
                      .found = "its painting failed there"};
  }
  return painting;
}

std::vector<Painting> PreviewDesk::close() {
  std::vector<Painting> out;
  for (auto& [id, desk] : open_) {
    Painting& painting = out.emplace_back(std::move(desk.painting));
    painting.state = PaintState::kFailed;
    painting.seconds_left = 0;
    painting.error = {.kind = ErrorKind::kGeneral,
                      .code = "E_PREVIEW_GONE",
                      .where = from_,
                      .expected = "the end of the picture",
                      .found = "the sender has gone"};
  }
  open_.clear();
  return out;
}

}  // namespace tessera
