// What a folder's generation_config.json says of how tokens are chosen, as settings.
#pragma once

#include "engine/core/json.h"
#include "engine/core/setting.h"

namespace tessera {

// The logits processors that the file switches on, for a head of `codes` ids; absent keys and nulls
// leave theirs off. Greedy stays greedy: do_sample and temperature are not read. Error as
// JsonReader's: a wrong type, a value out of range, an id that the head lacks where transformers
// refuses it.
SettingValues read_processors(const JsonReader& config, std::int64_t codes);

// The same as generate() of transformers takes them: min_new_tokens takes the place of min_length.
SettingValues read_text_processors(const JsonReader& config, std::int64_t codes);

// The cuts of the file, for texts that are drawn: top_k, top_p, min_p, typical_p. Error as
// JsonReader's: a wrong type, a value out of range, a cut that is not done here.
SettingValues read_cuts(const JsonReader& config);

}  // namespace tessera
