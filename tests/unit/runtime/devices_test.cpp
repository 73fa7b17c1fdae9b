// Every pipeline opens the device that its options name, with the options of that device.
#include <gtest/gtest.h>

#include <functional>

#include "apps/lab/eval/eval_reader.h"
#include "apps/runtime/describe_task.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/video_task.h"

namespace tessera::devices_test {
namespace {

// A device that notes how it was asked for, and is the CPU.
struct Asked {
  int times = 0;
  CpuOptions cpu;
  CudaOptions cuda;
};
Asked& asked() {
  static Asked last;
  return last;
}

const bool kOffered = [] {
  offer_device({{.name = "noting:0", .description = "notes its options"},
                [](const CpuOptions& cpu, const CudaOptions& cuda) {
                  asked() = {asked().times + 1, cpu, cuda};
                  return make_backend("cpu", cpu);
                }});
  return true;
}();

template <typename Options>
Options on_device(const char* device, CudaOptions cuda, const char* model) {
  Options out;
  if constexpr (requires { out.model; }) out.model = model;
  out.device = device;
  out.cuda = cuda;
  out.threads = 1;
  return out;
}

void expect_asked(const std::function<void(const char*, CudaOptions)>& open, int times = 1) {
  ASSERT_TRUE(kOffered);
  for (const char* device : {"noting", "noting:0"}) {
    for (const CudaOptions cuda :
         {CudaOptions{}, CudaOptions{.deterministic = true}, CudaOptions{.tf32 = true}}) {
      asked() = {};
      open(device, cuda);
      EXPECT_EQ(asked().times, times) << device;
      EXPECT_EQ(asked().cuda.deterministic, cuda.deterministic);
      EXPECT_EQ(asked().cuda.tf32, cuda.tf32);
      EXPECT_EQ(asked().cpu.threads, 1);
    }
  }
  asked() = {};
  open("auto", {});
  EXPECT_EQ(asked().times, 0);
  EXPECT_THROW(open("noting:1", {}), Error);
}

TEST(Devices, ImagesAreGeneratedWhereAskedFor) {
  expect_asked([](const char* device, CudaOptions cuda) {
    Runtime runtime;
    GenerateTask(runtime, on_device<GenerateOptions>(device, cuda, "test:tiny"));
  });
}

TEST(Devices, VideosAreGeneratedWhereAskedFor) {
  expect_asked([](const char* device, CudaOptions cuda) {
    Runtime runtime;
    VideoTask(runtime, on_device<GenerateOptions>(device, cuda, "test:clip"));
  });
}

TEST(Devices, ImagesAreDescribedWhereAskedFor) {
  expect_asked([](const char* device, CudaOptions cuda) {
    Runtime runtime;
    DescribeTask(runtime, on_device<DescribeOptions>(device, cuda, "test:tiny"));
  });
}

TEST(Devices, ScenesAreReadWhereAskedFor) {
  expect_asked([](const char* device, CudaOptions cuda) {
    SceneReader::open("", on_device<ReaderOptions>(device, cuda, ""));
  });
}

}  // namespace
}  // namespace tessera::devices_test
