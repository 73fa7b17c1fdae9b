// Painting that goes wrong: memory that does not last for a batch, items that fail once, for ever,
// or all alike. The pictures that come out are the same bytes as without trouble.
#include <cstdio>
#include <new>

#include "apps/batch/painting.h"
#include "tests/unit/batch/store_job.h"
#include "tests/unit/captioning/scarce_memory.h"

namespace tessera {
namespace {

struct Heard final : PaintListener {
  void on_done(const SettledItem& item, const ItemRecord&, const GeneratedPicture&,
               const Described& described) override {
    done += item.item.id;
    for (const std::string& text : described.texts) texts[item.item.id] += text;
  }
  void on_failed(const SettledItem& item, const ErrorInfo& error) override {
    failed += item.item.id;
    codes.push_back(error.code);
  }
  void on_retry(const SettledItem& item, const ErrorInfo&) override { retried += item.item.id; }
  void on_fewer(std::int64_t pictures) override { fewer.push_back(pictures); }
  std::string done, failed, retried;
  std::vector<std::string> codes;
  std::vector<std::int64_t> fewer;
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

[[noreturn]] void run_out_of_memory() {
  throw Error({.kind = ErrorKind::kMemory, .code = "E_TEST_MEMORY", .found = "none"});
}

class PaintingFaults : public ::testing::Test {
 protected:
  PaintingFaults() : pipeline_(options()) {
    pipeline_.load();
    paint(PaintTools(pipeline_), truth_heard_);
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
  void paint(const PaintTools& tools, Heard& heard, int max_retries = 0,
             bool retry_failed = false) {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
    paint_items(tools, items_, store.wanted(retry_failed), store,
                {.batch_size = 8, .max_retries = max_retries}, heard);
  }
  // Tools that ask `spoil` first: what it throws, the painter throws; the error that it returns is
  // that of the first picture.
  using Spoil = std::function<std::optional<ErrorInfo>(std::span<const PreparedRequest>)>;
  PaintTools spoiled(Spoil spoil) {
    PaintTools tools(pipeline_);
    tools.paint = [this, spoil = std::move(spoil)](std::span<const PreparedRequest> requests,
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

TEST_F(PaintingFaults, WhereMemoryDoesNotLastHalfIsTried) {
  ASSERT_EQ(truth_.size(), 8u);
  Heard heard;
  paint(spoiled([](auto requests) -> std::optional<ErrorInfo> {
          if (requests.size() > 4) run_out_of_memory();
          if (requests.size() > 2) throw std::bad_alloc();
          return std::nullopt;
        }),
        heard);
  EXPECT_EQ(heard.fewer, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(heard.done, "abcdefgh");
  EXPECT_EQ(folder_.outputs(), truth_);
  EXPECT_EQ(read_job_report(folder_.out()).shards.front().at_once, 2);
}

// The batch has handed out pictures when memory ends: only the rest is painted again.
TEST_F(PaintingFaults, WhatWasHandedOutStays) {
  struct After final : GenerateListener {
    GenerateListener* to = nullptr;
    int left = 0;
    Flow on_progress(const GenerateProgress& progress) override {
      return to->on_progress(progress);
    }
    void on_picture(GeneratedPicture&& picture) override {
      if (left-- == 0) throw std::bad_alloc();
      to->on_picture(std::move(picture));
    }
  };
  PaintTools tools(pipeline_);
  int runs = 0;
  tools.paint = [&](std::span<const PreparedRequest> requests, GenerateListener& listener) {
    After after;
    after.to = &listener;
    after.left = ++runs == 1 ? 3 : 100;
    pipeline_.run(requests, after);
  };
  Heard heard;
  paint(tools, heard);
  EXPECT_EQ(heard.done, "abcdefgh") << "each once";
  EXPECT_EQ(heard.fewer, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(runs, 3) << "eight, then the five that are left by four";
  EXPECT_EQ(folder_.outputs(), truth_);
}

TEST_F(PaintingFaults, AnItemThatFitsNowhereFailsAlone) {
  Heard heard;
  paint(spoiled([](auto requests) -> std::optional<ErrorInfo> {
          for (const PreparedRequest& request : requests) {
            if (is_item(request, "c")) run_out_of_memory();
          }
          return std::nullopt;
        }),
        heard);
  EXPECT_EQ(heard.failed, "c");
  EXPECT_EQ(heard.codes, (std::vector<std::string>{"E_TEST_MEMORY"}));
  EXPECT_EQ(heard.done, "abdefgh");
  Heard again;
  paint(PaintTools(pipeline_), again, 0, true);
  EXPECT_EQ(again.done, "c");
  EXPECT_EQ(folder_.outputs(), truth_);
}

// Blocks that are really refused, by the allocator, at every size at which it matters.
TEST_F(PaintingFaults, RefusedBlocksCostNoPicture) {
  // Prompts so long that the cache of a batch is larger than any other block.
  for (SettledItem& item : items_) item.item.prompt += " " + std::string(300, 'a');
  Heard undisturbed;
  paint(PaintTools(pipeline_), undisturbed);
  truth_ = folder_.outputs();
  int halved = 0, whole = 0;
  for (std::size_t bytes = std::size_t{1} << 22; bytes >= 4096; bytes /= 2) {
    folder_.clear();
    GeneratePipeline pipeline(options());
    pipeline.load();
    Heard heard;
    bool ended = false;
    {
      BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
      const std::vector<std::size_t> wanted = store.wanted(false);
      const PaintTools tools(pipeline);
      const ScarceMemory scarce(bytes);
      try {
        paint_items(tools, items_, wanted, store, {.batch_size = 8}, heard);
      } catch (const Error& error) {
        ended = error.info().code == "E_BATCH_FAILING" || error.info().kind == ErrorKind::kMemory;
        EXPECT_TRUE(ended) << error.what();
      }
      if (scarce.refused() > 0 && !ended && heard.failed.empty()) ++halved;
      if (scarce.refused() == 0) ++whole;
    }
    Heard rest;
    paint(PaintTools(pipeline_), rest, 0, true);
    ASSERT_EQ(folder_.outputs(), truth_) << bytes;
    for (const char id : heard.done) ASSERT_EQ(rest.done.find(id), std::string::npos) << bytes;
    if (ended) break;  // nothing fits any more
  }
  std::printf("%d runs went on with fewer at once, %d had memory enough\n", halved, whole);
  EXPECT_GE(halved, 1);
  EXPECT_GE(whole, 1);
}

TEST_F(PaintingFaults, FiveAlikeInARowEndTheRun) {
  Heard heard;
  const PaintTools tools = spoiled([](auto requests) -> std::optional<ErrorInfo> {
    if (requests.size() > 1) run_out_of_memory();  // so that they come one by one
    if (is_item(requests.front(), "a")) return std::nullopt;
    return ErrorInfo{.code = "E_LOGITS", .expected = "numbers", .found = "NaN"};
  });
  try {
    paint(tools, heard);
    FAIL() << "the whole list was marked failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_BATCH_FAILING");
    EXPECT_EQ(error.info().found, "NaN");
    EXPECT_EQ(error.exit_code(), 1);
  }
  EXPECT_EQ(heard.done, "a");
  EXPECT_EQ(heard.failed, "bcdef") << "the rest is pending";
  Heard rest;
  paint(PaintTools(pipeline_), rest);
  EXPECT_EQ(rest.done, "gh");
  Heard retried;
  paint(PaintTools(pipeline_), retried, 0, true);
  EXPECT_EQ(retried.done, "bcdef");
  EXPECT_EQ(folder_.outputs(), truth_);
}

TEST_F(PaintingFaults, FourAlikeOrFiveOfTwoKindsDoNot) {
  int calls = 0;
  Heard heard;
  paint(spoiled([&](auto requests) -> std::optional<ErrorInfo> {
          if (requests.size() > 1) run_out_of_memory();
          ++calls;
          if (calls == 5) return std::nullopt;
          return ErrorInfo{.code = calls < 5 ? "E_ONE" : calls % 2 == 0 ? "E_TWO" : "E_THREE"};
        }),
        heard);
  EXPECT_EQ(heard.done, "e");
  EXPECT_EQ(heard.failed, "abcdfgh");
}

TEST_F(PaintingFaults, ItemsAreTriedAgainAsOftenAsAsked) {
  const auto fails = [this](int times) {
    return spoiled([times, count = 0](auto requests) mutable -> std::optional<ErrorInfo> {
      if (!is_item(requests.front(), "a") || count++ >= times) return std::nullopt;
      return ErrorInfo{.code = "E_ONCE", .found = "bad luck"};
    });
  };
  Heard twice;
  paint(fails(2), twice, 2);
  EXPECT_EQ(twice.retried, "aa");
  EXPECT_EQ(twice.failed, "");
  EXPECT_EQ(twice.done.size(), 8u);
  EXPECT_EQ(folder_.outputs(), truth_);
  folder_.clear();
  Heard thrice;
  paint(fails(3), thrice, 2);
  EXPECT_EQ(thrice.retried, "aa");
  EXPECT_EQ(thrice.failed, "a");
  folder_.clear();
  Heard never;
  paint(fails(1), never);
  EXPECT_EQ(never.retried, "");
  EXPECT_EQ(never.failed, "a");
  folder_.clear();
  // A stranger's file is there however often it is met.
  std::filesystem::create_directories(folder_.out());
  put_file(folder_.out() / "b.png", "mine");
  Heard stranger;
  paint(PaintTools(pipeline_), stranger, 5);
  EXPECT_EQ(stranger.retried, "");
  EXPECT_EQ(stranger.failed, "b");
}

// A describer that fails for one picture.
class Words final : public Describer {
 public:
  const std::vector<std::string>& endings() const override { return endings_; }
  std::vector<Described> describe(std::span<const ToDescribe> pictures) override {
    std::vector<Described> out;
    for (const ToDescribe& picture : pictures) {
      Described& one = out.emplace_back();
      one.texts = {"a picture of " + std::to_string(picture.image->width), "the same, pruned"};
      if (picture.id == bad) one.error = ErrorInfo{.code = "E_WORDS", .found = "none"};
    }
    ++runs;
    return out;
  }
  std::string bad;
  int runs = 0;

 private:
  std::vector<std::string> endings_ = {".txt", ".fastv.txt"};
};

TEST_F(PaintingFaults, TextsArePutDownWithTheirPicture) {
  Words words;
  words.bad = "d";
  Heard heard;
  paint(PaintTools(pipeline_, &words), heard);
  EXPECT_EQ(words.runs, 1) << "a batch is described at once";
  EXPECT_EQ(heard.failed, "d");
  EXPECT_EQ(heard.codes, (std::vector<std::string>{"E_WORDS"}));
  const auto outputs = folder_.outputs();
  EXPECT_EQ(outputs.size(), 3u * 7);
  EXPECT_EQ(outputs.at("a.txt"), "a picture of 32");
  EXPECT_EQ(outputs.at("a.fastv.txt"), "the same, pruned");
  EXPECT_EQ(outputs.at("a.png"), truth_.at("a.png")) << "texts change no picture";
  EXPECT_FALSE(outputs.contains("d.txt"));
  const JobReport report = read_job_report(folder_.out());
  const std::vector<RecordedFile>& files = report.records.at("b").files;
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].name, "b.txt");
  EXPECT_EQ(files[2].name, "b.png") << "the picture last";
  // One that is gone makes the item pending.
  std::filesystem::remove(folder_.out() / "b.txt");
  words.bad.clear();
  Heard again;
  paint(PaintTools(pipeline_, &words), again, 0, true);
  EXPECT_EQ(again.done, "bd");
  EXPECT_EQ(folder_.outputs().size(), 3u * 8);
}

}  // namespace
}  // namespace tessera
