// The reducer: pure, so that every order of events can be tested without a thread.
#include <algorithm>

#include "apps/studio/event.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

template <typename List, typename Done>
void drop_oldest(List& list, std::size_t most, Done droppable) {
  auto count = to_size(std::count_if(list.begin(), list.end(), droppable));
  for (auto it = list.begin(); it != list.end() && count > most;) {
    if (!droppable(*it)) {
      ++it;
      continue;
    }
    it = list.erase(it);
    --count;
  }
}

struct Fold {
  Snapshot& to;

  void operator()(GenerationEvent&& event) const {
    for (Generation& one : to.generations) {
      if (one.number != event.generation.number) continue;
      one = std::move(event.generation);
      return forget_old_generations();
    }
    to.generations.push_back(std::move(event.generation));
    forget_old_generations();
  }
  void operator()(GenerationDroppedEvent&& event) const {
    std::erase_if(to.generations, [&](const Generation& one) { return one.number == event.number; });
    if (to.compare_left == event.number) to.compare_left = 0;
    if (to.compare_right == event.number) to.compare_right = 0;
  }
  void operator()(CompareEvent&& event) const {
    to.compare_left = event.left;
    to.compare_right = event.right;
  }
  void operator()(ModelsEvent&& event) const {
    to.models = std::move(event.models);
    to.default_model = std::move(event.first);
    to.models_known = true;
  }
  void operator()(FolderEvent&& event) const {
    if (to.folder == event.folder) return;
    to.folder = std::move(event.folder);
    to.gallery.clear();
    to.gallery_left_out = 0;
  }
  void operator()(GalleryEvent&& event) const {
    if (event.folder != to.folder) return;  // of a folder that was left meanwhile
    to.gallery = std::move(event.entries);
    to.gallery_left_out = event.left_out;
  }
  void operator()(GalleryEntryEvent&& event) const {
    if (event.folder != to.folder) return;
    for (GalleryEntry& one : to.gallery) {
      if (one.path == event.entry.path) one = std::move(event.entry);
    }
  }
  void operator()(OpenedEvent&& event) const {
    const std::filesystem::path path = event.image.path;
    std::erase_if(to.opened,
                  [&](const OpenedImage& one) { return one.path == event.image.path; });
    to.opened.push_back(std::move(event.image));
    forget_old_files();
    if (event.request != 0) {
      to.recalled = Recalled{event.request, path, event.recalled, event.warnings};
    }
    if (!event.recalled) {
      for (std::string& warning : event.warnings) {
        (*this)(ProblemEvent{{.kind = ErrorKind::kGeneral,
                              .code = "E_PICTURE_RECORD",
                              .file = path.string(),
                              .where = "record",
                              .expected = "settings that can be read",
                              .found = std::move(warning)}});
      }
    }
  }
  void operator()(KeepEvent&& event) const { to.kept = std::move(event.kept); }
  void operator()(FolderImagesEvent&&) const {}
  void operator()(FolderCaptionsEvent&& event) const { to.folder_captions = event.counts; }
  void operator()(CaptionEvent&& event) const {
    const auto same = [&](const CaptionEntry& one) {
      return one.path.native() == event.entry.path.native();
    };
    const auto found = std::find_if(to.captions.rbegin(), to.captions.rend(), same);
    const bool final = is_final(event.entry.state);
    if (found != to.captions.rend()) {
      *found = std::move(event.entry);
    } else {
      to.captions.push_back(std::move(event.entry));
    }
    if (final) forget_old_tiles();
    drop_oldest(to.captions, kKeptCaptions,
                [](const CaptionEntry& one) { return is_final(one.state); });
  }
  void operator()(CaptionsStoppedEvent&&) const {
    std::erase_if(to.captions,
                  [](const CaptionEntry& one) { return one.state == CaptionState::kQueued; });
  }
  // One that was asked for anew meanwhile stays.
  void operator()(CaptionGoneEvent&& event) const {
    std::erase_if(to.captions, [&](const CaptionEntry& one) {
      return one.path == event.path && one.state == CaptionState::kReading;
    });
  }
  void operator()(CaptionSavedEvent&& event) const {
    for (CaptionEntry& one : to.captions) {
      if (one.path != event.image) continue;
      one.text = event.text;
      one.saved = true;
    }
    for (GalleryEntry& one : to.gallery) {
      if (one.path == event.image) one.caption = event.text;
    }
  }
  void operator()(GeneratorEvent&& event) const {
    to.status.device = std::move(event.device);
    to.status.model = std::move(event.model);
    to.status.dtype = std::move(event.dtype);
    to.status.planned_bytes = event.planned_bytes;
  }
  void operator()(MemoryEvent&& event) const { to.status.resident_bytes = event.resident_bytes; }
  void operator()(ServerStateEvent&& event) const {
    to.status.server = std::move(event.address);
    to.status.server_problem = std::move(event.problem);
    if (!to.models_known) to.default_model.clear();
  }
  void operator()(ProblemEvent&& event) const {
    to.problems.push_back(std::move(event.error));
    drop_oldest(to.problems, kKeptProblems, [](const ErrorInfo&) { return true; });
  }
  void operator()(FilmOpenedEvent&& event) const { to.film = std::move(event.film); }
  void operator()(FilmEvent&& event) const {
    if (!to.film || to.film->number != event.film.number) return;
    event.film.strip = std::move(to.film->strip);
    event.film.asked = to.film->asked;
    to.film = std::move(event.film);
  }
  void operator()(FilmThumbnailEvent&& event) const {
    if (!to.film || to.film->number != event.film || event.cell >= event.cells ||
        event.cells > kFilmThumbnails) {
      return;
    }
    to.film->strip.resize(event.cells);
    to.film->strip[event.cell] = std::move(event.thumbnail);
  }
  void operator()(FilmClosedEvent&&) const { to.film.reset(); }

 private:
  bool compared(std::uint64_t number) const {
    const auto& kept = to.kept.generations;
    return number == to.compare_left || number == to.compare_right ||
           std::find(kept.begin(), kept.end(), number) != kept.end();
  }
  bool compared(const OpenedImage& one) const {
    return std::find(to.kept.files.begin(), to.kept.files.end(), one.path) != to.kept.files.end();
  }
  // The newest stays, and those that are compared.
  void forget_old_files() const {
    drop_oldest(to.opened, kKeptOpened,
                [this](const OpenedImage& one) { return !compared(one); });
    std::size_t bytes = 0;
    for (const OpenedImage& one : to.opened) bytes += one.image ? one.image->rgb.size() : 0;
    for (auto one = to.opened.begin(); one + 1 != to.opened.end() && bytes > kKeptOpenedBytes;) {
      if (compared(*one)) {
        ++one;
        continue;
      }
      bytes -= one->image ? one->image->rgb.size() : 0;
      one = to.opened.erase(one);
    }
  }
  void forget_old_tiles() const {
    const auto has = [](const CaptionEntry& one) { return !one.tiles.empty(); };
    const auto count = std::count_if(to.captions.begin(), to.captions.end(), has);
    if (to_size(count) <= kKeptTiles) return;
    std::find_if(to.captions.begin(), to.captions.end(), has)->tiles.clear();
  }
  // Those that are compared stay.
  void forget_old_generations() const {
    drop_oldest(to.generations, kKeptGenerations, [&](const Generation& one) {
      return is_final(one.state) && !compared(one.number);
    });
    std::size_t bytes = 0;
    for (auto one = to.generations.rbegin(); one != to.generations.rend(); ++one) {
      bytes += received_bytes(*one);
      if (received_bytes(*one) == 0 || bytes <= kKeptReceivedBytes || compared(one->number))
        continue;
      one->image = nullptr;
      one->image_rows = 0;
    }
  }
};

}  // namespace

bool is_final(GenerateState state) {
  return state == GenerateState::kDone || state == GenerateState::kStopped ||
         state == GenerateState::kFailed;
}
std::size_t received_bytes(const Generation& generation) {
  const bool kept = !generation.from.empty() && is_final(generation.state) && generation.image != nullptr;
  return kept ? generation.image->rgb.size() : 0;
}
bool is_final(CaptionState state) {
  return state == CaptionState::kDone || state == CaptionState::kFailed;
}

void apply(Snapshot& snapshot, Event event) {
  std::visit([&](auto&& one) { Fold{snapshot}(std::move(one)); }, std::move(event));
  ++snapshot.revision;
}

}  // namespace tessera
