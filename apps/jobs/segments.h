// What of a video stands while it is not done: segments of whole grids of codes, each in a file of
// the state folder that a record of the journal names: {"segment": id, "first", "grids", "passes",
// "file": {"p", "len", "sha256", "xxh3"}}. Codes are what a video is made of: from them the same
// frames are decoded again, and they take a small part of the room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/jobs/records.h"

namespace tessera {

struct VideoSegment {
  std::int64_t first = 0, grids = 0;  // of the video's grids
  std::int64_t passes = 0;            // of the model, for this segment
  RecordedFile file;
};

// Codes of the grids that stand, from the video's first on.
struct StandingVideo {
  std::vector<std::int32_t> codes;
  std::int64_t grids = 0, passes = 0, segments = 0;
};

Json segment_fields(const std::string& id, const VideoSegment& segment);

// The segments of a journal that no record of a done item followed.
class Segments {
 public:
  // Any record of the journal. A segment that stands already is replaced, and what is after it
  // forgotten; one with a gap before it says nothing. The nlohmann exceptions of a field of another
  // type leave it.
  void take(const Json& fields);
  // In order, without gaps, from the video's first grid on.
  std::span<const VideoSegment> of(const std::string& id) const;
  // Forgets the item's segments from that one on.
  void cut(const std::string& id, std::size_t segment);
  const std::unordered_map<std::string, std::vector<VideoSegment>>& all() const { return items_; }

 private:
  std::unordered_map<std::string, std::vector<VideoSegment>> items_;
};

// "clip-ID-000012.codes": of the segment that begins with grid 12.
std::string segment_name(const std::string& id, std::int64_t first);
// "clip-ID-000000.mkv": a video that is being put together.
std::string draft_name(const std::string& id, std::string_view container);
// The id in such a name; empty for any other name.
std::string item_of_video_file(std::string_view name);

// The file of a segment: a line that says what it is, then the codes, 4 bytes each, the least
// significant first.
std::string codes_text(std::span<const std::int32_t> codes);
// Empty for anything else than such a file of `count` codes from 0 to below `codes`.
std::optional<std::vector<std::int32_t>> codes_in(std::string_view text, std::size_t count,
                                                  std::int64_t codes);

}  // namespace tessera
