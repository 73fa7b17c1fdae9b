// Flags of `tessera batch` for texts next to the images, and who writes them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/jobs/describing.h"
#include "apps/jobs/settle.h"

namespace tessera {

struct BatchCaptionFlags {
  bool on = false;
  std::vector<std::string> methods;  // that drop visual tokens; empty = none does
  std::optional<std::string> captioner;
};

void add_batch_caption_flags(CLI::App& app, BatchCaptionFlags& flags);

// nullptr when no captions are asked for. Error kUsage for names that are no methods, twice the
// same one, or --captioner alone; those of DescribeTask. The session is borrowed.
std::unique_ptr<CaptionDescriber> make_describer(const Session& session,
                                                 const BatchCaptionFlags& flags,
                                                 const DeviceFlags& device,
                                                 std::int64_t batch_size);

// Error kUsage, E_NAME_COLLISION, with file and line, when texts of two images would have one
// name.
void check_text_names(std::span<const SettledItem> items, const std::vector<std::string>& endings,
                      const std::string& file);

}  // namespace tessera
