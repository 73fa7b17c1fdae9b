"""Parity fixtures for the picture encoders and projectors, made by `transformers` on tiny towers.

Every parameter is randomised; fp32 on the CPU, eager attention. For each tower tests/golden/encoder/
gets NAME.safetensors (weights under the names of the published files, config.json as metadata
"config") and NAME.recorded.safetensors: per case the pixels, the rows after every layer that counts
(in the order in which the reference runs them), the keys of every layer where they are a matrix of
their own, the attention weights of CLIP, and the projector's output.

And the published towers by name and shape under tests/golden/encoder/names/, from the meta device,
in the naming of the published files.

  python assets/recipes/fixtures_encoder.py
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (CLIPVisionConfig, Idefics3Config, Idefics3Model, JanusConfig, JanusModel,
                          JanusVisionConfig, JanusVQVAEConfig, LlamaConfig, LlavaConfig, LlavaModel,
                          LlavaOnevisionConfig, LlavaOnevisionModel, Qwen2_5_VLConfig, Qwen2VLConfig,
                          SiglipVisionConfig, SmolVLMConfig, SmolVLMModel)
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel)
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel
from transformers.models.smolvlm.configuration_smolvlm import SmolVLMVisionConfig

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fixtures_names import fold  # noqa: E402

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "encoder"
TEXT = dict(vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64)
# Keys of the configuration that say something about the tower.
KEPT = ("model_type", "vision_feature_layer", "vision_feature_select_strategy",
        "projector_hidden_act", "multimodal_projector_bias", "scale_factor")


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() < 2:
                p.copy_(1 + 0.3 * noise if name.endswith("weight") else 0.3 * noise)
            elif "position" in name:
                p.copy_(0.5 * noise)
            else:
                p.copy_(noise * (1.2 / p[0].numel() ** 0.5))


def pixels(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Recorder:
    """Collects layer outputs, keys and attention weights of one forward."""

    def __init__(self, layers, run_layers):
        self.tensors, self.hooks = {}, []
        for i, layer in enumerate(layers[:run_layers]):
            self.hooks.append(layer.register_forward_hook(self.keep(f"hidden.{i}")))
            attention = getattr(layer, "self_attn", None)
            if attention is not None and hasattr(attention, "k_proj"):
                self.hooks.append(attention.k_proj.register_forward_hook(self.keep(f"keys.{i}")))
                self.hooks.append(attention.register_forward_hook(self.weights(f"attention.{i}")))

    def keep(self, name):
        def hook(_, __, output):
            rows = output[0] if isinstance(output, tuple) else output
            self.tensors[name] = rows.reshape(-1, rows.shape[-1]).detach().clone()
        return hook

    def weights(self, name):
        def hook(_, __, output):
            if isinstance(output, tuple) and output[1] is not None:
                self.tensors[name] = output[1][0].detach().clone()  # [heads, rows, rows]
        return hook

    def take(self, case):
        for hook in self.hooks:
            hook.remove()
        return {f"{case}.{name}": tensor for name, tensor in self.tensors.items()}


def save(name, state, config, recorded):
    OUT.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.contiguous().clone() for k, v in state.items()}
    save_file(tensors, OUT / f"{name}.safetensors", {"config": json.dumps(config)})
    save_file({k: v.contiguous().clone() for k, v in recorded.items()},
              OUT / f"{name}.recorded.safetensors")
    size = sum((OUT / f"{name}{end}").stat().st_size
               for end in (".safetensors", ".recorded.safetensors"))
    print(name, len(tensors), "tensors", size, "bytes")


def trimmed(config, vision=None):
    full = config.to_dict()
    out = {k: full[k] for k in KEPT if full.get(k) is not None}
    drop = ("architectures", "dtype", "id2label", "label2id", "_attn_implementation_autoset")
    out["vision_config"] = {k: v for k, v in full["vision_config"].items()
                            if v is not None and k not in drop}
    if "text_config" in full:
        out["text_config"] = {"hidden_size": full["text_config"]["hidden_size"]}
    return out


def part(model, prefixes, rename):
    """Parameters behind the prefixes under the names of the published files."""
    out = {}
    for name, p in model.named_parameters():
        if name.startswith(prefixes):
            for old, new in rename:
                if name.startswith(old):
                    name = new + name[len(old):]
                    break
            out[name] = p.detach()
    return out


LLAVA = (("vision_tower.", "multi_modal_projector."),
         (("vision_tower.", "vision_tower.vision_model."),))
JANUS = (("vision_model.", "aligner."), (("", "model."),))
IDEFICS = (("vision_model.", "connector."), (("", "model."),))


def llava(name, vision, feature_layer, strategy, size, seed):
    config = LlavaConfig(vision_config=vision, text_config=LlamaConfig(**TEXT), image_token_index=39,
                         vision_feature_layer=feature_layer,
                         vision_feature_select_strategy=strategy)
    config._attn_implementation = "eager"
    model = LlavaModel._from_config(config, attn_implementation="eager").eval()
    randomise(model, seed)
    image = pixels((3, size, size), seed + 1)
    entries = feature_layer if isinstance(feature_layer, list) else [feature_layer]
    run = max(vision.num_hidden_layers + 1 + entry if entry < 0 else entry for entry in entries)
    with torch.no_grad():
        recorder = Recorder(model.vision_tower.encoder.layers, run)
        out = model.get_image_features(pixel_values=image[None], vision_feature_layer=feature_layer,
                                       vision_feature_select_strategy=strategy, return_dict=True)
        recorded = recorder.take("a")
    if name != "clip":
        recorded = {k: v for k, v in recorded.items() if ".attention." not in k}
    recorded["a.pixels"] = image
    recorded["a.projected"] = torch.cat(list(out.pooler_output)).reshape(-1, TEXT["hidden_size"])
    save(name, part(model, *LLAVA), trimmed(config), recorded)


def janus():
    vision = JanusVisionConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                               image_size=20, patch_size=4, projection_dim=16, mlp_ratio=1.5,
                               num_image_tokens=25)
    vq = JanusVQVAEConfig(base_channels=32, channel_multiplier=[1], num_res_blocks=1,
                          latent_channels=8, embed_dim=8, num_embeddings=8, num_patches=5,
                          projection_dim=16, image_token_embed_dim=16)
    config = JanusConfig(text_config=LlamaConfig(**TEXT), vision_config=vision, vq_config=vq)
    model = JanusModel._from_config(config, attn_implementation="eager").eval()
    randomise(model, 31)
    image = pixels((3, 20, 20), 32)
    with torch.no_grad():
        recorder = Recorder(model.vision_model.encoder.layers, 2)
        out = model.get_image_features(image[None], return_dict=True)
        recorded = {k: v for k, v in recorder.take("a").items() if ".attention." not in k}
    recorded["a.pixels"] = image
    recorded["a.features"] = out.last_hidden_state[0]
    recorded["a.projected"] = out.pooler_output[0]
    save("janus", part(model, *JANUS), trimmed(config), recorded)


def idefics3():
    vision = Idefics3VisionConfig(hidden_size=24, intermediate_size=37, num_hidden_layers=2,
                                  num_attention_heads=3, image_size=24, patch_size=4)
    config = Idefics3Config(text_config=LlamaConfig(**TEXT), vision_config=vision, scale_factor=2,
                            image_token_id=39)
    model = Idefics3Model._from_config(config, attn_implementation="eager").eval()
    randomise(model, 41)
    recorded = {}
    # The trained grid; a smaller one; one with padding below and to the right; one that is not
    # square, which the reference's pixel shuffle cannot do.
    cases = (("a", 24, 24, None), ("b", 16, 16, None), ("c", 24, 24, (17, 20)), ("d", 20, 28, None))
    for i, (case, height, width, filled) in enumerate(cases):
        image = pixels((3, height, width), 42 + i)
        mask = torch.ones(1, 1, height, width, dtype=torch.bool)
        if filled is not None:
            mask[:, :, filled[0]:] = False
            mask[:, :, :, filled[1]:] = False
            image = image * mask[0]
            recorded[f"{case}.filled"] = torch.tensor(filled, dtype=torch.int32)
        with torch.no_grad():
            recorder = Recorder(model.vision_model.encoder.layers, 2)
            if height == width:
                out = model.get_image_features(image[None, None], mask, return_dict=True)
                recorded[f"{case}.projected"] = torch.cat(list(out.pooler_output))
                recorded[f"{case}.features"] = out.last_hidden_state[0]
            else:
                out = model.vision_model(image[None], return_dict=True)
                recorded[f"{case}.features"] = out.last_hidden_state[0]
            taken = recorder.take(case)
        recorded[f"{case}.pixels"] = image
        recorded.update({k: v for k, v in taken.items() if ".attention." not in k})
    save("idefics3", part(model, *IDEFICS), trimmed(config), recorded)


def qwen_patches(clip, patch, merge, frames):
    """[T, 3, H, W] -> rows of (channel, frame, y, x), 2x2 blocks together, and the grid."""
    if clip.shape[0] == 1:
        clip = clip.repeat(frames, 1, 1, 1)
    times, rows, cols = clip.shape[0] // frames, clip.shape[2] // patch, clip.shape[3] // patch
    x = clip.reshape(times, frames, 3, rows // merge, merge, patch, cols // merge, merge, patch)
    x = x.permute(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return x.reshape(times * rows * cols, -1), torch.tensor([[times, rows, cols]])


def qwen(name, model, model_type, vision, cases, seed):
    model = model.eval()
    randomise(model, seed)
    recorded = {}
    for i, (case, shape) in enumerate(cases):
        clip = pixels(shape, seed + 1 + i)
        rows, grid = qwen_patches(clip if clip.dim() == 4 else clip[None], 4, 2, 2)
        with torch.no_grad():
            recorder = Recorder(model.blocks, len(model.blocks))
            out = model(rows, grid_thw=grid, return_dict=True)
        recorded.update(recorder.take(case))
        recorded[f"{case}.pixels"] = clip
        recorded[f"{case}.projected"] = out.pooler_output
    state = {"visual." + n: p.detach() for n, p in model.named_parameters()}
    plain = {k: v for k, v in vision.to_dict().items() if isinstance(v, (int, float, str, list))}
    save(name, state, {"model_type": model_type, "vision_config": plain}, recorded)


def small_towers():
    clip = CLIPVisionConfig(hidden_size=24, intermediate_size=37, num_hidden_layers=4,
                            num_attention_heads=4, image_size=20, patch_size=4)
    llava("clip", clip, -2, "default", 20, 11)
    siglip = SiglipVisionConfig(hidden_size=24, intermediate_size=37, num_hidden_layers=2,
                                num_attention_heads=3, image_size=20, patch_size=4)
    llava("siglip", siglip, -1, "full", 20, 21)
    last = CLIPVisionConfig(hidden_size=16, intermediate_size=21, num_hidden_layers=2,
                            num_attention_heads=2, image_size=16, patch_size=4)
    llava("clip_last", last, -1, "default", 16, 71)
    listed = CLIPVisionConfig(hidden_size=16, intermediate_size=21, num_hidden_layers=3,
                              num_attention_heads=2, image_size=16, patch_size=4)
    llava("clip_list", listed, [-2, 0, 1], "full", 16, 81)
    janus()
    idefics3()
    vision = Qwen2VLConfig(vision_config=dict(
        depth=2, embed_dim=16, hidden_size=24, num_heads=2, mlp_ratio=2, patch_size=4)).vision_config
    vision._attn_implementation = "eager"
    qwen("qwen2_vl", Qwen2VisionTransformerPretrainedModel(vision), "qwen2_vl", vision,
         (("a", (3, 16, 24)), ("b", (4, 3, 16, 16))), 51)
    vision = Qwen2_5_VLConfig(vision_config=dict(
        depth=3, hidden_size=16, out_hidden_size=24, num_heads=2, intermediate_size=21,
        patch_size=4, window_size=16, fullatt_block_indexes=[1])).vision_config
    vision._attn_implementation = "eager"
    qwen("qwen2_5_vl", Qwen2_5_VisionTransformerPretrainedModel(vision), "qwen2_5_vl", vision,
         (("a", (3, 24, 40)), ("b", (4, 3, 16, 32)), ("c", (3, 8, 8))), 61)


def feature_map():
    """A map of features resized as LLaVA-OneVision does: down, to the grid of a frame, up."""
    recorded = {}
    for case, old, new in (("a", (15, 27), (12, 21)), ("b", (9, 9), (5, 5)), ("c", (3, 4), (7, 4))):
        x = pixels((1, 3, *old), 91)
        y = torch.nn.functional.interpolate(x, new, mode="bilinear")
        for name, rows in (("from", x), ("to", y)):
            recorded[f"{case}.{name}"] = rows[0].permute(1, 2, 0).reshape(-1, 3)
        recorded[f"{case}.sizes"] = torch.tensor([*old, *new], dtype=torch.int32)
    save_file({k: v.contiguous() for k, v in recorded.items()}, OUT / "feature_map.safetensors")


def write_names(stem, shapes, config):
    folder = OUT / "names"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# " + json.dumps(config)] + fold(shapes)
    (folder / f"{stem}.txt").write_text("\n".join(lines) + "\n")
    print(stem, len(shapes), "tensors", sum(torch.Size(s).numel() for _, s in shapes), "elements")


def shapes_of(model, prefixes, rename):
    return [(n, list(p.shape)) for n, p in part(model, prefixes, rename).items()]


def published():
    """Configurations as the published files spell them: what they leave out, their readers add."""
    small_text = dict(num_hidden_layers=1, vocab_size=64)
    with torch.device("meta"):
        clip = dict(model_type="clip_vision_model", hidden_size=1024, image_size=336,
                    intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24,
                    patch_size=14, projection_dim=768)
        for stem, hidden in (("llava-1.5-7b", 4096), ("llava-1.5-13b", 5120)):
            text = LlamaConfig(hidden_size=hidden, num_attention_heads=32 if hidden == 4096 else 40,
                               **small_text)
            model = LlavaModel(LlavaConfig(vision_config=clip, text_config=text))
            config = {"model_type": "llava", "vision_feature_layer": -2,
                      "vision_feature_select_strategy": "default", "projector_hidden_act": "gelu",
                      "vision_config": clip, "text_config": {"model_type": "llama"}}
            if hidden != 4096:
                config["text_config"]["hidden_size"] = hidden
            write_names(stem, shapes_of(model, *LLAVA), config)
        ov = dict(model_type="siglip_vision_model", hidden_size=1152, image_size=384,
                  intermediate_size=4304, num_attention_heads=16, num_hidden_layers=26,
                  patch_size=14, vision_use_head=False)
        for stem, hidden in (("llava-onevision-0.5b", 896), ("llava-onevision-7b", 3584)):
            model = LlavaOnevisionModel(LlavaOnevisionConfig(
                vision_config=ov, text_config=LlamaConfig(hidden_size=hidden, **small_text)))
            write_names(stem, shapes_of(model, *LLAVA),
                        {"model_type": "llava_onevision", "vision_feature_layer": -1,
                         "vision_feature_select_strategy": "full", "projector_hidden_act": "gelu",
                         "vision_config": ov, "text_config": {"hidden_size": hidden}})
        for stem, hidden in (("janus-pro-1b", 2048), ("janus-pro-7b", 4096)):
            text = LlamaConfig(hidden_size=hidden, **small_text)
            vision = JanusVisionConfig(projection_dim=hidden)
            vq = JanusVQVAEConfig(projection_dim=hidden, image_token_embed_dim=hidden)
            model = JanusModel(JanusConfig(text_config=text, vision_config=vision, vq_config=vq))
            write_names(stem, shapes_of(model, *JANUS),
                        {"model_type": "janus", "text_config": {"hidden_size": hidden},
                         "vision_config": {"model_type": "janus_vision_model",
                                           "projection_dim": hidden}})
        for stem, hidden in (("qwen2-vl-2b", 1536), ("qwen2-vl-7b", 3584)):
            vision = dict(depth=32, embed_dim=1280, mlp_ratio=4, num_heads=16, in_chans=3,
                          hidden_size=hidden, patch_size=14, spatial_merge_size=2,
                          spatial_patch_size=14, temporal_patch_size=2)
            model = Qwen2VisionTransformerPretrainedModel(
                Qwen2VLConfig(vision_config=vision).vision_config)
            write_names(stem, [("visual." + n, list(p.shape)) for n, p in model.named_parameters()],
                        {"model_type": "qwen2_vl", "vision_config": vision})
        for stem, hidden in (("qwen2.5-vl-3b", 2048), ("qwen2.5-vl-7b", 3584)):
            vision = dict(depth=32, hidden_act="silu", hidden_size=1280, intermediate_size=3420,
                          num_heads=16, in_chans=3, out_hidden_size=hidden, patch_size=14,
                          spatial_merge_size=2, spatial_patch_size=14, window_size=112,
                          fullatt_block_indexes=[7, 15, 23, 31], tokens_per_second=2,
                          temporal_patch_size=2)
            model = Qwen2_5_VisionTransformerPretrainedModel(
                Qwen2_5_VLConfig(vision_config=vision).vision_config)
            write_names(stem, [("visual." + n, list(p.shape)) for n, p in model.named_parameters()],
                        {"model_type": "qwen2_5_vl", "vision_config": vision})
        base = dict(hidden_size=768, intermediate_size=3072, num_attention_heads=12,
                    num_hidden_layers=12, image_size=512, patch_size=16)
        so400m = dict(hidden_size=1152, intermediate_size=4304, num_attention_heads=16,
                      num_hidden_layers=27, image_size=384, patch_size=14)
        for stem, vision, hidden, heads, factor in (
                ("smolvlm-256m", base, 576, 9, 4), ("smolvlm-500m", base, 960, 15, 4),
                ("smolvlm-2.2b", so400m, 2048, 32, 3)):
            text = LlamaConfig(hidden_size=hidden, num_attention_heads=heads, **small_text)
            model = SmolVLMModel(SmolVLMConfig(vision_config=SmolVLMVisionConfig(**vision),
                                               text_config=text, scale_factor=factor,
                                               pad_token_id=0))
            write_names(stem, shapes_of(model, *IDEFICS),
                        {"model_type": "smolvlm", "scale_factor": factor, "vision_config": vision,
                         "text_config": {"hidden_size": hidden}})
        vision = dict(so400m, image_size=364)
        model = Idefics3Model(Idefics3Config(
            vision_config=Idefics3VisionConfig(**vision), scale_factor=2,
            text_config=LlamaConfig(hidden_size=4096, num_attention_heads=32, **small_text)))
        write_names("idefics3-8b", shapes_of(model, *IDEFICS),
                    {"model_type": "idefics3", "scale_factor": 2, "vision_config": vision,
                     "text_config": {"hidden_size": 4096}})


if __name__ == "__main__":
    torch.manual_seed(0)
    small_towers()
    feature_map()
    published()
