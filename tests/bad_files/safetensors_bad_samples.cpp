// Damaged safetensors files. The good one they start from holds "a" F32 [2, 3] and "b" U8 [4].
#include "tests/bad_files/bad_sample.h"
#include "tests/support/safetensors_builder.h"

namespace tessera {

namespace {

const std::string kA = header_entry("a", "F32", "[2,3]", "[0,24]");
const std::string kB = header_entry("b", "U8", "[4]", "[24,28]");
constexpr std::size_t kData = 28;

BadSample raw(std::string name, std::string code, std::vector<std::string> words,
            std::string contents) {
  return {.name = "st_" + std::move(name),
          .code = std::move(code),
          .words = std::move(words),
          .files = {{"m.safetensors", std::move(contents)}}};
}

// Header text between the braces, then the data of the good file.
BadSample header(std::string name, std::string code, std::vector<std::string> words,
               const std::string& members, std::size_t data = kData) {
  return raw(std::move(name), std::move(code), std::move(words),
             safetensors_file("{" + members + "}", data));
}

// The good file with another entry in the place of "a".
BadSample entry(std::string name, std::string code, std::vector<std::string> words,
              const std::string& first) {
  words.push_back("\"a\"");
  return header(std::move(name), std::move(code), std::move(words), first + "," + kB);
}

std::string many_tensors(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += (i > 0 ? "," : "") + header_entry("t" + std::to_string(i), "U8", "[0]", "[0,0]");
  }
  return out;
}

void add_container(std::vector<BadSample>& out) {
  const std::string good = "{" + kA + "," + kB + "}";
  out.push_back(raw("empty", "E_ST_SHORT", {"10 bytes", "found 0"}, ""));
  out.push_back(raw("seven_bytes", "E_ST_SHORT", {"found 7"}, std::string(7, '\0')));
  out.push_back(raw("length_zero", "E_ST_HEADER_SIZE", {"byte 0", "found 0"},
                    safetensors_file(good, kData, 0)));
  out.push_back(
      raw("length_one", "E_ST_HEADER_SIZE", {"found 1"}, safetensors_file(good, kData, 1)));
  out.push_back(raw("length_past_the_end", "E_ST_HEADER_SIZE", {"found 5000"},
                    safetensors_file(good, kData, 5000)));
  out.push_back(raw("length_2_63", "E_ST_HEADER_SIZE", {"9223372036854775808"},
                    safetensors_file(good, kData, std::uint64_t{1} << 63)));
  out.push_back(raw("length_all_ones", "E_ST_HEADER_SIZE", {"18446744073709551615"},
                    safetensors_file(good, kData, UINT64_MAX)));
  out.push_back(raw("length_over_limit", "E_ST_HEADER_SIZE", {"2..16777216", "found 16777217"},
                    safetensors_file(good, 17'000'000, 16'777'217)));
  out.push_back(raw("length_one_short", "E_JSON", {"the end of the text"},
                    safetensors_file(good, kData, good.size() - 1)));
  out.push_back(raw("length_one_long", "E_ST_HEADER_PAD", {"only spaces", "byte 1"},
                    safetensors_file(good, kData, good.size() + 1)));
  out.push_back(raw("begins_with_space", "E_ST_HEADER_START", {"byte 8", "'{'", "byte 32"},
                    safetensors_file(" " + good, kData)));
  out.push_back(raw("begins_with_bracket", "E_ST_HEADER_START", {"byte 91"},
                    safetensors_file("[" + good + "]", kData)));
  out.push_back(raw("padded_with_zero", "E_ST_HEADER_PAD", {"only spaces", "byte 0"},
                    safetensors_file(good + std::string(3, '\0'), kData)));
  out.push_back(raw("padded_with_newline", "E_ST_HEADER_PAD", {"byte 10"},
                    safetensors_file(good + "\n", kData)));
  out.push_back(raw("text_after_header", "E_JSON", {"nothing after the value"},
                    safetensors_file(good + "{}", kData)));
  out.push_back(raw("a_pickle_by_another_name", "E_CKPT_NAME", {"pytorch_model.bin"},
                    "PK\x03\x04" + std::string(60, 'x')));
}

void add_json(std::vector<BadSample>& out) {
  out.push_back(header("comma_missing", "E_JSON", {"',' or '}'"}, kA + kB));
  out.push_back(header("key_without_quotes", "E_JSON", {"byte 9"}, "a:1," + kB));
  out.push_back(header("cut_string", "E_JSON", {"closing"}, "\"a"));
  out.push_back(header("name_not_utf8", "E_JSON_UTF8", {"valid UTF-8", "255"},
                       header_entry("a\xff", "F32", "[2,3]", "[0,24]") + "," + kB));
  out.push_back(header("lone_surrogate", "E_JSON_UTF8", {"surrogates"},
                       header_entry("\\ud800", "F32", "[2,3]", "[0,24]") + "," + kB));
  out.push_back(header("nested_too_deep", "E_JSON_DEPTH", {"at most 3"},
                       "\"a\":{\"dtype\":\"F32\",\"shape\":[[2]],\"data_offsets\":[0,8]}"));
  out.push_back(header("million_brackets", "E_ST_GRAMMAR", {"an object", "an array"},
                       "\"a\":" + std::string(1'000'000, '[')));
  out.push_back(
      header("tensor_is_a_number", "E_ST_GRAMMAR", {"an object", "a number"}, "\"a\":1," + kB));
  out.push_back(header("shape_is_a_number", "E_ST_GRAMMAR", {"an array"},
                       header_entry("a", "F32", "6", "[0,24]") + "," + kB));
  out.push_back(header("dtype_is_a_number", "E_ST_GRAMMAR", {"a string"},
                       "\"a\":{\"dtype\":4,\"shape\":[6],\"data_offsets\":[0,24]}," + kB));
}

void add_entries(std::vector<BadSample>& out) {
  const auto with = [&](const char* name, const char* code, std::vector<std::string> words,
                        const char* dtype, const char* shape, const char* offsets) {
    out.push_back(entry(name, code, std::move(words), header_entry("a", dtype, shape, offsets)));
  };
  with("dtype_unknown", "E_ST_DTYPE", {"F32 BF16", "\"F33\""}, "F33", "[2,3]", "[0,24]");
  with("dtype_lower_case", "E_ST_DTYPE", {"\"f32\""}, "f32", "[2,3]", "[0,24]");
  with("dtype_float8_scale", "E_ST_DTYPE_UNSUPPORTED", {"F8_E8M0", "not supported"}, "F8_E8M0",
       "[24]", "[0,24]");
  with("size_float8", "E_ST_SIZE", {"12 bytes for f8_e4m3"}, "F8_E4M3", "[12]", "[0,24]");
  with("dtype_u32", "E_ST_DTYPE_UNSUPPORTED", {"U32"}, "U32", "[6]", "[0,24]");
  with("rank_nine", "E_ST_RANK", {"at most 8"}, "F32", "[1,1,1,1,1,1,1,2,3]", "[0,24]");
  with("extent_negative", "E_ST_SHAPE", {"-2"}, "F32", "[-2,-3]", "[0,24]");
  with("extent_fraction", "E_ST_SHAPE", {"2.0"}, "F32", "[2.0,3]", "[0,24]");
  with("extent_exponent", "E_ST_SHAPE", {"2e0"}, "F32", "[2e0,3]", "[0,24]");
  with("extent_string", "E_ST_SHAPE", {"a string"}, "F32", "[\"2\",3]", "[0,24]");
  with("extent_2_64", "E_ST_SHAPE", {"18446744073709551616"}, "F32", "[18446744073709551616]",
       "[0,24]");
  with("extent_2_63", "E_ST_OVERFLOW", {"2^63"}, "F32", "[9223372036854775808]", "[0,24]");
  with("product_wraps_to_zero", "E_ST_OVERFLOW", {"4294967296"}, "U8", "[4294967296,4294967296]",
       "[0,0]");
  with("bytes_wrap_to_24", "E_ST_OVERFLOW", {"2^63 bytes"}, "F32", "[4611686018427387910]",
       "[0,24]");
  with("bytes_2_31_plus_1", "E_ST_SIZE", {"2147483649", "= 24"}, "U8", "[2147483649]", "[0,24]");
  with("bytes_2_32_plus_24", "E_ST_SIZE", {"4294967320"}, "U8", "[4294967320]", "[0,24]");
  with("size_one_short", "E_ST_SIZE", {"24 bytes", "= 23"}, "F32", "[2,3]", "[1,24]");
  with("size_of_another_type", "E_ST_SIZE", {"12 bytes", "bf16"}, "BF16", "[2,3]", "[0,24]");
  with("offsets_reversed", "E_ST_OFFSETS", {"begin <= end", "24..0"}, "F32", "[2,3]", "[24,0]");
  with("offsets_one", "E_ST_OFFSETS", {"two integers"}, "F32", "[2,3]", "[24]");
  with("offsets_three", "E_ST_OFFSETS", {"two integers"}, "F32", "[2,3]", "[0,24,24]");
  with("offsets_none", "E_ST_OFFSETS", {"fewer"}, "F32", "[2,3]", "[]");
  with("offsets_float", "E_ST_OFFSETS", {"24.0"}, "F32", "[2,3]", "[0,24.0]");
  with("offsets_negative", "E_ST_OFFSETS", {"-1"}, "F32", "[2,3]", "[-1,23]");
  out.push_back(entry("field_missing_dtype", "E_ST_FIELD", {"no dtype"},
                      "\"a\":{\"shape\":[2,3],\"data_offsets\":[0,24]}"));
  out.push_back(entry("field_missing_shape", "E_ST_FIELD", {"no shape"},
                      "\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,24]}"));
  out.push_back(entry("field_missing_offsets", "E_ST_FIELD", {"no data_offsets"},
                      "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3]}"));
  out.push_back(entry("field_unknown", "E_ST_FIELD", {"\"strides\""},
                      "\"a\":{\"dtype\":\"F32\",\"strides\":[3,1],\"shape\":[2,3],"
                      "\"data_offsets\":[0,24]}"));
  out.push_back(entry("field_twice", "E_ST_DUPLICATE", {"once each"},
                      "\"a\":{\"dtype\":\"F32\",\"shape\":[9],\"shape\":[2,3],"
                      "\"data_offsets\":[0,24]}"));
}

void add_layout(std::vector<BadSample>& out) {
  const auto second = [&](const char* name, const char* code, std::vector<std::string> words,
                          const char* offsets, std::size_t data) {
    words.push_back("tensor \"b\"");
    out.push_back(header(name, code, std::move(words),
                         kA + "," + header_entry("b", "U8", "[4]", offsets), data));
  };
  second("hole", "E_ST_HOLE", {"at 24", "found 25"}, "[25,29]", 29);
  second("overlap_by_one", "E_ST_OVERLAP", {"at 24", "found 23"}, "[23,27]", 27);
  second("overlap_inside", "E_ST_OVERLAP", {"at 24", "found 4"}, "[4,8]", 24);
  second("truncated_by_one", "E_ST_TRUNCATED", {"24..28", "byte 27"}, "[24,28]", 27);
  second("end_2_64", "E_ST_TRUNCATED", {"18446744073709551615"},
         "[18446744073709551611,18446744073709551615]", kData);
  out.push_back(header("first_not_at_zero", "E_ST_HOLE", {"at 0", "found 1"},
                       header_entry("a", "F32", "[2,3]", "[1,25]"), 25));
  out.push_back(header("same_bytes_twice", "E_ST_OVERLAP", {"at 24", "found 0"},
                       kA + "," + header_entry("c", "F32", "[2,3]", "[0,24]"), 24));
  out.push_back(header("one_byte_more", "E_ST_TRAILING", {"28 bytes of tensors", "found 29"},
                       kA + "," + kB, kData + 1));
  out.push_back(header("no_data", "E_ST_TRUNCATED", {"tensor \"a\""}, kA + "," + kB, 0));
  out.push_back(header("data_without_tensors", "E_ST_TRAILING", {"0 bytes of tensors"}, "", 5));
}

void add_names(std::vector<BadSample>& out) {
  out.push_back(header("tensor_twice", "E_ST_DUPLICATE", {"\"a\"", "once"}, kA + "," + kA, 24));
  out.push_back(header("tensor_twice_by_escape", "E_ST_DUPLICATE", {"\"a\""},
                       kA + "," + header_entry("\\u0061", "F32", "[2,3]", "[0,24]"), 24));
  out.push_back(header("name_empty", "E_ST_NAME", {"0 bytes"},
                       header_entry("", "F32", "[2,3]", "[0,24]"), 24));
  out.push_back(header("name_with_escape_code", "E_ST_NAME", {"\\u{001b}", "control"},
                       header_entry("\\u001b[31m", "F32", "[2,3]", "[0,24]"), 24));
  out.push_back(header("name_too_long", "E_ST_NAME", {"1025 bytes"},
                       header_entry(std::string(1025, 'n'), "F32", "[2,3]", "[0,24]"), 24));
  out.push_back(
      header("too_many_tensors", "E_ST_COUNT", {"at most 100000"}, many_tensors(100'001), 0));
  out.push_back(header("metadata_number", "E_ST_METADATA", {"a string"},
                       "\"__metadata__\":{\"k\":1}," + kA, 24));
  out.push_back(
      header("metadata_is_a_list", "E_ST_GRAMMAR", {"an object"}, "\"__metadata__\":[]," + kA, 24));
  out.push_back(header("metadata_too_large", "E_ST_METADATA", {"1048576"},
                       "\"__metadata__\":{\"k\":\"" + std::string(1 << 20, 'v') + "\"}," + kA, 24));
  out.push_back(header("metadata_twice", "E_ST_DUPLICATE", {"__metadata__"},
                       "\"__metadata__\":{},\"__metadata__\":{}," + kA, 24));
  out.push_back(header("metadata_key_twice", "E_ST_DUPLICATE", {"__metadata__.k"},
                       "\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," + kA, 24));
}

}  // namespace

std::vector<BadSample> safetensors_bad_samples() {
  std::vector<BadSample> out;
  add_container(out);
  add_json(out);
  add_entries(out);
  add_layout(out);
  add_names(out);
  return out;
}

// --- indexes ------------------------------------------------------------------------------------

namespace {

const std::string kShard = safetensors_file("{" + header_entry("x", "U8", "[4]", "[0,4]") + "}", 4);

BadSample index(std::string name, std::string code, std::vector<std::string> words,
              std::string text) {
  return {.name = "idx_" + std::move(name),
          .code = std::move(code),
          .words = std::move(words),
          .files = {{"model.safetensors.index.json", std::move(text)}, {"a.safetensors", kShard}}};
}

std::string map_of(const std::string& members) { return "{\"weight_map\":{" + members + "}}"; }

std::string many_shards(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    out += (i > 0 ? ",\"t" : "\"t") + n + "\":\"s" + n + "\"";
  }
  return out;
}

}  // namespace

std::vector<BadSample> index_bad_samples() {
  std::vector<BadSample> out;
  out.push_back(index("empty_file", "E_JSON", {"byte 0"}, ""));
  out.push_back(index("cut", "E_JSON", {"the end of the text"}, "{\"weight_map\":{\"x\":"));
  out.push_back(index("a_list", "E_IDX_GRAMMAR", {"an object", "an array"}, "[]"));
  out.push_back(index("no_weight_map", "E_IDX_GRAMMAR", {"weight_map"}, "{\"metadata\":{}}"));
  out.push_back(index("no_tensors", "E_IDX_EMPTY", {"at least one tensor"}, map_of("")));
  out.push_back(index("map_is_a_list", "E_IDX_GRAMMAR", {"byte 14"}, "{\"weight_map\":[]}"));
  out.push_back(index("two_maps", "E_IDX_DUPLICATE", {"weight_map"},
                      "{\"weight_map\":{\"x\":\"a.safetensors\"},\"weight_map\":{}}"));
  out.push_back(index("tensor_twice", "E_IDX_DUPLICATE", {"\"x\""},
                      map_of(R"("x":"a.safetensors","x":"a.safetensors")")));
  out.push_back(index("shard_is_a_number", "E_IDX_GRAMMAR", {"a string"}, map_of("\"x\":1")));
  out.push_back(index("control_in_tensor_name", "E_IDX_TENSOR_NAME", {"control"},
                      map_of(R"("x\n":"a.safetensors")")));
  for (const auto& [name, shard] : std::initializer_list<std::pair<const char*, const char*>>{
           {"shard_climbs", "../a.safetensors"},
           {"shard_absolute", "/etc/passwd"},
           {"shard_in_folder", "sub/a.safetensors"},
           {"shard_backslash", "sub\\\\a.safetensors"},
           {"shard_hidden", ".a.safetensors"},
           {"shard_empty", ""},
           {"shard_dots", ".."},
           {"shard_with_nul", "a.safetensors\\u0000"}}) {
    out.push_back(index(name, "E_IDX_SHARD_NAME", {"plain file name"},
                        map_of("\"x\":\"" + std::string(shard) + "\"")));
  }
  out.push_back(
      index("too_many_shards", "E_IDX_SHARDS", {"at most 10000"}, map_of(many_shards(10'001))));
  out.push_back(index("tensors_missing_and_surplus", "E_IDX_TENSORS",
                      {"1 missing: y (in a.safetensors)", "1 surplus: x"},
                      map_of(R"("y":"a.safetensors")")));
  out.push_back(index("shard_missing", "E_IO_OPEN", {"gone.safetensors"},
                      map_of(R"("x":"gone.safetensors")")));
  out.back().named_file = "gone.safetensors";
  out.push_back(index("shard_damaged", "E_ST_TRUNCATED", {"a.safetensors"},
                      map_of(R"("x":"a.safetensors")")));
  out.back().files[1].second.pop_back();
  out.back().named_file = "a.safetensors";
  return out;
}

}  // namespace tessera
