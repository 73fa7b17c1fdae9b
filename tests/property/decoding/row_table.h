// A model that costs nothing: the rows after every context of a few tokens, computed once. With
// the shipped parts and the shipped source of randomness it decodes an image in microseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "engine/core/philox.h"
#include "engine/decoding/chain_sequence.h"
#include "tests/support/chain_driver.h"

namespace tessera {

using FloatParts = ChainParts<float, KeyedRandom>;
using FloatSequence = ChainSequence<float, KeyedRandom>;

class RowTable {
 public:
  // Rows depend on the last `depth` tokens, near the beginning on those that are there. Logits are
  // uniform in (-own, own) for each context, and in (-common, common) for all of them: the more
  // rows have in common, the longer drafts stay, as in images.
  RowTable(std::size_t vocabulary, std::size_t depth, float own, float common,
           const DistributionSettings& dist)
      : vocabulary_(vocabulary), depth_(depth), dist_(dist) {
    std::size_t contexts = 0, power = 1;
    for (std::size_t length = 0; length <= depth; ++length, power *= vocabulary) {
      first_.push_back(contexts);
      contexts += power;
    }
    for (std::vector<float>& branch : logits_) branch.reserve(contexts * vocabulary);
    for (std::uint32_t context = 0; context < contexts; ++context) {
      for (std::uint32_t id = 0; id < vocabulary; ++id) {
        const PhiloxBlock mine = philox4x32({context, id, 0, 0}, {2024, 5});
        const PhiloxBlock all = philox4x32({id, 0, 0, 0}, {2024, 6});
        for (const std::size_t branch : {0, 1}) {
          logits_[branch].push_back(own * (2 * uniform_open(mine[branch]) - 1) +
                                    common * (2 * uniform_open(all[0]) - 1));
        }
      }
    }
  }

  std::size_t vocabulary() const { return vocabulary_; }
  const DistributionSettings& dist() const { return dist_; }

  RawRow<float> after(std::span<const std::int32_t> context) const {
    const std::size_t length = std::min(depth_, context.size());
    std::size_t number = 0;
    for (const std::int32_t token : context.last(length)) {
      number = number * vocabulary_ + static_cast<std::size_t>(token);
    }
    const std::size_t begin = (first_[length] + number) * vocabulary_;
    return {std::span(logits_[0]).subspan(begin, vocabulary_),
            std::span(logits_[1]).subspan(begin, vocabulary_)};
  }

 private:
  std::size_t vocabulary_, depth_;
  DistributionSettings dist_;
  std::vector<std::size_t> first_;  // context of each length
  std::vector<float> logits_[2];    // [contexts, V] of each branch
};

// Of every image of `total` tokens, the first token the most significant digit.
inline std::vector<double> image_probabilities(const RowTable& table, std::size_t total) {
  const std::size_t ids = table.vocabulary();
  std::size_t images = 1;
  for (std::size_t i = 0; i < total; ++i) images *= ids;
  DistributionPipeline<float> dist(table.dist(), static_cast<std::int64_t>(ids));
  std::vector<double> out;
  for (std::size_t image = 0; image < images; ++image) {
    std::vector<std::int32_t> tokens;
    double product = 1;
    for (std::size_t shift = images / ids; shift > 0; shift /= ids) {
      const RawRow<float> row = table.after(tokens);
      dist.process(row.cond, row.uncond);
      tokens.push_back(static_cast<std::int32_t>(image / shift % ids));
      product *= static_cast<double>(dist.probabilities()[static_cast<std::size_t>(tokens.back())]);
    }
    out.push_back(product);
  }
  return out;
}

// One image of `total` tokens under the noise of (seed, item).
inline FloatSequence decode_image(const RowTable& table, const FloatParts& parts,
                                    std::size_t window, std::size_t total, std::uint64_t seed,
                                    std::uint64_t item) {
  std::vector<FloatSequence> one;
  one.emplace_back(table.dist(), VocabularyGrammar::line(table.vocabulary(), total), window, parts,
                   KeyedRandom(seed, item), 0);
  std::vector<std::int32_t> context;
  context.reserve(total + window);
  drive_chains(
      one, parts, [&](const FloatSequence&) { return window; },
      [&](FloatSequence& sequence) {
        context.assign(sequence.tokens().begin(), sequence.tokens().end());
        context.insert(context.end(), sequence.drafts().begin(), sequence.drafts().end());
        const std::size_t known = sequence.tokens().size();
        sequence.verify(
            [&](std::size_t j) { return table.after(std::span(context).first(known + j)); },
            sequence.rows());
      });
  return std::move(one.front());
}

// `work(thread, threads)` on every core.
template <typename Work>
void on_all_cores(Work work) {
  const std::size_t count = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&, i] { work(i, count); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tessera
