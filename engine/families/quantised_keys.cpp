// Keys of quantization_config, quantize_config.json and quant_config.json that no reader asks for.
#include "engine/families/folder_files.h"

namespace tessera {

namespace {

constexpr KeyUse kUsed = KeyUse::kUsed;
constexpr KeyUse kNone = KeyUse::kWithoutEffect;

constexpr std::string_view kWhich = "the tensors say which matrices are quantised";
constexpr std::string_view kTensors = "the tensors' own types and shapes decide";
constexpr std::string_view kMaking = "of how it was quantised";
constexpr std::string_view kKernels = "of other programs' kernels";
constexpr std::string_view kInputs = "inputs of products and caches are not quantised here";

constexpr KnownKey kKeys[] = {
    {"quant_method", kUsed, "chooses the layout"},
    {"modules_to_not_convert", kNone, kWhich},
    {"modules_to_convert", kNone, kWhich},
    {"ignored_layers", kNone, kWhich},
    {"ignore", kNone, kWhich},
    {"llm_int8_skip_modules", kNone, kWhich},
    {"block_name_to_quantize", kNone, kWhich},
    {"modules_in_block_to_quantize", kNone, kWhich},
    {"inside_layer_modules", kNone, kWhich},
    {"module_name_preceding_first_block", kNone, kWhich},
    {"lm_head", kNone, kWhich},
    {"dynamic", kNone, kTensors},
    {"dynamic.*", kNone, kTensors},
    {"desc_act", kNone, kTensors},
    {"sym", kNone, kTensors},
    {"fmt", kNone, kTensors},
    {"scale_fmt", kNone, kTensors},
    {"expert_dtype", kNone, kTensors},
    {"weight_block_size", kUsed, "sizes of blocks"},
    {"config_groups.*", kNone, kInputs},
    {"kv_cache_scheme", kNone, kInputs},
    {"kv_cache_scheme.*", kNone, kInputs},
    {"activation_scheme", kNone, kInputs},
    {"activation_scale_ub", kNone, kInputs},
    {"quantization_status", kNone, kTensors},
    {"global_compression_ratio", kNone, kMaking},
    {"sparsity_config", kNone, "there is none"},
    {"transform_config", kNone, "there is none"},
    {"version", kNone, kMaking},
    {"run_compressed", kNone, kKernels},
    {"dequantize", kNone, kKernels},
    {"use_optimized_inference", kNone, kKernels},
    {"act_group_aware", kNone, kMaking},
    {"static_groups", kNone, kMaking},
    {"true_sequential", kNone, kMaking},
    {"damp_percent", kNone, kMaking},
    {"damp_auto_increment", kNone, kMaking},
    {"mse", kNone, kMaking},
    {"dataset", kNone, kMaking},
    {"tokenizer", kNone, kMaking},
    {"batch_size", kNone, kMaking},
    {"pad_token_id", kNone, kMaking},
    {"cache_block_outputs", kNone, kMaking},
    {"model_name_or_path", kNone, kMaking},
    {"model_file_base_name", kNone, kMaking},
    {"quantizer", kNone, kMaking},
    {"meta", kNone, kMaking},
    {"meta.*", kNone, kMaking},
    {"model_seqlen", kNone, kKernels},
    {"max_input_length", kNone, kKernels},
    {"backend", kNone, kKernels},
    {"use_exllama", kNone, kKernels},
    {"disable_exllama", kNone, kKernels},
    {"use_cuda_fp16", kNone, kKernels},
    {"exllama_config", kNone, kKernels},
    {"exllama_config.*", kNone, kKernels},
    {"do_fuse", kNone, kKernels},
    {"fuse_max_seq_len", kNone, kKernels},
    {"modules_to_fuse", kNone, kKernels},
    {"modules_to_fuse.*", kNone, kKernels},
    {"format", kNone, "checkpoint_format decides"},
    {"load_in_4bit", kNone, kTensors},
    {"load_in_8bit", kNone, kTensors},
    {"_load_in_4bit", kNone, kTensors},
    {"_load_in_8bit", kNone, kTensors},
    {"bnb_4bit_compute_dtype", kNone, kKernels},
    {"bnb_4bit_quant_storage", kNone, kTensors},
    {"bnb_4bit_quant_type", kNone, kTensors},
    {"bnb_4bit_use_double_quant", kNone, kTensors},
    {"llm_int8_enable_fp32_cpu_offload", kNone, kKernels},
    {"llm_int8_has_fp16_weight", kNone, kTensors},
    {"llm_int8_threshold", kNone, kInputs},
};

}  // namespace

const KnownKey* quantised_key(std::string_view path) { return find_known_key(kKeys, path); }

}  // namespace tessera
