// One sender's messages as pictures of the Snapshot: what does not follow from what it said before
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
  static constexpr std::size_t kMostPictures = 16;  // at work at once

  // `from`: who sends, for people.
  explicit PreviewDesk(std::string from) : from_(std::move(from)) {}

  // The picture that a message changed. `number`: for a picture that begins. Error kGeneral
  // (E_PREVIEW_ORDER) for a picture that nobody began, one too many, rows that are not its own.
  Painting take(PreviewMessage&& message, std::uint64_t number);
  // Pictures that were at work, as failed: the sender has gone.
  std::vector<Painting> close();

 private:
  struct Desk {
    PreviewBegin begin;
    Painting painting;
    std::vector<std::uint8_t> rgb;  // of the image that is coming in
  };
  Painting begin_picture(PreviewBegin&& begin, std::uint64_t number);
  Painting take_rows(PreviewRows&& rows);
  Painting end_picture(const PreviewEnd& end);
  Desk& at(std::uint64_t picture);

  std::string from_;
  std::map<std::uint64_t, Desk> open_;
};

}  // namespace tessera
