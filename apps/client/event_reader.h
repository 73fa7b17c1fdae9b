// A stream of events (text/event-stream, as the HTML standard has it) as its bytes come in.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct ServerEvent {
  std::string name, data;  // an empty name: a message
  bool operator==(const ServerEvent&) const = default;
};

class EventReader {
 public:
  // An event of more bytes is refused.
  explicit EventReader(std::size_t most_bytes) : most_(most_bytes) {}

  // The events that ended in these bytes. False: one is too long, and nothing more is read.
  bool feed(std::string_view bytes, std::vector<ServerEvent>& out);
  std::size_t held() const { return line_.size() + event_.name.size() + event_.data.size(); }

 private:
  void end_line(std::vector<ServerEvent>& out);

  std::size_t most_;
  bool first_ = true, after_return_ = false;
  std::string line_;  // so far
  ServerEvent event_;
  bool has_data_ = false, broken_ = false;
};

}  // namespace tessera
