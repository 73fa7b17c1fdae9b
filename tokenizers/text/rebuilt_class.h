// Classes of transformers 5 that keep the vocabulary, the merges and the post_processor of a
// tokenizer.json and make the rest themselves.
#pragma once

#include <string_view>

#include "engine/core/json.h"
#include "tokenizers/text/tokenizer_config.h"
#include "tokenizers/text/tokenizer_note.h"

namespace tessera {

// What config.json says of the tokenizer; empty without the file or the key.
struct ModelConfigNames {
  std::string file;  // config.json, for messages; empty if there is none
  std::string type;
  std::string tokenizer_class;
};
ModelConfigNames read_model_names(const std::filesystem::path& folder);

// Makes of `json`, a whole tokenizer.json, what AutoTokenizer of transformers 5 makes of the
// folder: the normalizer, pre_tokenizer, decoder and switches of the model of the class that it
// chooses by tokenizer_class and model_type. True if anything changed. `text` is the file. Error
// kModel, E_TOK_CLASS, if that class has another kind of model than the file.
bool follow_class(const ModelConfigNames& names, const TokenizerConfig& config,
                  std::string_view text, Json& json);

// Normalizer, pre_tokenizer and decoder of Qwen2Tokenizer, GPT2Tokenizer or CLIPTokenizer.
Json byte_pair_components(std::string_view class_name, bool add_prefix_space);

}  // namespace tessera
