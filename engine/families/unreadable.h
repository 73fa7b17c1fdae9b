// Folders that look like a model's and hold something else.
#pragma once

#include <filesystem>

#include "engine/core/json.h"

namespace tessera {

// Error kModel: E_ADAPTER for a folder with adapter_config.json, naming the model it belongs to;
// E_QUANTISED for one with the file of a quantising tool (quantize_config.json, quant_config.json).
void refuse_foreign_files(const std::filesystem::path& folder);

// Error kModel: E_QUANTISED, naming the method, for a configuration with quantization_config, at its
// top or in one of its halves.
void refuse_quantised(const Json& config, const std::string& file);

}  // namespace tessera
