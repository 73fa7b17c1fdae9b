// Distributions of the transformer and its cache, bit for bit: how rows are cut into passes, what else is in
// the batch, how many threads run and what was cached and forgotten changes no result.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <numeric>

#include "apps/lab/models/test_models.h"
#include "engine/core/philox.h"
#include "tests/property/model/allocation_count.h"
#include "tests/support/devices.h"
#include "tests/support/model_runner.h"

namespace tessera::model_property_test {
namespace {

using Part = ModelRunner::Part;

// A LlamaGen-shaped spec with a narrow odd head (20), next to the Janus-shaped test model.
OpenedModel small_llamagen() {
  OpenedModel model;
  model.spec = parse_family_config(
      R"({"model_type":"c2i","dim":80,"n_layer":2,"n_head":4,"vocab_size":96,"num_classes":10,)"
      R"("multiple_of":16,"block_size":144})",
      "small llamagen");
  std::map<std::string, Tensor> tensors;
  for (const TensorSpec& tensor : model.spec.tensors) {
    Tensor made = Tensor::host(DType::kF32, tensor.shape);
    const auto key = philox_key(5, tensors.size());
    const auto inputs = static_cast<float>(tensor.shape[tensor.shape.rank() - 1]);
    for (std::int64_t i = 0; i < tensor.shape.elements(); ++i) {
      const float u = uniform_open(philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0}, key)[0]);
      made.f32()[i] = tensor.shape.rank() == 1 ? 0.5f + u : (2 * u - 1) * 2 / std::sqrt(inputs);
    }
    tensors.emplace(tensor.name, std::move(made));
  }
  model.weights =
      std::make_shared<const Checkpoint>(Checkpoint::from_tensors("small", std::move(tensors)));
  check_tensors(model.spec, *model.weights);
  model.source = source_of(model.weights);
  return model;
}

// What Gemma 3 has but for its norms: windows of 7 rows in all layers but the last, which turn by a
// base of their own, GELU gates and scaled rows.
void with_windows(ModelConfig& model) {
  model.windowed.assign(static_cast<std::size_t>(model.layers), true);
  model.windowed.back() = false;
  model.window = 7;
  model.window_rope = model.rope;
  model.window_rope.theta = 100.0;
  model.gate = GateKind::kGeluTanh;
  model.row_scale = 3.0f;
  model.query_scale = 0.5;
}

struct Setting {
  const char* model;
  DType storage;
  testing::TestDevice device = {"cpu"};
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.model << " " << dtype_name(setting.storage) << " " << setting.device;
}

class ModelDistributions : public ::testing::TestWithParam<Setting> {
 protected:
  ModelDistributions() : backend_(GetParam().device.open()), model_(load(backend_or_cpu())) {}
  void SetUp() override {
    if (missing_) GTEST_SKIP() << "no usable " << GetParam().device << " device here";
  }

  static StreamModel load(Backend& backend) {
    const std::string name = GetParam().model;
    OpenedModel opened = name == "llamagen" ? small_llamagen() : open_model("test:tiny");
    if (name == "windows") with_windows(opened.spec.model.transformer);
    return load_stream_model(opened, backend, GetParam().storage);
  }

  std::unique_ptr<ModelRunner> runner(std::int64_t sequences, std::int64_t capacity = 160) {
    return std::make_unique<ModelRunner>(model_, sequences, capacity, GetParam().storage);
  }

  // A prompt's rows followed by token rows: `count` rows that differ by `seed`.
  std::vector<float> rows(std::int64_t count, std::uint32_t seed) {
    auto any = runner(1);
    const bool text = model_.config().prompt == PromptKind::kText;
    const std::int64_t prompt = text ? std::min<std::int64_t>(count, 9) : 1;
    const auto draw = [&](std::int64_t i, std::int64_t range) {
      const PhiloxBlock block =
          philox4x32({static_cast<std::uint32_t>(i), seed, 0, 0}, philox_key(9, 1));
      return static_cast<std::int32_t>(block[0] % static_cast<std::uint32_t>(range));
    };
    std::vector<std::int32_t> prompt_ids, token_ids;
    for (std::int64_t i = 0; i < count; ++i) {
      if (i < prompt)
        prompt_ids.push_back(draw(i, model_.config().prompt_vocab));
      else
        token_ids.push_back(draw(i, model_.config().codes));
    }
    std::vector<float> out = any->prompt_rows(prompt_ids);
    return token_ids.empty() ? out : joined(std::move(out), any->token_rows(token_ids));
  }

  std::vector<float> cut(const std::vector<float>& all, std::int64_t first, std::int64_t count) {
    const std::int64_t width = model_.width();
    return {all.begin() + first * width, all.begin() + (first + count) * width};
  }

  // The same rows in windows of the given sizes, the last one repeated until all are through.
  std::vector<float> in_windows(const std::vector<float>& all, std::vector<std::int64_t> sizes) {
    auto run = runner(1);
    const auto total = static_cast<std::int64_t>(all.size()) / model_.width();
    std::vector<float> out;
    std::size_t next = 0;
    for (std::int64_t at = 0; at < total;) {
      const std::int64_t size = std::min(sizes[std::min(next++, sizes.size() - 1)], total - at);
      out = joined(std::move(out), run->forward({{0, cut(all, at, size)}}));
      at += size;
    }
    return out;
  }

  Backend& backend_or_cpu() {
    missing_ = backend_ == nullptr;
    if (missing_) backend_ = make_backend("cpu", {.threads = 1});
    return *backend_;
  }

  std::unique_ptr<Backend> backend_;
  bool missing_ = false;
  StreamModel model_;
};

TEST_P(ModelDistributions, ChunkedPrefillEqualsWhole) {
  const std::vector<float> all = rows(130, 1);
  const std::vector<float> whole = in_windows(all, {130});
  const bool slow = GetParam().device.name == "simt";
  for (const std::int64_t first : slow ? std::vector<std::int64_t>{2, 65}
                                       : std::vector<std::int64_t>{1, 2, 9, 63, 64, 65, 127, 129}) {
    EXPECT_EQ(in_windows(all, {first, 130}), whole) << first;
  }
  EXPECT_EQ(in_windows(all, {17, 40, 3, 130}), whole);
}

TEST_P(ModelDistributions, EveryWindowEqualsOneByOne) {
  const std::vector<float> all = rows(GetParam().device.name == "simt" ? 40 : 70, 2);
  const std::vector<float> single = in_windows(all, {1});
  const bool slow = GetParam().device.name == "simt";
  for (std::int64_t window = 2; window <= 64; window += slow ? 31 : 1) {
    ASSERT_EQ(in_windows(all, {window}), single) << window;
  }
}

// A tree of continuations in one pass: every branch gets what it gets as a sequence of its own.
TEST_P(ModelDistributions, PathsAreSequences) {
  const std::vector<float> all = rows(23, 15), other = rows(3, 16), leaf = rows(1, 17);
  for (const std::int64_t shared : {4, 20}) {
    const std::vector<float> front = cut(all, 0, shared), branch = cut(all, shared, 3);
    auto run = runner(1);
    run->forward({{0, front}});
    const auto at = static_cast<std::int32_t>(shared);
    const std::vector<std::int32_t> first = {at, at + 1, at + 2}, second = {at + 3, at + 4, at + 5},
                                    third = {at, at + 1, at + 6};
    run->paths = {{3, shared, first}, {3, shared, second}, {1, shared, third}};
    const std::vector<float> got =
        run->forward({{0, joined(joined(branch, other), leaf),
                       {shared, shared + 1, shared + 2, shared, shared + 1, shared + 2, shared + 2}}});
    const auto alone = [&](const std::vector<float>& rest, std::int64_t count) {
      const std::vector<float> whole = in_windows(joined(front, rest), {shared, 3});
      return cut(whole, static_cast<std::int64_t>(whole.size()) / model_.width() - count, count);
    };
    EXPECT_EQ(cut(got, 0, 3), alone(branch, 3)) << shared;
    EXPECT_EQ(cut(got, 3, 3), alone(other, 3)) << shared;
    EXPECT_EQ(cut(got, 6, 1), alone(joined(cut(branch, 0, 2), leaf), 1)) << shared;
  }
}

TEST_P(ModelDistributions, ThreadsChangeNothing) {
  if (GetParam().device.name != "cpu") GTEST_SKIP() << "the host's threads compute nothing";
  const std::vector<float> all = rows(50, 3);
  const std::vector<float> want = in_windows(all, {33, 1});
  for (const int threads : {1, 2, 3, 7}) {
    const auto backend = make_backend("cpu", {.threads = threads});
    const StreamModel model = load(*backend);
    ModelRunner run(model, 1, 160, GetParam().storage);
    std::vector<float> got = run.forward({{0, cut(all, 0, 33)}});
    for (std::int64_t i = 33; i < 50; ++i)
      got = joined(std::move(got), run.forward({{0, cut(all, i, 1)}}));
    EXPECT_EQ(got, want) << threads;
    EXPECT_EQ(run.logits(got), runner(1)->logits(want)) << threads;
  }
}

TEST_P(ModelDistributions, BatchOrderAndSizeChangeNothing) {
  std::vector<std::vector<float>> prompts, alone;
  for (std::uint32_t i = 0; i < 5; ++i) {
    prompts.push_back(rows(11 + 7 * i, 10 + i));
    alone.push_back(runner(1)->forward({{0, prompts.back()}}));
  }
  const std::vector<std::vector<std::int32_t>> orders = {
      {0, 1, 2, 3, 4}, {4, 2, 0, 3, 1}, {3, 1}, {2}};
  for (const std::vector<std::int32_t>& order : orders) {
    auto run = runner(5);
    std::vector<Part> parts;
    std::vector<float> want;
    for (const std::int32_t i : order) {
      parts.push_back({i, prompts[static_cast<std::size_t>(i)]});
      want = joined(std::move(want), alone[static_cast<std::size_t>(i)]);
    }
    EXPECT_EQ(run->forward(parts), want);
  }
}

// More rows than two internal chunks: sequences are cut across chunks. (The simulated device is
// asked for those that are.)
TEST_P(ModelDistributions, LongBatchesEqualShortOnes) {
  const std::int64_t chunk = backend_or_cpu().rows_at_once();
  const auto sequences = static_cast<std::int32_t>(2 * chunk / 130 + 1);
  std::vector<Part> parts;
  for (std::int32_t i = 0; i < sequences; ++i) {
    parts.push_back({i, rows(130, 40 + static_cast<std::uint32_t>(i))});
  }
  ASSERT_GT(sequences * 130, 2 * chunk);
  const std::vector<float> got = runner(sequences)->forward(parts);
  int cut_ones = 0;
  for (std::int32_t i = 0; i < sequences; ++i) {
    const bool is_cut = i * 130 / chunk != (i * 130 + 129) / chunk;
    cut_ones += is_cut ? 1 : 0;
    if (!is_cut && GetParam().device.name == "simt") continue;
    EXPECT_EQ(cut(got, i * 130, 130), in_windows(parts[static_cast<std::size_t>(i)].rows, {130}))
        << i;
  }
  EXPECT_GE(cut_ones, 2);
}

TEST_P(ModelDistributions, TruncateAfterAppendIsNeverAppended) {
  const std::vector<float> all = rows(60, 4);
  const std::vector<float> stray = rows(40, 5);
  auto clean = runner(1);
  clean->forward({{0, cut(all, 0, 30)}});
  const std::vector<float> want = clean->forward({{0, cut(all, 30, 30)}});
  auto tried = runner(1);
  tried->forward({{0, cut(all, 0, 30)}});
  tried->forward({{0, stray}});
  EXPECT_NE(tried->cache().length(0), 30);
  tried->cache().truncate(0, 30);
  EXPECT_EQ(tried->forward({{0, cut(all, 30, 30)}}), want);
}

TEST_P(ModelDistributions, ForkThenDivergeLeavesTheParentAlone) {
  const std::vector<float> all = rows(50, 6);
  const std::vector<float> other = rows(20, 7);
  const std::vector<float> want = in_windows(all, {30, 20});
  auto run = runner(2);
  std::vector<float> got = run->forward({{0, cut(all, 0, 30)}});
  run->cache().fork(0, 1);
  const std::vector<float> child = run->forward({{1, other}});
  got = joined(std::move(got), run->forward({{0, cut(all, 30, 20)}}));
  EXPECT_EQ(got, want);
  // And the child is what a sequence of its own history would be.
  EXPECT_EQ(joined(in_windows(cut(all, 0, 30), {30}), child),
            in_windows(joined(cut(all, 0, 30), other), {30, 20}));
}

// Keeping every row is no change; the rows that stay keep the positions they were computed at.
TEST_P(ModelDistributions, CompactKeepsRowsAndPositions) {
  const std::vector<float> all = rows(40, 8);
  const std::vector<float> next = rows(6, 9);
  std::vector<std::int64_t> every(40);
  std::iota(every.begin(), every.end(), 0);
  auto whole = runner(1);
  whole->forward({{0, all}});
  auto same = runner(1);
  same->forward({{0, all}});
  same->cache().compact(0, every);
  EXPECT_EQ(same->forward({{0, next}}), whole->forward({{0, next}}));

  // Rows of a first token alone do not see each other's history: three sequences of one row each
  // All but the first row dropped: later rows see that row at position 0 and themselves at 40...
  std::vector<std::int64_t> kept = {0};
  auto dropped = runner(1);
  dropped->forward({{0, all}});
  dropped->cache().compact(0, kept);
  EXPECT_EQ(dropped->cache().positions(0).size(), 1u);
  std::vector<std::int64_t> positions(6);
  std::iota(positions.begin(), positions.end(), 40);
  auto single = runner(1);
  single->forward({{0, cut(all, 0, 1)}});
  EXPECT_EQ(dropped->forward({{0, next, positions}}), single->forward({{0, next, positions}}));

  auto middle = runner(1);
  middle->forward({{0, all}});
  middle->cache().compact(0, std::vector<std::int64_t>{0, 3, 4, 39});
  const auto left = middle->cache().positions(0);
  EXPECT_EQ(std::vector<std::int64_t>(left.begin(), left.end()),
            (std::vector<std::int64_t>{0, 3, 4, 39}));
}

TEST_P(ModelDistributions, ADifferentPositionIsNoticed) {
  const std::vector<float> all = rows(20, 12);
  std::vector<std::int64_t> shifted(20);
  std::iota(shifted.begin(), shifted.end(), 0);
  const std::vector<float> want = runner(1)->forward({{0, all, shifted}});
  EXPECT_EQ(runner(1)->forward({{0, all}}), want);
  shifted[10] = 30;
  EXPECT_NE(runner(1)->forward({{0, all, shifted}}), want);
}

// A compiler may drop an allocation whose address nobody sees.
template <typename T>
T* kept_alive(T* pointer) {
  static T* volatile seen = nullptr;
  seen = pointer;
  return seen;
}

// Prefill, then 100 decode steps of both guidance branches: token rows, forward, logits.
std::uint64_t allocations_of_100_steps(const StreamModel& model, DType kv, bool plant) {
  const std::int64_t prompt_rows = model.config().prompt == PromptKind::kText ? 9 : 1;
  const std::int64_t capacity = prompt_rows + 32;
  KvCache cache(model.backend(), {.layers = model.config().transformer.layers,
                                  .kv_heads = model.config().transformer.kv_heads,
                                  .head_dim = model.config().transformer.head_dim,
                                  .capacity = capacity,
                                  .sequences = 2,
                                  .dtype = kv});
  Arena arena(model.scratch_bytes(2 * prompt_rows) + 4096);
  const std::int64_t width = model.width();
  const std::int64_t codes = model.config().codes;
  Tensor rows = Tensor::host(DType::kF32, Shape{2 * prompt_rows, width});
  Tensor hidden = Tensor::host(DType::kF32, Shape{2 * prompt_rows, width});
  Tensor logits = Tensor::host(DType::kF32, Shape{2, codes});
  std::vector<std::int32_t> prompt(static_cast<std::size_t>(2 * prompt_rows), 1);
  std::vector<std::int32_t> owners(prompt.size());
  std::vector<std::int64_t> positions(prompt.size());
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    owners[i] = static_cast<std::int32_t>(i) / static_cast<std::int32_t>(prompt_rows);
    positions[i] = static_cast<std::int64_t>(i) % prompt_rows;
  }
  const auto part = [&](Tensor& tensor, std::int64_t count) {
    return TensorView{DType::kF32, Shape{count, width}, tensor.view().data, Device{}};
  };
  for (std::int64_t s = 0; s < 2; ++s) {
    TensorView half = part(rows, prompt_rows);
    half.data = rows.f32() + s * prompt_rows * width;
    model.embed_prompt(std::span(prompt).first(static_cast<std::size_t>(prompt_rows)), half);
  }
  model.transformer().forward({part(rows, 2 * prompt_rows), owners, positions}, cache, arena,
                              part(hidden, 2 * prompt_rows));
  const std::array<std::int32_t, 2> pair = {0, 1};
  std::array<std::int32_t, 2> ids = {0, 0};
  std::uint64_t before = 0;
  for (int step = 0; step < 101; ++step) {
    if (step == 1) before = allocation_count();  // the first step may grow a backend's scratch
    if (cache.room(0) == 0) {
      cache.truncate(0, prompt_rows);
      cache.truncate(1, prompt_rows);
    }
    const std::array<std::int64_t, 2> at = {cache.length(0), cache.length(1)};
    model.embed_tokens(ids, arena, part(rows, 2));
    model.transformer().forward({part(rows, 2), pair, at}, cache, arena, part(hidden, 2));
    model.logits(part(hidden, 2), arena, logits.view());
    ids[0] = ids[1] = static_cast<std::int32_t>(step % codes);
    if (plant && step == 50) delete kept_alive(new int(step));
  }
  return allocation_count() - before;
}

TEST_P(ModelDistributions, NoAllocationBetweenDecodeSteps) {
  if (GetParam().device.name != "cpu") GTEST_SKIP() << "the host's memory is counted";
  EXPECT_EQ(allocations_of_100_steps(model_, GetParam().storage, false), 0u);
}

TEST_P(ModelDistributions, TheInjectedAllocationIsCounted) {
  if (GetParam().device.name != "cpu") GTEST_SKIP() << "the host's memory is counted";
  EXPECT_GE(allocations_of_100_steps(model_, GetParam().storage, true), 1u);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelDistributions,
                         ::testing::Values(Setting{"janus", DType::kF32},
                                           Setting{"janus", DType::kBF16},
                                           Setting{"llamagen", DType::kF32},
                                           Setting{"llamagen", DType::kBF16},
                                           Setting{"windows", DType::kF32},
                                           Setting{"windows", DType::kBF16}));
INSTANTIATE_TEST_SUITE_P(Simulated, ModelDistributions,
                         ::testing::Values(Setting{"janus", DType::kF32, {"simt"}},
                                           Setting{"windows", DType::kF32, {"simt"}},
                                           Setting{"llamagen", DType::kBF16, {"simt"}}));
INSTANTIATE_TEST_SUITE_P(Cuda, ModelDistributions,
                         ::testing::Values(Setting{"janus", DType::kF32, {"cuda"}},
                                           Setting{"janus", DType::kBF16, {"cuda"}},
                                           Setting{"llamagen", DType::kF32, {"cuda"}},
                                           Setting{"llamagen", DType::kBF16, {"cuda"}}));

// A row further back than all windows together reaches the last layer alone, which has none.
TEST(Windows, EndWhatARowSees) {
  const auto backend = make_backend("cpu", {.threads = 1});
  OpenedModel opened = open_model("test:tiny");
  ModelConfig& config = opened.spec.model.transformer;
  with_windows(config);
  config.windowed.back() = true;
  const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
  const auto last = [&](std::int32_t first) {
    ModelRunner run(model, 1, 160, DType::kF32);
    std::vector<std::int32_t> ids(40, 3);
    ids[0] = first;
    const std::vector<float> out = run.forward({{0, run.prompt_rows(ids)}});
    return std::pair{row_of(out, config.layers * 6, model.width()),
                     row_of(out, config.layers * 6 + 1, model.width())};
  };
  EXPECT_NE(last(3).first, last(9).first) << "as far as the windows reach";
  EXPECT_EQ(last(3).second, last(9).second);
}

TEST(AllocationCounter, SeesEveryWayToAllocate) {
  const std::uint64_t start = allocation_count();
  delete kept_alive(new int(1));
  const std::uint64_t after_new = allocation_count();
  std::free(kept_alive(static_cast<char*>(std::malloc(8))));
  const std::uint64_t after_malloc = allocation_count();
  const Tensor tensor = Tensor::host(DType::kF32, Shape{4});
  const std::uint64_t after_tensor = allocation_count();
  EXPECT_EQ(after_new - start, 1u);
  EXPECT_EQ(after_malloc - after_new, 1u);
  EXPECT_EQ(after_tensor - after_malloc, 1u);
}

}  // namespace
}  // namespace tessera::model_property_test
