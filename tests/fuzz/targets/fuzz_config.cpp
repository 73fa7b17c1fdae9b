// config.json of every family. Oracles: the JSON itself is accepted only if another parser accepts
// it; an accepted configuration keeps every published limit, and all its tensors have sizes.
#include <nlohmann/json.hpp>

#include "engine/core/checked.h"
#include "engine/core/error.h"
#include "engine/core/json.h"
#include "engine/families/registry.h"
#include "tests/fuzz/targets/json_mutator.h"
#include "tests/fuzz/targets/model_oracles.h"
#include "tests/support/small_models.h"

namespace tessera::fuzz {
namespace {

const std::vector<std::string> kSeeds = {kSmallJanusConfig, kSmallOriginalConfig,
                                         kSmallLlamaGenConfig};

void check_limits(const ModelSpec& spec) {
  check_transformer(spec.model.transformer);
  require(within(spec.model.prompt_vocab, 1, (1 << 22)), "vocabulary");
  require(within(spec.model.codes, 1, 1 << 20), "codes");
  require(within(spec.image_height(), 1, 16384) && within(spec.image_width(), 1, 16384), "side");
  require(!spec.vq.multipliers.empty() && spec.vq.multipliers.size() <= 8, "levels");
  require(!spec.tensors.empty(), "tensors");
  for (const auto* tensors : {&spec.tensors, &spec.vq_tensors}) {
    for (const TensorSpec& tensor : *tensors) {
      require(!tensor.name.empty(), "names");
      for (const std::int64_t extent : tensor.shape.extents()) require(extent > 0, "extents");
      require(checked_product(tensor.shape.extents()).value_or(UINT64_MAX) < (1ull << 45), "sizes");
    }
  }
}

void check_json(std::string_view text) {
  // The other parser takes a zero byte for the end; no JSON text holds one.
  const bool has_zero = text.find('\0') != std::string_view::npos;
  const auto other = nlohmann::ordered_json::parse(text, nullptr, false);
  try {
    const Json mine = parse_json(text, "f");
    require(!other.is_discarded() && !has_zero, "another parser accepts the text");
    require(mine == other, "another parser builds the same tree");
  } catch (const Error& error) {
    const std::string& code = error.info().code;
    const bool stricter = has_zero || code == "E_JSON_DUPLICATE" || code == "E_JSON_NUMBER" ||
                          code == "E_JSON_DEPTH" || text.starts_with("\xef\xbb\xbf");
    require(other.is_discarded() || stricter, "a refusal has its reason");
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace tessera;
  fuzz::write_seeds_if_asked(fuzz::kSeeds);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::check_json(text);
  try {
    fuzz::check_limits(parse_family_config(text, "f"));
  } catch (const Error& error) {
    fuzz::require(!error.info().code.empty() && !error.info().expected.empty(), "a full message");
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  Choice choice(seed);
  if (!choice.one_in(5)) {
    // Now and then from a good file again: most of what was kept is refused at its first fault.
    const std::string_view from =
        choice.one_in(4) ? kSeeds[choice.below(kSeeds.size())] : as_text(data, size);
    const std::string changed = mutate_json(from, choice);
    if (!changed.empty()) return release(changed, data, max_size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
