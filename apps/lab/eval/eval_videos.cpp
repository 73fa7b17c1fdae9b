// Generates the captions of a split, then goes through them one by one: what is notified is looked for in
// the true video, in what the tokenizer makes of it, in the generated video and in videos that know
// nothing of it.
#include "apps/lab/eval/eval_videos.h"

#include <algorithm>

#include "apps/lab/eval/eval_reader.h"
#include "apps/lab/scorer/flicker.h"
#include "apps/runtime/draft_model.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"
#include "engine/core/index.h"
#include "tokenizers/visual/movq_tokenizer.h"
#include "vision/image/resample.h"

namespace tessera {

namespace {

using Frames = std::vector<Image>;
using Seen = std::vector<std::optional<SceneAttributes>>;

[[noreturn]] void refuse(std::string code, std::string file, std::string where,
                         std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = std::move(code),
               .file = std::move(file),
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

// A video as it is measured: frames of kEvalVideoSide, codes where a model or the tokenizer gave
// them, what the scorer read.
struct Film {
  Frames frames;
  std::vector<std::int32_t> codes;
  Seen seen;
};

Image scaled(const Image& image, std::int64_t width, std::int64_t height) {
  if (image.width == width && image.height == height) return image;
  return resize(image, width, height, ResampleFilter::kBicubic);
}

Frames scaled(const Frames& frames, std::int64_t width, std::int64_t height) {
  Frames out;
  for (const Image& frame : frames) out.push_back(scaled(frame, width, height));
  return out;
}

// The caption's words are alike, but for the wording.
bool same_heard(const Video& a, const Video& b) {
  return attributes_of(a.scene) == attributes_of(b.scene) && a.motions == b.motions &&
         a.camera == b.camera;
}

// Over all pixels of frames [begin, end).
double psnr_of(const Frames& a, const Frames& b, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return kNotAsked;
  std::vector<std::uint8_t> left, right;
  for (auto i = to_size(begin); i < to_size(end); ++i) {
    left.insert(left.end(), a[i].rgb.begin(), a[i].rgb.end());
    right.insert(right.end(), b[i].rgb.begin(), b[i].rgb.end());
  }
  return psnr(left, right);
}

// Keeps what a video is made of.
class FilmListener final : public VideoListener {
 public:
  explicit FilmListener(std::function<Flow()> progress) : progress_(std::move(progress)) {}
  Flow on_progress(const VideoProgress&) override { return progress_(); }
  Flow on_grid(const VideoGrid& grid) override {
    codes.insert(codes.end(), grid.codes.begin(), grid.codes.end());
    return Flow::kContinue;
  }
  void on_frame(std::int64_t, const Image& frame) override { frames.push_back(frame); }

  Frames frames;
  std::vector<std::int32_t> codes;

 private:
  std::function<Flow()> progress_;
};

class VideoEvaluation {
 public:
  VideoEvaluation(const EvalVideosRequest& request, const EvalVideosListener& listener);
  EvalVideosReport run();

 private:
  void check_frames();
  bool stop(const std::string& what, std::int64_t done) {
    if (listener_.on_progress && listener_.on_progress(what, done, request_.videos) == Flow::kStop) {
      report_.stopped = true;
    }
    return report_.stopped;
  }
  // Frames of a video from this one on are the model's own work, and are marked.
  int marked() const { return narrow<int>(request_.first_frames); }
  // The frame from which motions are read: the last one that was given.
  int watched() const { return std::max(0, marked() - 1); }

  Film film(Frames frames, std::vector<std::int32_t> codes) {
    Film out{std::move(frames), std::move(codes), {}};
    out.seen = scorer_->read(out.frames);
    return out;
  }
  Film true_film(const Video& video);
  Film through_tokenizer(const Film& film);
  Film still_film(const Film& film);
  std::vector<std::int32_t> encode(const Frames& frames) const;
  std::vector<Film> generate(SceneSplit split, std::span<const Video> videos);
  VideoMeasures measure(const Film& film, const Video& truth, const MotionReader& reader) const;
  void add_decibels(VideoMeasures& measures, const Film& film, const Film& truth) const;
  void scorer_split(SceneSplit split);
  void add_row(SceneSplit split, const std::string& what, std::span<const VideoMeasures> videos) {
    if (videos.empty()) return;
    report_.rows.push_back(summarise(std::string(name_of(split)) + " " + what, videos));
    if (listener_.on_row) listener_.on_row(report_.rows.back());
  }

  const EvalVideosRequest& request_;
  const EvalVideosListener& listener_;
  Runtime runtime_;
  VideoTask task_;
  std::unique_ptr<SceneReader> scorer_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<MovqTokenizer> movq_;
  ThreadPool pool_;
  EvalVideosReport report_;
  std::vector<double> rates_, passes_, entropies_, seconds_;
};

VideoEvaluation::VideoEvaluation(const EvalVideosRequest& request, const EvalVideosListener& listener)
    : request_(request),
      listener_(listener),
      task_(runtime_, request.options),
      scorer_(SceneReader::open(request.scorer, {.device = request.options.device,
                                               .cuda = request.options.cuda,
                                               .threads = request.options.threads})),
      backend_(make_backend(request.options.device, {.threads = request.options.threads},
                            request.options.cuda)),
      pool_(request.options.threads) {
  report_.model = task_.model_name();
  report_.scorer = scorer_->name();
  report_.method = task_.method();
  if (const std::string wanted = scorer_->refuses(kEvalVideoSide); !wanted.empty()) {
    refuse("E_EVAL_MODEL", report_.scorer, "image size", wanted, std::to_string(kEvalVideoSide));
  }
  check_frames();
}

void VideoEvaluation::check_frames() {
  if (!task_.spec().movq || task_.spec().video->from_frames) {
    refuse("E_EVAL_MODEL", report_.model, "clips",
           "a model that writes videos from captions, of Emu3's video tokenizer",
           task_.spec().title);
  }
  const std::int64_t grid = task_.spec().movq->frames();
  report_.frames =
      request_.frames > 0 ? request_.frames : std::min(task_.own_frames(), kMaxEvalFrames);
  report_.first_frames = request_.first_frames;
  if (report_.frames < 2 || report_.frames > kMaxEvalFrames) {
    refuse("E_EVAL_FRAMES", report_.model, "--frames", "2 to " + std::to_string(kMaxEvalFrames),
           std::to_string(report_.frames));
  }
  const std::int64_t most =
      std::min(task_.max_first_frames(), (report_.frames - 1) / grid * grid);
  if (report_.first_frames % grid != 0 || report_.first_frames > most) {
    refuse("E_EVAL_FRAMES", report_.model, "--first-frames",
           "a multiple of " + std::to_string(grid) + ", at most " + std::to_string(most),
           std::to_string(report_.first_frames));
  }
}

Film VideoEvaluation::true_film(const Video& video) {
  Frames frames;
  for (int frame = 0; frame < video.frames; ++frame) {
    SceneImage decoded_image = render_video_frame(video, frame, kEvalVideoSide);
    frames.emplace_back(decoded_image.width, decoded_image.height, std::move(decoded_image.rgb));
  }
  return film(std::move(frames), {});
}

std::vector<std::int32_t> VideoEvaluation::encode(const Frames& frames) const {
  const ModelSpec& spec = task_.spec();
  VideoEncoder encoder(*movq_, narrow<int>(spec.image_height()), narrow<int>(spec.image_width()));
  // The last grid is filled up with its last frame.
  const auto grid = to_size(movq_->frames());
  const std::size_t whole = (frames.size() + grid - 1) / grid * grid;
  std::vector<std::int32_t> codes;
  for (std::size_t i = 0; i < whole; ++i) {
    const Image frame =
        scaled(frames[std::min(i, frames.size() - 1)], spec.image_width(), spec.image_height());
    const Tensor pixels = image_from_bytes(frame.rgb, frame.height, frame.width);
    if (const auto made = encoder.push(pixels.view())) {
      codes.insert(codes.end(), made->begin(), made->end());
    }
  }
  return codes;
}

Film VideoEvaluation::through_tokenizer(const Film& truth) {
  const StreamModelConfig& config = task_.spec().model;
  const auto cells = to_size(config.grid_rows * config.grid_cols);
  std::vector<std::int32_t> codes = encode(truth.frames);
  MovqVideoDecoder decoder(*movq_, narrow<int>(config.grid_rows), narrow<int>(config.grid_cols));
  Frames frames;
  for (std::size_t at = 0; at + cells <= codes.size(); at += cells) {
    for (const Tensor& pixels : decoder.next({codes.data() + at, cells}, movq_->frames())) {
      if (frames.size() == truth.frames.size()) break;
      frames.push_back(
          scaled({pixels.shape()[1], pixels.shape()[0], movq_->to_pixels(pixels.view())},
                 kEvalVideoSide, kEvalVideoSide));
    }
  }
  return film(std::move(frames), std::move(codes));
}

Film VideoEvaluation::still_film(const Film& truth) {
  const auto shown = to_size(watched());
  Film out{Frames(truth.frames.size(), truth.frames[shown]),
           {},
           Seen(truth.frames.size(), truth.seen[shown])};
  out.codes = encode(out.frames);
  return out;
}

std::vector<Film> VideoEvaluation::generate(SceneSplit split, std::span<const Video> videos) {
  const ModelSpec& spec = task_.spec();
  const std::string what = std::string(name_of(split)) + " videos, generated";
  std::vector<Film> films;
  for (std::size_t i = 0; i < videos.size(); ++i) {
    if (stop(what, to_index(i))) return {};
    VideoRequest one{.prompt = video_caption(videos[i]),
                    .negative_prompt = std::nullopt,
                    .sampling = request_.sampling,
                    .seed = request_.seed + i,
                    .frames = report_.frames,
                    .first_frames = {}};
    for (int frame = 0; frame < marked(); ++frame) {
      const SceneImage given = render_video_frame(videos[i], frame, kEvalVideoSide);
      one.first_frames.push_back(
          scaled({given.width, given.height, given.rgb}, spec.image_width(), spec.image_height()));
    }
    const PreparedVideo prepared = task_.prepare(std::move(one));
    report_.dist = prepared.item.dist;
    FilmListener listener([&] { return stop(what, to_index(i)) ? Flow::kStop : Flow::kContinue; });
    const GeneratedVideo made = generate_video(task_, prepared, listener);
    if (report_.stopped) return {};
    if (made.status != ImageStatus::kDone) {
      ++report_.failed;
      listener.frames.clear();
    } else {
      report_.meters.add(made.meters);
      rates_.push_back(made.facts.tokens_per_pass());
      passes_.push_back(to_double(made.facts.passes));
      entropies_.push_back(made.meters.mean_entropy());
      seconds_.push_back(made.seconds);
    }
    films.push_back(
        film(scaled(listener.frames, kEvalVideoSide, kEvalVideoSide), std::move(listener.codes)));
    report_.samples.push_back({split, prepared.facts.prompt, std::move(listener.frames)});
  }
  return films;
}

// The scorer knows the table from one side: under a circling camera it is asked of the first frame
// alone, and of none where that was given.
void ask_of_known_view(VideoMeasures& measures, const Film& film, const SceneAttributes& heard,
                       int marked) {
  if (marked > 0) {
    measures.attributes.value.fill(kNotAsked);
  } else {
    measures.attributes = score_frames(std::span(film.seen).first(1), heard, 0);
  }
  measures.agreement.value.fill(kNotAsked);
}

VideoMeasures VideoEvaluation::measure(const Film& film, const Video& truth,
                                     const MotionReader& reader) const {
  const SceneAttributes heard = attributes_of(truth.scene);
  VideoMeasures out;
  if (film.frames.empty()) {  // the model failed: nothing is right
    const Seen none(to_size(truth.frames));
    out.attributes = score_frames(none, heard, marked());
    out.agreement = score_agreement(none, 0);
    const SeenVideo nothing{.first = watched(),
                           .solids = std::vector<SeenSolid>(heard.solids.size())};
    out.motion = score_motions(nothing, truth.motions);
    return out;
  }
  out.attributes = score_frames(film.seen, heard, marked());
  out.agreement = score_agreement(film.seen, 0);
  if (truth.camera != CameraMotion::kStill) ask_of_known_view(out, film, heard, marked());
  const SeenVideo seen = reader.read(film.frames);
  out.motion = score_motions(seen, truth.motions);
  if (const auto table = BareTable::of(truth, seen, kEvalVideoSide)) {
    const ModelSpec& spec = task_.spec();
    out.pixel_change = pixel_flicker(film.frames, *table);
    if (!film.codes.empty()) {
      out.code_change = code_flicker({film.codes, narrow<int>(spec.model.grid_rows),
                                      narrow<int>(spec.model.grid_cols), spec.movq->frames()},
                                     *table);
    }
  }
  return out;
}

void VideoEvaluation::add_decibels(VideoMeasures& measures, const Film& film,
                                  const Film& truth) const {
  if (film.frames.empty()) return;
  measures.given_psnr = psnr_of(film.frames, truth.frames, 0, marked());
  measures.psnr = psnr_of(film.frames, truth.frames, marked(), report_.frames);
}

void VideoEvaluation::scorer_split(SceneSplit split) {
  const auto count = to_size(request_.videos);
  std::vector<Video> videos;  // one more, as there is always another caption
  for (std::uint64_t i = 0; i <= count; ++i) {
    videos.push_back(sample_video(request_.scene_seed, split, i, narrow<int>(report_.frames)));
  }
  const std::vector<Film> generated = generate(split, std::span(videos).first(count));
  std::vector<Film> truths;
  std::vector<VideoMeasures> whole, coded, made, other_true, other_made, still;
  for (std::size_t i = 0; i < count; ++i) {
    if (stop(std::string(name_of(split)) + " videos, measured", to_index(i))) return;
    while (truths.size() < std::min(i + 2, videos.size())) {
      truths.push_back(true_film(videos[truths.size()]));
    }
    const MotionReader reader(videos[i], kEvalVideoSide, watched(), pool_);
    whole.push_back(measure(truths[i], videos[i], reader));
    const Film back = through_tokenizer(truths[i]);
    coded.push_back(measure(back, videos[i], reader));
    add_decibels(coded.back(), back, truths[i]);
    made.push_back(measure(generated[i], videos[i], reader));
    if (marked() > 0) add_decibels(made.back(), generated[i], truths[i]);
    still.push_back(measure(still_film(truths[i]), videos[i], reader));
    if (!same_heard(videos[i], videos[i + 1])) {
      other_true.push_back(measure(truths[i + 1], videos[i], reader));
    }
    const std::size_t other = (i + 1) % count;
    if (other != i && !same_heard(videos[i], videos[other])) {
      other_made.push_back(measure(generated[other], videos[i], reader));
    }
  }
  // Where a video is another's, its steadiness says nothing more.
  for (std::vector<VideoMeasures>* rows : {&other_true, &other_made}) {
    for (VideoMeasures& one : *rows) {
      one.code_change = one.pixel_change = kNotAsked;
      one.agreement.value.fill(kNotAsked);
    }
  }
  add_row(split, "true videos (ceiling)", whole);
  add_row(split, "true videos through the tokenizer", coded);
  add_row(split, "prompts", made);
  add_row(split, "prompts, other captions (floor)", other_made);
  add_row(split, "true videos, other captions (floor)", other_true);
  add_row(split, "true videos, one frame throughout (floor)", still);
}

EvalVideosReport VideoEvaluation::run() {
  {
    const OpenedModel model = open_model(resolve_video_model(request_.options.model).open_name);
    movq_ = std::make_unique<MovqTokenizer>(*backend_, *model.spec.movq, *model.vq_weights,
                                            stored_vq_dtype(model), TokenizerHalves::kBoth);
    model.vq_weights->verify_unchanged();
  }
  for (const SceneSplit split : request_.splits) {
    scorer_split(split);
    if (report_.stopped) return std::move(report_);
  }
  report_.tokens_per_pass = bootstrap_all(rates_);
  report_.passes = bootstrap_all(passes_);
  report_.entropy = bootstrap_all(entropies_);
  report_.seconds = bootstrap_all(seconds_);
  return std::move(report_);
}

}  // namespace

EvalVideosReport eval_videos(const EvalVideosRequest& request, const EvalVideosListener& listener) {
  expects(request.videos > 0 && request.first_frames >= 0, "an evaluation has videos");
  return VideoEvaluation(request, listener).run();
}

}  // namespace tessera
