// A weight file that is cut, overwritten, deleted or replaced while it is being read: the program
// lives on, and what was read is either right or refused, never silently wrong.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "engine/checkpoint/checkpoint.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace tessera::changed_file_test {
namespace {

namespace fs = std::filesystem;

constexpr int kTensors = 15;
constexpr std::int64_t kFloats = 3 * 1024;  // three pages

std::string tensor_name(int i) { return "t" + std::to_string(100 + i); }

std::map<std::string, Tensor> make_tensors(unsigned seed) {
  std::map<std::string, Tensor> out;
  for (int i = 0; i < kTensors; ++i) {
    out.emplace(tensor_name(i), patterned(DType::kF32, {kFloats}, seed + static_cast<unsigned>(i)));
  }
  return out;
}

void write_tensors(const fs::path& path, unsigned seed) {
  const Checkpoint made = Checkpoint::from_tensors("memory", make_tensors(seed));
  write_safetensors(path, views_of(made));
}

struct Damage {
  const char* name;
  std::function<void(const fs::path&)> apply;
};

const Damage kDamages[] = {
    {"cut in half", [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) / 2); }},
    {"cut inside a page",
     [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) / 3 + 100); }},
    {"emptied", [](const fs::path& path) { fs::resize_file(path, 0); }},
    {"overwritten in place",
     [](const fs::path& path) {
       std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
       file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 4));
       file << std::string(fs::file_size(path) / 2, 'Z');
     }},
    {"deleted", [](const fs::path& path) { fs::remove(path); }},
    {"replaced",
     [](const fs::path& path) {
       write_tensors(path.string() + ".new", 500);
       fs::rename(path.string() + ".new", path);
     }},
};

TEST(ChangedFile, NeverGivesSilentlyWrongWeights) {
  const std::map<std::string, Tensor> truth = make_tensors(1);
  int injected = 0, refused = 0;
  for (const Damage& damage : kDamages) {
    for (int moment = 0; moment < kTensors; ++moment) {
      TempFolder folder;
      const fs::path path = folder / "m.safetensors";
      write_tensors(path, 1);
      const Checkpoint read = Checkpoint::open(path);
      // Time stamps of files step with the kernel's clock tick.
      std::this_thread::sleep_for(std::chrono::milliseconds(12));
      bool right = true;
      for (int i = 0; i < kTensors; ++i) {
        if (i == moment) damage.apply(path);
        const ConstTensorView* view = read.find(tensor_name(i));
        ASSERT_NE(view, nullptr);
        right = right && same_tensor(*view, truth.at(tensor_name(i)).view());
      }
      ++injected;
      try {
        read.verify_unchanged();
        EXPECT_TRUE(right) << damage.name << " before tensor " << moment;
      } catch (const Error& error) {
        EXPECT_EQ(error.info().code, "E_IO_CHANGED");
        EXPECT_EQ(error.exit_code(), 4);
        EXPECT_EQ(error.info().file, path.string());
        ++refused;
      }
    }
  }
  std::cout << injected << " changes injected, " << refused << " refused, 0 silent wrong weights\n";
  EXPECT_GE(injected, 60);
  EXPECT_EQ(refused, injected);
}

TEST(ChangedFile, ManyThreadsMayMeetTheSameCut) {
  TempFolder folder;
  const fs::path path = folder / "m.safetensors";
  write_tensors(path, 1);
  const Checkpoint read = Checkpoint::open(path);
  fs::resize_file(path, 100);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTensors; ++i) {
        const ConstTensorView* view = read.find(tensor_name((i + 4 * t) % kTensors));
        volatile float sum = 0;
        const auto* values = static_cast<const float*>(view->data);
        for (std::int64_t k = 0; k < kFloats; ++k) sum = sum + values[k];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THROW(read.verify_unchanged(), Error);
}

// A SIGBUS that is none of ours still ends the program.
TEST(ChangedFileDeathTest, ForeignBusErrorsAreNotSwallowed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TempFolder folder;
  const fs::path path = folder / "m.safetensors";
  write_tensors(path, 1);
  const Checkpoint read = Checkpoint::open(path);  // installs the handler
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::ftruncate(::fileno(file), 8192), 0);
  const void* memory = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, ::fileno(file), 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::ftruncate(::fileno(file), 0), 0);
  EXPECT_DEATH(
      { [[maybe_unused]] volatile char byte = *static_cast<const volatile char*>(memory); }, "");
  ::munmap(const_cast<void*>(memory), 8192);
  std::fclose(file);
}

}  // namespace
}  // namespace tessera::changed_file_test
