// What `tessera view` settles from flags, environment and config file, and hands to the viewer's
// own program as one JSON object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/studio/studio.h"

namespace tessera {

struct ViewerOptions {
  std::string model, captioner;  // empty = the bundled ones
  std::string output_dir = "out";
  std::string device = "auto";
  bool deterministic = false, tf32 = false;  // of a CUDA device
  std::int64_t threads = 0;                  // 0 = one per core
  std::string dtype = "auto";                // auto, f32, bf16
  std::string connect, key_file;             // a server's address and its key; empty = none
  std::string theme = "dark";                // dark, light
  double scale = 0;                          // of texts and spaces; 0 = the screen's own
  std::vector<std::string> files;            // opened at the start
};

inline constexpr double kMinViewerScale = 0.5, kMaxViewerScale = 4;

// Names of files may be any bytes; other fields must be UTF-8: Error kUsage (E_VIEW_TEXT).
std::string to_json(const ViewerOptions& options);
// Error kUsage naming the field for what is missing, unknown, of a wrong type or out of range.
ViewerOptions parse_viewer_options(std::string_view json);

StudioOptions studio_options(const ViewerOptions& options);

}  // namespace tessera
