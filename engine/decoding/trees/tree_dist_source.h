// The seam for models that say, node by node, which distribution the candidates after a node have.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/decoding/trees/draft_tree.h"

namespace tessera {

class Backend;

// One image's tree and the nodes whose children need a distribution; empty = none.
template <typename Real>
struct TreeJob {
  std::size_t item = 0;
  std::span<const std::int32_t> committed;  // at least one token
  DraftTree<Real>* tree = nullptr;
  std::span<const std::int32_t> wanted;
};

template <typename Real>
class TreeDistributionSource {
 public:
  virtual ~TreeDistributionSource() = default;
  virtual std::string_view name() const = 0;
  // Before the first pass of a run over `items` images.
  virtual void start(std::size_t items) = 0;
  // A slot goes to another stream than before; nothing of the old one holds for it.
  virtual void renew(std::size_t /*slot*/) {}
  // The verifier of a device that makes its distributions, where the target's verify can read them: then trees
  // that keep no distributions themselves are notified where theirs are kept.
  virtual const RowVerifier* verify_on(const Backend&) const { return nullptr; }
  // Keeps a distribution at each wanted node, or none where it has none. Nodes of one tree are asked for in
  // any order, each after its parent, until the tree is begun anew.
  virtual void answer(std::span<TreeJob<Real>> jobs) = 0;
};

}  // namespace tessera
