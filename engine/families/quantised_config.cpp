// Keys: the configuration classes of transformers 4.57 and 5.24, of AutoGPTQ, gptqmodel, AutoAWQ,
// compressed-tensors and bitsandbytes. Which matrices are quantised, and whether they have zeros,
// is for their tensors to say.
#include "engine/families/quantised_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::int64_t kMostGroup = std::int64_t{1} << 20;
constexpr std::array<std::string_view, 2> kAwqVersions = {"gemm", "GEMM"};
constexpr std::array<std::string_view, 2> kGptqFormats = {"gptq", "gptq_v2"};

// The method, its name in messages, what reads its keys.
struct Method {
  std::string_view name;
  void (*read)(const JsonReader& keys, QuantisedScheme& scheme);
};

// The first of two spellings of a key that is there.
std::string_view spelled(const JsonReader& keys, std::string_view one, std::string_view other) {
  return keys.has(one) || !keys.has(other) ? one : other;
}

std::int64_t read_group(const JsonReader& keys, std::string_view key, std::int64_t without) {
  const std::int64_t group = keys.integer_or(key, without, -1, kMostGroup);
  if (group == 0) keys.fail(key, "-1, or numbers of a group", "0");
  return std::max<std::int64_t>(group, 0);
}

void read_float8(const JsonReader& keys, QuantisedScheme& scheme) {
  scheme.form = QuantisedForm::kFloat8;
  const auto add = [&](std::int64_t rows, std::int64_t columns) {
    scheme.kinds.push_back({8, true, rows, columns});
  };
  constexpr std::string_view kBlocks = "weight_block_size";
  if (keys.has(kBlocks)) {
    const auto block = keys.integers(kBlocks, 1, kMostGroup, 2);
    if (block.size() != 2) keys.fail(kBlocks, "rows and columns", "one number");
    return add(block[0], block[1]);
  }
  if (!keys.is_null(kBlocks)) add(128, 128);  // transformers' own
  add(0, 0);
  add(1, 0);
}

void read_awq(const JsonReader& keys, QuantisedScheme& scheme) {
  scheme.form = QuantisedForm::kAwq;
  const std::int64_t bits = keys.integer(spelled(keys, "bits", "w_bit"), 4, 4);
  const std::int64_t group = read_group(keys, spelled(keys, "group_size", "q_group_size"), 128);
  const std::string_view version = spelled(keys, "version", "checkpoint_format");
  if (keys.has(version)) keys.choice(version, kAwqVersions);
  if (!keys.boolean_or("zero_point", true)) {
    keys.fail("zero_point", "true: the layout has zeros", "false");
  }
  scheme.kinds = {{narrow<int>(bits), false, 1, group}};
}

void read_gptq(const JsonReader& keys, QuantisedScheme& scheme) {
  scheme.form = QuantisedForm::kGptq;
  const std::int64_t bits = keys.integer("bits", 2, 8);
  if (bits > 4 && bits < 8) keys.fail("bits", "2, 3, 4 or 8", std::to_string(bits));
  const std::int64_t group = read_group(keys, "group_size", 128);
  const std::string_view format = spelled(keys, "checkpoint_format", "format");
  const std::string kept = keys.has(format) ? keys.choice(format, kGptqFormats) : "gptq";
  scheme.zeros_less_one = kept == "gptq";
  if (keys.boolean_or("is_marlin_format", false)) {
    keys.fail("is_marlin_format", "false: the layout of GPTQ itself", "true");
  }
  constexpr std::array<std::string_view, 1> kWords = {"int32"};
  if (keys.has("pack_dtype")) keys.choice("pack_dtype", kWords);
  // With settings of their own for some layers, all say by their tensors what they are.
  if (keys.has("dynamic") && !keys.raw("dynamic").empty()) return;
  scheme.kinds = {{narrow<int>(bits), false, 1, group}};
}

QuantisedKind read_arguments(const JsonReader& keys) {
  constexpr std::array<std::string_view, 12> kKnown = {
      "num_bits", "type",     "symmetric",   "group_size", "strategy", "block_structure",
      "dynamic",  "actorder", "scale_dtype", "zp_dtype",   "observer", "observer_kwargs"};
  constexpr std::array<std::string_view, 2> kTypes = {"int", "float"};
  constexpr std::array<std::string_view, 4> kStrategies = {"tensor", "channel", "group", "block"};
  keys.only(kKnown);
  QuantisedKind out;
  out.floats = keys.has("type") && keys.choice("type", kTypes) == "float";
  out.bits = narrow<int>(keys.integer_or("num_bits", 8, out.floats ? 8 : 1, 8));
  if (keys.boolean_or("dynamic", false)) keys.fail("dynamic", "false, of weights", "true");
  const std::int64_t group = keys.integer_or("group_size", -1, -1, kMostGroup);
  const std::string strategy = keys.has("strategy")     ? keys.choice("strategy", kStrategies)
                               : group > 0              ? "group"
                               : keys.has("group_size") ? "channel"
                                                        : "tensor";
  if (strategy == "tensor") out.cell_rows = 0;
  if (strategy == "group") {
    if (group < 1) keys.fail("group_size", "numbers of a group", std::to_string(group));
    out.cell_columns = group;
  }
  if (strategy == "block") {
    const auto block = keys.integers("block_structure", 1, kMostGroup, 2);
    if (block.size() != 2) keys.fail("block_structure", "rows and columns", "one number");
    out.cell_rows = block[0];
    out.cell_columns = block[1];
  }
  return out;
}

void read_compressed_keys(const JsonReader& keys, QuantisedScheme& scheme) {
  scheme.form = QuantisedForm::kCompressed;
  constexpr std::array<std::string_view, 5> kFormats = {
      "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision"};
  constexpr std::array<std::string_view, 5> kGroup = {"targets", "weights", "input_activations",
                                                      "output_activations", "format"};
  const std::string format = keys.choice("format", kFormats);
  scheme.name += ", " + format;
  for (const char* const key : {"transform_config", "sparsity_config"}) {
    if (!keys.has(key) || keys.raw(key).empty()) continue;
    const JsonReader inside = keys.object(key);
    if (inside.string_or("format", "") == "dense") continue;
    keys.fail(key, "none: such weights are not read", "some");
  }
  const Json& groups = keys.raw("config_groups");
  if (!groups.is_object()) keys.fail("config_groups", "an object", groups.type_name());
  const JsonReader all = keys.object("config_groups");
  for (const auto& [name, unused] : groups.items()) {
    const JsonReader group = all.object(name);
    group.only(kGroup);
    if (group.has("format")) group.choice("format", std::span(kFormats).first(4));
    if (group.has("weights")) scheme.kinds.push_back(read_arguments(group.object("weights")));
  }
  if (scheme.kinds.empty()) keys.fail("config_groups", "a group with weights", "none");
}

// The tensors say which of its two layouts a matrix has.
void read_bits_and_bytes(const JsonReader& keys, QuantisedScheme& scheme) {
  scheme.form = QuantisedForm::kBitsAndBytes;
  const bool four = keys.boolean_or("load_in_4bit", false);
  const bool eight = keys.boolean_or("load_in_8bit", !four);
  if (four == eight) keys.fail("load_in_8bit", "one of the two sizes", "both or none");
  scheme.name += four ? ", 4 bits" : ", 8 bits";
}

constexpr Method kMethods[] = {{"fp8", read_float8},
                               {"fbgemm_fp8", read_float8},
                               {"awq", read_awq},
                               {"gptq", read_gptq},
                               {"compressed-tensors", read_compressed_keys},
                               {"bitsandbytes", read_bits_and_bytes}};

[[noreturn]] void refuse_method(const JsonReader& keys, const std::string& where,
                                std::string method) {
  for (const char* bits : {"bits", "w_bit"}) {
    if (keys.has(bits)) method += ", " + keys.raw(bits).dump() + " bits";
  }
  std::string known;
  for (const Method& each : kMethods) known += ", " + std::string(each.name);
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_QUANTISED",
               .file = keys.file(),
               .where = where,
               .expected = "weights as they were trained, or quantised by one of" + known.substr(1),
               .found = "weights quantised by " + method,
               .hint = "use the folder that the model had before, or dequantise and save it"});
}

// `where`: the key of all of it, or nothing for a file.
QuantisedScheme read_scheme(const JsonReader& keys, std::string where, std::string_view without) {
  std::string method = keys.string_or("quant_method", std::string(without));
  if (method.empty() && (keys.has("load_in_8bit") || keys.has("load_in_4bit"))) {
    method = "bitsandbytes";
  }
  const auto* const row = std::find_if(std::begin(kMethods), std::end(kMethods),
                                       [&](const Method& each) { return each.name == method; });
  if (row == std::end(kMethods)) {
    refuse_method(keys, where, method.empty() ? "an unnamed method" : method);
  }
  QuantisedScheme out;
  out.name = method;
  out.file = keys.file();
  row->read(keys, out);
  if (out.kinds.size() == 1 && !out.kinds[0].floats) {
    out.name += ", " + std::to_string(out.kinds[0].bits) + " bits";
  }
  out.key = where.empty() ? std::filesystem::path(keys.file()).filename().string() : where;
  return out;
}

bool is_same(const QuantisedScheme& one, const QuantisedScheme& other) {
  const auto same = [](const QuantisedKind& a, const QuantisedKind& b) {
    return a.bits == b.bits && a.floats == b.floats && a.cell_rows == b.cell_rows &&
           a.cell_columns == b.cell_columns;
  };
  return one.form == other.form && one.zeros_less_one == other.zeros_less_one &&
         std::equal(one.kinds.begin(), one.kinds.end(), other.kinds.begin(), other.kinds.end(),
                    same);
}

void take(std::optional<QuantisedScheme>& have, QuantisedScheme more) {
  if (!have) {
    have = std::move(more);
  } else if (!is_same(*have, more)) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_QUANTISED_FILES",
                 .file = more.file,
                 .where = more.key,
                 .expected = "what " + have->key + " of " + have->file + " says: " + have->name,
                 .found = more.name + ", or other groups or zeros",
                 .hint = "take away the one that is not of these weights"});
  }
}

}  // namespace

std::shared_ptr<const QuantisedScheme> read_quantised(FolderFiles& files) {
  constexpr std::string_view kKey = "quantization_config";
  std::optional<QuantisedScheme> out;
  const JsonReader config = files.reader(FolderFile::kConfig);
  for (const char* const half : {"", "text_config", "language_config", "vision_config"}) {
    const bool whole = *half == 0;
    if (!whole && (!config.has(half) || !config.raw(half).is_object())) continue;
    const JsonReader part = whole ? config : config.object(half);
    if (!part.has(kKey)) continue;
    take(out, read_scheme(part.object(kKey), part.path_of(kKey), ""));
  }
  for (const FolderFile file : {FolderFile::kQuantize, FolderFile::kQuant}) {
    if (!files.has(file)) continue;
    const std::string_view without = file == FolderFile::kQuant ? "awq" : "gptq";
    take(out, read_scheme(files.reader(file), "", without));
  }
  return out ? std::make_shared<const QuantisedScheme>(std::move(*out)) : nullptr;
}

}  // namespace tessera
