// Rows of codes side by side whose tokens a device draws, against those that the host draws: the
// same lines, tokens, kept rows, meters and traces in every pass, to the bit, with forced ids,
// lines whose token nobody wants, and rows that break.
#include "engine/decoding/row_sequence.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/decoding/broken_logits.h"
#include "engine/decoding/device_verifier.h"
#include "tests/support/devices.h"
#include "tests/support/verified_streams.h"
#include "tests/support/made_up_methods.h"

namespace tessera::testing::verified_rows_test {
namespace {

class VerifiedRowsSideBySide : public OnDevice {
 protected:
  void decode(const VocabularyGrammar& grammar, std::int64_t lead,
              const std::vector<SeededStream>& streams, bool may_break, const std::string& what);

  std::int64_t broken_ = 0, next_to_ = 0, unwanted_ = 0;
};

// What a row's logits depend on: all that stands, and the token that the row feeds.
std::vector<std::int32_t> context_of(const HostStream& stream, std::size_t row) {
  std::vector<std::int32_t> out = stream.tokens();
  if (out.empty()) return out;
  PassLine line;
  stream.line(row, line);
  out.push_back(static_cast<std::int32_t>(line.position));
  out.push_back(line.tokens[0]);
  return out;
}

void VerifiedRowsSideBySide::decode(const VocabularyGrammar& grammar, std::int64_t lead,
                                  const std::vector<SeededStream>& streams, bool may_break,
                                  const std::string& what) {
  DecodeMethod method = combine("none", "drop", "exact", 1);
  method.set(setting::kRowLead, static_cast<double>(lead));
  const OwnedParts<float, KeyedRandom> owned(method, aids_for(grammar));
  const auto parts = owned.parts();
  const std::size_t window = RowSequence<float, KeyedRandom>::max_rows(grammar),
                    codes = grammar.codes;
  const auto verifier =
      DeviceVerifier::make(*backend, parts, grammar, static_cast<std::int64_t>(streams.size()),
                           static_cast<std::int64_t>(window));
  ASSERT_NE(verifier, nullptr);
  std::vector<BothSides> all(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const KeyedRandom random(streams[i].seed, i);
    all[i].host = make_sequence(streams[i].dist, grammar, window, parts, random, i);
    all[i].device = verifier->make_sequence(streams[i].dist, grammar, random, i);
    all[i].trace(grammar);
  }
  for (int number = 1;; ++number) {
    std::vector<std::size_t> running, first;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].host->done()) running.push_back(i);
    }
    if (running.empty()) return;
    std::vector<float> logits;
    verifier->begin();
    for (const std::size_t i : running) {
      if (number > 1) {
        all[i].host->draft_job(window);
        all[i].device->draft_job(window);
      }
      const std::size_t rows = all[i].host->rows();
      ASSERT_EQ(fed_by(*all[i].device), fed_by(*all[i].host)) << what;
      next_to_ += rows > 1 ? 1 : 0;
      first.push_back(logits.size() / codes);
      for (std::uint32_t branch = 0; branch < (streams[i].dist.guided() ? 2u : 1u); ++branch) {
        for (std::size_t j = 0; j < rows; ++j) {
          const auto row =
              logits_of(context_of(*all[i].host, j), codes, branch, may_break && j > 0);
          logits.insert(logits.end(), row.begin(), row.end());
        }
      }
      verifier->add({all[i].device.get(), static_cast<std::int64_t>(first.back()), rows});
    }
    const auto count = static_cast<std::int64_t>(logits.size() / codes);
    const Tensor there = upload(logits, Shape{count, static_cast<std::int64_t>(codes)});
    verifier->read(there.view());
    for (std::size_t k = 0; k < running.size(); ++k) {
      BothSides& both = all[running[k]];
      const std::size_t rows = both.host->rows();
      const ItemRows raw{logits, codes, first[k], rows, streams[running[k]].dist.guided()};
      const std::size_t sound = raw.sound();
      ASSERT_EQ(verifier->item(k).sound, static_cast<std::int32_t>(sound)) << what;
      broken_ += sound < rows ? 1 : 0;
      const std::int64_t before = both.host->meters().tokens;
      both.host->verify(raw, sound);
      unwanted_ += static_cast<std::int64_t>(sound) - (both.host->meters().tokens - before);
      ASSERT_FALSE(verifier->settle(k).has_value());
      expect_same_stream(*both.device, *both.host, both.device_trace, both.host_trace,
                         what + ", pass " + std::to_string(number));
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST_P(VerifiedRowsSideBySide, AreThoseOfTheHost) {
  const std::vector<VocabularyGrammar> grammars = {
      {.codes = 9, .rows = 6, .columns = 5, .row_end = true, .image_end = true},
      {.codes = 64, .rows = 7, .columns = 6},
      {.codes = 5,
       .rows = 3,
       .columns = 4,
       .row_end = true,
       .grids = 3,
       .grid_end = true,
       .stream_end = true}};
  std::uint64_t turn = 0;
  for (const VocabularyGrammar& grammar : grammars) {
    for (const std::int64_t lead : {1, 2, 3, 100}) {
      for (const bool may_break : {false, true}) {
        decode(grammar, lead, streams_of(turn), may_break,
               std::to_string(grammar.codes) + " codes, lead " + std::to_string(lead));
        ASSERT_FALSE(HasFatalFailure());
        ++turn;
      }
    }
  }
  EXPECT_GT(broken_, 30);
  EXPECT_GT(next_to_, 200);
  EXPECT_GT(unwanted_, 30);
}

INSTANTIATE_TEST_SUITE_P(Devices, VerifiedRowsSideBySide, ::testing::ValuesIn(cuda_devices()),
                         device_name);

}  // namespace
}  // namespace tessera::testing::verified_rows_test
