// What the recipe fixtures_templates.py wrote: templates, conversations, and what Python's Jinja2
// makes of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/packed_file.h"
#include "tokenizers/template/template.h"

namespace tessera::template_test {

// The lines of a compressed file under tests/golden/templates.
inline std::vector<Json> golden_lines(const std::string& name) {
  const std::string text =
      unpacked_file(std::string(TESSERA_SOURCE_DIR) + "/tests/golden/templates/" + name);
  std::vector<Json> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    out.push_back(Json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

// The recipe's clock: Sunday, 9 March 2025, 17:05:08.
inline std::tm golden_clock() {
  std::tm out{};
  out.tm_year = 125;
  out.tm_mon = 2;
  out.tm_mday = 9;
  out.tm_hour = 17;
  out.tm_min = 5;
  out.tm_sec = 8;
  out.tm_yday = 67;
  return out;
}

// `json` and `special` outlive what is returned.
inline TemplateInput input_of(const Json& json, const Json& special) {
  TemplateInput out;
  const auto part = [&](const char* key) { return json.contains(key) ? &json[key] : nullptr; };
  out.messages = part("messages");
  out.tools = part("tools");
  out.documents = part("documents");
  out.variables = part("variables");
  out.add_generation_prompt = json.value("add_generation_prompt", true);
  for (const auto& [name, value] : special.items()) {
    out.special_tokens.emplace_back(name, value.get<std::string>());
  }
  out.now = golden_clock();
  return out;
}

}  // namespace tessera::template_test
