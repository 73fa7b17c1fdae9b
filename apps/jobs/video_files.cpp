// Codes to a file, and what stands next to it.
#include "apps/jobs/video_files.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"
#include "apps/jobs/item_files.h"
#include "apps/jobs/video_check.h"
#include "apps/runtime/sha256.h"
#include "apps/runtime/video_facts.h"
#include "engine/core/file_stream.h"
#include "engine/core/index.h"
#include "video/frame_writer.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxVideo = std::size_t{1} << 30;

class FramesToFile final : public VideoListener {
 public:
  explicit FramesToFile(FrameWriter& writer) : writer_(writer) {}
  void on_frame(std::int64_t index, const Image& frame) override { writer_.put(frame.rgb, index); }

 private:
  FrameWriter& writer_;
};

// The fields of videos alone.
Json video_fields(const VideoTask& task, const SettledItem& item, const PreparedVideo& video) {
  Json out = {{"fps", rate_of(item, task)}};
  if (!video.first_frames.empty()) out["first_frames"] = video.first_frames.size();
  return out;
}

std::string sidecar_of(const SettledItem& item, const PreparedVideo& video, const MuxedVideo& made,
                       const Json& fields, RecordFacts record) {
  Json out = {{"id", item.item.id},
              {"clip", item.name},
              {"sha256", sha256_hex(made.files.back().bytes)},
              {"frames", video.frames},
              {"codec", made.codec}};
  out.update(fields);
  out["facts"] = Json::object();
  if (record == RecordFacts::kAll) {
    out["facts"] = facts_json(video.facts);
    // A video that was gone on with took other passes than one that was not.
    for (const char* key : {"tokens", "passes", "tokens_per_pass"}) out["facts"].erase(key);
  }
  return json_line(out) + "\n";
}

}  // namespace

MuxedVideo mux_video(VideoTask& task, const SettledItem& item, const PreparedVideo& video,
                   std::span<const std::int32_t> codes, const VideoFiles& files,
                   const std::filesystem::path& draft) {
  const Json fields = video_fields(task, item, video);
  const VideoTexts texts = video_texts(video.facts, fields, files.record);
  MuxedVideo out;
  {
    FrameWriter writer(draft,
                       {.container = container_of(draft),
                        .width = video.facts.width,
                        .height = video.facts.height,
                        .tick = {1, rate_of(item, task)},
                        .quality = narrow<int>(files.quality),
                        .comment = texts.comment},
                       files.process);
    out.codec = name_of(writer.codec());
    FramesToFile to_file(writer);
    task.show(video, codes, to_file);
    // Of use to this run alone: a draft that a kill leaves is swept.
    writer.finish(video.frames, Publish::kReplace, Sync::kOff);
  }
  out.files.push_back({item.name, read_file_no_link(draft, kMaxVideo)});
  remove_durable(draft);
  if (!files.sidecar) return out;
  OutputFile facts{name_next_to(item.name, ".json"),
                   sidecar_of(item, video, out, fields, files.record)};
  OutputFile xmp{name_next_to(item.name, ".xmp"), texts.xmp + "\n"};
  out.files.insert(out.files.begin(), {std::move(facts), std::move(xmp)});
  return out;
}

}  // namespace tessera
