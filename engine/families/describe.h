// The describing half of a family: from the files next to the weights to a spec, and the weight file
// against it.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/families/model_spec.h"

namespace tessera {

class FolderFiles;
struct Describer;

// Fills spec.describe, with its account of keys, and the text of spec.model and spec.layouts from the
// folder's files. Error kModel.
void read_describing(const Describer& row, FolderFiles& files, ModelSpec& spec);

// The same of a release without config.json, whose text is in `spec`.
void read_release(const Describer& row, FolderFiles& files, ModelSpec& spec);

// The weight file against the spec: settles names of text and image encoder, the newline's, and
// whether the text head is the embedding table. Error kModel (E_TEXT_LAYOUT, E_TOWER_LAYOUT,
// E_TENSORS, E_CAPTION_MODEL) naming what is missing, wrong or surplus. Tensors of other parts are
// passed over.
void settle_describing(ModelSpec& spec, const Checkpoint& weights);

// For weights without `head`: error kModel (E_TIED_HEAD) naming `file` and key, where config.json
// does not make it the table. The reference would draw it at random.
void refuse_missing_head(const Json& config, HeadTie rule, const std::string& file,
                         const std::string& head, const Checkpoint& weights);

// Every tensor of the language model; a tied table once.
std::vector<TensorSpec> language_tensors(const ModelSpec& spec);
// The same with image encoder and projector, and the newline.
std::vector<TensorSpec> describing_tensors(const ModelSpec& spec);
// Numbers in them.
std::int64_t describing_parameters(const ModelSpec& spec);

// Rows of the rotary table where texts are written: not all that was trained, but what prompts and
// texts here may need.
std::int64_t text_places(const StreamModelConfig& config);
// What sets that number, for messages: the key `limit` of config.json if it is not empty, or
// max_position_embeddings, or this program.
std::string text_bound(const StreamModelConfig& config, const std::string& limit);

}  // namespace tessera
