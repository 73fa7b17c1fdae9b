// Captions as the text encoders of published text-to-image models were trained with them: in lower
// case, without addresses, numbers of articles, file names, most punctuation and Chinese
// characters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/text/regex.h"

namespace tessera {

// The rules of DeepFloyd's IF, which LlamaGen's sampler applies twice to each prompt. Left out:
// what html.parser makes of tags and entities, and repairs of text that was decoded in a wrong
// encoding.
class CaptionCleaner {
 public:
  CaptionCleaner();

  // `text` is valid UTF-8; both times. Error kGeneral, E_TOK_BUDGET, E_TOK_TEXT_SIZE.
  std::string clean(std::string_view text) const;
  // The first tag or entity of HTML, which the authors' script takes away or replaces; empty = none.
  std::string markup(std::string_view text) const;

 private:
  struct Rule {
    Pattern pattern;
    std::string_view content;  // what takes the place of a match
  };
  std::string once(std::string_view text) const;
  std::string apply(const std::vector<Rule>& rules, std::string text) const;

  std::vector<Rule> first_, joined_, controls_, last_, markup_;
};

}  // namespace tessera
