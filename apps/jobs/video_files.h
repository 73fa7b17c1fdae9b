// The files of a video that stands, as bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/jobs/settle.h"
#include "apps/jobs/store.h"
#include "apps/runtime/video_task.h"
#include "video/video_process.h"

namespace tessera {

struct VideoFiles {
  RecordFacts record = RecordFacts::kAll;
  bool sidecar = false;  // facts as JSON, "STEM.json", and as an XMP packet, "STEM.xmp"
  std::int64_t quality = 80;
  VideoProcessOptions process = {};
};

struct MuxedVideo {
  std::vector<OutputFile> files;  // the video last
  std::string codec;
};

// Decodes the codes of a whole video and writes it in the container that its name ends with: at
// `draft` first, which is gone afterwards. What stands in the files follows from the item, not from
// the passes it took. Errors: kStorage; kGeneral as FrameWriter's, and E_IO_SIZE for a video over a
// gibibyte.
MuxedVideo mux_video(VideoTask& task, const SettledItem& item, const PreparedVideo& video,
                   std::span<const std::int32_t> codes, const VideoFiles& files,
                   const std::filesystem::path& draft);

}  // namespace tessera
