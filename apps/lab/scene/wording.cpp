#include "apps/lab/scene/wording.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::array<std::string_view, 5> kNumberWords = {"zero", "one", "two", "three", "four"};

}  // namespace

std::string number_word(int count) { return std::string(kNumberWords[count]); }

std::string join_list(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

std::string floor_phrase(FloorKind floor) {
  return "on a " + std::string(name_of(floor)) + " floor";
}

std::string counted(FloorKind floor, const std::vector<std::string>& solids) {
  const int count = narrow<int>(solids.size());
  return number_word(count) + (count == 1 ? " solid " : " solids ") + floor_phrase(floor) + ": " +
         join_list(solids);
}

std::string there_are(FloorKind floor, const std::vector<std::string>& solids) {
  return floor_phrase(floor) + (solids.size() == 1 ? " there is " : " there are ") +
         join_list(solids);
}

}  // namespace tessera
