// Trees as rows of one pass over the seeded tiny model: each row has the bits that a chain along
// its path gives, whatever stands next to it; and a cache of which one path was kept is that of a
// sequence that was never anything but this path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "engine/decoding/model_pass.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::tree_pass_test {
namespace {

using Tokens = std::vector<std::int32_t>;
constexpr std::int64_t kPromptTokens = 12;

// Node 0 is the root; a parent comes before its children.
struct Tree {
  std::vector<std::int32_t> parent{-1};
  Tokens token{0};

  std::int32_t size() const { return static_cast<std::int32_t>(token.size()); }
  // Nodes from the root to this one.
  std::vector<std::int32_t> path(std::int32_t node) const {
    std::vector<std::int32_t> out;
    for (; node >= 0; node = parent[static_cast<std::size_t>(node)]) out.push_back(node);
    std::reverse(out.begin(), out.end());
    return out;
  }
  Tokens tokens_to(std::int32_t node) const {
    Tokens out;
    for (const std::int32_t n : path(node)) out.push_back(token[static_cast<std::size_t>(n)]);
    return out;
  }
  bool leaf(std::int32_t node) const {
    return std::find(parent.begin(), parent.end(), node) == parent.end();
  }
};

// Half of the nodes prolong the one before, the others branch off anywhere.
Tree random_tree(unsigned seed, std::int32_t nodes) {
  std::mt19937 random(seed);
  Tree out;
  out.token[0] = static_cast<std::int32_t>(random() % 64);
  for (std::int32_t node = 1; node < nodes; ++node) {
    const bool longer = random() % 2 == 0;
    const auto any = static_cast<std::int32_t>(random() % static_cast<unsigned>(node));
    out.parent.push_back(longer ? node - 1 : any);
    out.token.push_back(static_cast<std::int32_t>(random() % 64));
  }
  return out;
}

Tokens random_codes(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  Tokens out(count);
  for (std::int32_t& token : out) token = static_cast<std::int32_t>(random() % 64);
  return out;
}

// Adds a tree after all that is cached, in as few lines as its order allows; gives its first row.
std::int64_t add_tree(ModelPass& pass, std::int32_t sequence, const Tree& tree) {
  const std::int64_t first = pass.rows(), cached = pass.cache().length(sequence);
  for (std::int32_t node = 0; node < tree.size();) {
    std::int32_t end = node + 1;
    while (end < tree.size() && tree.parent[static_cast<std::size_t>(end)] == end - 1) ++end;
    std::vector<std::int32_t> seen = tree.path(node);
    seen.pop_back();
    const auto depth = static_cast<std::int64_t>(seen.size());
    for (std::int32_t& row : seen) row += static_cast<std::int32_t>(cached);
    pass.add_line(sequence, {cached + depth, cached, seen,
                             std::span(tree.token)
                                 .subspan(static_cast<std::size_t>(node),
                                          static_cast<std::size_t>(end - node))});
    node = end;
  }
  return first;
}

// A pass over sequences that have a prompt and a few codes cached.
struct Fed {
  Fed(const TinyRun& tiny, DType kv, std::int64_t sequences, std::int64_t rows)
      : pass(tiny.model, {.sequences = sequences,
                          .capacity = tiny.model.config().cache_rows(kPromptTokens),
                          .logit_rows = sequences * rows,
                          .token_rows = sequences * rows,
                          .prompt_rows = sequences * kPromptTokens,
                          .branch_rows = rows,
                          .branch_seen = rows,
                          .kv = kv}) {}

  void prefill(std::int32_t sequence, std::int64_t prompt, std::size_t codes) {
    Tokens ids(static_cast<std::size_t>(prompt));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] =
          static_cast<std::int32_t>(20 + (static_cast<std::size_t>(sequence) * 31 + i * 7) % 200);
    }
    pass.begin();
    pass.add_prompt(sequence, ids);
    pass.run_layers();
    if (codes > 0) feed(sequence, random_codes(static_cast<unsigned>(prompt), codes));
  }
  // A chain; logits of all its rows.
  std::vector<std::vector<float>> feed(std::int32_t sequence, const Tokens& tokens) {
    pass.begin();
    pass.add_tokens(sequence, tokens);
    return run();
  }
  std::vector<std::vector<float>> run() {
    pass.run();
    pass.fetch_logits();
    std::vector<std::vector<float>> out;
    for (std::int64_t row = 0; row < pass.rows(); ++row) {
      out.emplace_back(pass.logits(row).begin(), pass.logits(row).end());
    }
    return out;
  }

  ModelPass pass;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Every node by chains to the leaves, in a cache that never held anything else.
void expect_rows_of_chains(const std::vector<std::vector<float>>& rows, std::int64_t first,
                           const Tree& tree, Fed& chain, std::int32_t sequence) {
  const std::int64_t cached = chain.pass.cache().length(sequence);
  for (std::int32_t leaf = 0; leaf < tree.size(); ++leaf) {
    if (!tree.leaf(leaf)) continue;
    const auto want = chain.feed(sequence, tree.tokens_to(leaf));
    const std::vector<std::int32_t> path = tree.path(leaf);
    for (std::size_t i = 0; i < path.size(); ++i) {
      ASSERT_TRUE(same_bits(rows[static_cast<std::size_t>(first + path[i])], want[i]))
          << "node " << path[i] << " at depth " << i << " of a tree of " << tree.size();
    }
    chain.pass.cache().truncate(sequence, cached);
  }
}

class TreePass : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Caches, TreePass, ::testing::Values(DType::kF32, DType::kBF16, DType::kQ8),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

TEST_P(TreePass, RowsAreThoseOfChains) {
  for (const int threads : {1, 3}) {
    const TinyRun tiny(threads);
    for (unsigned seed = 0; seed < 8; ++seed) {
      const auto nodes = static_cast<std::int32_t>(2 + seed * seed);
      const std::int64_t prompt = 1 + seed % kPromptTokens;
      const std::size_t codes = seed * 7 % 60;
      const Tree tree = random_tree(seed, nodes);
      Fed branched(tiny, GetParam(), 1, nodes), chain(tiny, GetParam(), 1, 64);
      branched.prefill(0, prompt, std::min(codes, static_cast<std::size_t>(nodes)));
      chain.prefill(0, prompt, std::min(codes, static_cast<std::size_t>(nodes)));
      branched.pass.begin();
      add_tree(branched.pass, 0, tree);
      expect_rows_of_chains(branched.run(), 0, tree, chain, 0);
    }
  }
}

// Trees of two sequences with prompts of different lengths, and a chain between them.
TEST_P(TreePass, SequencesNextToChangeNothing) {
  const TinyRun tiny;
  const Tree trees[] = {random_tree(50, 30), random_tree(51, 17)};
  const Tokens line = random_codes(52, 9);
  Fed branched(tiny, GetParam(), 3, 64), chain(tiny, GetParam(), 3, 64);
  for (Fed* fed : {&branched, &chain}) {
    fed->prefill(0, 3, 21);
    fed->prefill(1, 8, 0);
    fed->prefill(2, 11, 40);
  }
  branched.pass.begin();
  add_tree(branched.pass, 0, trees[0]);
  branched.pass.add_tokens(1, line);
  const std::int64_t last = add_tree(branched.pass, 2, trees[1]);
  const auto rows = branched.run();
  expect_rows_of_chains(rows, 0, trees[0], chain, 0);
  expect_rows_of_chains(rows, last, trees[1], chain, 2);
  const auto want = chain.feed(1, line);
  for (std::size_t i = 0; i < line.size(); ++i) {
    EXPECT_TRUE(same_bits(rows[static_cast<std::size_t>(trees[0].size()) + i], want[i])) << i;
  }
}

// More rows than run through the layers at once: nodes of the second part stand after some of the
// first, the border lies inside of a line, of a tree, and of the second of two trees.
TEST_P(TreePass, TreesReachOverPartsOfAPass) {
  const TinyRun tiny;
  Tree straight = random_tree(60, 250);  // its last line reaches over the border
  for (std::int32_t node = 250; node < 290; ++node) {
    straight.parent.push_back(node - 1);
    straight.token.push_back(node % 64);
  }
  const Tree pairs[][2] = {{straight, random_tree(62, 3)},
                           {random_tree(63, 300), random_tree(64, 20)},
                           {random_tree(65, 150), random_tree(66, 180)}};
  ASSERT_LT(tiny.model.backend().rows_at_once(), 290);
  for (const auto& [one, two] : pairs) {
    Fed branched(tiny, GetParam(), 2, 300), chain(tiny, GetParam(), 2, 300);
    for (Fed* fed : {&branched, &chain}) {
      fed->prefill(0, 5, 10);
      fed->prefill(1, 9, 3);
    }
    branched.pass.begin();
    add_tree(branched.pass, 0, one);
    const std::int64_t second = add_tree(branched.pass, 1, two);
    const auto rows = branched.run();
    expect_rows_of_chains(rows, 0, one, chain, 0);
    expect_rows_of_chains(rows, second, two, chain, 1);
  }
}

// A path is kept, then a further tree is run after it, twice over.
TEST_P(TreePass, KeptPathsLeaveTheCacheOfAChain) {
  const TinyRun tiny;
  for (unsigned seed = 0; seed < 6; ++seed) {
    Fed branched(tiny, GetParam(), 2, 40), chain(tiny, GetParam(), 2, 40);
    for (Fed* fed : {&branched, &chain}) {
      fed->prefill(0, 4 + seed, seed);
      fed->prefill(1, 2, 5);
    }
    for (unsigned again = 0; again < 3; ++again) {
      const Tree tree = random_tree(100 + 10 * seed + again, 8);
      branched.pass.begin();
      add_tree(branched.pass, 1, tree);
      const std::int64_t cached = branched.pass.cache().length(1);
      expect_rows_of_chains(branched.run(), 0, tree, chain, 1);
      const auto node = static_cast<std::int32_t>((seed + 3 * again) % 8);
      std::vector<std::int64_t> kept;
      for (const std::int32_t n : tree.path(node)) kept.push_back(cached + n);
      branched.pass.cache().compact(1, kept, cached);
      chain.feed(1, tree.tokens_to(node));
      const auto left = branched.pass.cache().positions(1), right = chain.pass.cache().positions(1);
      ASSERT_EQ(std::vector<std::int64_t>(left.begin(), left.end()),
                std::vector<std::int64_t>(right.begin(), right.end()));
    }
    const Tokens more = random_codes(seed, 5);
    for (const std::int32_t sequence : {0, 1}) {
      const auto left = branched.feed(sequence, more), right = chain.feed(sequence, more);
      for (std::size_t i = 0; i < more.size(); ++i) {
        EXPECT_TRUE(same_bits(left[i], right[i])) << "sequence " << sequence << ", token " << i;
      }
    }
  }
}

// Comparison can fail: a row that sees a sibling instead of its parent has other logits.
TEST_P(TreePass, ARowAfterTheWrongParentIsSeen) {
  const TinyRun tiny;
  Tree tree = random_tree(7, 1);
  tree.parent = {-1, 0, 0, 1};
  tree.token = {3, 4, 5, 6};
  Fed right(tiny, GetParam(), 1, 8), wrong(tiny, GetParam(), 1, 8);
  for (Fed* fed : {&right, &wrong}) fed->prefill(0, 4, 2);
  right.pass.begin();
  add_tree(right.pass, 0, tree);
  tree.parent[3] = 2;
  wrong.pass.begin();
  add_tree(wrong.pass, 0, tree);
  const auto a = right.run(), b = wrong.run();
  for (const std::size_t row : {0u, 1u, 2u}) EXPECT_TRUE(same_bits(a[row], b[row])) << row;
  EXPECT_FALSE(same_bits(a[3], b[3]));
}

}  // namespace
}  // namespace tessera::tree_pass_test
