// Quantised matrices from tensors in memory: layouts by hand, and parts that contradict one
// another, each refused by tensor, expected and found.
#include "engine/checkpoint/quantised.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/float8.h"
#include "engine/core/index.h"

namespace tessera::quantised_unit_test {
namespace {

using Tensors = std::map<std::string, Tensor>;

template <typename T>
Tensor made(DType dtype, Shape shape, const std::vector<T>& values) {
  Tensor out = Tensor::host(dtype, shape);
  EXPECT_EQ(out.bytes(), values.size() * sizeof(T));
  std::memcpy(out.view().data, values.data(), std::min(out.bytes(), values.size() * sizeof(T)));
  return out;
}

Tensor words(Shape shape, std::uint32_t word) {
  return made(DType::kI32, shape, std::vector<std::uint32_t>(to_size(shape.elements()), word));
}
Tensor floats(Shape shape, float value) {
  return made(DType::kF32, shape, std::vector<float>(to_size(shape.elements()), value));
}
Tensor indices(const std::vector<std::int32_t>& values) {
  return made(DType::kI32, Shape{std::ssize(values)}, values);
}

// A matrix [8, 16] in two groups.
Tensors gptq() {
  Tensors out;
  out.emplace("a.qweight", words({2, 8}, 0x76543210u));
  out.emplace("a.qzeros", words({2, 1}, 0x77777777u));
  out.emplace("a.scales", floats({2, 8}, 0.5f));
  out.emplace("a.g_idx", indices({0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}));
  return out;
}
QuantisedScheme gptq_scheme() {
  return {.form = QuantisedForm::kGptq,
          .name = "gptq",
          .file = "config.json",
          .key = "quantization_config",
          .kinds = {{4, false, 1, 8}},
          .zeros_less_one = true};
}

Tensors awq() {
  Tensors out;
  out.emplace("a.qweight", words({16, 1}, 0x76543210u));
  out.emplace("a.qzeros", words({2, 1}, 0u));
  out.emplace("a.scales", floats({2, 8}, 0.5f));
  return out;
}
QuantisedScheme awq_scheme() {
  return {.form = QuantisedForm::kAwq,
          .name = "awq",
          .file = "config.json",
          .key = "quantization_config",
          .kinds = {{4, false, 1, 8}}};
}

// [4, 16] in groups of 8, with zeros.
Tensors packed() {
  Tensors out;
  out.emplace("a.weight_packed", words({4, 2}, 0x76543210u));
  out.emplace("a.weight_scale", floats({4, 2}, 2.0f));
  out.emplace("a.weight_shape", made<std::int64_t>(DType::kI64, {2}, {4, 16}));
  out.emplace("a.weight_zero_point", words({1, 2}, 0x00003333u));
  return out;
}
QuantisedScheme packed_scheme() {
  return {.form = QuantisedForm::kCompressed,
          .name = "compressed-tensors",
          .file = "config.json",
          .key = "quantization_config",
          .kinds = {{4, false, 1, 8}}};
}

// [3, 4] in blocks [2, 3].
Tensors float8() {
  Tensors out;
  out.emplace("a.weight", made<std::uint8_t>(
                              DType::kF8E4M3, {3, 4},
                              {0x38, 0xb8, 0x40, 0x38, 1, 0, 0x7e, 0x38, 0x38, 0x38, 0x38, 0x38}));
  out.emplace("a.weight_scale_inv", made<float>(DType::kF32, {2, 2}, {1, 10, 100, 1000}));
  return out;
}
QuantisedScheme float8_scheme() {
  return {.form = QuantisedForm::kFloat8,
          .name = "fp8",
          .file = "config.json",
          .key = "quantization_config",
          .kinds = {{8, true, 2, 3}}};
}

Tensors rows_of_bytes() {
  Tensors out;
  out.emplace("a.weight", made<std::int8_t>(DType::kI8, {2, 2}, {127, -127, 64, 0}));
  out.emplace("a.SCB", made<float>(DType::kF32, {2}, {1, 2}));
  out.emplace("a.weight_format", made<std::uint8_t>(DType::kU8, {}, {0}));
  return out;
}

Tensor state(const std::string& json) {
  return made(DType::kU8, Shape{std::ssize(json)}, std::vector<char>(json.begin(), json.end()));
}
// [2, 32] in blocks of 32.
Tensors four_bits() {
  Tensors out;
  std::vector<float> map(16);
  for (std::size_t i = 0; i < map.size(); ++i) map[i] = to_float(i) - 8;
  out.emplace("a.weight", made(DType::kU8, {32, 1}, std::vector<std::uint8_t>(32, 0x0f)));
  out.emplace("a.weight.absmax", made<float>(DType::kF32, {2}, {1, 2}));
  out.emplace("a.weight.quant_map", made(DType::kF32, {16}, map));
  out.emplace(
      "a.weight.quant_state.bitsandbytes__nf4",
      state(R"({"quant_type": "nf4", "blocksize": 32, "dtype": "float32", "shape": [2, 32]})"));
  return out;
}
QuantisedScheme bits_scheme() {
  return {.form = QuantisedForm::kBitsAndBytes,
          .name = "bitsandbytes",
          .file = "config.json",
          .key = "quantization_config"};
}

std::vector<float> numbers(Tensors tensors, const QuantisedScheme& scheme) {
  Checkpoint weights = Checkpoint::from_tensors("m.safetensors", std::move(tensors));
  weights.dequantise(scheme);
  const ConstTensorView* view = weights.find("a.weight");
  EXPECT_NE(view, nullptr);
  EXPECT_EQ(weights.tensors().size(), 1u) << "parts are no tensors of the model";
  return {view->f32(), view->f32() + view->shape.elements()};
}

TEST(Quantised, GptqCountsCodesDownItsColumnsAndZerosFromOne) {
  const std::vector<float> out = numbers(gptq(), gptq_scheme());
  ASSERT_EQ(out.size(), 128u);
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], (to_float(i % 8) - 8) * 0.5f) << i;
  }
  QuantisedScheme second = gptq_scheme();
  second.zeros_less_one = false;
  EXPECT_EQ(numbers(gptq(), second)[0], -3.5f);
}

TEST(Quantised, GptqTakesTheGroupsOfItsIndex) {
  Tensors tensors = gptq();
  std::vector<float> scales(16, 1);
  std::fill(scales.begin() + 8, scales.end(), 100.0f);
  tensors["a.scales"] = made(DType::kF32, {2, 8}, scales);
  tensors["a.g_idx"] = indices({1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0});
  const std::vector<float> out = numbers(std::move(tensors), gptq_scheme());
  EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 4),
            (std::vector<float>{-800, -7, -600, -5}));
}

TEST(Quantised, AwqHasItsOwnOrderOfNibbles) {
  const std::vector<float> out = numbers(awq(), awq_scheme());
  constexpr float kNibble[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of column 0, 1, 2 ...
  for (std::size_t row = 0; row < 8; ++row) EXPECT_EQ(out[row * 16 + 3], kNibble[row] * 0.5f);
}

TEST(Quantised, CompressedCodesAndZerosHaveOneOffset) {
  std::vector<float> out = numbers(packed(), packed_scheme());
  EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 8),
            (std::vector<float>{-6, -4, -2, 0, 2, 4, 6, 8}));
  Tensors tensors = packed();
  tensors.erase("a.weight_zero_point");
  EXPECT_EQ(numbers(std::move(tensors), packed_scheme())[0], -16);
}

TEST(Quantised, Float8HasBlocksThatEndWithTheMatrix) {
  EXPECT_EQ(numbers(float8(), float8_scheme()),
            (std::vector<float>{1, -1, 2, 10, 1 / 512.0f, 0, 448, 10, 100, 100, 100, 1000}));
}

TEST(Quantised, FloatsOfEightBitsAreThoseOfTheirFormats) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const auto code = static_cast<std::uint8_t>(bits);
    // E5M2 is the upper half of an f16.
    const float five = f16_to_float(static_cast<std::uint16_t>(bits << 8));
    EXPECT_EQ(std::isnan(f8_e5m2_to_float(code)), std::isnan(five)) << bits;
    if (!std::isnan(five)) {
      EXPECT_EQ(f8_e5m2_to_float(code), five) << bits;
    }
    const int exponent = (code >> 3) & 15, rest = code & 7;
    const double size = exponent == 0 ? std::ldexp(rest, -9) : std::ldexp(8 + rest, exponent - 10);
    const float four = f8_e4m3_to_float(code);
    EXPECT_EQ(std::isnan(four), (bits & 0x7f) == 0x7f) << bits;
    if (!std::isnan(four)) {
      EXPECT_EQ(four, (code & 0x80) != 0 ? -size : size) << bits;
    }
  }
}

TEST(Quantised, BytesOfARowAreSharesOfItsLargest) {
  const std::vector<float> out = numbers(rows_of_bytes(), bits_scheme());
  EXPECT_FLOAT_EQ(out[0], 1);
  EXPECT_FLOAT_EQ(out[1], -1);
  EXPECT_FLOAT_EQ(out[2], 128.0f / 127);
}

TEST(Quantised, TheHighHalfOfAByteComesFirst) {
  const std::vector<float> out = numbers(four_bits(), bits_scheme());
  EXPECT_EQ(out[0], -8);
  EXPECT_EQ(out[1], 7);
  EXPECT_EQ(out[32], -16);
}

TEST(Quantised, ScalesOfInputsAndBiasesOfZerosAreNoHindrance) {
  Tensors tensors = float8();
  tensors.emplace("a.input_scale", floats({1}, 1));
  tensors.emplace("a.k_scale", floats({1}, 1));
  tensors.emplace("a.bias", floats({3}, 0));
  tensors.emplace("b.bias", floats({3}, 0));
  Checkpoint weights = Checkpoint::from_tensors("m", std::move(tensors));
  weights.dequantise(float8_scheme());
  EXPECT_EQ(weights.tensors().size(), 3u);
  EXPECT_TRUE(weights.is_spare("a.bias"));
  EXPECT_FALSE(weights.is_spare("b.bias"));
}

struct Bad {
  std::string name;
  std::function<Tensors()> good;
  QuantisedScheme (*scheme)();
  std::function<void(Tensors&)> harm;
  std::string where, expected, found;
};

void refuses(const Bad& bad) {
  SCOPED_TRACE(bad.name);
  Tensors tensors = bad.good();
  bad.harm(tensors);
  try {
    numbers(std::move(tensors), bad.scheme());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    const ErrorInfo& info = error.info();
    EXPECT_EQ(info.kind, ErrorKind::kModel);
    EXPECT_FALSE(info.file.empty());
    EXPECT_NE(info.where.find(bad.where), std::string::npos) << error.what();
    EXPECT_NE(info.expected.find(bad.expected), std::string::npos) << error.what();
    EXPECT_NE(info.found.find(bad.found), std::string::npos) << error.what();
  }
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

TEST(Quantised, BadPartsOfWordsAreRefused) {
  const auto drop = [](const char* name) { return [name](Tensors& t) { t.erase(name); }; };
  const auto put = [](const char* name, std::function<Tensor()> tensor) {
    return [name, tensor](Tensors& t) { t.insert_or_assign(name, tensor()); };
  };
  const Bad cases[] = {
      {"no zeros", gptq, gptq_scheme, drop("a.qzeros"), "a.qzeros", "this tensor", "none"},
      {"no codes", gptq, gptq_scheme, drop("a.qweight"), "a.qweight", "this tensor", "none"},
      {"no scales", awq, awq_scheme, drop("a.scales"), "a.scales", "this tensor", "none"},
      {"nothing", gptq, awq_scheme,
       [](Tensors& t) {
         t.clear();
         t.emplace("b.weight", floats({1}, 1));
       },
       "quantization_config", "quantised by awq", "none"},
      {"codes of floats", gptq, gptq_scheme,
       put("a.qweight",
           [] {
             return floats({2, 8}, 1);
           }),
       "a.qweight", "i32", "f32"},
      {"one dimension", gptq, gptq_scheme, put("a.scales", [] { return floats({16}, 1); }),
       "a.scales", "two dimensions", "[16]"},
      {"no rows", gptq, gptq_scheme,
       put("a.qweight",
           [] {
             return words({0, 8}, 1);
           }),
       "a.qweight", "two dimensions from 1", "[0, 8]"},
      {"groups of another size", gptq, gptq_scheme,
       [](Tensors& t) {
         t["a.scales"] = floats({4, 8}, 1);
         t["a.qzeros"] = words({4, 1}, 0);
       },
       "a.scales", "[2, 8]", "[4, 8]"},
      {"zeros of other groups", gptq, gptq_scheme,
       put("a.qzeros",
           [] {
             return words({1, 1}, 0);
           }),
       "a.qzeros", "[2, 1]", "[1, 1]"},
      {"zeros of other bits", gptq, gptq_scheme,
       put("a.qzeros",
           [] {
             return words({2, 2}, 0);
           }),
       "a.qzeros", "[2, 1]", "[2, 2]"},
      {"outputs differ", gptq, gptq_scheme,
       put("a.qweight",
           [] {
             return words({2, 16}, 0);
           }),
       "a.qweight", "[2, 8]", "[2, 16]"},
      {"a short index", gptq, gptq_scheme,
       put("a.g_idx",
           [] {
             return indices({0, 1});
           }),
       "a.g_idx", "[16]", "[2]"},
      {"a group beyond", gptq, gptq_scheme,
       put("a.g_idx",
           [] {
             return indices({0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
           }),
       "a.g_idx\" index 3", "from 0 to 1", "2"},
      {"a group below", gptq, gptq_scheme,
       put("a.g_idx",
           [] {
             return indices({0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
           }),
       "a.g_idx\" index 1", "from 0 to 1", "-1"},
      {"no number", awq, awq_scheme,
       put("a.scales",
           [] {
             return floats({2, 8}, kNan);
           }),
       "a.scales\" index 0", "finite", "16 NaN"},
      {"groups that do not divide", awq, awq_scheme,
       put("a.qweight",
           [] {
             return words({12, 1}, 0);
           }),
       "a.qweight", "whole groups of 8", "12 inputs"},
      {"both", awq, awq_scheme,
       put("a.weight",
           [] {
             return floats({8, 16}, 1);
           }),
       "a.weight", "no such tensor", "both"},
  };
  for (const Bad& bad : cases) refuses(bad);
}

TEST(Quantised, BadPartsOfCellsAreRefused) {
  const auto drop = [](const char* name) { return [name](Tensors& t) { t.erase(name); }; };
  const auto put = [](const char* name, std::function<Tensor()> tensor) {
    return [name, tensor](Tensors& t) { t.insert_or_assign(name, tensor()); };
  };
  const auto shape = [](std::int64_t rows, std::int64_t columns) {
    return made<std::int64_t>(DType::kI64, {2}, {rows, columns});
  };
  const Bad cases[] = {
      {"no scale", float8, float8_scheme, drop("a.weight_scale_inv"), "a.weight_scale",
       "this tensor", "none"},
      {"other blocks", float8, float8_scheme,
       put("a.weight_scale_inv",
           [] {
             return floats({2, 3}, 1);
           }),
       "a.weight_scale_inv", "[2, 2]", "[2, 3]"},
      {"plain weights", float8, float8_scheme,
       put("a.weight",
           [] {
             return floats({3, 4}, 1);
           }),
       "a.weight", "f8_e4m3 or f8_e5m2", "f32"},
      {"an infinite scale", float8, float8_scheme,
       put("a.weight_scale_inv",
           [] {
             return floats({2, 2}, kInfinite);
           }),
       "index 0", "finite", "4"},
      {"a shape of more rows", packed, packed_scheme,
       put("a.weight_shape", [=] { return shape(5, 16); }), "a.weight_shape", "4 rows", "5 of 16"},
      {"a shape beyond all", packed, packed_scheme,
       put("a.weight_shape", [=] { return shape(4, INT64_MAX); }), "a.weight_shape",
       "4 rows of 1 to 64", "9223372036854775807"},
      {"another width", packed, packed_scheme, put("a.weight_shape", [=] { return shape(4, 8); }),
       "a.weight_packed", "[4, 1]", "[4, 2]"},
      {"no whole groups", packed, packed_scheme,
       put("a.weight_shape", [=] { return shape(4, 12); }), "a.weight_scale", "whole groups of 8",
       "[4, 2]"},
      {"other groups", packed, packed_scheme,
       put("a.weight_scale",
           [] {
             return floats({4, 4}, 1);
           }),
       "a.weight_scale", "[4, 2]", "[4, 4]"},
      {"zeros of floats", packed, packed_scheme,
       put("a.weight_zero_point",
           [] {
             return floats({1, 2}, 0);
           }),
       "a.weight_zero_point", "i32", "f32"},
      {"zeros that are not packed", packed, packed_scheme,
       put("a.weight_zero_point",
           [] {
             return made(DType::kI8, {4, 2}, std::vector<std::int8_t>(8, 0));
           }),
       "a.weight_zero_point", "i32", "i8 [4, 2]"},
      {"sizes of fewer rows", rows_of_bytes, bits_scheme,
       put("a.SCB", [] { return floats({1}, 1); }), "a.SCB", "[2]", "[1]"},
      {"rows of tiles", rows_of_bytes, bits_scheme,
       put("a.weight_format", [] { return made<std::uint8_t>(DType::kU8, {}, {2}); }),
       "a.weight_format", "0", "2"},
      {"fewer sizes", four_bits, bits_scheme, put("a.weight.absmax", [] { return floats({1}, 1); }),
       "a.weight.absmax", "[2]", "[1]"},
      {"no state", four_bits, bits_scheme, drop("a.weight.quant_state.bitsandbytes__nf4"),
       "quant_state", "this tensor", "none"},
      {"a state of another shape", four_bits, bits_scheme,
       put("a.weight.quant_state.bitsandbytes__nf4",
           [] {
             return state(
                 R"({"quant_type": "nf4", "blocksize": 32, "dtype": "float32", "shape": [2, 2147483647]})");
           }),
       "a.weight", "[2, 2147483647]", "32 bytes"},
      {"a state that is no JSON", four_bits, bits_scheme,
       put("a.weight.quant_state.bitsandbytes__nf4", [] { return state("{"); }), "byte", "", ""},
      {"a state of no block", four_bits, bits_scheme,
       put("a.weight.quant_state.bitsandbytes__nf4",
           [] {
             return state(
                 R"({"quant_type": "nf4", "blocksize": 0, "dtype": "float32", "shape": [2, 32]})");
           }),
       "blocksize", "1", "0"},
      {"sizes in bits without their own", four_bits, bits_scheme,
       put("a.weight.quant_state.bitsandbytes__nf4",
           [] {
             return state(
                 R"({"quant_type": "nf4", "blocksize": 32, "dtype": "float32", "shape": [2, 32],
                     "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5})");
           }),
       "a.weight.absmax", "u8", "f32"},
  };
  for (const Bad& bad : cases) refuses(bad);
}

TEST(Quantised, AScaleOfZeroIsNoWholeMatrix) {
  Tensors tensors = float8();
  tensors["a.weight_scale_inv"] = floats({1}, 0);
  QuantisedScheme scheme = float8_scheme();
  scheme.kinds = {{8, true, 0, 0}};
  EXPECT_THROW(numbers(std::move(tensors), scheme), Error);
  tensors = float8();
  tensors["a.weight_scale_inv"] = floats({2, 2}, 0);  // a block of zeros may have it
  EXPECT_EQ(numbers(std::move(tensors), float8_scheme())[0], 0);
}

}  // namespace
}  // namespace tessera::quantised_unit_test
