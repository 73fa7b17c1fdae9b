// Passes that are padded to few shapes and recorded: every real row is what it is without padding,
// bit for bit, the cache forgets the rows that were added, and few shapes are ever recorded.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "apps/lab/models/test_models.h"
#include "engine/core/philox.h"
#include "engine/decoding/model_pass.h"
#include "engine/decoding/pass_padding.h"
#include "engine/families/open_model.h"
#include "tests/support/guarded_backend.h"

namespace tessera::padded_pass_test {
namespace {

TEST(RowBuckets, AreTheSmallestThatFit) {
  const std::map<std::int64_t, std::int64_t> want = {
      {1, 1},   {2, 2},    {3, 4},     {4, 4},     {5, 8},    {8, 8},
      {9, 16},  {17, 32},  {32, 32},   {33, 48},   {49, 64},  {64, 64},
      {65, 96}, {97, 128}, {128, 128}, {129, 129}, {300, 300}};
  for (const auto& [rows, bucket] : want) EXPECT_EQ(row_bucket(rows), bucket) << rows;
  EXPECT_EQ(max_padding(1), 0);
  EXPECT_EQ(max_padding(4), 1);
  EXPECT_EQ(max_padding(16), 7);
  EXPECT_EQ(max_padding(1000), 31);
  std::set<std::int64_t> buckets;
  for (std::int64_t rows = 1; rows <= kMaxBucketRows; ++rows) {
    const std::int64_t bucket = row_bucket(rows);
    EXPECT_GE(bucket, rows);
    EXPECT_EQ(row_bucket(bucket), bucket);
    EXPECT_LE(bucket - rows, max_padding(rows));
    buckets.insert(bucket);
  }
  EXPECT_EQ(buckets.size(), 10u);
}

TEST(PaddedRows, RepeatTheLastRowOfTheirSequence) {
  const std::vector<std::int32_t> tokens = {7, 8, 9, 4}, sequences = {0, 0, 0, 2};
  const std::vector<std::int64_t> positions = {10, 11, 12, 30};
  const std::vector<std::array<std::int64_t, 3>> places = {
      {1, 1, 1}, {2, 2, 2}, {3, 4, 5}, {6, 6, 6}};
  PaddedRows padded;
  padded.reserve(8);
  padded.pad({tokens, sequences, positions, places});
  const TokenRows rows = padded.rows();
  const auto list = [](auto span) { return std::vector(span.begin(), span.end()); };
  EXPECT_EQ(list(rows.tokens), (std::vector<std::int32_t>{7, 8, 9, 9, 4}));
  EXPECT_EQ(list(rows.sequences), (std::vector<std::int32_t>{0, 0, 0, 0, 2}));
  EXPECT_EQ(list(rows.positions), (std::vector<std::int64_t>{10, 11, 12, 12, 30}));
  EXPECT_EQ(rows.places[3], places[2]);
  EXPECT_EQ(list(padded.real()).size(), 5u);
  EXPECT_EQ(list(padded.real().first(4)), (std::vector<std::int32_t>{0, 1, 2, 4}));
  EXPECT_TRUE(padded.gathers());
  EXPECT_TRUE(PaddedRows::fits(std::vector<std::int32_t>(128, 3)));
  EXPECT_FALSE(PaddedRows::fits(std::vector<std::int32_t>(129, 3)));
}

constexpr std::int64_t kSequences = 3, kWindow = 20, kCapacity = 60;

// One model on one backend, and a pass over it.
struct Runner {
  explicit Runner(std::unique_ptr<Backend> made)
      : backend(std::move(made)),
        opened(make_up_model("test:tiny")),
        model(load_stream_model(opened, *backend, DType::kF32)),
        pass(model, {.sequences = kSequences,
                     .capacity = kCapacity,
                     .logit_rows = kSequences * kWindow,
                     .token_rows = kSequences * kWindow,
                     .prompt_rows = 8}) {}

  std::unique_ptr<Backend> backend;
  OpenedModel opened;
  StreamModel model;
  ModelPass pass;
};

std::unique_ptr<Backend> guarded(bool own_memory) {
  return std::make_unique<GuardedBackend>(CpuOptions{.threads = 1},
                                          GuardedOptions{.own_memory = own_memory});
}

// Windows of random widths, of which a random part stays; logits of every pass.
std::vector<std::vector<float>> logits_of(ModelPass& pass, std::vector<std::int64_t>& lengths) {
  std::vector<std::vector<float>> out;
  for (std::int32_t sequence = 0; sequence < kSequences; ++sequence) {
    pass.begin();
    pass.add_prompt(sequence, std::vector<std::int32_t>(static_cast<std::size_t>(sequence) + 2, 9));
    pass.run_layers();
  }
  for (std::uint32_t round = 0; round < 25; ++round) {
    const auto drawn = [&](std::uint32_t what, std::int64_t below) {
      return static_cast<std::int64_t>(philox4x32({round, what, 0, 0}, {5, 7})[0]) % below;
    };
    pass.begin();
    std::vector<std::int64_t> before;
    for (std::int32_t sequence = 0; sequence < kSequences; ++sequence) {
      const auto number = static_cast<std::uint32_t>(sequence);
      const std::int64_t cached = pass.cache().length(sequence);
      before.push_back(cached);
      const std::int64_t room = std::min(kWindow, kCapacity - cached);
      if (room == 0 || drawn(10 + number, 5) == 0) continue;
      const std::int64_t rows = round % 3 == 0 ? 1 : 1 + drawn(20 + number, room);
      std::vector<std::int32_t> tokens;
      for (std::int64_t i = 0; i < rows; ++i) {
        tokens.push_back(
            static_cast<std::int32_t>(drawn(100 * number + static_cast<std::uint32_t>(i), 64)));
      }
      pass.add_tokens(sequence, tokens);
    }
    if (pass.rows() == 0) continue;
    // In one piece, or as prompts' passes do it: layers, then some rows of the head.
    if (round % 2 == 0) {
      pass.run();
    } else {
      pass.run_layers();
      pass.run_head(0, pass.rows(), 0);
      pass.run_head(pass.rows() - 1, 1, 0);
    }
    pass.fetch_logits();
    const std::int64_t shown = round % 2 == 0 ? pass.rows() : 1;
    for (std::int64_t row = 0; row < shown; ++row) {
      const std::span<const float> values = pass.logits(row);
      out.emplace_back(values.begin(), values.end());
    }
    for (std::int32_t sequence = 0; sequence < kSequences; ++sequence) {
      const std::int64_t began = before[static_cast<std::size_t>(sequence)];
      const std::int64_t ran = pass.cache().length(sequence) - began;
      lengths.push_back(ran);
      pass.cache().truncate(sequence, began + std::min<std::int64_t>(ran, 2));
    }
  }
  return out;
}

TEST(PaddedPass, RealRowsAreTheSameBitForBit) {
  Runner cpu(make_backend("cpu", {.threads = 1}));
  std::vector<std::int64_t> want_lengths;
  const auto want = logits_of(cpu.pass, want_lengths);
  ASSERT_GT(want.size(), 100u);
  for (const bool own_memory : {false, true}) {
    Runner device(guarded(own_memory));
    const GuardedCounts before = guarded_counts();
    std::vector<std::int64_t> lengths;
    EXPECT_TRUE(logits_of(device.pass, lengths) == want) << own_memory;
    EXPECT_EQ(lengths, want_lengths) << "added rows stayed cached";
    const GuardedCounts after = guarded_counts();
    EXPECT_EQ(after.recorded > before.recorded, own_memory);
  }
}

TEST(PaddedPass, NeighbouringWidthsShareARecording) {
  Runner device(guarded(true));
  const auto run = [&](std::size_t rows) {
    device.pass.begin();
    device.pass.add_tokens(1, std::vector<std::int32_t>(rows, 3));
    device.pass.run();
    device.pass.cache().truncate(1, 0);
  };
  const GuardedCounts before = guarded_counts();
  for (std::size_t rows = 9; rows <= 16; ++rows) run(rows);
  EXPECT_EQ(guarded_counts().recorded, before.recorded + 1);
  EXPECT_EQ(guarded_counts().repeated, before.repeated + 7);
  run(17);
  EXPECT_EQ(guarded_counts().recorded, before.recorded + 2);
}

// Passes that branch: a shape that comes once is not worth a recording.
TEST(BranchingPass, IsRecordedWhenItsShapeComesAgain) {
  Runner device(guarded(true));
  const auto run = [&](std::size_t seen) {
    device.pass.cache().truncate(0, 0);
    device.pass.begin();
    device.pass.add_tokens(0, std::vector<std::int32_t>(30, 3));
    device.pass.run_layers();
    device.pass.begin();
    std::vector<std::int32_t> rows(seen);
    for (std::size_t i = 0; i < seen; ++i) rows[i] = static_cast<std::int32_t>(2 * i);
    const std::int32_t token = 4;
    device.pass.add_line(0, {.position = 31, .shared = 0, .seen = rows, .tokens = {&token, 1}});
    device.pass.run();
  };
  run(2);
  const GuardedCounts before = guarded_counts();
  for (std::size_t seen = 3; seen < 13; ++seen) run(seen);
  EXPECT_EQ(guarded_counts().recorded, before.recorded);
  for (int again = 0; again < 3; ++again) run(5);
  EXPECT_EQ(guarded_counts().recorded, before.recorded + 1);
}

// Near the end of its cache a sequence still has room for what is added.
TEST(PaddedPass, FitsAFullCache) {
  Runner device(guarded(true));
  device.pass.begin();
  device.pass.add_tokens(0, std::vector<std::int32_t>(static_cast<std::size_t>(kCapacity) - 9, 3));
  device.pass.run_layers();
  device.pass.begin();
  device.pass.add_tokens(0, std::vector<std::int32_t>(9, 3));
  device.pass.run();
  EXPECT_EQ(device.pass.cache().length(0), kCapacity);
}

TEST(PaddedPass, PromptsAndTapsAreNotRecorded) {
  Runner device(guarded(true));
  const GuardedCounts before = guarded_counts();
  device.pass.begin();
  device.pass.add_prompt(0, std::vector<std::int32_t>{1, 2, 3});
  device.pass.run_layers();
  device.pass.begin();
  device.pass.add_tokens(0, std::vector<std::int32_t>{1, 2, 3});
  std::vector<Tensor> entering;
  std::vector<TensorView> taps;
  for (std::int64_t layer = 0; layer < device.model.transformer().config().layers; ++layer) {
    entering.push_back(device.backend->allocate(DType::kF32, {3, device.model.width()}));
    taps.push_back(entering.back().view());
  }
  device.pass.run_layers({taps});
  EXPECT_EQ(guarded_counts().recorded, before.recorded);
  EXPECT_EQ(device.pass.cache().length(0), 6);
}

}  // namespace
}  // namespace tessera::padded_pass_test
