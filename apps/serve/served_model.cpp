#include "apps/serve/served_model.h"

#include <algorithm>
#include <filesystem>

namespace tessera {

std::string last_name(const std::string& source) {
  const std::filesystem::path path(source);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string free_name(const std::string& name, std::span<const ServedModel> others) {
  const auto is_taken = [&](const std::string& wanted) {
    return std::any_of(others.begin(), others.end(),
                       [&](const ServedModel& other) { return other.name == wanted; });
  };
  std::string out = name;
  for (int number = 2; is_taken(out); ++number) out = name + "-" + std::to_string(number);
  return out;
}

void check_aliases(const std::map<std::string, std::string>& aliases,
                   std::span<const ServedModel> models) {
  std::string names;
  for (const ServedModel& model : models) names += (names.empty() ? "" : ", ") + model.name;
  const auto is_served = [&](const std::string& name) {
    return std::any_of(models.begin(), models.end(),
                       [&](const ServedModel& model) { return model.name == name; });
  };
  for (const auto& [alias, name] : aliases) {
    if (!alias.empty() && !is_served(alias) && is_served(name)) continue;
    throw api::Error({.kind = api::ErrorKind::kUsage,
                      .code = "E_SERVE_NAMES",
                      .where = "--alias",
                      .expected = "NAME=MODEL, a new name of one of " + names,
                      .found = "'" + alias + "=" + name + "'"});
  }
}

}  // namespace tessera
