// What workers tell the drawing thread, and the one place that folds it into the Snapshot. Events
// carry whole values, so that a newer one may take an older one's place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apps/studio/snapshot.h"

namespace tessera {

// An image as it is now. The last one of an image is notified when it is done, stopped or failed.
struct GenerationEvent {
  Generation generation;
};
struct GenerationDroppedEvent {
  std::uint64_t number = 0;
};
struct CompareEvent {
  std::uint64_t left = 0, right = 0;
};
struct ModelsEvent {
  std::vector<FoundModel> models;
  std::string first = std::string(kDefaultModel);  // what an empty name means
};
struct FolderEvent {
  std::filesystem::path folder;
};
// The files of the folder anew; entries that were read before come with all they had.
struct GalleryEvent {
  std::filesystem::path folder;
  std::vector<GalleryEntry> entries;
  std::int64_t left_out = 0;
};
// One of them was read.
struct GalleryEntryEvent {
  std::filesystem::path folder;
  GalleryEntry entry;
};
// request: of the OpenCommand that asked for settings; 0 = none were asked for.
struct OpenedEvent {
  OpenedImage image;
  std::optional<GenerateSettings> recalled;
  std::vector<std::string> warnings;
  std::uint64_t request = 0;
};
struct KeepEvent {
  KeepCommand kept;
};
// The folder's images without a text, in how.pictures, newest first. `order`: whose answer it is.
// The studio takes it, and queues them.
struct FolderImagesEvent {
  std::uint64_t order = 0;
  CaptionCommand how;
  std::int64_t described = 0;  // the others
};
struct FolderCaptionsEvent {
  FolderCaptions counts;
};
struct CaptionEvent {
  CaptionEntry entry;
};
// Takes those out that nobody began with.
struct CaptionsStoppedEvent {};
// Takes one out that was read and will not be written.
struct CaptionGoneEvent {
  std::filesystem::path path;
};
struct CaptionSavedEvent {
  std::filesystem::path image;
  std::string text;
};
// What generates: everything of StatusFacts but the program's memory.
struct GeneratorEvent {
  std::string device, model, dtype;
  std::uint64_t planned_bytes = 0;
};
struct MemoryEvent {
  std::uint64_t resident_bytes = 0;
};
struct ServerStateEvent {
  std::string address, problem;
};
struct ProblemEvent {
  ErrorInfo error;
};
// Another video takes the open one's place.
struct FilmOpenedEvent {
  Film film;
};
// The open video as it is now, but for its strip and `asked`; of another opening than the newest: nothing.
struct FilmEvent {
  Film film;
};
struct FilmThumbnailEvent {
  std::uint64_t film = 0;           // its number
  std::size_t cell = 0, cells = 0;  // which of how many
  FilmThumbnail thumbnail;
};
struct FilmClosedEvent {};

using Event =
    std::variant<GenerationEvent, GenerationDroppedEvent, CompareEvent, ModelsEvent, FolderEvent,
                 GalleryEvent, GalleryEntryEvent, OpenedEvent, KeepEvent, FolderImagesEvent,
                 FolderCaptionsEvent, CaptionEvent, CaptionsStoppedEvent, CaptionGoneEvent,
                 CaptionSavedEvent, GeneratorEvent, MemoryEvent, ServerStateEvent, ProblemEvent,
                 FilmOpenedEvent, FilmEvent, FilmThumbnailEvent, FilmClosedEvent>;

inline constexpr std::size_t kKeptGenerations = 64;  // finished ones that stay
// Of finished images of a server, in the list and on their way to it; beyond it the oldest lose
// theirs.
inline constexpr std::size_t kKeptReceivedBytes = std::size_t{256} << 20;
inline constexpr std::size_t kKeptOpened = 8;
inline constexpr std::size_t kKeptOpenedBytes = std::size_t{512} << 20;  // but always the newest
inline constexpr std::size_t kKeptProblems = 32;
inline constexpr std::size_t kKeptCaptions = kMaxFolderCaptions;  // finished ones
inline constexpr std::size_t kKeptTiles = 500;  // of them, those that keep their visual tokens

bool is_final(GenerateState state);
bool is_final(CaptionState state);
// Of a server's finished image; 0 for any other.
std::size_t received_bytes(const Generation& generation);

// Folds one event in and counts the revision up.
void apply(Snapshot& snapshot, Event event);

}  // namespace tessera
