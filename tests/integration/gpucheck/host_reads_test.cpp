// What a check of a GPU counts as read by the host, against what the simulated device copied.
#include <gtest/gtest.h>

#include "apps/lab/bench/replay.h"
#include "engine/decoding/method_parts.h"
#include "engine/families/open_model.h"
#include "tests/support/simt/simulated_device.h"
#include "tests/support/stream_run.h"

namespace tessera::host_reads_test {
namespace {

TEST(HostReads, AreTheCopiesThatTheDeviceMade) {
  const auto backend = simt::make_device({.threads = 1});
  OpenedModel opened = open_model("test:tiny");
  const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
  const DecodeAids aids{.grammar = model.config().grammar()};
  DecodeMethod method = decode_method("coupled");
  method.window = 4;
  method = settle_method(method, aids, model.image_token_count());
  const OwnedParts<float, KeyedRandom> owned(method, aids);
  LoopParts parts = owned.parts();
  WatchedVerifiers verifiers(*backend, nullptr);
  parts.verifiers = &verifiers;
  Stream item;
  item.prompt.ids = {1, 2, 3};
  item.unconditional.ids = model.unconditional_prompt(item.prompt.ids, 0);
  item.dist.guidance = 5;
  StreamLoop loop(model, image_limits(model, {.prompt_rows = 3, .window = 4, .dists = true}), parts);
  simt::DeviceCounts before;
  WatchedVerifiers::Seen seen;
  run_streams(loop, {&item, 1}, [&](const RunPass& event) {
    // From the second pass on, when everything is there that a run makes once.
    if (event.pass == 2) {
      before = simt::counts();
      seen = verifiers.seen();
    }
    return event.pass == 5 ? Flow::kStop : Flow::kContinue;
  });
  const simt::DeviceCounts after = simt::counts();
  EXPECT_EQ(verifiers.seen().reads - seen.reads, 3);
  EXPECT_EQ(after.downloads - before.downloads, 3) << "one copy to the host a pass";
  EXPECT_EQ(after.bytes_down - before.bytes_down,
            static_cast<std::size_t>(verifiers.seen().bytes - seen.bytes));
}

}  // namespace
}  // namespace tessera::host_reads_test
