#include "apps/serve/lines.h"

#include <algorithm>

namespace tessera {

// Visits lines from the one whose turn it is until one is served.
template <typename Line, typename Visit>
bool Lines::by_turns(Turns<Line>& turns, const Visit& visit) {
  auto line = turns.lines.upper_bound(turns.last);
  for (std::size_t looked = 0; looked < turns.lines.size(); ++looked, ++line) {
    if (line == turns.lines.end()) line = turns.lines.begin();
    if (!visit(line->second)) continue;
    turns.last = line->first;
    if (line->second.empty()) turns.lines.erase(line);
    return true;
  }
  return false;
}

void Lines::add(const Asker& asker, std::uint64_t number) {
  clients_.lines[asker.client].lines[asker.user].push_back(number);
}

void Lines::remove(const Asker& asker, std::uint64_t number) {
  const auto client = clients_.lines.find(asker.client);
  if (client == clients_.lines.end()) return;
  auto& users = client->second.lines;
  const auto user = users.find(asker.user);
  if (user == users.end()) return;
  std::erase(user->second, number);
  if (user->second.empty()) users.erase(user);
  if (users.empty()) clients_.lines.erase(client);
}

bool Lines::take_next(FunctionRef<bool(std::uint64_t)> takes) {
  return by_turns(clients_, [&](Users& users) {
    return by_turns(users, [&](std::deque<std::uint64_t>& line) {
      const auto taken = std::find_if(line.begin(), line.end(), takes);
      if (taken == line.end()) return false;
      line.erase(taken);
      return true;
    });
  });
}

}  // namespace tessera
