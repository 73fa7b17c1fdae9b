// The published checkpoints by name and shape (assets/recipes/fixtures_names.py): a sparse folder
// with a checkpoint's names is recognised, checked and planned for; one name less, one more or one
// of another shape is refused by that name.
#include <gtest/gtest.h>

#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"
#include "tests/support/published_names.h"
#include "tests/support/temp_folder.h"

namespace tessera::names_golden_test {
namespace {

namespace fs = std::filesystem;

const fs::path kNames = fs::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "names";

PublishedNames published(const std::string& stem) {
  return read_published_names(kNames / (stem + ".txt"));
}

struct Case {
  std::string stem;
  std::string size;
  std::string vq;           // name list of a VQ file of its own
  std::int64_t parameters;  // of the tensors the family knows; 0 = not a published figure
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.stem; }

// The published folder, or one with other tensors.
void write_folder(const TempFolder& folder, const Case& c, const std::vector<TensorSpec>& tensors) {
  const PublishedNames names = published(c.stem);
  if (!names.config.empty()) put_file(folder / "config.json", names.config);
  write_sparse_safetensors(folder / "model.safetensors", tensors);
  if (!c.vq.empty()) {
    std::vector<TensorSpec> vq = published(c.vq).tensors;
    write_sparse_safetensors(folder / "vq.safetensors", vq);
  }
}

class PublishedCheckpoint : public ::testing::TestWithParam<Case> {};

TEST_P(PublishedCheckpoint, IsRecognisedCheckedAndPlanned) {
  const Case& c = GetParam();
  const TempFolder folder;
  write_folder(folder, c, published(c.stem).tensors);
  const OpenedModel model = open_model(folder.path().string());
  EXPECT_EQ(model.spec.size, c.size);
  EXPECT_EQ(model.spec.model.codes, 16384);
  if (c.parameters > 0) {
    EXPECT_EQ(model.spec.parameter_count(), c.parameters);
  }
  EXPECT_EQ(vq_parameter_count(model.spec.vq), c.vq == "llamagen-vq8" ? 70'109'835 : 71'883'403);

  const auto backend = make_backend("cpu", {.threads = 1});
  const MemoryPlan f32 = plan_memory(model.spec, *backend, {.storage = DType::kF32});
  const MemoryPlan bf16 = plan_memory(model.spec, *backend, {.storage = DType::kBF16});
  EXPECT_GT(f32.weights, bf16.weights);
  EXPECT_LT(f32.weights, bf16.weights * 2 + (std::size_t{64} << 20));
  EXPECT_EQ(f32.kv, 2 * bf16.kv);
}

// E_TENSORS, exit 4, and the tensor's name in the message.
void expect_refused(const TempFolder& folder, const std::string& name, const char* kind) {
  try {
    open_model(folder.path().string());
    ADD_FAILURE() << "accepted with " << kind << " " << name;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(kind), std::string::npos) << error.what();
  }
}

TEST_P(PublishedCheckpoint, OneNameChangedIsRefused) {
  const Case& c = GetParam();
  const std::vector<TensorSpec> whole = published(c.stem).tensors;
  // Spread over the list; tensors that the family ignores may go.
  for (std::size_t pick = 1; pick < whole.size(); pick += whole.size() / 5) {
    std::size_t at = pick;
    while (whole[at].name.find("attn_pool") != std::string::npos ||
           whole[at].name.find("codebook_used") != std::string::npos) {
      at = (at + 1) % whole.size();
    }
    std::vector<TensorSpec> fewer = whole;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    const TempFolder missing;
    write_folder(missing, c, fewer);
    // Without a configuration some tensors are asked for by name before the lists are compared.
    const bool listed = !published(c.stem).config.empty();
    expect_refused(missing, whole[at].name, listed ? "missing" : "");

    std::vector<TensorSpec> reshaped = whole;
    std::vector<std::int64_t> extents(whole[at].shape.extents().begin(),
                                      whole[at].shape.extents().end());
    extents.back() += 1;
    reshaped[at].shape = Shape(extents);
    const TempFolder wrong;
    write_folder(wrong, c, reshaped);
    expect_refused(wrong, whole[at].name, listed ? "wrong" : "");
  }
  std::vector<TensorSpec> more = whole;
  more.push_back({"model.stranger.weight", Shape{4}});
  const TempFolder surplus;
  write_folder(surplus, c, more);
  expect_refused(surplus, "model.stranger.weight", "surplus");
}

INSTANTIATE_TEST_SUITE_P(All, PublishedCheckpoint,
                         ::testing::Values(Case{"janus-pro-1b-port", "1B", "", 0},
                                         Case{"janus-pro-1b-original", "1B", "", 0},
                                         Case{"janus-pro-7b-port", "7B", "", 0},
                                         Case{"janus-pro-7b-original", "7B", "", 0},
                                         Case{"llamagen-B", "B", "llamagen-vq16", 110'888'448},
                                         Case{"llamagen-L", "L", "llamagen-vq16", 342'910'976},
                                         Case{"llamagen-XL", "XL", "llamagen-vq16", 0},
                                         Case{"llamagen-XXL", "XXL", "llamagen-vq8", 0},
                                         Case{"llamagen-XXXL", "XXXL", "llamagen-vq16", 0},
                                         Case{"llamagen-1B", "1B", "llamagen-vq16", 0},
                                         Case{"llamagen-3B", "3B", "llamagen-vq16", 0},
                                         Case{"llamagen-7B", "7B", "llamagen-vq16", 0}));

TEST(PublishedNames, CountsEqualThePublishedFigures) {
  EXPECT_NEAR(static_cast<double>(published("llamagen-B").elements()) / 1e6, 110.9, 0.05);
  EXPECT_NEAR(static_cast<double>(published("llamagen-L").elements()) / 1e6, 342.9, 0.05);
  EXPECT_EQ(vq_parameter_count(VqSpec{}), 71'883'403);
  VqSpec vq8;
  vq8.multipliers = {1, 2, 2, 4};
  EXPECT_EQ(vq_parameter_count(vq8), 70'109'835);
}

// Both layouts of one model are the same model.
TEST(PublishedNames, PortAndOriginalAgree) {
  for (const std::string size : {"1b", "7b"}) {
    const auto spec = [&](const char* layout) {
      return parse_family_config(published("janus-pro-" + size + "-" + layout).config, layout);
    };
    const ModelSpec port = spec("port");
    const ModelSpec original = spec("original");
    EXPECT_EQ(port.parameter_count(), original.parameter_count()) << size;
    EXPECT_EQ(port.model.transformer.ffn_width, original.model.transformer.ffn_width);
    EXPECT_EQ(port.model.grid_rows, 24);
    EXPECT_EQ(original.model.grid_rows, 24);
    EXPECT_EQ(port.image_height(), 384);
    EXPECT_EQ(port.model.transformer.heads, size == "1b" ? 16 : 32);
    EXPECT_EQ(original.model.transformer.heads, size == "1b" ? 16 : 32);
  }
}

// Head width 100 of LlamaGen-3B is no multiple of 8.
TEST(PublishedNames, LlamaGen3BHasHeadsOf100) {
  const TempFolder folder;
  write_folder(folder, {"llamagen-3B", "3B", "llamagen-vq16", 0}, published("llamagen-3B").tensors);
  const ModelSpec spec = load_model_spec(folder.path(), {.width = 384, .height = 384});
  EXPECT_EQ(spec.model.transformer.head_dim, 100);
  EXPECT_EQ(spec.model.grid_rows, 24);
}

}  // namespace
}  // namespace tessera::names_golden_test
