// The part of the store that videos in work need: segments are put down and found again, and go when
// their video is done.
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/jobs/content_sum.h"
#include "apps/jobs/store.h"
#include "engine/core/error.h"
#include "engine/core/file_stream.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxSegment = std::size_t{1} << 30;

}  // namespace

void BatchStore::commit_segment(const SettledItem& item, std::int64_t first, std::int64_t grids,
                                std::int64_t passes, std::span<const std::int32_t> codes) {
  const std::string& id = item.item.id;
  expects(own_.contains(id) && grids > 0, "grids of an item of this shard");
  const std::string name = segment_name(id, first), text = codes_text(codes);
  note_sync();
  publish_twice(state_ / name, text, Publish::kReplace);
  const Json fields = segment_fields(
      id, {.first = first, .grids = grids, .passes = passes, .file = recorded_file(name, text)});
  journal_->add(fields);
  journal_->commit();
  segments_.take(fields);
}

// What one record says, if the file is whole.
std::optional<std::vector<std::int32_t>> BatchStore::segment_codes(const VideoSegment& segment,
                                                                   std::size_t grid_codes,
                                                                   std::int64_t codes) const {
  const fs::path path = state_ / segment.file.name;
  try {
    if (file_type(path) != FileType::kFile) return std::nullopt;
    const std::string text = read_file_no_link(path, kMaxSegment);
    if (text.size() != segment.file.bytes || !is_recorded(segment.file, text)) return std::nullopt;
    return codes_in(text, to_size(segment.grids) * grid_codes, codes);
  } catch (const Error& error) {  // what cannot be read does not stand
    if (error.info().kind != ErrorKind::kGeneral) throw;
    return std::nullopt;
  }
}

StandingVideo BatchStore::standing_video(const SettledItem& item, std::size_t grid_codes,
                                       std::int64_t codes) {
  StandingVideo out;
  for (const VideoSegment& segment : segments_.of(item.item.id)) {
    const auto these = segment_codes(segment, grid_codes, codes);
    if (!these) break;
    out.codes.insert(out.codes.end(), these->begin(), these->end());
    out.grids += segment.grids;
    out.passes += segment.passes;
    ++out.segments;
  }
  segments_.cut(item.item.id, to_size(out.segments));
  return out;
}

fs::path BatchStore::video_draft(const SettledItem& item) const {
  const std::string ending = fs::path(item.name).extension().string();
  return state_ / draft_name(item.item.id, ending.substr(1));
}

// Their video is durable, and a record says so.
void BatchStore::drop_segments(const std::string& id) {
  for (const VideoSegment& segment : segments_.of(id)) remove_durable(state_ / segment.file.name);
}

// Files of videos in work that nothing speaks of: drafts, segments whose record was never written,
// those of videos that are done and of other jobs. Of this shard's ids alone.
void BatchStore::sweep_segments() {
  for (const fs::path& path : list_folder(state_)) {
    const std::string name = path.filename().string(), id = item_of_video_file(name);
    if (id.empty() || shard_of(id, options_.shard.of) != options_.shard.index) continue;
    bool known = false;
    for (const VideoSegment& segment : segments_.of(id)) known = known || segment.file.name == name;
    if (known && own_.contains(id)) continue;
    remove_durable(path);
    ++swept_;
  }
}

}  // namespace tessera
