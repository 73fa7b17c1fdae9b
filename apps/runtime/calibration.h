// What goes into a model's matrices: how large each of their inputs is, over texts, over images
// that the model generates, or over captions it writes. Where blocks of few bits are written,
// numbers that meet large inputs get the smaller errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tessera {

// Mean squares of the inputs of matrices, by the names of their tensors: a number a column.
using InputSquares = std::map<std::string, std::vector<float>, std::less<>>;

// The language half of the model at `path` runs over `source`:
//   a text file, for a model that writes text: up to 16 pieces of 512 tokens, evenly over the text;
//   a text file, for one that generates images: a prompt a line, an image for each of the first 8;
//   a folder of images, for one that describes them: the first 16, with the captions that it
//   writes.
// `keep_going` is asked between them; false ends with what there is. Errors as of opening and
// running the model; kUsage, E_CALIBRATE, where the source is not what the model takes, or empty.
InputSquares measure_inputs(const std::filesystem::path& path, const std::filesystem::path& source,
                            const std::function<bool()>& keep_going);

}  // namespace tessera
