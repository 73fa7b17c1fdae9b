// Keys of folders' files that no reader here asks for, with what is known of them. Sources: the
// configuration, processor and tokenizer classes of Hugging Face transformers 4.57 and 5.24, and
// the files that were published with them.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/families/folder_files.h"
#include "engine/sampling/processors.h"

namespace tessera {

namespace {

constexpr KeyUse kUsed = KeyUse::kUsed;
constexpr KeyUse kNone = KeyUse::kWithoutEffect;
constexpr KeyUse kIgnored = KeyUse::kNotFollowed;
constexpr KeyUse kRefused = KeyUse::kRefused;

constexpr std::string_view kBookkeeping = "bookkeeping";
constexpr std::string_view kTraining = "of training";
constexpr std::string_view kReturn = "what the reference's calls return";
constexpr std::string_view kFlags = "sampling is set by flags";
constexpr std::string_view kDrawn = "of texts that --temp draws";
constexpr std::string_view kGreedy = "greedy texts are the same; with --temp it is refused";
constexpr std::string_view kBeams = "texts have one beam";
// What a person whose folder is refused can do.
constexpr std::string_view kMove = "generation_config.json is where it is read: move it there";
constexpr std::string_view kOneBeam = "texts have one beam: take the key away for texts of one";
constexpr std::string_view kTake = "take the key away for texts without it";
constexpr std::string_view kStops = "take the key away: eos_token_id and --max-tokens end texts";
constexpr std::string_view kGuides = "take the key away: --cfg-scale guides texts";
constexpr std::string_view kStored = "the weights' own element types decide";
constexpr std::string_view kTokenizer = "tokenizer.json says it";
constexpr std::string_view kPadding = "prompts are not padded";
constexpr std::string_view kGenerating = "of image generation";
constexpr std::string_view kUnread = "the reference does not read it";
constexpr std::string_view kNotOfClass = "the folder's processor class has no such step";
constexpr std::string_view kFrames = "frames are chosen by --fps and --video-frames";
constexpr std::string_view kDecoder = "there is no encoder-decoder here";

// config.json
constexpr KnownKey kConfigKeys[] = {
    {"*.model_type", kUsed, "chooses the family"},
    {"*.eos_token_id", kUsed, "ends texts"},
    {"*.architectures", kNone, "model_type decides"},
    {"auto_map", kNone, "code of a folder is never run"},
    {"*._name_or_path", kNone, kBookkeeping},
    {"*._attn_implementation", kNone, kBookkeeping},
    {"*._attn_implementation_autoset", kNone, kBookkeeping},
    {"*.attn_implementation", kNone, kBookkeeping},
    {"*._flash_attn_2_enabled", kNone, kBookkeeping},
    {"*._commit_hash", kNone, kBookkeeping},
    {"*.transformers_version", kNone, kBookkeeping},
    {"*.transformers.js_config", kNone, kBookkeeping},
    {"*.id2label", kNone, kBookkeeping},
    {"*.label2id", kNone, kBookkeeping},
    {"*.problem_type", kNone, kBookkeeping},
    {"*.finetuning_task", kNone, kBookkeeping},
    {"*.task_specific_params", kNone, kBookkeeping},
    {"*.tokenizer_class", kNone, kTokenizer},
    {"*.prefix", kNone, kUnread},
    {"*.dtype", kNone, kStored},
    {"*.torch_dtype", kNone, kStored},
    {"*.use_bfloat16", kNone, kStored},
    {"*.quantization_config", kNone, "there is none"},
    {"*.torchscript", kNone, kReturn},
    {"*.tf_legacy_loss", kNone, kTraining},
    {"*.attention_dropout", kNone, kTraining},
    {"*.dropout", kNone, kTraining},
    {"*.hidden_dropout_rate", kNone, kTraining},
    {"*.projection_dropout", kNone, kTraining},
    {"*.initializer_range", kNone, kTraining},
    {"*.initializer_factor", kNone, kTraining},
    {"*.ignore_index", kNone, kTraining},
    {"*.neftune_noise_alpha", kNone, kTraining},
    {"*.use_reentrant_checkpointing", kNone, kTraining},
    {"*.chunk_size_feed_forward", kNone, "of memory"},
    {"*.use_cache", kNone, "of memory"},
    {"*.output_attentions", kNone, kReturn},
    {"*.output_hidden_states", kNone, kReturn},
    {"*.output_scores", kNone, kReturn},
    {"*.return_dict", kNone, kReturn},
    {"*.return_dict_in_generate", kNone, kReturn},
    {"*.remove_invalid_values", kNone, kReturn},
    {"*.num_return_sequences", kNone, kReturn},
    {"*.is_encoder_decoder", kIgnored, kDecoder, "false"},
    {"*.is_decoder", kNone, kDecoder},
    {"*.tie_encoder_decoder", kNone, kDecoder},
    {"*.add_cross_attention", kIgnored, kDecoder, "false"},
    {"*.cross_attention_hidden_size", kNone, kDecoder},
    {"*.decoder_start_token_id", kNone, kDecoder},
    {"*.encoder_no_repeat_ngram_size", kNone, kDecoder},
    {"*.pruned_heads", kIgnored, "heads are not removed", "{}|null"},
    {"*.bos_token_id", kNone, "the chat form begins prompts"},
    {"*.pad_token_id", kNone, "prompts are not padded"},
    {"*._pad_token_id", kNone, "prompts are not padded"},
    {"*.sep_token_id", kNone, kUnread},
    {"*.do_sample", kNone, kFlags},
    {"*.temperature", kNone, kFlags},
    {"*.top_k", kNone, kFlags},
    {"*.top_p", kNone, kFlags},
    {"*.typical_p", kNone, kFlags},
    {"*.max_length", kNone, "--max-tokens"},
    {"*.min_length", kRefused, kMove, "0"},
    {"*.num_beams", kRefused, kOneBeam, "1"},
    {"*.num_beam_groups", kRefused, kOneBeam, "1"},
    {"*.diversity_penalty", kNone, kBeams},
    {"*.early_stopping", kNone, kBeams},
    {"*.length_penalty", kNone, kBeams},
    {"*.exponential_decay_length_penalty", kRefused, kMove, "null"},
    {"*.repetition_penalty", kRefused, kMove, "1"},
    {"*.no_repeat_ngram_size", kRefused, kMove, "0"},
    {"*.bad_words_ids", kRefused, kMove, "null"},
    {"*.suppress_tokens", kRefused, kMove, "null|[]"},
    {"*.begin_suppress_tokens", kRefused, kMove, "null|[]"},
    {"*.forced_bos_token_id", kRefused, kMove, "null"},
    {"*.forced_eos_token_id", kRefused, kMove, "null"},
    // Language models.
    {"*.pretraining_tp", kNone, "sums in another order"},
    {"*.layer_types", kNone, "sliding_window decides"},
    {"*.max_window_layers", kNone, "sliding_window decides"},
    {"*.use_sliding_window", kNone, "there is no sliding_window"},
    {"*.sliding_window", kNone, "nothing asks for it"},
    {"*._sliding_window_pattern", kNone, kUnread},
    {"*.sliding_window_pattern", kNone, "layer_types decides"},
    {"*.tie_word_embeddings", kNone, "the model's own decides"},
    {"*.attention_bias", kNone, "its class has none of its own"},
    {"*.mlp_bias", kNone, "its class has none of its own"},
    {"*.rope_parameters", kIgnored, "rope_scaling decides", "null|{}"},
    {"*.rope_scaling.type", kNone, "rope_type decides"},
    {"*.rope_parameters.type", kNone, "rope_type decides"},
    {"*.rope_interleaved", kNone, kUnread},
    {"*.long_factor", kNone, "texts end before it"},
    {"*.rope_parameters", kNone, "rope_scaling comes before it"},
    {"*.is_llama_config", kNone, kUnread},
    {"*.perceiver_config", kNone, kUnread},
    {"*.pixel_shuffle_factor", kNone, kUnread},
    {"*.qk_layer_norms", kNone, kUnread},
    {"*.use_resampler", kNone, kUnread},
    {"*.use_base_siglip", kNone, kUnread},
    // LLaVA's authors'.
    {"mm_patch_merge_type", kNone, "of tiles"},
    {"mm_use_im_patch_token", kNone, "prompts have no such token"},
    {"mm_projector_lr", kNone, kTraining},
    {"mm_vision_tower_lr", kNone, kTraining},
    {"tune_mm_mlp_adapter", kNone, kTraining},
    {"tune_mm_vision_resampler", kNone, kTraining},
    {"freeze_mm_mlp_adapter", kNone, kTraining},
    {"freeze_mm_vision_resampler", kNone, kTraining},
    {"unfreeze_mm_vision_tower", kNone, kTraining},
    {"pretrain_mm_mlp_adapter", kNone, kTraining},
    {"mm_resampler_type", kIgnored, "of a resampler", "null"},
    {"image_crop_resolution", kNone, kUnread},
    {"image_split_resolution", kNone, kUnread},
    {"tokenizer_padding_side", kNone, "prompts are not padded"},
    {"tokenizer_model_max_length", kNone, "prompts are not cut"},
    {"vocab_size", kNone, "the language model's own decides"},
    {"hidden_size", kNone, "the language model's own decides"},
    // Image encoders.
    {"vision_config.num_channels", kIgnored, "images have three channels", "3"},
    {"vision_config.in_channels", kIgnored, "images have three channels", "3"},
    {"vision_config.in_chans", kIgnored, "images have three channels", "3"},
    {"vision_config.projection_dim", kNone, "of a head that nothing asks"},
    {"vision_config.vision_use_head", kNone, "of a head that nothing asks"},
    {"vision_config.vocab_size", kNone, "of a text encoder"},
    {"vision_config.num_image_tokens", kNone, "counted"},
    {"vision_config.intermediate_size", kNone, "mlp_ratio decides"},
    {"vision_config.max_image_size", kNone, "the processor's decides"},
    {"vision_config.size", kNone, "the processor's decides"},
    {"vision_config.spatial_patch_size", kNone, "patch_size decides"},
    {"vision_config.layer_norm_eps", kNone, "the class has its own"},
    {"vision_config.cls", kNone, "model_name decides"},
    {"vision_config.params.select_feature", kNone, "there is no class token"},
    {"vision_config.params.width", kNone, "model_name decides"},
    {"aligner_config.cls", kNone, "projector_type decides"},
    {"aligner_config.params.input_dim", kNone, "the encoder's width"},
    {"aligner_config.params.projector_hidden_act", kNone, "projector_type decides"},
    {"vq_config", kNone, kGenerating},
    {"vq_config.hidden_size", kNone, kUnread},
    {"vq_config.dropout", kNone, kTraining},
    {"model_parallel_size", kNone, "rows of norms are counted"},
    {"mask_image_logits", kNone, "texts never hold codes"},
    {"z_loss_weight", kNone, kTraining},
    {"vocabulary_map", kUsed, "ids of the image's tokens"},
    {"gen_vision_config", kNone, kGenerating},
    {"gen_aligner_config", kNone, kGenerating},
    {"gen_head_config", kNone, kGenerating},
    // The authors' own LLaVA.
    {"mm_resampler_type", kIgnored, "there is no resampler", "null"},
    {"mm_use_im_patch_token", kNone, kTokenizer},
    {"mm_patch_merge_type", kNone, "image_aspect_ratio cuts no tiles"},
    {"mm_projector_lr", kNone, kTraining},
    {"mm_vision_tower_lr", kNone, kTraining},
    {"freeze_mm_mlp_adapter", kNone, kTraining},
    {"freeze_mm_vision_resampler", kNone, kTraining},
    {"tune_mm_mlp_adapter", kNone, kTraining},
    {"tune_mm_vision_resampler", kNone, kTraining},
    {"unfreeze_mm_vision_tower", kNone, kTraining},
    {"use_mm_proj", kNone, kTraining},
    {"vision_tower", kNone, "mm_vision_tower decides"},
    {"image_crop_resolution", kNone, kUnread},
    {"image_split_resolution", kNone, kUnread},
    {"tokenizer_model_max_length", kNone, "prompts are not cut"},
    {"tokenizer_padding_side", kNone, "prompts are not padded"},
    // Whole models.
    {"image_seq_length", kNone, "counted"},
    {"vision_start_token_id", kNone, "the chat form writes it"},
    {"vision_end_token_id", kNone, "the chat form writes it"},
    {"vision_token_id", kNone, kUnread},
    {"video_token_id", kNone, "videos are shown as images"},
    {"video_token_index", kNone, "videos are shown as images"},
    {"use_image_newline_parameter", kNone, kUnread},
    {"image_grid_pinpoints", kNone, "this family cuts no tiles"},
    {"vision_feature_select_strategy", kNone, kUnread},
    {"vision_feature_layer", kNone, kUnread},
};

// processor_config.json, preprocessor_config.json, video_preprocessor_config.json: the same leaves
// at the top of a file and inside image_processor or video_processor.
constexpr KnownKey kProcessorKeys[] = {
    {"chat_template", kUsed, "of the chat form"},
    {"processor_class", kNone, "model_type decides"},
    {"*.processor_class", kNone, "model_type decides"},
    {"*.auto_map", kNone, "code of a folder is never run"},
    {"use_default_system_prompt", kUsed, "Janus: a system sentence with the template"},
    {"sft_format", kIgnored, "the chat form has it", "\"deepseek\""},
    {"system_prompt", kNone, "the authors' class has its own"},
    {"add_special_token", kIgnored, "images take the place of their tokens", "false"},
    {"image_start_tag", kIgnored, "the chat form has it", "\"<begin_of_image>\""},
    {"image_end_tag", kIgnored, "the chat form has it", "\"<end_of_image>\""},
    {"pad_tag", kNone, "prompts are not padded"},
    {"ignore_id", kNone, kTraining},
    {"mask_prompt", kNone, kTraining},
    {"image_tag", kIgnored, "the chat form has it", "\"<image_placeholder>\""},
    {"video_token", kNone, "the chat form has it"},
    {"image_token.*", kNone, kTokenizer},
    {"num_image_tokens", kNone, "counted"},
    {"*._valid_processor_keys", kNone, kBookkeeping},
    {"*._processor_class", kNone, kBookkeeping},
    {"*.image_processor_type", kUsed, ""},
    {"*.feature_extractor_type", kNone, "image_processor_type decides"},
    {"*.video_processor_type", kNone, "model_type decides"},
    {"*.do_convert_rgb", kNone, "images are read as RGB"},
    {"*.do_pad", kNone, "fills up batches"},
    {"*.pad_size", kIgnored, "views have the size of the encoder", "null"},
    {"*.return_row_col_info", kNone, kReturn},
    {"*.return_metadata", kNone, kReturn},
    {"*.return_tensors", kNone, kReturn},
    {"*.data_format", kNone, kReturn},
    {"*.input_data_format", kNone, "images are files"},
    {"*.device", kNone, "--device"},
    {"*.disable_grouping", kNone, "of speed"},
    {"*.default_to_square", kNone, "size says it"},
    {"*.image_seq_length", kNone, "counted"},
    {"*.ratio", kNone, kGenerating},
    {"*.image_area", kNone, kGenerating},
    {"*.aspect_ratio_setting", kNone, kUnread},
    {"*.size_divisor", kNone, kNotOfClass},
    {"*.size.min_pixels", kNone, "min_pixels decides"},
    {"*.size.max_pixels", kNone, "max_pixels decides"},
    {"*.size", kNone, kNotOfClass},
    {"*.crop_size", kNone, kNotOfClass},
    {"*.do_center_crop", kNone, kNotOfClass},
    {"*.do_resize", kNone, kNotOfClass},
    {"*.min_size", kNone, kNotOfClass},
    {"*.image_size", kNone, kNotOfClass},
    {"*.patch_size", kNone, kNotOfClass},
    {"*.merge_size", kNone, kNotOfClass},
    {"*.temporal_patch_size", kNone, kNotOfClass},
    {"*.min_pixels", kNone, kNotOfClass},
    {"*.max_pixels", kNone, kNotOfClass},
    {"*.max_image_size", kNone, kNotOfClass},
    {"*.do_image_splitting", kNone, kNotOfClass},
    {"*.image_grid_pinpoints", kNone, kNotOfClass},
    {"*.background_color", kNone, "the mean decides"},
    {"*.fps", kNone, kFrames},
    {"*.num_frames", kNone, kFrames},
    {"*.min_frames", kNone, kFrames},
    {"*.max_frames", kNone, kFrames},
    {"*.do_sample_frames", kIgnored, kFrames, "false|null"},  // before which fps says nothing
    {"*.video_sampling", kNone, kFrames},
    {"*.video_size", kNone, "size decides"},
    {"*.video_metadata", kNone, kFrames},
};
// Of families whose frames are prepared as images are.
constexpr KnownKey kVideoKeys[] = {
    {"*.do_rescale", kNone, kNotOfClass},
    {"*.do_normalize", kNone, kNotOfClass},
    {"*.rescale_factor", kNone, kNotOfClass},
    {"*.resample", kNone, kNotOfClass},
    {"*.image_mean", kNone, kNotOfClass},
    {"*.image_std", kNone, kNotOfClass},
    {"*.cap_pixels_per_frame", kNone, kNotOfClass},
    {"*.max_video_tokens", kNone, kNotOfClass},
};

// generation_config.json; what is used is read where texts are written.
constexpr KnownKey kGenerationKeys[] = {
    {"eos_token_id", kUsed, "ends texts"},
    {"*.transformers_version", kNone, kBookkeeping},
    {"_from_model_config", kNone, kBookkeeping},
    {"_commit_hash", kNone, kBookkeeping},
    {"bos_token_id", kNone, "the chat form begins prompts"},
    {"pad_token_id", kNone, "prompts are not padded"},
    {"decoder_start_token_id", kNone, kDecoder},
    {"do_sample", kNone, "--temp above 0 draws"},
    {"temperature", kNone, "--temp"},
    {"top_k", kUsed, kDrawn},
    {"top_p", kUsed, kDrawn},
    {"top_h", kNone, kGreedy},
    {"min_p", kUsed, kDrawn},
    {"typical_p", kUsed, kDrawn},
    {"epsilon_cutoff", kNone, kGreedy},
    {"eta_cutoff", kNone, kGreedy},
    {"generation_kwargs", kNone, kGenerating},
    {"draft_model", kNone, kGenerating},
    {"negative_prompt", kNone, kGenerating},
    {"max_length", kNone, "--max-tokens"},
    {"max_new_tokens", kNone, "--max-tokens"},
    {"max_time", kRefused, kStops, "null"},
    {"use_cache", kNone, "of memory"},
    {"cache_implementation", kRefused, "take the key away: --dtype says how the cache is stored",
     "null|\"dynamic\"|\"dynamic_full\"|\"static\"|\"offloaded\"|\"offloaded_static\"|"
     "\"sliding_window\"|\"hybrid\"|\"hybrid_chunked\"|\"offloaded_hybrid\"|"
     "\"offloaded_hybrid_chunked\"|\"paged\""},
    {"cache_config", kNone, "of memory"},
    {"max_cache_len", kNone, "of memory"},
    {"return_legacy_cache", kNone, kReturn},
    {"prefill_chunk_size", kNone, "of memory"},
    {"low_memory", kNone, "of memory"},
    {"compile_config", kNone, "of speed"},
    {"disable_compile", kNone, "of speed"},
    {"continuous_batching_config", kNone, "of speed"},
    {"output_attentions", kNone, kReturn},
    {"output_hidden_states", kNone, kReturn},
    {"output_scores", kNone, kReturn},
    {"output_logits", kNone, kReturn},
    {"return_dict_in_generate", kNone, kReturn},
    {"num_return_sequences", kRefused, "take the key away: a question has one text", "null|1"},
    {"remove_invalid_values", kNone, "logits that are no numbers are an error"},
    {"renormalize_logits", kNone, "the largest logit stays it"},
    {"num_assistant_tokens", kNone, "of speed"},
    {"num_assistant_tokens_schedule", kNone, "of speed"},
    {"assistant_confidence_threshold", kNone, "of speed"},
    {"assistant_early_exit", kNone, "of speed"},
    {"assistant_lookbehind", kNone, "of speed"},
    {"assistant_ensemble_weight", kRefused, kTake, "null"},
    {"target_lookbehind", kNone, "of speed"},
    {"is_assistant", kNone, "of speed"},
    {"speculation_type", kNone, "of speed"},
    {"use_mtp", kNone, "of speed"},
    {"prompt_lookup_num_tokens", kNone, "of speed"},
    {"max_matching_ngram_size", kNone, "of speed"},
    {"num_beams", kRefused, kOneBeam, "null|1"},
    {"num_beam_groups", kRefused, kOneBeam, "null|1"},
    {"diversity_penalty", kNone, kBeams},
    {"early_stopping", kNone, kBeams},
    {"length_penalty", kNone, kBeams},
    {"constraints", kRefused, kOneBeam, "null"},
    {"force_words_ids", kRefused, kOneBeam, "null"},
    {"penalty_alpha", kRefused, kTake, "null|0"},
    {"dola_layers", kRefused, kTake, "null"},
    {"watermarking_config", kRefused, kTake, "null"},
    {"token_healing", kRefused, kTake, "null|false"},
    {"guidance_scale", kRefused, kGuides, "null|1"},
    {"stop_strings", kRefused, kStops, "null|[]"},
};

// tokenizer_config.json
constexpr KnownKey kTokenizerKeys[] = {
    {"chat_template", kUsed, "of the chat form"},
    {"add_eos_token", kIgnored, "prompts go on", "false"},
    {"added_tokens_decoder", kUsed, "of the tokens"},
    {"additional_special_tokens", kUsed, "of the tokens"},
    {"extra_special_tokens", kUsed, "of the tokens"},
    {"extra_ids", kUsed, "of the tokens"},
    {"bos_token", kUsed, "of the tokens"},
    {"eos_token", kUsed, "of the tokens"},
    {"unk_token", kUsed, "of the tokens"},
    {"sep_token", kUsed, "of the tokens"},
    {"pad_token", kUsed, "of the tokens"},
    {"cls_token", kUsed, "of the tokens"},
    {"mask_token", kUsed, "of the tokens"},
    {"split_special_tokens", kUsed, "of the tokens"},
    {"clean_up_tokenization_spaces", kNone, "byte-pair texts keep their spaces"},
    {"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", kIgnored,
     "texts keep their spaces", "false"},
    {"fix_mistral_regex", kIgnored, "tokenizer.json cuts texts", "false"},
    {"sp_model_kwargs", kIgnored, "pieces are those of the model", "{}"},
    {"sp_model_kwargs.*", kIgnored, "pieces are those of the model"},
    {"added_tokens_decoder.*", kUsed, "of the tokens"},
    {"additional_special_tokens.*", kUsed, "of the tokens"},
    {"extra_special_tokens.*", kUsed, "of the tokens"},
    {"bos_token.*", kUsed, "of the tokens"},
    {"eos_token.*", kUsed, "of the tokens"},
    {"unk_token.*", kUsed, "of the tokens"},
    {"sep_token.*", kUsed, "of the tokens"},
    {"pad_token.*", kUsed, "of the tokens"},
    {"cls_token.*", kUsed, "of the tokens"},
    {"mask_token.*", kUsed, "of the tokens"},
    {"chat_template.*", kUsed, "of the chat form"},
    {"tokenizer_class", kUsed, "chooses the class that cuts texts"},
    {"add_bos_token", kNone, kTokenizer},
    {"add_prefix_space", kNone, kTokenizer},
    {"legacy", kNone, kTokenizer},
    {"backend", kNone, kTokenizer},
    {"errors", kNone, kTokenizer},
    {"do_lower_case", kNone, kTokenizer},
    {"strip_accents", kNone, kTokenizer},
    {"tokenize_chinese_chars", kNone, kTokenizer},
    {"add_dummy_prefix_space", kNone, kTokenizer},
    {"spaces_between_special_tokens", kNone, "texts leave special tokens out"},
    {"model_max_length", kNone, "prompts are not cut"},
    {"max_len", kNone, "prompts are not cut"},
    {"max_length", kNone, "prompts are not cut"},
    {"stride", kNone, "prompts are not cut"},
    {"truncation", kNone, "prompts are not cut"},
    {"truncation_side", kNone, "prompts are not cut"},
    {"truncation_strategy", kNone, "prompts are not cut"},
    {"padding", kNone, kPadding},
    {"padding_side", kNone, kPadding},
    {"pad_to_multiple_of", kNone, kPadding},
    {"pad_token_type_id", kNone, kPadding},
    {"model_input_names", kNone, kReturn},
    {"return_token_type_ids", kNone, kReturn},
    {"response_schema.*", kNone, kReturn},
    {"response_schema", kNone, kReturn},
    {"use_default_system_prompt", kNone, "the chat form has it"},
    {"name_or_path", kNone, kBookkeeping},
    {"_commit_hash", kNone, kBookkeeping},
    {"init_inputs", kNone, kBookkeeping},
    {"is_local", kNone, kBookkeeping},
    {"local_files_only", kNone, kBookkeeping},
    {"device_map", kNone, kBookkeeping},
    {"verbose", kNone, kBookkeeping},
    {"from_slow", kNone, kBookkeeping},
    {"use_fast", kNone, kBookkeeping},
    {"tokenizer_file", kNone, kBookkeeping},
    {"vocab_file", kNone, kBookkeeping},
    {"vocab", kNone, kTokenizer},
    {"merges", kNone, kTokenizer},
    {"_spm_precompiled_charsmap", kNone, kTokenizer},
    {"merges_file", kNone, kBookkeeping},
    {"special_tokens_map_file", kNone, kBookkeeping},
    {"added_tokens_file", kNone, kBookkeeping},
    {"chat_template_file", kNone, kBookkeeping},
    {"transformers_version", kNone, kBookkeeping},
    {"processor_class", kNone, "model_type decides"},
    {"trust_remote_code", kNone, "code of a folder is never run"},
    {"auto_map", kNone, "code of a folder is never run"},
    {"auto_map.*", kNone, "code of a folder is never run"},
    {"suffix_first", kNone, "texts are continued, not filled in"},
};
constexpr KnownKey kTokenLists[] = {
    {"*", kUsed, "of the tokens, where tokenizer_config.json has no added_tokens_decoder"}};
constexpr KnownKey kChatKeys[] = {{"chat_template", kUsed, "of the chat form"}};

bool matches(std::string_view pattern, std::string_view path) {
  if (pattern == "*") return true;
  if (pattern.ends_with(".*")) return path.starts_with(pattern.substr(0, pattern.size() - 1));
  if (!pattern.starts_with("*.")) return pattern == path;
  const std::string_view leaf = pattern.substr(2);
  if (!path.ends_with(leaf)) return false;
  return path.size() == leaf.size() || path[path.size() - leaf.size() - 1] == '.';
}

const KnownKey* generation_row(std::string_view path) {
  static constexpr KnownKey kProcessor = {"", kUsed, "of texts"};
  const auto rows = logit_processors();
  const bool processed = std::any_of(rows.begin(), rows.end(), [&](const LogitProcessor& row) {
    return !row.config_key.empty() && row.config_key == path;
  });
  return processed ? &kProcessor : find_known_key(kGenerationKeys, path);
}

// Classes of models name special tokens of their own: "image_token", "fake_image_token.content".
const KnownKey* tokenizer_key(std::string_view path) {
  static constexpr KnownKey kNamedToken = {"", kNone, kTokenizer};
  if (const KnownKey* row = find_known_key(kTokenizerKeys, path)) return row;
  return path.substr(0, path.find('.')).ends_with("_token") ? &kNamedToken : nullptr;
}

const KnownKey* describing_key(FolderFile file, std::string_view path) {
  constexpr std::string_view kQuantised = "quantization_config.";
  const std::size_t quantised = path.find(kQuantised);
  switch (file) {
    case FolderFile::kConfig:
      if (quantised != path.npos) return quantised_key(path.substr(quantised + kQuantised.size()));
      return find_known_key(kConfigKeys, path);
    case FolderFile::kQuantize:
    case FolderFile::kQuant:
      return quantised_key(path);
    case FolderFile::kVideoPreprocessor:
      if (const KnownKey* row = find_known_key(kVideoKeys, path)) return row;
      return find_known_key(kProcessorKeys, path);
    case FolderFile::kProcessor:
      if (path.starts_with("video_processor.")) {
        if (const KnownKey* row = find_known_key(kVideoKeys, path)) return row;
      }
      return find_known_key(kProcessorKeys, path);
    case FolderFile::kPreprocessor:
      return find_known_key(kProcessorKeys, path);
    case FolderFile::kGeneration:
      return generation_row(path);
    case FolderFile::kTokenizerConfig:
      return tokenizer_key(path);
    case FolderFile::kSpecialTokens:
    case FolderFile::kAddedTokens:
      return find_known_key(kTokenLists, path);
    case FolderFile::kParams:
      return nullptr;  // of folders that generate
    case FolderFile::kChatTemplate:
      break;
  }
  return find_known_key(kChatKeys, path);
}

}  // namespace

const KnownKey* find_known_key(std::span<const KnownKey> rows, std::string_view path) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const KnownKey& row) { return matches(row.path, path); });
  return found == rows.end() ? nullptr : &*found;
}

const KnownKey* known_key(FolderHalf half, FolderFile file, std::string_view path) {
  if (half == FolderHalf::kGenerating) {
    if (const KnownKey* row = generating_key(file, path)) return row;
  }
  return describing_key(file, path);
}

bool is_neutral(const KnownKey& row, const Json& value) {
  if (value.is_null()) return true;
  std::string_view rest = row.neutral;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('|'), rest.size());
    if (Json::parse(rest.substr(0, end)) == value) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

}  // namespace tessera
