// Damaged vocabularies of folders without tokenizer.json: SentencePiece models, vocab.json with
// merges.txt, and the configuration files next to them.
#include <cstdint>
#include <limits>

#include "tests/bad_files/bad_sample.h"
#include "tests/support/sentencepiece_builder.h"

namespace tessera {

namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

BadSample folder_sample(std::string name, std::string code, std::vector<std::string> words,
                        Files files, std::string named_file = {}) {
  return {.name = "vocabulary_" + std::move(name),
          .read_as = ReadAs::kTokenizerFolder,
          .code = std::move(code),
          .words = std::move(words),
          .files = std::move(files),
          .named_file = std::move(named_file)};
}

// --- SentencePiece's wire form ------------------------------------------------------------------

std::string small_pieces() {
  return wire_piece("<unk>", 0, 2) + wire_piece("<s>", 0, 3) + wire_piece("</s>", 0, 3) +
         wire_piece("a", -1) + wire_piece("b", -2) + wire_piece("ab", -1.5);
}

// BPE, unless another type is given.
std::string trainer(std::uint64_t type = 2, const std::string& more = "") {
  return wire_bytes(2, wire_number(3, type) + more);
}

void add_wire(std::vector<BadSample>& out) {
  const auto model = [&](const char* name, const char* code, std::vector<std::string> words,
                         std::string contents) {
    out.push_back(
        folder_sample(name, code, std::move(words), {{"tokenizer.model", std::move(contents)}}));
  };
  const std::string good = small_pieces() + trainer();
  model("sp_empty", "E_TOK_VOCAB_EMPTY", {"pieces"}, "");
  model("sp_cut", "E_TOK_PROTO", {"ends within"}, good.substr(0, good.size() - 1));
  model("sp_cut_in_a_number", "E_TOK_PROTO", {"a number", "the end"}, good + "\x0a");
  model("sp_number_too_long", "E_TOK_PROTO", {"ten bytes"}, std::string(11, '\xff'));
  model("sp_field_zero", "E_TOK_PROTO", {"a field number"}, std::string(2, '\0'));
  model("sp_group", "E_TOK_PROTO", {"wire type 3"}, "\x0b");
  model("sp_length_of_2_63", "E_TOK_PROTO", {"ends within", "9223372036854775808"},
        "\x0a" + wire_varint(std::uint64_t{1} << 63));
  model("sp_pieces_a_number", "E_TOK_PROTO", {"field 1"}, wire_number(1, 7));
  model("sp_piece_cut", "E_TOK_PROTO", {"piece 0", "byte"},
        wire_bytes(1,
                   "\x0a\x05"
                   "ab"));
  model("sp_score_an_integer", "E_TOK_PROTO", {"piece 0", "field 2"},
        wire_bytes(1, wire_bytes(1, "a") + wire_number(2, 1)));
  model("sp_pieces_none", "E_TOK_VOCAB_EMPTY", {"at least one"}, trainer());
}

void add_pieces(std::vector<BadSample>& out) {
  const auto model = [&](const char* name, const char* code, std::vector<std::string> words,
                         std::string contents, Files more = {}, std::string named = {}) {
    Files files = {{"tokenizer.model", std::move(contents)}};
    files.insert(files.end(), more.begin(), more.end());
    out.push_back(folder_sample(name, code, std::move(words), std::move(files), std::move(named)));
  };
  const std::string good = small_pieces() + trainer();
  model("sp_piece_empty", "E_TOK_TOKEN_EMPTY", {"piece 6"}, small_pieces() + wire_piece("", 0));
  model("sp_piece_long", "E_TOK_TOKEN_LENGTH", {"4096", "4097"},
        small_pieces() + wire_piece(std::string(4097, 'x'), 0));
  model("sp_piece_twice", "E_TOK_PIECE", {"piece 6", "again"},
        small_pieces() + wire_piece("ab", 0));
  model("sp_piece_no_utf8", "E_TOK_PIECE", {"UTF-8"}, small_pieces() + wire_piece("\xff", 0));
  model("sp_score_nan", "E_TOK_PIECE", {"finite"},
        small_pieces() + wire_piece("c", std::numeric_limits<float>::quiet_NaN()));
  model("sp_type_9", "E_TOK_PIECE", {"from 1 to 6", "9"}, small_pieces() + wire_piece("c", 0, 9));
  model("sp_model_of_words", "E_TOK_MODEL", {"model_type", "found 3"}, small_pieces() + trainer(3));
  model("sp_spaces_after", "E_TOK_MODEL", {"treat_whitespace_as_suffix"},
        small_pieces() + trainer(2, wire_number(24, 1)));
  model("sp_unknown_id", "E_TOK_UNKNOWN", {"unk_id", "below 6"},
        small_pieces() + trainer(1, wire_number(40, 6)));
  model("sp_unknown_id_negative", "E_TOK_UNKNOWN", {"unk_id", "-1"},
        small_pieces() + trainer(1, wire_number(40, ~std::uint64_t{0})));
  model("sp_unknown_piece", "E_TOK_UNKNOWN", {"unk_piece", "<none>"},
        small_pieces() + trainer(2, wire_bytes(45, "<none>")));
  std::string long_pieces = small_pieces();
  for (char c = 'A'; c <= 'Z'; ++c) {
    for (char d = 'a'; d <= 'c'; ++d)
      long_pieces += wire_piece(std::string(1, c) + d + std::string(4000, 'x'), 0);
  }
  model("sp_pieces_that_merge_too_long", "E_TOK_TOKEN_LENGTH", {"squares"},
        long_pieces + trainer());
  model("sp_word_list", "E_TOKENIZER_TIKTOKEN", {"tiktoken", "tokenizer.json"}, "IQ== 0\nIg== 1\n");
  model("lfs_pointer", "E_TOK_POINTER", {"git lfs pull"},
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 499723\n");
  model("sp_charsmap_cut", "E_TOK_CHARSMAP", {"precompiled_charsmap"},
        small_pieces() + trainer(1) + wire_bytes(3, wire_bytes(2, "abc")),
        {{"tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 0})"}});
  const auto with = [&](const char* name, const char* code, std::vector<std::string> words,
                        const char* file, const char* text) {
    model(name, code, std::move(words), good, {{file, text}}, file);
  };
  with("class_unknown", "E_TOK_CLASS", {"LlamaTokenizer", "XLNetTokenizer", "save_pretrained"},
       "tokenizer_config.json", R"({"tokenizer_class": "XLNetTokenizer"})");
  with("type_unknown", "E_TOK_CLASS", {"model_type", "tokenizer_class", "gemma2"}, "config.json",
       R"({"model_type": "gemma2"})");
  with("class_in_config_unknown", "E_TOK_CLASS", {"LlamaTokenizer", "XLNetTokenizer"},
       "config.json", R"({"model_type": "t5", "tokenizer_class": "XLNetTokenizer"})");
  with("type_a_number", "E_TOK_TYPE", {"$.model_type"}, "config.json", R"({"model_type": 5})");
  with("config_a_list", "E_TOK_TYPE", {"an object"}, "tokenizer_config.json", "[]");
  with("config_legacy_a_string", "E_TOK_TYPE", {"$.legacy"}, "tokenizer_config.json",
       R"({"legacy": "no"})");
  with("config_splits_specials", "E_TOK_SPLIT_SPECIAL", {"split_special_tokens"},
       "tokenizer_config.json", R"({"split_special_tokens": true})");
  with("config_token_empty", "E_TOK_TOKEN_EMPTY", {"$.pad_token"}, "tokenizer_config.json",
       R"({"pad_token": ""})");
  with("config_begin_null", "E_TOK_SPECIAL", {"bos_token", "null"}, "tokenizer_config.json",
       R"({"bos_token": null})");
  with("config_id_a_word", "E_TOK_TYPE", {"an id", "six"}, "tokenizer_config.json",
       R"({"added_tokens_decoder": {"six": {"content": "<image>"}}})");
  with("config_id_with_a_hole", "E_TOK_ADDED_ID", {"id 7", "<image>", "expected 6"},
       "tokenizer_config.json", R"({"added_tokens_decoder": {"7": {"content": "<image>"}}})");
  with("config_token_without_text", "E_TOK_MISSING", {"content"}, "tokenizer_config.json",
       R"({"added_tokens_decoder": {"6": {"special": true}}})");
  with("added_id_with_a_hole", "E_TOK_ADDED_ID", {"id 9"}, "added_tokens.json",
       R"({"<image>": 9})");
  with("added_id_negative", "E_TOK_RANGE", {"-1"}, "added_tokens.json", R"({"<image>": -1})");
  with("special_map_a_number", "E_TOK_TYPE", {"$.eos_token"}, "special_tokens_map.json",
       R"({"eos_token": 2})");
}

// --- vocab.json and merges.txt ------------------------------------------------------------------

void add_merges(std::vector<BadSample>& out) {
  const std::string vocab = R"({"a": 0, "b": 1, "ab": 2})", merges = "#version: 0.2\na b\n";
  const std::string config = R"({"tokenizer_class": "Qwen2Tokenizer"})";
  const auto pair = [&](const char* name, const char* code, std::vector<std::string> words,
                        const std::string& words_file, const std::string& merge_lines,
                        const char* named) {
    out.push_back(folder_sample(name, code, std::move(words),
                                {{"vocab.json", words_file},
                                 {"merges.txt", merge_lines},
                                 {"tokenizer_config.json", config}},
                                named));
  };
  pair("vocab_a_list", "E_TOK_TYPE", {"an object"}, "[]", merges, "vocab.json");
  pair("vocab_empty", "E_TOK_VOCAB_EMPTY", {"at least one"}, "{}", merges, "vocab.json");
  pair("vocab_cut", "E_JSON", {"end of the text"}, R"({"a": 0)", merges, "vocab.json");
  pair("vocab_id_of_four_million", "E_TOK_ID_HOLE", {"4000000"}, R"({"a": 4000000})", merges,
       "vocab.json");
  pair("vocab_id_twice", "E_TOK_ID_DUPLICATE", {"each id once"}, R"({"a": 0, "b": 0})", merges,
       "vocab.json");
  pair("merges_of_one_word", "E_TOK_MERGE_FORM", {"line 2", "ab"}, vocab, "#version: 0.2\nab\n",
       "merges.txt");
  pair("merges_of_three_words", "E_TOK_MERGE_FORM", {"line 3"}, vocab, merges + "a b c\n",
       "merges.txt");
  pair("merges_of_an_unknown_word", "E_TOK_MERGE_UNKNOWN", {"line 3", "\"z\""}, vocab,
       merges + "a z\n", "merges.txt");
  pair("merges_without_result", "E_TOK_MERGE_RESULT", {"line 3", "\"ba\""}, vocab, merges + "b a\n",
       "merges.txt");
  pair("merges_no_utf8", "E_TOK_MERGE_FORM", {"line 3"}, vocab, merges + "a \xff\n", "merges.txt");
  out.push_back(folder_sample("class_missing", "E_TOK_CLASS", {"tokenizer_config.json", "none"},
                              {{"vocab.json", vocab}, {"merges.txt", merges}}));
  out.push_back(folder_sample("vocab_alone", "E_TOK_MISSING_FILE",
                              {"vocab.json without merges.txt", "copy"}, {{"vocab.json", vocab}},
                              "tokenizer.json"));
  out.push_back(folder_sample("merges_alone", "E_TOK_MISSING_FILE",
                              {"merges.txt without vocab.json"}, {{"merges.txt", merges}},
                              "tokenizer.json"));
  out.push_back(folder_sample("word_list_alone", "E_TOK_MISSING_FILE", {"vocab.txt"},
                              {{"vocab.txt", "[PAD]\n"}}, "tokenizer.json"));
  out.push_back(folder_sample("of_nothing", "E_TOK_MISSING_FILE", {"none of them"},
                              {{"config.json", "{}"}}, "tokenizer.json"));
  out.push_back(
      folder_sample("json_a_pointer", "E_TOK_POINTER", {"git lfs pull"},
                    {{"tokenizer.json", "version https://git-lfs.github.com/spec/v1\n"}}));
}

}  // namespace

std::vector<BadSample> vocabulary_bad_samples() {
  std::vector<BadSample> out;
  add_wire(out);
  add_pieces(out);
  add_merges(out);
  return out;
}

}  // namespace tessera
