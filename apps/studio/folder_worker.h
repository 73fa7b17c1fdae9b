// The thread that deals with files for the drawing thread: looks for models once, keeps the gallery
// of a folder, opens images at full size and recalls what they record, writes texts next to them.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>
#include <variant>

#include "apps/studio/event_queue.h"
#include "apps/studio/gallery.h"

namespace tessera {

// The programs that read strangers' files; empty: next to this one.
struct FolderHelpers {
  std::filesystem::path images, videos;
};

class FolderWorker {
 public:
  static constexpr std::size_t kMaxWaiting = 64;

  // The queue of events is borrowed and must be closed before the worker ends. `looks_for_models`:
  // on this machine, once.
  FolderWorker(std::filesystem::path folder, const FolderHelpers& helpers, bool looks_for_models,
               EventQueue& events);
  ~FolderWorker();
  // Ends after the task at hand; does not wait.
  void end();
  FolderWorker(const FolderWorker&) = delete;

  // Looks for the folder's images without a text; a FolderImagesEvent answers.
  struct ListCommand {
    std::uint64_t order = 0;
    CaptionCommand how;
  };
  using Task = std::variant<OpenCommand, FolderCommand, SaveCaptionCommand, ListCommand>;
  // False when too much waits already.
  bool post(Task command);

 private:
  void work();
  bool next_task(Task& task, bool idle);
  void carry_out(const OpenCommand& command);
  void carry_out(const FolderCommand& command);
  void carry_out(const SaveCaptionCommand& command);
  void carry_out(const ListCommand& command);
  void look();
  void show_gallery();

  EventQueue& events_;
  bool looks_for_models_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool ending_ = false;
  // Of the thread alone.
  GalleryReaders readers_;
  Gallery gallery_;
  double next_look_ = 0;  // seconds of the monotonic clock
  std::thread thread_;
};

}  // namespace tessera
