// A job of eight items whose generator goes wrong as a test asks, and who hears of it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/jobs/image_task.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera {

struct Heard final : ImageJobListener {
  void on_done(const SettledItem& item, const ItemRecord&, const GeneratedImage&,
               const Described& described) override {
    done += item.item.id;
    ended += item.item.id;
    for (const std::string& text : described.texts) texts[item.item.id] += text;
  }
  void on_failed(const SettledItem& item, const ErrorInfo& error) override {
    failed += item.item.id;
    ended += item.item.id;
    codes.push_back(error.code);
  }
  void on_retry(const SettledItem& item, const ErrorInfo&) override { retried += item.item.id; }
  void on_fewer(std::int64_t images) override { fewer.push_back(images); }
  void on_fewer_texts(std::int64_t count) override { fewer_texts.push_back(count); }
  void on_turns() override { ++turns; }
  std::string done, failed, retried, ended;  // ended: done or failed, in that order
  int turns = 0;
  std::vector<std::string> codes;
  std::vector<std::int64_t> fewer, fewer_texts;
  std::map<std::string, std::string> texts;
};

// What goes wrong with a request that is about to begin, `at_work` images with it: what it throws
// the generator throws; the error that it returns is that of the image.
using Spoil = std::function<std::optional<ErrorInfo>(const PreparedRequest&, std::size_t at_work)>;

// Between a generator and its listener.
class Spoiled final : public GenerateListener {
 public:
  Spoiled(Spoil spoil, GenerateListener& to) : spoil_(std::move(spoil)), to_(to) {}

  std::unique_ptr<GenerateSource> source(std::unique_ptr<GenerateSource> inner) {
    return std::make_unique<Source>(*this, std::move(inner));
  }
  Flow on_progress(const GenerateProgress& progress) override { return to_.on_progress(progress); }
  void on_image(GeneratedImage&& image) override {
    --at_work_;
    if (const auto& error = errors_.at(image.index)) {
      image.status = ImageStatus::kFailed;
      image.error = *error;
    }
    to_.on_image(std::move(image));
  }

 private:
  class Source final : public GenerateSource {
   public:
    Source(Spoiled& owner, std::unique_ptr<GenerateSource> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    LoopNeeds needs() const override { return inner_->needs(); }
    std::optional<PreparedRequest> next(Wait wait) override {
      std::optional<PreparedRequest> request = inner_->next(wait);
      if (request) owner_.errors_.push_back(owner_.spoil_(*request, ++owner_.at_work_));
      return request;
    }
    bool more() const override { return inner_->more(); }

   private:
    Spoiled& owner_;
    std::unique_ptr<GenerateSource> inner_;
  };

  Spoil spoil_;
  GenerateListener& to_;
  std::size_t at_work_ = 0;
  std::vector<std::optional<ErrorInfo>> errors_;  // by request
};

[[noreturn]] inline void run_out_of_memory() {
  throw Error({.kind = ErrorKind::kMemory, .code = "E_TEST_MEMORY", .found = "none"});
}

class GenerationFaults : public ::testing::Test {
 protected:
  GenerationFaults() : task_(runtime_, options()) {
    task_.load();
    generate(ImageTools(task_), truth_heard_);
    truth_ = folder_.outputs();
    folder_.clear();
  }
  static GenerateOptions options() {
    GenerateOptions out;
    out.model = "test:tiny";
    out.device = "cpu";
    out.threads = 1;
    out.batch_size = 8;
    return out;
  }
  void generate(const ImageTools& tools, Heard& heard, int max_retries = 0,
             bool retry_failed = false) {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
    generate_images(tools, items_, store.wanted(retry_failed), store,
                    {.batch_size = 8, .max_retries = max_retries}, heard);
  }
  ImageTools spoiled(Spoil spoil) {
    ImageTools tools(task_);
    tools.generate = [this, spoil = std::move(spoil)](std::unique_ptr<GenerateSource> source,
                                                      GenerateListener& listener) {
      Spoiled between(spoil, listener);
      task_.run(between.source(std::move(source)), between);
    };
    return tools;
  }
  static bool is_item(const PreparedRequest& request, const char* id) {
    return request.facts.prompt == std::string("picture ") + id;
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = small_job(8);
  Runtime runtime_;
  GenerateTask task_;
  Heard truth_heard_;
  std::map<std::string, std::string> truth_;
};

}  // namespace tessera
