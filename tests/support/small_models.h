// The smallest config.json and tokenizer.json that are accepted, as a place to start damage from.
#pragma once

namespace tessera {

// The bundled layout: a Janus without an understanding half.
inline constexpr const char* kSmallJanusConfig = R"({
  "model_type": "janus",
  "text_config": {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 512, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "max_position_embeddings": 1024, "hidden_act": "silu"
  },
  "vision_config": null,
  "vq_config": {
    "base_channels": 32, "channel_multiplier": [1, 2, 4], "num_res_blocks": 1,
    "latent_channels": 64, "embed_dim": 8, "num_embeddings": 512, "num_patches": 16,
    "projection_dim": 64, "image_token_embed_dim": 64, "num_hidden_layers": 2
  }
})";

// The original layout of the same family, with a small tower.
inline constexpr const char* kSmallOriginalConfig = R"({
  "model_type": "multi_modality",
  "language_config": {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "vocab_size": 512, "max_position_embeddings": 1024
  },
  "vision_config": {"params": {"model_name": "small", "width": 64, "layers": 1, "patch_size": 16,
                               "mlp_width": 96, "image_size": 64}},
  "aligner_config": {"params": {"depth": 2, "input_dim": 64, "n_embed": 64,
                                "projector_type": "mlp_gelu"}},
  "gen_vision_config": {"cls": "VQ-16", "params": {"image_token_size": 256, "n_embed": 8,
                        "base_channels": 32, "encoder_ch_mult": [1, 2], "num_res_blocks": 1}},
  "gen_aligner_config": {"params": {"depth": 2, "input_dim": 8, "n_embed": 64}},
  "gen_head_config": {"params": {"image_token_size": 256, "n_embed": 64}}
})";

inline constexpr const char* kSmallLlamaGenConfig = R"({
  "model_type": "c2i", "dim": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256,
  "num_classes": 10, "multiple_of": 32, "block_size": 16, "class_dropout_prob": 0.1,
  "cls_token_num": 1, "rope_base": 10000, "norm_eps": 1e-5
})";

// Four letters, two merges, one special token in front of each text.
inline constexpr const char* kSmallTokenizer = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [
    {"id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true}
  ],
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": false},
    {"type": "Digits", "individual_digits": true},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
  ]},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
              "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "abc": 5}, "merges": ["a b", ["ab", "c"]]}
})";

}  // namespace tessera
