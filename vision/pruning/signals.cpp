#include "vision/pruning/signals.h"

#include <array>
#include <string>

#include "engine/core/index.h"

namespace tessera {

std::string_view name_of(SignalKind kind) {
  constexpr std::array<std::string_view, 15> kNames = {
      "CLS attention row", "encoder keys",         "encoder values",
      "CLS value",         "encoder hidden state", "embeddings",
      "text embeddings",   "attention rows",       "last query",
      "LLM keys",          "LLM values",           "last value",
      "core neurons",      "core neurons of text", "scores of the verifying model"};
  return nth(kNames, kind);
}

std::string_view name_of(RowSource source) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "cls", "mean-of-rows", "mean-query"};
  return nth(kNames, source);
}

namespace {

[[noreturn]] void refuse(std::string_view method, SignalKind kind, int layer, std::string expected,
                         std::string found) {
  throw Error{{.kind = ErrorKind::kUsage,
               .code = "E_PRUNE_SIGNAL",
               .where = "pruner " + std::string(method) + ", " + std::string(name_of(kind)) +
                        " of layer " + std::to_string(layer),
               .expected = std::move(expected),
               .found = std::move(found)}};
}

bool has_token_columns(SignalKind kind) {
  return kind == SignalKind::kClsRow || kind == SignalKind::kAttentionRows;
}

}  // namespace

bool Signals::has(SignalKind kind, int layer) const {
  for (const Signal& signal : list_) {
    if (signal.kind == kind && signal.layer == layer) return true;
  }
  return false;
}

const Signal& Signals::get(std::string_view method, SignalKind kind, int layer) const {
  for (const Signal& signal : list_) {
    if (signal.kind == kind && signal.layer == layer) return signal;
  }
  refuse(method, kind, layer, "the signal that the method needs", "none");
}

const Signal& Signals::per_token(std::string_view method, SignalKind kind, int layer,
                                 std::int64_t tokens) const {
  const Signal& signal = get(method, kind, layer);
  const std::int64_t found = kind == SignalKind::kCoreNeurons ? signal.bits.rows
                             : has_token_columns(kind)        ? signal.values.columns
                                                              : signal.values.rows;
  if (found != tokens) {
    refuse(method, kind, layer, "one entry for each of " + std::to_string(tokens) + " tokens",
           std::to_string(found) + " entries");
  }
  return signal;
}

}  // namespace tessera
