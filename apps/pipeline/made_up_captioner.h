// A captioner without files for tests and soaks: test:tiny as `tessera caption` takes it. Janus-
// shaped like the painter of that name, 2 layers of width 64 over a byte-level vocabulary, pictures
// of 32x32 pixels in 4x4 visual tokens, seeded random weights.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/json.h"

namespace tessera {

struct CaptionSpec;

bool is_made_up_captioner(std::string_view name);
// Its config.json.
std::shared_ptr<const Json> made_up_captioner_config();
std::string made_up_captioner_tokenizer();  // text of a tokenizer.json
// Every tensor that the configuration asks for.
std::shared_ptr<const Checkpoint> made_up_captioner_weights(const CaptionSpec& spec);

}  // namespace tessera
