// Frames of images that other programs show. Oracle: what is read was whole and within its
// limits, written again it is the same bytes; a stream read in other pieces says the same; every
// head that is taken names no more than a frame may hold.
#include <algorithm>
#include <optional>

#include "apps/studio/preview_wire.h"
#include "engine/core/error.h"
#include "tests/fuzz/targets/fuzz_support.h"

namespace tessera::fuzz {
namespace {

// What a reader makes of the bytes in pieces of a size.
struct Reading {
  std::vector<PreviewMessage> messages;
  bool refused = false, midway = false;
};

Reading read_in(std::string_view bytes, std::size_t piece) {
  Reading out;
  PreviewReader reader;
  try {
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.feed(bytes.substr(at, piece));
      while (auto message = reader.next()) out.messages.push_back(std::move(*message));
    }
  } catch (const Error& error) {
    require(error.info().code == "E_PREVIEW_FRAME" && error.exit_code() == 1 &&
                !error.info().expected.empty() && !error.info().found.empty(),
            "nonsense is notified with its place");
    out.refused = true;
    while (auto message = reader.next()) out.messages.push_back(std::move(*message));
  }
  out.midway = reader.midway();
  return out;
}

void check_limits(const PreviewMessage& message) {
  if (const auto* begin = std::get_if<PreviewBegin>(&message)) {
    require(begin->width >= 1 && begin->height >= 1 && begin->width <= kPreviewSide &&
                begin->height <= kPreviewSide &&
                std::uint64_t{begin->width} * begin->height <= kPreviewPixels,
            "an image has a size we take");
    require(begin->model.size() <= kPreviewNameBytes && begin->prompt.size() <= kPreviewTextBytes,
            "texts are bounded");
  }
  if (const auto* rows = std::get_if<PreviewRows>(&message)) {
    require(rows->rgb.size() <= kPreviewFrameBytes, "pixels are bounded");
    require(rows->first + rows->rows <= kPreviewSide, "rows are within an image");
    require(rows->rows == 0 ? rows->rgb.empty() : rows->rgb.size() % (rows->rows * 3) == 0,
            "rows are whole");
    require(rows->seconds >= 0, "time is a number");
  }
}

// The bytes of the frames that stand whole at the beginning, found the slow way.
std::size_t whole_frames(std::string_view bytes) {
  std::size_t at = 0;
  while (bytes.size() - at >= kPreviewHeadBytes) {
    std::size_t length = 0;
    for (int i = 0; i < 4; ++i) {
      length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[at + 5 + i])) << (8 * i);
    }
    require(length <= kPreviewFrameBytes, "a head names no more than a frame holds");
    if (bytes.size() - at - kPreviewHeadBytes < length) break;
    at += kPreviewHeadBytes + length;
  }
  return at;
}

void check(std::string_view bytes) {
  const Reading whole = read_in(bytes, std::max<std::size_t>(bytes.size(), 1));
  std::string again;
  for (const PreviewMessage& message : whole.messages) {
    check_limits(message);
    again += encode_preview(message);
  }
  require(bytes.substr(0, again.size()) == again, "a message is the bytes it was read from");
  if (!whole.refused) {
    require(whole_frames(bytes) == again.size(), "every whole frame is a message");
    require(whole.midway == (again.size() < bytes.size()), "the rest is a frame on its way");
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{5}, std::size_t{64}}) {
    const Reading other = read_in(bytes, piece);
    require(other.refused == whole.refused && other.messages == whole.messages,
            "pieces change nothing");
  }
}

std::vector<std::string> seeds() {
  const PreviewBegin begin{.image = 1,
                           .seed = 2,
                           .width = 8,
                           .height = 4,
                           .grid_rows = 2,
                           .grid_columns = 4,
                           .model = "m",
                           .prompt = "a prompt"};
  const PreviewRows rows{.image = 1,
                         .rows = 2,
                         .rows_done = 1,
                         .passes = 3,
                         .tokens = 4,
                         .seconds = 0.5,
                         .rgb = std::vector<std::uint8_t>(48, 7)};
  const PreviewRows none{.image = 1, .rows_done = 2};
  const std::string end = encode_preview(PreviewEnd{1, PreviewState::kStopped});
  return {encode_preview(begin), encode_preview(rows), encode_preview(none), end,
          encode_preview(begin) + encode_preview(rows) + encode_preview(none) + end};
}

// Where frames begin, as far as they stand whole.
std::vector<std::size_t> frames_of(const std::string& text) {
  std::vector<std::size_t> out;
  for (std::size_t at = text.find("TSV1"); at != std::string::npos;
       at = text.find("TSV1", at + 1)) {
    if (at + kPreviewHeadBytes <= text.size()) out.push_back(at);
  }
  return out;
}

// Another number somewhere in a frame, with its length put right or wrong.
std::string mutate_frame(std::string text, Choice& choice) {
  const auto frames = frames_of(text);
  if (frames.empty()) return {};
  const std::size_t at = frames[choice.below(frames.size())];
  const auto put = [&](std::size_t place, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size && place + i < text.size(); ++i) {
      text[place + i] = static_cast<char>(value >> (8 * i));
    }
  };
  const std::size_t body = text.size() - at - kPreviewHeadBytes;
  switch (choice.below(4)) {
    case 0:
      put(at + 5,
          choice.one_in(2) ? kPreviewFrameBytes + choice.below(3) : other_number(body, choice), 4);
      return text;
    case 1: {  // one of the numbers
      const std::size_t place = at + kPreviewHeadBytes + 4 * choice.below(10);
      put(place, other_number(choice.below(64), choice), 4);
      return text;
    }
    case 2: {  // pixels more or less, the length put right
      if (text.compare(at + 4, 1, "\x02") != 0) return {};
      const std::size_t more = choice.below(8);
      text.resize(text.size() - std::min(body, choice.below(8)));
      text.append(more, 'x');
      put(at + 5, text.size() - at - kPreviewHeadBytes, 4);
      return text;
    }
    default:
      put(at + 4, choice.below(5), 1);
      return text;
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tessera::fuzz::check(tessera::fuzz::as_text(data, size));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  Choice choice(seed);
  if (!choice.one_in(4)) {
    const std::string changed = mutate_frame(std::string(as_text(data, size)), choice);
    if (!changed.empty()) return release(changed, data, max_size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
