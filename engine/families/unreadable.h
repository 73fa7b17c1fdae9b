// Folders that look like a model's and hold something else.
#pragma once

#include <filesystem>

namespace tessera {

// Error kModel: E_ADAPTER for a folder with adapter_config.json, naming the model it belongs to.
void refuse_adapters(const std::filesystem::path& folder);

}  // namespace tessera
