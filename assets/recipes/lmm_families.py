"""The tiny captioning models of fixtures_lmm.py: sizes, image processors, and the ids that stand for
a picture in a prompt, each as in the published family.
"""
import re
from dataclasses import dataclass, field

import torch
from transformers import (CLIPVisionConfig, Idefics3Config, Idefics3ForConditionalGeneration,
                          JanusConfig, JanusForConditionalGeneration, JanusVisionConfig,
                          JanusVQVAEConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration,
                          LlavaNextConfig, LlavaNextForConditionalGeneration, LlavaOnevisionConfig,
                          LlavaOnevisionForConditionalGeneration, MistralConfig, Qwen2Config,
                          Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig,
                          Qwen2VLForConditionalGeneration, SiglipVisionConfig, SmolVLMConfig,
                          SmolVLMForConditionalGeneration)
from transformers.image_processing_utils import select_best_resolution
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string
from transformers.vision_utils import get_vision_window_index

STEPS = {"do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True,
         "rescale_factor": 1 / 255}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3, **STEPS}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], **STEPS}
LLAVA_NAMES = (("lm_head.", "language_model.lm_head."),
               ("model.language_model.", "language_model.model."),
               ("model.vision_tower.", "vision_tower.vision_model."), ("model.", ""))
QWEN_NAMES = (("model.visual.", "visual."), ("model.language_model.", "model."))


@dataclass
class Case:
    prefix: str                                   # before the recorded names
    recorded: dict = field(default_factory=dict)  # what the image processor gave
    inputs: dict = field(default_factory=dict)    # of the model, beside the ids
    blocks: list = field(default_factory=list)    # the ids that stand for each picture


@dataclass
class Family:
    name: str
    model_class: type
    config: object
    processor: type
    preprocessor: dict
    sizes: tuple                 # (width, height) of the two pictures
    seed: int
    cases: object = None         # (model, images) -> cases
    projector: str = "model.multi_modal_projector"
    language_model: str = "model.language_model"
    rename: tuple = ()           # (prefix in memory, prefix in the published files)
    words: tuple = (8, 88)       # range of the ids of text
    bos: int | None = 1
    unpermute: bool = False      # the projector's rows stand in the order of windows

    def process(self, images, **switches):
        keys = {k: v for k, v in self.preprocessor.items()
                if k not in ("image_processor_type", "processor_class", "aspect_ratio_setting")}
        return self.processor(**keys)(images, return_tensors="pt", **switches)


TEXT_ONLY = Case("text.", blocks=[[]])


def llama(kind=LlamaConfig, layers=2, width=32, heads=4, kv=4, eps=1e-5, **extra):
    return kind(vocab_size=96, hidden_size=width, intermediate_size=16, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=512,
                rms_norm_eps=eps, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                tie_word_embeddings=False, **extra)


def clip(image, patch):
    return CLIPVisionConfig(hidden_size=24, intermediate_size=13, num_hidden_layers=3,
                            num_attention_heads=3, image_size=image, patch_size=patch,
                            projection_dim=16)


def picture_rows(model, **inputs):
    """How many rows of the language model each picture becomes."""
    return [len(rows) for rows in model.get_image_features(**inputs, return_dict=True).pooler_output]


# --- LLaVA --------------------------------------------------------------------------------------

def llava_cases(family):
    def cases(model, images):
        pixels = family.process(images)["pixel_values"]
        blocks = [[90] * n for n in picture_rows(model, pixel_values=pixels)]
        yield Case("", {"pixel_values": pixels}, {"pixel_values": pixels}, blocks)
        yield TEXT_ONLY
    return cases


def llava_15():
    config = LlavaConfig(vision_config=clip(16, 4), text_config=llama(), image_token_index=90,
                         vision_feature_layer=-2, vision_feature_select_strategy="default",
                         image_seq_length=16)
    family = Family(
        "llava-1.5", LlavaForConditionalGeneration, config, CLIPImageProcessorPil,
        {"image_processor_type": "CLIPImageProcessor", "processor_class": "LlavaProcessor",
         "do_center_crop": True, "crop_size": {"height": 16, "width": 16},
         "size": {"shortest_edge": 16}, **CLIP},
        ((23, 17), (14, 27)), 11, rename=LLAVA_NAMES)
    family.cases = llava_cases(family)
    return family


def llava_15_full():
    config = LlavaConfig(vision_config=clip(16, 4), text_config=llama(kv=2),
                         image_token_index=90, vision_feature_layer=[-2, -3],
                         vision_feature_select_strategy="full", image_seq_length=17)
    family = Family(
        "llava-1.5-full", LlavaForConditionalGeneration, config, LlavaImageProcessorPil,
        {"image_processor_type": "LlavaImageProcessor", "processor_class": "LlavaProcessor",
         "do_center_crop": True, "do_pad": True, "crop_size": {"height": 16, "width": 16},
         "size": {"shortest_edge": 16}, **CLIP},
        ((25, 18), (13, 22)), 12, rename=LLAVA_NAMES)
    family.cases = llava_cases(family)
    return family


def anyres_case(family, model, images, nested):
    """`nested`: the pictures as one list of a prompt, for which OneVision cuts no tiles."""
    out = family.process([images] if nested else images)
    sizes = out["image_sizes"]
    if nested:
        inputs = {"image_sizes": sizes, "batch_num_images": out["batch_num_images"]}
        tiles = [1, 1]
    else:
        inputs = {"image_sizes": sizes}
        side = family.config.vision_config.image_size
        grids = [best_grid(size, family.config.image_grid_pinpoints, side) for size in sizes.tolist()]
        tiles = [1 + rows * cols for rows, cols in grids]
    # The processor fills up with empty tiles to the longer of the two; the model drops them again.
    inputs["pixel_values"] = torch.cat([p[:n] for p, n in zip(out["pixel_values"], tiles)])
    for p, n in zip(out["pixel_values"], tiles):
        assert not p[n:].any()
    recorded = {"pixel_values": inputs["pixel_values"], "image_sizes": sizes,
                "tiles": torch.tensor(tiles)}
    blocks = [[90] * n for n in picture_rows(model, **inputs)]
    return Case("multi." if nested else "", recorded, inputs, blocks)


def best_grid(size, pinpoints, side):
    height, width = select_best_resolution(tuple(size), pinpoints)
    return height // side, width // side


def llava_next():
    pinpoints = [[16, 32], [32, 16], [32, 32], [48, 16], [16, 48]]
    text = llama(MistralConfig, kv=1, sliding_window=None, head_dim=8,
                 rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    config = LlavaNextConfig(vision_config=clip(16, 4), text_config=text, image_token_index=90,
                             vision_feature_layer=-2, vision_feature_select_strategy="default",
                             image_grid_pinpoints=pinpoints, image_seq_length=16)
    family = Family(
        "llava-next", LlavaNextForConditionalGeneration, config, LlavaNextImageProcessorPil,
        {"image_processor_type": "LlavaNextImageProcessor", "processor_class": "LlavaNextProcessor",
         "aspect_ratio_setting": "anyres", "do_center_crop": True, "do_pad": True,
         "crop_size": {"height": 16, "width": 16}, "size": {"shortest_edge": 16},
         "image_grid_pinpoints": pinpoints, **CLIP},
        ((40, 26), (14, 27)), 13, rename=LLAVA_NAMES)

    def cases(model, images):
        yield anyres_case(family, model, images, nested=False)
        yield TEXT_ONLY
    family.cases = cases
    return family


def llava_onevision():
    pinpoints = [[16 * rows, 16 * cols] for rows in range(1, 7) for cols in range(1, 7)]
    text = llama(Qwen2Config, kv=1, eps=1e-6, use_sliding_window=False,
                 rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    vision = SiglipVisionConfig(hidden_size=24, intermediate_size=13, num_hidden_layers=3,
                                num_attention_heads=3, image_size=16, patch_size=8,
                                vision_use_head=False)
    config = LlavaOnevisionConfig(
        vision_config=vision, text_config=text, image_token_index=90, video_token_index=91,
        vision_feature_layer=-1, vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_9", image_grid_pinpoints=pinpoints)
    family = Family(
        "llava-onevision", LlavaOnevisionForConditionalGeneration, config,
        LlavaOnevisionImageProcessorPil,
        {"image_processor_type": "LlavaOnevisionImageProcessor",
         "processor_class": "LlavaOnevisionProcessor", "do_pad": True, "resample": 3,
         "size": {"height": 16, "width": 16}, "image_grid_pinpoints": pinpoints, **HALF},
        ((50, 37), (18, 13)), 14, rename=LLAVA_NAMES, bos=None)

    def cases(model, images):
        yield anyres_case(family, model, images, nested=False)
        yield anyres_case(family, model, images, nested=True)
        yield TEXT_ONLY
    family.cases = cases
    return family


# --- Janus --------------------------------------------------------------------------------------

def janus():
    vision = JanusVisionConfig(hidden_size=24, num_hidden_layers=3, num_attention_heads=3,
                               image_size=16, patch_size=4, projection_dim=32, mlp_ratio=1.0,
                               num_image_tokens=16)
    vq = JanusVQVAEConfig(base_channels=32, channel_multiplier=[1, 1], num_res_blocks=1,
                          latent_channels=16, embed_dim=8, num_embeddings=64, num_patches=4,
                          projection_dim=32, image_token_embed_dim=32)
    config = JanusConfig(text_config=llama(eps=1e-6), vision_config=vision, vq_config=vq,
                         image_token_id=90, tie_word_embeddings=False)
    family = Family(
        "janus", JanusForConditionalGeneration, config, JanusImageProcessorPil,
        {"image_processor_type": "JanusImageProcessor", "processor_class": "JanusProcessor",
         "do_pad": True, "min_size": 5, "resample": 3, "size": {"height": 16, "width": 16}, **HALF},
        ((25, 17), (14, 22)), 15, projector="model.aligner")

    def cases(_, images):
        pixels = family.process(images)["pixel_values"]
        block = [92] + [90] * 16 + [93]
        yield Case("", {"pixel_values": pixels}, {"pixel_values": pixels}, [block, block])
        yield TEXT_ONLY
    family.cases = cases
    return family


# --- Qwen2-VL, Qwen2.5-VL -----------------------------------------------------------------------

def qwen(name, kind, model_class, vision, seed):
    text = {k: v for k, v in llama(Qwen2Config, heads=2, kv=1, eps=1e-6,
                                   use_sliding_window=False).to_dict().items()
            if k not in ("model_type", "rope_parameters", "layer_types", "sliding_window",
                         "architectures", "dtype", "transformers_version")}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    config = kind(vision_config=vision, text_config=text, image_token_id=90, video_token_id=91,
                  vision_start_token_id=92, vision_end_token_id=93, tie_word_embeddings=False)
    # Factor 8: the first picture is over the most pixels, the second under the fewest.
    family = Family(
        name, model_class, config, Qwen2VLImageProcessorPil,
        {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"
         if "5" in name else "Qwen2VLProcessor", "min_pixels": 192, "max_pixels": 768,
         "patch_size": 4, "temporal_patch_size": 2, "merge_size": 2, **CLIP},
        ((48, 36), (11, 13)), seed, projector="model.visual.merger", rename=QWEN_NAMES, bos=None,
        unpermute="5" in name)

    def cases(_, images):
        out = family.process(images)
        pixels, grid = out["pixel_values"], out["image_grid_thw"]
        inputs = {"pixel_values": pixels, "image_grid_thw": grid}
        recorded = dict(inputs)
        if family.unpermute:
            recorded["window_index"], _ = get_vision_window_index(
                grid, spatial_merge_size=2, window_size=vision["window_size"], patch_size=4)
        blocks = [[92] + [90] * int(g.prod() // 4) + [93] for g in grid]
        yield Case("", recorded, inputs, blocks)
        yield TEXT_ONLY
    family.cases = cases
    return family


def qwen2_vl():
    vision = dict(depth=3, embed_dim=24, hidden_size=32, num_heads=3, mlp_ratio=1, patch_size=4)
    return qwen("qwen2-vl", Qwen2VLConfig, Qwen2VLForConditionalGeneration, vision, 16)


def qwen2_5_vl():
    vision = dict(depth=3, hidden_size=24, out_hidden_size=32, num_heads=3, intermediate_size=13,
                  patch_size=4, window_size=16, fullatt_block_indexes=[1], tokens_per_second=2)
    return qwen("qwen2.5-vl", Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, vision, 17)


# --- Idefics3, SmolVLM --------------------------------------------------------------------------

MARKERS = {"<image>": 90, "<fake>": 91, "<global>": 92, "\n": 10, "\n\n": 11}


def marker_ids(rows, cols, count):
    """The library's own string of markers as ids; <row_r_col_c> is 75 + 6 (r - 1) + (c - 1)."""
    text = get_image_prompt_string(rows, cols, count, fake_token_around_image="<fake>",
                                   image_token="<image>", global_image_token="<global>")
    ids = []
    for piece in re.findall(r"<[^>]*>|\n+", text):
        place = re.match(r"<row_(\d)_col_(\d)>", piece)
        ids.append(69 + 6 * int(place[1]) + int(place[2]) - 1 if place else MARKERS[piece])
    return ids


def tiled(family, count):
    def case(images, prefix, **switches):
        out = family.process([images], return_row_col_info=True, **switches)
        pixels, mask = out["pixel_values"], out["pixel_attention_mask"]
        rows, cols = out["rows"][0], out["cols"][0]
        tiles = [1 + int(r) * int(c) for r, c in zip(rows, cols)]
        recorded = {"pixel_values": pixels[0], "pixel_attention_mask": mask[0].to(torch.uint8),
                    "tiles": torch.tensor(tiles),
                    "grids": torch.tensor([[int(r), int(c)] for r, c in zip(rows, cols)])}
        blocks = [marker_ids(int(r), int(c), count) for r, c in zip(rows, cols)]
        return Case(prefix, recorded, {"pixel_values": pixels, "pixel_attention_mask": mask}, blocks)

    def cases(_, images):
        yield case(images, "")
        if family.name == "smolvlm":
            yield case(images, "single.", do_image_splitting=False)
        yield TEXT_ONLY
    return cases


def idefics(name, kind, model_class, processor, image, patch, scale, text, sizes, seed):
    vision = dict(hidden_size=24, intermediate_size=13, num_hidden_layers=3, num_attention_heads=3,
                  image_size=image, patch_size=patch)
    config = kind(vision_config=vision, text_config=text, scale_factor=scale, image_token_id=90,
                  tie_word_embeddings=False, pad_token_id=0)
    family = Family(
        name, model_class, config, processor,
        {"image_processor_type": processor.__name__.removesuffix("Pil"),
         "processor_class": "Idefics3Processor" if name == "idefics3" else "SmolVLMProcessor",
         "do_image_splitting": True, "do_pad": True, "resample": 1,
         "max_image_size": {"longest_edge": image}, "size": {"longest_edge": 2 * image}, **HALF},
        sizes, seed, projector="model.connector", language_model="model.text_model", words=(12, 75))
    family.cases = tiled(family, (image // patch // scale) ** 2)
    return family


def idefics3():
    # Wavelengths 6, 30, 140 and 660 tokens: one is kept, one is in between, two are stretched.
    rope = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    text = llama(kv=1, rope_parameters=rope)
    return idefics("idefics3", Idefics3Config, Idefics3ForConditionalGeneration,
                   Idefics3ImageProcessorPil, 16, 4, 2, text, ((40, 25), (15, 31)), 18)


def smolvlm():
    text = llama(kv=1,
                 rope_parameters={"rope_type": "default", "rope_theta": 130000.0})
    return idefics("smolvlm", SmolVLMConfig, SmolVLMForConditionalGeneration,
                   SmolVLMImageProcessorPil, 18, 3, 3, text, ((40, 17), (15, 31)), 19)


FAMILIES = {"llava-1.5": llava_15, "llava-1.5-full": llava_15_full, "llava-next": llava_next,
            "llava-onevision": llava_onevision, "janus": janus, "qwen2-vl": qwen2_vl,
            "qwen2.5-vl": qwen2_5_vl, "idefics3": idefics3, "smolvlm": smolvlm}
