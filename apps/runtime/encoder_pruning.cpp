#include "apps/runtime/encoder_pruning.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "engine/core/index.h"
#include "engine/ops/host_access.h"

namespace tessera {

namespace {

bool in_encoder(HookPoint point) {
  return point == HookPoint::kInEncoder || point == HookPoint::kInEncoderBlock ||
         point == HookPoint::kAfterEncoder;
}

// A tile that shows nothing but padding (of a very thin image) needs a row to run with: its first
// patch stays, as a marker, which no method scores and which is no token of the image.
void anchor_empty_tiles(VisualBlock& rows) {
  std::map<std::int32_t, VisualToken*> first;
  std::set<std::int32_t> shown;
  for (VisualToken& token : rows.tokens) {
    if (token.kind != TokenKind::kPatch) continue;
    first.try_emplace(token.tile, &token);
    if (!token.padded) shown.insert(token.tile);
  }
  for (const auto& [tile, token] : first) {
    if (!shown.contains(tile)) token->kind = TokenKind::kMarker;
  }
}

std::vector<float> floats(const LayerState& state, ConstTensorView view) {
  const HostView host(state.backend(), view);
  return {host.f32(), host.f32() + view.shape.elements()};
}

}  // namespace

EncoderPruning::EncoderPruning(PruneSession& session, const VitSpec& spec, VisualBlock rows)
    : session_(session), spec_(spec), rows_(std::move(rows)) {
  for (const Hook& hook : session.hooks()) {
    if (!in_encoder(hook.point)) continue;
    for (SignalNeed& need : session.needs(hook)) needs_.push_back(std::move(need));
  }
  anchor_empty_tiles(rows_);
}

bool EncoderPruning::wanted(SignalKind kind, int layer) const {
  return std::any_of(needs_.begin(), needs_.end(), [&](const SignalNeed& need) {
    return need.kind == kind && need.layer == layer;
  });
}

void EncoderPruning::gather(const LayerState& state, SignalKind kind) {
  Gathered out;
  out.kind = kind;
  out.layer = narrow<int>(state.layer());
  out.places.assign(state.places().begin(), state.places().end());
  out.heads = spec_.heads;
  out.width = spec_.width;
  switch (kind) {
    case SignalKind::kClsRow: {
      out.heads = 1;
      out.width = 0;
      out.values.resize(out.places.size());
      const bool cls = spec_.class_token;
      out.source = cls ? RowSource::kCls : session_.model().substitute;
      const AttentionRows whose = cls ? AttentionRows::kClassToken
                                  : out.source == RowSource::kMeanQuery
                                      ? AttentionRows::kMeanQuery
                                      : AttentionRows::kMeanOfRows;
      state.attention(whose, HeadMean::kMean,
                      {DType::kF32, Shape{state.rows()}, out.values.data(), Device{}});
      break;
    }
    case SignalKind::kEncoderKeys:
      out.values = floats(state, state.keys());
      break;
    case SignalKind::kEncoderValues:
      out.values = floats(state, state.values());
      break;
    case SignalKind::kClsValue: {
      const HostView all(state.backend(), state.values());
      for (std::size_t i = 0; i < out.places.size(); ++i) {
        if (out.places[i].id >= 0) continue;
        const float* row = all.f32() + to_index(i) * spec_.width;
        out.values.insert(out.values.end(), row, row + spec_.width);
      }
      break;
    }
    case SignalKind::kEncoderHidden:
      out.heads = 1;
      out.values = floats(state, state.hidden());
      break;
    default:
      expects(false, "a signal of the encoder");
  }
  gathered_.push_back(std::move(out));
}

void EncoderPruning::gather_all(const LayerState& state, bool hidden) {
  const int layer = narrow<int>(state.layer());
  for (const SignalKind kind : {SignalKind::kClsRow, SignalKind::kEncoderKeys,
                                SignalKind::kEncoderValues, SignalKind::kClsValue}) {
    if (!hidden && wanted(kind, layer)) gather(state, kind);
  }
  if (hidden && wanted(SignalKind::kEncoderHidden, layer)) {
    gather(state, SignalKind::kEncoderHidden);
  }
}

Signal EncoderPruning::signal_of(const Gathered& gathered) const {
  Signal out{.kind = gathered.kind, .layer = gathered.layer};
  const auto values = std::ssize(gathered.values);
  const bool row = gathered.width == 0;
  out.values = {gathered.values.data(), row ? 1 : values / gathered.width,
                row ? values : gathered.width};
  out.heads = gathered.heads;
  out.source = gathered.source;
  return out;
}

std::vector<Signal> EncoderPruning::all_signals() const {
  std::vector<Signal> out;
  for (const Gathered& gathered : gathered_) out.push_back(signal_of(gathered));
  return out;
}

// Asks the method about the rows as they run and does what the plan says to them.
void EncoderPruning::carry_out(const Hook& hook, LayerState& state) {
  const std::vector<Signal> signals = all_signals();
  const PrunePlan plan = session_.select(hook, rows_, signals);
  const auto before = to_size(rows_.count());
  const PrunedBlock after = apply(plan, rows_, {});
  // Rows that neither stay nor go into another leave first.
  std::vector<bool> stays(before);
  for (const TokenIndex row : plan.kept) nth(stays, row) = true;
  for (const Merge& merge : plan.merges) nth(stays, merge.source) = true;
  std::vector<std::int32_t> rows, place(before, -1);
  for (std::size_t row = 0; row < before; ++row) {
    if (!stays[row]) continue;
    place[row] = narrow<std::int32_t>(rows.size());
    rows.push_back(narrow<std::int32_t>(row));
  }
  // An image without a row cannot go through the layers that are left.
  std::set<std::int32_t> tiles, left;
  for (std::size_t row = 0; row < before; ++row) {
    const VisualToken& token = rows_.tokens[row];
    if (token.kind == TokenKind::kCls) continue;
    tiles.insert(token.tile);
    if (stays[row]) left.insert(token.tile);
  }
  if (left.size() < tiles.size()) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_PRUNE_EMPTY",
                 .where = "pruning inside the image encoder",
                 .expected = "a patch of every tile left",
                 .found = std::to_string(tiles.size() - left.size()) + " tiles without one"});
  }
  if (rows.size() < before) state.keep(rows);
  if (!plan.merges.empty()) {
    expects(plan.rule == MergeRule::kSizeWeightedMean, "the encoder merges by size");
    std::vector<std::int32_t> to(rows.size(), -1), stands_for;
    for (std::size_t slot = 0; slot < plan.kept.size(); ++slot) {
      const std::size_t at = plan.order.empty() ? slot : to_size(plan.order[slot]);
      const std::int32_t row = nth(place, plan.kept[at]);
      nth(to, row) = narrow<std::int32_t>(slot);
      stands_for.push_back(row);
    }
    for (const Merge& merge : plan.merges) {
      nth(to, nth(place, merge.source)) = nth(to, nth(place, merge.destination));
    }
    state.merge(to, stands_for);
  }
  rows_ = after.block;
}

void EncoderPruning::after_attention(LayerState& state) {
  gather_all(state, false);
  const Hook hook{HookPoint::kInEncoderBlock, narrow<int>(state.layer())};
  if (!session_.asks(hook)) return;
  carry_out(hook, state);
  gathered_.clear();
}

void EncoderPruning::after_layer(LayerState& state) {
  gather_all(state, true);
  const Hook hook{HookPoint::kInEncoder, narrow<int>(state.layer())};
  if (!session_.asks(hook)) return;
  carry_out(hook, state);
  gathered_.clear();
}

PrunePlan EncoderPruning::select_after(const Hook& hook, const VisualBlock& block,
                                        std::span<const Signal> more) {
  std::vector<std::vector<float>> moved;
  std::vector<Signal> signals(more.begin(), more.end());
  for (const Gathered& gathered : gathered_) {
    Signal signal = signal_of(gathered);
    if (gathered.kind != SignalKind::kClsValue) {
      // Rows of the encoder to tokens of the block, by tile and place.
      std::map<std::tuple<int, int, int>, std::size_t> row_of;
      for (std::size_t i = 0; i < gathered.places.size(); ++i) {
        const VitPlace& place = gathered.places[i];
        if (place.id >= 0) row_of[{place.image, place.row, place.col}] = i;
      }
      const auto width = to_size(std::max<std::int64_t>(gathered.width, 1));
      std::vector<float>& values = moved.emplace_back(to_size(block.count()) * width);
      for (TokenIndex t = 0; t < block.count(); ++t) {
        if (block[t].kind != TokenKind::kPatch) continue;
        const auto found = row_of.find({block[t].tile, block[t].row, block[t].column});
        expects(found != row_of.end(), "the patch ran");
        std::copy_n(gathered.values.data() + found->second * width, width,
                    values.data() + to_size(t) * width);
      }
      signal.values = gathered.width == 0
                          ? MatrixView{values.data(), 1, block.count()}
                          : MatrixView{values.data(), block.count(), gathered.width};
    }
    signals.push_back(signal);
  }
  return session_.select(hook, block, signals);
}

}  // namespace tessera
