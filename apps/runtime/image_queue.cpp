#include "apps/runtime/image_queue.h"

#include <chrono>
#include <new>

namespace tessera {

namespace {

constexpr auto kPatience = std::chrono::milliseconds(200);
constexpr std::size_t kAheadBytes = std::size_t{512} << 20;

std::size_t bytes_of(const PreparedImages& prepared) {
  std::size_t sum = 0;
  for (const auto* images : {&prepared.images, &prepared.draft_images}) {
    for (const PreprocessedImage& decoded_image : *images) {
      for (const EncoderView& view : decoded_image.views) sum += view.values.size() * sizeof(float);
    }
  }
  return sum;
}

DecodedImage as_image(const Image& image) {
  DecodedImage out(image.width, image.height, 3, "pixels");
  out.pixels = image.rgb;
  return out;
}

}  // namespace

ImageQueue::ImageQueue(DescribeSource next, const DescribeSpec& spec,
                           ImageReaderOptions reader, std::size_t ahead,
                           const DescribeSpec* draft, bool keyed)
    : next_(std::move(next)),
      spec_(spec),
      draft_(draft),
      keyed_(keyed),
      reader_options_(std::move(reader)),
      ahead_(ahead),
      thread_([this] { work(); }) {}

ImageQueue::~ImageQueue() {
  stop();
  thread_.join();
}

void ImageQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

bool ImageQueue::over() const {
  const std::lock_guard lock(mutex_);
  return ended_ && ready_.empty() && !thrown_;  // take() tells of what was thrown
}

// Where the draft's policy is another one. An image that it cannot take costs drafts, not the
// text.
void ImageQueue::prepare_for_draft(const PreprocessPolicy& policy, const DecodedImage& decoded_image,
                                     PreparedImages& out) const {
  if (draft_ == nullptr || out.draft_error) return;
  const PreprocessPolicy& own = draft_->policy_of(out.request.images.size());
  if (own == policy) return;
  try {
    out.draft_images.push_back(preprocess(own, decoded_image));
  } catch (const Error& error) {
    out.draft_error = error.info();
    out.draft_images.clear();
  }
}

// One pass over the scene serves both models, whose frames are the target's choice.
void ImageQueue::prepare_scene_of(const ImageSource& source, PreparedImages& out) const {
  const VideoScene& scene = *source.scene;
  if (spec_.no_videos) throw Error(*spec_.no_videos);
  const VideoFrames frames = fitting_frames(scene, spec_, source.frames);
  std::vector<const VideoPolicy*> policies = {&spec_.video};
  if (draft_ != nullptr && draft_->no_videos) out.draft_error = draft_->no_videos;
  if (draft_ != nullptr && !out.draft_error && !(draft_->video == spec_.video)) {
    try {
      plan_video(draft_->video, scene.video->info.width, scene.video->info.height, frames);
      policies.push_back(&draft_->video);
    } catch (const Error& error) {
      out.draft_error = error.info();
    }
  }
  std::vector<PreprocessedImage> prepared = prepare_scene(scene, frames, policies);
  out.sizes.push_back({scene.video->info.width, scene.video->info.height});
  for (const std::string& note : scene.video->info.notes) out.notes.push_back(note);
  out.images.push_back(std::move(prepared[0]));
  if (prepared.size() > 1) out.draft_images.push_back(std::move(prepared[1]));
}

std::string ImageQueue::confinement() const {
  const std::lock_guard lock(mutex_);
  return confinement_;
}

PreparedImages ImageQueue::prepare(DescribeRequest request, ImageReader& reader) const {
  PreparedImages out;
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
      const DecodedImage decoded_image = source.image          ? as_image(*source.image)
                              : source.file.empty() ? reader.decode(source.bytes, source.name)
                                                    : reader.read(source.file);
      out.sizes.push_back({decoded_image.width, decoded_image.height});
      for (const std::string& note : decoded_image.notes) out.notes.push_back(note);
      if (out.request.look) out.repeats = out.request.look(decoded_image);
      if (out.repeats) break;
      out.images.push_back(preprocess(policy, decoded_image));
      prepare_for_draft(policy, decoded_image, out);
    }
    for (const PreprocessedImage& image : out.images) {
      if (keyed_) out.keys.push_back(key_of(image));
    }
  } catch (const Error& error) {  // the boundary of one item
    out.error = error.info();
    out.images.clear();
    out.draft_images.clear();
  } catch (const std::bad_alloc&) {
    out.images.clear();
    out.draft_images.clear();
    out.error = ErrorInfo{.kind = ErrorKind::kMemory,
                          .code = "E_PICTURE_MEMORY",
                          .where = out.request.id,
                          .expected = "memory for the prepared image",
                          .found = "none left"};
  }
  for (ImageSource& source : out.request.images) source.bytes = {};
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

void ImageQueue::work() {
  try {
    ImageReader reader(reader_options_);
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
      PreparedImages prepared = prepare(std::move(*request), reader);
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

std::optional<PreparedImages> ImageQueue::take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait_for(lock, kPatience, [&] { return ended_ || !ready_.empty(); });
  if (ready_.empty()) {
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    return std::nullopt;
  }
  PreparedImages out = std::move(ready_.front());
  ready_.pop_front();
  bytes_ -= bytes_of(out);
  changed_.notify_all();
  return out;
}

}  // namespace tessera
