// The viewer without a window: workers that generate, describe, read images and play videos, a bounded
// queue of what they tell, and the Snapshot that the drawing thread folds it into. Models are this
// process's, or a server's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apps/studio/command.h"
#include "apps/studio/server_link.h"
#include "apps/studio/snapshot.h"

namespace tessera {

struct StudioOptions {
  // Generated with unless settings name another; empty = the bundled default, or the server's first.
  std::string model;
  std::string captioner;
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;  // 0 = one per core
  std::optional<DType> storage;
  std::filesystem::path folder = "out";  // made when the first image is saved
  std::optional<ServerOptions> server;  // asked in the place of models of this process
  std::filesystem::path helper;       // the image reader; empty = next to the program
  std::filesystem::path video_helper;  // the same for videos
};

class Studio {
 public:
  // Starts the workers; loads nothing yet. Error kUsage for a server's address or key that is none.
  explicit Studio(const StudioOptions& options);
  // Stops what runs after its pass and waits for the workers.
  ~Studio();
  Studio(Studio&&) = delete;

  // From the drawing thread, never blocks. False: the queue of commands is full, nothing happened.
  bool post(Command command);
  // Once a frame, from the drawing thread: takes what the workers told since and folds it in.
  // Never blocks on a worker.
  const Snapshot& update();
  const Snapshot& snapshot() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
