// The refusal of a model's name.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "apps/runtime/model_catalog.h"
#include "engine/core/error.h"

namespace tessera::testing {

inline ErrorInfo refused_model(const std::string& name) {
  try {
    resolve_model(name);
  } catch (const Error& error) {
    return error.info();
  }
  ADD_FAILURE() << name << " was found";
  return {};
}

}  // namespace tessera::testing
