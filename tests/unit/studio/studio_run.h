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
  // Waits for the end of a picture; a copy of it.
  Painting finished(std::uint64_t number) {
    until([&](const Snapshot& now) {
      const Painting* one = now.painting(number);
      return one == nullptr || one->state == PaintState::kDone ||
             one->state == PaintState::kStopped || one->state == PaintState::kFailed;
    });
    const Painting* one = studio.snapshot().painting(number);
    return one == nullptr ? Painting{} : *one;
  }

  TempFolder folder;
  Studio studio;
};

inline PaintSettings tiny_settings(const std::string& prompt, std::uint64_t seed) {
  PaintSettings settings;
  settings.prompt = prompt;
  settings.seed = seed;
  return settings;
}

}  // namespace tessera
