// No allocation between two passes: malloc and its relatives are counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "engine/decoding/method_parts.h"
#include "tests/unit/decoding/tiny_run.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
std::atomic<std::int64_t> allocations{0};
}

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  ++allocations;
  return __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  ++allocations;
  *out = __libc_memalign(alignment, size);
  return *out != nullptr ? 0 : 12;
}
}

namespace tessera::allocation_test {
namespace {

// Allocations from the end of pass 2 to the end of the last pass.
std::int64_t count_allocations(bool plant_one) {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(0), tiny.item(1), tiny.item(2)};
  StreamLoop loop(tiny.model, image_limits(tiny.model, {.items = 3, .prompt_rows = 8}),
                  equality_parts());
  std::int64_t at_start = 0, at_end = 0;
  run_streams(loop, items, [&](const RunPass& event) {
    if (event.pass == 2) at_start = allocations;
    if (event.pass == 30 && plant_one) {
      void* volatile injected = std::malloc(8);
      std::free(injected);
    }
    at_end = allocations;
    return Flow::kContinue;
  });
  return at_end - at_start;
}

// The same with drafts of every kind that needs no table or model, under a controller.
std::int64_t count_speculative_allocations(const DecodeMethod& method,
                                           const char* model = "test:tiny",
                                           bool processed = false) {
  const TinyRun tiny(2, model);
  std::vector<Stream> items = processed ? processed_items(tiny, 3) : first_items(tiny, 3);
  items[1].traced = true;
  const DecodeAids aids{.grammar = tiny.model.config().grammar()};
  const OwnedParts<float, KeyedRandom> owned(method, aids);
  WindowController controller(8);
  StreamLoop loop(tiny.model,
                  image_limits(tiny.model, {.items = 3,
                                            .prompt_rows = 8,
                                            .window = std::max<std::int64_t>(
                                                8, method.row_lead() > 0 ? method.window : 0),
                                            .dists = true,
                                            .shape = method.shape()}),
                  owned.parts(), &controller);
  std::int64_t at_start = 0, at_end = 0;
  run_streams(loop, items, [&](const RunPass& event) {
    if (event.pass == 2) at_start = allocations;
    at_end = allocations;
    return Flow::kContinue;
  });
  return at_end - at_start;
}

TEST(StreamLoop, NothingIsAllocatedBetweenSpeculativePasses) {
  for (const char* name :
       {"gumbel", "sjd", "coupled", "coupled-gumbel", "cool", "lookup", "recycle"}) {
    const DecodeMethod method = settle_method(decode_method(name), {}, 64);
    EXPECT_EQ(count_speculative_allocations(method), 0) << name;
    EXPECT_EQ(count_speculative_allocations(method, "test:rows"), 0) << name << " with row ends";
  }
  DecodeMethod neighbour = decode_method("coupled");
  neighbour.drafter = "neighbour-law";
  EXPECT_EQ(count_speculative_allocations(neighbour), 0);
  EXPECT_EQ(count_speculative_allocations(neighbour, "test:rows"), 0);
}

TEST(StreamLoop, NothingIsAllocatedBetweenPassesThatBranch) {
  for (const char* model : {"test:tiny", "test:rows"}) {
    const DecodeAids aids{.grammar = TinyRun(1, model).model.config().grammar()};
    for (const char* name : {"tree", "gumbel-tree", "rows"}) {
      const DecodeMethod method = settle_method(decode_method(name), aids, 64);
      EXPECT_EQ(count_speculative_allocations(method, model), 0) << name << " on " << model;
    }
    for (const std::string_view tree : tree_names()) {
      DecodeMethod method = decode_method("tree");
      method.drafter = "neighbour-law";
      method.tree = tree;
      method.rule = rule_of_tree(tree);
      EXPECT_EQ(count_speculative_allocations(method, model), 0) << tree << " on " << model;
    }
  }
}

TEST(StreamLoop, NothingIsAllocatedForLogitsProcessors) {
  for (const char* model : {"test:tiny", "test:rows"}) {
    const DecodeAids aids{.grammar = TinyRun(1, model).model.config().grammar()};
    for (const char* name : {"plain", "gumbel", "sjd", "coupled", "tree", "gumbel-tree", "rows"}) {
      const DecodeMethod method = settle_method(decode_method(name), aids, 64);
      EXPECT_EQ(count_speculative_allocations(method, model, true), 0) << name << " on " << model;
    }
  }
}

TEST(StreamLoop, NothingIsAllocatedBetweenPasses) { EXPECT_EQ(count_allocations(false), 0); }

TEST(StreamLoop, TheInjectedAllocationIsCounted) { EXPECT_EQ(count_allocations(true), 1); }

}  // namespace
}  // namespace tessera::allocation_test

#endif
