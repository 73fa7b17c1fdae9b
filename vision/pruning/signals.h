// What a pruner may ask the runtime for, and how it is handed over: plain fp32 views. Attention
// rows have one column, features one row for each token of the block, in the block's order; those
// of tokens without such a value (newlines, markers) may hold anything. What belongs to other
// tokens (CLS, the last one of the prompt, the text) has the sizes that stand next to its kind.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "vision/pruning/views.h"

namespace tessera {

enum class HookPoint : std::uint8_t {
  kInEncoder,       // after encoder layer `layer`
  kInEncoderBlock,  // inside encoder layer `layer`, between its attention and its MLP
  kAfterEncoder,
  kAfterProjector,
  kBeforeLlm,  // before language-model layer `layer`
};

struct Hook {
  HookPoint point = HookPoint::kAfterProjector;
  int layer = 0;  // 0-based; meaningless after encoder and projector
  bool operator==(const Hook&) const = default;
};

enum class SignalKind : std::uint8_t {
  kClsRow,           // [heads or 1, M] softmax weights of the CLS query, or their substitute
  kEncoderKeys,      // [M, heads * head_dim]
  kEncoderValues,    // [M, heads * head_dim]
  kClsValue,         // [tiles, heads * head_dim] value rows of the CLS tokens; row = tile id
  kEncoderHidden,    // [M, width] output of the layer
  kEmbeddings,       // [M, width] after the projector
  kTextEmbeddings,   // [N, width] of the text tokens after the image
  kAttentionRows,    // [heads * rows, M] softmax weights of text queries; head-major
  kLastQuery,        // [heads, head_dim] of the last prompt token, with its rotation
  kLlmKeys,          // [M, kv_heads * head_dim] with rotation
  kLlmValues,        // [M, kv_heads * head_dim]
  kLastValue,        // [1, kv_heads * head_dim] of the last prompt token
  kCoreNeurons,      // bits [M, neurons]: core neurons of each visual token (core_neurons())
  kTextCoreNeurons,  // bits [N, neurons]: of the text tokens
  kVerifierScores,   // [M, 1] for a draft: attention that the verifying model paid each token
};
std::string_view name_of(SignalKind kind);

enum class RowChoice : std::uint8_t { kNone, kLast, kAllText, kListed };

// Where the scores of a "CLS row" come from; encoders without CLS serve a substitute. The two
// substitutes are not equivalent.
enum class RowSource : std::uint8_t {
  kNone,        // no such row is used
  kCls,         // attention of the CLS query
  kMeanOfRows,  // mean over the query rows of the attention matrix
  kMeanQuery,   // attention of the mean query
};
std::string_view name_of(RowSource source);

struct SignalNeed {
  SignalKind kind{};
  int layer = 0;
  RowChoice rows = RowChoice::kNone;      // kAttentionRows only
  std::vector<std::int64_t> listed_rows;  // kListed: text tokens, counted from the first after
                                          // the image
};

struct Signal {
  SignalKind kind{};
  int layer = 0;
  MatrixView values;
  BitMatrixView bits;                  // kCoreNeurons, kTextCoreNeurons
  std::int64_t heads = 1;              // of keys, values and rows
  RowSource source = RowSource::kCls;  // kClsRow
};

// Everything the runtime computed for one call. Borrows.
class Signals {
 public:
  Signals() = default;
  explicit Signals(std::span<const Signal> list) : list_(list) {}
  // Error E_PRUNE_SIGNAL, naming the method and what it asked for, when it is not there or its size
  // is not the block's.
  const Signal& per_token(std::string_view method, SignalKind kind, int layer,
                          std::int64_t tokens) const;
  const Signal& get(std::string_view method, SignalKind kind, int layer) const;
  // For methods that can do without.
  bool has(SignalKind kind, int layer) const;

 private:
  std::span<const Signal> list_;
};

}  // namespace tessera
