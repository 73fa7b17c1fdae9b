// A job of eight items whose painter goes wrong as a test asks, and who hears of it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/jobs/image_task.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera {

struct Heard final : ImageJobListener {
  void on_done(const SettledItem& item, const ItemRecord&, const GeneratedPicture&,
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
  void on_fewer(std::int64_t pictures) override { fewer.push_back(pictures); }
  void on_fewer_texts(std::int64_t count) override { fewer_texts.push_back(count); }
  void on_turns() override { ++turns; }
  std::string done, failed, retried, ended;  // ended: done or failed, in that order
  int turns = 0;
  std::vector<std::string> codes;
  std::vector<std::int64_t> fewer, fewer_texts;
  std::map<std::string, std::string> texts;
};

// Pictures of all requests but the first.
struct Shifted final : GenerateListener {
  GenerateListener* to = nullptr;
  void on_picture(GeneratedPicture&& picture) override {
    ++picture.index;
    to->on_picture(std::move(picture));
  }
};

[[noreturn]] inline void run_out_of_memory() {
  throw Error({.kind = ErrorKind::kMemory, .code = "E_TEST_MEMORY", .found = "none"});
}

class PaintingFaults : public ::testing::Test {
 protected:
  PaintingFaults() : pipeline_(options()) {
    pipeline_.load();
    paint(ImageTools(pipeline_), truth_heard_);
    truth_ = folder_.outputs();
    folder_.clear();
  }
  static PipelineOptions options() {
    PipelineOptions out;
    out.model = "test:tiny";
    out.device = "cpu";
    out.threads = 1;
    out.batch_size = 8;
    return out;
  }
  void paint(const ImageTools& tools, Heard& heard, int max_retries = 0,
             bool retry_failed = false) {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
    generate_images(tools, items_, store.wanted(retry_failed), store,
                {.batch_size = 8, .max_retries = max_retries}, heard);
  }
  // Tools that ask `spoil` first: what it throws, the painter throws; the error that it returns is
  // that of the first picture.
  using Spoil = std::function<std::optional<ErrorInfo>(std::span<const PreparedRequest>)>;
  ImageTools spoiled(Spoil spoil) {
    ImageTools tools(pipeline_);
    tools.generate = [this, spoil = std::move(spoil)](std::span<const PreparedRequest> requests,
                                                   GenerateListener& listener) {
      const std::optional<ErrorInfo> error = spoil(requests);
      if (!error) {
        pipeline_.run(requests, listener);
        return;
      }
      GeneratedPicture failed;
      failed.status = PictureStatus::kFailed;
      failed.error = *error;
      listener.on_picture(std::move(failed));
      Shifted rest;
      rest.to = &listener;
      if (requests.size() > 1) pipeline_.run(requests.subspan(1), rest);
    };
    return tools;
  }
  static bool is_item(const PreparedRequest& request, const char* id) {
    return request.facts.prompt == std::string("picture ") + id;
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = small_job(8);
  GeneratePipeline pipeline_;
  Heard truth_heard_;
  std::map<std::string, std::string> truth_;
};

}  // namespace tessera
