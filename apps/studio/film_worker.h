// The video that is watched, for the drawing thread: one session at a time, the last one opened. One
// that is closed is notified to end and waited for later, so that a process that hangs holds nobody up.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "apps/studio/film_session.h"

namespace tessera {

// All calls from the thread that made it; none but the destructor waits.
class FilmWorker {
 public:
  // Closed ones that may still wait for an answer of their process.
  static constexpr std::size_t kMaxLeaving = 4;

  // The queue of events is borrowed and must be closed before the worker ends.
  FilmWorker(FilmOptions options, EventQueue& events);
  ~FilmWorker();  // ends all, and waits for their threads
  FilmWorker(const FilmWorker&) = delete;

  // Opens a video in place of the one that is open. False, and nothing happened, when too many
  // closed ones have not ended yet or no thread can be had.
  bool open(const Film& film);
  // To the open video, if there is one. False when too much waits already.
  bool post(const FilmOrder& order);
  void close();
  // Tells all to end; does not wait.
  void end();
  // Closed ones that have not ended yet.
  std::size_t leaving();

 private:
  FilmOptions options_;
  EventQueue& events_;
  std::unique_ptr<FilmSession> open_;
  std::vector<std::unique_ptr<FilmSession>> leaving_;
};

}  // namespace tessera
