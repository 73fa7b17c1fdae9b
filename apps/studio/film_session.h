// One opened video: a thread that plays it, and for a moment one that reads the small images along
// it, each with a confined process of its own (video/frame_reader.h). Nothing that this video does
// holds up another one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "apps/studio/event_queue.h"
#include "apps/studio/frame_ring.h"
#include "video/frame_reader.h"

namespace tessera {

struct FilmOptions {
  std::filesystem::path program;  // `tessera-video`; empty: next to this one
  double deadline_seconds = 60;   // for one answer of it
  std::size_t kept_bytes = std::size_t{96} << 20;
};

inline constexpr std::int64_t kMaxFilmFrames = 1'000'000;

// For a reader of a video that is looked at.
FrameReaderOptions film_reader_options(const std::filesystem::path& program,
                                       double deadline_seconds,
                                       std::shared_ptr<VideoInterrupt> interrupt = nullptr);
// A frame as an image; takes its pixels.
std::shared_ptr<const Image> image_of(VideoFrame&& frame);

// Whether the frames before are whole; all else ends the video.
bool is_film_damage(const ErrorInfo& info);
// Throws the Error of kind kGeneral of a video that has no frames, or too many.
[[noreturn]] void refuse_frames(const std::filesystem::path& path, const char* code,
                                std::string expected, std::string found);

using FilmOrder = std::variant<FilmPlayCommand, FilmLoopCommand, FilmSeekCommand, FilmStepCommand,
                               FilmSpeedCommand>;

// Where a video that plays is, in its own seconds.
struct FilmClock {
  double since = 0, from = 0, speed = 1;
  void start(double now, double at) {
    since = now;
    from = at;
  }
  double at(double now) const { return from + (now - since) * speed; }
  // When it will be there.
  double when(double at) const { return since + (at - from) / speed; }
};

class FilmSession {
 public:
  static constexpr std::size_t kMaxQueued = 256;

  // Starts to open it and tells by FilmEvents that carry film.number. `film` says number, path and
  // loop. The queue of events is borrowed and must be closed before the session ends.
  FilmSession(Film film, const FilmOptions& options, EventQueue& events);
  ~FilmSession();  // ends it, and waits for the threads
  FilmSession(const FilmSession&) = delete;

  // False when too much waits already.
  bool post(const FilmOrder& order);
  // Nothing more is read, and the processes are killed; does not wait.
  void end();
  // Whether both threads are at their end: the destructor would not wait.
  bool ended() const { return ended_; }

 private:
  void work();
  void open();
  void reopen();
  void count_frames(ErrorInfo why);
  void tell_damage(ErrorInfo info);
  void end_before(std::int64_t frame, const ErrorInfo& info);
  bool take_orders();
  double idle_until() const;
  void obey(const FilmPlayCommand& order);
  void obey(const FilmLoopCommand& order);
  void obey(const FilmSeekCommand& order);
  void obey(const FilmStepCommand& order);
  void obey(const FilmSpeedCommand& order);
  void go_to(std::int64_t frame);

  void go_on();
  void follow_clock(double now);
  void fetch();
  void read_ahead();
  std::optional<std::int64_t> missing_ahead() const;
  std::shared_ptr<const Image> read(std::int64_t from);
  void begin_search(std::int64_t bad, const ErrorInfo& info);
  void search();
  void leave_out(std::int64_t from, std::int64_t to);
  void set_times();
  std::int64_t last() const { return film_.frames() - 1; }
  bool playing() const { return film_.state == FilmState::kPlaying; }
  FrameWindow window() const;
  void show(std::shared_ptr<const Image> image);
  void tell();
  void fail(ErrorInfo error);

  void plan_strip();
  void end_strip();
  bool strip_ends() const { return ending_ || strip_ending_; }
  void read_strip();
  void read_cell(std::unique_ptr<FrameReader>& reader, std::int64_t& next, std::int64_t ticks,
                 FilmThumbnail& cell);

  FilmOptions options_;
  EventQueue& events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<FilmOrder> orders_;
  std::atomic<bool> ending_{false}, ended_{false};
  // Of the playing thread; the path does not change.
  Film film_;
  std::unique_ptr<FrameReader> reader_;
  VideoInfo info_;
  std::vector<std::int64_t> ticks_;  // of every frame
  FrameRing ring_;
  std::int64_t next_ = -1;  // the frame that the reader gives next; -1 = not known
  FilmClock clock_;
  struct Damage {
    std::int64_t frame = 0;
    ErrorInfo info;
  };
  std::optional<Damage> ahead_error_;  // what waits after the frames that are kept
  // The small images. Plan and images are of the strip's thread while it runs.
  struct StripPlan {
    std::vector<std::int64_t> frames, ticks;  // of each cell
    std::shared_ptr<VideoInterrupt> interrupt;
  } strip_plan_;
  std::map<std::int64_t, std::shared_ptr<const Image>> small_;  // by ticks, of cells of the plan
  std::shared_ptr<const std::vector<double>> strip_times_;      // those that the plan is for
  std::atomic<bool> strip_ending_{false};
  std::shared_ptr<VideoInterrupt> interrupt_ = std::make_shared<VideoInterrupt>();
  std::thread strip_, thread_;
};

}  // namespace tessera
