// Compares what a checkpoint holds with what its family says it must hold.
#include <algorithm>
#include <string>

#include "engine/families/family.h"
#include "engine/towers/compare_tensors.h"

namespace tessera {

namespace {

void check(const std::vector<TensorSpec>& expected, const std::vector<std::string>& optional,
           const std::vector<std::string>& ignored, const Checkpoint& checkpoint,
           const std::string& file) {
  compare_tensors(
      {.tensors = expected,
       .of = "its configuration",
       .optional =
           [&](const std::string& name) {
             return std::find(optional.begin(), optional.end(), name) != optional.end();
           },
       .foreign = [&](const std::string& name) { return matches_any(ignored, name); },
       .file = file},
      checkpoint);
}

}  // namespace

void check_tensors(const ModelSpec& spec, const Checkpoint& checkpoint) {
  check(spec.tensors, spec.optional_tensors, spec.ignored, checkpoint, spec.weights.string());
}

void check_tensors(const std::vector<TensorSpec>& expected, const Checkpoint& checkpoint,
                   const std::string& file) {
  check(expected, {}, {"*"}, checkpoint, file);
}

void check_vq_tensors(const ModelSpec& spec, const Checkpoint& vq_checkpoint) {
  std::vector<std::string> ignored = spec.vq_ignored;
  ignored.push_back("quantize.codebook_used");
  ignored.push_back(spec.vq.prefix + "quantize.codebook_used");
  check(spec.vq_tensors, spec.vq_optional, ignored, vq_checkpoint, spec.vq_weights.string());
}

}  // namespace tessera
