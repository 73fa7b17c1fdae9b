#include "apps/studio/settings.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera {

GenerateSettings settings_of(const ImageFacts& facts) {
  GenerateSettings settings;
  settings.model = facts.model;
  settings.prompt = facts.prompt;
  settings.negative_prompt = facts.negative_prompt;
  settings.sampling = values_of(facts.dist);
  settings.method = facts.method;
  settings.draft_model = facts.draft_model;
  settings.storage = storage_named(facts.dtype);
  settings.seed = facts.seed;
  settings.width = facts.width;
  settings.height = facts.height;
  return settings;
}

std::uint64_t random_seed() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != narrow<ssize_t>(sizeof bits)) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_RANDOM",
                 .where = "getrandom",
                 .expected = "8 random bytes",
                 .found = std::strerror(errno)});
  }
  return bits & 0xffffffffu;
}

std::string image_slug(std::string_view prompt) {
  constexpr std::size_t kMax = 48;
  std::string slug;
  for (const char c : prompt) {
    if (slug.size() >= kMax) break;
    const char low = c >= 'A' && c <= 'Z' ? char_of(c - 'A' + 'a') : c;
    const bool stands = (low >= 'a' && low <= 'z') || (low >= '0' && low <= '9');
    if (stands) {
      slug += low;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug.empty() ? "picture" : slug;
}

}  // namespace tessera
