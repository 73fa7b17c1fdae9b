// Made-up signals for pruner tests, keyed by token, layer and kind, and a driver that takes a
// method through all its hooks as a runtime does.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <numbers>
#include <vector>

#include "engine/core/philox.h"
#include "vision/pruning/plan.h"
#include "vision/pruning/pruner.h"

namespace tessera {

// Uniform in (0, 1), by address.
inline float noise(std::uint64_t seed, std::uint32_t a, std::uint32_t b = 0, std::uint32_t c = 0) {
  return uniform_open(
      philox4x32({a, b, c, static_cast<std::uint32_t>(Purpose::kTest)}, philox_key(seed, 0))[0]);
}

inline std::vector<float> noise_list(std::uint64_t seed, std::size_t count) {
  std::vector<float> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(2 * noise(seed, static_cast<std::uint32_t>(i)) - 1);
  }
  return out;
}

// Unit vectors in the plane at these angles.
inline std::vector<float> at_degrees(const std::vector<double>& angles) {
  std::vector<float> out;
  for (const double angle : angles) {
    const double radians = angle * std::numbers::pi / 180;
    out.push_back(static_cast<float>(std::cos(radians)));
    out.push_back(static_cast<float>(std::sin(radians)));
  }
  return out;
}

inline MatrixView matrix(const std::vector<float>& values, std::int64_t columns) {
  const auto rows = columns == 0 ? 0 : static_cast<std::int64_t>(values.size()) / columns;
  return {values.data(), rows, columns};
}

inline std::vector<std::int64_t> count_up(std::int64_t count) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(i);
  return out;
}

// Owns what Signals borrow.
class SignalStore {
 public:
  void add(SignalKind kind, int layer, std::int64_t columns, std::vector<float> values,
           std::int64_t heads = 1, RowSource source = RowSource::kCls) {
    values_.push_back(std::make_unique<std::vector<float>>(std::move(values)));
    list_.push_back({.kind = kind,
                     .layer = layer,
                     .values = matrix(*values_.back(), columns),
                     .heads = heads,
                     .source = source});
  }
  void add_bits(SignalKind kind, int layer, std::int64_t neurons,
                std::vector<std::uint64_t> words) {
    words_.push_back(std::make_unique<std::vector<std::uint64_t>>(std::move(words)));
    const auto per_row = (neurons + 63) / 64;
    list_.push_back(
        {.kind = kind,
         .layer = layer,
         .bits = {words_.back()->data(), static_cast<std::int64_t>(words_.back()->size()) / per_row,
                  neurons}});
  }
  Signals view() const { return Signals(list_); }

 private:
  std::vector<std::unique_ptr<std::vector<float>>> values_;
  std::vector<std::unique_ptr<std::vector<std::uint64_t>>> words_;
  std::vector<Signal> list_;
};

// The sizes of made-up signals.
inline constexpr std::int64_t kTestHeads = 2, kTestDim = 4, kTestText = 6, kTestNeurons = 100;
inline constexpr std::int64_t kTestWidth = 8;

// Value number `index` of a token at a layer; `token` counts in the unpruned block, text tokens
// from 100000 and others from 200000 up.
using SignalSource =
    std::function<float(SignalKind kind, int layer, std::uint32_t token, std::uint32_t index)>;

inline SignalSource noise_source(std::uint64_t seed) {
  return [seed](SignalKind kind, int layer, std::uint32_t token, std::uint32_t index) {
    const auto place = static_cast<std::uint32_t>(kind) << 8 | static_cast<std::uint32_t>(layer);
    const float value = noise(seed, token, index, place);
    const bool weight = kind == SignalKind::kClsRow || kind == SignalKind::kAttentionRows ||
                        kind == SignalKind::kCoreNeurons || kind == SignalKind::kTextCoreNeurons;
    return weight ? value : 2 * value - 1;
  };
}

inline std::vector<std::uint64_t> make_bits(const SignalSource& source, SignalKind kind, int layer,
                                            const std::vector<std::uint32_t>& tokens) {
  std::vector<std::uint64_t> words;
  for (const std::uint32_t token : tokens) {
    std::uint64_t pair[2] = {};
    for (std::uint32_t n = 0; n < kTestNeurons; ++n) {
      if (source(kind, layer, token, n) > 0.7f) pair[n / 64] |= std::uint64_t{1} << (n % 64);
    }
    words.insert(words.end(), pair, pair + 2);
  }
  return words;
}

// Serves one need. `tokens`: of the block, as numbers of the unpruned one.
inline void serve(const SignalNeed& need, const std::vector<std::uint32_t>& tokens,
                  const PrunedModel& model, const SignalSource& source, SignalStore& store) {
  const auto fill = [&](const std::vector<std::uint32_t>& rows, std::int64_t columns) {
    std::vector<float> values;
    for (const std::uint32_t row : rows) {
      for (std::uint32_t c = 0; c < columns; ++c) {
        values.push_back(source(need.kind, need.layer, row, c));
      }
    }
    return values;
  };
  const auto columns_of_tokens = [&](const std::vector<std::uint32_t>& rows) {
    std::vector<float> values;
    for (const std::uint32_t row : rows) {
      for (const std::uint32_t token : tokens) {
        values.push_back(source(need.kind, need.layer, token, row));
      }
    }
    return values;
  };
  const auto from = [](std::uint32_t first, std::int64_t count) {
    std::vector<std::uint32_t> out;
    for (std::int64_t i = 0; i < count; ++i) out.push_back(first + static_cast<std::uint32_t>(i));
    return out;
  };
  const auto m = static_cast<std::int64_t>(tokens.size());
  const std::int64_t wide = kTestHeads * kTestDim;
  const RowSource row_source = model.cls ? RowSource::kCls : model.substitute;
  switch (need.kind) {
    case SignalKind::kClsRow:
      return store.add(need.kind, need.layer, m, columns_of_tokens(from(0, kTestHeads)), kTestHeads,
                       row_source);
    case SignalKind::kAttentionRows: {
      std::vector<std::uint32_t> rows;
      std::vector<std::int64_t> listed = need.listed_rows;
      if (need.rows == RowChoice::kLast) listed = {kTestText - 1};
      if (need.rows == RowChoice::kAllText) listed = count_up(kTestText);
      for (std::uint32_t h = 0; h < kTestHeads; ++h) {
        for (const std::int64_t r : listed)
          rows.push_back(h * 1000 + static_cast<std::uint32_t>(r));
      }
      return store.add(need.kind, need.layer, m, columns_of_tokens(rows), kTestHeads);
    }
    case SignalKind::kClsValue:
      return store.add(need.kind, need.layer, wide, fill(from(200000, model.tiles), wide),
                       kTestHeads);
    case SignalKind::kLastQuery:
      return store.add(need.kind, need.layer, kTestDim, fill(from(200000, kTestHeads), kTestDim),
                       kTestHeads);
    case SignalKind::kLastValue:
      return store.add(need.kind, need.layer, wide, fill({200000}, wide), kTestHeads);
    case SignalKind::kTextEmbeddings:
      return store.add(need.kind, need.layer, kTestWidth,
                       fill(from(100000, kTestText), kTestWidth));
    case SignalKind::kCoreNeurons:
      return store.add_bits(need.kind, need.layer, kTestNeurons,
                            make_bits(source, need.kind, need.layer, tokens));
    case SignalKind::kTextCoreNeurons:
      return store.add_bits(need.kind, need.layer, kTestNeurons,
                            make_bits(source, need.kind, need.layer, from(100000, kTestText)));
    default:
      return store.add(need.kind, need.layer, wide, fill(tokens, wide), kTestHeads);
  }
}

struct ChainResult {
  VisualBlock block;                     // after the last hook
  std::vector<std::uint32_t> survivors;  // tokens of the unpruned block, in order
  std::vector<PrunePlan> plans;
  std::vector<float> features;  // [tokens, 2], carried along
};

// Takes the method through its hooks. Cells are merged before the first hook after the encoder.
inline ChainResult run_chain(const Pruner& pruner, const VisualBlock& block,
                             const PrunedModel& model, const Budget& budget,
                             const SignalSource& source, PruneScratch& scratch,
                             std::uint64_t seed = 1) {
  ChainResult out;
  out.block = block;
  for (std::uint32_t i = 0; i < block.tokens.size(); ++i) out.survivors.push_back(i);
  out.features = noise_list(99, 2 * block.tokens.size());
  std::vector<std::array<std::int32_t, 3>> text;
  for (std::int32_t i = 0; i < kTestText; ++i) text.push_back({5000 + i, 5000 + i, 5000 + i});
  PruneState state;
  for (const Hook& hook : pruner.hooks(model)) {
    if (hook.point == HookPoint::kBeforeLlm && out.block.cell_size > 1) {
      const auto cell = static_cast<std::size_t>(out.block.cell_size);
      out.block = merged_block(out.block);
      for (std::size_t i = 0; i < out.block.tokens.size(); ++i) {
        out.survivors[i] = out.survivors[i * cell];
        out.features[2 * i] = out.features[2 * i * cell];
        out.features[2 * i + 1] = out.features[2 * i * cell + 1];
      }
      out.survivors.resize(out.block.tokens.size());
      out.features.resize(2 * out.block.tokens.size());
    }
    SignalStore store;
    for (const SignalNeed& need : pruner.needs(hook, model, state)) {
      serve(need, out.survivors, model, source, store);
    }
    const Signals signals = store.view();
    const PruneInputs inputs{.block = out.block,
                             .signals = signals,
                             .budget = budget,
                             .model = model,
                             .hook = hook,
                             .seed = seed,
                             .item = 0,
                             .text_positions = text};
    const PrunePlan plan = pruner.select(inputs, state, scratch);
    PrunedBlock pruned = apply(plan, out.block, matrix(out.features, 2));
    std::vector<std::uint32_t> survivors;
    for (std::size_t slot = 0; slot < plan.kept.size(); ++slot) {
      const auto place = plan.order.empty() ? static_cast<TokenIndex>(slot) : plan.order[slot];
      survivors.push_back(
          out.survivors[static_cast<std::size_t>(plan.kept[static_cast<std::size_t>(place)])]);
    }
    out.block = std::move(pruned.block);
    out.features = std::move(pruned.features);
    out.survivors = std::move(survivors);
    out.plans.push_back(plan);
  }
  return out;
}

// One call of a method at one hook, with signals made by hand.
inline PrunePlan select_once(const Pruner& pruner, const VisualBlock& block,
                             const SignalStore& store, const Budget& budget,
                             const PrunedModel& model, const Hook& hook, PruneState& state) {
  PruneScratch scratch;
  const Signals signals = store.view();
  return pruner.select(
      {.block = block, .signals = signals, .budget = budget, .model = model, .hook = hook}, state,
      scratch);
}
inline PrunePlan select_once(const Pruner& pruner, const VisualBlock& block,
                             const SignalStore& store, const Budget& budget,
                             const PrunedModel& model = {}) {
  PruneState state;
  return select_once(pruner, block, store, budget, model, pruner.hooks(model).front(), state);
}

inline Budget keep_tokens(std::int64_t count) {
  Budget budget;
  budget.tokens = count;
  return budget;
}
// The same for all groups together.
inline Budget keep_shared(std::int64_t count) {
  Budget budget = keep_tokens(count);
  budget.shared = true;
  return budget;
}

}  // namespace tessera
