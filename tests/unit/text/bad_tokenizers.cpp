// See bad_tokenizers.h. Each case is a JSON patch (RFC 6902 "add" or "remove") of the good file.
#include "tests/unit/text/bad_tokenizers.h"

#include <nlohmann/json.hpp>

namespace tessera {

namespace {

using nlohmann::json;

constexpr const char* kGood = R"json({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [
    {"id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
    {"id": 6, "content": "hug", "single_word": true, "lstrip": false, "rstrip": false, "normalized": true, "special": false}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"},
    {"type": "Replace", "pattern": {"String": "~"}, "content": "-"}, {"type": "Strip", "strip_left": true, "strip_right": false}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+"}, "behavior": "Isolated", "invert": false},
    {"type": "Digits", "individual_digits": true},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},
  "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "dropout": null, "unk_token": "a", "continuing_subword_prefix": null, "end_of_word_suffix": null,
    "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": ["a b", ["ab", "c"]]}
})json";

struct Edit {
  const char* name;
  const char* pointer;  // RFC 6901
  const char* value;    // JSON, or "" to remove
  const char* code;
  const char* where;
};

constexpr const char* kLongAffix =
    "\"0123456789012345678901234567890123456789012345678901234567890123456789\"";

constexpr Edit kEdits[] = {
    {"array_instead_of_object", "", "[]", "E_TOK_TYPE", "$"},
    {"version_2", "/version", "\"2.0\"", "E_TOK_VERSION", "$.version"},
    {"unknown_top_field", "/auto_map", "{}", "E_TOK_KEY", "$"},
    {"truncation_of_a_number", "/truncation", "3", "E_TOK_TYPE", "$.truncation"},
    {"padding_of_a_string", "/padding", "\"BatchLongest\"", "E_TOK_TYPE", "$.padding"},
    {"no_model", "/model", "", "E_TOK_MISSING", "$"},
    {"model_is_a_string", "/model", "\"BPE\"", "E_TOK_TYPE", "$.model"},
    {"word_level_model", "/model/type", "\"WordLevel\"", "E_TOK_MODEL", "$.model.type"},
    {"unigram_with_fields_of_bpe", "/model/type", "\"Unigram\"", "E_TOK_KEY", "$.model"},
    {"unigram_without_tokens", "/model", "{\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": []}",
     "E_TOK_VOCAB_EMPTY", "$.model.vocab"},
    {"unigram_vocabulary_an_object", "/model",
     "{\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": {\"a\": 0}}", "E_TOK_TYPE",
     "$.model.vocab"},
    {"unigram_entry_of_one", "/model", "{\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}",
     "E_TOK_TYPE", "$.model.vocab[0]"},
    {"unigram_entry_of_three", "/model", "{\"type\": \"Unigram\", \"vocab\": [[\"a\", 0, 0]]}",
     "E_TOK_COUNT", "$.model.vocab[0]"},
    {"unigram_score_a_string", "/model", "{\"type\": \"Unigram\", \"vocab\": [[\"a\", \"0\"]]}",
     "E_TOK_TYPE", "$.model.vocab[0][1]"},
    {"unigram_token_empty", "/model", "{\"type\": \"Unigram\", \"vocab\": [[\"\", 0]]}",
     "E_TOK_TOKEN_EMPTY", "$.model.vocab[0][0]"},
    {"unigram_unknown_past_the_end", "/model",
     "{\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [[\"a\", -1.5]]}", "E_TOK_RANGE",
     "$.model.unk_id"},
    {"word_piece_without_limit", "/model",
     "{\"type\": \"WordPiece\", \"unk_token\": \"a\", \"continuing_subword_prefix\": \"##\", "
     "\"vocab\": {\"a\": 0}}",
     "E_TOK_MISSING", "$.model"},
    {"word_piece_unknown_unknown", "/model",
     "{\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", "
     "\"max_input_chars_per_word\": 100, \"vocab\": {\"a\": 0}}",
     "E_TOK_UNKNOWN", "$.model.unk_token"},
    {"charsmap_not_base64", "/normalizer",
     "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"a*==\"}", "E_TOK_CHARSMAP",
     "$.normalizer.precompiled_charsmap"},
    {"charsmap_too_short", "/normalizer",
     "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAE=\"}", "E_TOK_CHARSMAP",
     "$.normalizer.precompiled_charsmap"},
    {"charsmap_of_a_trie_past_its_end", "/normalizer",
     "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"CAAAAAAAAAA=\"}", "E_TOK_CHARSMAP",
     "$.normalizer.precompiled_charsmap"},
    {"charsmap_with_broken_texts", "/normalizer",
     "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAD/\"}", "E_TOK_CHARSMAP",
     "$.normalizer.precompiled_charsmap"},
    {"bert_normalizer_without_case", "/normalizer",
     "{\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true}",
     "E_TOK_MISSING", "$.normalizer"},
    {"delimiter_of_two_letters", "/pre_tokenizer",
     "{\"type\": \"CharDelimiterSplit\", \"delimiter\": \"ab\"}", "E_TOK_CHARACTER",
     "$.pre_tokenizer.delimiter"},
    {"punctuation_kept", "/pre_tokenizer", "{\"type\": \"Punctuation\", \"behavior\": \"Kept\"}",
     "E_TOK_VALUE", "$.pre_tokenizer.behavior"},
    {"decoder_of_an_empty_suffix", "/decoder", "{\"type\": \"BPEDecoder\", \"suffix\": \"\"}",
     "E_TOK_PATTERN_EMPTY", "$.decoder.suffix"},
    {"frame_without_an_end", "/post_processor",
     "{\"type\": \"BertProcessing\", \"cls\": [\"<s>\", 5]}", "E_TOK_MISSING", "$.post_processor"},
    {"frame_of_one", "/post_processor",
     "{\"type\": \"BertProcessing\", \"cls\": [\"<s>\"], \"sep\": [\"<s>\", 5]}", "E_TOK_TEMPLATE",
     "$.post_processor.cls"},
    {"frame_id_past_the_end", "/post_processor",
     "{\"type\": \"BertProcessing\", \"cls\": [\"<s>\", 7], \"sep\": [\"<s>\", 5]}", "E_TOK_RANGE",
     "$.post_processor.cls[1]"},
    {"unknown_model_field", "/model/scores", "[]", "E_TOK_KEY", "$.model"},
    {"dropout", "/model/dropout", "0.1", "E_TOK_DROPOUT", "$.model.dropout"},
    {"long_subword_prefix", "/model/continuing_subword_prefix", kLongAffix, "E_TOK_AFFIX",
     "continuing_subword_prefix"},
    {"long_word_suffix", "/model/end_of_word_suffix", kLongAffix, "E_TOK_AFFIX",
     "end_of_word_suffix"},
    {"prefix_longer_than_a_merged_token", "/model/continuing_subword_prefix", "\"@@\"",
     "E_TOK_MERGE_RESULT", "$.model.merges[0]"},
    {"no_vocabulary", "/model/vocab", "", "E_TOK_MISSING", "$.model"},
    {"vocabulary_is_a_list", "/model/vocab", "[\"a\"]", "E_TOK_TYPE", "$.model.vocab"},
    {"empty_vocabulary", "/model/vocab", "{}", "E_TOK_VOCAB_EMPTY", "$.model.vocab"},
    {"empty_token", "/model/vocab/", "5", "E_TOK_TOKEN_EMPTY", "$.model.vocab"},
    {"two_tokens_of_one_id", "/model/vocab/c", "1", "E_TOK_ID_DUPLICATE", "\"c\""},
    {"id_hole", "/added_tokens/1/id", "7", "E_TOK_ID_HOLE", "$.added_tokens[1].id"},
    {"hole_in_the_vocabulary", "/added_tokens/0", "", "E_TOK_ID_HOLE", "$.added_tokens[0].id"},
    {"id_of_four_million", "/model/vocab/c", "4000000", "E_TOK_ID_HOLE", "\"c\""},
    {"negative_id", "/model/vocab/c", "-2", "E_TOK_RANGE", "\"c\""},
    {"id_of_64_bits", "/model/vocab/c", "18446744073709551615", "E_TOK_RANGE", "\"c\""},
    {"fractional_id", "/model/vocab/c", "2.5", "E_TOK_TYPE", "\"c\""},
    {"id_as_string", "/model/vocab/c", "\"2\"", "E_TOK_TYPE", "\"c\""},
    {"unknown_token_unknown", "/model/unk_token", "\"<unk>\"", "E_TOK_UNKNOWN",
     "$.model.unk_token"},
    {"merges_missing", "/model/merges", "", "E_TOK_MISSING", "$.model"},
    {"merges_is_an_object", "/model/merges", "{}", "E_TOK_TYPE", "$.model.merges"},
    {"merge_of_one_word", "/model/merges/0", "\"ab\"", "E_TOK_MERGE_FORM", "$.model.merges[0]"},
    {"merge_of_three_words", "/model/merges/0", "\"a b c\"", "E_TOK_MERGE_FORM",
     "$.model.merges[0]"},
    {"merge_list_of_three", "/model/merges/1", "[\"a\", \"b\", \"c\"]", "E_TOK_MERGE_FORM",
     "$.model.merges["},
    {"merge_of_unknown_token", "/model/merges/0", "\"a z\"", "E_TOK_MERGE_UNKNOWN",
     "$.model.merges[0]"},
    {"merge_into_unknown_token", "/model/merges/0", "\"b c\"", "E_TOK_MERGE_RESULT",
     "$.model.merges[0]"},
    {"merge_is_a_number", "/model/merges/0", "7", "E_TOK_TYPE", "$.model.merges[0]"},
    {"added_token_without_id", "/added_tokens/0/id", "", "E_TOK_MISSING", "$.added_tokens[0]"},
    {"added_token_empty", "/added_tokens/0/content", "\"\"", "E_TOK_TOKEN_EMPTY",
     "$.added_tokens[0].content"},
    {"added_token_other_id", "/added_tokens/0/content", "\"abc\"", "E_TOK_ADDED_ID",
     "$.added_tokens[0].id"},
    {"added_token_takes_an_id", "/added_tokens/0/id", "2", "E_TOK_ADDED_TAKEN",
     "$.added_tokens[0].id"},
    {"added_token_twice", "/added_tokens/1/content", "\"<s>\"", "E_TOK_ADDED_DUPLICATE",
     "$.added_tokens[1].content"},
    {"added_tokens_share_an_id", "/added_tokens/1/id", "5", "E_TOK_ADDED_ID_DUPLICATE",
     "$.added_tokens[1].id"},
    {"added_token_vanishes", "/added_tokens/1/content", "\"  \"", "E_TOK_ADDED_VANISHES",
     "$.added_tokens"},
    {"added_flag_is_a_number", "/added_tokens/0/lstrip", "1", "E_TOK_TYPE",
     "$.added_tokens[0].lstrip"},
    {"unknown_normalizer", "/normalizer/normalizers/0/type", "\"Squeeze\"", "E_TOK_NORMALIZER",
     "$.normalizer.normalizers[0].type"},
    {"normalizer_without_type", "/normalizer/type", "", "E_TOK_MISSING", "$.normalizer"},
    {"empty_pattern", "/normalizer/normalizers/1/pattern/String", "\"\"", "E_TOK_PATTERN_EMPTY",
     "$.normalizer.normalizers[1].pattern.String"},
    {"pattern_of_neither_kind", "/normalizer/normalizers/1/pattern", "{}", "E_TOK_PATTERN",
     "pattern"},
    {"unknown_pre_tokenizer", "/pre_tokenizer/pretokenizers/1/type", "\"UnicodeScripts\"",
     "E_TOK_PRETOKENIZER", "$.pre_tokenizer.pretokenizers[1].type"},
    {"regex_does_not_compile", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(a\"",
     "E_TOK_REGEX", "$.pre_tokenizer.pretokenizers[0].pattern.Regex"},
    {"regex_reversed_range", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"[z-a]\"",
     "E_TOK_REGEX", "Regex"},
    {"regex_recursion", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(?R)*\"",
     "E_TOK_REGEX_FEATURE", "byte 0"},
    {"regex_back_reference", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(a)\\\\1\"",
     "E_TOK_REGEX_FEATURE", "byte 3"},
    {"regex_verb", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(*LIMIT_MATCH=1)a\"",
     "E_TOK_REGEX_FEATURE", "byte 0"},
    {"regex_callout", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(?C1)a\"",
     "E_TOK_REGEX_FEATURE", "byte 0"},
    {"regex_nested_class", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"[a[bc]]\"",
     "E_TOK_REGEX_FEATURE", "byte 2"},
    {"regex_unknown_property", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\p{Klingon}\"",
     "E_TOK_REGEX_FEATURE", "byte 0"},
    {"unknown_behavior", "/pre_tokenizer/pretokenizers/0/behavior", "\"Dropped\"", "E_TOK_VALUE",
     "$.pre_tokenizer.pretokenizers[0].behavior"},
    {"split_without_invert", "/pre_tokenizer/pretokenizers/0/invert", "", "E_TOK_MISSING",
     "pretokenizers[0]"},
    {"metaspace_of_two_letters", "/pre_tokenizer",
     "{\"type\": \"Metaspace\", \"replacement\": \"__\"}", "E_TOK_CHARACTER",
     "$.pre_tokenizer.replacement"},
    {"metaspace_contradiction", "/pre_tokenizer",
     "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false, "
     "\"prepend_scheme\": \"first\"}",
     "E_TOK_PREFIX_SPACE", "$.pre_tokenizer"},
    {"unknown_decoder", "/decoder/decoders/0/type", "\"CTC\"", "E_TOK_DECODER",
     "$.decoder.decoders[0].type"},
    {"decoder_strip_negative", "/decoder/decoders/1/start", "-1", "E_TOK_RANGE",
     "$.decoder.decoders[1].start"},
    {"unknown_post_processor", "/post_processor/type", "\"Reverse\"", "E_TOK_POSTPROCESSOR",
     "$.post_processor.type"},
    {"template_without_text", "/post_processor/single/1", "", "E_TOK_TEMPLATE",
     "$.post_processor.single"},
    {"template_of_sequence_b", "/post_processor/single/1/Sequence/id", "\"B\"", "E_TOK_TEMPLATE",
     "$.post_processor.single[1]"},
    {"template_names_no_token", "/post_processor/single/0/SpecialToken/id", "\"<e>\"",
     "E_TOK_TEMPLATE_TOKEN", "$.post_processor.single[0].SpecialToken.id"},
    {"template_id_too_large", "/post_processor/special_tokens/<s>/ids/0", "7", "E_TOK_TEMPLATE_ID",
     "ids[0]"},
};

// "add" into an array would insert: the last key replaces what is there.
std::string edited(const Edit& edit) {
  json file = json::parse(kGood);
  const json::json_pointer pointer(edit.pointer);
  const std::string value = edit.value;
  if (value.empty()) {
    file = file.patch(json::array({{{"op", "remove"}, {"path", edit.pointer}}}));
  } else {
    file[pointer] = json::parse(value);
  }
  return file.dump();
}

}  // namespace

std::string good_tokenizer_json() { return kGood; }

std::vector<BadTokenizer> bad_tokenizers() {
  std::vector<BadTokenizer> out;
  for (const Edit& edit : kEdits) out.push_back({edit.name, edited(edit), edit.code, edit.where});
  const auto with = [](const char* pointer, const json& value) {
    json file = json::parse(kGood);
    file[json::json_pointer(pointer)] = value;
    return file.dump();
  };
  const std::string good = kGood;
  out.push_back({"cut_in_the_middle", good.substr(0, good.size() / 2), "E_JSON", ""});
  out.push_back({"no_bytes", "", "E_JSON", ""});
  out.push_back({"not_utf8", "{\"version\": \"\xff\"}", "E_JSON_UTF8", ""});
  out.push_back({"too_deep",
                 with("/normalizer", json::parse(std::string(70, '[') + std::string(70, ']'))),
                 "E_JSON_DEPTH", ""});
  out.push_back({"token_named_twice",
                 std::string(good).replace(good.find("\"c\": 2"), 6, "\"b\": 2"),
                 "E_JSON_DUPLICATE", ""});
  json hole = json::parse(kGood);  // "hug" names a token of the vocabulary, and id 4 has no token
  hole["model"]["vocab"]["abc"] = 6;
  hole["added_tokens"][1]["content"] = "c";
  hole["added_tokens"][1]["id"] = 2;
  out.push_back({"hole_among_all_tokens", hole.dump(), "E_TOK_ID_HOLE", "$"});
  json vocab = json::parse(kGood)["model"]["vocab"];
  vocab[std::string(4097, 'x')] = 5;
  out.push_back(
      {"token_too_long", with("/model/vocab", vocab), "E_TOK_TOKEN_LENGTH", "$.model.vocab"});
  out.push_back({"regex_too_long",
                 with("/pre_tokenizer/pretokenizers/0/pattern/Regex", std::string(4097, 'x')),
                 "E_TOK_REGEX_LENGTH", "Regex"});
  out.push_back({"too_many_components",
                 with("/normalizer/normalizers", json(300, {{"type", "NFC"}})), "E_TOK_COUNT",
                 "$.normalizer.normalizers"});
  return out;
}

}  // namespace tessera
