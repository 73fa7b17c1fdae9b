// Commands go from the drawing thread to the worker whose they are; what workers tell comes back
// through one queue.
#include "apps/studio/studio.h"

#include <limits>

#include "apps/studio/caption_worker.h"
#include "apps/studio/event_queue.h"
#include "apps/studio/folder_worker.h"
#include "apps/studio/paint_worker.h"
#include "apps/studio/preview_receiver.h"
#include "apps/studio/settings.h"

namespace tessera {

namespace {

constexpr std::size_t kMostEvents = 256;
// What a flag and a file can say.
constexpr auto kMaxSeed = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

PainterOptions painter_options(const StudioOptions& options) {
  return {options.model, options.device, options.threads, options.storage};
}

CaptionerOptions captioner_options(const StudioOptions& options) {
  return {options.captioner, options.device, options.threads, std::nullopt, options.helper};
}

}  // namespace

struct Studio::State {
  explicit State(const StudioOptions& given)
      : options(given),
        events(kMostEvents),
        receiver(given.listen ? std::make_unique<PreviewReceiver>(
                                    PreviewReceiverOptions{.port = *given.listen}, events)
                              : nullptr),
        files(given.folder, given.helper, events),
        painter(painter_options(given), events),
        captioner(captioner_options(given), events) {
    apply(snapshot, FolderEvent{given.folder});
  }
  // The queue first: none may wait for room. Then all are told before one is waited for.
  ~State() {
    events.close();
    captioner.end();
    painter.end();
    files.end();
  }

  bool take(const PaintCommand& command);
  bool take(const CompareCommand& command);
  bool take(const CompareExistingCommand& command);
  bool take(const StopCommand& command);
  bool take(const DropPaintingCommand& command);
  bool take(const FolderCommand& command);
  bool take(const OpenCommand& command) { return files.post(command); }
  bool take(const SaveCaptionCommand& command) { return files.post(command); }
  bool take(const CaptionCommand& command);
  bool take(const StopCaptionsCommand& command);

  bool queue(const std::vector<PaintSettings>& pictures);

  StudioOptions options;
  Snapshot snapshot;
  std::uint64_t last_number = 0;
  EventQueue events;
  std::unique_ptr<PreviewReceiver> receiver;  // null: nobody listens
  FolderWorker files;
  PaintWorker painter;
  CaptionWorker captioner;
};

// Numbers are given, and queued pictures shown, on the drawing thread: a picture is in the Snapshot
// before any worker can tell of it.
bool Studio::State::queue(const std::vector<PaintSettings>& pictures) {
  std::vector<PaintJob> jobs;
  for (const PaintSettings& settings : pictures) {
    jobs.push_back({last_number + jobs.size() + 1, settings, snapshot.folder});
    jobs.back().settings.seed &= kMaxSeed;
  }
  if (!painter.queue(jobs)) return false;
  last_number += jobs.size();
  for (PaintJob& job : jobs) {
    Painting painting;
    painting.number = job.number;
    painting.settings = std::move(job.settings);
    apply(snapshot, PaintingEvent{std::move(painting)});
  }
  return true;
}

bool Studio::State::take(const PaintCommand& command) {
  if (command.count < 1 || command.count > static_cast<std::int64_t>(PaintWorker::kMostQueued)) {
    return false;
  }
  std::vector<PaintSettings> pictures(static_cast<std::size_t>(command.count), command.settings);
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    if (command.seed_mode == SeedMode::kRandom) pictures[i].seed = random_seed();
    if (command.seed_mode == SeedMode::kPlusOne) pictures[i].seed += i;
  }
  return queue(pictures);
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

// The picture that the user saw running, so that a late wish ends no other one.
bool Studio::State::take(const StopCommand&) {
  const Painting* running = snapshot.running();
  if (running != nullptr) painter.stop(running->number);
  return true;
}

bool Studio::State::take(const DropPaintingCommand& command) {
  const Painting* painting = snapshot.painting(command.number);
  if (painting == nullptr) return true;
  if (is_final(painting->state) || painter.drop(command.number)) {
    apply(snapshot, PaintingDroppedEvent{command.number});
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
  for (const std::filesystem::path& picture : command.pictures) {
    apply(snapshot, CaptionEvent{{.path = picture, .prune = command.prune_method}});
  }
  return true;
}

bool Studio::State::take(const StopCaptionsCommand&) {
  captioner.stop();
  apply(snapshot, CaptionsStoppedEvent{});
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
  for (Event& event : state_->events.take()) apply(state_->snapshot, std::move(event));
  return state_->snapshot;
}

const Snapshot& Studio::snapshot() const { return state_->snapshot; }

}  // namespace tessera
