// A model opened and checked, and its language half loaded onto a device.
#pragma once

#include <memory>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/families/model_spec.h"
#include "engine/families/registry.h"
#include "engine/model/block_model.h"
#include "engine/model/stream_model.h"

namespace tessera {

// Where the loader takes tensors from, one at a time: a checkpoint, or weights made as they are
// asked for. A view is valid until done() is called with its name.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual ConstTensorView get(const std::string& name) = 0;
  // The same as its file has it, where that is a type that weights are kept as (storage.h).
  virtual ConstTensorView get_stored(const std::string& name) { return get(name); }
  // The type of get_stored(); nothing is read.
  virtual DType stored_type(const std::string& name) { return get(name).dtype; }
  virtual void done(const std::string& name) = 0;
  // Bytes [begin, end) of the view will not be read again: a table larger than the rest of the
  // model need not stand in memory twice.
  virtual void done_part(const std::string& /*name*/, std::size_t /*begin*/, std::size_t /*end*/) {}
  virtual std::string file_of(const std::string& name) const = 0;
};

struct OpenedModel {
  ModelSpec spec;
  std::shared_ptr<const Checkpoint> weights;  // null when the source makes them up
  // Of the image tokenizer; the same object for joined files, null where the model only describes.
  std::shared_ptr<const Checkpoint> vq_weights;
  std::unique_ptr<TensorSource> source;
  std::string tokenizer_json;  // text, for models made in memory; else read spec.tokenizer
};

// Takes tensors from a checkpoint and releases their pages when done.
std::unique_ptr<TensorSource> source_of(std::shared_ptr<const Checkpoint> checkpoint);

// How matrices are kept that another tool quantised, unless something else is asked for: the type
// of about their files' size that loses least.
inline constexpr DType kDequantisedStorage = DType::kQ8;

// A model's weights, those that another tool quantised as the matrices that they stand for. Error
// kModel of Checkpoint::open() and find_quantised().
Checkpoint open_weights(const std::filesystem::path& path, const ModelSpec& spec);
// " (awq, 4 bits)" after a model's title; empty for plain weights.
std::string quantised_title(const ModelSpec& spec);

// `name` is a folder, a weight file or a model that the program is linked with (model_source.h).
// Names and shapes are checked before this returns. Error kModel.
OpenedModel open_model(const std::string& name, const FamilyOptions& options = {});
// The same for whatever its files can do, as ModelUse::kAll: those of a folder that cannot generate
// may describe images alone.
struct UsableModel {
  OpenedModel model;
  std::string problem;  // why it only describes; empty where nothing stands in the way
};
// Error kModel of generating where it does not describe either.
UsableModel open_usable(const std::string& name);
// The files of a spec that was read from a folder or weight file.
OpenedModel open_model(ModelSpec spec);

// Packs and uploads the transformer and the token spaces of `config`, tensor by tensor, giving
// mapped pages back as it goes: the image space where it has codes, the text space where it has a
// vocabulary, both over one transformer. `storage`: see Backend::keeps. NaN or infinity in a weight:
// Error kModel with tensor, index and count.
StreamModel load_stream_model(const StreamModelConfig& config, const WeightNames& names,
                              TensorSource& source, Backend& backend, DType storage);
// The same of an opened model, and that its files were not changed meanwhile. The checkpoint is not
// needed afterwards, except for its VQ tensors.
StreamModel load_stream_model(OpenedModel& model, Backend& backend, DType storage);
// The same for a model with spec.blocks.
BlockModel load_block_model(OpenedModel& model, Backend& backend, DType storage);

}  // namespace tessera
