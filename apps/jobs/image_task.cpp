// Batches of requests through the pipeline, files of each image into the store.
#include "apps/jobs/image_task.h"

#include <algorithm>
#include <optional>

#include "apps/jobs/item_files.h"
#include "apps/jobs/job_check.h"
#include "apps/runtime/in_order.h"
#include "apps/runtime/memory_attempt.h"

namespace tessera {

namespace {

class ImageTask final : public Task, public GenerateListener {
 public:
  ImageTask(const ImageTools& tools, std::span<const SettledItem> items, BatchStore& store,
            const ImageJobOptions& options, ImageJobListener& listener)
      : tools_(tools),
        items_(items),
        store_(store),
        listener_(listener),
        texts_at_once_(static_cast<std::size_t>(options.batch_size)),
        files_{.record = options.record, .sidecar = options.sidecar} {
    if (tools_.describer != nullptr) files_.endings = tools_.describer->endings();
  }

  void work(JobRun& run) override {
    run_ = &run;
    generated_.clear();
    order_ = {};
    batch_ = run.take_batch();
    if (by_turns_) tools_.describer->give_back();
    std::vector<PreparedRequest> requests;
    for (const std::size_t index : batch_) {
      requests.push_back(tools_.pipeline.prepare(request_of(items_[index])));
    }
    tools_.generate(requests, *this);
  }

  Flow on_progress(const GenerateProgress& progress) override {
    GenerateProgress shown = progress;
    shown.first = run_->over();
    listener_.on_progress(shown);
    return Flow::kContinue;
  }

  void on_picture(GeneratedPicture&& picture) override {
    const std::size_t index = picture.index;
    order_.add(index, std::move(picture), [&](GeneratedPicture&& next) { end(std::move(next)); });
  }

  // Ends the items of images that an error left without the ones before them. Then describes the
  // images of the batch that wait for it, and ends their items in their order.
  void settle(JobRun& run) override {
    order_.finish([&](GeneratedPicture&& next) { end(std::move(next)); });
    std::vector<ToDescribe> images;
    for (GeneratedPicture& picture : generated_) {
      if (picture.status != PictureStatus::kDone) continue;
      images.push_back({items_[batch_[picture.index]].item.id,
                        std::make_shared<const Image>(std::move(picture.image))});
    }
    const std::vector<Described> texts = describe(images);
    std::size_t next = 0;
    for (GeneratedPicture& picture : generated_) {
      const std::size_t item = batch_[picture.index];
      if (picture.status != PictureStatus::kDone) {
        run.fail(item, picture.error);
        continue;
      }
      const std::size_t at = next++;
      if (texts[at].error) {
        run.fail(item, *texts[at].error);
      } else {
        put_down(item, *images[at].image, picture, texts[at]);
      }
    }
    generated_.clear();
  }

  void give_back() override { tools_.pipeline.give_back(); }
  bool hold_less() override { return take_turns(); }

 private:
  // Items end in their order.
  void end(GeneratedPicture picture) {
    // Failures wait with the others for their texts.
    if (tools_.describer != nullptr) return generated_.push_back(std::move(picture));
    const std::size_t item = batch_[picture.index];
    if (picture.status != PictureStatus::kDone) return run_->fail(item, picture.error);
    const Image image = std::move(picture.image);
    put_down(item, image, picture, {});
  }

  // Texts where there was memory for them: by turns with the generator, then half as many at once,
  // down to one text, which then has failed.
  std::vector<Described> describe(std::span<const ToDescribe> images) {
    std::vector<Described> all;
    while (all.size() < images.size()) {
      const auto rest = images.subspan(all.size());
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

  // From here on the generator holds no memory but its weights while the captioner works, nor the
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
    const bool done = run_->done(
        index, [&] { record = store_.commit(item, files, picture.seconds, is_of_item); });
    if (done) listener_.on_done(item, record, picture, described);
  }

  const ImageTools& tools_;
  std::span<const SettledItem> items_;
  BatchStore& store_;
  ImageJobListener& listener_;
  std::size_t texts_at_once_;
  bool by_turns_ = false;  // generator and captioner hold memory one after the other
  ItemFiles files_;
  JobRun* run_ = nullptr;
  std::span<const std::size_t> batch_;       // items at work
  InOrder<GeneratedPicture> order_;          // of the batch
  std::vector<GeneratedPicture> generated_;  // of the batch, where they are to be described
};

}  // namespace

ImageTools::ImageTools(GeneratePipeline& generator, Describer* describes)
    : pipeline(generator),
      generate([&generator](std::span<const PreparedRequest> requests, GenerateListener& listener) {
        generator.run(requests, listener);
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
