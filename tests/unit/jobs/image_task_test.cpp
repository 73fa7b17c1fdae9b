// Generating for real: a process that ends at every change it makes to the disk while a model generates,
// images that are known by what they say of themselves, failures that are alike.
#include <sys/wait.h>

#include <csignal>
#include <cstdio>

#include "apps/jobs/image_task.h"
#include "apps/jobs/item_files.h"
#include "apps/jobs/job_check.h"
#include "apps/runtime/metadata.h"
#include "tests/support/killer.h"
#include "tests/unit/jobs/store_job.h"
#include "vision/image/png.h"

namespace tessera::image_task_test {
namespace {

namespace fs = std::filesystem;

class Heard final : public ImageJobListener {
 public:
  void on_done(const SettledItem& item, const ItemRecord&, const GeneratedImage&,
               const Described&) override {
    ids += item.item.id;
    if (pipe >= 0 && ::write(pipe, item.item.id.data(), 1) != 1) ::_exit(96);
  }
  void on_failed(const SettledItem& item, const ErrorInfo& error) override {
    failed += item.item.id;
    code = error.code;
  }
  std::string ids, failed, code;
  int pipe = -1;
};

class Generation : public ::testing::Test {
 protected:
  Generation() : task_(runtime_, options()), describer_(captioner(), {}, nullptr) {
    task_.load();
    describer_.load();
  }
  static DescribeOptions captioner() {
    DescribeOptions out;
    out.model = "test:tiny";
    out.device = "cpu";
    out.threads = 1;
    out.batch_size = 2;
    out.max_tokens = 8;
    return out;
  }

  static GenerateOptions options() {
    GenerateOptions out;
    out.model = "test:tiny";
    out.device = "cpu";
    out.threads = 1;  // a child of fork() has this thread only
    out.batch_size = 2;
    return out;
  }
  void generate(Heard& heard, StoreOptions store_options = {}) {
    store_options.next_to = {".json", ".txt"};
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, store_options);
    generate_images(ImageTools(task_, &describer_), items_, store.wanted(false), store,
                    {.batch_size = 2, .sidecar = true}, heard);
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = small_job(3);
  Runtime runtime_;
  GenerateTask task_;
  CaptionDescriber describer_;
};

TEST_F(Generation, KilledAtEveryChange) {
  std::uint64_t changes = 0;
  Heard all;
  {
    const ChangeCounter counter;
    generate(all);
    changes = counter.count;
  }
  ASSERT_EQ(all.ids, "abc");
  const auto truth = folder_.outputs();
  ASSERT_EQ(truth.size(), 9u);
  int kills = 0;
  for (std::uint64_t nth = 1; nth <= changes; ++nth) {
    SCOPED_TRACE(nth);
    folder_.clear();
    int heard[2];
    ASSERT_EQ(::pipe(heard), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const Killer killer(nth, nth % 2 == 0 ? Killer::When::kBefore : Killer::When::kAfter, 0);
      Heard listener;
      listener.pipe = heard[1];
      generate(listener);
      ::_exit(0);
    }
    ::close(heard[1]);
    std::string before;
    char id = 0;
    while (::read(heard[0], &id, 1) == 1) before += id;
    ::close(heard[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    ++kills;
    Heard rest;
    generate(rest);
    for (const char done : before) ASSERT_EQ(rest.ids.find(done), std::string::npos);
    ASSERT_GE(before.size() + rest.ids.size() + 1, items_.size());
    ASSERT_EQ(folder_.outputs(), truth);
  }
  std::printf("killed %d times while generating\n", kills);
  EXPECT_GT(kills, 50);
}

TEST_F(Generation, ImagesAreKnownByWhatTheySay) {
  Heard heard;
  generate(heard);
  const auto truth = folder_.outputs();
  // Equal facts in other bytes, as another build of the compressor would write them.
  const PngTexts texts = read_png_texts(folder_.out() / "b.png");
  const Image pixels = read_own_png(folder_.out() / "b.png");
  std::vector<PngText> more = texts.texts;
  more.push_back({"Comment", "by another build"});
  const std::string other = encode_png(pixels, more, texts.xmp);
  ASSERT_NE(other, truth.at("b.png"));
  const std::string of_c = truth.at("c.png");
  folder_.clear();
  fs::create_directories(folder_.out());
  put_file(folder_.out() / "c.txt", truth.at("c.txt"));  // equal texts are ours
  put_file(folder_.out() / "b.png", other);
  put_file(folder_.out() / "a.png", of_c);  // an image of ours, but of another item
  Heard again;
  generate(again);
  EXPECT_EQ(again.ids, "bc");
  EXPECT_EQ(again.failed, "a");
  EXPECT_EQ(again.code, "E_OUTPUT_EXISTS");
  EXPECT_EQ(get_file(folder_.out() / "b.png"), truth.at("b.png"));
  EXPECT_EQ(get_file(folder_.out() / "a.png"), of_c);
}

// After records were lost: an image is taken for its item's if its bytes are exactly what this
// program writes for such pixels and facts.
TEST_F(Generation, ImagesThatProveThemselvesAreNotGeneratedAgain) {
  const auto run = [&](Heard& heard, bool sidecar) {
    StoreOptions options;
    options.recognise = [&, sidecar](const SettledItem& item, const fs::path& folder) {
      return proven_files(item, task_.prepare(request_of(item)).facts, {.sidecar = sidecar},
                          folder);
    };
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, options);
    generate_images(ImageTools(task_), items_, store.wanted(false), store,
                    {.batch_size = 2, .sidecar = sidecar}, heard);
    return store.recognised();
  };
  const fs::path journal = folder_.out() / kStateFolder / journal_name(1, 1);
  Heard first;
  run(first, false);
  const auto truth = folder_.outputs();
  damage_line(journal, "\"id\":\"a\"");
  damage_line(journal, "\"id\":\"b\"");
  const std::string damaged = get_file(journal);
  const auto again = [&](const std::string& name, const std::string& bytes) {
    put_file(journal, damaged);
    put_file(folder_.out() / name, bytes);
    Heard heard;
    const std::uint64_t recognised = run(heard, false);
    EXPECT_EQ(recognised + heard.ids.size() + heard.failed.size(), 2u);
    put_file(folder_.out() / name, truth.at(name));
    return heard.ids + "/" + heard.failed;
  };
  EXPECT_EQ(again("a.png", truth.at("a.png")), "/");
  EXPECT_EQ(again("a.png", truth.at("b.png")), "/a") << "another item's";
  std::string flipped = truth.at("a.png");
  flipped[flipped.size() - 40] ^= 1;
  EXPECT_EQ(again("a.png", flipped), "/a");
  EXPECT_EQ(again("a.png", truth.at("a.png").substr(0, flipped.size() - 12)), "/a") << "no end";
  EXPECT_EQ(again("a.png", truth.at("a.png") + "x"), "a/") << "its facts, and something else";
  items_[0].item.prompt = "another";
  EXPECT_TRUE(proven_files(items_[0], task_.prepare(request_of(items_[0])).facts, {}, folder_.out())
                  .empty())
      << "another prompt";
  items_[0].item.prompt = "image a";
  EXPECT_TRUE(proven_files(items_[0], task_.prepare(request_of(items_[0])).facts,
                           {.endings = {".txt"}}, folder_.out())
                  .empty())
      << "texts prove nothing";
}

TEST_F(Generation, AImageIsProvenByTheFactsNextToIt) {
  Heard heard;
  StoreOptions options;
  {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, options);
    generate_images(ImageTools(task_), items_, store.wanted(false), store,
                    {.batch_size = 2, .record = RecordFacts::kOnlyAiMark, .sidecar = true}, heard);
  }
  const auto proven = [&] {
    return proven_files(items_[1], task_.prepare(request_of(items_[1])).facts, {.sidecar = true},
                        folder_.out())
        .size();
  };
  EXPECT_EQ(proven(), 2u);
  const std::string facts = get_file(folder_.out() / "b.json");
  put_file(folder_.out() / "b.json", get_file(folder_.out() / "a.json"));
  EXPECT_EQ(proven(), 0u);
  put_file(folder_.out() / "b.json", facts);
  std::string bytes = get_file(folder_.out() / "b.png");
  bytes[bytes.size() / 2] ^= 1;
  put_file(folder_.out() / "b.png", bytes);
  EXPECT_EQ(proven(), 0u);
}

// Notes what slots did until the last image began.
class Counted final : public GenerateSource {
 public:
  Counted(std::unique_ptr<GenerateSource> inner, const GenerateTask& task, LaneStats& last_begun)
      : inner_(std::move(inner)), task_(task), last_begun_(last_begun) {}
  LoopNeeds needs() const override { return inner_->needs(); }
  std::optional<PreparedRequest> next(Wait wait) override {
    auto request = inner_->next(wait);
    if (request) last_begun_ = task_.stats();
    return request;
  }
  bool more() const override { return inner_->more(); }

 private:
  std::unique_ptr<GenerateSource> inner_;
  const GenerateTask& task_;
  LaneStats& last_begun_;
};

// A job is one submission: a slot takes the next item as soon as its image is finished, over all
// items, whatever their order of commits.
TEST_F(Generation, SlotsAreFilledAgainOverTheWholeJob) {
  for (const char* method : {"gumbel", "tree"}) {
    folder_.clear();
    GenerateOptions options = Generation::options();
    options.batch_size = 8;
    options.method = decode_method(method);
    Runtime runtime;
    GenerateTask task(runtime, options);
    std::vector<JobItem> items;
    for (int i = 0; i < 64; ++i) {
      JobItem item{.line = static_cast<std::uint64_t>(i + 1)};
      item.id = std::to_string(100 + i);
      item.prompt = "picture " + std::string(static_cast<std::size_t>(i % 5), 'x');
      items.push_back(item);
    }
    const auto settled = settle_items(items, {}, OutputTemplate("{id}.png"), "job");
    Heard heard;
    BatchStore store(folder_.out(), settled, kStoreOptions, kStoreModel, {});
    ImageTools tools(task);
    LaneStats last_begun;
    int submissions = 0;
    tools.generate = [&](std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
      ++submissions;
      task.run(std::make_unique<Counted>(std::move(source), task, last_begun), listener);
    };
    generate_images(tools, settled, store.wanted(false), store, {.batch_size = 8}, heard);
    EXPECT_EQ(submissions, 1);
    std::string in_order;
    for (const SettledItem& item : settled) in_order += item.item.id;
    EXPECT_EQ(heard.ids, in_order);
    const auto share = [](const LaneStats& stats) {
      return static_cast<double>(stats.slots_at_work) / static_cast<double>(stats.slot_passes);
    };
    std::printf("%s: %.3f of the slots at work until the last image begins, %.3f in all\n", method,
                share(last_begun), share(task.stats()));
    EXPECT_GE(share(last_begun), 0.97) << method;
    EXPECT_GE(share(task.stats()), 0.9) << method;
  }
}

TEST_F(Generation, PromptsAreCheckedBeforeAnyIsGenerated) {
  std::vector<SettledItem> items = items_;
  items[1].item.prompt = std::string(20000, 'x') + " y";
  const JobCheck check = check_items(task_, items, 2, "job.txt");
  ASSERT_EQ(check.errors.size(), 1u);
  EXPECT_EQ(check.errors[0].file, "job.txt");
  EXPECT_EQ(check.errors[0].where, "line 2, column 1");
  EXPECT_EQ(check_items(task_, items_, 2, "job.txt").worst.size(), 2u);
}

}  // namespace
}  // namespace tessera::image_task_test
