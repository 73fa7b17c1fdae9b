// Images from the reading thread to streams of text, and texts to their listener.
#include "apps/runtime/describe_submission.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "apps/runtime/clock.h"
#include "apps/runtime/generation_parts.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// Images are read within weaker confinement than meant where the kernel refuses a part of it: that
// is reported once it is known. Whether it is known.
bool report_confinement(const std::string& confinement, DescribeListener& listener) {
  if (confinement.empty()) return false;
  if (confinement != kWholeConfinement) {
    listener.on_notice("images are read under " + confinement + ", not under " +
                       std::string(kWholeConfinement) +
                       ": the kernel refused; a hostile image could do more harm");
  }
  return true;
}

Caption caption_of(const PreparedImages& prepared) {
  Caption caption;
  caption.id = prepared.request.id;
  caption.sizes = prepared.sizes;
  caption.notes = prepared.notes;
  caption.seconds.read = prepared.seconds;
  return caption;
}

ChatQuestion question_of(const DescribeRequest& request) {
  return {request.prompt, request.turns};
}

// What the second branch of a guided text is asked.
ChatQuestion without_images(const DescribeRequest& request) {
  return request.negative_prompt ? ChatQuestion(*request.negative_prompt) : question_of(request);
}

}  // namespace

void check_describe_request(const DescribeRequest& request, std::size_t images) {
  check_stop_texts(request.stop);
  check_logprobs(request.logprobs);
  const std::int64_t parts = question_of(request).image_parts();
  if (request.turns.empty() || parts == to_index(images)) return;
  refuse_request("E_CHAT_IMAGES", "turns", std::to_string(images) + " parts for images",
                 std::to_string(parts));
}

void DescribeListener::on_fewer(std::int64_t had, std::int64_t have) {
  on_notice("not enough memory for " + std::to_string(had) +
            " texts at once: " + std::to_string(have) + " from here on");
}

// A text at work or on its way there.
struct DescribeSubmission::Work {
  Caption caption;
  ImagePrompt prompt;                    // its rows are in the stream
  Stream stream;                         // until it is given to the lane
  std::unique_ptr<VerifierWatch> watch;  // over the prompt, for a draft that goes by it
  std::unique_ptr<PreparedDraft> draft;  // null = it is written without drafts of a model
  std::optional<WrittenText> text;
  std::span<const TokenLogprobs> logprobs;  // of the tokens that come next
  Clock::time_point start;
};

// Images that are read, on their way to the encoder.
struct DescribeSubmission::Arrival {
  PreparedImages prepared;
  std::size_t place = 0;           // in the submission
  std::uint64_t number = 0;        // half of the key of what is sampled
  std::vector<EncodedTiles> seen;  // of its images, if they ran together with others
  double seconds = 0;              // its share of that run
};

DescribeSubmission::DescribeSubmission(DescribeModel& model, const StreamLane& lane,
                                       std::shared_ptr<const DescribePruning> pruning,
                                       DescribeSource source, std::int64_t slots,
                                       DescribeListener& listener)
    : model_(model),
      lane_(lane),
      pruning_(std::move(pruning)),
      source_(std::move(source)),
      slots_(slots),
      listener_(listener) {}
DescribeSubmission::~DescribeSubmission() {
  if (queue_ != nullptr) model_.add_readers(-1);
}

// Weights first: when they cannot be read, nothing was taken from the source.
void DescribeSubmission::begin() {
  if (queue_ != nullptr) return;
  model_.load();
  const auto ahead = to_size(std::max<std::int64_t>(slots_, 2));
  queue_ = std::make_unique<ImageQueue>(
      std::move(source_), model_.model().describe(),
      ImageReaderOptions{.helper = model_.options().helper}, ahead,
      model_.draft() != nullptr ? model_.draft()->image_spec() : nullptr,
      model_.encoded_images().keeps());
  model_.add_readers(1);
}

bool DescribeSubmission::more() const {
  if (stopped_) return false;
  return queue_ == nullptr || !arrived_.empty() || !queue_->over();
}

std::optional<NextStream> DescribeSubmission::next(Wait wait) {
  // Also here: a stop may have been requested while the listener heard of the last pass.
  if (model_.encoded_in_pass() || stop_asked()) return std::nullopt;
  if (queue_ == nullptr && model_.readers() >= lane_.slots()) return std::nullopt;
  begin();
  if (arrived_.empty()) arrive(wait);
  if (arrived_.empty()) return std::nullopt;
  model_.set_encoded_in_pass(true);
  walls_known_ = walls_known_ || report_confinement(queue_->confinement(), listener_);
  return admit();
}

// Takes what is ready, so much that the encoder is well filled; waits for the first if asked to.
void DescribeSubmission::arrive(Wait wait) {
  constexpr std::size_t kViews = 4;
  const auto at_once = to_size(std::min(slots_, lane_.slots()));
  std::size_t views = 0;
  while (views < kViews && arrived_.size() < at_once) {
    auto prepared = queue_->take(wait == Wait::kYes && arrived_.empty());
    if (!prepared) break;
    const std::size_t place = arrivals_++;
    const std::uint64_t number = prepared->request.number.value_or(place);
    for (const PreprocessedImage& image : prepared->images) views += image.views.size();
    arrived_.push_back({std::move(*prepared), place, number, {}, 0});
  }
  if (arrived_.size() > 1) encode_together();
}

// Whether the encoder may run for it next to others: it will be needed, and nobody watches.
bool DescribeSubmission::goes_together(const Arrival& arrival) const {
  const PreparedImages& prepared = arrival.prepared;
  if (prepared.error || prepared.images.empty()) return false;
  std::size_t known = 0;
  for (std::size_t i = 0; i < prepared.keys.size(); ++i) {
    const bool is_known =
        model_.encoded_images().find(prepared.keys[i], prepared.images[i].plan) != nullptr;
    known += is_known ? 1 : 0;
  }
  if (known == prepared.images.size()) return false;
  try {
    std::vector<PreprocessPlan> plans;
    for (const PreprocessedImage& image : arrival.prepared.images) {
      plans.push_back(image.plan);
    }
    model_.model().prompt_ids(question_of(arrival.prepared.request), plans);
    const auto views = std::ssize(arrival.prepared.images.front().views);
    return pruning_->pruner == nullptr ||
           !VisualEncoder::watched({*pruning_->pruner, pruned_model_of(model_.model(), views),
                                    pruning_->choice.budget, seed_of(arrival.prepared.request),
                                    arrival.number});
  } catch (const Error&) {  // said when it is admitted
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// One run of the encoder for the images that arrived together.
void DescribeSubmission::encode_together() {
  std::vector<const PreprocessedImage*> images;
  std::vector<Arrival*> those;
  for (Arrival& arrival : arrived_) {
    if (!goes_together(arrival)) continue;
    those.push_back(&arrival);
    for (const PreprocessedImage& image : arrival.prepared.images) {
      images.push_back(&image);
    }
  }
  if (those.size() < 2) return;
  const Clock::time_point begin = Clock::now();
  std::vector<EncodedTiles> seen;
  try {
    seen = model_.model().images().look(images);
  } catch (const Error&) {  // each alone then, so that the one at fault is known
    return;
  } catch (const std::bad_alloc&) {
    return;
  }
  if (seen.empty()) return;
  auto next = std::make_move_iterator(seen.begin());
  for (Arrival* arrival : those) {
    const auto end = next + std::ssize(arrival->prepared.images);
    arrival->seen.assign(next, end);
    arrival->seconds = since(begin) / to_double(those.size());
    next = end;
  }
}

std::unique_ptr<DescribeSubmission::Work> DescribeSubmission::prepare(Arrival& arrival) const {
  const PreparedImages& prepared = arrival.prepared;
  auto work = std::make_unique<Work>();
  work->caption = caption_of(prepared);
  Caption& caption = work->caption;
  work->start = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(arrival.seconds));
  if (prepared.error) throw Error(*prepared.error);
  check_describe_request(prepared.request, prepared.images.size());
  for (const PreprocessedImage& image : prepared.images) {
    const PreprocessPlan& plan = image.plan;
    if (plan.video) {
      const std::vector<std::int64_t>& shown = plan.video->numbers;
      caption.frames.insert(caption.frames.end(), shown.begin(), shown.end());
    }
    caption.parts.push_back(shown_part(plan));
    caption.seen.push_back({std::min(plan.resized_width, plan.canvas_width),
                            std::min(plan.resized_height, plan.canvas_height)});
  }
  const DescribeRequest& request = prepared.request;
  work->prompt = make_image_prompt(
      model_.model(), question_of(request), prepared.images,
      pruning_->of(seed_of(request), arrival.number), model_.max_tokens_of(request.max_tokens),
      arrival.seen, nullptr, &model_.encoded_images(), prepared.keys);
  const PromptRows& rows = work->prompt.rows;
  caption.visual_tokens = work->prompt.visual_tokens;
  caption.known_images = work->prompt.known_images;
  caption.seconds.select = work->prompt.select_seconds();
  caption.prompt_tokens = rows.rows.shape()[0];
  caption.kept = rows.kept;
  caption.kept_tokens = count_tokens(caption.kept);
  make_stream(prepared.request, arrival.number, *work);
  work->text.emplace(model_.model().tokenizer(), request.stop, WrittenText::Ends::kTrimmed);
  if (model_.draft() != nullptr) prepare_draft(prepared, *work);
  caption.seconds.encode = since(work->start);
  return work;
}

void DescribeSubmission::make_stream(const DescribeRequest& request, std::uint64_t number,
                                     Work& work) const {
  PromptRows& rows = work.prompt.rows;
  Stream& stream = work.stream;
  stream.kind = StreamKind::kText;
  stream.prompt = {.ids = {},
                   .rows = std::make_shared<const Tensor>(std::move(rows.rows)),
                   .positions = std::move(rows.places),
                   .next_position = rows.next_place,
                   .keys = std::move(rows.keys),
                   .cuts = rows.cuts.get()};
  stream.before = std::move(rows.text);
  stream.processed = std::move(work.prompt.ids);
  stream.stops = model_.model().describe().stops;
  stream.max_tokens = model_.max_tokens_of(request.max_tokens);
  stream.dist = request.sampling.empty() ? model_.dist() : model_.dist_of(request.sampling);
  if (stream.dist.guided()) {
    stream.unconditional =
        prompt_without_images(model_.model(), without_images(request), stream.max_tokens);
  }
  stream.seed = seed_of(request);
  stream.item = number;
  stream.logprobs = request.logprobs;
  const CaptionDraft* draft = model_.draft();
  const ModelConfig& language = model_.model().spec().model.transformer;
  if (draft != nullptr && draft->verified() && pruning_->pruner == nullptr && language.layers > 1 &&
      !rows.image_rows.empty()) {
    work.watch = std::make_unique<VerifierWatch>(language, model_.backend(), rows.image_rows,
                                                 rows.text_rows);
    stream.prompt.cuts = work.watch.get();
  }
  // Some methods cut the prompts of several views only, which no setting shows.
  if (stream.prompt.cuts == nullptr || model_.method().shape() == PassShape::kLine) return;
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_DECODE_CONFLICT",
               .where = "drafts of the text",
               .expected = "a method whose drafts stand in a line, as --prune " +
                           pruning_->choice.method + " cuts prompts inside the model",
               .found = model_.method().name});
}

// What the draft cannot take, the text does without.
void DescribeSubmission::prepare_draft(const PreparedImages& prepared, Work& work) const {
  Caption& caption = work.caption;
  const bool own = !prepared.draft_images.empty();
  try {
    if (prepared.draft_error) throw Error(*prepared.draft_error);
    const DescribeQuestion question{question_of(prepared.request),
                                    without_images(prepared.request)};
    work.draft = model_.draft()->prepare(question, own ? prepared.draft_images : prepared.images,
                                         work.stream, work.watch.get());
    caption.draft = model_.draft()->name();
    caption.seconds.draft = work.draft->seconds;
  } catch (const Error& error) {
    if (error.info().kind != ErrorKind::kGeneral) throw;
    caption.notes.push_back("written without the draft model: " + format_error(error.info()));
  }
}

void DescribeSubmission::fail(Caption caption, const ErrorInfo& error) {
  caption.failed = true;
  caption.error = error;
  listener_.on_caption(std::move(caption));
}

std::uint64_t DescribeSubmission::seed_of(const DescribeRequest& request) const {
  return request.seed.value_or(model_.options().seed);
}

// The next of those that arrived, to be written or failed.
std::optional<NextStream> DescribeSubmission::admit() {
  Arrival arrival = std::move(arrived_.front());
  arrived_.pop_front();
  if (arrival.prepared.repeats) {
    Caption caption = caption_of(arrival.prepared);
    caption.repeats = std::move(arrival.prepared.repeats);
    listener_.on_caption(std::move(caption));
    return std::nullopt;
  }
  ErrorInfo why;
  try {
    std::unique_ptr<Work> work = prepare(arrival);
    NextStream next{
        .number = arrival.place, .stream = std::move(work->stream), .needs = {}, .on_slot = {}};
    next.needs.guided = next.stream.branches() == 2;
    next.needs.prompt_rows =
        std::max(next.stream.prompt.length(), next.stream.unconditional.length());
    if (work->draft) {
      next.needs.draft_prompt_rows = work->draft->rows();
      next.needs.draft_guided = next.needs.guided;
      next.on_slot = [this, draft = work->draft.get()](std::size_t slot) {
        model_.draft()->set_stream(slot, *draft);
      };
    }
    at_work_[arrival.place] = std::move(work);
    return next;
  } catch (const Error& error) {  // the boundary of one item
    why = error.info();
  } catch (const std::bad_alloc&) {
    why = {.kind = ErrorKind::kMemory,
           .code = "E_PICTURE_MEMORY",
           .where = "encoding",
           .expected = "memory for the image's rows",
           .found = "none left"};
  }
  fail(caption_of(arrival.prepared), why);
  return std::nullopt;
}

Flow DescribeSubmission::on_pass(const SubmissionPass& /*pass*/) {
  model_.set_encoded_in_pass(false);
  stop_asked();
  return Flow::kContinue;  // texts at work are finished
}

bool DescribeSubmission::stop_asked() {
  if (stopped_ || listener_.on_pass() != Flow::kStop) return stopped_;
  stopped_ = true;
  arrived_.clear();
  if (queue_ != nullptr) queue_->stop();
  return true;
}

void DescribeSubmission::on_logprobs(std::size_t number,
                                     std::span<const TokenLogprobs> of_tokens) {
  at_work_.at(number)->logprobs = of_tokens;
}

void DescribeSubmission::show(Work& work, const std::string& more) {
  if (more.empty()) return;
  const std::span<const TextToken> listed = work.text->newly_listed();
  if (!listed.empty()) listener_.on_listed(work.caption.id, listed);
  listener_.on_text(work.caption.id, more);
}

void DescribeSubmission::on_tokens(std::size_t number, std::span<const std::int32_t> tokens) {
  Work& work = *at_work_.at(number);
  if (work.caption.seconds.first == 0) work.caption.seconds.first = since(work.start);
  show(work, work.text->add(tokens, model_.model().describe().stops, work.logprobs));
  work.logprobs = {};
}

std::optional<SlidingStream> DescribeSubmission::on_done(std::size_t number,
                                                         StreamResult&& result) {
  const std::unique_ptr<Work> work = std::move(at_work_.at(number));
  at_work_.erase(number);
  Caption& caption = work->caption;
  caption.tokens = work->text->tokens();
  caption.stopped_by_text = work->text->ended();
  caption.passes = result.passes;
  caption.reused_tokens = result.reused;
  caption.meters = std::move(result.meters);
  caption.seconds.total = since(work->start);
  caption.seconds.select = work->prompt.select_seconds();
  caption.prune_source = work->prompt.source();
  caption.kept = work->prompt.kept();
  caption.scores = work->prompt.scores();
  caption.whole = std::move(work->prompt.whole);
  caption.kept_tokens = count_tokens(caption.kept);
  if (work->draft) caption.draft_kept_tokens = work->draft->kept_tokens();
  if (result.status == StreamStatus::kFailed) {
    fail(std::move(caption), result.error);
    return std::nullopt;
  }
  show(*work, work->text->rest());
  caption.text = work->text->whole();
  caption.listed = work->text->take_listed();
  caption.cut_short = !result.stopped && !caption.stopped_by_text;
  listener_.on_caption(std::move(caption));
  return std::nullopt;
}

bool DescribeSubmission::drops(std::size_t number) const {
  return at_work_.at(number)->text->ended();
}

void DescribeSubmission::on_stopped(std::size_t number, StreamResult&& result) {
  if (at_work_.at(number)->text->ended()) {
    on_done(number, std::move(result));
    return;
  }
  stopped_ = true;
  at_work_.erase(number);
}

void DescribeSubmission::on_fewer_slots(std::int64_t had, std::int64_t have) {
  listener_.on_fewer(had, have);
}

void DescribeSubmission::on_no_room(std::size_t number, const ErrorInfo& error) {
  const std::unique_ptr<Work> work = std::move(at_work_.at(number));
  at_work_.erase(number);
  fail(std::move(work->caption), error);
}

void DescribeSubmission::on_over(const ErrorInfo* /*error*/) {
  // Whoever gives the requests may have ended them for a stop.
  const bool answered = !more() && !stopped_ && at_work_.empty();
  listener_.on_over(answered && listener_.on_pass() != Flow::kStop);
}

}  // namespace tessera
