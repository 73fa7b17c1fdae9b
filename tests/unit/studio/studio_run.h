// A studio that a test drives as the drawing thread does: one update after the other, until
// something shows or the patience of a minute is over.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "apps/studio/studio.h"
#include "tests/support/temp_folder.h"

namespace tessera {

struct StudioRun {
  explicit StudioRun(StudioOptions options = {}) : studio(with_folder(std::move(options))) {}

  StudioOptions with_folder(StudioOptions options) const {
    if (options.model.empty()) options.model = "test:tiny";
    if (options.threads == 0) options.threads = 1;
    if (options.folder == "out") options.folder = folder / "pictures";
    return options;
  }

  bool until(const std::function<bool(const Snapshot&)>& there) {
    for (int i = 0; i < 60000; ++i) {
      if (there(studio.update())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "nothing came";
    return false;
  }
  // Waits for the end of an image; a copy of it.
  Generation finished(std::uint64_t number) {
    until([&](const Snapshot& now) {
      const Generation* one = now.generation(number);
      return one == nullptr || one->state == GenerateState::kDone ||
             one->state == GenerateState::kStopped || one->state == GenerateState::kFailed;
    });
    const Generation* one = studio.snapshot().generation(number);
    return one == nullptr ? Generation{} : *one;
  }

  TempFolder folder;
  Studio studio;
};

inline GenerateSettings tiny_settings(const std::string& prompt, std::uint64_t seed) {
  GenerateSettings settings;
  settings.prompt = prompt;
  settings.seed = seed;
  return settings;
}

}  // namespace tessera
