// What `tessera doctor` finds: one line, or one JSON object, each.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

enum class Health : std::uint8_t { kGood, kNote, kMissing };

struct Finding {
  Health health = Health::kGood;
  std::string subject, text, fix;
  // Further fields of the object.
  std::vector<std::pair<std::string, std::variant<bool, std::uint64_t, std::string>>> more;
};

}  // namespace tessera
