// Items as requests of one submission, files of each image into the store.
#include "apps/jobs/image_task.h"

#include <algorithm>
#include <optional>

#include "apps/jobs/item_files.h"
#include "apps/jobs/job_check.h"
#include "apps/runtime/in_order.h"
#include "apps/runtime/memory_attempt.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// Finished images that an earlier one keeps from being committed: so many for each slot at most.
constexpr std::size_t kFinishedAhead = 4;

class ImageTask final : public Task, public GenerateListener {
 public:
  ImageTask(const ImageTools& tools, std::span<const SettledItem> items, BatchStore& store,
            const ImageJobOptions& options, ImageJobListener& listener)
      : tools_(tools),
        items_(items),
        store_(store),
        listener_(listener),
        room_(options.room),
        texts_at_once_(to_size(options.batch_size)),
        files_{.record = options.record, .sidecar = options.sidecar} {
    if (tools_.describer != nullptr) files_.endings = tools_.describer->endings();
  }

  // Items of the batch, and where nothing is described, further ones as slots become free.
  void work(JobRun& run) override {
    run_ = &run;
    generated_.clear();
    order_ = {};
    at_work_ = ended_ = 0;
    taken_.clear();
    while (const std::optional<std::size_t> item = run.take()) taken_.push_back(*item);
    if (taken_.empty()) return;
    if (by_turns_) tools_.describer->release();
    tools_.generate(std::make_unique<Items>(*this), *this);
  }

  Flow on_progress(const GenerateProgress& progress) override {
    GenerateProgress shown = progress;
    shown.first = run_->over();
    listener_.on_progress(shown);
    return Flow::kContinue;
  }

  void on_image(GeneratedImage&& decoded_image) override {
    --at_work_;
    const std::size_t index = decoded_image.index;
    order_.add(index, std::move(decoded_image), [&](GeneratedImage&& next) { end(std::move(next)); });
  }

  // Ends the items of images that an error left without the ones before them. Then describes the
  // images of the batch that wait for it, and ends their items in their order.
  void settle(JobRun& run) override {
    order_.finish([&](GeneratedImage&& next) { end(std::move(next)); });
    std::vector<ToDescribe> images;
    for (GeneratedImage& decoded_image : generated_) {
      if (decoded_image.status != ImageStatus::kDone) continue;
      images.push_back({items_[taken_[decoded_image.index]].item.id,
                        std::make_shared<const Image>(std::move(decoded_image.image))});
    }
    const std::vector<Described> texts = describe(images);
    std::size_t next = 0;
    for (GeneratedImage& decoded_image : generated_) {
      const std::size_t item = taken_[decoded_image.index];
      if (decoded_image.status != ImageStatus::kDone) {
        run.fail(item, decoded_image.error);
        continue;
      }
      const std::size_t at = next++;
      if (texts[at].error) {
        run.fail(item, *texts[at].error);
      } else {
        put_down(item, *images[at].image, decoded_image, texts[at]);
      }
    }
    generated_.clear();
  }

  void release() override { tools_.task.release(); }
  bool hold_less() override { return take_turns(); }

 private:
  // What the generator takes from the run.
  class Items final : public GenerateSource {
   public:
    explicit Items(ImageTask& task)
        : task_(task), width_(task.taken_.size()), over_(task.tools_.describer != nullptr) {
      for (const std::size_t item : task.taken_) first_.push_back(task.prepare(item));
      needs_ = task.needs(first_);
    }
    LoopNeeds needs() const override { return needs_; }
    std::optional<PreparedRequest> next(Wait) override {
      if (given_ < width_) return give(std::move(first_[given_]));
      if (given_ - task_.ended_ >= kFinishedAhead * width_) return std::nullopt;
      const std::optional<std::size_t> item = task_.run_->take(task_.at_work_);
      if (item) task_.taken_.push_back(*item);
      if (item) return give(task_.prepare(*item));
      over_ = task_.run_->ended();
      return std::nullopt;
    }
    bool more() const override { return given_ < width_ || !over_; }

   private:
    PreparedRequest give(PreparedRequest request) {
      ++given_;
      ++task_.at_work_;
      return request;
    }

    ImageTask& task_;
    const std::size_t width_;  // images at once
    std::vector<PreparedRequest> first_;
    LoopNeeds needs_;
    std::size_t given_ = 0;
    bool over_;  // the run gives no more; images that are described go batch by batch
  };

  PreparedRequest prepare(std::size_t item) const {
    return tools_.task.prepare(request_of(items_[item]));
  }
  LoopNeeds needs(std::span<const PreparedRequest> batch) const {
    LoopNeeds needs = both(room_, room_for(batch));
    needs.slots = std::ssize(batch);
    return needs;
  }

  // Items end in their order.
  void end(GeneratedImage decoded_image) {
    ++ended_;
    // Failures wait with the others for their texts.
    if (tools_.describer != nullptr) return generated_.push_back(std::move(decoded_image));
    const std::size_t item = taken_[decoded_image.index];
    if (decoded_image.status != ImageStatus::kDone) return run_->fail(item, decoded_image.error);
    const Image image = std::move(decoded_image.image);
    put_down(item, image, decoded_image, {});
  }

  // Texts where there was memory for them: by turns with the generator, then half as many at once,
  // down to one text, which then has failed.
  std::vector<Described> describe(std::span<const ToDescribe> images) {
    std::vector<Described> all;
    while (all.size() < images.size()) {
      const auto rest = images.subspan(all.size());
      const auto some = rest.first(std::min(rest.size(), texts_at_once_));
      if (by_turns_) tools_.task.release();
      std::vector<Described> texts;
      auto missing =
          memory_failure([&] { texts = tools_.describer->describe(some); }, "describing");
      for (const Described& text : texts) {
        if (!missing && text.error && text.error->kind == ErrorKind::kMemory) missing = text.error;
      }
      const auto lasted = to_size(tools_.describer->at_once());
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
    listener_.on_fewer_texts(to_index(texts));
  }

  // From here on the generator holds no memory but its weights while the captioner works, nor the
  // other way round. Whether that is new.
  bool take_turns() {
    if (tools_.describer == nullptr || by_turns_) return false;
    by_turns_ = true;
    listener_.on_turns();
    return true;
  }

  void put_down(std::size_t index, const Image& image, GeneratedImage& decoded_image,
                const Described& described) {
    const SettledItem& item = items_[index];
    const std::vector<OutputFile> files =
        files_of_item(item, image, decoded_image.facts, described, files_);
    decoded_image.codes = {};
    ItemRecord record;
    const bool done = run_->done(
        index, [&] { record = store_.commit(item, files, decoded_image.seconds, is_of_item); });
    if (done) listener_.on_done(item, record, decoded_image, described);
  }

  const ImageTools& tools_;
  std::span<const SettledItem> items_;
  BatchStore& store_;
  ImageJobListener& listener_;
  LoopNeeds room_;
  std::size_t texts_at_once_;
  bool by_turns_ = false;  // generator and captioner hold memory one after the other
  ItemFiles files_;
  JobRun* run_ = nullptr;
  // Of the submission at hand.
  std::vector<std::size_t> taken_;       // items by number of their request
  std::size_t at_work_ = 0, ended_ = 0;  // images: begun and not finished, committed or failed
  InOrder<GeneratedImage> order_;
  std::vector<GeneratedImage> generated_;  // where they are to be described
};

}  // namespace

ImageTools::ImageTools(GenerateTask& generator, ImageDescriber* describes)
    : task(generator),
      generate([&generator](std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
        generator.run(std::move(source), listener);
      }),
      describer(describes) {}

JobEnd generate_images(const ImageTools& tools, std::span<const SettledItem> items,
                       std::span<const std::size_t> wanted, BatchStore& store,
                       const ImageJobOptions& options, ImageJobListener& listener) {
  ImageTask task(tools, items, store, options, listener);
  return SettledJob(items, store, listener)
      .run(wanted, task, {.at_once = options.batch_size, .max_retries = options.max_retries});
}

}  // namespace tessera
