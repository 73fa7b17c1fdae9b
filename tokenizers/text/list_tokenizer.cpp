// A folder's tokenizer as a GGUF file lists it. Which list it is follows from its ids: each form
// that the format has is made, read again, and must encode and decode like the folder's own.
#include <algorithm>
#include <array>
#include <numeric>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "tokenizers/text/bpe.h"
#include "tokenizers/text/listed_tokenizer.h"
#include "tokenizers/text/model_json.h"
#include "tokenizers/text/tokenizer.h"
#include "tokenizers/text/tokenizer_config.h"
#include "tokenizers/text/tokenizer_folder.h"

namespace tessera {

namespace {

// Spaces, contractions, digits, scripts, marks that compose, code: what ways to cut words differ
// in.
constexpr std::array<std::string_view, 14> kTexts = {
    "",
    "The cat sat on the mat.",
    " leading and trailing ",
    "  two  spaces\n\nand\r\n\ttabs   \n",
    "It's we'll THEY'RE don't I'D 'tis rock'n'roll",
    "3.14 1234567 2024-11-27 x1y22z333 \xd9\xa1\xd9\xa2\xd9\xa3",
    "caf\xc3\xa9 cafe\xcc\x81 na\xc3\xafve \xe2\x84\xab",
    "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96\xe7\x95\x8c \xe3\x81\x93\xe3\x82\x93 "
    "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82",
    "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7 \xf0\x9f\x98\x80\xe2\x80\x8d\xf0\x9f\x91\xa9",
    "def f(x):\n    return x**2  # ok\n\n\n",
    "...!?;:'\"()[]{}<>/\\|@#$%^&*_-+=~`",
    "\xc2\xa0nbsp\xe2\x80\x83"
    "em\xe2\x96\x81lower",
    "aaaaaaaaaaaa AAAA bbbbbbb",
    "\xe2\x96\x81\xe2\x96\x81x  y"};
constexpr std::size_t kTokensAText = 48;

[[noreturn]] void refuse_list(const std::filesystem::path& folder, std::string expected,
                              std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TOK_LISTED",
               .file = folder.string(),
               .where = "tokenizer",
               .expected = std::move(expected),
               .found = std::move(found)});
}

// A text with what the folder's tokenizer makes of it.
struct Probe {
  std::string text;
  std::vector<std::int32_t> ids, plain;
  std::string decoded;
};

Probe probe_of(const TextTokenizer& tokenizer, std::string text) {
  Probe out{.text = std::move(text), .ids = {}, .plain = {}, .decoded = {}};
  out.ids = tokenizer.encode(out.text);
  out.plain = tokenizer.encode(out.text, true, SpecialText::kPlain);
  out.decoded = tokenizer.decode(out.ids);
  return out;
}

// Fixed texts, special tokens among words, then every token next to others far from it.
std::vector<Probe> probes_of(const TextTokenizer& tokenizer,
                             const std::vector<std::string>& added) {
  std::vector<Probe> out;
  for (const std::string_view text : kTexts) out.push_back(probe_of(tokenizer, std::string(text)));
  for (const std::string& token : added) {
    out.push_back(probe_of(tokenizer, token + "a " + token + " b" + token + token + "  c"));
  }
  const std::int64_t count = tokenizer.vocab_size();
  std::int64_t step = count * 5 / 8 | 1;
  while (std::gcd(step, count) != 1) step += 2;
  std::string text;
  for (std::int64_t i = 0, id = 0; i < count; ++i, id = (id + step) % count) {
    const auto one = narrow<std::int32_t>(id);
    text += tokenizer.decode(std::span(&one, 1), false);
    if (i % 3 == 0) text += ' ';
    if (to_size(i + 1) % kTokensAText != 0 && i + 1 < count) continue;
    out.push_back(probe_of(tokenizer, std::move(text)));
    text.clear();
  }
  return out;
}

class Lister {
 public:
  Lister(const std::filesystem::path& folder, std::int64_t rows) : folder_(folder), rows_(rows) {}

  ListedTokenizer run() {
    TokenizerParts parts = read_tokenizer_folder(folder_);
    const auto* const model = dynamic_cast<const BpeModel*>(parts.model.get());
    if (model == nullptr || !model->options().prefix.empty() || !model->options().suffix.empty()) {
      refuse_list(folder_, "merges of pairs, as the models llama and gpt2 of GGUF files have",
                  model == nullptr ? "a model of another kind" : "tokens that mark a word's end");
    }
    out_.file = folder_.string();
    const bool pieces = model->options().byte_fallback;
    out_.model = pieces ? "llama" : "gpt2";
    if (pieces) {
      out_.unknown = model->options().unknown;
    }
    const std::vector<MergeTable::Pair> merges = model->merges().pairs();
    const TextTokenizer own = list_tokens(std::move(parts), merges);
    list_roles(own);
    list_rest(own);
    probes_ = probes_of(own, added_);
    return pieces ? choose_spaces(own) : choose_cut(own);
  }

 private:
  TextTokenizer list_tokens(TokenizerParts parts, const std::vector<MergeTable::Pair>& merges) {
    for (const AddedToken& token : parts.added) added_.push_back(token.content);
    TextTokenizer own = TextTokenizer::from_parts(std::move(parts));
    const std::int64_t count = own.vocab_size();
    if (count > rows_) {
      refuse_list(folder_, "at most " + std::to_string(rows_) + " tokens, as the model has",
                  std::to_string(count));
    }
    for (std::int64_t id = 0; id < count; ++id) {
      const std::string_view token = own.token(narrow<std::int32_t>(id));
      out_.tokens.emplace_back(token);
      out_.kinds.push_back(ListedKind::kNormal);
      const bool byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
      if (out_.model == "llama" && byte) out_.kinds.back() = ListedKind::kByte;
    }
    for (const std::string& token : added_) {
      const std::int32_t id = own.id_of(token).value();
      nth(out_.kinds, id) = own.is_special(id) ? ListedKind::kControl : ListedKind::kUserDefined;
    }
    if (out_.unknown) nth(out_.kinds, *out_.unknown) = ListedKind::kUnknown;
    out_.model == "llama" ? list_scores(merges) : list_merges(merges);
    return own;
  }

  // A piece is better than all that are merged after it.
  void list_scores(const std::vector<MergeTable::Pair>& merges) {
    std::vector<float> scores(out_.tokens.size(), 0.0f);
    float next = 0;
    for (const MergeTable::Pair& pair : merges) {
      float& score = nth(scores, pair.merge.result);
      if (score == 0.0f) score = next -= 1;
    }
    for (float& score : scores) {
      if (score == 0.0f) score = next - 1;
    }
    out_.scores = std::move(scores);
  }

  void list_merges(const std::vector<MergeTable::Pair>& merges) {
    for (const MergeTable::Pair& pair : merges) {
      out_.merges.push_back(nth(out_.tokens, pair.left) + " " + nth(out_.tokens, pair.right));
    }
  }

  void list_roles(const TextTokenizer& own) {
    const TokenizerConfig config = read_tokenizer_config(folder_);
    const auto id_of = [&](const char* name) -> std::optional<std::int32_t> {
      const TokenRole* const role = config.role(name);
      if (role == nullptr || !role->token) return std::nullopt;
      return own.id_of(role->token->content);
    };
    out_.begin = id_of("bos_token");
    out_.end = id_of("eos_token");
    out_.pad = id_of("pad_token");
    if (out_.model == "llama") {  // as readers of such files take it
      out_.begin = out_.begin.value_or(1);
      out_.end = out_.end.value_or(2);
      out_.unknown = out_.unknown.value_or(0);
    }
  }

  // What texts get in front and at the end.
  void list_rest(const TextTokenizer& own) {
    const auto put = [&](const std::vector<std::int32_t>& ids, std::optional<std::int32_t>& role,
                         std::optional<bool>& adds) {
      if (ids.size() > 1) {
        refuse_list(folder_, "at most one token at each end of a text", std::to_string(ids.size()));
      }
      adds = !ids.empty();
      if (!ids.empty()) role = ids.front();
    };
    put(own.ids_before(), out_.begin, out_.add_begin);
    put(own.ids_after(), out_.end, out_.add_end);
  }

  // Whether the list, read again, is this tokenizer.
  bool fits(const TextTokenizer& own) {
    ListedTokenizer copy = out_;
    const TextTokenizer read = TextTokenizer::from_parts(convert_listed(std::move(copy)));
    if (read.vocab_size() != own.vocab_size()) return false;
    for (std::int32_t id = 0; id < own.vocab_size(); ++id) {
      if (read.is_special(id) != own.is_special(id)) return differs(0);
    }
    for (std::size_t i = 0; i < probes_.size(); ++i) {
      const Probe& probe = probes_[i];
      const bool same = read.encode(probe.text) == probe.ids &&
                        read.encode(probe.text, true, SpecialText::kPlain) == probe.plain &&
                        read.decode(probe.ids) == probe.decoded;
      if (!same) return differs(i);
    }
    return true;
  }
  bool differs(std::size_t probe) {
    furthest_ = std::max(furthest_, probe);
    return false;
  }

  ListedTokenizer take() {
    for (std::int64_t id = std::ssize(out_.tokens); id < rows_; ++id) {
      out_.tokens.push_back("[PAD" + std::to_string(id) + "]");
      out_.kinds.push_back(ListedKind::kUnused);
      if (!out_.scores.empty()) out_.scores.push_back(out_.scores.back());
    }
    return std::move(out_);
  }

  [[noreturn]] void refuse_probe() const {
    refuse_list(folder_, "ids as a tokenizer of GGUF files gives them",
                "others, for instance of " + in_quotes(probes_[furthest_].text));
  }

  ListedTokenizer choose_spaces(const TextTokenizer& own) {
    out_.cut = "default";
    for (const bool legacy : {true, false}) {
      for (const bool prefix : {true, false}) {
        out_.space_prefix = prefix;
        out_.legacy = legacy;
        if (fits(own)) return take();
      }
    }
    refuse_probe();
  }

  ListedTokenizer choose_cut(const TextTokenizer& own) {
    for (const std::string_view cut : listed_cuts()) {
      out_.cut = cut;
      if (fits(own)) return take();
    }
    refuse_probe();
  }

  std::filesystem::path folder_;
  std::int64_t rows_;
  ListedTokenizer out_;
  std::vector<std::string> added_;
  std::vector<Probe> probes_;
  std::size_t furthest_ = 0;
};

}  // namespace

ListedTokenizer list_tokenizer(const std::filesystem::path& folder, std::int64_t rows) {
  return Lister(folder, rows).run();
}

}  // namespace tessera
