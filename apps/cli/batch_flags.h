// The flags of `tessera batch`, for images and for videos.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/batch_captions.h"
#include "apps/cli/decode_flags.h"
#include "apps/cli/flags.h"
#include "apps/jobs/job_list.h"
#include "apps/runtime/generate_request.h"

namespace tessera {

struct BatchFlags {
  std::vector<std::string> arguments;
  std::optional<std::string> model, negative_prompt, sheet, shard, name, text_encoder;
  std::string output_dir, kind = kImageKind;
  std::string fsync = "on";
  std::int64_t seed = 0, batch_size = 1, max_retries = 0, quality = 80;
  std::optional<std::int64_t> frames, fps;
  SizeFlags size;
  SettingValues sampling, decode;
  DeviceFlags device;
  BatchCaptionFlags captions;
  bool overwrite = false, sidecar = false, disable_metadata = false;
  bool retry_failed = false, verify = false, anew = false, dry_run = false;
};

}  // namespace tessera
