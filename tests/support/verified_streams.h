// Streams over models that are tables, verified on the host and on a device side by side: what both
// of them are compared by.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/core/philox.h"
#include "engine/decoding/device_verifier.h"
#include "engine/decoding/token_sequence.h"
#include "engine/decoding/trace.h"
#include "engine/sampling/dist.h"

namespace tessera::testing {

struct SeededStream {
  DistributionSettings dist;
  std::uint64_t seed = 0;
};

inline std::vector<SeededStream> streams_of(std::uint64_t seed) {
  return {{{.guidance = 3, .top_k = 4}, seed},
          {{.temperature = 0.8, .top_p = 0.9}, seed + 1},
          {{.temperature = 0}, seed + 2},
          {{.guidance = 1.5, .min_p = 0.05, .typical = 0.95}, seed + 3},
          {{.guidance = 2,
            .repetition_penalty = 1.4,
            .no_repeat_ngram = 2,
            .suppress_tokens = "1"},
           seed + 4},
          {{.temperature = 0.9,
            .top_k = 3,
            .sequence_bias = "0:0.7,1 2:-1.5",
            .frequency_penalty = 0.6,
            .presence_penalty = 0.2,
            .bad_words = "0,2 3",
            .forced_tokens = "2,2",
            .length_decay_start = 1,
            .length_decay = 1.3},
           seed + 5}};
}

// Logits of a prefix. Some rows that `may_break` do.
inline std::vector<float> logits_of(std::span<const std::int32_t> prefix, std::size_t codes,
                                    std::uint32_t branch, bool may_break) {
  std::uint32_t hash = 7 + branch;
  for (const std::int32_t token : prefix) {
    hash = hash * 31 + static_cast<std::uint32_t>(token) + 1;
  }
  std::vector<float> out;
  for (std::uint32_t id = 0; id < codes; ++id) {
    const PhiloxBlock block = philox4x32({hash, id, branch, 5}, {1, 2});
    out.push_back(3 * uniform_open(block[0]));
    if (hash % 5 == 0) out.back() = static_cast<float>(block[1] % 3);  // ties
  }
  if (may_break && hash % 23 == 0) out[hash % codes] = std::numeric_limits<float>::quiet_NaN();
  return out;
}

using HostStream = TokenSequence<float, KeyedRandom>;

// One item's rows among a pass's logits: `rows` from `first` on, under guidance as many of the
// other branch after them.
struct ItemRows {
  std::span<const float> logits;
  std::size_t codes = 0, first = 0, rows = 0;
  bool guided = false;

  RawRow<float> operator()(std::size_t j) const {
    return {at(first + j), guided ? at(first + rows + j) : std::span<const float>()};
  }
  // Rows before the first one of which no distribution can be made.
  std::size_t sound() const {
    std::size_t out = 0;
    while (out < rows && !first_unsound((*this)(out).cond) && !first_unsound((*this)(out).uncond)) {
      ++out;
    }
    return out;
  }

 private:
  std::span<const float> at(std::size_t row) const { return logits.subspan(row * codes, codes); }
};

// Both sides of one image, traced.
struct BothSides {
  std::unique_ptr<HostStream> host;
  std::unique_ptr<HostStream> device;
  DecodeTrace host_trace, device_trace;

  void trace(const VocabularyGrammar& grammar) {
    host_trace.start(grammar.length());
    device_trace.start(grammar.length());
    host->trace_to(&host_trace);
    device->trace_to(&device_trace);
  }
};

// What stands, what is kept, meters and traces are the same, to the bit.
inline void expect_same_stream(const HostStream& device, const HostStream& host,
                               const DecodeTrace& device_trace, const DecodeTrace& host_trace,
                               const std::string& what) {
  ASSERT_EQ(device.tokens(), host.tokens()) << what;
  const auto kept = [](const HostStream& stream) {
    return std::vector<std::int32_t>(stream.kept_rows().begin(), stream.kept_rows().end());
  };
  ASSERT_EQ(kept(device), kept(host)) << what;
  ASSERT_EQ(device.last_tested(), host.last_tested()) << what;
  ASSERT_EQ(device.last_accepted(), host.last_accepted()) << what;
  const DecodeMeters &a = host.meters(), &b = device.meters();
  ASSERT_EQ(b.tested, a.tested) << what;
  ASSERT_EQ(b.accepted, a.accepted) << what;
  ASSERT_EQ(b.commit_histogram, a.commit_histogram) << what;
  ASSERT_EQ(b.transforms, a.transforms) << what;
  for (const auto& [mine, theirs] : {std::pair{b.strict_chance, a.strict_chance},
                                     {b.excess, a.excess},
                                     {b.entropy, a.entropy},
                                     {b.surprise, a.surprise},
                                     {b.variance, a.variance}}) {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(mine), std::bit_cast<std::uint64_t>(theirs)) << what;
  }
  ASSERT_EQ(device_trace.committed, host_trace.committed) << what;
  for (std::size_t at = 0; at < host_trace.marks.size(); ++at) {
    const TokenMark &x = host_trace.marks[at], &y = device_trace.marks[at];
    ASSERT_TRUE(x.id == y.id && x.pass == y.pass && x.probability == y.probability &&
                x.entropy == y.entropy)
        << what << ", position " << at;
  }
}

// The rows of a stream's next pass: what each feeds.
inline std::vector<std::int32_t> fed_by(const HostStream& stream) {
  std::vector<std::int32_t> out;
  PassLine line;
  for (std::size_t row = 0; !stream.tokens().empty() && row < stream.rows();) {
    row += stream.line(row, line);
    out.insert(out.end(), line.tokens.begin(), line.tokens.end());
    out.insert(out.end(), line.seen.begin(), line.seen.end());
    out.push_back(static_cast<std::int32_t>(line.position));
  }
  return out;
}

}  // namespace tessera::testing
