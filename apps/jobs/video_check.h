// What a job of videos asks of its model, before weights are read: first frames found, prompts
// encoded, lengths that the model can write, the memory that they take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "apps/jobs/settle.h"
#include "apps/runtime/video_task.h"

namespace tessera {

// Fills `first_frames_sha256` of the items that name a file, which is looked for from `folder` on:
// from then on the item is that file's content. At most kMaxJobErrors, at lines of `file`: a file
// that cannot be read, another one than the item's own hash says, a hash without a file.
std::vector<ErrorInfo> settle_first_frames(std::span<SettledItem> items,
                                           const std::filesystem::path& folder,
                                           const std::string& file);

// What the task will be asked for this item, with its first frames, which are read. Error
// kGeneral, E_VIDEO_FIRST, if their file is not the one that was settled; those of
// read_first_frames(). kUsage where the model takes none.
VideoRequest video_request_of(const SettledItem& item, const VideoTask& task,
                            const std::filesystem::path& folder);
// Frames a second: the item's, else the model's.
std::int64_t rate_of(const SettledItem& item, const VideoTask& task);

struct VideoCheck {
  std::vector<ErrorInfo> errors;  // at most kMaxJobErrors, with file and line
  LoopNeeds needs;                // room for any of them, as many at once as go together
  MemoryPlan plan;                // of that
  ImageFacts facts;             // of any video
  // Of each item: grids of the whole video, and those of its first frames.
  struct Size {
    std::int64_t grids = 0, given = 0;
  };
  std::vector<Size> sizes;
};
VideoCheck check_videos(const VideoTask& task, std::span<const SettledItem> items,
                      const std::filesystem::path& folder, const std::string& file,
                      std::int64_t at_once);

}  // namespace tessera
