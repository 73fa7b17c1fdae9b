// Checkpoints: what was written is read back, folders are understood, changed files are noticed,
// non-finite values are found.
#include "engine/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "engine/checkpoint/non_finite.h"
#include "engine/checkpoint/tensor_kinds.h"
#include "engine/core/storage.h"
#include "tests/support/fault_scope.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace tessera::checkpoint_test {
namespace {

namespace fs = std::filesystem;

constexpr DType kAllTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI8,
                               DType::kU8,  DType::kI16,  DType::kI32, DType::kI64, DType::kBool};

std::map<std::string, Tensor> sample_tensors() {
  std::map<std::string, Tensor> out;
  unsigned seed = 1;
  for (const DType dtype : kAllTypes) {
    out.emplace("all." + std::string(dtype_name(dtype)), patterned(dtype, {3, 5}, ++seed));
  }
  out.emplace("scalar", patterned(DType::kF32, Shape{}));
  out.emplace("empty", patterned(DType::kF32, {0, 4}));
  out.emplace("quote\" \\ \xc3\xa4", patterned(DType::kF32, {2}));
  out.emplace("rank8", patterned(DType::kU8, {1, 2, 1, 2, 1, 2, 1, 2}));
  return out;
}

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 4);
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorInfo{});
}

void write_one(const fs::path& path, const std::string& name, unsigned seed = 1) {
  const Tensor tensor = patterned(DType::kF32, {2, 2}, seed);
  write_safetensors(path, {{name, tensor.view()}});
}

TEST(Checkpoint, ReadsBackWhatWasWritten) {
  TempFolder folder;
  const Checkpoint made = Checkpoint::from_tensors("memory", sample_tensors());
  write_safetensors(folder / "m.safetensors", views_of(made), {{"note", "a\nb"}});
  const Checkpoint read = Checkpoint::open(folder / "m.safetensors");
  ASSERT_EQ(read.tensors().size(), made.tensors().size());
  for (const auto& [name, view] : made.tensors()) {
    ASSERT_NE(read.find(name), nullptr) << name;
    EXPECT_TRUE(same_tensor(*read.find(name), view)) << name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.find(name)->data) % dtype_size(view.dtype), 0u);
    EXPECT_EQ(made.file_of(name), "memory");
  }
  EXPECT_EQ(read.metadata().at("note"), "a\nb");
  EXPECT_EQ(read.total_bytes(), made.total_bytes());
  EXPECT_EQ(read.find("gone"), nullptr);
  EXPECT_EQ(read.file_of("scalar"), (folder / "m.safetensors").string());
  read.release("all.f32");
  EXPECT_TRUE(same_tensor(*read.find("all.f32"), *made.find("all.f32")));
  made.release("all.f32");
  EXPECT_NO_THROW(made.verify_unchanged());
}

TEST(Checkpoint, WritingLeavesNothingAfterWhenTheDiskFails) {
  TempFolder folder;
  for (std::uint64_t nth = 1; nth <= 9; ++nth) {
    const FaultScope fault({IoOp::kAny, nth, ENOSPC, FaultPlan::Mode::kOnce});
    try {
      write_one(folder / "m.safetensors", "a");
      EXPECT_EQ(fault.hits(), 0u);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 6);
      // Only opening and syncing the folder come after the whole file took its place.
      EXPECT_EQ(fs::exists(folder / "m.safetensors"), nth == 7 || nth == 8) << nth;
    }
    const auto left = std::distance(fs::directory_iterator(folder.path()), {});
    EXPECT_EQ(left, fs::exists(folder / "m.safetensors") ? 1 : 0) << nth;
  }
  EXPECT_NO_THROW(Checkpoint::open(folder / "m.safetensors"));
}

TEST(Checkpoint, MisalignedTensorsAreCopiedToAlignedMemory) {
  TempFolder folder;
  // One byte first, so that every float of the second tensor lies at an odd address.
  std::string header = R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("f":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  const float values[2] = {1.5f, -2.25f};
  file += header + "x" + std::string(reinterpret_cast<const char*>(values), 8);
  put_file(folder / "m.safetensors", file);
  const Checkpoint read = Checkpoint::open(folder / "m.safetensors");
  const ConstTensorView* view = read.find("f");
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view->data) % 4, 0u);
  EXPECT_EQ(view->f32()[0], 1.5f);
  EXPECT_EQ(view->f32()[1], -2.25f);
}

TEST(Checkpoint, JoinsTheShardsOfAnIndex) {
  TempFolder folder;
  write_one(folder / "a.safetensors", "x", 1);
  write_one(folder / "b.safetensors", "y", 2);
  put_file(
      folder / "model.safetensors.index.json",
      R"({"metadata":{"total_size":32},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  const Checkpoint read = Checkpoint::open(folder.path());
  EXPECT_EQ(read.tensors().size(), 2u);
  EXPECT_EQ(read.file_of("y"), (folder / "b.safetensors").string());
  EXPECT_EQ(read.total_bytes(), 32u);
}

TEST(Checkpoint, AnIndexMustListExactlyWhatTheShardsHold) {
  TempFolder folder;
  std::map<std::string, Tensor> many;
  for (int i = 0; i < 15; ++i)
    many.emplace("t" + std::to_string(10 + i), patterned(DType::kU8, {1}));
  const Checkpoint made = Checkpoint::from_tensors("", std::move(many));
  write_safetensors(folder / "a.safetensors", views_of(made));
  put_file(folder / "i.index.json",
           R"({"weight_map":{"t10":"a.safetensors","u":"a.safetensors"}})");
  const Error error = error_of([&] { Checkpoint::open(folder / "i.index.json"); });
  EXPECT_EQ(error.info().code, "E_IDX_TENSORS");
  EXPECT_NE(error.info().found.find("1 missing: u (in a.safetensors); 14 surplus: t11, "),
            std::string::npos)
      << error.info().found;
  EXPECT_NE(error.info().found.find("t20 and 4 more"), std::string::npos) << error.info().found;
}

TEST(Checkpoint, ATensorInTwoShardsOrInTheWrongOneIsRefused) {
  TempFolder folder;
  write_one(folder / "a.safetensors", "x");
  write_one(folder / "b.safetensors", "x");
  put_file(folder / "i.index.json", R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder / "i.index.json"); }).info().code,
            "E_CKPT_DUPLICATE");
  write_one(folder / "b.safetensors", "y");
  put_file(folder / "i.index.json", R"({"weight_map":{"y":"a.safetensors","x":"b.safetensors"}})");
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder / "i.index.json"); }).info().code,
            "E_IDX_TENSORS");
}

TEST(Checkpoint, ChoosesTheFileOfAFolder) {
  TempFolder folder;
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder.path()); }).info().code, "E_CKPT_NONE");
  put_file(folder / "config.json", "{}");
  write_one(folder / "weights.safetensors", "x");
  EXPECT_NE(Checkpoint::open(folder.path()).find("x"), nullptr);
  write_one(folder / "other.safetensors", "y");
  const Error error = error_of([&] { Checkpoint::open(folder.path()); });
  EXPECT_EQ(error.info().code, "E_CKPT_AMBIGUOUS");
  EXPECT_NE(error.info().found.find("other.safetensors, weights.safetensors"), std::string::npos);
  write_one(folder / "model.safetensors", "z");
  EXPECT_NE(Checkpoint::open(folder.path()).find("z"), nullptr);
}

TEST(Checkpoint, AGitLfsPointerIsNamed) {
  const TempFolder folder;
  for (const char* name : {"model.safetensors", "pytorch_model.bin"}) {
    std::ofstream(folder / name) << "version https://git-lfs.github.com/spec/v1\n"
                                 << "oid sha256:" << std::string(64, 'a') << "\nsize 4096\n";
    try {
      Checkpoint::open(folder / name);
      ADD_FAILURE() << "read";
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_CKPT_POINTER");
      EXPECT_NE(std::string(error.what()).find("git lfs pull"), std::string::npos) << error.what();
    }
  }
}

TEST(Checkpoint, TensorsOfOtherToolsAreExplained) {
  const auto explanation = [](const char* name) {
    std::map<std::string, Tensor> tensors;
    tensors.emplace(name, Tensor::host(DType::kF32, {1}));
    tensors.emplace("model.norm.weight", Tensor::host(DType::kF32, {1}));
    return explained(Checkpoint::from_tensors("made up", std::move(tensors)), "2 missing");
  };
  const std::string stem = "model.layers.0.self_attn.q_proj";
  const std::pair<const char*, const char*> kinds[] = {
      {".g_idx", "GPTQ"},           {".qzeros", "AWQ"},
      {".SCB", "bitsandbytes"},     {".weight.quant_state.bitsandbytes__nf4", "4 bits"},
      {".weight_scale_inv", "FP8"}, {".weight_packed", "compressed-tensors"},
      {".lora_A.weight", "LoRA"}};
  for (const auto& [leaf, kind] : kinds) {
    const std::string text = explanation((stem + leaf).c_str());
    EXPECT_NE(text.find(kind), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with(": 2 missing")) << text;
  }
  EXPECT_NE(explanation("module.model.a.weight").find("module."), std::string::npos);
  EXPECT_EQ(explanation("model.a.weight"), "2 missing");
}

TEST(Checkpoint, NoticesAFileThatChangedWhileOpen) {
  TempFolder folder;
  const fs::path path = folder / "m.safetensors";
  write_one(path, "x");
  const Checkpoint read = Checkpoint::open(path);
  EXPECT_NO_THROW(read.verify_unchanged());
  write_one(path, "x", 2);
  const Error error = error_of([&] { read.verify_unchanged(); });
  EXPECT_EQ(error.info().code, "E_IO_CHANGED");
  EXPECT_EQ(error.info().file, path.string());
}

TEST(Checkpoint, EveryTruncationIsRefused) {
  TempFolder folder;
  const Checkpoint made = Checkpoint::from_tensors("memory", sample_tensors());
  write_safetensors(folder / "m.safetensors", views_of(made));
  const std::string whole = get_file(folder / "m.safetensors");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put_file(folder / "cut.safetensors", std::string_view(whole).substr(0, size));
    EXPECT_THROW(Checkpoint::open(folder / "cut.safetensors"), Error) << size;
  }
  put_file(folder / "long.safetensors", whole + "x");
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder / "long.safetensors"); }).info().code,
            "E_ST_TRAILING");
}

TEST(NonFinite, FindsTheFirstAndCountsAll) {
  for (const std::int64_t size : {1, 7, 4096, 4097, 20'000}) {
    Tensor tensor = Tensor::host(DType::kF32, {size});
    for (std::int64_t i = 0; i < size; ++i) tensor.f32()[i] = std::numeric_limits<float>::max();
    EXPECT_FALSE(find_non_finite(tensor.view()));
    for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
      for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
        const float kept = tensor.f32()[at];
        tensor.f32()[at] = bad;
        const auto found = find_non_finite(tensor.view());
        ASSERT_TRUE(found);
        EXPECT_EQ(found->index, at);
        EXPECT_EQ(found->count, 1);
        tensor.f32()[at] = kept;
      }
    }
    for (std::int64_t i = size / 3; i < size; ++i) tensor.f32()[i] = NAN;
    EXPECT_EQ(find_non_finite(tensor.view())->index, size / 3);
    EXPECT_EQ(find_non_finite(tensor.view())->count, size - size / 3);
  }
}

// Every pattern of the 16-bit types, and the edges of f64, against the C library's isfinite.
TEST(NonFinite, AgreesWithIsfinite) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(find_non_finite({DType::kF16, {1}, &half, {}}).has_value(),
              !std::isfinite(f16_to_float(half)));
    ASSERT_EQ(find_non_finite({DType::kBF16, {1}, &half, {}}).has_value(),
              !std::isfinite(bf16_to_float(half)));
    ASSERT_FALSE(find_non_finite({DType::kI16, {1}, &half, {}}));
  }
  // f64 is read as f32.
  constexpr double kMost = std::numeric_limits<float>::max();
  for (const double value : {0.0, kMost, -kMost * (1 + 1e-9), -1e-310}) {
    EXPECT_FALSE(find_non_finite({DType::kF64, {1}, &value, {}})) << value;
    EXPECT_TRUE(std::isfinite(widened({DType::kF64, {1}, &value, {}}).f32()[0])) << value;
  }
  for (const double value : {1e308, kMost * (1 + 1e-7), double{NAN}, -double{INFINITY}}) {
    EXPECT_TRUE(find_non_finite({DType::kF64, {1}, &value, {}})) << value;
    EXPECT_FALSE(std::isfinite(widened({DType::kF64, {1}, &value, {}}).f32()[0])) << value;
  }
}

}  // namespace
}  // namespace tessera::checkpoint_test
