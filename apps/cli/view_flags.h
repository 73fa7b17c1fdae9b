// Flags of the viewer, which is a program of its own next to this one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/flags.h"

namespace tessera {

struct ViewFlags {
  std::optional<std::string> model, captioner, connect, key_file;
  std::string output_dir = "out", theme = "dark";
  DeviceFlags device;
  std::optional<double> scale;
  std::vector<std::string> files;
};

void add_view_flags(CLI::App& app, const std::shared_ptr<ViewFlags>& flags);

// Replaces this program by `name` of its folder, which gets the flags as JSON, and the script where
// there is one. Returns only by an Error.
int run_view(const ViewFlags& flags, const char* name, const char* script = nullptr);

}  // namespace tessera
