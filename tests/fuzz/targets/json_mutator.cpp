// The tree is nlohmann's, so that the mutator shares no code with the parser under test.
#include "tests/fuzz/targets/json_mutator.h"

#include <nlohmann/json.hpp>

namespace tessera::fuzz {

namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kMaxNodes = 4096;
constexpr int kMaxDepth = 100;  // deeper texts are left to the mutator of plain bytes

// False if the tree is too deep.
bool collect(Json& node, int depth, std::vector<Json*>& out) {
  if (depth > kMaxDepth) return false;
  if (out.size() >= kMaxNodes) return true;
  out.push_back(&node);
  if (!node.is_structured()) return true;
  for (Json& child : node) {
    if (!collect(child, depth + 1, out)) return false;
  }
  return true;
}

void change_scalar(Json& node, Choice& choice) {
  if (node.is_number_integer()) {
    const std::uint64_t value = other_number(node.get<std::uint64_t>(), choice);
    node = choice.one_in(4) ? Json(static_cast<std::int64_t>(value)) : Json(value);
  } else if (node.is_number()) {
    static constexpr double kNumbers[] = {0, -1, 0.5, 1, 1e-300, 1e300, 65536.5};
    node = kNumbers[choice.below(std::size(kNumbers))];
  } else if (node.is_string()) {
    auto text = node.get<std::string>();
    switch (choice.below(4)) {
      case 0:
        text.clear();
        break;
      case 1:
        text += text;
        break;
      case 2:
        text.insert(choice.below(text.size() + 1), 1, "aA0 .<\\*+([{\x01\x7f"[choice.below(15)]);
        break;
      default:
        if (!text.empty()) text.erase(choice.below(text.size()), 1);
    }
    node = text;
  } else if (node.is_boolean()) {
    node = !node.get<bool>();
  } else {
    node = choice.below(100);
  }
}

void change_members(Json& node, const std::vector<Json*>& all, Choice& choice) {
  const Json other = *all[choice.below(all.size())];
  if (node.is_array()) {
    const std::size_t at = choice.below(node.size() + 1);
    if (choice.one_in(2) && at < node.size()) {
      node.erase(at);
    } else {
      node.insert(node.begin() + static_cast<std::ptrdiff_t>(at), other);
    }
    return;
  }
  if (node.empty() || choice.one_in(4)) {
    node["k" + std::to_string(choice.below(10))] = other;
    return;
  }
  auto member = node.begin();
  std::advance(member, choice.below(node.size()));
  if (choice.one_in(2)) {
    node.erase(member);
  } else {
    const Json value = *member;
    const std::string key = member.key();
    node.erase(member);
    node[key + (choice.one_in(2) ? "x" : "")] = value;
  }
}

}  // namespace

std::string mutate_json(std::string_view text, Choice& choice) {
  Json root = Json::parse(text, nullptr, false);
  if (root.is_discarded()) return {};
  for (std::size_t edits = choice.one_in(3) ? 3 : 1; edits > 0; --edits) {
    std::vector<Json*> nodes;
    if (!collect(root, 0, nodes)) return {};
    Json& node = *nodes[choice.below(nodes.size())];
    if (choice.one_in(10)) {
      const Json other = *nodes[choice.below(nodes.size())];
      node = other;
    } else if (node.is_structured()) {
      change_members(node, nodes, choice);
    } else {
      change_scalar(node, choice);
    }
  }
  return root.dump(-1, ' ', false, Json::error_handler_t::ignore);
}

}  // namespace tessera::fuzz
