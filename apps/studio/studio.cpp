// Commands go from the drawing thread to the worker whose they are; what workers tell comes back
// through one queue.
#include "apps/studio/studio.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_set>

#include "apps/studio/caption_worker.h"
#include "apps/studio/event_queue.h"
#include "apps/studio/film_worker.h"
#include "apps/studio/folder_worker.h"
#include "apps/studio/generate_worker.h"
#include "apps/studio/local_describer.h"
#include "apps/studio/local_images.h"
#include "apps/studio/server_describer.h"
#include "apps/studio/server_images.h"
#include "apps/studio/server_watch.h"
#include "apps/studio/settings.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxEvents = 256;
// Images of a folder that are queued ahead of the one at work.
constexpr std::size_t kCaptionsAhead = 16;
// What a flag and a file can say.
constexpr auto kMaxSeed = narrow<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

// Requests for images that a server has from here at once; it has a queue of its own.
constexpr std::size_t kServerImages = 4;

std::unique_ptr<ServerLink> link_of(const StudioOptions& options) {
  if (!options.server) return nullptr;
  return std::make_unique<ServerLink>(*options.server, options.helper);
}

std::vector<std::unique_ptr<ImageMaker>> makers_of(const StudioOptions& options, ServerLink* server,
                                                   EventQueue& events) {
  std::vector<std::unique_ptr<ImageMaker>> out;
  if (server == nullptr) {
    out.push_back(std::make_unique<LocalImages>(
        GeneratorOptions{options.model, options.device, options.cuda, options.threads,
                         options.storage, options.video_helper},
        events));
    return out;
  }
  for (std::size_t i = 0; i < kServerImages; ++i) {
    out.push_back(std::make_unique<ServerImages>(*server, options.model, events));
  }
  return out;
}

std::unique_ptr<Describer> describer_of(const StudioOptions& options, ServerLink* server) {
  if (server != nullptr) return std::make_unique<ServerDescriber>(*server);
  return std::make_unique<LocalDescriber>(
      CaptionerOptions{options.device, options.cuda, options.threads, options.helper});
}

}  // namespace

struct Studio::State {
  explicit State(const StudioOptions& given)
      : options(given),
        events(kMaxEvents),
        server(link_of(given)),
        files(given.folder, {given.helper, given.video_helper}, server == nullptr, events),
        films({.program = given.video_helper}, events),
        generator(makers_of(given, server.get(), events), events),
        captioner(describer_of(given, server.get()), given.captioner, events) {
    apply(snapshot, FolderEvent{given.folder});
    if (server == nullptr) return;
    apply(snapshot, ServerStateEvent{server->url(), "not asked yet"});
    watch = std::make_unique<ServerWatch>(*server, events);
  }
  // The queue first: none may wait for room. Then all are notified before one is waited for.
  ~State() {
    events.close();
    captioner.end();
    generator.end();
    files.end();
    films.end();
    if (watch != nullptr) watch->end();
  }

  bool take(const GenerateCommand& command);
  bool take(const CompareCommand& command);
  bool take(const CompareExistingCommand& command);
  bool take(const StopCommand& command);
  bool take(const DropGenerationCommand& command);
  bool take(const FolderCommand& command);
  bool take(const OpenCommand& command) { return files.post(command); }
  bool take(const SaveCaptionCommand& command) { return files.post(command); }
  bool take(const KeepCommand& command);
  bool take(const CaptionCommand& command);
  bool take(const CaptionFolderCommand& command);
  bool take(const StopCaptionsCommand& command);
  bool take(const SaveAllCaptionsCommand& command);
  bool take(const OpenFilmCommand& command);
  bool take(const FilmLoopCommand& command);
  bool take(const FilmPlayCommand& command) { return tell_film(command); }
  bool take(const FilmSeekCommand& command) { return tell_film(command); }
  bool take(const FilmStepCommand& command) { return tell_film(command); }
  bool take(const FilmSpeedCommand& command) { return tell_film(command); }
  bool take(const CloseFilmCommand& command);
  bool tell_film(const FilmOrder& order);

  bool queue(const std::vector<GenerateSettings>& images);
  void begin_folder(FolderImagesEvent&& found);
  void queue_more_captions();
  void save_more_captions();

  StudioOptions options;
  Snapshot snapshot;
  std::uint64_t last_number = 0;
  std::uint64_t last_film = 0;
  bool loop_films = true;          // as it was wanted last
  std::uint64_t folder_order = 0;  // the newest; a stop ends it
  CaptionCommand folder_how;
  std::deque<std::filesystem::path> folder_waiting;
  std::deque<SaveCaptionCommand> saves_waiting;  // each once: a new order takes its place
  EventQueue events;
  std::unique_ptr<ServerLink> server;  // null: models of this process
  FolderWorker files;
  FilmWorker films;
  GenerateWorker generator;
  CaptionWorker captioner;
  std::unique_ptr<ServerWatch> watch;  // of the server
};

// Numbers are given, and queued images shown, on the drawing thread: an image is in the Snapshot
// before any worker can tell of it.
bool Studio::State::queue(const std::vector<GenerateSettings>& images) {
  std::vector<GenerateJob> jobs;
  for (const GenerateSettings& settings : images) {
    jobs.push_back({last_number + jobs.size() + 1, settings, snapshot.folder});
    jobs.back().settings.seed &= kMaxSeed;
  }
  if (!generator.queue(jobs)) return false;
  last_number += jobs.size();
  for (GenerateJob& job : jobs) {
    Generation generation;
    generation.number = job.number;
    generation.settings = std::move(job.settings);
    apply(snapshot, GenerationEvent{std::move(generation)});
  }
  return true;
}

bool Studio::State::take(const GenerateCommand& command) {
  if (command.count < 1 || command.count > to_index(GenerateWorker::kMaxQueued)) {
    return false;
  }
  std::vector<GenerateSettings> images(to_size(command.count), command.settings);
  for (std::size_t i = 0; i < images.size(); ++i) {
    if (command.seed_mode == SeedMode::kRandom) images[i].seed = random_seed();
    if (command.seed_mode == SeedMode::kPlusOne) images[i].seed += i;
  }
  return queue(images);
}

bool Studio::State::take(const CompareCommand& command) {
  if (!queue({command.left, command.right})) return false;
  apply(snapshot, CompareEvent{last_number - 1, last_number});
  return true;
}

bool Studio::State::take(const CompareExistingCommand& command) {
  apply(snapshot, CompareEvent{command.left, command.right});
  return true;
}

// The image that the user saw running, so that a late request ends no other one.
bool Studio::State::take(const StopCommand&) {
  const Generation* running = snapshot.running();
  if (running != nullptr) generator.stop(running->number);
  return true;
}

bool Studio::State::take(const DropGenerationCommand& command) {
  const Generation* generation = snapshot.generation(command.number);
  if (generation == nullptr) return true;
  if (is_final(generation->state) || generator.drop(command.number)) {
    apply(snapshot, GenerationDroppedEvent{command.number});
  }
  return true;
}

bool Studio::State::take(const FolderCommand& command) {
  if (!files.post(command)) return false;
  apply(snapshot, FolderEvent{command.path});
  return true;
}

bool Studio::State::take(const CaptionCommand& command) {
  if (!captioner.queue(command)) return false;
  for (const std::filesystem::path& image : command.images) {
    apply(snapshot, CaptionEvent{{.path = image, .prune = command.prune_method}});
  }
  return true;
}

bool Studio::State::take(const KeepCommand& command) {
  apply(snapshot, KeepEvent{command});
  return true;
}

bool Studio::State::take(const CaptionFolderCommand& command) {
  FolderWorker::ListCommand list{folder_order + 1, command.how};
  list.how.images.clear();
  if (!files.post(std::move(list))) return false;
  ++folder_order;
  folder_waiting.clear();
  apply(snapshot, FolderCaptionsEvent{{.listing = true}});
  return true;
}

// What was described, or is about to be, without a file of its text counts as described.
void Studio::State::begin_folder(FolderImagesEvent&& found) {
  if (found.order != folder_order || !snapshot.folder_captions.listing) return;  // stopped
  std::unordered_set<std::string_view> known;
  for (const CaptionEntry& one : snapshot.captions) {
    if (one.state != CaptionState::kFailed) known.insert(one.path.native());
  }
  FolderCaptions counts;
  counts.described = found.described;
  for (std::filesystem::path& path : found.how.images) {
    if (known.contains(path.native())) {
      ++counts.described;
    } else if (folder_waiting.size() >= kMaxFolderCaptions) {
      ++counts.left_out;
    } else {
      folder_waiting.push_back(std::move(path));
    }
  }
  counts.asked = counts.waiting = std::ssize(folder_waiting);
  folder_how = std::move(found.how);
  apply(snapshot, FolderCaptionsEvent{counts});
}

void Studio::State::queue_more_captions() {
  if (folder_waiting.empty()) return;
  auto ahead = to_size(std::count_if(snapshot.captions.begin(), snapshot.captions.end(),
                                     [](const CaptionEntry& one) { return !is_final(one.state); }));
  FolderCaptions counts = snapshot.folder_captions;
  for (; ahead < kCaptionsAhead && !folder_waiting.empty(); ++ahead) {
    folder_how.images = {folder_waiting.front()};
    if (!take(folder_how)) break;
    folder_waiting.pop_front();
  }
  const auto waiting = std::ssize(folder_waiting);
  if (counts.waiting == waiting) return;
  counts.waiting = waiting;
  apply(snapshot, FolderCaptionsEvent{counts});
}

bool Studio::State::take(const SaveAllCaptionsCommand&) {
  saves_waiting.clear();
  for (const CaptionEntry& one : snapshot.captions) {
    if (one.state != CaptionState::kDone || one.saved || one.text.empty()) continue;
    saves_waiting.push_back({one.path, one.text, true});
  }
  return true;
}

// As far as the thread of files has room.
void Studio::State::save_more_captions() {
  while (!saves_waiting.empty() && files.post(saves_waiting.front())) saves_waiting.pop_front();
}

bool Studio::State::take(const StopCaptionsCommand&) {
  folder_waiting.clear();
  apply(snapshot, FolderCaptionsEvent{});
  captioner.stop();
  apply(snapshot, CaptionsStoppedEvent{});
  return true;
}

// What the one before still tells is not listened to from here on.
bool Studio::State::take(const OpenFilmCommand& command) {
  Film film;
  film.number = last_film + 1;
  film.path = command.path;
  film.loop = loop_films;
  if (!films.open(film)) return false;
  ++last_film;
  apply(snapshot, FilmOpenedEvent{std::move(film)});
  return true;
}

bool Studio::State::tell_film(const FilmOrder& order) {
  if (!films.post(order)) return false;
  if (snapshot.film) ++snapshot.film->asked;
  return true;
}

bool Studio::State::take(const FilmLoopCommand& command) {
  if (!tell_film(command)) return false;
  if (snapshot.film) loop_films = command.on.value_or(!loop_films);
  return true;
}

bool Studio::State::take(const CloseFilmCommand&) {
  films.close();
  apply(snapshot, FilmClosedEvent{});
  return true;
}

Studio::Studio(const StudioOptions& options) : state_(std::make_unique<State>(options)) {}
Studio::~Studio() = default;

bool Studio::post(Command command) {
  try {
    return std::visit([&](const auto& one) { return state_->take(one); }, command);
  } catch (const Error& error) {  // no seed could be drawn: the boundary of one command
    apply(state_->snapshot, ProblemEvent{error.info()});
    return false;
  }
}

const Snapshot& Studio::update() {
  for (Event& event : state_->events.take()) {
    if (auto* found = std::get_if<FolderImagesEvent>(&event)) {
      state_->begin_folder(std::move(*found));
    } else {
      apply(state_->snapshot, std::move(event));
    }
  }
  state_->queue_more_captions();
  state_->save_more_captions();
  return state_->snapshot;
}

const Snapshot& Studio::snapshot() const { return state_->snapshot; }

}  // namespace tessera
