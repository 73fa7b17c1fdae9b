// From a folder's processor files to the way frames of its videos are prepared, with the defaults
// of the reference's class for absent keys. Source: the video processors of Hugging Face
// transformers 5.
#pragma once

#include <optional>

#include "engine/families/describe_spec.h"
#include "engine/families/folder_files.h"

namespace tessera {

// `spec` has its tower and policy. Models of types without a video processor, and those that have
// no processor files at all: frames are prepared as images are. Error kModel where the folder has
// processor files and none that speaks of videos. What makes videos impossible and leaves images
// as they are comes back in `refusal`.
VideoPolicy read_video_policy(const DescribeSpec& spec, FolderFiles& files,
                              std::optional<ErrorInfo>& refusal);

}  // namespace tessera
