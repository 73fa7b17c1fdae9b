// Batches of requests through the pipeline, files of each picture into the store.
#include "apps/batch/painting.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "apps/batch/equal_failures.h"
#include "apps/batch/item_files.h"
#include "apps/batch/job_check.h"
#include "apps/pipeline/in_order.h"
#include "apps/pipeline/memory_attempt.h"

namespace tessera {

namespace {

// One run over what is wanted.
class JobPainter final : public GenerateListener {
 public:
  JobPainter(const PaintTools& tools, std::span<const SettledItem> items, BatchStore& store,
             const PaintOptions& options, PaintListener& listener)
      : tools_(tools),
        items_(items),
        store_(store),
        options_(options),
        listener_(listener),
        at_once_(static_cast<std::size_t>(options.batch_size)),
        texts_at_once_(at_once_),
        files_{.record = options.record, .sidecar = options.sidecar} {
    if (tools_.describer != nullptr) files_.endings = tools_.describer->endings();
  }

  PaintEnd run(std::span<const std::size_t> wanted) {
    todo_.assign(wanted.begin(), wanted.end());
    while (!again_.empty() || !todo_.empty()) {
      if (listener_.stop_requested()) return PaintEnd::kDrained;
      take_batch();
      auto missing = memory_failure([&] { paint_batch(); }, "painting");
      // Also pictures that were handed out before memory ended.
      const auto missed = memory_failure([&] { settle_painted(); }, "writing");
      if (!missing) missing = missed;
      if (missing) shrink(*missing);
    }
    return PaintEnd::kOver;
  }

  Flow on_progress(const GenerateProgress& progress) override {
    GenerateProgress shown = progress;
    shown.first = over_;
    listener_.on_progress(shown);
    return Flow::kContinue;
  }

  void on_picture(GeneratedPicture&& picture) override {
    const std::size_t index = picture.index;
    order_.add(index, std::move(picture),
               [&](GeneratedPicture&& next) { settle(std::move(next)); });
  }

 private:
  // An item that failed is tried again alone.
  void take_batch() {
    std::deque<std::size_t>& from = again_.empty() ? todo_ : again_;
    const std::size_t count = again_.empty() ? std::min(at_once_, todo_.size()) : 1;
    batch_.assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
    from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
    open_ = batch_;
    painted_.clear();
    order_ = {};
  }

  void paint_batch() {
    if (by_turns_) tools_.describer->give_back();
    std::vector<PreparedRequest> requests;
    for (const std::size_t index : batch_) {
      requests.push_back(tools_.pipeline.prepare(request_of(items_[index])));
    }
    tools_.paint(requests, *this);
  }

  // Items end in their order.
  void settle(GeneratedPicture picture) {
    // Failures wait with the others for their texts.
    if (tools_.describer != nullptr) return painted_.push_back(std::move(picture));
    const std::size_t item = batch_[picture.index];
    if (picture.status != PictureStatus::kDone) return fail(item, picture.error);
    const Image image = std::move(picture.image);
    put_down(item, image, picture, {});
  }

  // Those that an error left without the ones before them; then describes the pictures of the batch
  // that wait for it, and ends their items in their order.
  void settle_painted() {
    order_.finish([&](GeneratedPicture&& next) { settle(std::move(next)); });
    std::vector<ToDescribe> pictures;
    for (GeneratedPicture& picture : painted_) {
      if (picture.status != PictureStatus::kDone) continue;
      pictures.push_back({items_[batch_[picture.index]].item.id,
                          std::make_shared<const Image>(std::move(picture.image))});
    }
    const std::vector<Described> texts = describe(pictures);
    std::size_t next = 0;
    for (GeneratedPicture& picture : painted_) {
      const std::size_t item = batch_[picture.index];
      if (picture.status != PictureStatus::kDone) {
        fail(item, picture.error);
        continue;
      }
      const std::size_t at = next++;
      if (texts[at].error) {
        fail(item, *texts[at].error);
      } else {
        put_down(item, *pictures[at].image, picture, texts[at]);
      }
    }
  }

  // Texts where there was memory for them: by turns with the painter, then half as many at once,
  // down to one text, which then has failed.
  std::vector<Described> describe(std::span<const ToDescribe> pictures) {
    std::vector<Described> all;
    while (all.size() < pictures.size()) {
      const auto rest = pictures.subspan(all.size());
      const auto some = rest.first(std::min(rest.size(), texts_at_once_));
      if (by_turns_) tools_.pipeline.give_back();
      std::vector<Described> texts;
      auto missing =
          memory_failure([&] { texts = tools_.describer->describe(some); }, "describing");
      for (const Described& text : texts) {
        if (!missing && text.error && text.error->kind == ErrorKind::kMemory) missing = text.error;
      }
      const auto lasted = static_cast<std::size_t>(tools_.describer->at_once());
      const bool fewer = lasted < some.size();
      const bool turns = (missing || fewer) && take_turns();
      if (turns && missing) continue;
      if (fewer && !turns) write_fewer(lasted);
      if (missing && some.size() > 1) {
        write_fewer(some.size() / 2);
        continue;
      }
      if (texts.empty()) texts.push_back({.texts = {}, .error = missing});
      std::move(texts.begin(), texts.end(), std::back_inserter(all));
    }
    return all;
  }

  void write_fewer(std::size_t texts) {
    if (texts >= texts_at_once_) return;
    texts_at_once_ = texts;
    listener_.on_fewer_texts(static_cast<std::int64_t>(texts));
  }

  // From here on the painter holds no memory but its weights while the captioner works, nor the
  // other way round. Whether that is new.
  bool take_turns() {
    if (tools_.describer == nullptr || by_turns_) return false;
    by_turns_ = true;
    listener_.on_turns();
    return true;
  }

  void put_down(std::size_t index, const Image& image, GeneratedPicture& picture,
                const Described& described) {
    const SettledItem& item = items_[index];
    const std::vector<OutputFile> files =
        files_of_item(item, image, picture.facts, described, files_);
    picture.codes = {};
    ItemRecord record;
    try {
      committing_ = true;
      record = store_.commit(item, files, picture.seconds, is_of_item);
      committing_ = false;
    } catch (const Error& error) {  // the boundary of one item
      if (error.info().kind != ErrorKind::kGeneral) throw;
      committing_ = false;
      return fail(index, error.info());
    }
    close(index);
    failures_.clear();
    listener_.on_done(item, record, picture, described);
  }

  // A stranger's file stays where it is, however often it is met.
  void fail(std::size_t index, const ErrorInfo& error) {
    const SettledItem& item = items_[index];
    if (error.code != "E_OUTPUT_EXISTS" && tries_[index] < options_.max_retries) {
      ++tries_[index];
      std::erase(open_, index);
      again_.push_back(index);
      store_.note_try(item);
      return listener_.on_retry(item, error);
    }
    committing_ = true;
    store_.fail(item, error);
    committing_ = false;
    close(index);
    listener_.on_failed(item, error);
    failures_.add(error);
  }

  void close(std::size_t index) {
    ++over_;
    std::erase(open_, index);
  }

  // What can be given back is, then half as many at once for what is left of the batch and all that
  // follows, the item's failure when it was alone. An item that was being put down may be half
  // recorded: that ends the run.
  void shrink(const ErrorInfo& missing) {
    if (committing_) throw Error(missing);
    tools_.pipeline.give_back();
    if (open_.empty()) return;
    const bool turns = take_turns();
    if (batch_.size() == 1 && !turns) return fail(open_.front(), missing);
    std::deque<std::size_t>& to = batch_.size() == 1 ? again_ : todo_;
    to.insert(to.begin(), open_.begin(), open_.end());
    if (turns) return;
    at_once_ = batch_.size() / 2;
    store_.note_at_once(static_cast<std::int64_t>(at_once_));
    listener_.on_fewer(static_cast<std::int64_t>(at_once_));
  }

  const PaintTools& tools_;
  std::span<const SettledItem> items_;
  BatchStore& store_;
  const PaintOptions& options_;
  PaintListener& listener_;
  std::size_t at_once_, texts_at_once_;
  bool by_turns_ = false;  // painter and captioner hold memory one after the other
  ItemFiles files_;
  EqualFailures failures_;
  std::deque<std::size_t> todo_, again_;        // items
  std::vector<std::size_t> batch_, open_;       // items: at work, and those of them not settled
  InOrder<GeneratedPicture> order_;             // of the batch
  std::vector<GeneratedPicture> painted_;       // of the batch, where they are to be described
  std::unordered_map<std::size_t, int> tries_;  // that failed
  std::size_t over_ = 0;                        // done or failed in this run
  bool committing_ = false;
};

}  // namespace

PaintTools::PaintTools(GeneratePipeline& painter, Describer* describes)
    : pipeline(painter),
      paint([&painter](std::span<const PreparedRequest> requests, GenerateListener& listener) {
        painter.run(requests, listener);
      }),
      describer(describes) {}

PaintEnd paint_items(const PaintTools& tools, std::span<const SettledItem> items,
                     std::span<const std::size_t> wanted, BatchStore& store,
                     const PaintOptions& options, PaintListener& listener) {
  return JobPainter(tools, items, store, options, listener).run(wanted);
}

}  // namespace tessera
