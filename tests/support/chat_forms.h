// Chat forms of all families by name.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/families/registry.h"

namespace tessera {

inline const ChatForm& form_named(std::string_view name) {
  for (const ChatForm* form : chat_forms()) {
    if (form->name == name) return *form;
  }
  throw std::runtime_error("no form " + std::string(name));
}

}  // namespace tessera
