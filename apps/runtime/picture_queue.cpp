#include "apps/runtime/picture_queue.h"

#include <chrono>
#include <new>

namespace tessera {

namespace {

constexpr auto kPatience = std::chrono::milliseconds(200);
constexpr std::size_t kAheadBytes = std::size_t{512} << 20;

std::size_t bytes_of(const PreparedPictures& prepared) {
  std::size_t sum = 0;
  for (const auto* pictures : {&prepared.pictures, &prepared.draft_pictures}) {
    for (const PreprocessedPicture& picture : *pictures) {
      for (const EncoderView& view : picture.views) sum += view.values.size() * sizeof(float);
    }
  }
  return sum;
}

Picture as_picture(const Image& image) {
  Picture out(image.width, image.height, 3, "pixels");
  out.pixels = image.rgb;
  return out;
}

}  // namespace

PictureQueue::PictureQueue(DescribeSource next, const DescribeSpec& spec,
                           PictureReaderOptions reader, std::size_t ahead,
                           const DescribeSpec* draft)
    : next_(std::move(next)),
      spec_(spec),
      draft_(draft),
      reader_options_(std::move(reader)),
      ahead_(ahead),
      thread_([this] { work(); }) {}

PictureQueue::~PictureQueue() {
  stop();
  thread_.join();
}

void PictureQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

bool PictureQueue::over() const {
  const std::lock_guard lock(mutex_);
  return ended_ && ready_.empty() && !thrown_;  // take() tells of what was thrown
}

// Where the draft's policy is another one. A picture that it cannot take costs drafts, not the
// text.
void PictureQueue::prepare_for_draft(const PreprocessPolicy& policy, const Picture& picture,
                                     PreparedPictures& out) const {
  if (draft_ == nullptr || out.draft_error) return;
  const PreprocessPolicy& own = draft_->policy_of(out.request.images.size());
  if (own == policy) return;
  try {
    out.draft_pictures.push_back(preprocess(own, picture));
  } catch (const Error& error) {
    out.draft_error = error.info();
    out.draft_pictures.clear();
  }
}

// One pass over the scene serves both models, whose frames are the target's choice.
void PictureQueue::prepare_scene_of(const ImageSource& source, PreparedPictures& out) const {
  const ClipScene& scene = *source.scene;
  const ClipFrames frames = fitting_frames(scene, spec_, source.frames);
  std::vector<const ClipPolicy*> policies = {&spec_.clip};
  if (draft_ != nullptr && !out.draft_error && !(draft_->clip == spec_.clip)) {
    try {
      plan_clip(draft_->clip, scene.clip->info.width, scene.clip->info.height, frames);
      policies.push_back(&draft_->clip);
    } catch (const Error& error) {
      out.draft_error = error.info();
    }
  }
  std::vector<PreprocessedPicture> prepared = prepare_scene(scene, frames, policies);
  out.sizes.push_back({scene.clip->info.width, scene.clip->info.height});
  for (const std::string& note : scene.clip->info.notes) out.notes.push_back(note);
  out.pictures.push_back(std::move(prepared[0]));
  if (prepared.size() > 1) out.draft_pictures.push_back(std::move(prepared[1]));
}

std::string PictureQueue::confinement() const {
  const std::lock_guard lock(mutex_);
  return confinement_;
}

PreparedPictures PictureQueue::prepare(DescribeRequest request, PictureReader& reader) const {
  PreparedPictures out;
  const auto start = std::chrono::steady_clock::now();
  out.request = std::move(request);
  if (out.request.failure) {
    out.error = std::move(out.request.failure);
    return out;
  }
  try {
    const PreprocessPolicy& policy = spec_.policy_of(out.request.images.size());
    for (const ImageSource& source : out.request.images) {
      if (source.scene) {
        prepare_scene_of(source, out);
        continue;
      }
      const Picture picture = source.image          ? as_picture(*source.image)
                              : source.file.empty() ? reader.decode(source.bytes, source.name)
                                                    : reader.read(source.file);
      out.sizes.push_back({picture.width, picture.height});
      for (const std::string& note : picture.notes) out.notes.push_back(note);
      out.pictures.push_back(preprocess(policy, picture));
      prepare_for_draft(policy, picture, out);
    }
  } catch (const Error& error) {  // the boundary of one item
    out.error = error.info();
    out.pictures.clear();
    out.draft_pictures.clear();
  } catch (const std::bad_alloc&) {
    out.pictures.clear();
    out.draft_pictures.clear();
    out.error = ErrorInfo{.kind = ErrorKind::kMemory,
                          .code = "E_PICTURE_MEMORY",
                          .where = out.request.id,
                          .expected = "memory for the prepared picture",
                          .found = "none left"};
  }
  for (ImageSource& source : out.request.images) source.bytes = {};
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

void PictureQueue::work() {
  try {
    PictureReader reader(reader_options_);
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return stopping_ || ready_.empty() || (ready_.size() < ahead_ && bytes_ < kAheadBytes);
        });
        if (stopping_) break;
      }
      std::optional<DescribeRequest> request = next_();
      if (!request) break;
      PreparedPictures prepared = prepare(std::move(*request), reader);
      const std::lock_guard lock(mutex_);
      confinement_ = reader.confinement();
      bytes_ += bytes_of(prepared);
      ready_.push_back(std::move(prepared));
      changed_.notify_all();
    }
  } catch (...) {  // for the thread that takes
    const std::lock_guard lock(mutex_);
    thrown_ = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

std::optional<PreparedPictures> PictureQueue::take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait_for(lock, kPatience, [&] { return ended_ || !ready_.empty(); });
  if (ready_.empty()) {
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    return std::nullopt;
  }
  PreparedPictures out = std::move(ready_.front());
  ready_.pop_front();
  bytes_ -= bytes_of(out);
  changed_.notify_all();
  return out;
}

}  // namespace tessera
