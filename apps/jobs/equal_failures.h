// When one item after the other fails alike, it is not the items: the rest must not be marked
// failed.
#pragma once

#include <string>

#include "engine/core/error.h"

namespace tessera {

// Counted as items end; the file of a stranger in the way says nothing either way.
class EqualFailures {
 public:
  void clear() { count_ = 0; }
  // Error kGeneral, E_BATCH_FAILING, at the fifth.
  void add(const ErrorInfo& error) {
    static constexpr int kMax = 5;
    if (error.code == "E_OUTPUT_EXISTS") return;
    count_ = error.code == last_ ? count_ + 1 : 1;
    last_ = error.code;
    if (count_ < kMax) return;
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_BATCH_FAILING",
                 .where = "5 items in a row",
                 .expected = error.expected,
                 .found = error.found,
                 .hint = "the rest is pending; --retry-failed tries these again"});
  }

 private:
  std::string last_;
  int count_ = 0;
};

}  // namespace tessera
