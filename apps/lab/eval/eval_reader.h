// Reads scenes of the tabletop world back from pixels, for evaluations: a captioner by what it
// writes, or a network that was trained for nothing else (docs/training.md).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/lab/scorer/attributes.h"
#include "engine/backend/backend.h"
#include "vision/image/image.h"

namespace tessera {

struct ReaderOptions {
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;  // 0 = one per core
};

class SceneReader {
 public:
  virtual ~SceneReader() = default;
  // A captioner or a scorer network, as resolve_model() takes names; empty = the bundled captioner.
  // Error kModel, kUsage.
  static std::unique_ptr<SceneReader> open(const std::string& name, const ReaderOptions& options);

  virtual const std::string& name() const = 0;
  // Why square images of `side` pixels cannot be read: what is wanted; empty = they can.
  virtual std::string refuses(std::int64_t side) const = 0;
  // What each image shows; none = the reader's text is no scene.
  virtual std::vector<std::optional<SceneAttributes>> read(std::span<const Image> images) = 0;
};

// What a canonical caption says; none for other words.
std::optional<SceneAttributes> read_caption(const std::string& text);

}  // namespace tessera
