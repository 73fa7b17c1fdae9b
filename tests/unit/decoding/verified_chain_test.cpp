// Whole images by a device's verify against the chain that is verified on the host, over models that
// are tables: every method of the shipped parts that leaves rows on the device, several images in
// a pass, windows that grow and shrink, rows that break. Tokens, drafts, meters and traces are the
// same, to the bit.
#include "engine/decoding/chain_sequence.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/decoding/device_verifier.h"
#include "tests/support/devices.h"
#include "tests/support/verified_streams.h"
#include "tests/support/table_decoding.h"

namespace tessera::testing::verified_chain_test {
namespace {

using HostChain = ChainSequence<float, KeyedRandom>;

// Both chains of one image, and what they are traced to.
struct Both {
  std::unique_ptr<HostChain> host;
  std::unique_ptr<LoopSequence> device;
  DecodeTrace host_trace, device_trace;
};

void expect_same(const Both& both, const std::string& what) {
  const std::span<const std::int32_t> drafts = both.device->window()->tokens();
  ASSERT_EQ(std::vector<std::int32_t>(drafts.begin(), drafts.end()),
            std::vector<std::int32_t>(both.host->drafts().begin(), both.host->drafts().end()))
      << what;
  expect_same_stream(*both.device, *both.host, both.device_trace, both.host_trace, what);
}

class VerifiedChains : public OnDevice {
 protected:
  // Returns the passes that it took, 0 if the method is the host's.
  int decode(const DecodeMethod& method, const VocabularyGrammar& grammar,
             const std::vector<SeededStream>& streams, bool may_break, const std::string& what);

  void pass(DeviceVerifier& verifier, std::vector<Both>& all,
            const std::vector<std::size_t>& running, const std::vector<SeededStream>& streams,
            const VocabularyGrammar& grammar, bool may_break);

  std::int64_t right_ = 0, refused_ = 0, broken_ = 0;
};

// One pass of all running images on both sides.
void VerifiedChains::pass(DeviceVerifier& verifier, std::vector<Both>& all,
                        const std::vector<std::size_t>& running, const std::vector<SeededStream>& streams,
                        const VocabularyGrammar& grammar, bool may_break) {
  const std::size_t codes = grammar.codes;
  std::vector<float> logits;
  std::vector<std::size_t> first;
  verifier.begin();
  for (const std::size_t i : running) {
    HostChain& chain = *all[i].host;
    const std::size_t rows = chain.rows();
    first.push_back(logits.size() / codes);
    for (std::uint32_t branch = 0; branch < (streams[i].dist.guided() ? 2u : 1u); ++branch) {
      TokenRow prefix(chain.tokens());
      for (std::size_t j = 0; j < rows; ++j) {
        if (j > 0) prefix.push_back(chain.drafts()[j - 1]);
        const auto row = logits_of(prefix, codes, branch, may_break && j > 0);
        logits.insert(logits.end(), row.begin(), row.end());
      }
    }
    verifier.add({all[i].device.get(), static_cast<std::int64_t>(first.back()), rows});
  }
  const auto count = static_cast<std::int64_t>(logits.size() / codes);
  const Tensor there = upload(logits, Shape{count, static_cast<std::int64_t>(codes)});
  verifier.read(there.view());
  for (std::size_t k = 0; k < running.size(); ++k) {
    const std::size_t i = running[k];
    const std::size_t rows = all[i].host->rows();
    const ItemRows raw{logits, codes, first[k], rows, streams[i].dist.guided()};
    const std::size_t sound = raw.sound();
    ASSERT_EQ(verifier.item(k).sound, static_cast<std::int32_t>(sound));
    broken_ += sound < rows ? 1 : 0;
    right_ += verifier.item(k).right;
    refused_ += verifier.item(k).tested - verifier.item(k).right;
    all[i].host->verify(raw, sound);
    ASSERT_FALSE(verifier.settle(k).has_value());
  }
}

int VerifiedChains::decode(const DecodeMethod& method, const VocabularyGrammar& grammar,
                         const std::vector<SeededStream>& streams, bool may_break,
                         const std::string& what) {
  const DecodeAids aids = aids_for(grammar);
  const OwnedParts<float, KeyedRandom> of_host(method, aids), of_device(method, aids);
  const auto host_parts = of_host.parts(), device_parts = of_device.parts();
  const auto window = static_cast<std::size_t>(method.window);
  const auto verifier = DeviceVerifier::make(
      *backend, device_parts, grammar, static_cast<std::int64_t>(streams.size()), method.window);
  if (verifier == nullptr) return 0;
  std::vector<Both> all(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const KeyedRandom random(streams[i].seed, i);
    all[i].host =
        std::make_unique<HostChain>(streams[i].dist, grammar, window, host_parts, random, i);
    all[i].device = verifier->make_sequence(streams[i].dist, grammar, random, i);
    all[i].host_trace.start(grammar.length());
    all[i].device_trace.start(grammar.length());
    all[i].host->trace_to(&all[i].host_trace);
    all[i].device->trace_to(&all[i].device_trace);
  }
  for (const auto* parts : {&host_parts, &device_parts}) {
    if (parts->drafter != nullptr) parts->drafter->start(streams.size());
  }
  for (int number = 1;; ++number) {
    std::vector<std::size_t> running;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].host->done()) running.push_back(i);
    }
    if (running.empty()) return number - 1;
    std::vector<DraftJob<float, KeyedRandom>> host_jobs, device_jobs;
    std::vector<LoopSequence*> drafted;
    const std::size_t width = number % 4 == 0 ? (window + 1) / 2 : window;
    for (const std::size_t i : running) {
      if (number == 1) continue;
      host_jobs.push_back(all[i].host->draft_job(width));
      device_jobs.push_back(all[i].device->draft_job(width));
      drafted.push_back(all[i].device.get());
    }
    if (number > 1 && host_parts.drafter != nullptr) {
      host_parts.drafter->extend(host_jobs);
      device_parts.drafter->extend(device_jobs);
      verifier->complete(drafted);
    }
    pass(*verifier, all, running, streams, grammar, may_break);
    for (const std::size_t i : running) {
      expect_same(all[i],
                  what + ", pass " + std::to_string(number) + ", image " + std::to_string(i));
      if (HasFatalFailure()) return number;
    }
  }
}

const std::vector<VocabularyGrammar>& grammars() {
  static const std::vector<VocabularyGrammar> out = {
      VocabularyGrammar::line(6, 24),
      {.codes = 9, .rows = 4, .columns = 5, .row_end = true, .image_end = true},
      {.codes = 5,
       .rows = 2,
       .columns = 3,
       .row_end = true,
       .grids = 3,
       .grid_end = true,
       .stream_end = true}};
  return out;
}

TEST_P(VerifiedChains, GenerateTheImagesOfTheHost) {
  std::map<std::string, int> passes_of_drafter;
  std::size_t number = 0;
  for (const std::string_view drafter : drafter_names()) {
    for (const std::string_view redraft_policy : redraft_names()) {
      for (const std::string_view rule : rule_names()) {
        const std::size_t turn = number++;
        const std::int64_t window = drafter == "none" && redraft_policy == "drop" ? 1 : 2 + turn % 7;
        const DecodeMethod method = combine(drafter, redraft_policy, rule, window);
        const bool may_break = number % 2 == 0;
        const std::string what = std::string(drafter) + "/" + std::string(redraft_policy) + "/" +
                                 std::string(rule) + (may_break ? ", rows that break" : "");
        passes_of_drafter[std::string(drafter)] +=
            decode(method, grammars()[turn % grammars().size()], streams_of(turn), may_break, what);
        ASSERT_FALSE(HasFatalFailure()) << what;
      }
    }
  }
  for (const auto& [drafter, passes] : passes_of_drafter) {
    EXPECT_GT(passes, 0) << drafter;
  }
  // Everything happened, and not once.
  EXPECT_GT(right_, 300);
  EXPECT_GT(refused_, 1000);
  EXPECT_GT(broken_, 100);
}

// A budget is spent test by test, and what is left of it decides.
TEST_P(VerifiedChains, SpendABudgetAsTheHostDoes) {
  std::size_t turn = 0;
  for (const double budget : {0.002, 0.05, 0.3, 2.0}) {
    for (const std::string_view rule : rule_names()) {
      for (const std::string_view redraft_policy : redraft_names()) {
        DecodeMethod method = combine("uniform", redraft_policy, rule, 2 + turn % 7);
        method.set(setting::kTvBudget, budget);
        const std::string what =
            std::string(rule) + "/" + std::string(redraft_policy) + ", budget " + std::to_string(budget);
        EXPECT_GT(decode(method, grammars()[turn % grammars().size()], streams_of(turn),
                         turn % 5 == 0, what),
                  0)
            << what;
        ASSERT_FALSE(HasFatalFailure()) << what;
        ++turn;
      }
    }
  }
}

// Distributions that are kept, of more ids than a block has threads.
TEST_P(VerifiedChains, KeepDistributionsOfManyIds) {
  for (const std::size_t codes : {std::size_t{513}, std::size_t{2049}}) {
    const DecodeMethod method = combine("neighbour-law", "drop", "exact", 4);
    const std::vector<SeededStream> streams = {{{.guidance = 2, .top_k = 700}, codes},
                                         {{.temperature = 0.3}, codes + 9}};
    EXPECT_GT(decode(method, {.codes = codes, .rows = 4, .columns = 3}, streams, false,
                     std::to_string(codes) + " codes"),
              0);
    ASSERT_FALSE(HasFatalFailure());
  }
}

// What only the host can do is left to it.
TEST_P(VerifiedChains, AreForMethodsThatLeaveRowsOnTheDevice) {
  const VocabularyGrammar grammar = grammars()[0];
  const auto made = [&](DecodeMethod method) {
    const OwnedParts<float, KeyedRandom> owned(method, aids_for(grammar));
    return DeviceVerifier::make(*backend, owned.parts(), grammar, 1, method.window) != nullptr;
  };
  DecodeMethod method = combine("uniform", "maximal", "exact", 4);
  EXPECT_TRUE(made(method));
  method.set(setting::kTvBudget, 0.1);
  EXPECT_TRUE(made(method));
  method.set(setting::kTvBudget, 0);
  for (const std::string_view tree : tree_names()) {
    method.tree = tree;
    method.rule = rule_of_tree(tree);
    EXPECT_TRUE(made(method)) << tree;
  }
  method.tree = "none";
  method.rule = "exact";
  method.set(setting::kRowLead, 2);
  EXPECT_TRUE(made(method));
  EXPECT_TRUE(made(combine("neighbour-law", "maximal", "exact", 4)));
  method = combine("neighbour-law", "maximal", "exact", 4);
  method.tree = "rsd";
  EXPECT_FALSE(made(method));
  const auto cpu = make_backend("cpu");
  const OwnedParts<float, KeyedRandom> owned(combine("uniform", "maximal", "exact", 4),
                                             aids_for(grammar));
  EXPECT_EQ(DeviceVerifier::make(*cpu, owned.parts(), grammar, 1, 4), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Devices, VerifiedChains, ::testing::ValuesIn(cuda_devices()), device_name);

}  // namespace
}  // namespace tessera::testing::verified_chain_test
