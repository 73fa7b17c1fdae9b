// Whole images whose drafts branch, by a device's verify against the tree that is verified on the
// host: the same trees, tokens, kept rows, meters and traces in every pass, to the bit, over every
// rule for siblings that devices know, every redraft policy and every drafter that reads no rows,
// with forced ids, distributions with few ids left, and rows that break.
#include "engine/decoding/trees/device_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "engine/decoding/broken_logits.h"
#include "engine/decoding/device_verifier.h"
#include "tests/support/devices.h"
#include "tests/support/verified_streams.h"
#include "tests/support/tree_decoding.h"

namespace tessera::testing::verified_tree_test {
namespace {

class VerifiedTrees : public OnDevice {
 protected:
  void decode(const DecodeMethod& method, const VocabularyGrammar& grammar,
              const std::vector<SeededStream>& streams, bool may_break, const std::string& what);
  void pass(DeviceVerifier& verifier, std::vector<BothSides>& all,
            const std::vector<std::size_t>& running, const std::vector<SeededStream>& streams,
            std::size_t codes, bool may_break);

  std::int64_t right_ = 0, refused_ = 0, broken_ = 0, next_to_ = 0;
};

void VerifiedTrees::pass(DeviceVerifier& verifier, std::vector<BothSides>& all,
                       const std::vector<std::size_t>& running, const std::vector<SeededStream>& streams,
                       std::size_t codes, bool may_break) {
  std::vector<float> logits;
  std::vector<std::size_t> first;
  verifier.begin();
  for (const std::size_t i : running) {
    const std::vector<TokenRow> contexts = contexts_of(*all[i].host);
    first.push_back(logits.size() / codes);
    for (std::uint32_t branch = 0; branch < (streams[i].dist.guided() ? 2u : 1u); ++branch) {
      for (std::size_t j = 0; j < contexts.size(); ++j) {
        const auto row = logits_of(contexts[j], codes, branch, may_break && j > 0);
        logits.insert(logits.end(), row.begin(), row.end());
      }
    }
    verifier.add({all[i].device.get(), static_cast<std::int64_t>(first.back()), contexts.size()});
  }
  const auto count = static_cast<std::int64_t>(logits.size() / codes);
  verifier.read(upload(logits, Shape{count, static_cast<std::int64_t>(codes)}).view());
  for (std::size_t k = 0; k < running.size(); ++k) {
    const std::size_t i = running[k], rows = all[i].host->rows();
    const ItemRows raw{logits, codes, first[k], rows, streams[i].dist.guided()};
    const std::size_t sound = raw.sound();
    ASSERT_EQ(verifier.item(k).sound, static_cast<std::int32_t>(sound));
    broken_ += sound < rows ? 1 : 0;
    all[i].host->verify(raw, sound);
    ASSERT_FALSE(verifier.settle(k).has_value());
    ASSERT_EQ(verifier.item(k).tested, all[i].host->last_tested());
    ASSERT_EQ(verifier.item(k).right, all[i].host->last_accepted());
    right_ += all[i].host->last_accepted();
    refused_ += all[i].host->last_tested() - all[i].host->last_accepted();
  }
}

void VerifiedTrees::decode(const DecodeMethod& method, const VocabularyGrammar& grammar,
                         const std::vector<SeededStream>& streams, bool may_break,
                         const std::string& what) {
  const DecodeAids aids = aids_for(grammar);
  const OwnedParts<float, KeyedRandom> of_host(method, aids), of_device(method, aids);
  const auto host_parts = of_host.parts(), device_parts = of_device.parts();
  const auto window = static_cast<std::size_t>(method.window);
  const auto verifier = DeviceVerifier::make(
      *backend, device_parts, grammar, static_cast<std::int64_t>(streams.size()), method.window);
  ASSERT_NE(verifier, nullptr) << what;
  std::vector<BothSides> all(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const KeyedRandom random(streams[i].seed, i);
    all[i].host = make_sequence(streams[i].dist, grammar, window, host_parts, random, i);
    all[i].device = verifier->make_sequence(streams[i].dist, grammar, random, i);
    all[i].trace(grammar);
  }
  for (const auto* parts : {&host_parts, &device_parts}) parts->drafter->start(streams.size());
  for (int number = 1;; ++number) {
    std::vector<std::size_t> running;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].host->done()) running.push_back(i);
    }
    if (running.empty()) return;
    std::vector<DraftJob<float, KeyedRandom>> host_jobs, device_jobs;
    std::vector<LoopSequence*> drafted;
    const std::size_t width = number % 4 == 0 ? (window + 1) / 2 : window;
    for (const std::size_t i : running) {
      if (number == 1) continue;
      host_jobs.push_back(all[i].host->draft_job(width));
      device_jobs.push_back(all[i].device->draft_job(width));
      drafted.push_back(all[i].device.get());
    }
    if (number > 1) {
      host_parts.drafter->extend(host_jobs);
      device_parts.drafter->extend(device_jobs);
      verifier->complete(drafted);
    }
    for (const std::size_t i : running) {
      if (number == 1) continue;
      all[i].host->grow();
      ASSERT_EQ(fed_by(*all[i].device), fed_by(*all[i].host))
          << what << ", pass " << number << ", image " << i;
      PassLine line;
      next_to_ += all[i].host->line(0, line) < all[i].host->rows() ? 1 : 0;
    }
    pass(*verifier, all, running, streams, grammar.codes, may_break);
    ASSERT_FALSE(HasFatalFailure()) << what << ", pass " << number;
    for (const std::size_t i : running) {
      expect_same_stream(
          *all[i].device, *all[i].host, all[i].device_trace, all[i].host_trace,
          what + ", pass " + std::to_string(number) + ", image " + std::to_string(i));
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

const std::vector<VocabularyGrammar>& grammars() {
  static const std::vector<VocabularyGrammar> out = {
      VocabularyGrammar::line(6, 24),
      {.codes = 9, .rows = 4, .columns = 5, .row_end = true, .image_end = true},
      VocabularyGrammar::line(2, 18),
      {.codes = 5,
       .rows = 2,
       .columns = 3,
       .row_end = true,
       .grids = 3,
       .grid_end = true,
       .stream_end = true},
      VocabularyGrammar::line(40, 16)};
  return out;
}

std::vector<std::string_view> drafters() {
  return {"uniform", "left", "above", "context", "lookup", "recycling", "previous-frame"};
}
const std::vector<std::string_view> kKeeping = {"resample", "maximal", "gumbel"};

TEST_P(VerifiedTrees, GenerateTheImagesOfTheHost) {
  std::size_t turn = 0;
  for (const std::string_view tree : tree_names()) {
    for (const std::string_view redraft_policy : kKeeping) {
      for (const std::string_view drafter : drafters()) {
        const auto width = static_cast<std::int64_t>(1 + turn % 4);
        const auto depth = static_cast<std::int64_t>(turn / 2 % 5);
        const auto rows = static_cast<std::int64_t>(2 + turn * 5 % 23);
        const DecodeMethod method = combine_tree(tree, drafter, redraft_policy, {rows, width, depth});
        const bool may_break = turn % 3 == 1;
        const std::string what = std::string(tree) + "/" + std::string(drafter) + "/" +
                                 std::string(redraft_policy) + " of " + std::to_string(rows) + " rows, " +
                                 std::to_string(width) + " wide, " + std::to_string(depth) +
                                 " deep" + (may_break ? ", rows that break" : "");
        decode(method, grammars()[turn % grammars().size()], streams_of(turn), may_break, what);
        ASSERT_FALSE(HasFatalFailure()) << what;
        ++turn;
      }
    }
  }
  // Everything happened, and not once.
  EXPECT_GT(right_, 300);
  EXPECT_GT(refused_, 1000);
  EXPECT_GT(broken_, 100);
  EXPECT_GT(next_to_, 500);
}

// Sums of masses one after another over more ids than a block has threads.
TEST_P(VerifiedTrees, HaveVocabulariesOfManyIds) {
  std::size_t turn = 0;
  for (const std::string_view tree : {"rrs", "rsd", "kseq", "points", "pac", "gumbel"}) {
    for (const std::size_t codes : {std::size_t{700}, std::size_t{2049}}) {
      const DecodeMethod method = combine_tree(tree, "uniform", kKeeping[turn % 3], {8, 3, 2});
      const std::vector<SeededStream> streams = {{{.guidance = 2}, turn},
                                           {{.temperature = 0.6}, turn + 9}};
      decode(method, VocabularyGrammar::line(codes, 8), streams, false,
             std::string(tree) + ", " + std::to_string(codes) + " codes");
      ASSERT_FALSE(HasFatalFailure());
      ++turn;
    }
  }
}

// rho, and what all refused candidates leave, of few candidates and of as many as devices verify.
TEST_P(VerifiedTrees, VerifyCandidatesTogether) {
  std::size_t turn = 0;
  for (const std::int64_t width : {2, 3, 5, 16, 64}) {
    const std::int64_t rows = width < 16 ? 16 : width + 8;
    const DecodeMethod method =
        combine_tree("kseq", "uniform", kKeeping[turn % 3], {rows, width, width < 16 ? 2 : 1});
    decode(method, VocabularyGrammar::line(40, 16), streams_of(turn), false,
           "kseq, " + std::to_string(width) + " candidates");
    ASSERT_FALSE(HasFatalFailure());
    ++turn;
  }
  EXPECT_GT(right_, 20);
  EXPECT_GT(refused_, 50);
}

INSTANTIATE_TEST_SUITE_P(Devices, VerifiedTrees, ::testing::ValuesIn(cuda_devices()), device_name);

}  // namespace
}  // namespace tessera::testing::verified_tree_test
