// Models that are no files: made as they are opened. A program is linked with a source of them, or
// with none, as programs of users are.
#pragma once

#include <string>
#include <string_view>

#include "engine/families/open_model.h"

namespace tessera {

class LinkedModels {
 public:
  virtual ~LinkedModels() = default;
  // Whether the name is one of this source; open() may still refuse it.
  virtual bool has(std::string_view name) const = 0;
  // Whether the model of that name describes images.
  virtual bool describes(std::string_view name) const = 0;
  // Error kModel (E_MODEL_MISSING), which lists the names that there are.
  virtual OpenedModel open(const std::string& name, const FamilyOptions& options) const = 0;
};

// What this program was linked with; nullptr = nothing. The library's own definition gives nothing;
// an object with another one, linked by name, comes before it.
const LinkedModels* linked_models();

// The source that has the name, or nullptr.
const LinkedModels* source_with(std::string_view name);

}  // namespace tessera
