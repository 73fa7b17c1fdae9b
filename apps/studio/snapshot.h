// What the viewer shows: one value, made by folding the workers' events on the thread that draws.
// Panels read a Snapshot and post commands (apps/studio/command.h); they know no worker, no
// pipeline and no file. Everything large is shared and const, so a Snapshot is cheap to copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/runtime/facts.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/visual_tiles.h"
#include "apps/studio/command.h"
#include "engine/core/error.h"
#include "engine/decoding/trace.h"
#include "vision/image/image.h"

namespace tessera {

// kLoading: the model's weights are read, or another model's are let go, or a server has not begun.
enum class GenerateState : std::uint8_t { kQueued, kLoading, kGeneration, kDone, kStopped, kFailed };

struct Generation {
  std::uint64_t number = 0;  // counts up; the same image keeps it for ever
  GenerateState state = GenerateState::kQueued;
  GenerateSettings settings;                        // as asked for; a seed random is filled in
  ImageFacts facts;                            // settled; tokens and passes grow
  std::shared_ptr<const Image> image;            // whole, or so far; null before the first row
  std::int64_t grid_rows = 0, grid_columns = 0;  // tokens; of a video, of the grid that is written
  std::int64_t frames = 0, frames_done = 0;      // of a video, whose newest frame `image` is
  std::int64_t rows_done = 0;                    // whole rows of tokens that stand
  std::int64_t image_rows = 0;                   // of them, those that image shows
  bool image_is_rough = false;                   // drawn from patches of its codes, not decoded
  double share_done = 0;  // 0..1, of a server's image, whose rows and tokens are not told
  // [grid_rows * grid_columns] row by row; null where nobody told (a server's image).
  std::shared_ptr<const std::vector<TokenMark>> marks;
  // Tokens that was committed in each pass, from pass 1.
  std::shared_ptr<const std::vector<std::int32_t>> committed;
  double seconds = 0;       // of generating, so far
  double seconds_left = 0;  // while generating; 0 = not known yet
  double tokens_per_second = 0;
  double acceptance = 0;       // drafts accepted / tested, 0..1, when done
  double preview_seconds = 0;  // of seconds, what images while generating cost
  // Passes that ended between the request to stop and the end; -1 = nobody asked for it.
  std::int64_t passes_after_stop = -1;
  std::filesystem::path file;  // once saved; a stopped image's partial is saved too
  std::string from;            // address of the server that makes it; empty = this program
  ErrorInfo error;             // kFailed
};

// An image or a video of the output folder. thumbnail null and problem empty: not read yet.
struct GalleryEntry {
  std::filesystem::path path;
  bool video = false;                       // the thumbnail is its first frame
  std::shared_ptr<const Image> thumbnail;  // at most kThumbnailSide a side
  std::int64_t width = 0, height = 0;      // pixels of the file
  std::optional<ImageFacts> facts;       // what it records of its making
  std::string caption;                     // of its .txt sidecar
  std::string problem;                     // why it is shown as a bad file
};
inline constexpr std::int64_t kThumbnailSide = 160;

enum class CaptionState : std::uint8_t { kQueued, kReading, kWriting, kDone, kFailed };
struct CaptionEntry {
  std::filesystem::path path;
  CaptionState state = CaptionState::kQueued;
  std::string text;  // so far
  std::int64_t visual_tokens = 0, kept_tokens = 0;
  std::string prune;              // method; empty = none
  std::vector<VisualTile> tiles;  // when done
  double seconds = 0;
  bool saved = false;  // as a .txt sidecar
  ErrorInfo error;
};

// An image opened at full size, for zoom, compare and captions.
struct OpenedImage {
  std::filesystem::path path;
  std::shared_ptr<const Image> image;  // null: problem says why
  std::string problem;
};

// One of the small images along a video.
struct FilmThumbnail {
  std::int64_t frame = -1;             // number of the frame it shows; -1 = not read yet
  std::shared_ptr<const Image> image;  // at most kThumbnailSide a side; null: problem says why
  std::string problem;
};
inline constexpr std::size_t kFilmThumbnails = 24;  // at most, evenly over the whole length

// A damage that is looked for: it lies after `good`, which is whole, and not after `bad`.
struct FilmSearch {
  std::int64_t good = 0, bad = 0;
};

enum class FilmState : std::uint8_t { kOpening, kPaused, kPlaying, kFailed };

// The video that is watched. Frames are counted from 0, in order of time.
struct Film {
  std::uint64_t number = 0;  // counts up: every opening has its own
  std::filesystem::path path;
  FilmState state = FilmState::kOpening;
  std::int64_t width = 0, height = 0;  // pixels, upright
  std::string container, codec;
  std::vector<std::string> notes;  // what was left out or replaced in reading it
  // When each frame comes on the screen, seconds from the first; growing. Null until it is open.
  std::shared_ptr<const std::vector<double>> times;
  double seconds = 0;                  // when the last frame leaves it
  std::int64_t frame = -1;             // the one that image is
  std::int64_t wanted = -1;            // asked for last; not `frame` while it is still decoded
  std::shared_ptr<const Image> image;  // whole; null before the first
  bool loop = true;
  double speed = 1;              // of kFilmSpeeds
  std::uint64_t kept_bytes = 0;  // decoded frames that are kept around the shown one
  std::uint64_t asked = 0;       // orders that were posted to this video
  std::uint64_t taken = 0;       // those of them that all else here knows of
  std::vector<FilmThumbnail> strip;
  // kFailed: the last good frame stays. In another state: of the damage that the video ends before.
  ErrorInfo error;
  std::optional<FilmSearch> search;  // while the place of a damage is looked for
  int probes = 0;                    // frames that were tried for the one looked for last

  std::int64_t frames() const { return times == nullptr ? 0 : std::ssize(*times); }
  // The frame on the screen at a time: the last that does not come later. Expects frames.
  std::int64_t frame_at(double at) const {
    const auto after = std::upper_bound(times->begin(), times->end(), at);
    return std::max<std::int64_t>(after - times->begin(), 1) - 1;
  }
};
inline constexpr double kFilmSpeeds[] = {0.25, 0.5, 1, 2, 4};

// The answer to the newest OpenCommand that asked for settings.
struct Recalled {
  std::uint64_t request = 0;  // its number
  std::filesystem::path path;
  // Every field, ready to be generated again; none where the file records none that can be read.
  std::optional<GenerateSettings> settings;
  std::vector<std::string> warnings;
};

// How far a whole folder is described, in images.
struct FolderCaptions {
  bool listing = false;        // the folder is being looked through
  std::int64_t asked = 0;      // to be described
  std::int64_t waiting = 0;    // of them, those that no text was queued for yet
  std::int64_t described = 0;  // passed over, for they have a text
  std::int64_t left_out = 0;   // beyond kMaxFolderCaptions
};
inline constexpr std::size_t kMaxFolderCaptions = 10000;

struct StatusFacts {
  std::string device;  // "cpu-avx2, 2 threads"
  std::string model, dtype;
  std::uint64_t resident_bytes = 0;  // of the program
  std::uint64_t planned_bytes = 0;   // the model's memory plan
  std::string server;                // "http://127.0.0.1:8080"; empty = models of this program
  std::string server_problem;        // why it cannot be asked now
};

struct Snapshot {
  std::uint64_t revision = 0;      // counts up whenever anything changed
  std::vector<FoundModel> models;  // that generate; empty until they were looked for
  bool models_known = false;
  // What an empty name means; empty until a server's are known.
  std::string default_model = std::string(kDefaultModel);
  std::vector<Generation> generations;  // oldest first: finished, the running one, queued ones
  // Pair of a comparison: numbers of two generated images, 0 = none.
  std::uint64_t compare_left = 0, compare_right = 0;
  std::filesystem::path folder;       // of the gallery and of what is saved
  std::vector<GalleryEntry> gallery;  // newest first
  std::int64_t gallery_left_out = 0;  // files beyond what is shown at once
  std::vector<CaptionEntry> captions;
  FolderCaptions folder_captions;
  std::vector<OpenedImage> opened;  // by OpenCommand, newest last, a few
  KeepCommand kept;                   // what neither more generated images nor more opened ones push out
  std::optional<Recalled> recalled;
  std::optional<Film> film;  // by OpenFilmCommand
  StatusFacts status;
  std::vector<ErrorInfo> problems;  // what went wrong outside any image, newest last

  // Null when there is none of that number.
  const Generation* generation(std::uint64_t number) const {
    for (const Generation& one : generations) {
      if (one.number == number) return &one;
    }
    return nullptr;
  }
  // The first that is loading or generating.
  const Generation* running() const {
    for (const Generation& one : generations) {
      if (one.state == GenerateState::kLoading || one.state == GenerateState::kGeneration) return &one;
    }
    return nullptr;
  }
};

}  // namespace tessera
