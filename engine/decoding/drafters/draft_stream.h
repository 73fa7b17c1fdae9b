// What drafters with a model have in common: what of a stream the model has cached, held against
// what stands and is drafted by now, and a draft drawn from one row of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/drafter.h"
#include "engine/sampling/dist.h"

namespace tessera {

class DraftStream {
 public:
  // Room for a stream of so many tokens, of which one pass feeds `most` at most.
  void reserve(std::size_t tokens, std::size_t most) {
    fed_.reserve(tokens);
    fresh_.reserve(most);
  }
  void clear() {
    fed_.clear();
    fresh_.clear();
    caught_up_ = false;
  }

  // Notes what the model lacks of a stream of `known` tokens, `most` of it at most, and returns how
  // many of the cached tokens are still true: the cache is to be cut to these. The newest token is
  // always fed again, since its row is wanted.
  template <typename TokenAt>
  std::size_t follow(std::size_t known, std::size_t most, TokenAt token) {
    std::size_t same = 0;
    while (same < fed_.size() && same + 1 < known && fed_[same] == token(same)) ++same;
    fed_.resize(same);
    fresh_.clear();
    while (fed_.size() < known && fresh_.size() < most) {
      fresh_.push_back(token(fed_.size()));
      fed_.push_back(fresh_.back());
    }
    caught_up_ = fed_.size() == known;
    return same;
  }
  // What the last follow() noted is not fed after all.
  void take_back() { fed_.resize(fed_.size() - fresh_.size()); }

  std::size_t fed() const { return fed_.size(); }  // those that are noted to be fed included
  std::span<const std::int32_t> fresh() const { return fresh_; }
  bool caught_up() const { return caught_up_; }  // the last row speaks of the next token

 private:
  std::vector<std::int32_t> fed_, fresh_;
  bool caught_up_ = false;
};

// Appends a draft drawn from the distribution with the noise of its position, which the target's own draw
// shares: they agree with probability at least (1 - TV) / (1 + TV). Its distribution goes with it where
// distributions are kept.
inline std::int32_t append_drawn(DraftJob<float, KeyedRandom>& job, DistributionPipeline<float>& dist) {
  const std::int32_t token =
      job.random->race(narrow<std::uint32_t>(job.next_position()),
                       LogitRow<float>{dist.support(), dist.support_logits()});
  if (job.window->keeps_dists()) {
    job.window->append_dense(token, dist.probabilities());
  } else {
    job.window->append_point(token);
  }
  return token;
}

}  // namespace tessera
