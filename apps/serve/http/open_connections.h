// Connections that are open, in all and of each address.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace tessera {

template <typename Connection>
class OpenConnections {
 public:
  // Whether there are fewer than `most`, and fewer than `most_each` of that address.
  bool has_room(const std::string& peer, std::size_t most, std::size_t most_each) const {
    const auto had = peers_.find(peer);
    return open_.size() < most && (had == peers_.end() || had->second < most_each);
  }
  void add(const std::string& peer, std::shared_ptr<Connection> connection) {
    open_.insert(std::move(connection));
    ++peers_[peer];
  }
  void remove(const std::string& peer, const std::shared_ptr<Connection>& connection) {
    if (open_.erase(connection) > 0 && --peers_[peer] == 0) peers_.erase(peer);
  }
  std::size_t size() const { return open_.size(); }
  // They may leave meanwhile.
  std::set<std::shared_ptr<Connection>> all() const { return open_; }

 private:
  std::set<std::shared_ptr<Connection>> open_;
  std::map<std::string, std::size_t> peers_;
};

}  // namespace tessera
