"""Pairs of GGUF files, a language model and its image encoder, of the tiny models in tests/golden/lmm.

The weights are those that transformers wrote there, under the names, with the keys and in the layouts of published
pairs: LLaVA's as the older converters of image encoders wrote them (layers up to the feature's, the two matrices of
a layer's second half the other way round, image_newline, grids as widths and heights), Qwen's with queries, keys and
values apart and patches in a tensor a frame, all others as today's converters do. Numbers stay: matrices are bf16, as
they were, all else f32. What transformers recorded of the folders holds for the pairs too. Each pair has a byte-level
tokenizer, of which tokenizer.json is the same.

  python assets/recipes/fixtures_gguf_vision.py      # needs gguf, numpy, torch, safetensors
"""
import json
from pathlib import Path

import gguf
import torch
from safetensors.torch import load_file

from gguf_layout import LAYERS, llama3_divisors, paired

ROOT = Path(__file__).resolve().parents[2] / "tests" / "golden"
OUT = ROOT / "gguf_vision"
LEFT_OUT = "`~^\\{}@#$\""
PLAIN = ["\u0120", "\u010a"] + [chr(c) for c in range(33, 127) if chr(c) not in LEFT_OUT] + ["th"]
SPECIAL = {"llava": ["<image>"], "idefics3": ["<image>", "<fake_token_around_image>", "<global-img>",
                                             "<end_of_utterance>", "<|begin_of_text|>"],
           "smolvlm": ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<|im_start|>"],
           "qwen": ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|im_start|>",
                    "<|im_end|>"]}
QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# Of LLaVA-NeXT with Mistral, whose file says no more than that it is a Llama.
MISTRAL_TEMPLATE = ("{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + "
                    "' [/INST]' }}{% else %}{{ message['content'] }}{% endif %}{% endfor %}")
CLIP = {"embeddings.class_embedding": "class_embd", "embeddings.patch_embedding.weight": "patch_embd.weight",
        "embeddings.patch_embedding.bias": "patch_embd.bias", "embeddings.position_embedding.weight":
        "position_embd.weight", "pre_layrnorm": "pre_ln", "post_layernorm": "post_ln", "encoder.layers": "blk",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_out", "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up",
        "mlp.fc2": "ffn_down"}
OLDER = dict(CLIP, **{"mlp.fc1": "ffn_down", "mlp.fc2": "ffn_up"})
QWEN = {"blocks": "blk", "norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "attn.q": "attn_q",
        "attn.k": "attn_k", "attn.v": "attn_v", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def tokens_of(kind, vocab):
    """Token texts by id and their kinds in such files: 1 plain, 3 control."""
    out = ["<pad>", "<s>", "</s>"] + PLAIN
    out += [f"[PAD{i}]" for i in range(len(out), 90)] + SPECIAL[kind]
    out += [f"[PAD{i}]" for i in range(len(out), vocab)]
    kinds = [3 if t in out[:3] or t in SPECIAL[kind] else 1 for t in out]
    assert len(out) == vocab and out[90] == SPECIAL[kind][0]
    return out, kinds


def tokenizer_json(tokens, kinds):
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, (t, k) in enumerate(zip(tokens, kinds)) if k == 3]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [["t", "h"]]}}


def put(writer, name, tensor):
    values = tensor.to(torch.float32).contiguous().numpy()
    if values.ndim != 2 or "position" in name:
        return writer.add_tensor(name, values)
    kind = gguf.GGMLQuantizationType.BF16
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model(path, kind, text, weights, root, head, template):
    """The language model; `root` is what its names begin with in the folder."""
    architecture = "qwen2vl" if kind == "qwen" else "llama"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("model")
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(text["num_attention_heads"])
    writer.add_head_count_kv(text["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    rope = text["rope_parameters"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if kind == "qwen":
        writer.add_rope_dimension_sections(rope["mrope_section"] + [0])
    tokens, kinds = tokens_of(kind, text["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    if template:
        writer.add_chat_template(template)
    put(writer, "token_embd.weight", weights[root + "embed_tokens.weight"])
    put(writer, "output_norm.weight", weights[root + "norm.weight"])
    put(writer, "output.weight", weights[head])
    heads = {"attn_q": text["num_attention_heads"], "attn_k": text["num_key_value_heads"]}
    for i in range(text["num_hidden_layers"]):
        for own, name in LAYERS.items():
            for leaf in ("weight", "bias"):
                tensor = weights.get(f"{root}layers.{i}.{name}.{leaf}")
                if tensor is None:
                    continue
                if architecture == "llama" and own in heads:
                    tensor = paired(tensor.float().numpy(), heads[own])
                    tensor = torch.from_numpy(tensor.copy())
                put(writer, f"blk.{i}.{own}.{leaf}", tensor)
    if rope["rope_type"] == "llama3":
        keys = {"rope_theta": rope["rope_theta"], "rope_scaling": rope}
        writer.add_tensor("rope_freqs.weight",
                          llama3_divisors(keys, text["hidden_size"] // text["num_attention_heads"]))
    close(writer)
    return tokens, kinds


def renamed(name, table):
    for old, new in table.items():
        name = name.replace(old, new)
    return name


def llava_encoder(writer, config, processor, weights):
    vision = config["vision_config"]
    layers = vision["num_hidden_layers"] + config.get("vision_feature_layer", -2) + 1
    writer.add_bool("clip.has_text_encoder", False)
    writer.add_bool("clip.has_llava_projector", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_uint32("clip.vision.projection_dim", vision["projection_dim"])  # of CLIP itself
    writer.add_bool("clip.use_gelu", vision["hidden_act"] == "gelu")
    if "image_grid_pinpoints" in config:
        flat = [side for high, wide in config["image_grid_pinpoints"] for side in (wide, high)]
        writer.add_array("clip.vision.image_grid_pinpoints", flat)
        writer.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
        writer.add_string("clip.vision.image_aspect_ratio", "anyres")
        writer.add_array("clip.vision.feature_layer", [layers])
        put(writer, "model.image_newline", weights["image_newline"])
    else:
        writer.add_string("clip.vision.image_aspect_ratio", "square")
    for name, tensor in weights.items():
        if name.startswith("vision_tower.vision_model."):
            rest = name[len("vision_tower.vision_model."):]
            number = rest.split(".")[2] if rest.startswith("encoder.layers.") else "0"
            if int(number) < layers and "post_layernorm" not in rest:
                put(writer, "v." + renamed(rest, OLDER), tensor)
        elif name.startswith("multi_modal_projector."):
            put(writer, renamed(name, {"multi_modal_projector.linear_1": "mm.0",
                                       "multi_modal_projector.linear_2": "mm.2"}), tensor)
    return layers, vision["layer_norm_eps"]


def idefics_encoder(writer, config, processor, weights):
    vision = config["vision_config"]
    writer.add_type("mmproj")
    writer.add_clip_projector_type("idefics3")
    writer.add_vision_projection_dim(config["text_config"]["hidden_size"])
    writer.add_vision_use_gelu(True)
    writer.add_vision_projector_scale_factor(config["scale_factor"])
    writer.add_uint32("clip.vision.preproc_image_size", processor["size"]["longest_edge"])
    for name, tensor in weights.items():
        if name.startswith("model.vision_model."):
            put(writer, "v." + renamed(name[len("model.vision_model."):], CLIP), tensor)
        elif name.startswith("model.connector."):
            put(writer, "mm.model.fc.weight", tensor)
    return vision["num_hidden_layers"], vision["layer_norm_eps"]


def qwen_encoder(writer, config, processor, weights):
    vision = config["vision_config"]
    newer = config["model_type"] == "qwen2_5_vl"
    writer.add_type("mmproj")
    writer.add_clip_projector_type("qwen2.5vl_merger" if newer else "qwen2vl_merger")
    writer.add_vision_projection_dim(config["text_config"]["hidden_size"])
    writer.add_uint32("clip.vision.image_min_pixels", processor["min_pixels"])
    writer.add_uint32("clip.vision.image_max_pixels", processor["max_pixels"])
    if newer:
        writer.add_vision_use_silu(True)
        writer.add_vision_n_wa_pattern(vision["fullatt_block_indexes"][0] + 1)
        writer.add_uint32("clip.vision.window_size", vision["window_size"])
    for name, tensor in weights.items():
        if not name.startswith("visual."):
            continue
        rest = name[len("visual."):]
        if ".qkv." in rest:
            for own, part in zip("qkv", tensor.chunk(3)):
                put(writer, "v." + renamed(rest.replace("attn.qkv", "attn." + own), QWEN), part)
        elif rest == "patch_embed.proj.weight":
            put(writer, "v.patch_embd.weight", tensor[:, :, 0])
            put(writer, "v.patch_embd.weight.1", tensor[:, :, 1])
        elif rest.startswith("merger."):
            put(writer, renamed(rest, {"merger.ln_q": "v.post_ln", "merger.mlp": "mm"}), tensor)
        else:
            put(writer, "v." + renamed(rest, QWEN), tensor)
    return vision["depth"], 1e-6


def write_encoder(path, kind, config, processor, weights):
    vision = config["vision_config"]
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    fill = {"llava": llava_encoder, "qwen": qwen_encoder}.get(kind, idefics_encoder)
    layers, eps = fill(writer, config, processor, weights)
    writer.add_vision_block_count(layers)
    writer.add_vision_attention_layernorm_eps(eps)
    writer.add_vision_image_size(vision.get("image_size", 560))
    writer.add_vision_patch_size(vision["patch_size"])
    writer.add_vision_head_count(vision.get("num_attention_heads", vision.get("num_heads")))
    # Published files of Qwen2-VL have the language model's width as that of a layer's second half.
    width = vision.get("embed_dim", vision["hidden_size"])
    writer.add_vision_embedding_length(width)
    writer.add_vision_feed_forward_length(vision.get("intermediate_size", vision["hidden_size"]))
    writer.add_vision_image_mean(processor["image_mean"])
    writer.add_vision_image_std(processor["image_std"])
    close(writer)


def main():
    for name in ("llava-1.5", "llava-next", "qwen2-vl", "qwen2.5-vl", "idefics3", "smolvlm"):
        kind = name.split("-")[0].split("2")[0]
        folder, target = ROOT / "lmm" / name, OUT / name
        config = json.loads((folder / "config.json").read_text())
        processor = json.loads((folder / "preprocessor_config.json").read_text())
        weights = load_file(folder / "model.safetensors")
        root = {"llava": "language_model.model.", "qwen": "model."}.get(kind, "model.text_model.")
        head = "language_model.lm_head.weight" if kind == "llava" else "lm_head.weight"
        target.mkdir(parents=True, exist_ok=True)
        template = MISTRAL_TEMPLATE if name == "llava-next" else QWEN_TEMPLATE if kind == "qwen" else ""
        tokens, kinds = write_model(target / "model.gguf", kind, config["text_config"], weights, root, head, template)
        write_encoder(target / "mmproj-model.gguf", kind, config, processor, weights)
        (target / "tokenizer.json").write_text(
            json.dumps(tokenizer_json(tokens, kinds), ensure_ascii=False) + "\n")
        if template:
            (target / "chat_template.jinja").write_text(template)
    print(sum(file.stat().st_size for file in OUT.rglob("*") if file.is_file()), "bytes")


if __name__ == "__main__":
    main()
