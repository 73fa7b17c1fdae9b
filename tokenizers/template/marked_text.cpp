#include "tokenizers/template/marked_text.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera::jinja {

std::size_t MarkedText::run_of(std::size_t at) const {
  const auto found =
      std::upper_bound(runs_.begin(), runs_.end(), at,
                       [](std::size_t value, const Run& run) { return value < run.end; });
  return to_size(found - runs_.begin());
}

bool MarkedText::from_data(std::size_t at) const {
  expects(at < bytes_.size(), "a byte of the text");
  return runs_[run_of(at)].from_data;
}

void MarkedText::append(std::string_view bytes, bool from_data) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (runs_.empty() || runs_.back().from_data != from_data) runs_.push_back({0, from_data});
  runs_.back().end = bytes_.size();
}

void MarkedText::append(const MarkedText& other) { append(other, 0, other.size()); }

void MarkedText::append(const MarkedText& other, std::size_t begin, std::size_t end) {
  expects(begin <= end && end <= other.size() && this != &other, "a range of another text");
  for (std::size_t run = other.run_of(begin); begin < end; ++run) {
    const std::size_t stop = std::min(end, other.runs_[run].end);
    append(other.bytes().substr(begin, stop - begin), other.runs_[run].from_data);
    begin = stop;
  }
}

MarkedText MarkedText::slice(std::size_t begin, std::size_t end) const {
  MarkedText out;
  out.append(*this, begin, end);
  return out;
}

}  // namespace tessera::jinja
