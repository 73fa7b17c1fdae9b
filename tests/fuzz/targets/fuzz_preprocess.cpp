// Geometry of preprocessing: a byte chooses the family, four the size, one whether pixels are made
// too, with views of few pixels. Oracles: everything lies inside what holds it, the tokens are
// counted again one by one, and no pixel is read outside of its image.
#include "engine/core/error.h"
#include "engine/families/registry.h"
#include "tests/fuzz/targets/model_oracles.h"

namespace tessera::fuzz {
namespace {

// The family's geometry with views of a few pixels, so that pixels cost little.
PreprocessPolicy small(PreprocessPolicy policy) {
  policy.patch = 2;
  if (policy.side != 0) policy.side = 3 * policy.patch * policy.merge;  // three tokens
  policy.longest = 4 * policy.side;
  policy.longest_cap = 5 * policy.side;
  policy.min_pixels = 64;
  policy.max_pixels = 1024;
  policy.shortest = std::min<std::int64_t>(policy.shortest, 3);
  return policy;
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace tessera;
  std::vector<std::string> seeds;
  for (std::size_t i = 0; i < preprocess_policy_names().size(); ++i) {
    const char policy = static_cast<char>(i);
    seeds.push_back({policy, 40, 0, 30, 0, 1});
    seeds.push_back({policy, 9, 0, 60, 0, 1});
    seeds.push_back({policy, '\x80', 7, '\x38', 4, 0});
    seeds.push_back({policy, 1, 0, 1, 0, 0});
  }
  fuzz::write_seeds_if_asked(seeds);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  if (size < 6) return 0;
  static const std::vector<std::string> kNames = preprocess_policy_names();
  const PreprocessPolicy policy = preprocess_policy(kNames[data[0] % kNames.size()]);
  const std::int64_t width = 1 + (data[1] | data[2] << 8), height = 1 + (data[3] | data[4] << 8);
  try {
    if (data[5] % 2 == 1) {
      fuzz::check_pixels(fuzz::small(policy), 1 + width % 100, 1 + height % 100);
    } else {
      fuzz::check_plan(policy, plan_preprocess(policy, width, height));
    }
  } catch (const Error& error) {
    fuzz::require(error.info().code == "E_PICTURE_ASPECT", "thin images only");
  }
  return 0;
}
