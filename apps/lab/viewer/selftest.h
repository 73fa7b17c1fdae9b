// Drives the window by a script, frame by frame, through the state and the actions that fields and
// keys use, and looks at the rendered frames. One JSON line for each expectation, one at the end.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/lab/viewer/growth_watch.h"
#include "apps/lab/viewer/script.h"
#include "apps/viewer/program.h"

namespace tessera {

class SelfTest final : public WindowDriver {
 public:
  SelfTest(std::vector<ScriptLine> script, Viewer& viewer, Poster post);

  // False while it waits for an image that has no new rows to show: frames are drawn when there is
  // something new, at the latest after a moment.
  bool wants_frame(const Snapshot& snapshot) const override;
  // Before a frame: carries out the lines that are due. May ask for another size.
  void before_frame(const Snapshot& snapshot, Window& window) override;
  // After a frame was rendered, before it is shown: what looks at pixels.
  void after_frame(const Snapshot& snapshot, const Window& window) override;
  bool finished() const override;
  // Prints the last line. True when every expectation held.
  bool report() const override;

 private:
  struct Verdict {
    bool good = false;
    std::string expected, found;
  };
  bool run_line(const ScriptLine& line, const Snapshot& snapshot, Window& window);
  bool set_field(const ScriptLine& line);
  bool change_view(const ScriptLine& line, Window& window);
  bool wait(const ScriptLine& line, const Snapshot& snapshot);
  bool stop_after_rows(const ScriptLine& line, const Snapshot& snapshot);
  bool use_gallery(const ScriptLine& line, const Snapshot& snapshot);
  bool captions(const ScriptLine& line, const Snapshot& snapshot);
  bool use_keys(const ScriptLine& line);
  bool use_film(const ScriptLine& line, const Snapshot& snapshot);
  bool wait_film(const ScriptLine& line, const Snapshot& snapshot);
  void watch_film(const Snapshot& snapshot, const Window& window);
  void watch_generation(const Snapshot& snapshot, const Window& window);

  Verdict check(const ScriptLine& line, const Snapshot& snapshot, const Window& window) const;
  Verdict check_generation(const ScriptLine& line, const Snapshot& snapshot) const;
  Verdict check_file(const Snapshot& snapshot, const Window& window, GenerateState wanted) const;
  Verdict check_shown(const std::string& path, const Window& window) const;
  Verdict check_heat(const Snapshot& snapshot, const Window& window, double more_than) const;
  Verdict check_split(const Snapshot& snapshot, const Window& window) const;
  Verdict check_difference(const Snapshot& snapshot, const Window& window) const;
  Verdict check_settings(const Snapshot& snapshot, bool equal) const;
  Verdict check_caption(const ScriptLine& line, const Snapshot& snapshot,
                        const Window& window) const;
  Verdict check_film(const ScriptLine& line, const Snapshot& snapshot, const Window& window) const;
  Verdict check_film_frame(const Film& film, std::int64_t wanted, const Window& window) const;
  Verdict check_film_strip(const Film& film, double at_least, const Window& window) const;
  void tell(const ScriptLine& line, const Verdict& verdict);
  void fail(const ScriptLine& line, std::string expected, std::string found);

  std::vector<ScriptLine> script_;
  Viewer& viewer_;
  Poster post_;
  std::size_t at_ = 0;
  int settle_ = 0;  // frames to draw before the next line
  double line_started_ = 0;
  bool line_new_ = true, stop_posted_ = false, look_due_ = false;
  int heard_ = 0, failed_ = 0, frames_ = 0;
  GenerateSettings wanted_;       // before `forget`
  std::vector<int> held_;      // keys that are down in this frame
  double frame_drawn_ = 0;     // seconds of the monotonic clock
  std::uint64_t watched_ = 0;  // the generation that runs, or ran last
  GrowthWatch growth_;         // of it
  // Frames of videos that changed on the screen while one played, and those with other pixels.
  std::int64_t film_number_ = -1, film_shown_ = 0, film_wrong_ = 0;
  std::vector<double> build_, submit_, swap_;  // milliseconds, of frames while generating
};

}  // namespace tessera
