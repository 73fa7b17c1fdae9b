// The files of a clip that stands, as bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/jobs/settle.h"
#include "apps/jobs/store.h"
#include "apps/runtime/video_task.h"
#include "video/clip_process.h"

namespace tessera {

struct ClipFiles {
  RecordFacts record = RecordFacts::kAll;
  bool sidecar = false;  // facts as JSON, "STEM.json", and as an XMP packet, "STEM.xmp"
  std::int64_t quality = 80;
  ClipProcessOptions process = {};
};

struct MuxedClip {
  std::vector<OutputFile> files;  // the clip last
  std::string codec;
};

// Decodes the codes of a whole clip and writes it in the container that its name ends with: at
// `draft` first, which is gone afterwards. What stands in the files follows from the item, not from
// the passes it took. Errors: kStorage; kGeneral as FrameWriter's, and E_IO_SIZE for a clip over a
// gibibyte.
MuxedClip mux_clip(VideoTask& task, const SettledItem& item, const PreparedVideo& clip,
                   std::span<const std::int32_t> codes, const ClipFiles& files,
                   const std::filesystem::path& draft);

}  // namespace tessera
