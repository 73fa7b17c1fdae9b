// Requests to prepared videos, these to a lane.
#include "apps/runtime/video_task.h"

#include <algorithm>
#include <utility>

#include "apps/runtime/generation_parts.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/text_features.h"
#include "apps/runtime/video_model.h"
#include "apps/runtime/video_submission.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

void check_block_dist(const ModelSpec& spec, const DistributionSettings& dist) {
  if (!spec.blocks || !dist.guided()) return;
  refuse_request("E_GUIDANCE", "--cfg-scale", "1, as this model has one branch",
                 std::to_string(dist.guidance));
}

// Keys are turned along one axis of positions.
void check_continuation(const ModelSpec& spec, Continuation continuation) {
  if (continuation == Continuation::kRecompute) return;
  const RopeSpec& rope = spec.model.transformer.rope;
  const bool axes = rope.layout != RopeLayout::kOneD || rope.three_axes();
  if (!spec.blocks && !axes) return;
  refuse_request("E_VIDEO_CONTINUE", "--continue",
                 spec.blocks ? "recompute, as positions of this model are learned"
                             : "recompute, as positions of this model have several axes",
                 "sinks");
}

// Whole grids of the last frames.
std::vector<Image> whole_grids(std::vector<Image> frames, const VideoSpec& whole_video, std::int64_t most) {
  if (frames.empty()) return frames;
  while (std::ssize(frames) < whole_video.first_grid) {
    frames.push_back(frames.back());
  }
  const std::int64_t grids = whole_video.grids_of(std::ssize(frames));
  const std::int64_t keep = std::min(whole_video.frames_of(grids), most);
  frames.erase(frames.begin(), frames.end() - keep);
  return frames;
}

class ListedVideos final : public VideoSource {
 public:
  explicit ListedVideos(std::vector<VideoOrder> orders)
      : orders_(std::move(orders)), needs_from_(orders_.size() + 1) {
    for (std::size_t i = orders_.size(); i-- > 0;) {
      needs_from_[i] =
          both(room_for(orders_[i].video.item, orders_[i].video.draft), needs_from_[i + 1]);
    }
  }
  LoopNeeds needs() const override {
    LoopNeeds out = needs_from_[next_];
    out.slots = std::ssize(orders_) - to_index(next_);
    return out;
  }
  std::optional<VideoOrder> next() override { return std::move(orders_[next_++]); }
  bool more() const override { return next_ < orders_.size(); }

 private:
  std::vector<VideoOrder> orders_;
  std::vector<LoopNeeds> needs_from_;  // of each and those after it
  std::size_t next_ = 0;
};

}  // namespace

struct VideoTask::State {
  State(Runtime& in, const GenerateOptions& options, OpenedModel opened, std::string shown)
      : runtime(in),
        model(in, options, std::move(opened), std::move(shown)),
        lane(model, runtime, {.slots = options.batch_size, .all_slots = options.all_slots}) {
    runtime.attach(lane);
  }
  ~State() { runtime.detach(lane); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  LoopNeeds needs_of(std::span<const PreparedVideo> videos) const {
    LoopNeeds out;
    for (const PreparedVideo& video : videos) out = both(out, room_for(video.item, video.draft));
    out.slots = std::min(model.options().batch_size, std::ssize(videos));
    return out;
  }

  Runtime& runtime;
  VideoModel model;
  StreamLane lane;
};

VideoTask::VideoTask(Runtime& runtime, const GenerateOptions& options) {
  const ModelReference reference = resolve_video_model(options.model);
  state_ = std::make_unique<State>(runtime, options, open_model(reference.open_name),
                                   reference.shown_name);
}

VideoTask::VideoTask(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
                     std::string shown_name)
    : state_(std::make_unique<State>(runtime, options, std::move(model), std::move(shown_name))) {}

VideoTask::~VideoTask() = default;

Runtime& VideoTask::runtime() const { return state_->runtime; }
const ModelSpec& VideoTask::spec() const { return state_->model.spec(); }
const std::string& VideoTask::model_name() const { return state_->model.name(); }
const DecodeMethod& VideoTask::method() const { return state_->model.options().method; }
std::string VideoTask::window_report() const { return state_->model.window_report(); }
DType VideoTask::storage() const { return state_->model.storage(); }
const Backend& VideoTask::backend() const { return state_->model.backend(); }
std::int64_t VideoTask::rate() const { return spec().video->rate; }
std::int64_t VideoTask::own_frames() const { return spec().video->frames_of(spec().model.grids); }
bool VideoTask::takes_prompts() const { return spec().prompt.kind != PromptKind::kFrames; }
std::int64_t VideoTask::max_first_frames() const {
  const VideoSpec& whole_video = *spec().video;
  return whole_video.frames_of(std::min(spec().model.grids - 1, whole_video.max_given));
}

PreparedVideo VideoTask::prepare(VideoRequest request) const {
  const ModelSpec& model = spec();
  PreparedVideo out;
  const std::int64_t first_count = std::ssize(request.first_frames);
  if (first_count > 0 && max_first_frames() == 0) {
    refuse_request("E_VIDEO_FIRST", "--first-frames",
                   "none, as this model writes one grid of frames",
                   std::to_string(first_count) + " frames");
  }
  for (const Image& frame : request.first_frames) {
    if (frame.width == model.image_width() && frame.height == model.image_height()) continue;
    refuse_request("E_VIDEO_FIRST", "--first-frames",
                   "frames of " + size_text(model.image_width(), model.image_height()),
                   size_text(frame.width, frame.height));
  }
  out.first_frames = whole_grids(std::move(request.first_frames), *model.video, max_first_frames());
  if (model.video->from_frames && out.first_frames.empty()) {
    refuse_request("E_VIDEO_FIRST", "--first-frames",
                   "a video or image, which this model goes on with", "none");
  }
  out.continuation = request.continuation;
  check_continuation(model, out.continuation);
  out.frames = request.endless ? 0 : request.frames > 0 ? request.frames : own_frames();
  const bool longer = request.endless || out.frames > own_frames();
  if (longer && (model.model.grids < 2 || !model.video->goes_on)) {
    refuse_request("E_VIDEO_FRAMES", "--frames",
                   "at most " + std::to_string(own_frames()) +
                       (model.video->goes_on ? ", as nothing leads from one grid to the next"
                                            : ", as this model writes no longer videos"),
                   request.endless ? "no end" : std::to_string(out.frames));
  }
  // A prompt is read by the text encoder, or its rows come from a file.
  if (model.context && !request.prompt.empty() && !request.text_features.empty()) {
    refuse_request("E_VIDEO_TEXT", "--text-features", "either rows of a text, or --prompt", "both");
  }
  const bool encodes = model.context && !request.prompt.empty();
  if (encodes) {
    out.text_ids = state_->model.encode_text(request.prompt, "--prompt");
  } else {
    out.text = text_features_of(request.text_features, model.context);
  }
  if (!request.endless && out.frames <= std::ssize(out.first_frames)) {
    refuse_request("E_VIDEO_FRAMES", "--frames",
                   "more than the " + std::to_string(out.first_frames.size()) + " first frames",
                   std::to_string(out.frames));
  }
  const DistributionSettings dist = settle_sampling(request.sampling, model.sampling);
  check_block_dist(model, dist);
  PreparedRequest prepared =
      state_->model.prepare(encodes ? "" : request.prompt, request.negative_prompt, dist,
                            request.seed);
  if (encodes) {
    prepared.facts.prompt = request.prompt;
    prepared.facts.text_encoder = state_->model.text_encoder();
  }
  out.item = std::move(prepared.item);
  out.draft = std::move(prepared.draft);
  out.facts = std::move(prepared.facts);
  return out;
}

MemoryPlan VideoTask::plan(std::span<const PreparedVideo> videos) const {
  const bool encodes = std::any_of(videos.begin(), videos.end(), [](const PreparedVideo& video) {
    return !video.first_frames.empty();
  });
  return plan(state_->needs_of(videos), encodes);
}

MemoryPlan VideoTask::plan(const LoopNeeds& needs, bool encodes) const {
  return state_->model.plan(needs, encodes);
}

LoopNeeds VideoTask::needs_of(const PreparedVideo& video) const {
  return room_for(video.item, video.draft);
}

std::int64_t VideoTask::grids_of(const PreparedVideo& video) const {
  expects(video.frames > 0, "a video that ends");
  return spec().video->grids_for(video.frames);
}

std::int64_t VideoTask::given_grids(const PreparedVideo& video) const {
  return spec().video->grids_of(std::ssize(video.first_frames));
}

std::size_t VideoTask::grid_codes() const { return state_->model.grammar().cells(); }

bool VideoTask::can_go_on_at(const PreparedVideo& video, std::int64_t grids) const {
  if (video.continuation != Continuation::kRecompute) return false;
  if (guarantee_of(method()) == Guarantee::kSameTokens) return true;
  const std::int64_t window = spec().model.grids, kept = state_->model.kept_grids();
  return grids >= window && (grids - kept) % (window - kept) == 0;
}

std::int64_t VideoTask::tokens_of(std::int64_t grids) const {
  const auto whole = to_size(grids);
  return to_index(state_->model.grammar().tokens_of(whole));
}

Ticket VideoTask::submit(std::unique_ptr<VideoSource> source) {
  const Ticket ticket = state_->runtime.next_ticket();
  state_->lane.submit(ticket, std::make_unique<VideoSubmission>(state_->model, std::move(source)));
  return ticket;
}

Ticket VideoTask::submit(std::vector<VideoOrder> orders) {
  return submit(std::make_unique<ListedVideos>(std::move(orders)));
}

void VideoTask::show(const PreparedVideo& video, std::span<const std::int32_t> codes,
                     VideoListener& listener) {
  state_->model.load_tokenizer(/*encoder=*/false);
  VideoWindows windows(state_->model.window_parts(), video.frames, listener);
  windows.begin_with({codes.begin(), codes.end()}, true);
  expects(windows.done(), "the codes of a whole video");
}

void VideoTask::release() { state_->lane.release(); }

void VideoTask::set_batch_size(std::int64_t videos) {
  release();
  state_->lane.set_slots(videos);
}

GeneratedVideo generate_video(VideoTask& task, PreparedVideo video, VideoListener& listener,
                              VideoCourse course) {
  GeneratedVideo out;
  std::vector<VideoOrder> orders;
  orders.push_back({std::move(video), &listener, std::move(course), &out});
  task.runtime().finish(task.submit(std::move(orders)));
  return out;
}

}  // namespace tessera
