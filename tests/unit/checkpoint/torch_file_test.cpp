// Files really written by torch.save (assets/recipes/fixtures_pickle.py): the good ones hold the
// values that the safetensors package wrote next to them, the bad ones are refused by name.
#include "engine/checkpoint/torch_file.h"

#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace tessera::torch_file_test {
namespace {

namespace fs = std::filesystem;
const fs::path kGoldens = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/pickle";

void expect_same(const Checkpoint& got, const Checkpoint& want) {
  EXPECT_EQ(got.tensors().size(), want.tensors().size());
  for (const auto& [name, view] : want.tensors()) {
    ASSERT_NE(got.find(name), nullptr) << name;
    EXPECT_TRUE(same_tensor(*got.find(name), view)) << name;
  }
}

struct Good {
  const char* name;
  const char* root;
};

class GoodTorchFile : public ::testing::TestWithParam<Good> {};
INSTANTIATE_TEST_SUITE_P(Goldens, GoodTorchFile,
                         ::testing::Values(Good{"dtypes_protocol2", ""},
                                           Good{"dtypes_protocol3", ""},
                                           Good{"dtypes_protocol4", ""},
                                           Good{"dtypes_protocol5", ""}, Good{"ordered_dict", ""},
                                           Good{"parameters", "state_dict"},
                                           Good{"shared_storage", "module"}, Good{"strided", ""},
                                           Good{"training", "model"}, Good{"without_crc", "model"}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(GoodTorchFile, HoldsTheValuesThatPytorchSaved) {
  const std::string name = GetParam().name;
  const Checkpoint got = Checkpoint::open(kGoldens / (name + ".pt"));
  expect_same(got, Checkpoint::open(kGoldens / (name + ".safetensors")));
  EXPECT_EQ(got.metadata().at("torch.root"), GetParam().root);
}

// Any cut is refused; a file with one byte changed is refused or gives tensors inside the file.
TEST_P(GoodTorchFile, SurvivesCutsAndFlippedBytes) {
  const std::string whole = get_file(kGoldens / (std::string(GetParam().name) + ".pt"));
  const auto parse = [](const std::string& text) {
    return parse_torch_file(std::as_bytes(std::span(text)), "f.pt");
  };
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_THROW(parse(whole.substr(0, size)), Error) << size;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
    try {
      for (const StoredTensor& tensor : parse(changed).tensors) {
        ASSERT_LE(tensor.begin, tensor.end) << at;
        ASSERT_LE(tensor.end, changed.size()) << at;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
    }
  }
}

TEST(TorchFile, SharedStorageIsNotCopied) {
  const Checkpoint got = Checkpoint::open(kGoldens / "shared_storage.pt");
  EXPECT_EQ(got.find("whole")->data, got.find("tied")->data);
  EXPECT_EQ(static_cast<const float*>(got.find("rows")->data),
            static_cast<const float*>(got.find("whole")->data) + 2 * 4);
}

TEST(TorchFile, JoinsAShardedBin) {
  expect_same(Checkpoint::open(kGoldens / "sharded"),
              Checkpoint::open(kGoldens / "sharded.safetensors"));
}

TEST(TorchFile, IsKnownByItsContentsWhateverItsName) {
  TempFolder folder;
  fs::copy_file(kGoldens / "parameters.pt", folder / "weights");
  EXPECT_EQ(Checkpoint::open(folder / "weights").tensors().size(), 4u);
}

// The reference opens a file as its name says; what to do is to rename it.
TEST(TorchFile, UnderTheNameOfAnotherFormatIsRefusedWithTheRightOne) {
  const TempFolder folder;
  fs::copy_file(kGoldens / "parameters.pt", folder / "model.safetensors");
  fs::copy_file(kGoldens / "sharded.safetensors", folder / "pytorch_model.bin");
  put_file(folder / "model.pth", std::string("GGUF") + std::string(28, '\0'));
  for (const auto& [name, found, hint] :
       {std::tuple{"model.safetensors", "torch.save", "pytorch_model.bin"},
        std::tuple{"pytorch_model.bin", "safetensors", "model.safetensors"},
        std::tuple{"model.pth", "GGUF", "model.gguf"}}) {
    try {
      Checkpoint::open(folder / name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_CKPT_NAME");
      EXPECT_EQ(error.info().file, (folder / name).string());
      EXPECT_NE(error.info().found.find(found), std::string::npos);
      EXPECT_NE(error.info().hint.find(hint), std::string::npos);
    }
  }
}

struct Bad {
  const char* name;
  const char* code;
  const char* words;
};

class BadTorchFile : public ::testing::TestWithParam<Bad> {};
INSTANTIATE_TEST_SUITE_P(
    Goldens, BadTorchFile,
    ::testing::Values(Bad{"runs_code", "E_PT_GLOBAL", "posix.system"},
                      Bad{"whole_module", "E_PT_GLOBAL", "torch.nn.modules.container.Sequential"},
                      Bad{"counter", "E_PT_GLOBAL", "collections.Counter"},
                      Bad{"old_format", "E_PT_OLD_FORMAT", "weights_only=True"},
                      Bad{"float8", "E_PT_DTYPE", "_rebuild_tensor_v3"},
                      Bad{"complex", "E_PT_DTYPE", "ComplexFloatStorage"},
                      Bad{"sparse", "E_PT_DTYPE", "_rebuild_sparse_tensor"},
                      Bad{"expanded", "E_PT_STRIDE", "tensor.contiguous()"},
                      Bad{"bare_tensor", "E_PT_NO_TENSORS", "a tensor"},
                      Bad{"no_tensors", "E_PT_NO_TENSORS", "model, module or state_dict"},
                      Bad{"number_key", "E_PT_NAME", "an integer"},
                      Bad{"control_name", "E_PT_NAME", "printable"},
                      Bad{"torchscript", "E_PT_TORCHSCRIPT", "state_dict()"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST_P(BadTorchFile, IsRefusedByName) {
  const fs::path path = kGoldens / "bad" / (std::string(GetParam().name) + ".pt");
  try {
    Checkpoint::open(path);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, GetParam().code);
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_NE(std::string(error.what()).find(GetParam().words), std::string::npos) << error.what();
    EXPECT_EQ(error.info().file, path.string());
  }
}

}  // namespace
}  // namespace tessera::torch_file_test
