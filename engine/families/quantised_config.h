// What a folder says of weights that another tool quantised.
#pragma once

#include <memory>

#include "engine/checkpoint/quantised.h"
#include "engine/families/folder_files.h"

namespace tessera {

// quantization_config of config.json, at its top or in one of its halves, else quantize_config.json
// or quant_config.json; null where there is none of them. Error kModel: E_QUANTISED, naming the
// method, for one that is not read here; E_JSON_* for a key whose value is not; E_QUANTISED_FILES
// for two places that contradict each other.
std::shared_ptr<const QuantisedScheme> read_quantised(FolderFiles& files);

}  // namespace tessera
