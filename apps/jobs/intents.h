// What an item was about to put where. A text cannot say whose it is, so before the files of an
// item that has more than its image get their names, a record says what they will be and what
// stood there: {"intent": id, "files": [{"p", "new": sha256, "old": sha256 or null}]}.
#pragma once

#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/core/json.h"

namespace tessera {

struct IntendedFile {
  std::string name;
  std::string now;  // sha256 of what it becomes
  std::string old;  // of what stood there; empty: nothing, or nothing that can be read
};

Json intent_fields(const std::string& id, std::span<const IntendedFile> files);

// The intents of a journal that no record of a done item followed.
class Intents {
 public:
  // Any record of the journal. The nlohmann exceptions of a field of another type leave it.
  void take(const Json& fields);

  // What a file is, by the intents of this item; `sum` is its sha256.
  enum class Known : std::uint8_t {
    kNothing,  // no intent speaks of the name
    kOurs,     // an intent put it there
    kBefore,   // it stood there before the last one
    kChanged,  // neither
  };
  Known known(const std::string& id, const std::string& name, const std::string& sum) const;

  // The files of the item's last intent; empty if it has none.
  std::vector<IntendedFile> last(const std::string& id) const;

 private:
  struct OfItem {
    std::vector<IntendedFile> last;
    std::set<std::pair<std::string, std::string>> ours;  // name and sha256, of all intents
  };
  std::unordered_map<std::string, OfItem> items_;
};

}  // namespace tessera
