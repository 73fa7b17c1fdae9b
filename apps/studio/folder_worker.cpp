#include "apps/studio/folder_worker.h"

#include <chrono>
#include <fstream>

#include "apps/runtime/metadata.h"
#include "apps/runtime/model_catalog.h"
#include "apps/studio/boundary.h"
#include "apps/studio/film_session.h"
#include "apps/studio/settings.h"
#include "engine/core/io.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr double kFolderLookSeconds = 1;
constexpr double kPatience = 10;  // seconds for an answer; the next file waits that long at most

ImageReaderOptions reader_options(const fs::path& helper) {
  ImageReaderOptions options;
  options.helper = helper;
  options.deadline_seconds = kPatience;
  return options;
}

std::vector<FoundModel> models_that_generate() {
  std::vector<FoundModel> models = find_models();
  std::erase_if(models, [](const FoundModel& model) {
    return !model.problem.empty() || model.draft || model.other_kind || model.width <= 0;
  });
  return models;
}

// Memory of this process, 0 where the kernel does not tell. Its interface files are made on
// reading: they have no size and are no regular storage.
std::uint64_t resident_bytes() {
  constexpr std::uint64_t kPage = 4096;
  std::uint64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * kPage;
}

}  // namespace

FolderWorker::FolderWorker(fs::path folder, const FolderHelpers& helpers, bool looks_for_models,
                           EventQueue& events)
    : events_(events),
      looks_for_models_(looks_for_models),
      readers_{ImageReader(reader_options(helpers.images)),
               film_reader_options(helpers.videos, kPatience)},
      gallery_(std::move(folder)),
      thread_([this] { work(); }) {}

FolderWorker::~FolderWorker() {
  end();
  thread_.join();
}

void FolderWorker::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

bool FolderWorker::post(Task command) {
  const std::lock_guard lock(mutex_);
  if (tasks_.size() >= kMaxWaiting) return false;
  tasks_.push_back(std::move(command));
  changed_.notify_all();
  return true;
}

// False: the end. A task that holds nothing new (an OpenCommand without a path) means that it is
// time to look at the folder, or to read on.
bool FolderWorker::next_task(Task& task, bool idle) {
  std::unique_lock lock(mutex_);
  if (idle) {
    const auto wait = std::chrono::duration<double>(next_look_ - monotonic_seconds());
    changed_.wait_for(lock, wait, [&] { return ending_ || !tasks_.empty(); });
  }
  if (ending_) return false;
  task = OpenCommand{};
  if (!tasks_.empty()) {
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  return true;
}

void FolderWorker::work() {
  try {
    if (looks_for_models_) events_.push(ModelsEvent{models_that_generate()});
  } catch (const std::exception& error) {
    events_.push(ProblemEvent{info_of(error, "models")});
    events_.push(ModelsEvent{});
  }
  bool idle = false;
  for (Task task; next_task(task, idle);) {
    try {
      idle = false;
      std::visit([this](const auto& command) { carry_out(command); }, task);
      if (monotonic_seconds() >= next_look_) look();
      std::optional<GalleryEntry> read = gallery_.read_next(readers_);
      idle = !read;
      if (read) events_.push(GalleryEntryEvent{gallery_.folder(), std::move(*read)});
    } catch (const std::exception& error) {  // the boundary of one task, one look, one image
      events_.push(ProblemEvent{info_of(error, "folder")});
    }
  }
}

void FolderWorker::look() {
  next_look_ = monotonic_seconds() + kFolderLookSeconds;
  events_.push(MemoryEvent{resident_bytes()});
  if (gallery_.poll()) show_gallery();
}

void FolderWorker::show_gallery() {
  events_.push(GalleryEvent{gallery_.folder(), gallery_.entries(), gallery_.left_out()});
}

void FolderWorker::carry_out(const FolderCommand& command) {
  gallery_ = Gallery(command.path);
  next_look_ = 0;
}

void FolderWorker::carry_out(const ListCommand& command) {
  Undescribed found = undescribed_images(gallery_.folder());
  FolderImagesEvent event{command.order, command.how, found.described};
  event.how.images = std::move(found.images);
  events_.push(std::move(event));
}

void FolderWorker::carry_out(const OpenCommand& command) {
  if (command.path.empty()) return;
  OpenedEvent event;
  event.request = command.recall;
  event.image = open_image(command.path, readers_.images);
  try {
    const ImageMetadata metadata = read_metadata(command.path);
    event.warnings = metadata.warnings;
    const std::int64_t of_answer = metadata.facts ? metadata.facts->answer_image : 0;
    if (metadata.facts && of_answer == 0) event.recalled = settings_of(*metadata.facts);
    if (of_answer > 0 && command.recall != 0) {
      event.warnings.push_back("image " + std::to_string(of_answer) +
                               " of an answer of texts and images, which its prompt alone does not"
                               " lead to");
    }
  } catch (const Error&) {  // no PNG of ours: there is nothing to recall
  }
  events_.push(std::move(event));
}

void FolderWorker::carry_out(const SaveCaptionCommand& command) {
  const fs::path file = caption_file_of(command.image);
  if (file == command.image) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_CAPTION_FILE",
                 .file = file.string(),
                 .where = "caption",
                 .expected = "an image whose name does not end in .txt",
                 .found = "the text would take the image's place"});
  }
  if (command.text.size() > kMaxCaptionBytes || !is_valid_utf8(command.text)) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_CAPTION_TEXT",
                 .file = file.string(),
                 .where = "caption",
                 .expected = "UTF-8 of at most 65536 bytes",
                 .found = std::to_string(command.text.size()) + " bytes"});
  }
  if (command.only_new && file_exists(file)) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_CAPTION_EXISTS",
                 .file = file.string(),
                 .where = "caption",
                 .expected = "no text yet",
                 .found = "a file"});
  }
  const bool line = command.text.ends_with('\n') || command.text.empty();
  write_file_atomic(file, command.text + (line ? "" : "\n"));
  events_.push(CaptionSavedEvent{command.image, command.text});
}

}  // namespace tessera
