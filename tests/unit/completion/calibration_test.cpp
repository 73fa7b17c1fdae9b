// What a model's matrices take, measured along a text, and what quantising makes of it.
#include "apps/runtime/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "apps/runtime/completion_model.h"
#include "apps/runtime/quantize.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/core/block_types.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "tests/support/temp_folder.h"

namespace tessera::calibration_test {
namespace {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf_text";
const std::function<bool()> kGoOn = [] { return true; };

std::string long_text() {
  std::string out;
  for (int i = 0; i < 60; ++i) out += "The cat sat on mat " + std::to_string(i) + ", it's said. ";
  return out;
}

// By hand: the first product takes normed rows of the table.
TEST(Calibration, InputsOfTheFirstLayerAreNormedRows) {
  const TempFolder folder;
  put_file(folder / "text.txt", "The cat sat on the mat.");
  const fs::path path = kModels / "llama_f32";
  const InputSquares found = measure_inputs(path, folder / "text.txt", kGoOn);
  const auto model = CompletionModel::open(path);
  const std::vector<std::int32_t> ids = model->prompt_ids("The cat sat on the mat.", false);
  const Checkpoint weights = Checkpoint::open(path / "model.safetensors");
  const ConstTensorView table = *weights.find("model.embed_tokens.weight");
  const ConstTensorView norm = *weights.find("model.layers.0.input_layernorm.weight");
  const std::int64_t width = table.shape[1];
  const double eps = double{model->spec().model.transformer.norm_eps};
  std::vector<double> wanted(to_size(width), 0.0);
  for (const std::int32_t id : ids) {
    const float* const row = table.f32() + id * width;
    double square = 0;
    for (std::int64_t i = 0; i < width; ++i) square += double{row[i]} * double{row[i]};
    const double scale = 1.0 / (square / double(width) + eps);
    for (std::int64_t i = 0; i < width; ++i) {
      const double number = double{row[i]} * double{norm.f32()[i]};
      wanted[to_size(i)] += number * number * scale / double(ids.size());
    }
  }
  for (const char* name : {"q", "k", "v"}) {
    const auto& own = found.at("model.layers.0.self_attn." + std::string(name) + "_proj.weight");
    ASSERT_EQ(own.size(), wanted.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_NEAR(own[i], wanted[i], 1e-4 * wanted[i] + 1e-9) << name << " " << i;
    }
  }
  // Every matrix of every layer, and the output layer.
  for (const auto& [name, view] : weights.tensors()) {
    if (view.shape.rank() != 2 || name == "model.embed_tokens.weight") continue;
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(std::ssize(found.at(name)), view.shape[1]) << name;
  }
}

QuantizeReport make(const fs::path& model, const fs::path& output, const std::string& type,
                    const fs::path& calibrate, bool requantize = false) {
  QuantizeListener listener;
  return quantize({.model = model.string(),
                   .output = output,
                   .type = type,
                   .keep = {},
                   .calibrate = calibrate,
                   .requantize = requantize},
                  listener);
}

// The error of the products with the inputs that were measured, of a file against its model.
double product_error(const fs::path& model, const fs::path& file, const InputSquares& inputs) {
  const auto truth = CompletionModel::open(model), copy = CompletionModel::open(file);
  double error = 0, size = 0;
  for (const auto& [name, squares] : inputs) {
    const ConstTensorView a = *truth->weights().find(name), b = *copy->weights().find(name);
    const std::int64_t width = a.shape[1];
    for (std::int64_t i = 0; i < a.shape.elements(); ++i) {
      const double weight = double{squares[to_size(i % width)]};
      const double number = double{a.f32()[i]}, off = number - double{b.f32()[i]};
      error += weight * off * off;
      size += weight * number * number;
    }
  }
  return std::sqrt(error / size);
}

TEST(Calibration, MeasuredInputsMakeProductsBetter) {
  const TempFolder folder;
  put_file(folder / "text.txt", long_text());
  const fs::path model = kModels / "llama_f32";
  const InputSquares inputs = measure_inputs(model, folder / "text.txt", kGoOn);
  const QuantizeReport plain = make(model, folder / "plain.gguf", "q4", {});
  const QuantizeReport better = make(model, folder / "better.gguf", "q4", folder / "text.txt");
  EXPECT_EQ(plain.bytes_after, better.bytes_after);
  EXPECT_LT(plain.read_after, plain.read_before);
  EXPECT_GT(plain.relative_error(), 0.02);
  const double before = product_error(model, folder / "plain.gguf", inputs);
  const double after = product_error(model, folder / "better.gguf", inputs);
  EXPECT_LT(after, 0.95 * before);
  // What is reported is that, without the output layer, which is in 8 bits here.
  EXPECT_NEAR(better.relative_error(), after, 0.35 * after);
  EXPECT_NE(get_file(folder / "plain.gguf"), get_file(folder / "better.gguf"));
  // The same again: the same bytes.
  make(model, folder / "again.gguf", "q4", folder / "text.txt");
  EXPECT_EQ(get_file(folder / "again.gguf"), get_file(folder / "better.gguf"));
}

TEST(Calibration, FormatsOfManyScalesAreWrittenAndRead) {
  const TempFolder folder;
  put_file(folder / "text.txt", long_text());
  const fs::path model = kModels / "llama_more_mixed.gguf";
  double before = 1;
  for (const char* type : {"q2_k", "q3_k", "q4_k", "q5_k", "q6_k"}) {
    const fs::path file = folder / (std::string(type) + ".gguf");
    const QuantizeReport report = make(model, file, type, folder / "text.txt", true);
    EXPECT_TRUE(report.finished);
    EXPECT_TRUE(report.types.contains(std::string("Q") + type[1] + "_K")) << type;
    EXPECT_LT(report.relative_error(), before) << type;
    before = report.relative_error();
    EXPECT_NO_THROW(CompletionModel::open(file));
  }
  EXPECT_LT(before, 0.03);
}

std::string code_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.info().code;
  }
  return "none";
}

TEST(Calibration, WhatIsNoSourceIsRefused) {
  const TempFolder folder;
  put_file(folder / "text.txt", long_text());
  const fs::path model = kModels / "llama_f32";
  EXPECT_EQ(code_of([&] { make(model, folder / "a.gguf", "q8", folder / "text.txt"); }),
            "E_CALIBRATE")
      << "8 bits have no scales to search";
  EXPECT_EQ(code_of([&] { make(model, folder / "a.gguf", "q4", folder.path()); }), "E_CALIBRATE")
      << "a folder, for texts";
  EXPECT_EQ(code_of([&] { make(model, folder / "a.gguf", "q4", folder / "none.txt"); }),
            "E_IO_OPEN");
  put_file(folder / "bad.txt", "\xff\xfe");
  EXPECT_NE(code_of([&] { make(model, folder / "a.gguf", "q4", folder / "bad.txt"); }), "none");
  EXPECT_FALSE(fs::exists(folder / "a.gguf"));
  int asked = 0;
  EXPECT_TRUE(measure_inputs(model, folder / "text.txt", [&] { return ++asked > 1; }).empty());
}

}  // namespace
}  // namespace tessera::calibration_test
