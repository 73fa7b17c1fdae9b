// Places that items of a job want, text files or keys of an archive. A place is one item's: held
// while the item is at work, settled when its result is there.
#pragma once

#include <string>
#include <unordered_map>

namespace tessera {

class Places {
 public:
  struct Owner {
    std::string id;
    bool settled = false;
  };
  // Another item that has the place; null for none.
  const Owner* other(const std::string& place, const std::string& id) const {
    const auto found = owners_.find(place);
    return found == owners_.end() || found->second.id == id ? nullptr : &found->second;
  }
  void hold(const std::string& place, const std::string& id) { owners_[place] = {id, false}; }
  // The same, but what is settled stays settled.
  void keep(const std::string& place, const std::string& id) {
    owners_.try_emplace(place, Owner{id, false});
  }
  void settle(const std::string& place, const std::string& id) { owners_[place] = {id, true}; }
  // Frees the place that the item holds.
  void release(const std::string& place, const std::string& id) {
    const auto owner = owners_.find(place);
    const bool held = owner != owners_.end() && owner->second.id == id;
    if (held && !owner->second.settled) owners_.erase(owner);
  }
  // The same, also if it is settled.
  void forget(const std::string& place, const std::string& id) {
    const auto owner = owners_.find(place);
    if (owner != owners_.end() && owner->second.id == id) owners_.erase(owner);
  }

 private:
  std::unordered_map<std::string, Owner> owners_;
};

}  // namespace tessera
