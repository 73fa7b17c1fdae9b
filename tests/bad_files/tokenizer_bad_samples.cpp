// Damaged tokenizer.json files.
#include <nlohmann/json.hpp>

#include "tests/bad_files/bad_sample.h"
#include "tests/support/small_models.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

BadSample raw(std::string name, std::string code, std::vector<std::string> words,
              std::string text) {
  return {.name = "tok_" + std::move(name),
          .read_as = ReadAs::kTokenizer,
          .code = std::move(code),
          .words = std::move(words),
          .files = {{"tokenizer.json", std::move(text)}}};
}

BadSample edit(std::string name, std::string code, std::vector<std::string> words,
               const char* pointer, Json value) {
  Json json = Json::parse(kSmallTokenizer);
  json[Json::json_pointer(pointer)] = std::move(value);
  return raw(std::move(name), std::move(code), std::move(words), json.dump());
}

BadSample without(std::string name, std::string code, std::vector<std::string> words,
                  const char* parent, const char* key) {
  Json json = Json::parse(kSmallTokenizer);
  json[Json::json_pointer(parent)].erase(key);
  return raw(std::move(name), std::move(code), std::move(words), json.dump());
}

void add_texts(std::vector<BadSample>& out) {
  out.push_back(raw("empty", "E_JSON", {"byte 0"}, ""));
  out.push_back(
      raw("cut", "E_JSON", {"end of the text"}, std::string(kSmallTokenizer).substr(0, 300)));
  out.push_back(raw("not_utf8", "E_JSON_UTF8", {"UTF-8"}, "{\"version\":\"\xff\"}"));
  out.push_back(raw("too_deep", "E_JSON_DEPTH", {"at most 64"}, std::string(100'000, '[')));
  out.push_back(
      raw("key_twice", "E_JSON_DUPLICATE", {"\"a\""},
          R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}})"));
  out.push_back(raw("a_list", "E_TOK_TYPE", {"an object"}, "[1]"));
  out.push_back(edit("field_unknown", "E_TOK_KEY", {"\"extra\""}, "/extra", 1));
  out.push_back(edit("version_2", "E_TOK_VERSION", {"1.0", "2.0"}, "/version", "2.0"));
  out.push_back(edit("truncation", "E_TOK_TYPE", {"$.truncation", "found 5"}, "/truncation", 5));
  out.push_back(edit("padding", "E_TOK_TYPE", {"$.padding", "an array"}, "/padding", {1, 2, 3}));
  out.push_back(without("model_missing", "E_TOK_MISSING", {"model"}, "", "model"));
  out.push_back(without("vocab_missing", "E_TOK_MISSING", {"$.model", "vocab"}, "/model", "vocab"));
}

void add_vocab(std::vector<BadSample>& out) {
  out.push_back(
      edit("model_word_level", "E_TOK_MODEL", {"BPE", "WordLevel"}, "/model/type", "WordLevel"));
  const auto unigram = [&](const char* name, const char* code, std::vector<std::string> words,
                           const char* vocab) {
    out.push_back(edit(name, code, std::move(words), "/model",
                       {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", Json::parse(vocab)}}));
  };
  unigram("unigram_of_nothing", "E_TOK_VOCAB_EMPTY", {"$.model.vocab"}, "[]");
  unigram("unigram_a_word", "E_TOK_TYPE", {"vocab[0]"}, R"(["a"])");
  unigram("unigram_score_null", "E_TOK_TYPE", {"a number", "null"}, R"([["a", null]])");
  out.push_back(
      edit("vocab_empty", "E_TOK_VOCAB_EMPTY", {"$.model.vocab"}, "/model/vocab", Json::object()));
  out.push_back(edit("vocab_a_list", "E_TOK_TYPE", {"an object"}, "/model/vocab", Json::array()));
  out.push_back(edit("id_negative", "E_TOK_RANGE", {"-1"}, "/model/vocab/a", -1));
  out.push_back(edit("id_text", "E_TOK_TYPE", {"an integer"}, "/model/vocab/a", "0"));
  out.push_back(edit("id_2_31", "E_TOK_RANGE", {"2147483648"}, "/model/vocab/a", 2147483648u));
  out.push_back(edit("id_hole", "E_TOK_ID_HOLE", {"found 7"}, "/model/vocab/a", 7));
  out.push_back(edit("id_twice", "E_TOK_ID_DUPLICATE", {"each id once", "1"}, "/model/vocab/a", 1));
  out.push_back(
      edit("token_empty", "E_TOK_TOKEN_EMPTY", {"empty"}, "/model/vocab", {{"", 0}, {"b", 1}}));
  out.push_back(edit("token_too_long", "E_TOK_TOKEN_LENGTH", {"4096", "4097"}, "/model/vocab",
                     {{std::string(4097, 'x'), 0}}));
  out.push_back(edit("dropout", "E_TOK_DROPOUT", {"0.1"}, "/model/dropout", 0.1));
  out.push_back(edit("suffix", "E_TOK_AFFIX", {"end_of_word_suffix", "64"},
                     "/model/end_of_word_suffix", std::string(65, 'w')));
  out.push_back(
      edit("unknown_token_unknown", "E_TOK_UNKNOWN", {"\"<unk>\""}, "/model/unk_token", "<unk>"));
}

void add_merges(std::vector<BadSample>& out) {
  const auto merges = [&](const char* name, const char* code, std::vector<std::string> words,
                          Json value) {
    words.push_back("$.model.merges");
    out.push_back(edit(name, code, std::move(words), "/model/merges", std::move(value)));
  };
  merges("merge_of_unknown", "E_TOK_MERGE_UNKNOWN", {"\"z\""}, {"a z"});
  merges("merge_without_result", "E_TOK_MERGE_RESULT", {"\"ba\""}, {"b a"});
  merges("merge_one_part", "E_TOK_MERGE_FORM", {"two tokens"}, {"ab"});
  merges("merge_three_parts", "E_TOK_MERGE_FORM", {"two tokens"},
         Json::parse(R"([["a","b","c"]])"));
  merges("merge_a_number", "E_TOK_TYPE", {"a string"}, {5});
  merges("merges_a_number", "E_TOK_TYPE", {"an array"}, 5);
}

void add_parts(std::vector<BadSample>& out) {
  const char* pattern = "/pre_tokenizer/pretokenizers/0/pattern";
  out.push_back(edit("regex_broken", "E_TOK_REGEX", {"pattern.Regex"}, pattern, {{"Regex", "(a"}}));
  out.push_back(edit("regex_too_long", "E_TOK_REGEX_LENGTH", {"4096"}, pattern,
                     {{"Regex", std::string(5000, 'a')}}));
  out.push_back(
      edit("pattern_empty", "E_TOK_PATTERN_EMPTY", {"a pattern"}, pattern, {{"String", ""}}));
  out.push_back(edit("pattern_of_both", "E_TOK_PATTERN", {"either"}, pattern,
                     {{"Regex", "a"}, {"String", "a"}}));
  out.push_back(edit("behavior_unknown", "E_TOK_VALUE", {"Isolated", "Sideways"},
                     "/pre_tokenizer/pretokenizers/0/behavior", "Sideways"));
  out.push_back(edit("pre_tokenizer_unknown", "E_TOK_PRETOKENIZER", {"Split", "UnicodeScripts"},
                     "/pre_tokenizer", {{"type", "UnicodeScripts"}}));
  out.push_back(edit("normalizer_unknown", "E_TOK_NORMALIZER", {"NFC", "Squeeze"}, "/normalizer",
                     {{"type", "Squeeze"}}));
  out.push_back(edit("decoder_unknown", "E_TOK_DECODER", {"ByteLevel", "CTC"}, "/decoder",
                     {{"type", "CTC"}}));
  out.push_back(edit("processor_unknown", "E_TOK_POSTPROCESSOR", {"Reverse"}, "/post_processor",
                     {{"type", "Reverse"}}));
  out.push_back(edit("charsmap_cut", "E_TOK_CHARSMAP", {"precompiled_charsmap", "3 bytes"},
                     "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}));
  out.push_back(edit("template_token_unlisted", "E_TOK_TEMPLATE_TOKEN", {"\"<t>\""},
                     "/post_processor/single/0/SpecialToken/id", "<t>"));
  out.push_back(edit("template_id_past_the_end", "E_TOK_TEMPLATE_ID", {"below 7", "found 7"},
                     "/post_processor/special_tokens/<s>/ids", {7}));
  out.push_back(edit("template_without_text", "E_TOK_TEMPLATE", {"sequence A"},
                     "/post_processor/single", Json::parse(R"([{"SpecialToken":{"id":"<s>"}}])")));
  out.push_back(
      edit("added_id_of_another", "E_TOK_ADDED_TAKEN", {"5", "\"abc\""}, "/added_tokens/0/id", 5));
  out.push_back(edit("added_other_id_than_vocab", "E_TOK_ADDED_ID", {"\"ab\"", "found 6"},
                     "/added_tokens/0/content", "ab"));
  out.push_back(without("added_field_missing", "E_TOK_MISSING", {"added_tokens[0]", "special"},
                        "/added_tokens/0", "special"));
}

}  // namespace

std::vector<BadSample> tokenizer_bad_samples() {
  std::vector<BadSample> out;
  add_texts(out);
  add_vocab(out);
  add_merges(out);
  add_parts(out);
  return out;
}

}  // namespace tessera
