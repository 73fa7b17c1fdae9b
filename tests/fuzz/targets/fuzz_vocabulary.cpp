// Vocabularies without tokenizer.json. The first byte says which: 'L' and 'T' a SentencePiece model
// of that class, 'Q', 'G' and 'C' vocab.json, a zero byte and merges.txt of that class, then
// another zero byte and the text to encode. Oracles: ids lie in the vocabulary, decoded text is
// UTF-8.
#include <string>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/support/sentencepiece_builder.h"
#include "tokenizers/text/slow_tokenizers.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::fuzz {
namespace {

constexpr std::string_view kText =
    "<s>ab  ba \xc3\xa4\xe2\x96\x81 a\xcc\x81"
    "1 </s>c<extra_id_0> AB";

std::string piece(const std::string& text, std::uint8_t score, std::uint64_t type = 1) {
  const std::string number_bytes = {'\0', '\0', static_cast<char>(score), '\xc0'};
  return wire_bytes(
      1, wire_bytes(1, text) + wire_varint(2 << 3 | 5) + number_bytes + wire_number(3, type));
}

std::string pieces() {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("a", 16) +
         piece("b", 32) + piece("ab", 8) + piece("\xe2\x96\x81", 64) +
         piece(
             "\xe2\x96\x81"
             "ab",
             4) +
         piece("<0x41>", 0, 6) + piece("<box>", 0, 4);
}

// A map of "A" to "a": a trie of four units.
std::string charsmap() {
  std::string out = {'\0', '\2', '\0', '\0'};
  std::string trie(512, '\0');
  const auto put = [&](std::size_t at, std::uint32_t unit) {
    for (unsigned i = 0; i < 4; ++i) trie[4 * at + i] = static_cast<char>(unit >> 8 * i);
  };
  put(0, 0);                           // the root's children begin at 0
  put('A', 'A' | 1U << 8 | 1U << 10);  // has a value, one further
  put('A' ^ 1U, 0x80000000U);          // the first text
  return out + trie + std::string("a\0", 2);
}

std::vector<std::string> seeds() {
  const std::string zero(1, '\0');
  const std::string vocab =
      R"({"a":0,"b":1,"ab":2,"a</w>":3,"<|endoftext|>":4,"<|startoftext|>":5})";
  const std::string merges = "#version: 0.2\na b\n";
  return {"L" + pieces() + wire_bytes(2, wire_number(3, 2)),
          "L" + pieces() + wire_bytes(2, wire_number(3, 1) + wire_number(35, 1)),
          "T" + pieces() + wire_bytes(2, wire_number(3, 1) + wire_number(40, 3)) +
              wire_bytes(3, wire_bytes(2, charsmap())),
          "T" + pieces() + wire_bytes(2, wire_number(3, 2)),
          "Q" + vocab + zero + merges + zero + "ab ba",
          "G" + vocab + zero + merges + "\n" + zero + "ab ba",
          "C" + vocab + zero + merges + zero + "ab ba <|endoftext|>"};
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

void read(std::string_view input) {
  TokenizerConfig config;
  config.extra_ids = 2;
  const char kind = input.front();
  input.remove_prefix(1);
  if (kind == 'L' || kind == 'T') {
    config.class_name = kind == 'L' ? "LlamaTokenizer" : "T5Tokenizer";
    check_ids(TextTokenizer::from_parts(
                  convert_sentencepiece(read_sentencepiece(input, "f"), config, "f")),
              kText);
    return;
  }
  config.class_name = kind == 'Q'   ? "Qwen2Tokenizer"
                      : kind == 'G' ? "GPT2Tokenizer"
                                    : "CLIPTokenizer";
  const std::size_t first = std::min(input.find('\0'), input.size());
  const std::string_view rest = input.substr(std::min(first + 1, input.size()));
  const std::size_t second = std::min(rest.find('\0'), rest.size());
  const VocabAndMerges files{std::string(input.substr(0, first)),
                             std::string(rest.substr(0, second)), "vocab.json", "merges.txt"};
  check_ids(TextTokenizer::from_parts(convert_vocab_and_merges(files, config)),
            rest.substr(std::min(second + 1, rest.size())));
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
  if (input.empty()) return 0;
  try {
    fuzz::read(input);
  } catch (const Error& error) {
    fuzz::require(!error.info().code.empty() && !error.info().expected.empty(), "a full message");
  }
  return 0;
}
