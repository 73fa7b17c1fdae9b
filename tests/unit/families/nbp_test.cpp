// NBP by name and shape: published sizes are known by their shapes, counted, and refused by the name
// that is wrong; a Lightning checkpoint is read through the restricted pickle reader.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/lab/models/test_models.h"
#include "engine/core/json.h"
#include "engine/families/open_model.h"
#include "tests/support/published_names.h"
#include "tests/support/temp_folder.h"
#include "tests/support/torch_builder.h"

namespace tessera::nbp_test {
namespace {

const std::string kGolden = TESSERA_SOURCE_DIR "/tests/golden/nbp/";

// What the authors' program has, in long-hand. Condition words 0: a model that goes on from frames.
std::vector<TensorSpec> published(std::int64_t layers, std::int64_t width, std::int64_t words) {
  const std::int64_t ids = 64000 + (words > 0 ? 16 + words : 0);
  std::vector<TensorSpec> out = {{"transformer.tok_emb.weight", {ids, width}},
                                 {"transformer.pos_emb", {1, 5120, width}},
                                 {"transformer.uncond_embedding", {8, width}},
                                 {"transformer.ln_f.weight", {width}},
                                 {"transformer.ln_f.bias", {width}},
                                 {"transformer.head.weight", {ids, width}},
                                 {"first_stage_model.encoder.conv_in.weight", {4, 3}}};
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string at = "transformer.blocks." + std::to_string(i) + ".";
    for (const char* norm : {"ln1", "ln2"}) {
      out.push_back({at + norm + ".weight", {width}});
      out.push_back({at + norm + ".bias", {width}});
    }
    for (const char* part : {"attn.key", "attn.query", "attn.value", "attn.proj"}) {
      out.push_back({at + part + ".weight", {width, width}});
      out.push_back({at + part + ".bias", {width}});
    }
    out.push_back({at + "mlp.0.weight", {4 * width, width}});
    out.push_back({at + "mlp.0.bias", {4 * width}});
    out.push_back({at + "mlp.2.weight", {width, 4 * width}});
    out.push_back({at + "mlp.2.bias", {width}});
  }
  return out;
}

OpenedModel open_sparse(const std::vector<TensorSpec>& tensors) {
  const TempFolder folder;
  write_sparse_safetensors(folder / "model.safetensors", tensors);
  return open_model(folder.path().string());
}

TEST(NbpNames, PublishedSizesAreHeardByTheirShapes) {
  struct Row {
    const char* size;
    std::int64_t layers, width, heads, parameters;
  };
  // 12 D^2 + 13 D a layer, 2 D, tables of 64000, 5120 and 64000 rows.
  for (const Row& row :
       {Row{"base", 24, 1536, 16, 884'431'872}, Row{"xl", 24, 2048, 32, 1'481'232'384},
        Row{"3B", 32, 3072, 32, 4'034'107'392}}) {
    const ModelSpec spec = open_sparse(published(row.layers, row.width, 0)).spec;
    EXPECT_EQ(spec.family, "nbp");
    EXPECT_EQ(spec.size, row.size);
    EXPECT_EQ(spec.parameter_count(), row.parameters);
    EXPECT_EQ(spec.parameter_count(), row.layers * (12 * row.width * row.width + 13 * row.width) +
                                          2 * row.width + (2 * 64000 + 5120) * row.width);
    const BlockModelConfig& model = *spec.blocks;
    EXPECT_EQ(model.heads, row.heads);
    EXPECT_EQ(model.start, BlockStart::kGiven);
    EXPECT_EQ(model.first_code, 0);
    EXPECT_EQ(spec.model.image_tokens(), 1280);
    EXPECT_EQ(spec.image_width(), 128);
    EXPECT_EQ(spec.prompt.kind, PromptKind::kFrames);
    EXPECT_FALSE(spec.movq);
  }
}

TEST(NbpNames, ModelsOfClassesHaveWordsInFrontOfTheirCodes) {
  const ModelSpec spec = open_sparse(published(24, 1536, 32000)).spec;
  EXPECT_EQ(spec.blocks->start, BlockStart::kHybrid);
  EXPECT_EQ(spec.blocks->conditions, 32000);
  EXPECT_EQ(spec.blocks->first_condition, 16);
  EXPECT_EQ(spec.blocks->first_code, 32016);
  EXPECT_EQ(spec.blocks->vocabulary, 96016);
}

void expect_refused(const std::vector<TensorSpec>& tensors, const std::string& place) {
  try {
    open_sparse(tensors);
    ADD_FAILURE() << "not refused for " << place;
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind, ErrorKind::kModel);
    EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
  }
}

TEST(NbpNames, WhatIsWrongIsRefusedByName) {
  const auto changed = [](const std::function<void(std::vector<TensorSpec>&)>& edit) {
    auto tensors = published(24, 1536, 0);
    edit(tensors);
    return tensors;
  };
  expect_refused(changed([](auto& all) { all.erase(all.begin() + 3); }), "transformer.ln_f.weight");
  expect_refused(changed([](auto& all) {
                   all.push_back({"transformer.vtokens_pos_emb", {1, 2}});
                 }),
                 "transformer.vtokens_pos_emb");
  expect_refused(changed([](auto& all) {
                   all[5].shape = {64001, 1536};
                 }),
                 "transformer.head.weight");
  expect_refused(changed([](auto& all) {
                   all[0].shape = {64003, 1536};
                 }),
                 "transformer.tok_emb.weight");
  expect_refused(changed([](auto& all) { all[1].shape = {1, 100, 1536}; }), "block_size");
  expect_refused(published(23, 1536, 0), "23 layers of width 1536");
}

TEST(NbpConfig, IsReadAndRefusedByKey) {
  const Json good = parse_json(test_model_config("nbp"), "nbp");
  const ModelSpec spec = parse_family_config(good.dump(), "c");
  EXPECT_EQ(spec.blocks->first_condition, 6);
  EXPECT_EQ(spec.blocks->first_code, 6 + 263);
  EXPECT_EQ(spec.blocks->vocabulary, 6 + 263 + 64);
  EXPECT_TRUE(spec.movq);
  const auto refused = [&](const char* key, const Json& value) {
    Json config = good;
    config[key] = value;
    try {
      parse_family_config(config.dump(), "c");
      ADD_FAILURE() << key << " is not refused";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  refused("n_head", 5);
  refused("token_number_per_step", 7);
  refused("block_size", 99);
  refused("n_layer", 0);
  refused("clip_config", "none");
  refused("clip_config", {{"grids", 1}, {"grid_rows", 6}, {"grid_cols", 16384}});
}

// A Lightning checkpoint: tensors under state_dict, next to the program's arguments.
TEST(NbpNames, ALightningCheckpointIsRead) {
  const Checkpoint model = Checkpoint::open(kGolden + "model.safetensors");
  PickleText pickle;
  ZipPlan plan;
  pickle.op('}').text("epoch").integer(3).op('s').text("state_dict").op('}');
  std::vector<ZipItem> data;
  for (const auto& [name, view] : model.tensors()) {
    const std::string key = std::to_string(data.size());
    std::vector<std::int64_t> size(view.shape.extents().begin(), view.shape.extents().end());
    std::vector<std::int64_t> stride(size.size(), 1);
    for (std::size_t axis = size.size() - 1; axis > 0; --axis) {
      stride[axis - 1] = stride[axis] * size[axis];
    }
    pickle.text(name).tensor("HalfStorage", key, view.shape.elements(), 0, size, stride).op('s');
    data.push_back(
        {"x/data/" + key, std::string(static_cast<const char*>(view.data), view.bytes())});
  }
  pickle.op('s').text("hyper_parameters").op('}').text("args");
  pickle.name("argparse", "Namespace").op(')').op(0x81).op('}').text("n_head").integer(2).op('s');
  pickle.op('b').op('s').op('s');
  plan.items = {{"x/data.pkl", pickle.stop()}, {"x/byteorder", "little"}};
  for (ZipItem& item : data) plan.items.push_back(std::move(item));
  plan.items.push_back({"x/version", "3\n"});
  const TempFolder folder;
  put_file(folder / "model.ckpt", build_zip(plan));
  put_file(folder / "config.json", get_file(kGolden + "hybrid.json"));
  const OpenedModel opened = open_model(folder.path().string());
  EXPECT_EQ(opened.spec.blocks->vocabulary, 30);
  const ConstTensorView* table = opened.weights->find("transformer.tok_emb.weight");
  ASSERT_NE(table, nullptr);
  const ConstTensorView* want = model.find("transformer.tok_emb.weight");
  EXPECT_EQ(std::memcmp(table->data, want->data, want->bytes()), 0);
}

}  // namespace
}  // namespace tessera::nbp_test
