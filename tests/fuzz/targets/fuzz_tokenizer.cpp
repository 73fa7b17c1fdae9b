// tokenizer.json (inputs that begin with '{', the text to encode after a zero byte), and texts for
// byte-level tokenizers of the published kinds. Oracles: ids lie in the vocabulary; decoding what a
// byte-level tokenizer without normaliser encoded gives the text back.
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "tests/fuzz/targets/json_mutator.h"
#include "tests/support/small_models.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::fuzz {
namespace {

// Published stacks without a normaliser whose vocabulary has all 256 bytes, from the goldens.
const std::vector<TextTokenizer>& byte_level_tokenizers() {
  static const std::vector<TextTokenizer> kAll = [] {
    std::vector<TextTokenizer> out;
    for (const char* name : {"llama3", "gpt2"}) {
      out.push_back(
          TextTokenizer::from_file(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/text" /
                                   (std::string(name) + ".tokenizer.json")));
    }
    return out;
  }();
  return kAll;
}

void check_round_trip(std::string_view text) {
  for (const TextTokenizer& tokenizer : byte_level_tokenizers()) {
    const auto ids = tokenizer.encode(text, false, SpecialText::kPlain);
    require(tokenizer.decode(ids, false) == text, "decode(encode(x)) = x");
  }
}

void check_ids(const TextTokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode(text, special);
    for (const std::int32_t id : ids) {
      require(id >= 0 && id < tokenizer.vocab_size(), "ids lie in the vocabulary");
      require(!tokenizer.token(id).empty(), "every id has a token");
    }
    require(is_valid_utf8(tokenizer.decode(ids, false)), "decoded text is UTF-8");
    tokenizer.decode(ids, true);
  }
}

// Without white space, and without Digits, whose pattern is slow to compile.
const std::string& seed_tokenizer() {
  static const std::string kText = [] {
    auto json = nlohmann::ordered_json::parse(kSmallTokenizer);
    json["pre_tokenizer"]["pretokenizers"].erase(1);
    return json.dump();
  }();
  return kText;
}

constexpr const char* kUnigram = R"({"added_tokens": [], "normalizer": {"type": "Sequence",
  "normalizers": [{"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhAA=="}, {"type": "Nmt"}]},
  "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true},
  "post_processor": {"type": "BertProcessing", "sep": ["b", 2], "cls": ["a", 1]},
  "decoder": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true},
  "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true,
    "vocab": [["?", 0], ["a", -1], ["b", -2], ["ab", -2.5], ["_", -1], ["<0x21>", 0]]}})";
constexpr const char* kWordPiece = R"({"added_tokens": [],
  "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
    "strip_accents": null, "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null,
  "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
  "model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 9, "vocab": {"?": 0, "a": 1, "##a": 2, "##b": 3, "##ab": 4, "!": 5}}})";

std::vector<std::string> seeds() {
  const std::string zero(1, '\0');
  const std::string& tokenizer = seed_tokenizer();
  return {kUnigram + zero + "ab a!b? ab",
          kWordPiece + zero + "aab ABA\xc3\xa4 \xe4\xb8\xad a!",
          tokenizer + zero + "abc ab 12 <s> d",
          tokenizer + zero,
          tokenizer + zero + "\xc3\xa4 a",
          "Hello, world! 123",
          "a  b\n\n\tc",
          "\xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x99\x82 e\xcc\x81",
          "<\xef\xbd\x9c"
          "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c> 's 've"};
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const std::string_view input = fuzz::as_text(data, size);
  try {
    if (!input.starts_with("{")) {
      fuzz::check_round_trip(input);
    } else {
      const std::size_t cut = std::min(input.find('\0'), input.size());
      const TextTokenizer tokenizer = TextTokenizer::from_json(input.substr(0, cut), "f");
      fuzz::check_ids(tokenizer, input.substr(std::min(cut + 1, input.size())));
    }
  } catch (const Error& error) {
    fuzz::require(!error.info().code.empty() && !error.info().expected.empty(), "a full message");
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  Choice choice(seed);
  const std::string_view input = as_text(data, size);
  if (input.starts_with("{") && !choice.one_in(4)) {
    const std::size_t cut = std::min(input.find('\0'), input.size());
    // Now and then from a good file again: most of what was kept is refused at its first fault.
    const std::string changed =
        mutate_json(choice.one_in(4) ? seed_tokenizer() : input.substr(0, cut), choice);
    if (!changed.empty()) return release(changed + std::string(input.substr(cut)), data, max_size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
