// Progress on stderr: a bar on a terminal, a line every few seconds elsewhere, or JSON lines.
#pragma once

#include <cstdint>
#include <string>

#include "apps/cli/session.h"
#include "apps/pipeline/generate_pipeline.h"

namespace tessera {

class ProgressReporter {
 public:
  ProgressReporter(const Session& session, std::size_t pictures);
  void show(const GenerateProgress& progress);
  // Clears the bar, so that other lines stand by themselves.
  void clear();

 private:
  enum class Style : std::uint8_t { kNone, kBar, kLines, kJson };
  std::string describe(const GenerateProgress& progress) const;

  const Session& session_;
  Style style_ = Style::kNone;
  std::size_t pictures_ = 0;
  double last_shown_ = -1e9;
  double started_ = 0;
  bool bar_open_ = false;
};

}  // namespace tessera
