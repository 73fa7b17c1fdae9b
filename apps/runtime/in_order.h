// Things that come in any order, handed on by their numbers: images leave a loop as they are
// finished, and neither listings nor sums shall show which was first.
#pragma once

#include <cstddef>
#include <map>
#include <utility>

namespace tessera {

template <typename Thing>
class InOrder {
 public:
  // Numbers count from 0. Calls `emit(thing)` for all that no earlier one is missing in front of.
  template <typename Emit>
  void add(std::size_t number, Thing thing, Emit&& emit) {
    early_.emplace(number, std::move(thing));
    while (!early_.empty() && early_.begin()->first == next_) {
      auto node = early_.extract(early_.begin());
      ++next_;
      emit(std::move(node.mapped()));
    }
  }
  // The others, when no more will come.
  template <typename Emit>
  void finish(Emit&& emit) {
    while (!early_.empty()) emit(std::move(early_.extract(early_.begin()).mapped()));
    next_ = 0;
  }

 private:
  std::map<std::size_t, Thing> early_;
  std::size_t next_ = 0;
};

}  // namespace tessera
