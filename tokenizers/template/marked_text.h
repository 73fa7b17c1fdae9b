// A UTF-8 text that knows of each byte where it came from: from the template (and from the special
// tokens that its author names) or from data, which people wrote. The marks go through every
// operation of the interpreter, so that a special token spelled in a message stays plain text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

class MarkedText {
 public:
  struct Run {
    std::size_t end = 0;  // bytes; the run begins where the one in front of it ends
    bool from_data = false;
    bool operator==(const Run&) const = default;
  };

  MarkedText() = default;
  MarkedText(std::string_view bytes, bool from_data) { append(bytes, from_data); }

  std::string_view bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }
  // at < size()
  bool from_data(std::size_t at) const;

  void append(std::string_view bytes, bool from_data);
  void append(const MarkedText& other);
  // Bytes [begin, end) of `other` with their marks.
  void append(const MarkedText& other, std::size_t begin, std::size_t end);
  MarkedText slice(std::size_t begin, std::size_t end) const;

  bool operator==(const MarkedText&) const = default;

 private:
  std::size_t run_of(std::size_t at) const;

  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ; the last ends at size()
};

}  // namespace tessera::jinja
