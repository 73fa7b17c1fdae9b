"""State-dict names and shapes of published checkpoints, without their weights.

Janus-Pro-1B and 7B: the Hugging Face class on the meta device, and the original layout as the
authors' code names it (fused vision qkv, an attention pool that nobody reads, the VQ model under
gen_vision_model with LlamaGen's names, buffers included). LlamaGen B to 7B: transformer names and
shapes by the published dimensions, and the VQ-16 and VQ-8 tokenizers, whose shapes come from the
Janus VQ class; XL reading a text encoder's rows. Chameleon 7B and 30B: the Hugging Face class, Lumina-mGPT's and Anole's
rows of norms, the authors' files. Cosmos: the transformers, by the authors' names and dimensions. T5: whole models of the
Hugging Face class, of which the encoder is read. One text file each under tests/golden/names/: a name and its extents a line, runs of
layers that are alike folded as {first-last}; `config.json` lines in front begin with '#'.

  python assets/recipes/fixtures_names.py
"""
import json
import re
from pathlib import Path

import torch
from transformers import (ChameleonConfig, ChameleonForConditionalGeneration, ChameleonVQVAE, ChameleonVQVAEConfig,
                          Emu3Config, Emu3ForConditionalGeneration, JanusConfig, JanusForConditionalGeneration,
                          JanusVisionConfig, JanusVQVAE, JanusVQVAEConfig, LlamaConfig, T5Config,
                          T5ForConditionalGeneration)

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "names"
LAYER = re.compile(r"(?<=layers\.)\d+(?=\.)|(?<=blocks\.)\d+(?=\.(?:norm|attn|mlp))|(?<=block\.)\d+(?=\.layer\.)")
JANUS = {"1b": (2048, 24, 16, 5632), "7b": (4096, 30, 32, 11008)}
LLAMAGEN = {"B": (12, 768), "L": (24, 1024), "XL": (36, 1280), "XXL": (48, 1536),
            "XXXL": (48, 2560), "1B": (22, 2048), "3B": (24, 3200), "7B": (32, 4096)}
CHAMELEON = {"7b": (4096, 32, 32, 32, 11008), "30b": (8192, 48, 64, 8, 22016)}
T5 = {"flan-t5-xl": (2048, 64, 5120, 32, "gated-gelu"), "t5-11b": (1024, 128, 65536, 128, "relu")}
COSMOS = {"4B": (16, 4096, False), "5B": (16, 4096, True), "12B": (40, 5120, False), "13B": (40, 5120, True)}


def fold(shapes):
    """[(name, shape)] -> lines, equal layers folded"""
    groups = {}
    for name, shape in shapes:
        found = LAYER.search(name)
        if found:
            key = (name[:found.start()] + "{}" + name[found.end():], tuple(shape))
            groups.setdefault(key, []).append(int(found.group()))
        else:
            groups[(name, tuple(shape))] = []
    lines = []
    for (name, shape), numbers in groups.items():
        extents = [str(n) for n in shape]
        numbers.sort()
        if numbers and numbers == list(range(numbers[0], numbers[-1] + 1)):
            name = name.replace("{}", "{%d-%d}" % (numbers[0], numbers[-1]))
            lines.append(" ".join([name] + extents))
        else:
            for one in [name.replace("{}", str(n)) for n in numbers] or [name]:
                lines.append(" ".join([one] + extents))
    return lines


def write(stem, shapes, config=None):
    lines = ["# " + json.dumps(config)] if config else []
    lines += fold(shapes)
    (OUT / f"{stem}.txt").write_text("\n".join(lines) + "\n")
    print(stem, len(shapes), "tensors", sum(torch.Size(s).numel() for _, s in shapes), "elements")


def vq_shapes(multipliers, prefix=""):
    """LlamaGen's names over the shapes of the Janus VQ class."""
    with torch.device("meta"):
        vq = JanusVQVAE(JanusVQVAEConfig(channel_multiplier=multipliers))
    out = []
    for name, p in vq.state_dict().items():
        n = name.replace("encoder.down.", "encoder.conv_blocks.")
        n = n.replace("decoder.up.", "decoder.conv_blocks.").replace(".block.", ".res.")
        for new, old in enumerate(("block_1", "attn_1", "block_2")):
            n = n.replace(f".mid.{old}.", f".mid.{new}.")
        out.append((prefix + n, list(p.shape)))
    return out


def janus_port(size):
    hidden, layers, heads, ffn = JANUS[size]
    text = LlamaConfig(vocab_size=102400, hidden_size=hidden, intermediate_size=ffn,
                       num_hidden_layers=layers, num_attention_heads=heads,
                       max_position_embeddings=16384, tie_word_embeddings=False)
    config = JanusConfig(text_config=text, vision_config=JanusVisionConfig(projection_dim=hidden),
                         vq_config=JanusVQVAEConfig(projection_dim=hidden,
                                                    image_token_embed_dim=hidden),
                         tie_word_embeddings=False)
    with torch.device("meta"):
        model = JanusForConditionalGeneration(config)
    shapes = [(n, list(p.shape)) for n, p in model.state_dict().items()]
    plain = {"model_type": "janus",
             "text_config": {"model_type": "llama", "vocab_size": 102400, "hidden_size": hidden,
                             "intermediate_size": ffn, "num_hidden_layers": layers,
                             "num_attention_heads": heads, "num_key_value_heads": heads,
                             "max_position_embeddings": 16384},
             "vision_config": {"model_type": "janus_vision_model", "projection_dim": hidden},
             "vq_config": {"model_type": "janus_vqgan", "projection_dim": hidden,
                           "image_token_embed_dim": hidden, "num_patches": 24}}
    write(f"janus-pro-{size}-port", shapes, plain)


def janus_original(size):
    hidden, layers, heads, ffn = JANUS[size]
    shapes = []

    def linear(name, out, inputs):
        shapes.extend([(name + ".weight", [out, inputs]), (name + ".bias", [out])])

    def norm(name, width):
        shapes.extend([(name + ".weight", [width]), (name + ".bias", [width])])

    tower = "vision_model.vision_tower."
    shapes.append((tower + "patch_embed.proj.weight", [1024, 3, 16, 16]))
    shapes.append((tower + "patch_embed.proj.bias", [1024]))
    shapes.append((tower + "pos_embed", [1, 576, 1024]))
    norm(tower + "norm", 1024)
    for i in range(24):
        block = f"{tower}blocks.{i}."
        norm(block + "norm1", 1024)
        linear(block + "attn.qkv", 3072, 1024)
        linear(block + "attn.proj", 1024, 1024)
        norm(block + "norm2", 1024)
        linear(block + "mlp.fc1", 4096, 1024)
        linear(block + "mlp.fc2", 1024, 4096)
    pool = tower + "attn_pool."
    shapes.append((pool + "latent", [1, 1, 1024]))
    linear(pool + "q", 1024, 1024)
    linear(pool + "kv", 2048, 1024)
    linear(pool + "proj", 1024, 1024)
    norm(pool + "norm", 1024)
    linear(pool + "mlp.fc1", 4096, 1024)
    linear(pool + "mlp.fc2", 1024, 4096)
    linear("aligner.layers.0", hidden, 1024)
    linear("aligner.layers.2", hidden, hidden)
    shapes.extend(vq_shapes([1, 1, 2, 2, 4], "gen_vision_model."))
    shapes.append(("gen_vision_model.quantize.codebook_used", [65536]))
    shapes.append(("gen_embed.weight", [16384, 8]))
    linear("gen_aligner.layers.0", hidden, 8)
    linear("gen_aligner.layers.2", hidden, hidden)
    linear("gen_head.output_mlp_projector", hidden, hidden)
    linear("gen_head.vision_head", 16384, hidden)
    root = "language_model.model."
    shapes.append((root + "embed_tokens.weight", [102400, hidden]))
    for i in range(layers):
        layer = f"{root}layers.{i}."
        for part in "qkvo":
            shapes.append((f"{layer}self_attn.{part}_proj.weight", [hidden, hidden]))
        shapes.append((layer + "mlp.gate_proj.weight", [ffn, hidden]))
        shapes.append((layer + "mlp.up_proj.weight", [ffn, hidden]))
        shapes.append((layer + "mlp.down_proj.weight", [hidden, ffn]))
        shapes.append((layer + "input_layernorm.weight", [hidden]))
        shapes.append((layer + "post_attention_layernorm.weight", [hidden]))
    shapes.append((root + "norm.weight", [hidden]))
    shapes.append(("language_model.lm_head.weight", [102400, hidden]))
    language = {"model_type": "llama", "vocab_size": 102400, "max_position_embeddings": 16384,
                "num_hidden_layers": layers}
    if size == "1b":  # the 7B configuration leaves the rest to Llama's class defaults
        language |= {"hidden_size": hidden, "intermediate_size": ffn,
                     "num_attention_heads": heads, "num_key_value_heads": heads}
    config = {
        "model_type": "multi_modality", "architectures": ["MultiModalityCausalLM"],
        "language_config": language,
        "vision_config": {"cls": "CLIPVisionTower", "model_type": "vision", "params": {
            "image_size": 384, "model_name": "siglip_large_patch16_384",
            "select_feature": "same", "select_layer": -1}},
        "aligner_config": {"cls": "MlpProjector", "model_type": "aligner", "params": {
            "depth": 2, "input_dim": 1024, "n_embed": hidden, "projector_type": "mlp_gelu"}},
        "gen_vision_config": {"cls": "VQ-16", "model_type": "gen_vision", "params": {
            "image_token_size": 16384, "n_embed": 8}},
        "gen_aligner_config": {"cls": "MlpProjector", "model_type": "gen_aligner", "params": {
            "depth": 2, "input_dim": 8, "n_embed": hidden, "projector_type": "mlp_gelu"}},
        "gen_head_config": {"cls": "vision_head", "model_type": "gen_head", "params": {
            "image_token_embed": hidden, "image_token_size": 16384, "n_embed": hidden}},
    }
    write(f"janus-pro-{size}-original", shapes, config)


def llamagen(size, text=False):
    layers, d = LLAMAGEN[size]
    f = (int(2 * 4 * d / 3) + 255) // 256 * 256
    shapes = [("tok_embeddings.weight", [16384, d])]
    if text:
        shapes += [("cls_embedding.cap_proj.fc1.weight", [d, 2048]), ("cls_embedding.cap_proj.fc2.weight", [d, d]),
                   ("cls_embedding.uncond_embedding", [120, 2048])]
    else:
        shapes += [("cls_embedding.embedding_table.weight", [1001, d])]
    for i in range(layers):
        own = f"layers.{i}."
        shapes += [(own + "attention.wqkv.weight", [3 * d, d]), (own + "attention.wo.weight", [d, d]),
                   (own + "feed_forward.w1.weight", [f, d]), (own + "feed_forward.w3.weight", [f, d]),
                   (own + "feed_forward.w2.weight", [d, f]), (own + "attention_norm.weight", [d]),
                   (own + "ffn_norm.weight", [d])]
    shapes += [("norm.weight", [d]), ("output.weight", [16384, d])]
    write(f"llamagen-t2i-{size}" if text else f"llamagen-{size}", shapes)


def t5(name):
    width, head, ffn, heads, form = T5[name]
    plain = {"model_type": "t5", "d_model": width, "d_kv": head, "d_ff": ffn, "num_layers": 24, "num_decoder_layers": 24,
             "num_heads": heads, "vocab_size": 32128, "feed_forward_proj": form, "relative_attention_num_buckets": 32}
    with torch.device("meta"):
        model = T5ForConditionalGeneration(T5Config(**plain))
    write(name, [(n, list(p.shape)) for n, p in model.state_dict().items()], plain)


def emu3_authors_tokenizer(name, shape):
    """The port's name of a tokenizer tensor -> the authors'."""
    n = name.replace(".down_block.", ".").replace(".up_block.", ".").replace("middle_block", "mid")
    n = n.replace("mid.attn_norm.", "mid.attn_1.norm.")
    n = re.sub(r"attn_norms\.(\d+)\.", r"attn.\1.norm.", n)
    if re.search(r"attn(_1|\.\d+)\.(q|k|v|out)_proj\.", n):
        n = n.replace("out_proj.", "proj_out.")
        n = re.sub(r"\.(q|k|v)_proj\.", r".\1.", n)
        shape = shape + [1, 1] if n.endswith("weight") else shape
    return n, shape


def emu3():
    words = {"<image>": 151646} | {f"<|visual token {i:06d}|>": 151854 + i for i in range(32768)}
    with torch.device("meta"):
        model = Emu3ForConditionalGeneration(Emu3Config(vocabulary_map=words))
    shapes = [(n, list(p.shape)) for n, p in model.state_dict().items()]
    write("emu3-port", shapes, {"model_type": "emu3", "text_config": {"model_type": "emu3_text_model"},
                                "vq_config": {}, "tie_word_embeddings": False})
    head = "model.text_model."
    text = [(n.replace(head, "model."), s) for n, s in shapes if ".vqmodel." not in n]
    write("emu3-original", text, {
        "architectures": ["Emu3ForCausalLM"], "model_type": "Emu3", "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "max_position_embeddings": 9216, "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0, "vocab_size": 184622, "image_area": 518400, "bos_token_id": 151849,
        "eos_token_id": 151850, "img_token_id": 151851, "boi_token_id": 151852, "eoi_token_id": 151853,
        "eol_token_id": 151846, "eof_token_id": 151847, "pad_token_id": 151643})
    tokenizer = [emu3_authors_tokenizer(n.replace("model.vqmodel.", ""), s) for n, s in shapes if ".vqmodel." in n]
    write("emu3-tokenizer", tokenizer, {"codebook_size": 32768, "ch": 256, "ch_mult": [1, 2, 2, 4],
                                        "z_channels": 4, "embed_dim": 4, "double_z": False,
                                        "num_res_blocks": 2, "attn_resolutions": [3],
                                        "temporal_downsample_factor": 4})
    learned = sum(p.numel() for n, p in model.named_parameters() if ".vqmodel." in n)
    print("  learned parameters", sum(p.numel() for p in model.parameters()) - learned, "and", learned)


def cosmos(size):
    layers, dim, text = COSMOS[size]
    heads, kv, head, ffn, codes = 32, 8, 128, 14336, 64000
    # A model that reads a text has one token before the stream; its table is rounded up to 64 rows.
    shapes = [("tok_embeddings.weight", [(codes + 64) // 64 * 64 if text else codes, dim])]

    def attention(name, inputs):
        shapes.extend([(name + ".wq.weight", [heads * head, dim]), (name + ".wk.weight", [kv * head, inputs]),
                       (name + ".wv.weight", [kv * head, inputs]), (name + ".wo.weight", [dim, heads * head]),
                       (name + ".q_norm.weight", [head]), (name + ".k_norm.weight", [head])])

    for i in range(layers):
        layer = f"layers.{i}."
        attention(layer + "attention", dim)
        if text:
            attention(layer + "cross_attention", 1024)
            shapes.append((layer + "cross_attention_norm.weight", [dim]))
        shapes += [(layer + f"feed_forward.{w}.weight", s)
                   for w, s in (("w1", [ffn, dim]), ("w2", [dim, ffn]), ("w3", [ffn, dim]))]
        shapes += [(layer + f"{n}_norm.weight", [dim]) for n in ("attention", "ffn")]
    shapes += [("norm.weight", [dim]), ("output.weight", [codes, dim])]
    write(f"cosmos-{size}", shapes,
          {"dim": dim, "n_layers": layers, "n_heads": heads, "n_kv_heads": kv, "head_dim": head,
           "ffn_hidden_size": ffn, "norm_eps": 1e-05, "vocab_size": codes, "use_qk_normalization": True,
           "rope_dim": "3D", "video_latent_shape": [5, 40, 64], "pad_to_multiple_of": 64,
           "insert_cross_attn": text, "apply_abs_pos_emb": text, "apply_yarn": dim == 5120,
           **({"original_latent_shape": [3, 40, 64], "yarn_scale": 2, "yarn_beta_fast": 4, "yarn_beta_slow": 1}
              if dim == 5120 else {})})


def chameleon_vqgan():
    """The authors' image tokenizer: encoder of the port's class; the decoder is Janus' with levels counted from full
    resolution, and attends in the middle alone."""
    with torch.device("meta"):
        encoder = ChameleonVQVAE(ChameleonVQVAEConfig())
        whole = JanusVQVAE(JanusVQVAEConfig(embed_dim=256, num_embeddings=8192))
    shapes = [(n, list(p.shape)) for n, p in encoder.state_dict().items()]
    for n, p in whole.state_dict().items():
        level = re.match(r"decoder\.up\.(\d)\.", n)
        if not n.startswith("decoder.") or (level and ".attn." in n):
            continue
        shapes.append((re.sub(r"^decoder\.up\.(\d)", lambda m: f"decoder.up.{4 - int(m[1])}", n), list(p.shape)))
    return shapes


def chameleon(size):
    hidden, layers, heads, kv, ffn = CHAMELEON[size]
    swin = size == "30b"
    config = {"model_type": "chameleon", "vocab_size": 65536, "hidden_size": hidden, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
              "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "swin_norm": swin,
              "model_parallel_size": 4 if swin else 1, "vq_config": {"attn_resolutions": []}}
    words = {"<image>": 8711} | {f"IMGIMG{chr(65 + i)}Z": 4 + i for i in range(10)}
    with torch.device("meta"):
        model = ChameleonForConditionalGeneration(ChameleonConfig(**config, vocabulary_map=words))
    shapes = [(n, list(p.shape)) for n, p in model.state_dict().items()]
    write(f"chameleon-{size}-port", shapes, config)
    own = [(n, s) for n, s in shapes if ".vqmodel." not in n]
    if swin:
        write("chameleon-30b-authors", chameleon_authors(own, 4), {
            "model_parallel_size": 4, "model": {"dim": 8192, "n_layers": 48, "n_heads": 64, "n_kv_heads": 8, "vocab_size": 65536,
                                                "multiple_of": 256, "norm_eps": 1e-5, "qk_normalization": True,
                                                "swin_norm": True}})
        return
    # Lumina-mGPT, and Anole as it was trained: one row of norms a part of the training.
    rows = [(n, [1, 128] if "_norm." in n and "self_attn" in n else s) for n, s in shapes if ".vqmodel." not in n]
    write("lumina-mgpt-7b", rows, config | {
        "architectures": ["ChameleonXLLMXForConditionalGeneration"], "mask_image_logits": False, "dropout": 0.05,
        "z_loss_weight": 1e-5, "max_position_embeddings": 10240})
    write("chameleon-7b-authors", chameleon_authors(own, 1), {
        "model_parallel_size": 1, "model": {"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 65536,
                                            "multiple_of": 256, "norm_eps": 1e-5, "qk_normalization": True}})
    write("chameleon-vqgan", chameleon_vqgan() + [("loss.discriminator.main.0.weight", [64, 3, 4, 4])])


def chameleon_authors(shapes, parts):
    """Of one file of `parts`, as their Transformer has it on one of so many devices."""
    names = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
             "self_attn.o_proj": "attention.wo", "self_attn.q_norm": "attention.q_normalization",
             "self_attn.k_norm": "attention.k_normalization", "mlp.gate_proj": "feed_forward.w1",
             "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
             "post_attention_layernorm": "ffn_norm", "input_layernorm": "attention_norm",
             "model.embed_tokens": "tok_embeddings", "model.layers": "layers", "model.norm": "norm", "lm_head": "output"}
    out = []
    for n, s in shapes:
        for old, new in names.items():
            n = n.replace(old, new)
        leaf = n.split(".")[-2]
        if "_normalization" in n:
            s = s[1:]
        elif leaf in ("tok_embeddings", "wo", "w2"):
            s = [s[0], s[1] // parts]
        elif leaf in ("wq", "wk", "wv", "w1", "w3", "output"):
            s = [s[0] // parts, s[1]]
        out.append((n, s))
    return out + [("rope.freqs", [64])]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for size in JANUS:
        janus_port(size)
        janus_original(size)
    for size in LLAMAGEN:
        llamagen(size)
    llamagen("XL", text=True)
    for name in T5:
        t5(name)
    emu3()
    for size in COSMOS:
        cosmos(size)
    for size in CHAMELEON:
        chameleon(size)
    for stem, multipliers in (("vq16", [1, 1, 2, 2, 4]), ("vq8", [1, 2, 2, 4])):
        shapes = vq_shapes(multipliers)
        write(f"llamagen-{stem}", shapes + [("quantize.codebook_used", [65536])])
        print("  parameters", sum(torch.Size(s).numel() for _, s in shapes))


if __name__ == "__main__":
    main()
