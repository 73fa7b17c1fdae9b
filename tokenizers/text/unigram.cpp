// One pass over the word: at each place that can be reached, every token that fits there may
// improve the place where it ends. Ties keep the way that was found first, as the reference does.
#include "tokenizers/text/unigram.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

// What the unknown token costs below the worst token (the reference's constant).
constexpr double kUnknownPenalty = 10;

}  // namespace

UnigramModel::UnigramModel(std::vector<std::string> tokens, std::vector<double> scores,
                           UnigramOptions options)
    : WordModel(std::move(tokens)),
      scores_(std::move(scores)),
      options_(std::move(options)),
      index_(this->tokens()),
      byte_ids_(byte_token_ids(*this)) {
  expects(!scores_.empty() && scores_.size() == this->tokens().size(), "a score for each token");
  last_id_.reserve(scores_.size());
  for (const std::string& token : this->tokens()) last_id_.push_back(id_of(token).value_or(-1));
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
}

std::int32_t UnigramModel::unknown_id() const {
  if (options_.unknown) return *options_.unknown;
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_TOK_NO_UNKNOWN",
               .file = options_.file,
               .where = "text",
               .expected = "characters of the vocabulary, as it has no unknown token",
               .found = "another"});
}

std::vector<UnigramModel::Node> UnigramModel::best_cuts(std::string_view word,
                                                        RegexScratch& scratch) const {
  std::vector<Node> best(word.size() + 1);
  for (std::size_t at = 0; at < word.size();) {
    const double so_far = best[at].score;
    const std::size_t character = decode_utf8(word, at).length;
    const auto offer = [&](std::size_t length, std::int32_t id, double score) {
      Node& target = best[at + length];
      if (target.id == -2 || so_far + score > target.score) target = {so_far + score, at, id};
    };
    bool single = false;
    index_.visit_at(word, at, scratch, [&](std::size_t length, std::int32_t index) {
      const std::int32_t id = nth(last_id_, index);
      offer(length, id, nth(scores_, id));
      single = single || length == character;
    });
    if (!single) offer(character, unknown_id(), unknown_score_);
    at += character;
  }
  return best;
}

void UnigramModel::append(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (const auto id = id_of(piece)) {
    out.push_back(*id);
    return;
  }
  const auto byte_id = [&](char c) { return byte_ids_[byte_of(c)]; };
  if (options_.byte_fallback &&
      std::all_of(piece.begin(), piece.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : piece) out.push_back(byte_id(c));
  } else {
    out.push_back(unknown_id());
  }
}

void UnigramModel::encode(std::string_view word, RegexScratch& scratch,
                          std::vector<std::int32_t>& out) const {
  const std::vector<Node> best = best_cuts(word, scratch);
  std::vector<std::string_view> pieces;  // from the last to the first
  bool in_unknown = false;
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    const Node& node = best[end];
    const std::string_view piece = word.substr(node.begin, end - node.begin);
    const bool unknown = options_.unknown && node.id == *options_.unknown;
    if (unknown && in_unknown) {
      pieces.back() = {piece.data(), piece.size() + pieces.back().size()};
    } else {
      pieces.push_back(piece);
    }
    in_unknown = unknown;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) append(*piece, out);
}

}  // namespace tessera
