// A model of a checkpoint family as plain data, generating, describing or both: what a family file
// fills and every library takes its part of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/joined_parts.h"
#include "engine/core/tensor.h"
#include "engine/families/describe_spec.h"
#include "engine/model/block_model.h"
#include "engine/model/stream_model.h"
#include "engine/nn/fsq_video_spec.h"
#include "engine/nn/movq_spec.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

class Checkpoint;
struct QuantisedScheme;

// Rows of a matrix.
struct RowRange {
  std::int64_t first = 0, count = 0;
};

// Where a layer's attention to other rows stands, leaves as below.
struct CrossNames {
  std::string norm, q, out, q_norm, k_norm;
  std::vector<std::string> kv;  // k, v
};

// LayerNorm of heads, "q.weight" and "q.bias" and the same of keys. Files hold a row a head, or fewer,
// each for so many heads in a line; a row is [hd].
struct HeadNormNames {
  std::string q, k;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

// Where the weights of one transformer layer stand; `{}` in layer_prefix is the layer's number.
struct WeightNames {
  std::string layer_prefix;
  std::string attention_norm, ffn_norm, out, down;
  std::vector<std::string> qkv;           // one fused tensor, or q, k, v
  std::vector<std::string> qkv_bias;      // of the same parts; empty = no biases
  std::string out_bias, down_bias;        // empty = none
  std::vector<std::string> gate_up;       // gate, up
  std::vector<std::string> gate_up_bias;  // of the same parts; empty = no biases
  std::string q_norm, k_norm;             // empty = none
  std::optional<HeadNormNames> head_norms;
  std::optional<CrossNames> cross;        // empty = no attention to other rows
  // Norms of what attention and the feed-forward part add; empty = none.
  std::string attention_result_norm, ffn_result_norm;
  float norm_offset = 0;  // norms in files are less by this
  std::string final_norm;
  std::string prompt_table;
  std::string code_table;
  // Stems; ".weight" and ".bias" follow. Empty = the family has none.
  std::string align_in, align_out, head_in, head_out;
  bool head_bias = true;
  std::string text_head;  // of a head over the text's ids; empty = none of its own
  // Where text and image share one vocabulary, the rows of the tensors that are the prompt table,
  // the code table (one range after the other) and the head; empty = all rows.
  std::vector<RowRange> prompt_rows, code_rows, head_rows;
};

// One way of naming a language model's tensors. Files written by different releases differ.
struct TextLayout {
  std::string root;  // "model."
  std::string head;  // "lm_head.weight"
};

// How a text becomes a prompt. The first form whose required token the tokenizer knows is used
// (Janus and Janus-Pro differ in their role names only).
struct PromptForm {
  std::string requires_token;  // empty = always
  std::string before, after;   // around the user's text
  bool strip = false;          // white space at the ends of that text is taken away
  std::string first;  // a token that begins every prompt, once, also where the tokenizer adds none
};

// Which tokens the unconditional branch keeps, by generation_config.json; all others become `pad`.
struct KeptIds {
  std::int32_t pad = 0, begin_image = 0;
  std::int32_t begin = -1;  // -1: the file names none
};

struct PromptTemplate {
  PromptKind kind = PromptKind::kText;
  // Prompts are written by the folder's chat template, where it has one; else by `forms`.
  bool of_folder = false;
  std::optional<KeptIds> kept;    // kText, kPadBetweenEnds: in place of the ends
  std::vector<PromptForm> forms;  // kText
  std::string pad_token;          // kText, kPadBetweenEnds: by string
  std::string negative_text;      // kText, kOtherText: of the unconditional branch
  std::string begin_image_token;  // kText: must be the last token of every prompt
  std::string first_code_token;   // kText: the token of the first code, empty = none
  std::vector<RowRange> kept_out;  // kText: ids that no text may spell
  std::int64_t classes = 0;       // kClass: ids 0..classes-1
};

struct SamplingDefaults {
  double guidance = 5.0;
  double temperature = 1.0;
  std::int64_t top_k = 0;  // 0 = off
  double top_p = 1.0;
};

// A model of videos: its stream holds model.grids grids of codes.
struct VideoSpec {
  std::int64_t rate = 8;  // frames a second, as it was trained
  // Frames that the first grid stands for, and each further one.
  std::int64_t first_grid = 4, further_grid = 4;
  bool goes_on = true;       // videos longer than its own are written in windows
  bool from_frames = false;  // writes none without first frames
  std::int64_t max_given = std::int64_t{1} << 40;  // grids that a video may begin with

  // Frames of that many grids from the first one on.
  std::int64_t frames_of(std::int64_t grids) const {
    return grids == 0 ? 0 : first_grid + (grids - 1) * further_grid;
  }
  // Whole grids that so many frames make.
  std::int64_t grids_of(std::int64_t frames) const {
    return frames < first_grid ? 0 : 1 + (frames - first_grid) / further_grid;
  }
  // Grids that so many frames take, the last one perhaps in part.
  std::int64_t grids_for(std::int64_t frames) const {
    return frames <= first_grid ? 1 : 1 + (frames - first_grid + further_grid - 1) / further_grid;
  }
};

// How rows of a text encoder become a prompt: fc2 gelu_tanh(fc1 row), without biases.
struct CaptionNames {
  std::string fc1, fc2;       // stems
  std::string unconditional;  // [rows, width]; its last ones are the prompt of the other branch
};

// Rows of a text encoder that a model reads. Its layers attend to so many of them, those beyond the
// text as zeros; or, with `caption`, they are its prompt, and so many the longest.
struct ContextSpec {
  std::int64_t rows = 512, width = 1024;
  std::optional<CaptionNames> caption = {};
  // Names of folders with such an encoder, inside the model's or next to it.
  std::vector<std::string> encoders = {};
  bool cleaned = false;  // prompts are cleaned as captions were (tokenizers/text/caption_cleaning.h)

  std::string encoder_list() const;  // "t5, flan-t5-xl"
};

// A model that writes texts and images in turn: how its texts are drawn, and what ends one.
struct InterleaveSpec {
  std::string turn_end, text_end;  // tokens; the first also ends a question
  SamplingDefaults text;
  double text_repetition = 1.0;  // penalty
  // Of what the images before an image say, where it is guided apart from what the text says; empty =
  // the branch without the prompt has none of them.
  std::optional<double> images_guidance = {};
  std::vector<std::int32_t> unwritten = {};  // ids that its texts never have, besides those of images
};

// A folder that only drafts for another model: no text head and no image tokenizer in it.
struct DraftSpec {
  // Its conditional branch alone imitates the other model's distribution under this guidance; 0 =
  // it is guided as the other model is.
  double guidance = 0;
};

struct ModelSpec {
  std::string family;  // "janus", "llamagen"
  std::string size;    // "1B", "L", or "24x2048" (layers x width) when it is no published size
  std::string title;   // "Janus-Pro 1B"
  std::filesystem::path folder;      // where it was read from; empty for models made in memory
  std::filesystem::path weights;     // what Checkpoint::open takes
  // Files of a model that was cut for several devices, in place of `weights`, which is the first.
  struct Parts {
    std::vector<std::filesystem::path> files;
    PartRule rule = nullptr;
  };
  Parts parts = {};
  // How another tool quantised `weights`; null where they are plain.
  std::shared_ptr<const QuantisedScheme> quantised;
  std::filesystem::path vq_weights;  // empty = the VQ tensors are in `weights`
  std::filesystem::path tokenizer;   // tokenizer.json; empty for class-conditional models
  StreamModelConfig model;
  WeightNames names;
  std::vector<TextLayout> layouts;       // of the text it writes; the first is the one in use
  std::optional<DescribeSpec> describe;  // empty = describes no images, or was not asked to
  // Of the keys of its files, as generating reads them; null where it does not generate.
  std::shared_ptr<const FolderAccount> account;
  VqSpec vq;
  std::optional<MovqSpec> movq;  // the tokenizer, where it is a video tokenizer; vq is its frame's
  std::optional<FsqVideoSpec> fsq;  // the same of another kind; at most one of the two
  std::optional<VideoSpec> video;   // empty = generates images
  std::optional<ContextSpec> context;
  // Written in blocks of tokens: `model` then tells of stream and prompt, and sizes.
  std::optional<BlockModelConfig> blocks;
  PromptTemplate prompt;
  SamplingDefaults sampling;
  std::optional<InterleaveSpec> interleave;  // where both halves were asked for
  std::optional<DraftSpec> draft;
  std::string draft_model;  // a folder next to this one that drafts for it; empty = none
  std::string licence;
  // What generates: every tensor of `weights` with its shape, those never uploaded included.
  std::vector<TensorSpec> tensors;
  std::vector<std::string> optional_tensors;  // from `tensors`: may be absent (tied heads)
  std::vector<std::string> ignored;           // prefixes (ending in '.' or '*') or names to ignore
  // The same for vq_weights when that is a file of its own.
  std::vector<TensorSpec> vq_tensors;
  std::vector<std::string> vq_optional;
  std::vector<std::string> vq_ignored;

  std::int64_t image_height() const { return model.grid_rows * vq.downsample(); }  // pixels
  std::int64_t image_width() const { return model.grid_cols * vq.downsample(); }
  std::int64_t parameter_count() const;  // of `tensors`
  bool generates() const { return model.codes > 0; }
  bool three_axes() const { return model.transformer.rope.three_axes(); }
};

// Names, shapes and element types of the checkpoint against spec.tensors. Error kModel listing
// missing, surplus and wrong-shaped tensors, the first 10 of each and how many there are.
void check_tensors(const ModelSpec& spec, const Checkpoint& checkpoint);
void check_vq_tensors(const ModelSpec& spec, const Checkpoint& vq_checkpoint);
// These tensors alone; what else the checkpoint holds is other parts' business.
void check_tensors(const std::vector<TensorSpec>& expected, const Checkpoint& checkpoint,
                   const std::string& file);

}  // namespace tessera
