// That the test double notices what it is there to notice.
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "engine/ops/host_access.h"
#include "engine/ops/ops.h"
#include "tests/support/guarded_backend.h"
#include "tests/support/guarded_memory.h"

namespace tessera::guard_test {
namespace {

class Guarded : public ::testing::Test {
 protected:
  Tensor uploaded(std::vector<float> values, Shape shape) {
    Tensor out = backend_.allocate(DType::kF32, shape);
    backend_.upload({DType::kF32, shape, values.data(), Device{}}, out.view());
    return out;
  }
  std::vector<float> downloaded(const Tensor& tensor) {
    std::vector<float> out(static_cast<std::size_t>(tensor.shape().elements()));
    backend_.download(tensor.view(), {DType::kF32, tensor.shape(), out.data(), Device{}});
    backend_.synchronize();
    return out;
  }

  // After the checks.
  void add(ConstTensorView a, ConstTensorView b, TensorView out) {
    backend_.run(AddArgs{a, b, out});
  }

  GuardedBackend backend_{{.threads = 1}, {}};
};
using GuardedDeathTest = Guarded;

TEST_F(Guarded, ComputesWhatTheCpuComputes) {
  const Tensor a = uploaded({1, 2, 3, 4}, {2, 2}), b = uploaded({10, 20, 30, 40}, {2, 2});
  Tensor sum = backend_.allocate(DType::kF32, {2, 2});
  ops::add(backend_, a.view(), b.view(), sum.view());
  EXPECT_EQ(downloaded(sum), (std::vector<float>{11, 22, 33, 44}));
}

TEST_F(Guarded, OpsRunLateButReadTheHostAtOnce) {
  const Tensor table = uploaded({1, 2, 3, 4}, {2, 2});
  Tensor rows = backend_.allocate(DType::kF32, {2, 2});
  std::vector<std::int32_t> ids = {1, 0};
  ops::embedding(backend_, table.view(), ids, rows.view());
  ids.assign(2, 0);
  std::vector<float> out(4, 7);
  backend_.download(rows.view(), {DType::kF32, {2, 2}, out.data(), Device{}});
  EXPECT_NE(out, (std::vector<float>{3, 4, 1, 2})) << "nobody waited";
  backend_.synchronize();
  EXPECT_EQ(out, (std::vector<float>{3, 4, 1, 2}));
}

TEST_F(Guarded, DroppedMemoryStaysUntilItsOpsRan) {
  Tensor sum = backend_.allocate(DType::kF32, {2});
  const std::size_t before = GuardedMemory::instance().blocks();
  {
    const Tensor gone = uploaded({1, 2}, {2});
    ops::add(backend_, gone.view(), gone.view(), sum.view());
  }
  EXPECT_EQ(downloaded(sum), (std::vector<float>{2, 4}));
  EXPECT_EQ(GuardedMemory::instance().blocks(), before);
}

TEST_F(Guarded, HostViewsAndDraftsAreCopiesHereAndTheTensorItselfOnTheCpu) {
  const auto cpu = make_backend("cpu", {.threads = 1});
  for (Backend* backend : {static_cast<Backend*>(&backend_), cpu.get()}) {
    Tensor tensor = backend->allocate(DType::kF32, {3});
    HostDraft draft(*backend, tensor.view());
    for (int i = 0; i < 3; ++i) draft.f32()[i] = static_cast<float>(i);
    draft.send();
    Tensor twice = backend->allocate(DType::kF32, {3});
    ops::add(*backend, tensor.view(), tensor.view(), twice.view());
    const HostView view(*backend, twice.view());
    EXPECT_EQ(std::vector<float>(view.f32(), view.f32() + 3), (std::vector<float>{0, 2, 4}));
    EXPECT_EQ(view.view().data == twice.view().data, backend == cpu.get());
  }
}

TEST_F(GuardedDeathTest, TheHostCannotReadOrWrite) {
  Tensor tensor = uploaded({1, 2}, {2});
  backend_.synchronize();
  EXPECT_EXIT(
      {
        const volatile float read = tensor.view().f32()[1];
        static_cast<void>(read);
      },
      ::testing::KilledBySignal(SIGSEGV), "device memory: byte 4 of f32 \\[2\\]");
  EXPECT_EXIT(tensor.view().f32()[0] = 3.0f, ::testing::KilledBySignal(SIGSEGV),
              "device memory: byte 0");
}

TEST_F(GuardedDeathTest, ViewsOfTheWrongSideEndTheProgram) {
  const Tensor device = uploaded({1, 2}, {2});
  Tensor host = Tensor::host(DType::kF32, {2}), out = backend_.allocate(DType::kF32, {2});
  // As if it were of the device: what ops/ cannot see.
  TensorView posing = host.view();
  posing.device = backend_.device();
  EXPECT_DEATH(add(posing, device.view(), out.view()), "inside a tensor of its device");
  EXPECT_DEATH(add(host.view(), device.view(), out.view()), "tensors of its device");
  EXPECT_DEATH(backend_.upload(device.view(), out.view()), "upload reads host memory");
  EXPECT_DEATH(backend_.download(device.view(), out.view()), "download writes host memory");
  EXPECT_DEATH(backend_.copy(host.view(), out.view()), "tensors of its device");
  const std::int64_t slot = 0;
  const TensorView cache{DType::kF32, {1, 1, 2}, out.view().data, backend_.device()};
  EXPECT_DEATH(backend_.run(store_rows_args(host.f32(), 2, {&slot, 1}, cache)),
               "inside a tensor of its device");
}

TEST_F(GuardedDeathTest, ViewsNextToTheirTensorEndTheProgram) {
  Tensor out = backend_.allocate(DType::kF32, {16});
  TensorView longer = out.view();
  longer.shape = {17};
  EXPECT_DEATH(add(longer, longer, longer), "inside a tensor");
  TensorView gone = out.view();
  out = Tensor();
  EXPECT_DEATH(add(gone, gone, gone), "inside a tensor");
}

TEST_F(GuardedDeathTest, RecordedPassesAreHeldToTheirContract) {
  const Tensor table = uploaded({1, 2, 3, 4}, {2, 2});
  Tensor rows = backend_.allocate(DType::kF32, {2, 2}),
         other = backend_.allocate(DType::kF32, {2, 2});
  const auto pass = [&](std::vector<std::int32_t> ids, Tensor& out) {
    const RecordedPass recorded(backend_, 5);
    TensorView to = out.view();
    to.shape = {static_cast<std::int64_t>(ids.size()), 2};
    backend_.run(EmbeddingArgs{table.view(), ids, to});
  };
  pass({0, 1}, rows);
  pass({1, 1}, rows);  // what a host array holds may differ
  EXPECT_EQ(downloaded(rows), (std::vector<float>{3, 4, 3, 4}));
  EXPECT_DEATH(pass({0}, rows), "the same key means the same ops");
  EXPECT_DEATH(pass({0, 1}, other), "the same key means the same ops");
  EXPECT_DEATH(
      {
        const RecordedPass recorded(backend_, 6);
        backend_.synchronize();
      },
      "nobody waits");
}

}  // namespace
}  // namespace tessera::guard_test
