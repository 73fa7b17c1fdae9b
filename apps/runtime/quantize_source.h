// What a run of "quantize" is made from, so that a later one goes on only with what would become
// the same; and the calibration that was done already.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "apps/runtime/calibration.h"
#include "apps/runtime/quantize.h"

namespace tessera {

// Options, and time and length of the files.
std::string source_of(const QuantizeOptions& options, const std::set<std::filesystem::path>& files);

// The output without a slash at its end: parts have names that begin with it.
std::filesystem::path output_path(const QuantizeOptions& options);
// Where the inputs of an unfinished run are kept: next to the output.
std::filesystem::path kept_inputs_path(const QuantizeOptions& options);
// measure_inputs(), or what an earlier run of the same source kept of it; kept for a later one if
// `keep_going` lets it end.
InputSquares kept_inputs(const std::filesystem::path& model, const QuantizeOptions& options,
                         const std::function<bool()>& keep_going);

}  // namespace tessera
