// The table of pruning methods: what each is called, needs and guarantees, and how it is made from
// named numbers. A new method is its own file and one row of registry.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vision/pruning/pruner.h"

namespace tessera {

// Settings as they come from a command line: name and number.
struct PruneOption {
  std::string name;
  double value = 0;
};

// Hands options to the settings of a method, each once.
class OptionReader {
 public:
  OptionReader(std::string_view method, std::span<const PruneOption> options)
      : method_(method), options_(options), used_(options.size()) {}
  // The option if it is there, else the default. Error E_PRUNE_OPTION outside [least, most].
  double number(std::string_view name, double fallback, double least, double most);
  std::int64_t whole(std::string_view name, std::int64_t fallback, std::int64_t least,
                     std::int64_t most);
  bool flag(std::string_view name, bool fallback) { return whole(name, fallback, 0, 1) != 0; }
  // Error E_PRUNE_OPTION naming the choices if an option was not asked for.
  void finish() const;

 private:
  std::string_view method_;
  std::span<const PruneOption> options_;
  std::vector<bool> used_;
  std::vector<std::string> known_;
};

// How many tokens a plan keeps, of K asked for.
enum class KeptCount : std::uint8_t {
  kExact,    // K, over all groups of the scope
  kAtMost,   // floors and padding may leave some out
  kListed,   // of its own list, by stage
  kAtLeast,  // K, or as near as halving in every layer comes
};
std::string_view name_of(KeptCount count);

enum class ClsNeed : std::uint8_t {
  kNone,
  kRow,  // a CLS attention row, or the encoder's substitute for it
};

// What a method's published code does otherwise than stands here, as far as a plan can follow it:
// such a method has the option parity=1.
struct PublishedCode {
  std::string_view differs;       // in words; empty: in nothing, or there is no code
  TokenOutcome newline = TokenOutcome::kProtect;  // of row ends
};

struct PrunerRow {
  std::string_view name;
  std::string_view where;  // it prunes, in words
  ClsNeed cls;
  bool text_aware;           // plans belong to one question; others may be reused with the image
  PositionPolicy positions;  // for plain ids
  KeptCount kept;
  bool adaptive;          // honours Budget::adaptive
  std::string_view does;  // for --help
  std::unique_ptr<Pruner> (*make)(OptionReader& options);
  PublishedCode code = {};
  bool drawn = false;  // plans depend on a seed
};

std::span<const PrunerRow> pruner_table();
// Error E_PRUNE_METHOD naming the choices for an unknown name.
const PrunerRow& pruner_row(std::string_view name);
// The method with its settings; Error E_PRUNE_OPTION for options it does not have, E_PRUNE_PARITY
// naming the methods whose code differs for parity with another one.
std::unique_ptr<Pruner> make_pruner(std::string_view name,
                                    std::span<const PruneOption> options = {});

// What will serve as CLS row of this method in this model. Error E_PRUNE_CLS, naming both, if the
// method needs one and the encoder has neither CLS nor a substitute; E_PRUNE_ADAPTIVE if the budget
// is adaptive and the method has no number of its own.
RowSource check_pruner(std::string_view name, const PrunedModel& model, const Budget& budget);

}  // namespace tessera
