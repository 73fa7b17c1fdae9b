// One sender's messages as images of the Snapshot: what does not follow from what it said before
// is refused, and what it makes us hold is bounded by what it sent.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/studio/preview_wire.h"
#include "apps/studio/snapshot.h"

namespace tessera {

class PreviewDesk {
 public:
  static constexpr std::size_t kMaxImages = 16;  // at work at once

  // `from`: who sends, for people.
  explicit PreviewDesk(std::string from) : from_(std::move(from)) {}

  // The image that a message changed. `number`: for an image that begins. Error kGeneral
  // (E_PREVIEW_ORDER) for an image that nobody began, one too many, rows that are not its own.
  Generation take(PreviewMessage&& message, std::uint64_t number);
  // Images that were at work, as failed: the sender has gone.
  std::vector<Generation> close();

 private:
  struct Desk {
    PreviewBegin begin;
    Generation generation;
    std::vector<std::uint8_t> rgb;  // of the image that is coming in
  };
  Generation begin_image(PreviewBegin&& begin, std::uint64_t number);
  Generation take_rows(PreviewRows&& rows);
  Generation end_image(const PreviewEnd& end);
  Desk& at(std::uint64_t image);

  std::string from_;
  std::map<std::uint64_t, Desk> open_;
};

}  // namespace tessera
