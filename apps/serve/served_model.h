// A model as clients of the server know it.
#pragma once

#include <map>
#include <span>
#include <string>

#include <tessera/runtime.h>

namespace tessera {

namespace api = tessera_v0;

// What one model can be asked for.
struct ServedModel {
  std::string name;    // never a path: what clients call it
  std::string source;  // as `-m` takes it
  std::map<api::Task, api::ModelInfo> tasks = {};
  std::map<api::Task, api::ErrorFacts> refusals = {};  // of the other tasks
  bool serves(api::Task task) const { return tasks.contains(task); }
};

// What clients call a model that does not open: of a path its last name.
std::string last_name(const std::string& source);
// With a number after it where others have it.
std::string free_name(const std::string& name, std::span<const ServedModel> others);
// Error kUsage (E_SERVE_NAMES) for a further name that is none or belongs to a model already, and for
// one of a model that is not served.
void check_aliases(const std::map<std::string, std::string>& aliases,
                   std::span<const ServedModel> models);

}  // namespace tessera
