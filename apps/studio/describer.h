// What describes images for the studio: a model of this process, or a server.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/runtime/describe_options.h"
#include "apps/studio/snapshot.h"

namespace tessera {

struct CaptionSetup {
  std::string model, prune_method;
  double prune_rate = 0;
  bool operator==(const CaptionSetup&) const = default;
};

class TextListener : public DescribeListener {
 public:
  // Where the visual tokens of a text lie, before its caption, which has no blocks then.
  virtual void on_tiles(const std::string& id, std::vector<VisualTile> tiles) = 0;
};

class Describer {
 public:
  virtual ~Describer() = default;
  // Describes images until the source has no more, or `ends` says so: then the text at work is left.
  // The source may be called on another thread. What it throws fails all images that are described
  // in this way; nothing more is called then.
  virtual void describe(const CaptionSetup& setup, const DescribeSource& next,
                        TextListener& listener, const std::function<bool()>& ends) = 0;
};

}  // namespace tessera
