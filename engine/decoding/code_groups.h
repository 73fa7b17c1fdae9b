// A partition of the image codes into groups that look alike: k-means (Lloyd 1982) over unit code
// vectors, begun by farthest-first traversal from code 0, so that it is the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/code_neighbours.h"

namespace tessera {

class CodeGroups {
 public:
  // ceil(codes / size) groups, `size` codes in the mean; size >= 1.
  CodeGroups(const CodeNeighbours& codes, std::int64_t size);

  std::int64_t groups() const { return std::ssize(first_) - 1; }
  std::int32_t group_of(std::int32_t code) const { return nth(group_of_, code); }
  // The codes of a code's group, itself included, ascending.
  std::span<const std::int32_t> members(std::int32_t code) const {
    const auto group = to_size(group_of(code));
    const auto begin = to_size(first_[group]);
    return std::span(members_).subspan(begin, to_size(first_[group + 1]) - begin);
  }
  // The whole tables: group of a code, codes group by group, where each group begins among them.
  std::span<const std::int32_t> of_codes() const { return group_of_; }
  std::span<const std::int32_t> all_members() const { return members_; }
  std::span<const std::int32_t> first_members() const { return first_; }

 private:
  std::vector<std::int32_t> group_of_;  // [codes]
  std::vector<std::int32_t> members_;   // [codes], group by group
  std::vector<std::int32_t> first_;     // [groups + 1], into members_
};

}  // namespace tessera
