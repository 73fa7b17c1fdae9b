// Texts about pictures that a job has painted, from their pixels in memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/pipeline/caption_pipeline.h"
#include "engine/core/json.h"

namespace tessera {

struct ToDescribe {
  std::string id;
  std::shared_ptr<const Image> image;
};

struct Described {
  std::vector<std::string> texts;  // one an ending
  std::optional<ErrorInfo> error;  // why there are none
};

class Describer {
 public:
  virtual ~Describer() = default;
  // Endings of the text files, ".txt" first.
  virtual const std::vector<std::string>& endings() const = 0;
  // In the order of the pictures.
  virtual std::vector<Described> describe(std::span<const ToDescribe> pictures) = 0;
};

// The text without pruning, as a method's name.
inline constexpr std::string_view kNoMethod = "none";

// By a captioning model, once for each method that drops visual tokens. The text of the first goes
// to "STEM.txt", that of another to "STEM.METHOD.txt".
class CaptionDescriber final : public Describer {
 public:
  struct Method {
    std::string name;  // kNoMethod or a pruner's
    PruneChoice prune;
  };
  // `notice` hears of fewer texts at once than asked for. Errors as CaptionPipeline's.
  CaptionDescriber(const CaptionOptions& options, std::vector<Method> methods,
                   std::function<void(std::string_view)> notice);

  const std::vector<std::string>& endings() const override { return endings_; }
  std::vector<Described> describe(std::span<const ToDescribe> pictures) override;

  void load() { pipeline_.load(); }
  const std::string& model_name() const { return pipeline_.model_name(); }
  // All that a text depends on beside its picture.
  Json identity() const;
  // Bytes held while pictures of that many pixels are described.
  std::size_t bytes(std::int64_t width, std::int64_t height) const;

 private:
  CaptionOptions options_;
  std::vector<Method> methods_;
  std::vector<std::string> endings_;
  std::function<void(std::string_view)> notice_;
  CaptionPipeline pipeline_;
};

}  // namespace tessera
