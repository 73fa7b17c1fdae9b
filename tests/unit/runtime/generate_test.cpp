// The generate task on the seeded tiny model: the bytes of an image depend on its request alone.
#include "apps/runtime/generate_task.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "vision/image/png.h"

namespace tessera {
namespace {

class Collector : public GenerateListener {
 public:
  void on_image(GeneratedImage&& image) override {
    const std::size_t index = image.index;
    EXPECT_TRUE(images.emplace(index, std::move(image)).second) << "emitted twice";
  }
  Flow on_progress(const GenerateProgress& progress) override {
    ++passes;
    EXPECT_LE(progress.rows_done, progress.rows);
    EXPECT_LE(progress.tokens_done, progress.tokens);
    return passes == stop_at ? Flow::kStop : Flow::kContinue;
  }
  std::int64_t preview_rows() const override { return interval; }
  void on_preview(const GenerateProgress& progress, const std::vector<Image>& images) override {
    EXPECT_EQ(images.size(), progress.images);
    preview_at.push_back(progress.rows_done);
    last_preview = images.front();
  }

  std::map<std::size_t, GeneratedImage> images;
  std::vector<std::int64_t> preview_at;
  Image last_preview;
  std::int64_t passes = 0, stop_at = -1, interval = 0;
};

// Keeps the last trace of every image.
class Tracer : public Collector {
 public:
  bool wants_trace() const override { return true; }
  void on_trace(const GenerateProgress& progress, std::span<const ImageTrace> heard) override {
    ++calls;
    EXPECT_EQ(heard.size(), progress.images);
    for (const ImageTrace& one : heard) {
      marks[one.index].assign(one.marks.begin(), one.marks.end());
      committed[one.index].assign(one.committed.begin(), one.committed.end());
    }
  }
  std::int64_t calls = 0;
  std::map<std::size_t, std::vector<TokenMark>> marks;
  std::map<std::size_t, std::vector<std::int32_t>> committed;
};

GenerateOptions tiny_options(int threads = 2, std::int64_t batch = 1) {
  GenerateOptions options;
  options.model = "test:tiny";
  options.threads = threads;
  options.batch_size = batch;
  return options;
}

std::vector<GenerateRequest> requests() {
  std::vector<GenerateRequest> out(7);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].prompt = "an image of " + std::string(i * 3 % 5, 'x') + " things";
    out[i].seed = 40 + i;
    if (i % 3 == 1) out[i].sampling.set(setting::kTopK, 12);
    if (i % 3 == 2) out[i].negative_prompt = "nothing";
    if (i == 4) out[i].sampling.set(setting::kGuidance, 1);
  }
  return out;
}

// What the file of each request holds, by request.
std::vector<std::string> generate(GenerateTask& task, const std::vector<GenerateRequest>& wanted) {
  std::vector<PreparedRequest> prepared;
  for (const GenerateRequest& request : wanted) prepared.push_back(task.prepare(request));
  Collector collector;
  EXPECT_TRUE(task.run(prepared, collector));
  std::vector<std::string> files;
  for (auto& [index, image] : collector.images) {
    EXPECT_EQ(image.status, ImageStatus::kDone);
    const ImageTexts texts = image_texts(image.facts, RecordFacts::kAll);
    files.push_back(encode_png(image.image, texts.texts, texts.xmp));
  }
  return files;
}

TEST(GenerateTask, ThreadsBatchAndOrderChangeNoByte) {
  const std::vector<GenerateRequest> wanted = requests();
  Runtime runtime;
  GenerateTask first(runtime, tiny_options(1, 1));
  const std::vector<std::string> truth = generate(first, wanted);
  ASSERT_EQ(truth.size(), wanted.size());
  for (std::size_t i = 1; i < truth.size(); ++i) EXPECT_NE(truth[i], truth[0]);
  for (const int threads : {1, 2, 3, 7}) {
    for (const std::int64_t batch : {1, 2, 5}) {
      GenerateTask task(runtime, tiny_options(threads, batch));
      EXPECT_EQ(generate(task, wanted), truth) << threads << " threads, batch " << batch;
      const std::vector<GenerateRequest> turned(wanted.rbegin(), wanted.rend());
      const std::vector<std::string> backwards = generate(task, turned);
      EXPECT_TRUE(std::equal(truth.begin(), truth.end(), backwards.rbegin(), backwards.rend()))
          << threads << " threads, batch " << batch << ", turned";
    }
  }
}

// By place in the grid, whatever control ids the stream has, in batches that do not come out even.
TEST(GenerateTask, TracesTellEveryCodeAndChangeNoByte) {
  for (const char* model : {"test:tiny", "test:rows"}) {
    for (const char* name : {"plain", "sjd", "gsd", "tree", "rows"}) {
      GenerateOptions options = tiny_options(2, 2);
      options.model = model;
      options.method = decode_method(name);
      Runtime runtime;
      GenerateTask task(runtime, options);
      std::vector<PreparedRequest> prepared;
      for (const auto& request : requests()) prepared.push_back(task.prepare(request));
      prepared.resize(3);
      Collector without;
      Tracer with;
      ASSERT_TRUE(task.run(prepared, without));
      ASSERT_TRUE(task.run(prepared, with));
      EXPECT_EQ(with.calls, with.passes);
      const auto controls =
          static_cast<std::size_t>(task.spec().model.image_tokens()) - with.images[0].codes.size();
      for (std::size_t i = 0; i < prepared.size(); ++i) {
        const GeneratedImage& image = with.images[i];
        ASSERT_EQ(image.image.rgb, without.images[i].image.rgb) << model << " " << name;
        ASSERT_EQ(with.marks[i].size(), image.codes.size()) << model << " " << name;
        double entropy = 0;
        for (std::size_t at = 0; at < image.codes.size(); ++at) {
          EXPECT_EQ(with.marks[i][at].id, image.codes[at]) << model << " " << name << " " << at;
          entropy += static_cast<double>(with.marks[i][at].entropy);
        }
        EXPECT_NEAR(entropy, image.meters.entropy, 1e-3) << "a control id has no entropy";
        std::size_t tokens = 0;
        for (const std::int32_t count : with.committed[i])
          tokens += static_cast<std::size_t>(count);
        EXPECT_EQ(tokens, image.codes.size() + controls);
      }
    }
  }
}

TEST(GenerateTask, SeedAndPromptMatter) {
  Runtime runtime;
  GenerateTask task(runtime, tiny_options());
  const std::vector<GenerateRequest> wanted = {{.prompt = "one", .seed = 1},
                                               {.prompt = "one", .seed = 2},
                                               {.prompt = "two", .seed = 1},
                                               {.prompt = "one", .seed = 1}};
  std::vector<PreparedRequest> prepared;
  for (const auto& request : wanted) prepared.push_back(task.prepare(request));
  Collector collector;
  task.run(prepared, collector);
  EXPECT_NE(collector.images[0].codes, collector.images[1].codes);
  EXPECT_NE(collector.images[0].codes, collector.images[2].codes);
  EXPECT_EQ(collector.images[0].image.rgb, collector.images[3].image.rgb);
}

// As both references of the family do.
TEST(GenerateTask, WhiteSpaceAroundAPromptChangesNothing) {
  Runtime runtime;
  GenerateTask task(runtime, tiny_options());
  const std::vector<GenerateRequest> wanted = {
      {.prompt = "a red  cube", .seed = 1},
      {.prompt = " \n\ta red  cube\u3000\u0085 ", .seed = 1},
      {.prompt = "a red cube", .seed = 1}};
  std::vector<PreparedRequest> prepared;
  for (const auto& request : wanted) prepared.push_back(task.prepare(request));
  Collector collector;
  task.run(prepared, collector);
  EXPECT_EQ(collector.images[0].codes, collector.images[1].codes);
  EXPECT_NE(collector.images[0].codes, collector.images[2].codes) << "blanks inside stay";
}

TEST(GenerateTask, NegativePromptChangesGuidedImages) {
  Runtime runtime;
  GenerateTask task(runtime, tiny_options());
  GenerateRequest plain{.prompt = "one", .seed = 1}, steered = plain;
  steered.negative_prompt = "two";
  const auto files = generate(task, {plain, steered});
  EXPECT_NE(files[0], files[1]);
}

TEST(GenerateTask, FactsTellWhatRan) {
  Runtime runtime;
  GenerateTask task(runtime, tiny_options());
  Collector collector;
  task.run(std::vector{task.prepare({.prompt = "one", .seed = 9})}, collector);
  const ImageFacts& facts = collector.images[0].facts;
  EXPECT_EQ(facts.tokens, task.spec().model.image_tokens());
  EXPECT_EQ(facts.passes, facts.tokens);
  EXPECT_EQ(facts.width, collector.images[0].image.width);
  EXPECT_EQ(facts.seed, 9u);
  EXPECT_EQ(facts.model, "test:tiny");
  EXPECT_TRUE(facts.preserves_distribution);
  EXPECT_EQ(collector.passes, facts.passes);
}

TEST(GenerateTask, StoppingHandsOutThePartialOnlyWithPreview) {
  Runtime runtime;
  GenerateTask task(runtime, tiny_options(2, 2));
  const std::vector<PreparedRequest> prepared = {task.prepare({.prompt = "one"}),
                                                 task.prepare({.prompt = "two"}),
                                                 task.prepare({.prompt = "three"})};
  for (const std::int64_t interval : {0, 1}) {
    Collector collector;
    collector.interval = interval;
    collector.stop_at = 20;  // of 64 tokens in rows of 8
    EXPECT_FALSE(task.run(prepared, collector));
    ASSERT_EQ(collector.images.size(), 2u) << "the batch that ran, no other";
    EXPECT_EQ(collector.images[0].status, ImageStatus::kStopped);
    EXPECT_EQ(collector.images[0].rows_done, 2);
    EXPECT_EQ(collector.images[0].image.rgb.empty(), interval == 0);
  }
}

TEST(GenerateTask, PreviewsComeEveryFewRowsAndEndInTheImage) {
  Runtime runtime;
  GenerateTask task(runtime, tiny_options());
  Collector collector;
  collector.interval = 3;
  task.run(std::vector{task.prepare({.prompt = "one"})}, collector);
  EXPECT_EQ(collector.preview_at, (std::vector<std::int64_t>{3, 6}));
  EXPECT_EQ(collector.last_preview.width, collector.images[0].image.width);
  EXPECT_EQ(task.decode_codes(collector.images[0].codes).rgb, collector.images[0].image.rgb);
}

// Row ends and the image end are tokens of the stream, never of the image.
TEST(GenerateTask, RowEndsAreNoPartOfTheImage) {
  for (const char* decode : {"plain", "gumbel", "sjd"}) {
    GenerateOptions options = tiny_options();
    options.model = "test:rows";
    options.method = decode_method(decode);
    Runtime runtime;
    GenerateTask task(runtime, options);
    const std::vector<PreparedRequest> prepared = {task.prepare({.prompt = "one"})};
    Collector collector;
    collector.interval = 1;
    ASSERT_TRUE(task.run(prepared, collector));
    const GeneratedImage& image = collector.images[0];
    EXPECT_EQ(image.status, ImageStatus::kDone);
    EXPECT_EQ(image.rows_done, 8);
    EXPECT_EQ(image.facts.tokens, 73);
    EXPECT_EQ(image.meters.tokens, 73);
    ASSERT_EQ(image.codes.size(), 64u);
    for (const std::int32_t code : image.codes) EXPECT_LT(code, 64);
    EXPECT_EQ(task.decode_codes(image.codes).rgb, image.image.rgb);
    if (std::string(decode) != "plain") continue;
    EXPECT_EQ(collector.preview_at, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7}));
    Collector stopped;
    stopped.interval = 1;
    stopped.stop_at = 26;  // two rows with their ends, and a third without
    EXPECT_FALSE(task.run(prepared, stopped));
    EXPECT_EQ(stopped.images[0].rows_done, 3);
    EXPECT_EQ(stopped.images[0].codes,
              std::vector<std::int32_t>(image.codes.begin(), image.codes.begin() + 24));
    EXPECT_FALSE(stopped.images[0].image.rgb.empty());
  }
}

TEST(GenerateTask, ADraftModelOfAnotherStreamIsRefused) {
  GenerateOptions options = tiny_options();
  options.method = decode_method("draft");
  options.draft_model = "test:rows";
  try {
    Runtime runtime;
    const GenerateTask task(runtime, options);
    ADD_FAILURE() << "a stream with row ends drafts one without";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_DRAFT_STREAM");
    EXPECT_NE(error.info().expected.find("64 tokens"), std::string::npos);
    EXPECT_NE(error.info().found.find("73 tokens, row ends"), std::string::npos);
  }
}

// --- submissions

struct Overs : Collector {
  void on_over(bool is_whole) override {
    ++overs;
    whole = is_whole;
  }
  int overs = 0;
  bool whole = false;
};

std::vector<PreparedRequest> prepare_all(const GenerateTask& task) {
  std::vector<PreparedRequest> out;
  for (const GenerateRequest& request : requests()) out.push_back(task.prepare(request));
  return out;
}

TEST(GenerateTask, SubmissionsOfSeveralTasksAreWrittenTogether) {
  Runtime runtime;
  GenerateTask tiny(runtime, tiny_options(1, 3));
  GenerateOptions other = tiny_options(1, 2);
  other.model = "test:rows";
  other.method = decode_method("gumbel");
  GenerateTask rows(runtime, other);
  Collector alone_tiny, alone_rows;
  ASSERT_TRUE(tiny.run(prepare_all(tiny), alone_tiny));
  ASSERT_TRUE(rows.run(prepare_all(rows), alone_rows));
  Overs a, b, c;
  const Ticket first = tiny.submit(prepare_all(tiny), a);
  const Ticket second = tiny.submit(prepare_all(tiny), b);
  const Ticket third = rows.submit(prepare_all(rows), c);
  EXPECT_TRUE(a.images.empty()) << "nothing is written yet";
  bool together = false;
  while (runtime.step()) {
    together = together || (!a.images.empty() && !b.images.empty() && a.overs + b.overs == 0);
  }
  EXPECT_TRUE(together) << "they share the slots";
  for (const Ticket ticket : {first, second, third}) EXPECT_TRUE(runtime.over(ticket));
  for (const auto& [got, alone] :
       {std::pair{&a, &alone_tiny}, {&b, &alone_tiny}, {&c, &alone_rows}}) {
    EXPECT_EQ(got->overs, 1);
    EXPECT_TRUE(got->whole);
    ASSERT_EQ(got->images.size(), alone->images.size());
    for (const auto& [index, image] : alone->images) {
      EXPECT_EQ(got->images.at(index).image.rgb, image.image.rgb);
      EXPECT_EQ(got->images.at(index).facts.passes, image.facts.passes);
    }
  }
}

TEST(GenerateTask, ACancelledSubmissionEmitsWhatWasAtWork) {
  Runtime runtime;
  GenerateTask task(runtime, tiny_options(1, 3));
  Overs cancelled, other;
  const Ticket ticket = task.submit(prepare_all(task), cancelled);
  task.submit(prepare_all(task), other);
  for (int i = 0; i < 20; ++i) runtime.step();
  runtime.cancel(ticket);
  while (runtime.step()) {
  }
  EXPECT_EQ(cancelled.overs, 1);
  EXPECT_FALSE(cancelled.whole);
  ASSERT_EQ(cancelled.images.size(), 2u) << "in turns: two of the three slots";
  for (const auto& [index, image] : cancelled.images) {
    EXPECT_EQ(image.status, ImageStatus::kStopped);
    EXPECT_GT(image.facts.tokens, 0);
  }
  EXPECT_TRUE(other.whole);
  EXPECT_EQ(other.images.size(), requests().size());
  EXPECT_EQ(task.stats().slots_taken, 0);
}

// run() is left with the error of another submission: its own is over then.
TEST(GenerateTask, AnErrorOfAnotherSubmissionLeavesNothingAfter) {
  Runtime runtime;
  GenerateTask task(runtime, tiny_options(1, 2)), other(runtime, tiny_options(1, 2));
  struct Thrower final : GenerateListener {
    Flow on_progress(const GenerateProgress& progress) override {
      if (progress.passes == 5) throw std::runtime_error("a full disk");
      return Flow::kContinue;
    }
  } thrower;
  other.submit(prepare_all(other), thrower);
  Overs own;
  EXPECT_THROW(task.run(prepare_all(task), own), std::runtime_error);
  EXPECT_EQ(own.overs, 1);
  EXPECT_FALSE(own.whole);
  EXPECT_FALSE(runtime.step()) << "nothing is left";
  Overs again;
  EXPECT_TRUE(task.run(prepare_all(task), again));
  EXPECT_EQ(again.images.size(), requests().size());
}

ErrorInfo error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.info();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(GenerateTask, BadRequestsAreRefusedBeforeWeightsAreRead) {
  Runtime runtime;
  const GenerateTask task(runtime, tiny_options());
  const auto refused = [&](GenerateRequest request) {
    const ErrorInfo info = error_of([&] { task.prepare(request); });
    EXPECT_EQ(info.kind, ErrorKind::kUsage);
    return info.code;
  };
  EXPECT_EQ(refused({.prompt = ""}), "E_PROMPT_EMPTY");
  EXPECT_EQ(refused({.prompt = std::string(3000, 'x')}), "E_PROMPT_LENGTH");
  EXPECT_EQ(refused({.prompt = std::string(70000, 'x')}), "E_PROMPT_LENGTH");
  EXPECT_EQ(refused({.prompt = "a\xff"}), "E_PROMPT_TEXT");
  EXPECT_EQ(refused({.prompt = std::string("a\0b", 3)}), "E_PROMPT_TEXT");
  EXPECT_EQ(refused({.prompt = "a", .negative_prompt = std::string(3000, 'x')}), "E_PROMPT_LENGTH");
}

TEST(GenerateTask, GeometryIsRefusedByName) {
  GenerateOptions options = tiny_options();
  options.width = 48;
  options.height = 32;
  Runtime runtime;
  const ErrorInfo info = error_of([&] { GenerateTask(runtime, options); });
  EXPECT_EQ(info.code, "E_GEOMETRY");
  EXPECT_EQ(info.kind, ErrorKind::kUsage);
  EXPECT_NE(info.expected.find("32x32"), std::string::npos);
  EXPECT_EQ(info.found, "48x32");
  options.width = options.height = 32;
  EXPECT_EQ(GenerateTask(runtime, options).spec().image_width(), 32);
}

TEST(GenerateTask, ClassNumbersAreChecked) {
  GenerateOptions options;
  options.model = "random:llamagen:B";
  Runtime runtime;
  const GenerateTask task(runtime, options);
  EXPECT_EQ(task.prepare({.prompt = "207"}).item.prompt.ids, std::vector<std::int32_t>{207});
  EXPECT_EQ(task.prepare({.prompt = "207"}).item.unconditional.ids,
            std::vector<std::int32_t>{1000});
  for (const char* bad : {"1000", "-1", "cat", "7 ", "", "99999999999999999999"}) {
    EXPECT_EQ(error_of([&] { task.prepare({.prompt = bad}); }).code, "E_CLASS") << bad;
  }
  EXPECT_EQ(error_of([&] { task.prepare({.prompt = "1", .negative_prompt = "x"}); }).code,
            "E_NEGATIVE_PROMPT");
}

TEST(Memory, PlanGrowsWithWhatIsAskedAndMustFit) {
  Runtime runtime;
  const GenerateTask task(runtime, tiny_options(1, 4));
  const PreparedRequest one = task.prepare({.prompt = "one"});
  const MemoryPlan small = task.plan(std::vector{one});
  const MemoryPlan large = task.plan(std::vector{one, one, one, one});
  EXPECT_EQ(large.kv, 4 * small.kv);
  EXPECT_EQ(large.weights, small.weights);
  EXPECT_GT(small.vq_weights, 0u);
  EXPECT_GT(small.vq_scratch, 0u);
  EXPECT_NO_THROW(check_memory(small, "x"));
  MemoryPlan huge = small;
  huge.weights = std::size_t{1} << 50;
  const ErrorInfo info = error_of([&] { check_memory(huge, "x"); });
  EXPECT_EQ(info.kind, ErrorKind::kMemory);
  EXPECT_NE(info.expected.find("1024.0 TiB"), std::string::npos);
}

TEST(Sampling, ChoiceBeatsPreset) {
  const SamplingDefaults preset{.guidance = 4, .temperature = 0.9, .top_k = 50, .top_p = 0.8};
  const DistributionSettings own = settle_sampling({}, preset);
  EXPECT_EQ(own.guidance, 4);
  EXPECT_EQ(own.temperature, 0.9);
  EXPECT_EQ(own.top_k, 50);
  EXPECT_EQ(own.top_p, 0.8);
  SettingValues choice;
  choice.set(setting::kGuidance, 1);
  choice.set(setting::kTopK, 0);
  choice.set(setting::kMinP, 0.1);
  const DistributionSettings chosen = settle_sampling(choice, preset);
  EXPECT_EQ(chosen.guidance, 1);
  EXPECT_EQ(chosen.top_k, 0);
  EXPECT_EQ(chosen.min_p, 0.1);
  EXPECT_EQ(chosen.temperature, 0.9);
}

}  // namespace
}  // namespace tessera
