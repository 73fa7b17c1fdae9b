// Keys of folders' files that mean something else to generating than to describing, or nothing, with
// what is known of them; see folder_keys.cpp.
#include <span>

#include "engine/families/folder_files.h"

namespace tessera {

namespace {

constexpr KeyUse kUsed = KeyUse::kUsed;
constexpr KeyUse kNone = KeyUse::kWithoutEffect;
constexpr KeyUse kIgnored = KeyUse::kNotFollowed;

constexpr std::string_view kDescribing = "of describing";
constexpr std::string_view kLength = "a grid has its own length";
constexpr std::string_view kOfTexts = "the reference applies it by ids of the text";
constexpr std::string_view kCut = "--min-p and --typical cut by flags";
constexpr std::string_view kTraining = "of training";
constexpr std::string_view kMemory = "of memory";
constexpr std::string_view kPlain = "apply_yarn is false";
constexpr std::string_view kShape = "video_latent_shape says it";
constexpr std::string_view kFixed = "the family has one such part";

// config.json
constexpr KnownKey kConfigKeys[] = {
    {"image_token_id", kNone, kDescribing},
    {"image_token_index", kNone, kDescribing},
    {"vision_config.*", kNone, kDescribing},
    {"aligner_config", kNone, kDescribing},
    {"aligner_config.*", kNone, kDescribing},
    {"context_dim", kNone, "no layer reads a text"},
    {"caption_dim", kNone, "the prompt is a class"},
    {"num_classes", kNone, "the prompt is a text"},
    {"class_dropout_prob", kNone, kTraining},
    {"token_dropout_p", kNone, kTraining},
    {"attn_dropout_p", kNone, kTraining},
    {"resid_dropout_p", kNone, kTraining},
    {"ffn_dropout_p", kNone, kTraining},
    {"drop_path_rate", kNone, kTraining},
    {"max_batch_size", kNone, kMemory},
    {"max_seq_len", kNone, kMemory},
    {"tensor_model_parallel_size", kNone, "weights are whole"},
    {"fuse_qkv", kNone, "names of tensors decide"},
    {"tokenizer", kNone, "video_tokenizer says it"},
    {"ckpt_dir", kNone, "bookkeeping"},
    {"ckpt_path", kNone, "bookkeeping"},
    {"original_seq_len", kNone, "of places along one axis"},
    {"original_latent_shape", kNone, kPlain},
    {"yarn_scale", kNone, kPlain},
    {"yarn_beta_fast", kNone, kPlain},
    {"yarn_beta_slow", kNone, kPlain},
    {"insert_cross_attn_every_k_layers", kNone, "no layer reads a text"},
    {"num_video_frames", kNone, kShape},
    {"video_height", kNone, kShape},
    {"video_width", kNone, kShape},
    {"vision_encoder", kNone, kDescribing},
    {"vision_encoder_in_channels", kNone, kDescribing},
    {"mm_projector", kNone, kDescribing},
    {"gen_aligner_config.cls", kNone, kFixed},
    {"gen_head_config.cls", kNone, kFixed},
    {"gen_aligner_config.params.projector_type", kIgnored, kFixed, "\"mlp_gelu\""},
    {"img_token_id", kNone, "the tokenizer has it by name"},
    {"boi_token_id", kNone, "the tokenizer has it by name"},
    {"*.eos_token_id", kNone, kLength},
    {"*.max_length", kNone, kLength},
    {"*.min_length", kNone, kLength},
    {"*.bos_token_id", kNone, "generation_config.json decides"},
    {"*.pad_token_id", kNone, "generation_config.json decides"},
};

// processor_config.json and preprocessor_config.json
constexpr KnownKey kProcessorKeys[] = {
    {"chat_template", kUsed, "writes prompts"},
    {"use_default_system_prompt", kNone, kDescribing},
    {"num_image_tokens", kNone, kDescribing},
    {"image_token", kNone, kDescribing},
    {"sft_format", kIgnored, "prompts have DeepSeek's form", "\"deepseek\""},
    {"*.size", kNone, kDescribing},
    {"*.min_pixels", kNone, kDescribing},
    {"*.max_pixels", kNone, kDescribing},
    {"*.spatial_factor", kNone, kDescribing},
    {"*.min_size", kNone, kDescribing},
    {"*.resample", kNone, kDescribing},
    {"*.do_resize", kNone, kDescribing},
    {"*.do_pad", kNone, kDescribing},
    {"*.do_rescale", kNone, "the authors' code writes levels its own way"},
    {"*.do_normalize", kNone, "the authors' code writes levels its own way"},
    {"*.rescale_factor", kNone, "the authors' code writes levels its own way"},
    {"*.image_mean", kNone, "the authors' code writes levels its own way"},
    {"*.image_std", kNone, "the authors' code writes levels its own way"},
    {"*.image_processor_type", kUsed, "its class has the defaults of levels"},
};

// generation_config.json: of logits processors the reference's image loops make something else, or
// fail.
constexpr KnownKey kGenerationKeys[] = {
    {"eos_token_id", kNone, kLength},
    {"bos_token_id", kNone, "the tokenizer begins prompts"},
    {"pad_token_id", kNone, "prompts are not padded"},
    {"max_length", kNone, kLength},
    {"max_new_tokens", kNone, kLength},
    {"do_sample", kNone, "the authors' code samples"},
    {"min_p", kIgnored, kCut, "0"},
    {"typical_p", kIgnored, kCut, "1"},
    {"epsilon_cutoff", kIgnored, kCut, "0"},
    {"eta_cutoff", kIgnored, kCut, "0"},
    {"top_h", kIgnored, kCut, "null"},
    {"repetition_penalty", kIgnored, kOfTexts, "1"},
    {"encoder_repetition_penalty", kIgnored, kOfTexts, "1"},
    {"no_repeat_ngram_size", kIgnored, kOfTexts, "0"},
    {"encoder_no_repeat_ngram_size", kIgnored, kOfTexts, "0"},
    {"bad_words_ids", kIgnored, kOfTexts, "[]"},
    {"min_length", kIgnored, kOfTexts, "0"},
    {"min_new_tokens", kIgnored, kOfTexts, "0"},
    {"forced_bos_token_id", kIgnored, kOfTexts, "null"},
    {"forced_eos_token_id", kIgnored, kOfTexts, "null"},
    {"suppress_tokens", kIgnored, kOfTexts, "[]"},
    {"begin_suppress_tokens", kIgnored, kOfTexts, "[]"},
    {"sequence_bias", kIgnored, kOfTexts, "null|[]|{}"},
    {"exponential_decay_length_penalty", kIgnored, kOfTexts, "null"},
};

// params.json
constexpr KnownKey kParamsKey = {"*", kNone, "the authors' loader does not read it"};

}  // namespace

const KnownKey* generating_key(FolderFile file, std::string_view path) {
  switch (file) {
    case FolderFile::kConfig:
      return find_known_key(kConfigKeys, path);
    case FolderFile::kProcessor:
    case FolderFile::kPreprocessor:
      return find_known_key(kProcessorKeys, path);
    case FolderFile::kGeneration:
      return find_known_key(kGenerationKeys, path);
    case FolderFile::kParams:
      return &kParamsKey;
    default:
      return nullptr;
  }
}

}  // namespace tessera
