// The encoder of a T5 in a folder of its own, as Hugging Face's class writes it: models that read a
// text as another model's rows find it there.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/families/folder_files.h"
#include "engine/model/caption_rows.h"
#include "engine/model/text_encoder.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

struct OpenedModel;

struct OpenedTextEncoder {
  std::filesystem::path folder;
  std::string name;   // the folder's
  std::string title;  // "T5 encoder 24x2048"
  TextEncoderConfig config;
  std::string table;                // name of the table of tokens
  std::vector<TensorSpec> tensors;  // of the encoder; the rest of a whole T5 is not read
  DType stored = DType::kF32;       // of its matrices: bf16 where the file has them so, else f32
  FolderAccount account;            // files are named "<folder>/config.json"
  std::shared_ptr<const Checkpoint> weights;
};

// The configuration alone, as config.json of model_type "t5" has it. Error kModel by file and key.
TextEncoderConfig parse_text_encoder(const JsonReader& config);
// Every tensor of such an encoder; `table` as above.
std::vector<TensorSpec> text_encoder_tensors(const TextEncoderConfig& config,
                                             const std::string& table);

// Reads configuration, names and shapes. `width`: numbers a row that are wanted, 0 = any; `fitting`
// names what has them. Error kModel: no such folder (E_TEXT_ENCODER), E_TEXT_ENCODER_WIDTH before
// weights are looked at, E_TENSORS, those of JSON and containers.
OpenedTextEncoder open_text_encoder(const std::filesystem::path& folder, std::int64_t width = 0,
                                    const std::string& fitting = "");

// Packs it onto a device, kept as `storage`, tensor by tensor. Error kModel: NaN or infinity in a
// tensor, files that were changed since; kMemory.
TextEncoder load_text_encoder(const OpenedTextEncoder& encoder, Backend& backend, DType storage);

// What makes a prompt of an encoder's rows, out of the model's own files; it has spec.context with
// a caption. Error as above.
CaptionRows load_caption_rows(OpenedModel& model, Backend& backend, DType storage);

// The first folder of one of these names that has a config.json: inside `folder`, else next to it.
// Empty: none.
std::filesystem::path find_text_encoder(const std::filesystem::path& folder,
                                        std::span<const std::string> names);

}  // namespace tessera
