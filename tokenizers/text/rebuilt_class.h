// Classes of transformers 5 that keep the vocabulary, the merges and the post_processor of a
// tokenizer.json and make the rest themselves.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

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
// chooses by tokenizer_class and model_type. `text` is the file. Says what changed, and what such a
// class does that is not done here. Error kModel, E_TOK_CLASS, if that class has another kind of
// model than the file.
std::vector<TokenizerNote> follow_class(const ModelConfigNames& names,
                                        const TokenizerConfig& config, std::string_view text,
                                        Json& json);

// The class by which a folder of vocab.json and merges.txt is read: that of its model_type where
// the files name none, or where AutoTokenizer of transformers 5 takes no other.
void follow_type(const ModelConfigNames& names, TokenizerConfig& config);

// Normalizer, pre_tokenizer and decoder of Qwen2Tokenizer, GPT2Tokenizer or CLIPTokenizer.
Json byte_pair_components(std::string_view class_name, bool add_prefix_space);

}  // namespace tessera
