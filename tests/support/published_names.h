// Reads the name lists of tests/golden/names/ and makes sparse checkpoints from them: a real
// safetensors header in front of a hole, so that a model of any size costs no disk.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

struct PublishedNames {
  std::string config;  // JSON, empty when the family ships none
  std::vector<TensorSpec> tensors;

  std::int64_t elements() const {
    std::int64_t sum = 0;
    for (const TensorSpec& tensor : tensors) sum += tensor.shape.elements();
    return sum;
  }
};

inline PublishedNames read_published_names(const std::filesystem::path& path) {
  std::ifstream in(path);
  expects(in.good(), "the name list is there");
  PublishedNames out;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("# ")) {
      out.config = line.substr(2);
      continue;
    }
    std::istringstream words(line);
    std::string name;
    words >> name;
    std::vector<std::int64_t> extents;
    for (std::int64_t extent = 0; words >> extent;) extents.push_back(extent);
    const std::size_t open = name.find('{');
    if (open == std::string::npos) {
      out.tensors.push_back({name, Shape(extents)});
      continue;
    }
    const std::size_t dash = name.find('-', open);
    const std::size_t close = name.find('}', open);
    const int first = std::stoi(name.substr(open + 1, dash - open - 1));
    const int last = std::stoi(name.substr(dash + 1, close - dash - 1));
    for (int i = first; i <= last; ++i) {
      out.tensors.push_back(
          {name.substr(0, open) + std::to_string(i) + name.substr(close + 1), Shape(extents)});
    }
  }
  return out;
}

// A bf16 safetensors file whose data is a hole.
inline void write_sparse_safetensors(const std::filesystem::path& path,
                                     const std::vector<TensorSpec>& tensors) {
  std::map<std::string, Shape> sorted;
  for (const TensorSpec& tensor : tensors) sorted.emplace(tensor.name, tensor.shape);
  std::ostringstream header;
  std::uint64_t offset = 0;
  header << '{';
  for (const auto& [name, shape] : sorted) {
    const std::uint64_t end = offset + 2 * static_cast<std::uint64_t>(shape.elements());
    header << (offset == 0 ? "" : ",") << '"' << name << R"(":{"dtype":"BF16","shape":[)";
    for (int axis = 0; axis < shape.rank(); ++axis) header << (axis ? "," : "") << shape[axis];
    header << R"(],"data_offsets":[)" << offset << ',' << end << "]}";
    offset = end;
  }
  header << '}';
  std::string text = header.str();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::ofstream out(path, std::ios::binary);
  const std::uint64_t length = text.size();
  for (int byte = 0; byte < 8; ++byte) out.put(static_cast<char>(length >> (8 * byte)));
  out << text;
  out.close();
  std::filesystem::resize_file(path, 8 + length + offset);
}

}  // namespace tessera
