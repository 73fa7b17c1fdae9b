// Captions of a job that go wrong: texts that fail, memory that does not last for them, failures of
// generator and captioner in one row.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <set>

#include "apps/jobs/job_check.h"
#include "apps/runtime/process_use.h"
#include "tests/support/scarce_memory.h"
#include "tests/unit/jobs/image_run.h"

namespace tessera::describing_faults_test {
namespace {

// A describer that a test can spoil: what `spoil` throws it throws; `bad` has an error for a text.
class Words final : public ImageDescriber {
 public:
  const std::vector<std::string>& endings() const override { return endings_; }
  std::vector<Described> describe(std::span<const ToDescribe> images) override {
    runs.push_back(images.size());
    log += "D" + std::to_string(images.size()) + " ";
    if (spoil) spoil(images);
    std::vector<Described> out;
    for (const ToDescribe& image : images) {
      Described& one = out.emplace_back();
      one.texts = {"an image of " + std::to_string(image.image->width), "the same, pruned"};
      if (image.id == bad) one.error = bad_error;
    }
    return out;
  }
  void release() override { log += "back "; }

  std::function<void(std::span<const ToDescribe>)> spoil;
  std::string bad, log;
  ErrorInfo bad_error{.code = "E_WORDS", .found = "none"};
  std::vector<std::size_t> runs;

 private:
  std::vector<std::string> endings_ = {".txt", ".fastv.txt"};
};

bool holds(std::span<const ToDescribe> images, const char* id) {
  return std::any_of(images.begin(), images.end(),
                     [&](const ToDescribe& image) { return image.id == id; });
}

class DescribingFaults : public GenerationFaults {
 protected:
  // Tools whose images fail as `verify` says of their ids.
  using Verifier = std::function<std::optional<ErrorInfo>(const std::string&)>;
  ImageTools verified(ImageDescriber& describer, Verifier verifier) {
    ImageTools tools(task_, &describer);
    tools.generate = [this, verifier](std::unique_ptr<GenerateSource> source,
                                   GenerateListener& listener) {
      Spoiled between(
          [&](const PreparedRequest& request, std::size_t) {
            return verifier(request.facts.prompt.substr(sizeof "picture"));
          },
          listener);
      task_.run(between.source(std::move(source)), between);
    };
    return tools;
  }
  // What a run with `words` writes when nothing goes wrong.
  std::map<std::string, std::string> undisturbed() {
    Words words;
    Heard heard;
    generate(ImageTools(task_, &words), heard);
    auto outputs = folder_.outputs();
    folder_.clear();
    return outputs;
  }
};

TEST_F(DescribingFaults, TextsArePutDownWithTheirImage) {
  Words words;
  words.bad = "d";
  Heard heard;
  generate(ImageTools(task_, &words), heard);
  EXPECT_EQ(words.runs, (std::vector<std::size_t>{8})) << "a batch is described at once";
  EXPECT_EQ(heard.failed, "d");
  EXPECT_EQ(heard.codes, (std::vector<std::string>{"E_WORDS"}));
  const auto outputs = folder_.outputs();
  EXPECT_EQ(outputs.size(), 3u * 7);
  EXPECT_EQ(outputs.at("a.txt"), "an image of 32");
  EXPECT_EQ(outputs.at("a.fastv.txt"), "the same, pruned");
  EXPECT_EQ(outputs.at("a.png"), truth_.at("a.png")) << "texts change no image";
  EXPECT_FALSE(outputs.contains("d.txt"));
  const JobReport report = read_job_report(folder_.out());
  const std::vector<RecordedFile>& files = report.records.at("b").files;
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].name, "b.txt");
  EXPECT_EQ(files[2].name, "b.png") << "the image last";
  // One that is gone makes the item pending.
  std::filesystem::remove(folder_.out() / "b.txt");
  words.bad.clear();
  Heard again;
  generate(ImageTools(task_, &words), again, 0, true);
  EXPECT_EQ(again.done, "bd");
  EXPECT_EQ(folder_.outputs().size(), 3u * 8);
}

// Missing memory for texts, however it is notified: thrown by the allocator or by the captioner, or as
// the error of a text.
TEST_F(DescribingFaults, WhereMemoryDoesNotLastFewerTextsAreTried) {
  const auto truth = undisturbed();
  for (const int way : {0, 1, 2}) {
    SCOPED_TRACE(way);
    folder_.clear();
    Words words;
    words.bad_error = {.kind = ErrorKind::kMemory, .code = "E_TEXT_MEMORY"};
    words.spoil = [&](auto images) {
      words.bad.clear();
      if (images.size() <= 2) return;
      if (way == 0) throw std::bad_alloc();
      if (way == 1) run_out_of_memory();
      words.bad = images.back().id;
    };
    ImageTools tools(task_, &words);
    std::vector<std::int64_t> generated;
    tools.generate = [&](std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
      generated.push_back(source->needs().slots);
      task_.run(std::move(source), listener);
    };
    Heard heard;
    generate(tools, heard);
    EXPECT_EQ(heard.done, "abcdefgh");
    EXPECT_EQ(heard.failed, "");
    EXPECT_EQ(generated, (std::vector<std::int64_t>{8})) << "images are not generated again";
    EXPECT_EQ(words.runs, (std::vector<std::size_t>{8, 8, 4, 2, 2, 2, 2}));
    EXPECT_EQ(heard.turns, 1);
    EXPECT_EQ(heard.fewer_texts, (std::vector<std::int64_t>{4, 2})) << "once a level";
    EXPECT_TRUE(heard.fewer.empty());
    EXPECT_EQ(folder_.outputs(), truth);
  }
}

TEST_F(DescribingFaults, ATextThatFitsNowhereFailsAlone) {
  const auto truth = undisturbed();
  Words words;
  words.spoil = [](auto images) {
    if (holds(images, "c")) run_out_of_memory();
  };
  Heard heard;
  generate(ImageTools(task_, &words), heard);
  EXPECT_EQ(heard.ended, "abcdefgh");
  EXPECT_EQ(heard.failed, "c");
  EXPECT_EQ(heard.codes, (std::vector<std::string>{"E_TEST_MEMORY"}));
  EXPECT_EQ(heard.fewer_texts, (std::vector<std::int64_t>{4, 2, 1}));
  Heard again;
  words.spoil = nullptr;
  generate(ImageTools(task_, &words), again, 0, true);
  EXPECT_EQ(again.done, "c");
  EXPECT_EQ(folder_.outputs(), truth);
}

TEST_F(DescribingFaults, ACaptionerThatFitsNowhereEndsTheRun) {
  const auto truth = undisturbed();
  Words words;
  words.spoil = [](auto) { throw std::bad_alloc(); };
  Heard heard;
  try {
    generate(ImageTools(task_, &words), heard);
    FAIL() << "the whole list was marked failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_BATCH_FAILING");
    EXPECT_EQ(error.exit_code(), 1);
  }
  EXPECT_EQ(heard.failed, "abcde") << "the rest is pending";
  words.spoil = nullptr;
  Heard rest;
  generate(ImageTools(task_, &words), rest, 0, true);
  EXPECT_EQ(rest.done, "abcdefgh");
  EXPECT_EQ(folder_.outputs(), truth);
}

// Before texts are tried again the generator's cache is gone from the process.
TEST_F(DescribingFaults, TheGeneratorGivesItsMemoryBack) {
  std::vector<PreparedRequest> requests;
  for (SettledItem& item : items_) {
    item.item.prompt += " " + std::string(900, 'a');
    requests.push_back(task_.prepare(request_of(item)));
  }
  const std::size_t cache = task_.plan(requests).kv;
  ASSERT_GT(cache, std::size_t{2} << 20);
  Words words;
  std::vector<std::uint64_t> resident;
  words.spoil = [&](auto) {
    resident.push_back(process_use().resident_bytes);
    if (resident.size() == 1) run_out_of_memory();
  };
  Heard heard;
  generate(ImageTools(task_, &words), heard);
  EXPECT_EQ(heard.done, "abcdefgh");
  ASSERT_EQ(resident.size(), 2u);
  ASSERT_GT(resident[0], resident[1]);
  std::printf("cache of %zu KiB, %llu KiB fewer resident\n", cache >> 10,
              static_cast<unsigned long long>(resident[0] - resident[1]) >> 10);
  EXPECT_GT(static_cast<double>(resident[0] - resident[1]), 0.9 * static_cast<double>(cache));
}

// And the captioner's before a batch is generated again: as many at once first, then fewer.
TEST_F(DescribingFaults, TheCaptionerGivesItsMemoryBack) {
  for (const int fails : {1, 2}) {
    SCOPED_TRACE(fails);
    folder_.clear();
    Words words;
    ImageTools tools(task_, &words);
    int left = fails;
    tools.generate = [&](std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
      words.log += "P" + std::to_string(source->needs().slots) + " ";
      if (!words.runs.empty() && left-- > 0) throw std::bad_alloc();
      task_.run(std::move(source), listener);
    };
    Heard heard;
    {
      BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
      generate_images(tools, items_, store.wanted(false), store, {.batch_size = 4}, heard);
    }
    EXPECT_EQ(heard.done, "abcdefgh");
    EXPECT_EQ(heard.turns, 1);
    EXPECT_EQ(words.log,
              fails == 1 ? "P4 D4 P4 back P4 D4 " : "P4 D4 P4 back P4 back P2 D2 back P2 D2 ");
    EXPECT_EQ(heard.fewer, fails == 1 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{2});
  }
}

TEST_F(DescribingFaults, ImagesHandedOutBeforeMemoryEndedAreDescribed) {
  const auto truth = undisturbed();
  struct After final : GenerateListener {
    void on_image(GeneratedImage&& image) override {
      if (left-- == 0) throw std::bad_alloc();
      to->on_image(std::move(image));
    }
    GenerateListener* to = nullptr;
    int left = 0;
  };
  Words words;
  ImageTools tools(task_, &words);
  std::vector<std::int64_t> generated;
  tools.generate = [&](std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
    After after;
    after.to = &listener;
    after.left = generated.empty() ? 3 : 100;
    generated.push_back(source->needs().slots);
    task_.run(std::move(source), after);
  };
  Heard heard;
  generate(tools, heard);
  EXPECT_EQ(heard.done, "abcdefgh");
  EXPECT_EQ(generated, (std::vector<std::int64_t>{8, 5}));
  EXPECT_EQ(folder_.outputs(), truth);
}

// Items end in their order: a success between failures of the generator counts, though its text
// takes longer.
TEST_F(DescribingFaults, FailuresAreCountedInTheOrderOfItems) {
  const auto fails = [](const std::string& ids) -> Verifier {
    return [ids](const std::string& id) -> std::optional<ErrorInfo> {
      if (ids.find(id.front()) == std::string::npos) return std::nullopt;
      return ErrorInfo{.code = "E_LOGITS", .expected = "numbers", .found = "NaN"};
    };
  };
  Words words;
  Heard heard;
  generate(verified(words, fails("abdefh")), heard);
  EXPECT_EQ(heard.ended, "abcdefgh");
  EXPECT_EQ(heard.done, "cg") << "six fail, never five in a row";
  folder_.clear();
  Heard five;
  EXPECT_THROW(generate(verified(words, fails("bcdef")), five), Error);
  EXPECT_EQ(five.ended, "abcdef");
  // An image that cannot be described is one of the row.
  folder_.clear();
  words.bad = "d";
  words.bad_error.code = "E_LOGITS";
  Heard both;
  EXPECT_THROW(generate(verified(words, fails("bcef")), both), Error);
  EXPECT_EQ(both.ended, "abcdef");
  EXPECT_EQ(both.done, "a");
}

// The real captioner while the allocator refuses blocks of every size at which it matters.
class ScarceDescribing : public DescribingFaults {
 protected:
  static DescribeOptions captioner() {
    DescribeOptions out;
    out.model = "test:tiny";
    out.device = "cpu";
    out.threads = 1;
    out.batch_size = 4;
    out.max_tokens = 700;  // so that its cache is larger than the generator's
    return out;
  }
};

TEST_F(ScarceDescribing, RefusedBlocksCostNoTextAndNoImage) {
  if (!ScarceMemory::kWorks) GTEST_SKIP() << "sanitizers bring a malloc of their own";
  CaptionDescriber plenty(captioner(), {}, nullptr);
  plenty.load();
  Heard undisturbed;
  generate(ImageTools(task_, &plenty), undisturbed);
  const auto truth = folder_.outputs();
  ASSERT_EQ(truth.size(), 16u);
  int fewer = 0, whole = 0, notices = 0;
  for (std::size_t bytes = 1'500'000; bytes >= 4096; bytes /= 2) {
    folder_.clear();
    CaptionDescriber describer(captioner(), {}, [&](std::string_view) { ++notices; });
    describer.load();
    Heard heard;
    bool ended = false;
    {
      BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
      const std::vector<std::size_t> wanted = store.wanted(false);
      const ImageTools tools(task_, &describer);
      const ScarceMemory scarce(bytes);
      try {
        generate_images(tools, items_, wanted, store, {.batch_size = 4}, heard);
      } catch (const Error& error) {
        ended = true;
        EXPECT_TRUE(error.info().code == "E_BATCH_FAILING" ||
                    error.info().kind == ErrorKind::kMemory)
            << error.what();
      }
      if (scarce.refused() == 0) ++whole;
    }
    if (!heard.fewer_texts.empty() && heard.done.size() == 8) ++fewer;
    const std::set<std::int64_t> levels(heard.fewer_texts.begin(), heard.fewer_texts.end());
    EXPECT_EQ(levels.size(), heard.fewer_texts.size()) << "once a level";
    EXPECT_GE(heard.turns, levels.empty() ? 0 : 1) << "before fewer are tried";
    Heard rest;
    generate(ImageTools(task_, &plenty), rest, 0, true);
    ASSERT_EQ(folder_.outputs(), truth) << bytes;
    for (const char id : heard.done) ASSERT_EQ(rest.done.find(id), std::string::npos) << bytes;
    if (ended) break;  // nothing fits any more
  }
  std::printf("%d runs went on with fewer texts at once, %d had memory enough\n", fewer, whole);
  EXPECT_GE(fewer, 1);
  EXPECT_GE(whole, 1);
  EXPECT_EQ(notices, 0) << "the job tells, not the captioner";
}

TEST_F(ScarceDescribing, TheRealCaptionerGivesItsMemoryBack) {
  DescribeOptions options = captioner();
  options.max_tokens = 600;
  CaptionDescriber describer(options, {}, nullptr);
  describer.load();
  std::vector<ToDescribe> images;
  for (const char* id : {"a", "b", "c", "d"}) {
    images.push_back({id, std::make_shared<const Image>(32, 32)});
  }
  const std::vector<Described> first = describer.describe(images);
  // What is allocated: blocks of this size do not leave the process at once.
  const auto held = [] {
    const struct mallinfo2 use = mallinfo2();
    return use.uordblks + use.hblkhd;
  };
  const std::size_t before = held();
  describer.release();
  const std::size_t after = held();
  ASSERT_GT(before, after);
  std::printf("%zu KiB released\n", (before - after) >> 10);
  EXPECT_GT(before - after, std::size_t{1} << 20);
  const std::vector<Described> second = describer.describe(images);
  ASSERT_EQ(second.size(), first.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(second[i].texts, first[i].texts);
}

}  // namespace
}  // namespace tessera::describing_faults_test
