"""Draws folders of the describing families from the legal space of each reference class: sizes, processor
keys, prompts and images. Read by fixtures_folders.py under transformers 4 and 5."""
import random

CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
SPECIAL = ["<pad>", "<s>", "</s>", "<image>", "<video>", "<|im_start|>", "<|im_end|>", "<|vision_start|>",
           "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|begin_of_text|>", "<end_of_utterance>",
           "<fake_token_around_image>", "<global-img>", "<image_placeholder>", "<begin_of_image>",
           "<end_of_image>", "<|User|>", "<|Assistant|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"]
SPECIAL += [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
BYTES = 256
ID = {token: BYTES + i for i, token in enumerate(SPECIAL)}
VOCAB = 320
QUESTIONS = ["Describe the picture.", "What is this?", "How many cats?", "Name three colours, please",
             "Is it day or night?", "Read the sign: \"STOP\""]


def one(r, *values):
    return r.choice(values)


def text_keys(r, kind):
    heads = one(r, 2, 4)
    keys = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": one(r, 16, 24, 48),
            "num_hidden_layers": one(r, 1, 2), "num_attention_heads": heads,
            "num_key_value_heads": one(r, 1, heads), "max_position_embeddings": one(r, 2048, 4096),
            "rms_norm_eps": one(r, 1e-5, 1e-6, 1e-3), "bos_token_id": ID["<s>"],
            "eos_token_id": ID["</s>"], "pad_token_id": ID["<pad>"],
            "rope_theta": one(r, 500.0, 10000.0, 1e6)}
    if kind == "mistral":
        keys["sliding_window"] = None
    if kind in ("llama", "mistral") and r.random() < 0.3:
        keys["head_dim"] = one(r, 8, 16)
    if kind == "llama" and r.random() < 0.25:
        keys["rope_scaling"] = {"rope_type": "llama3", "factor": one(r, 4.0, 8.0), "low_freq_factor": 1.0,
                                "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    if kind == "llama" and r.random() < 0.08:
        keys["rope_scaling"] = {"rope_type": one(r, "linear", "dynamic"), "factor": 2.0}
    if kind == "llama" and r.random() < 0.06:
        keys[one(r, "attention_bias", "mlp_bias")] = True
    return keys


def vision_keys(r, kind, image, patch):
    heads = one(r, 2, 3)
    keys = {"model_type": kind, "hidden_size": 24, "intermediate_size": one(r, 12, 20, 36),
            "num_hidden_layers": one(r, 2, 3), "num_attention_heads": heads, "image_size": image,
            "patch_size": patch}
    if r.random() < 0.4:
        keys["hidden_act"] = one(r, "quick_gelu", "gelu", "gelu_pytorch_tanh")
    if r.random() < 0.3:
        keys["layer_norm_eps"] = one(r, 1e-5, 1e-6, 1e-3)
    if kind == "siglip_vision_model":
        keys["vision_use_head"] = one(r, True, False)
    return keys


def level_keys(r):
    """Filters, means and switches that every class has."""
    keys = {}
    if r.random() < 0.5:
        keys["resample"] = one(r, 1, 2, 3, 3, 4)
    if r.random() < 0.5:
        keys["image_mean"], keys["image_std"] = one(
            r, (CLIP_MEAN, CLIP_STD), ([0.5] * 3, [0.5] * 3), ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ([0.1, 0.9, 0.3], [1.0, 0.5, 2.0]))
    if r.random() < 0.15:
        keys["do_normalize"] = False
    if r.random() < 0.1:
        keys.update(do_rescale=False, image_mean=[120.0, 110.0, 100.0], image_std=[60.0, 61.0, 62.0])
    elif r.random() < 0.15:
        keys["rescale_factor"] = one(r, 1 / 127.5, 1 / 256)
    return keys


def single_view(r, spec, kind, image):
    keys = level_keys(r)
    if kind == "SiglipImageProcessor":
        keys["size"] = {"height": image, "width": image}
    else:
        keys["crop_size"] = one(r, image, {"height": image, "width": image})
        keys["size"] = one(r, {"shortest_edge": image}, {"shortest_edge": image},
                           {"shortest_edge": image + r.randint(-6, 14)}, image,
                           {"height": image + r.randint(-4, 9), "width": image + r.randint(-4, 9)})
        if kind == "LlavaImageProcessor":
            keys["do_pad"] = one(r, True, False)
            if r.random() < 0.3 and keys["do_pad"]:
                keys.update(size={"shortest_edge": image}, do_center_crop=False)
    spec["image"] = keys


def llava(r):
    clip = r.random() < 0.7
    patch = one(r, 4, 6, 7)
    image = patch * one(r, 3, 4, 5) + one(r, 0, 0, 0, 2)
    kind = one(r, "llama", "llama", "mistral", "qwen2")
    spec = {"text_type": kind, "text": text_keys(r, kind),
            "vision": vision_keys(r, "clip_vision_model" if clip else "siglip_vision_model", image, patch),
            "class": one(r, "CLIPImageProcessor", "LlavaImageProcessor") if clip else
            one(r, "SiglipImageProcessor", "SiglipImageProcessor", "CLIPImageProcessor")}
    layers = spec["vision"]["num_hidden_layers"]
    strategy = one(r, "default", "default", "full") if clip else "full"
    spec["top"] = {"image_token_index": ID["<image>"], "vision_feature_select_strategy": strategy,
                   "vision_feature_layer": one(r, -2, -1, -layers, [-1, -2])}
    if r.random() < 0.3:
        spec["top"]["projector_hidden_act"] = one(r, "gelu", "gelu_pytorch_tanh", "quick_gelu")
    if r.random() < 0.2:
        spec["top"]["multimodal_projector_bias"] = False
    spec["processor"] = {"patch_size": patch, "vision_feature_select_strategy": strategy,
                         "num_additional_image_tokens": 1 if clip else 0}
    single_view(r, spec, spec["class"], image)
    spec["chat"] = "llava"
    return spec


def pinpoints(r, side):
    grids = [(a, b) for a in range(1, 5) for b in range(1, 5) if a * b <= 6]
    return [[side * a, side * b] for a, b in r.sample(grids, r.randint(2, 6))]


def llava_next(r):
    patch = one(r, 4, 7)
    image = patch * one(r, 3, 4)
    kind = one(r, "llama", "mistral", "qwen2")
    grids = pinpoints(r, image)
    spec = {"text_type": kind, "text": text_keys(r, kind), "class": "LlavaNextImageProcessor",
            "vision": vision_keys(r, "clip_vision_model", image, patch)}
    spec["top"] = {"image_token_index": ID["<image>"], "vision_feature_layer": one(r, -2, -1),
                   "image_grid_pinpoints": grids}
    spec["processor"] = {"patch_size": patch, "vision_feature_select_strategy": "default",
                         "num_additional_image_tokens": 1}
    spec["image"] = level_keys(r)
    spec["image"].update(image_grid_pinpoints=grids, crop_size={"height": image, "width": image},
                         size=one(r, {"shortest_edge": image}, {"height": image, "width": image}, image))
    if r.random() < 0.2:
        spec["image"]["do_center_crop"] = False
    if r.random() < 0.2:
        spec["image"]["do_resize"] = False
    spec["chat"] = "mistral" if kind == "mistral" else "yi"
    return spec


def llava_onevision(r):
    patch = one(r, 5, 7)
    image = patch * 4 if r.random() < 0.7 else patch * 3 + 1
    grids = pinpoints(r, image)
    ratio = f"anyres_max_{one(r, 1, 2, 4, 9)}"
    spec = {"text_type": "qwen2", "text": text_keys(r, "qwen2"), "class": "LlavaOnevisionImageProcessor",
            "vision": vision_keys(r, "siglip_vision_model", image, patch), "chat": "onevision"}
    spec["top"] = {"image_token_index": ID["<image>"], "video_token_index": ID["<video>"],
                   "vision_feature_select_strategy": "full", "vision_feature_layer": -1,
                   "image_grid_pinpoints": grids, "vision_aspect_ratio": ratio}
    spec["processor"] = {"num_image_tokens": (image // patch) ** 2, "vision_aspect_ratio": ratio,
                         "vision_feature_select_strategy": "full"}
    spec["image"] = level_keys(r)
    spec["image"].update(image_grid_pinpoints=grids, size={"height": image, "width": image})
    spec["count"] = one(r, 1, 1, 2)
    return spec


def qwen(r, version):
    patch, merge = one(r, 4, 6, 14), 2
    heads = one(r, 2, 3)
    vision = {"depth": one(r, 2, 3), "num_heads": heads, "patch_size": patch, "spatial_merge_size": merge}
    if version == "qwen2_vl":
        vision.update(embed_dim=24 if heads == 3 else 16, hidden_size=32, mlp_ratio=one(r, 1, 2))
        if r.random() < 0.3:
            vision["hidden_act"] = one(r, "gelu", "quick_gelu")
    else:
        vision.update(hidden_size=24 if heads == 3 else 16, out_hidden_size=32,
                      intermediate_size=one(r, 12, 20), window_size=patch * merge * one(r, 1, 2, 3),
                      fullatt_block_indexes=[1], tokens_per_second=one(r, 2, 4))
    text = text_keys(r, "qwen2")
    text.pop("pad_token_id")
    half = 32 // text["num_attention_heads"] // 2
    section = {8: [2, 3, 3], 4: [2, 1, 1]}[half]
    text["rope_scaling"] = {"type": "mrope", "mrope_section": section}
    unit = patch * merge
    least, most = unit * unit * one(r, 1, 2, 4), unit * unit * one(r, 9, 16, 30)
    spec = {"text_type": version, "text": text, "vision": vision, "class": "Qwen2VLImageProcessor",
            "chat": "qwen", "processor": {}, "count": one(r, 1, 1, 2)}
    spec["top"] = {"image_token_id": ID["<|image_pad|>"], "video_token_id": ID["<|video_pad|>"],
                   "vision_start_token_id": ID["<|vision_start|>"],
                   "vision_end_token_id": ID["<|vision_end|>"]}
    spec["image"] = level_keys(r)
    spec["image"].update(patch_size=patch, temporal_patch_size=2, merge_size=merge)
    edges = {"shortest_edge": least, "longest_edge": most}
    spec["image"].update(one(r, {"size": edges}, {"min_pixels": least, "max_pixels": most},
                             {"size": edges, "max_pixels": most // 2}))
    return spec


def tiles(r, kind):
    patch, scale = one(r, (4, 2), (3, 3), (5, 2))
    side = patch * scale * one(r, 2, 3)
    trained = side if r.random() < 0.7 else patch * scale * 2
    vision = vision_keys(r, f"{kind}_vision" if kind == "smolvlm" else "idefics3_vision", trained, patch)
    vision.pop("model_type")
    spec = {"text_type": "llama", "text": text_keys(r, "llama"), "vision": vision, "chat": kind,
            "class": "SmolVLMImageProcessor" if kind == "smolvlm" else "Idefics3ImageProcessor",
            "top": {"scale_factor": scale, "image_token_id": ID["<image>"], "pad_token_id": ID["<pad>"]},
            "processor": {"image_seq_len": (side // patch // scale) ** 2}, "count": one(r, 1, 1, 2)}
    spec["image"] = level_keys(r)
    spec["image"].update(max_image_size={"longest_edge": side}, do_image_splitting=one(r, True, True, False))
    spec["image"]["size"] = one(r, {"longest_edge": 2 * side}, {"longest_edge": side + 7},
                                {"longest_edge": 3 * side},
                                {"height": side + r.randint(0, 40), "width": side + r.randint(0, 40)})
    if r.random() < 0.12:
        spec["image"]["do_resize"] = False
    return spec


def janus(r):
    patch = one(r, 4, 5)
    image = patch * one(r, 3, 4)
    heads = one(r, 2, 3)
    vision = {"hidden_size": 24, "num_hidden_layers": one(r, 2, 3), "num_attention_heads": heads,
              "image_size": image, "patch_size": patch, "projection_dim": 32, "mlp_ratio": one(r, 1.0, 0.5, 2.0),
              "num_image_tokens": (image // patch) ** 2, "depth": one(r, 1, 2, 2, 3)}
    spec = {"text_type": "llama", "text": text_keys(r, "llama"), "vision": vision, "chat": "janus",
            "class": "JanusImageProcessor", "top": {"image_token_id": ID["<image_placeholder>"]},
            "processor": {"num_image_tokens": (image // patch) ** 2}, "count": one(r, 1, 1, 2)}
    spec["image"] = level_keys(r)
    spec["image"].update(size=one(r, {"height": image, "width": image}, image), min_size=r.randint(1, image))
    return spec


FAMILIES = {"llava": llava, "llava_next": llava_next, "llava_onevision": llava_onevision,
            "qwen2_vl": lambda r: qwen(r, "qwen2_vl"), "qwen2_5_vl": lambda r: qwen(r, "qwen2_5_vl"),
            "idefics3": lambda r: tiles(r, "idefics3"), "smolvlm": lambda r: tiles(r, "smolvlm"),
            "janus": janus}


def draw(family, number):
    """The folder of that number: the same under every version."""
    r = random.Random(f"{family} {number}")
    spec = FAMILIES[family](r)
    spec.update(family=family, number=number, question=r.choice(QUESTIONS))
    spec["tied"] = r.random() < 0.2
    # Means are colours of padding as well, and those are bytes.
    if "do_rescale" in spec["image"] and (family == "janus" or spec["image"].get("do_pad")):
        spec["image"].update(image_mean=[0.5, 0.25, 0.75], image_std=[40.0, 41.0, 42.0])
    count = spec.pop("count", 1)
    spec["images"] = [[r.randint(12, 90), r.randint(12, 90), 1000 * number + i] for i in range(count)]
    # Keys that are taken out of the saved processor file: their class's defaults rule.
    spec["dropped"] = r.sample(["do_resize", "do_rescale", "do_normalize", "do_convert_rgb", "rescale_factor",
                                "resample", "image_mean", "image_std", "do_center_crop", "do_pad",
                                "image_processor_type"], r.choice([0, 0, 2, 5]))
    return spec
