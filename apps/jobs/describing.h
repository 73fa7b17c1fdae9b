// Texts about images that a job has generated, from their pixels in memory.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/describe_task.h"
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

class ImageDescriber {
 public:
  virtual ~ImageDescriber() = default;
  // Endings of the text files, ".txt" first.
  virtual const std::vector<std::string>& endings() const = 0;
  // In the order of the images. Missing memory is a text's error, or thrown.
  virtual std::vector<Described> describe(std::span<const ToDescribe> images) = 0;
  // For how many texts at once memory lasted in the last call; never 0.
  virtual std::int64_t at_once() const { return std::numeric_limits<std::int64_t>::max(); }
  // Gives back what the last call held next to weights.
  virtual void release() {}
};

// The text without pruning, as a method's name.
inline constexpr std::string_view kNoMethod = "none";

// By a captioning model, once for each method that drops visual tokens. The text of the first goes
// to "STEM.txt", that of another to "STEM.METHOD.txt".
class CaptionDescriber final : public ImageDescriber {
 public:
  struct Method {
    std::string name;  // kNoMethod or a pruner's
    PruneChoice prune;
  };
  // `notice` hears what the owner of the run should know. Errors as DescribeTask's.
  CaptionDescriber(const DescribeOptions& options, std::vector<Method> methods,
                   std::function<void(std::string_view)> notice);

  const std::vector<std::string>& endings() const override { return endings_; }
  std::vector<Described> describe(std::span<const ToDescribe> images) override;
  std::int64_t at_once() const override { return at_once_; }
  void release() override { task_.release(); }

  void load() { task_.load(); }
  const std::string& model_name() const { return task_.model_name(); }
  // All that a text depends on next to its image.
  Json identity() const;
  // What is held while images of that many pixels are described.
  CaptionMemoryPlan plan(std::int64_t width, std::int64_t height) const;
  std::int64_t max_tokens() const { return options_.max_tokens; }

 private:
  DescribeOptions options_;
  std::vector<Method> methods_;
  std::vector<std::string> endings_;
  std::function<void(std::string_view)> notice_;
  Runtime runtime_;  // its own: describe() returns when all texts are there
  DescribeTask task_;
  std::int64_t at_once_;  // texts in the last call
};

}  // namespace tessera
