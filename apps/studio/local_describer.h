// Images described by a model of this process. One model is kept loaded.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apps/runtime/describe_task.h"
#include "apps/studio/describer.h"

namespace tessera {

struct CaptionerOptions {
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;
  std::filesystem::path helper;
};

class LocalDescriber final : public Describer {
 public:
  explicit LocalDescriber(CaptionerOptions options) : options_(std::move(options)) {}
  void describe(const CaptionSetup& setup, const DescribeSource& next, TextListener& listener,
                const std::function<bool()>& ends) override;

 private:
  void open(const CaptionSetup& setup);

  CaptionerOptions options_;
  Runtime runtime_;
  std::unique_ptr<DescribeTask> task_;
  CaptionSetup opened_;
};

}  // namespace tessera
