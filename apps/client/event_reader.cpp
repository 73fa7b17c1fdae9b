#include "apps/client/event_reader.h"

#include <algorithm>
#include <utility>

namespace tessera {

bool EventReader::feed(std::string_view bytes, std::vector<ServerEvent>& out) {
  while (!bytes.empty() && !broken_) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (part.size() > most_ - std::min(most_, held())) {
      broken_ = true;
      break;
    }
    line_ += part;
    if (end == std::string_view::npos) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line(out);
  }
  return !broken_;
}

void EventReader::end_line(std::vector<ServerEvent>& out) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // of byte order; at the beginning alone
  if (std::exchange(first_, false) && line_.starts_with(kMark)) line_.erase(0, kMark.size());
  if (line_.empty()) {
    if (std::exchange(has_data_, false)) out.push_back(std::move(event_));
    event_ = {};
    return;
  }
  const std::size_t colon = std::min(line_.find(':'), line_.size());
  const std::string_view field = std::string_view(line_).substr(0, colon);
  std::size_t from = std::min(colon + 1, line_.size());
  if (from < line_.size() && line_[from] == ' ') ++from;
  if (field == "event") {
    event_.name = line_.substr(from);
  } else if (field == "data") {
    if (std::exchange(has_data_, true)) {
      event_.data += '\n';
      event_.data.append(line_, from, std::string::npos);
    } else {
      event_.data = std::move(line_);  // which may be large
      event_.data.erase(0, from);
    }
  }
  line_.clear();  // a comment, or a field that says nothing here
}

}  // namespace tessera
