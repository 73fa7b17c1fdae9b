"""State-dict names and shapes of published captioning models as a whole, without their weights.

Each model is built by `transformers` on the meta device from the configuration its published file
has, written out here as that file spells it (what it leaves out, its reader adds). One text file
each under tests/golden/lmm/names/, folded as fixtures_names.py folds: the names that the published
files use. `later` in the first line: the names as newer releases of the library write them, prefix
by prefix; `parameters`: what the library counts, tied tables once.

  python assets/recipes/fixtures_captioner_names.py
"""
import json
import sys
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fixtures_names import fold  # noqa: E402

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "lmm" / "names"

# (in memory, in the published files), the first that fits
LLAVA = (("lm_head.", "language_model.lm_head."),
         ("model.language_model.", "language_model.model."),
         ("model.vision_tower.", "vision_tower.vision_model."),
         ("model.multi_modal_projector.", "multi_modal_projector."),
         ("model.image_newline", "image_newline"))
QWEN = (("model.visual.", "visual."), ("model.language_model.", "model."))
SAME = ()

CLIP = dict(model_type="clip_vision_model", hidden_size=1024, image_size=336,
            intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24, patch_size=14,
            projection_dim=768)
SIGLIP = dict(model_type="siglip_vision_model", hidden_size=1152, image_size=384,
              intermediate_size=4304, num_attention_heads=16, num_hidden_layers=26, patch_size=14,
              vision_use_head=False)
NEXT_GRIDS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
ONE_VISION_GRIDS = [[384 * a, 384 * b] for a in range(1, 7) for b in range(1, 7)]


def llava(text, **extra):
    return dict(model_type="llava", image_token_index=32000, projector_hidden_act="gelu",
                vision_feature_layer=-2, vision_feature_select_strategy="default",
                vision_config=CLIP, text_config=text, **extra)


def vicuna(vocab, **extra):
    return dict(model_type="llama", max_position_embeddings=4096, rms_norm_eps=1e-5,
                vocab_size=vocab, **extra)


WIDE = dict(hidden_size=5120, intermediate_size=13824, num_attention_heads=40,
            num_hidden_layers=40, num_key_value_heads=40)


def llava_next(text):
    return dict(llava(text), model_type="llava_next", image_grid_pinpoints=NEXT_GRIDS)


def one_vision(**text):
    return dict(model_type="llava_onevision", image_token_index=151646,
                projector_hidden_act="gelu", vision_feature_layer=-1,
                vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_9",
                image_grid_pinpoints=ONE_VISION_GRIDS, vision_config=SIGLIP,
                text_config=dict(model_type="qwen2", max_position_embeddings=32768,
                                 rope_theta=1000000.0, **text))


def qwen2_vl(vision_width, **text):
    return dict(model_type="qwen2_vl", image_token_id=151655, max_position_embeddings=32768,
                rms_norm_eps=1e-6, rope_theta=1000000.0, use_sliding_window=False,
                rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]),
                vision_config=dict(depth=32, embed_dim=1280, mlp_ratio=4, num_heads=16, in_chans=3,
                                   hidden_size=vision_width, patch_size=14, spatial_merge_size=2,
                                   spatial_patch_size=14, temporal_patch_size=2), **text)


def qwen25_vl(width, **text):
    return dict(model_type="qwen2_5_vl", image_token_id=151655, max_position_embeddings=128000,
                rms_norm_eps=1e-6, rope_theta=1000000.0, use_sliding_window=False,
                rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]),
                vision_config=dict(depth=32, hidden_act="silu", hidden_size=1280,
                                   intermediate_size=3420, num_heads=16, in_chans=3,
                                   out_hidden_size=width, patch_size=14, spatial_merge_size=2,
                                   spatial_patch_size=14, window_size=112,
                                   fullatt_block_indexes=[7, 15, 23, 31], tokens_per_second=2,
                                   temporal_patch_size=2), **text)


QWEN_7B = dict(hidden_size=3584, intermediate_size=18944, num_attention_heads=28,
               num_hidden_layers=28, num_key_value_heads=4, vocab_size=152064,
               tie_word_embeddings=False)


def janus(width, layers, heads, ffn):
    return dict(model_type="janus", image_token_id=100581 if width == 2048 else 100594,
                tie_word_embeddings=False,
                text_config=dict(model_type="llama", vocab_size=102400, hidden_size=width,
                                 intermediate_size=ffn, num_hidden_layers=layers,
                                 num_attention_heads=heads, num_key_value_heads=heads,
                                 max_position_embeddings=16384),
                vision_config=dict(model_type="janus_vision_model", projection_dim=width),
                vq_config=dict(model_type="janus_vqgan", projection_dim=width,
                               image_token_embed_dim=width, num_patches=24))


def smolvlm(layers, width, heads, kv, ffn, factor, vocab, vision, tied, positions=8192, **text):
    return dict(model_type="smolvlm", image_token_id=49190, scale_factor=factor,
                tie_word_embeddings=tied, vision_config=vision,
                text_config=dict(model_type="llama", hidden_size=width, head_dim=64,
                                 intermediate_size=ffn, num_attention_heads=heads,
                                 num_hidden_layers=layers, num_key_value_heads=kv,
                                 max_position_embeddings=positions, vocab_size=vocab,
                                 rms_norm_eps=1e-5, **text))


SMALL_EYE = dict(model_type="smolvlm_vision", hidden_size=768, intermediate_size=3072,
                 num_attention_heads=12, num_hidden_layers=12, image_size=512, patch_size=16)
LARGE_EYE = dict(hidden_size=1152, intermediate_size=4304, num_attention_heads=16,
                 num_hidden_layers=27, patch_size=14)

MODELS = {
    "llava-1.5-7b": (LLAVA, llava(vicuna(32064))),
    "llava-1.5-13b": (LLAVA, llava(vicuna(32064, **WIDE))),
    "llava-1.6-vicuna-7b": (LLAVA, llava_next(vicuna(32064))),
    "llava-1.6-vicuna-13b": (LLAVA, llava_next(vicuna(32064, **WIDE))),
    "llava-1.6-mistral-7b": (LLAVA, llava_next(dict(
        model_type="mistral", intermediate_size=14336, max_position_embeddings=32768,
        num_key_value_heads=8, rope_theta=1000000.0, sliding_window=None, vocab_size=32064))),
    "llava-onevision-0.5b": (LLAVA, dict(one_vision(
        hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_hidden_layers=24,
        num_key_value_heads=2, vocab_size=152000, tie_word_embeddings=True),
        tie_word_embeddings=True)),
    "llava-onevision-7b": (LLAVA, one_vision(
        hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_hidden_layers=28,
        num_key_value_heads=4, vocab_size=152128)),
    "janus-pro-1b": (SAME, janus(2048, 24, 16, 5632)),
    "janus-pro-7b": (SAME, janus(4096, 30, 32, 11008)),
    "qwen2-vl-2b": (QWEN, qwen2_vl(1536, hidden_size=1536, intermediate_size=8960,
                                   num_attention_heads=12, num_hidden_layers=28,
                                   num_key_value_heads=2, vocab_size=151936,
                                   tie_word_embeddings=True)),
    "qwen2-vl-7b": (QWEN, qwen2_vl(3584, **QWEN_7B)),
    "qwen2.5-vl-3b": (QWEN, qwen25_vl(2048, hidden_size=2048, intermediate_size=11008,
                                      num_attention_heads=16, num_hidden_layers=36,
                                      num_key_value_heads=2, vocab_size=151936,
                                      tie_word_embeddings=True)),
    "qwen2.5-vl-7b": (QWEN, qwen25_vl(3584, **QWEN_7B)),
    "idefics3-8b": (SAME, dict(
        model_type="idefics3", image_token_id=128257, scale_factor=2, tie_word_embeddings=False,
        vision_config=dict(LARGE_EYE, model_type="idefics3_vision", image_size=364),
        text_config=dict(model_type="llama", hidden_size=4096, intermediate_size=14336,
                         num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8,
                         max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=500000.0,
                         rope_scaling=dict(factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0,
                                           original_max_position_embeddings=8192,
                                           rope_type="llama3"), vocab_size=128259))),
    "smolvlm-256m": (SAME, smolvlm(30, 576, 9, 3, 1536, 4, 49280, SMALL_EYE, False,
                                   rope_theta=100000)),
    "smolvlm-500m": (SAME, smolvlm(32, 960, 15, 5, 2560, 4, 49280, SMALL_EYE, False,
                                   rope_theta=100000)),
    "smolvlm-2.2b": (SAME, dict(smolvlm(24, 2048, 32, 32, 8192, 3, 49155,
                                        dict(LARGE_EYE, model_type="smolvlm_vision",
                                             image_size=384),
                                        False, positions=16384, rope_theta=273768.0),
                                image_token_id=49153)),
}
CLASSES = {"llava": "LlavaForConditionalGeneration",
           "llava_next": "LlavaNextForConditionalGeneration",
           "llava_onevision": "LlavaOnevisionForConditionalGeneration",
           "janus": "JanusForConditionalGeneration",
           "qwen2_vl": "Qwen2VLForConditionalGeneration",
           "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
           "idefics3": "Idefics3ForConditionalGeneration",
           "smolvlm": "SmolVLMForConditionalGeneration"}


def renamed(name, rename):
    for old, new in rename:
        if name.startswith(old):
            return new + name[len(old):]
    return name


def write(stem, rename, config):
    kind = getattr(transformers, CLASSES[config["model_type"]])
    with torch.device("meta"):
        model = kind(kind.config_class.from_dict(json.loads(json.dumps(config))))
    tied = model.config.tie_word_embeddings
    # named_parameters() lists a shared table once; whether it is shared is the configuration's word.
    shapes, seen = [], 0
    for name, p in model.named_parameters(remove_duplicate=False):
        if tied and name == "lm_head.weight":
            continue
        seen += p.numel()
        shapes.append((renamed(name, rename), list(p.shape)))
    facts = {"config": config, "parameters": seen}
    if rename:
        facts["later"] = [[new, old] for old, new in rename]
    lines = ["# " + json.dumps(facts)] + fold(shapes)
    (OUT / f"{stem}.txt").write_text("\n".join(lines) + "\n")
    print(stem, len(shapes), "tensors", seen, "parameters", "tied" if tied else "")


def main():
    transformers.logging.set_verbosity_error()
    OUT.mkdir(parents=True, exist_ok=True)
    for stem in sys.argv[1:] or MODELS:
        write(stem, *MODELS[stem])


if __name__ == "__main__":
    main()
