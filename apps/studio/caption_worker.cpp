#include "apps/studio/caption_worker.h"

#include "apps/captions/text_forms.h"
#include "apps/runtime/visual_tiles.h"
#include "apps/studio/boundary.h"

namespace tessera {

namespace {

constexpr const char* kDefaultPrompt = "Describe the picture.";

}  // namespace

// Called on the worker's thread; entries of images at work are shared with the thread that reads
// them.
class CaptionWorker::Listener final : public TextListener {
 public:
  Listener(CaptionWorker& worker, std::string prune) : worker_(worker), prune_(std::move(prune)) {}

  void on_text(const std::string& id, std::string_view more) override {
    CaptionEntry now;
    {
      const std::lock_guard lock(worker_.mutex_);
      CaptionEntry& entry = worker_.begun_[id];
      entry.state = CaptionState::kWriting;
      entry.text += more;
      now = entry;
    }
    worker_.tell(now);
  }
  void on_tiles(const std::string& id, std::vector<VisualTile> tiles) override {
    const std::lock_guard lock(worker_.mutex_);
    worker_.begun_[id].tiles = std::move(tiles);
  }
  void on_caption(Caption&& caption) override {
    CaptionEntry entry;
    {
      const std::lock_guard lock(worker_.mutex_);
      entry = std::move(worker_.begun_[caption.id]);
      worker_.begun_.erase(caption.id);
    }
    entry.seconds = caption.seconds.total;
    entry.prune = prune_;
    entry.visual_tokens = caption.visual_tokens;
    entry.kept_tokens = caption.kept_tokens;
    entry.state = caption.failed ? CaptionState::kFailed : CaptionState::kDone;
    entry.error = caption.error;
    if (!caption.failed) {
      entry.text = clean_caption(caption.text);
      if (!caption.whole.empty() && !caption.kept.empty()) {
        const auto scores = caption.scores.empty() ? std::vector<float>() : caption.scores.front();
        entry.tiles = visual_tiles(caption.whole.front(), caption.kept.front(), scores,
                                   caption.parts.front());
      }
    }
    worker_.tell(entry);
  }
  void on_notice(std::string_view text) override {
    worker_.events_.push(ProblemEvent{{.kind = ErrorKind::kGeneral,
                                       .code = "E_CAPTION_NOTICE",
                                       .where = "captions",
                                       .expected = "the usual way",
                                       .found = std::string(text)}});
  }
  Flow on_pass() override {
    const std::lock_guard lock(worker_.mutex_);
    return worker_.stopping_ ? Flow::kStop : Flow::kContinue;
  }

 private:
  CaptionWorker& worker_;
  std::string prune_;
};

CaptionWorker::CaptionWorker(std::unique_ptr<Describer> describer, std::string model,
                             EventQueue& events)
    : model_(std::move(model)),
      events_(events),
      describer_(std::move(describer)),
      thread_([this] { work(); }) {}

CaptionWorker::~CaptionWorker() {
  end();
  thread_.join();
}

void CaptionWorker::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  jobs_.clear();
  changed_.notify_all();
}

bool CaptionWorker::queue(const CaptionCommand& command) {
  const std::lock_guard lock(mutex_);
  if (jobs_.size() + command.images.size() > kMaxQueued) return false;
  for (const std::filesystem::path& image : command.images) {
    jobs_.push_back({++last_number_,
                     image,
                     command.prompt.empty() ? kDefaultPrompt : command.prompt,
                     {command.model.empty() ? model_ : command.model, command.prune_method,
                      command.prune_method.empty() ? 0 : command.prune_rate}});
  }
  changed_.notify_all();
  return true;
}

void CaptionWorker::stop() {
  const std::lock_guard lock(mutex_);
  jobs_.clear();
  stopping_ = true;
}

void CaptionWorker::work() {
  while (true) {
    Setup setup;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (ending_) return;
      setup = jobs_.front().setup;
      stopping_ = false;
    }
    ErrorInfo why;
    try {
      if (!run(setup)) return;
      drop_begun();
      continue;
    } catch (const std::exception& error) {  // the boundary of images that are described alike
      why = info_of(error, "captioner");
    }
    if (why.kind == ErrorKind::kModel) events_.push(ProblemEvent{why});
    fail_all(setup, why);
  }
}

// Images at the front of the queue that are described in the same way. False: the worker ends,
// and the text at work was left.
bool CaptionWorker::run(const Setup& setup) {
  Listener listener(*this, setup.prune_method);
  const auto ends = [&] {
    const std::lock_guard lock(mutex_);
    return ending_;
  };
  describer_->describe(setup, [&] { return next(setup); }, listener, ends);
  return !ends();
}

// What a stop left unwritten.
void CaptionWorker::drop_begun() {
  std::map<std::string, CaptionEntry> begun;
  {
    const std::lock_guard lock(mutex_);
    begun.swap(begun_);
  }
  for (auto& [number, entry] : begun) events_.push(CaptionGoneEvent{std::move(entry.path)});
}

void CaptionWorker::fail_all(const Setup& setup, const ErrorInfo& error) {
  std::map<std::string, CaptionEntry> begun;
  {
    const std::lock_guard lock(mutex_);
    begun.swap(begun_);
  }
  while (const std::optional<Job> job = take(setup)) {
    begun[std::to_string(job->number)].path = job->image;
  }
  for (auto& [number, entry] : begun) {
    entry.state = CaptionState::kFailed;
    entry.error = error;
    entry.prune = setup.prune_method;
    tell(entry);
  }
}

// The front of the queue, if it is described in this way.
std::optional<CaptionWorker::Job> CaptionWorker::take(const Setup& setup) {
  const std::lock_guard lock(mutex_);
  if (ending_ || stopping_ || jobs_.empty() || !(jobs_.front().setup == setup)) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

// On the thread that reads images ahead.
std::optional<DescribeRequest> CaptionWorker::next(const Setup& setup) {
  std::optional<Job> job = take(setup);
  if (!job) return std::nullopt;
  CaptionEntry entry;
  entry.path = job->image;
  entry.state = CaptionState::kReading;
  entry.prune = setup.prune_method;
  {
    const std::lock_guard lock(mutex_);
    begun_[std::to_string(job->number)] = entry;
  }
  tell(entry);
  DescribeRequest request;
  request.id = std::to_string(job->number);
  request.images.push_back({.file = job->image, .name = job->image.string()});
  request.prompt = job->prompt;
  return request;
}

}  // namespace tessera
