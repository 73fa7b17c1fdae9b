// The equality rule on the bundled model: the tokens are plain decoding's, with weights of numbers
// and of blocks, caches of 32, 16 and 8 bits, for every window from 1 to 64, every drafter with
// every tail, batches of 1, 3 and 16 on 1, 2 and 3 threads. A covering design: each of these at
// least once, not all of them with each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <set>

#include "apps/runtime/draft_table_file.h"
#include "apps/runtime/generate_task.h"
#include "engine/decoding/decode_settings.h"
#include "engine/decoding/method_parts.h"
#include "tests/support/made_up_methods.h"
#include "tests/support/stream_run.h"

namespace tessera::decode_equality_test {
namespace {

using Tokens = std::vector<std::int32_t>;

const std::string kModel = TESSERA_SOURCE_DIR "/assets/models/tabletop-janus";

// Wide windows cost many rows: most runs end after this many tokens, some go to the last one.
constexpr std::size_t kEnough = 40;
constexpr std::int64_t kWidest = 64;
constexpr std::size_t kItems = 16, kWhole = 3;

// One of the runs that cover everything.
struct CoveringRun {
  DecodeMethod method;
  std::size_t batch = 1, first = 0;  // of the items
  int threads = 1;
  bool whole = false;
};

std::vector<CoveringRun> covering_runs() {
  struct Pair {
    std::string_view drafter, redraft_policy;
  };
  std::vector<Pair> pairs;
  for (const std::string_view redraft_policy : redraft_names()) {
    for (const std::string_view drafter : drafter_names()) {
      if (drafter != "none") pairs.push_back({drafter, redraft_policy});
    }
  }
  std::vector<CoveringRun> runs;
  for (std::int64_t window = 1; window <= kWidest; ++window) {
    const auto number = static_cast<std::size_t>(window);
    const Pair& pair = pairs[number % pairs.size()];
    CoveringRun run{combine(pair.drafter, pair.redraft_policy, "gumbel", window)};
    run.batch = number % 21 == 3 ? kItems : number % 5 == 2 ? 3 : 1;
    run.first = run.batch == 1 ? number % kWhole : 0;
    run.threads = 1 + static_cast<int>(number / 3 % 3);
    run.whole = run.batch == 1 && (number % 12 == 1 || window == kWidest);
    runs.push_back(std::move(run));
  }
  return runs;
}

TEST(DecodeEquality, TheDesignCovers) {
  std::set<std::int64_t> windows;
  std::set<std::pair<std::string, std::string>> pairs;
  std::set<std::pair<std::size_t, int>> shapes;
  int whole = 0;
  for (const CoveringRun& run : covering_runs()) {
    windows.insert(run.method.window);
    pairs.insert({run.method.drafter, run.method.redraft_policy});
    shapes.insert({run.batch, run.threads});
    whole += run.whole ? 1 : 0;
  }
  EXPECT_EQ(windows.size(), static_cast<std::size_t>(kWidest));
  EXPECT_EQ(pairs.size(), (drafter_names().size() - 1) * redraft_names().size());
  EXPECT_EQ(shapes.size(), 9u) << "every batch with every number of threads";
  EXPECT_GE(whole, 5);
}

// Short and long prompts, guided and free, whole and cut distributions.
std::vector<Stream> make_items() {
  GenerateOptions options;
  options.model = kModel;
  options.threads = 1;
  Runtime runtime;
  const GenerateTask task(runtime, options);
  std::vector<Stream> out;
  for (std::size_t i = 0; i < kItems; ++i) {
    GenerateRequest request;
    request.prompt = std::array{"a red cube", "a large red shiny sphere on a gray floor",
                                "a small green cone and a blue cube"}[i % 3];
    request.seed = 70 + i;
    if (i % 4 == 1) request.sampling.set(setting::kTopK, 40);
    if (i % 4 == 2) request.sampling.set(setting::kGuidance, 1);
    if (i % 4 == 3) request.sampling.set(setting::kTemperature, 0.7);
    out.push_back(task.prepare(request).item);
  }
  return out;
}

// The model on a number of threads.
struct Loaded {
  Loaded(int threads, DType storage, DType kv)
      : opened(open_model(kModel)),
        backend(make_backend("cpu", {.threads = threads})),
        model(load_stream_model(opened, *backend, storage)),
        cache(kv) {
    aids = aids_for(model.config().grammar());
    const auto shipped = load_draft_table(kModel, model.config().codes);
    if (shipped != nullptr) aids.drafts = shipped;
  }

  // Until every item has `enough` tokens.
  std::vector<StreamResult> run(const std::vector<Stream>& items, const DecodeMethod& method,
                                std::size_t enough) const {
    StreamLimits limits{.items = static_cast<std::int64_t>(items.size()),
                        .window = method.window,
                        .kv = cache,
                        .dists = keeps_dists(method)};
    for (const Stream& item : items) {
      limits.prompt_rows =
          std::max({limits.prompt_rows, item.prompt.length(), item.unconditional.length()});
    }
    const OwnedParts<float, KeyedRandom> owned(method, aids);
    StreamLoop loop(model, image_limits(model, limits), owned.parts());
    return run_streams(loop, items, [&](const RunPass& event) {
      bool all = true;
      for (std::size_t i = 0; i < event.items.size(); ++i) {
        all = all && event.items[i].tokens.size() >= enough;
      }
      return all ? Flow::kStop : Flow::kContinue;
    });
  }

  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  StreamModel model;
  DType cache;
  DecodeAids aids;
};

struct Kept {
  DType weights, cache;
};

class DecodeEqualityIn : public ::testing::TestWithParam<Kept> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModel)) GTEST_SKIP() << "the bundled model is not there";
  }
};

// The first kWhole items to the end, the others as far as they are compared.
std::vector<Tokens> plain_tokens(const Loaded& loaded, const std::vector<Stream>& items) {
  const auto all = static_cast<std::size_t>(loaded.model.image_token_count());
  std::vector<Tokens> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::size_t enough = i < kWhole ? all : kEnough;
    out.push_back(loaded.run({items[i]}, DecodeMethod{}, enough)[0].tokens);
  }
  return out;
}

TEST_P(DecodeEqualityIn, TokensArePlainDecodings) {
  const std::vector<Stream> items = make_items();
  const std::vector<CoveringRun> runs = covering_runs();
  std::vector<Tokens> truth;
  std::int64_t passes = 0, tokens = 0;
  for (const int threads : {1, 2, 3}) {
    const Loaded loaded(threads, GetParam().weights, GetParam().cache);
    if (truth.empty()) truth = plain_tokens(loaded, items);
    const auto all = static_cast<std::size_t>(loaded.model.image_token_count());
    for (const CoveringRun& run : runs) {
      if (run.threads != threads) continue;
      const auto begin = items.begin() + static_cast<std::ptrdiff_t>(run.first);
      const auto results = loaded.run({begin, begin + static_cast<std::ptrdiff_t>(run.batch)},
                                      run.method, run.whole ? all : kEnough);
      for (std::size_t i = 0; i < run.batch; ++i) {
        const Tokens& got = results[i].tokens;
        const Tokens& want = truth[run.first + i];
        const std::size_t common = std::min(got.size(), want.size());
        ASSERT_GE(common, run.whole ? all : kEnough);
        ASSERT_TRUE(std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(common),
                               want.begin()))
            << run.method.drafter << '/' << run.method.redraft_policy << " window " << run.method.window
            << ", item " << run.first + i << " of a batch of " << run.batch << ", " << threads
            << " threads";
        ASSERT_LE(results[i].passes, static_cast<std::int64_t>(got.size()));
        passes += results[i].passes;
        tokens += static_cast<std::int64_t>(got.size());
      }
    }
  }
  std::cout << runs.size() << " runs, " << tokens << " tokens in " << passes << " passes\n";
  EXPECT_LT(passes * 10, tokens * 9) << "drafts were hardly ever right: little was tested";
  EXPECT_NE(truth[0], truth[kWhole]) << "another seed gives the same image";
}

INSTANTIATE_TEST_SUITE_P(Storage, DecodeEqualityIn,
                         ::testing::Values(Kept{DType::kF32, DType::kF32},
                                           Kept{DType::kBF16, DType::kBF16},
                                           Kept{DType::kQ8, DType::kBF16},
                                           Kept{DType::kBF16, DType::kQ8}),
                         [](const auto& kept) {
                           return std::string(dtype_name(kept.param.weights)) + "_cache_" +
                                  std::string(dtype_name(kept.param.cache));
                         });

class Collector : public GenerateListener {
 public:
  void on_image(GeneratedImage&& image) override {
    images.resize(std::max(images.size(), image.index + 1));
    images[image.index] = std::move(image);
  }
  std::vector<GeneratedImage> images;
};

std::vector<GeneratedImage> generate(const char* decode, const Kept& kept, std::int64_t batch) {
  GenerateOptions options;
  options.model = kModel;
  options.threads = 2;
  options.storage = kept.weights;
  options.batch_size = batch;
  options.method = decode_method(decode);
  options.method.set(setting::kCache, {0, std::string(dtype_name(kept.cache))});
  Runtime runtime;
  GenerateTask task(runtime, options);
  std::vector<PreparedRequest> requests;
  for (const std::uint64_t seed : {5, 6, 7}) {
    requests.push_back(task.prepare({.prompt = "a large blue cone", .seed = seed}));
  }
  Collector collector;
  EXPECT_TRUE(task.run(requests, collector));
  return std::move(collector.images);
}

// From the request to the pixels.
TEST_P(DecodeEqualityIn, ImagesOfThePipelineArePlainDecodings) {
  const auto plain = generate("plain", GetParam(), 3);
  ASSERT_EQ(plain.size(), 3u);
  for (const auto& [decode, batch] : {std::pair{"gumbel", 3}, std::pair{"auto", 2}}) {
    const auto made = generate(decode, GetParam(), batch);
    ASSERT_EQ(made.size(), plain.size());
    for (std::size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(made[i].status, ImageStatus::kDone);
      EXPECT_EQ(made[i].codes, plain[i].codes) << decode;
      EXPECT_EQ(made[i].image.rgb, plain[i].image.rgb) << decode;
      EXPECT_LE(made[i].facts.passes, plain[i].facts.passes);
    }
  }
}

}  // namespace
}  // namespace tessera::decode_equality_test
