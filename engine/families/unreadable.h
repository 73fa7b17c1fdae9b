// Folders that look like a model's and hold something else.
#pragma once

#include <filesystem>

#include "engine/core/json.h"

namespace tessera {

// Error kModel: E_ADAPTER for a folder with adapter_config.json, naming the model it belongs to.
void refuse_adapter(const std::filesystem::path& folder);

// Error kModel: E_QUANTISED, naming the method, for a configuration with quantization_config, whole
// or in a half, and for a folder with a quantiser's own quantize_config.json or quant_config.json.
// `file`: the configuration's.
void refuse_quantised(const Json& config, const std::string& file);

}  // namespace tessera
