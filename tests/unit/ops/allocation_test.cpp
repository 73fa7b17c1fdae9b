// Ops allocate nothing after the first call of their size: malloc and its kin are counted here.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "engine/ops/ops.h"
#include "tests/unit/ops/ops_testing.h"

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {
std::atomic<std::int64_t> allocations{0};
}

// The allocator of this program, with a counter in front (glibc's own entry points after).
extern "C" void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
extern "C" void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
extern "C" void* realloc(void* memory, std::size_t size) {
  ++allocations;
  return __libc_realloc(memory, size);
}
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}

namespace tessera::testing::allocation_test {
namespace {

// What one decode step and a piece of a VQ decoder call.
struct Ops {
  std::unique_ptr<Backend> backend;
  std::vector<float> x = normal(200 * 64, 1);
  std::vector<float> w = normal(128 * 64, 2);
  std::vector<float> out = std::vector<float>(200 * 128);
  std::vector<float> kernel = normal(32 * 64 * 9, 3);
  std::vector<float> scale = std::vector<float>(64), shift = std::vector<float>(64);
  std::vector<float> image = std::vector<float>(16 * 16 * 32);
  std::vector<std::uint16_t> cache = std::vector<std::uint16_t>(200 * 64);
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(10);
  LinearWeight f32, bf16;
  ConvWeight conv;

  explicit Ops(Isa isa) : backend(backend_of(isa, 2)) {
    const ConstTensorView matrix = view_of(w, {128, 64});
    f32 = backend->pack_linear({&matrix, 1}, DType::kF32);
    bf16 = backend->pack_linear({&matrix, 1}, DType::kBF16);
    conv = backend->pack_conv(view_of(kernel, {32, 64, 3, 3}), DType::kBF16);
  }

  void step() {
    for (const std::int64_t rows : {1, 2, 40, 200}) {
      const ConstTensorView in{DType::kF32, {rows, 64}, x.data(), {}};
      const TensorView to{DType::kF32, {rows, 128}, out.data(), {}};
      ops::linear(*backend, in, f32, {}, to);
      ops::linear(*backend, in, bf16, {}, to);
    }
    const TensorView rows64{DType::kF32, {20, 64}, out.data(), {}};
    const ConstTensorView in64{DType::kF32, {20, 64}, x.data(), {}};
    const ConstTensorView weight{DType::kF32, {64}, w.data(), {}};
    ops::rms_norm(*backend, in64, weight, 1e-6f, rows64);
    ops::add(*backend, in64, rows64, rows64);
    ops::gelu(*backend, in64, rows64);
    ops::silu_mul(*backend, {DType::kF32, {20, 128}, x.data(), {}}, rows64);
    const Shape half{20, 8};
    ops::rope(*backend, {DType::kF32, {20, 4, 16}, out.data(), {}},
              {DType::kF32, half, w.data(), {}}, {DType::kF32, half, w.data(), {}},
              RopePairing::kInterleaved);
    std::array<std::int64_t, 20> slots;
    for (std::size_t i = 0; i < 20; ++i) slots[i] = static_cast<std::int64_t>(i);
    const TensorView kv{DType::kBF16, {200, 4, 16}, cache.data(), {}};
    ops::store_rows(*backend, x.data(), 64, slots, kv);
    const AttentionSegment segment{kv, kv, 0, 20, 0, true};
    ops::attention(*backend, {.q = {DType::kF32, {20, 4, 16}, x.data(), {}},
                              .out = {DType::kF32, {20, 4, 16}, out.data(), {}},
                              .segments = {&segment, 1}});
    const ConstTensorView decoded_image{DType::kF32, {8, 8, 64}, x.data(), {}};
    const TensorView scales{DType::kF32, {64}, scale.data(), {}};
    const TensorView shifts{DType::kF32, {64}, shift.data(), {}};
    ops::group_norm_coefficients(*backend, decoded_image, 32, 1e-6f, weight, weight, scales, shifts);
    ops::affine_channels(*backend, decoded_image, scales, shifts,
                         {DType::kF32, {8, 8, 64}, out.data(), {}});
    Conv2dArgs args{.in = decoded_image,
                    .weight = &conv,
                    .scale = scales,
                    .shift = shifts,
                    .swish = true,
                    .upsample = 2,
                    .pad_top = 1,
                    .pad_left = 1,
                    .pad_bottom = 1,
                    .pad_right = 1};
    args.out = {DType::kF32, {16, 16, 32}, image.data(), {}};
    ops::conv2d(*backend, args);
    ops::l2_normalize(*backend, in64, 1e-6f, rows64);
    ops::nearest_code(*backend, {DType::kF32, {10, 64}, x.data(), {}},
                      {DType::kF32, {128, 64}, w.data(), {}}, ids);
  }
};

class NoAllocation : public ::testing::TestWithParam<Isa> {};

TEST_P(NoAllocation, AfterTheFirstStep) {
  Ops ops(GetParam());
  ops.step();
  const std::int64_t before = allocations.load();
  for (int i = 0; i < 100; ++i) ops.step();
  EXPECT_EQ(allocations.load() - before, 0);
}

TEST_P(NoAllocation, NotEvenTheFirstWhenScratchWasReserved) {
  Ops ops(GetParam());
  ops.backend->reserve_scratch(std::size_t{4} << 20);
  const std::int64_t before = allocations.load();
  ops.step();
  EXPECT_EQ(allocations.load() - before, 0);
}

TEST_P(NoAllocation, TheInjectedOneIsCounted) {
  Ops ops(GetParam());
  ops.step();
  const std::int64_t before = allocations.load();
  ops.step();
  const Tensor injected = ops.backend->allocate(DType::kF32, {16});
  EXPECT_GE(allocations.load() - before, 1);
  const std::int64_t middle = allocations.load();
  const std::vector<float> another(64);
  EXPECT_GE(allocations.load() - middle, 1);
}

INSTANTIATE_TEST_SUITE_P(Cpu, NoAllocation, ::testing::ValuesIn(isas_here()),
                         [](const auto& param) { return isa_name(param.param); });

}  // namespace
}  // namespace tessera::testing::allocation_test
