// Orders that wait, and whose turn it is: clients take turns, and so do the users of one, so that
// naming many users gets a client nothing. Of one user the first in line is first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "engine/core/function_ref.h"

namespace tessera {

// Who asks.
struct Asker {
  std::string client;     // who is known: a key's name, else an address
  std::string user = {};  // as the client calls whom it asks for
};

class Lines {
 public:
  void add(const Asker& asker, std::uint64_t number);
  // No effect on one that is not there.
  void remove(const Asker& asker, std::uint64_t number);
  // Takes the first order that `takes` accepts out of its line: it is asked for each, from the one
  // whose turn it is. Its asker is last from then on. False: none was accepted. `takes` changes no
  // line.
  bool take_next(FunctionRef<bool(std::uint64_t)> takes);

 private:
  // Turns of what has a name; the one after `last` is next.
  template <typename Line>
  struct Turns {
    std::map<std::string, Line> lines = {};
    std::string last = {};
    bool empty() const { return lines.empty(); }
  };
  using Users = Turns<std::deque<std::uint64_t>>;

  template <typename Line, typename Visit>
  static bool by_turns(Turns<Line>& turns, const Visit& visit);

  Turns<Users> clients_;
};

}  // namespace tessera
