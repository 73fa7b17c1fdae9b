"""Folders of LLaVA's authors with what their own code makes of them.

Configurations are drawn by a seed as in fixtures_folders.py; the encoder's folder, `my-clip`, stands inside the model's
and says how images are prepared. Prompt ids, pixels and greedy tokens come from the classes of the package `llava`
(haotian-liu/LLaVA at c121f04; its generate() asks for an older transformers, so steps are taken one by one) under
transformers 4.57.

  PYTHONPATH=LLaVA python fixtures_authors_llava.py SCRATCH COUNT     # writes tests/golden/authors_llava
"""
import json
import random
import sys
from pathlib import Path

import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaForCausalLM, MistralForCausalLM, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fixtures_folders as ff  # noqa: E402
from folder_draws import CLIP_MEAN, CLIP_STD, ID, QUESTIONS, VOCAB, one, text_keys, vision_keys  # noqa: E402
from llava.constants import IMAGE_TOKEN_INDEX  # noqa: E402
from llava.conversation import conv_templates  # noqa: E402
from llava.mm_utils import process_images, tokenizer_image_token  # noqa: E402
from llava.model.language_model.llava_llama import LlavaConfig, LlavaLlamaForCausalLM  # noqa: E402
from llava.model.language_model.llava_mistral import LlavaMistralConfig, LlavaMistralForCausalLM  # noqa: E402

OUT = ff.OUT.parent / "authors_llava"
ENCODER = "my-clip"
CLASSES = {"llava_llama": (LlavaConfig, LlavaLlamaForCausalLM, LlamaForCausalLM),
           "llava_mistral": (LlavaMistralConfig, LlavaMistralForCausalLM, MistralForCausalLM)}


def draw(number):
    r = random.Random(f"authors {number}")
    kind = one(r, "llava_llama", "llava_llama", "llava_mistral")
    side, patch = one(r, (24, 6), (20, 5), (28, 7))
    tiles = r.random() < 0.5
    clip = vision_keys(r, "clip_vision_model", side, patch)
    image = {"crop_size": {"height": side, "width": side}, "do_center_crop": True, "do_normalize": True, "do_resize": True,
             "image_mean": CLIP_MEAN, "image_std": CLIP_STD, "image_processor_type": "CLIPImageProcessor",
             "resample": one(r, 3, 3, 2, 1), "size": {"shortest_edge": side if tiles else side + one(r, 0, 4)}}
    if r.random() < 0.4:
        image.update(image_mean=[0.5, 0.25, 0.75], image_std=one(r, [0.5] * 3, [1.0, 0.5, 2.0]))
    if r.random() < 0.2:
        image["do_normalize"] = False
    if r.random() < 0.2:
        image["rescale_factor"] = 1 / 127.5
    text = text_keys(r, kind.removeprefix("llava_"))
    text.pop("head_dim", None)
    keys = {"model_type": one(r, kind, "llava") if kind == "llava_llama" else kind, "mm_vision_tower": "somebody/" + ENCODER,
            "mm_hidden_size": 24, "mm_projector_type": one(r, "linear", "mlp1x_gelu", "mlp2x_gelu", "mlp3x_gelu"),
            "mm_vision_select_layer": one(r, -1, -2), "unfreeze_mm_vision_tower": True, "use_mm_proj": True}
    if not tiles:
        keys["image_aspect_ratio"] = one(r, "pad", "square", None)
        keys["mm_vision_select_feature"] = one(r, "patch", "cls_patch", None)
    else:
        sizes = [[side * a, side * b] for a, b in ((1, 2), (2, 1), (2, 2), (3, 1), (1, 3))]
        keys.update(image_aspect_ratio="anyres", mm_patch_merge_type="spatial_unpad",
                    image_grid_pinpoints=r.sample(sizes, r.choice([2, 5])))
    if r.random() < 0.5:
        keys["mm_use_im_start_end"] = keys["mm_use_im_patch_token"] = False
    keys = {k: v for k, v in keys.items() if v is not None}
    count = one(r, 1, 1, 2)
    return {"kind": kind, "clip": clip, "image": image, "text": text, "keys": keys, "bos_added": r.random() < 0.5,
            "form": "mistral_instruct" if kind == "llava_mistral" else "llava_v1" if tiles else "vicuna_v1",
            "question": one(r, *QUESTIONS),
            "images": [[r.randint(12, 90), r.randint(12, 90), 900000 + 10 * number + i] for i in range(count)]}


def save(folder, spec):
    """The folder without weights; the encoder's folder with some, as the authors' code wants them."""
    (folder / ENCODER).mkdir(parents=True, exist_ok=True)
    CLIPVisionModel(CLIPVisionConfig(**{k: v for k, v in spec["clip"].items() if k != "model_type"})).save_pretrained(
        folder / ENCODER)
    (folder / ENCODER / "preprocessor_config.json").write_text(json.dumps(spec["image"]))
    (folder / "config.json").write_text(json.dumps({**spec["text"], **spec["keys"]}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ID["</s>"]}))
    core, _ = ff.tokenizer()
    # Theirs has no token for images.
    core = ff.Tokenizer.from_str(core.to_str().replace('"<image>"', '"<picture>"').replace("<|im_start|>", "<|in_start|>"))
    if spec["bos_added"]:
        from tokenizers import processors
        core.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                            special_tokens=[("<s>", ID["<s>"])])
    PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>").save_pretrained(
        folder)


def loaded(folder, spec):
    config_class, model_class, _ = CLASSES[spec["kind"]]
    keys = json.loads((folder / "config.json").read_text())
    keys.pop("model_type")
    config = config_class(**{**keys, "mm_vision_tower": str(folder / ENCODER)})
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    return model, config


@torch.no_grad()
def steps(model, plain, rows):
    """Greedy tokens after these rows, and how far the best was ahead at least."""
    tokens, gap = [], float("inf")
    for _ in range(ff.NEW_TOKENS):
        best = plain.forward(model, inputs_embeds=rows, use_cache=False).logits[0, -1].topk(2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
        rows = torch.cat([rows, model.get_model().embed_tokens(best.indices[None, :1])], 1)
    return tokens, gap


@torch.no_grad()
def run_one(folder):
    spec = json.loads((folder / "spec.json").read_text())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)
    model, config = loaded(folder, spec)
    shapes = {k: list(v.shape) for k, v in model.state_dict().items() if not k.endswith("position_ids")}
    images = [ff.drawn_image(*size) for size in spec["images"]]
    pixels = process_images(images, model.get_vision_tower().image_processor, config)
    pixels = list(pixels) if not isinstance(pixels, list) else pixels
    talk = conv_templates[spec["form"]].copy()
    talk.append_message(talk.roles[0], "<image>\n" * len(images) + spec["question"])
    talk.append_message(talk.roles[1], None)
    ids = tokenizer_image_token(talk.get_prompt(), tokenizer, return_tensors="pt")[None]

    def rows_of(these, whose):
        return model.prepare_inputs_labels_for_multimodal(
            these, None, None, None, None, [pixels[i] for i in whose], [images[i].size for i in whose])[4]

    for salt in range(ff.SALTS):
        weights = {k: ff.weight(salt, k, s) for k, s in shapes.items()}
        missing, unexpected = model.load_state_dict(weights, strict=False)
        assert not unexpected and all(k.endswith("position_ids") for k in missing), (missing, unexpected)
        tokens, gap = steps(model, CLASSES[spec["kind"]][2], rows_of(ids, range(len(images))))
        if gap >= ff.LEAST_GAP and len(set(tokens)) >= 3:
            break
    else:
        raise ValueError("no weights keep the greedy tokens apart")
    counts = iter(rows_of(torch.tensor([[1, IMAGE_TOKEN_INDEX]]), [i]).shape[1] - 1 for i in range(len(images)))
    whole = []
    for i in ids[0].tolist():
        whole += [VOCAB] * next(counts) if i == IMAGE_TOKEN_INDEX else [i]
    flat = torch.cat([p.flatten() for p in pixels])
    return {"name": folder.name, "question": spec["question"], "images": spec["images"], "salt": salt,
            "ids": ff.run_lengths(whole), "pixels": ff.fnv(flat.numpy().tobytes()), "numbers": flat.numel(),
            "greedy": tokens, "shapes": shapes}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    Image.Image.resize = ff.across_first
    ff.FILES = (*ff.FILES, ENCODER + "/config.json", ENCODER + "/preprocessor_config.json")
    scratch = Path(sys.argv[1])
    for number in range(int(sys.argv[2])):
        folder = scratch / f"authors-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        spec = draw(number)
        save(folder, spec)
        (folder / "spec.json").write_text(json.dumps(spec))
        (folder / "shapes.json").write_text("{}")
    ff.write_corpus(scratch, OUT, run_one, in_parts=True)


if __name__ == "__main__":
    main()
