"""Folders of Janus and Emu3 as image generators, with what AutoProcessor and the model make of them.

As fixtures_folders.py: drawn by a seed, saved by save_pretrained of transformers 4 or 5, some keys taken out, read
back and run by transformers 5: prompt ids, the other branch's ids, greedy image tokens, levels of the decoded pixels,
and what generate() settles of sampling. Weights are hashes of their names.

  python fixtures_generators.py save SCRATCH COUNT   # under transformers 4, then under 5
  python fixtures_generators.py run SCRATCH          # under transformers 5: writes tests/golden/generators
"""
import base64
import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, processors
from transformers import CONFIG_MAPPING, GenerationConfig, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fixtures_folders as ff  # noqa: E402
from folder_draws import CLIP_MEAN, CLIP_STD, ID, VOCAB, one, text_keys  # noqa: E402

MAJOR = ff.MAJOR
OUT = ff.OUT.parent / "generators"
CODES, LEAST_GAP, SALTS = 64, 0.01, 40
PROMPTS = ["A red cube on a table", "two cats", "a dog\nunder the rain ", "Night, \"neon\"", "x"]
CONTROL = ["<|extra_200|>", "<|extra_201|>", "<|extra_203|>", "<|extra_204|>", "<|image token|>",
           "<|image start|>", "<|image end|>"]
CODE_TOKENS = [f"<|visual token {i:06d}|>" for i in range(CODES)]
FIRST_CODE = VOCAB + len(CONTROL)
EMU3_ID = {t: VOCAB + i for i, t in enumerate(CONTROL + CODE_TOKENS)}
NEGATIVE = "blurry"

# --- draws --------------------------------------------------------------------------------------


def levels(r):
    """What the image processor's postprocess() reads."""
    keys = {}
    if r.random() < 0.7:
        keys["image_mean"], keys["image_std"] = one(
            r, ([0.5] * 3, [0.5] * 3), (CLIP_MEAN, CLIP_STD), ([0.1, 0.9, 0.3], [1.0, 0.5, 2.0]))
    if r.random() < 0.15:
        keys["do_normalize"] = False
    if r.random() < 0.25:
        keys["rescale_factor"] = one(r, 1 / 127.5, 1 / 256)
    return keys


def sampling(r):
    keys = {"do_sample": one(r, None, True, True, False)}
    for name, values in (("temperature", (0.7, 1.3)), ("top_k", (0, 5, 40)), ("top_p", (0.5, 0.9))):
        if keys["do_sample"] and r.random() < 0.5:
            keys[name] = one(r, *values)
    keys["guidance_scale"] = one(r, None, 5.0, 3.0, 1.5)
    return keys


JANUS_TEMPLATES = [
    "{% for m in messages %}<|User|>: {% for c in m['content'] %}{{ c['text'] }}{% endfor %}{{ '\n\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|Assistant|>:{% endif %}",
    "Draw what is asked.{{ '\n' }}{% for m in messages %}{{ m['role'] | capitalize }}: {% for c in m['content'] %}"
    "{{ c['text'] | trim }}{% endfor %}{{ '\n\n' }}{% endfor %}<|Assistant|>:",
    "{% for m in messages %}<|im_start|>{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<image_placeholder>{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>{% endfor %}<|Assistant|>:"]


def janus(r):
    patch, grid = one(r, 4, 5), one(r, 3, 4)
    vision = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": patch * grid,
              "patch_size": patch, "projection_dim": 32, "mlp_ratio": 1.0, "num_image_tokens": grid * grid,
              "depth": one(r, 1, 2)}
    vq = {"base_channels": 32, "channel_multiplier": one(r, [1, 1], [1, 2], [1, 1, 1]), "num_res_blocks": 1,
          "latent_channels": one(r, 16, 32), "embed_dim": 8, "num_embeddings": CODES, "num_patches": grid,
          "projection_dim": 32, "image_token_embed_dim": 32, "hidden_size": 32}
    image = {"size": {"height": patch * grid, "width": patch * grid}, **levels(r)}
    spec = {"text_type": "llama", "text": text_keys(r, "llama"), "vision": vision, "vq": vq, "image": image,
            "template": one(r, *JANUS_TEMPLATES), "boi": one(r, "<begin_of_image>", "<|vision_start|>"),
            "bos_added": r.random() < 0.6, "processor": {"num_image_tokens": grid * grid}}
    spec["generation"] = {**sampling(r), "pad_token_id": ID[one(r, "<pad>", "<|im_end|>")],
                          "bos_token_id": one(r, ID["<s>"], ID["<s>"], None)}
    spec["generation"]["generation_kwargs"] = {"boi_token_id": ID[one(r, spec["boi"], "<begin_of_image>")]}
    return spec


def emu3(r):
    text = text_keys(r, "llama")
    text["vocab_size"] = FIRST_CODE + CODES
    for key in ("head_dim", "attention_bias", "rope_scaling"):
        text.pop(key, None)
    text.update(bos_token_id=EMU3_ID["<|extra_203|>"], eos_token_id=EMU3_ID["<|extra_204|>"])
    text["mlp_bias"] = False
    vq = {"codebook_size": CODES, "embed_dim": 4, "latent_channels": 4, "base_channels": 32,
          "channel_multiplier": [1, 2], "num_res_blocks": 1, "attn_resolutions": [1], "hidden_size": 64}
    spec = {"text_type": "emu3_text_model", "text": text, "vq": vq, "image": levels(r), "grid": one(r, 3, 4),
            "bos_added": False, "boi": "<|image start|>", "template": JANUS_TEMPLATES[0], "processor": {}}
    spec["generation"] = {**sampling(r), "pad_token_id": ID["<pad>"], "bos_token_id": text["bos_token_id"],
                          "eos_token_id": text["eos_token_id"]}
    return spec


FAMILIES = {"janus": janus, "emu3": emu3}


def draw(family, number):
    r = random.Random(f"generates {family} {number}")
    spec = FAMILIES[family](r)
    spec.update(family=family, number=number, prompt=r.choice(PROMPTS), tied=family == "janus" and r.random() < 0.2)
    spec["dropped"] = r.sample(["do_rescale", "do_normalize", "rescale_factor", "image_mean", "image_std",
                                "image_processor_type", "resample"], r.choice([0, 0, 1, 3]))
    return spec


# --- saving -------------------------------------------------------------------------------------

def words(spec):
    core, named = ff.tokenizer()
    if spec["family"] == "emu3":
        core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in
                                 [f"<unused_{i}>" for i in range(core.get_vocab_size(), VOCAB)] + CONTROL])
        core.add_tokens([AddedToken(t, normalized=False) for t in CODE_TOKENS])
        assert core.token_to_id(CODE_TOKENS[0]) == FIRST_CODE
        named = {"image_token": "<image>", "eoi_token": "<|image end|>", "image_wrapper_token": "<|image token|>",
                 "eof_token": "<|extra_201|>"}
    named["boi_token"] = spec["boi"]
    if spec["bos_added"]:
        core.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", ID["<s>"])])
    kind = PreTrainedTokenizerFast
    if MAJOR < 5:
        kind = {"janus": transformers.LlamaTokenizerFast, "emu3": transformers.GPT2TokenizerFast}[spec["family"]]
    emu = spec["family"] == "emu3"
    made = kind(tokenizer_object=core, bos_token="<|extra_203|>" if emu else "<s>",
                eos_token="<|extra_204|>" if emu else "</s>", pad_token="<pad>",
                unk_token="</s>", clean_up_tokenization_spaces=False, extra_special_tokens=named)
    if MAJOR < 5 and spec["bos_added"]:  # the class of transformers 4 writes its own
        made._tokenizer.post_processor = core.post_processor
    return made


def config_of(spec):
    text = ff.text_config(spec)
    top = {"tie_word_embeddings": spec["tied"]}
    if spec["family"] == "emu3":
        names = {"<image>": ID["<image>"], **{t: EMU3_ID[t] for t in CONTROL + CODE_TOKENS}}
        return CONFIG_MAPPING["emu3"](text_config=text if isinstance(text, dict) else text.to_dict(), vq_config=spec["vq"], vocabulary_map=names, **top)
    from transformers import JanusVQVAEConfig
    return CONFIG_MAPPING["janus"](text_config=text, vision_config=spec["vision"],
                                   vq_config=JanusVQVAEConfig(**spec["vq"]), image_token_id=ID["<image_placeholder>"],
                                   **top)


def model_class(family):
    return {"janus": transformers.JanusForConditionalGeneration,
            "emu3": transformers.Emu3ForConditionalGeneration}[family]


def image_processor(spec):
    import importlib
    stem, module = {"janus": ("Janus", "janus"), "emu3": ("Emu3", "emu3")}[spec["family"]]
    pil = MAJOR >= 5 and spec["family"] == "janus"
    name = f"{stem}ImageProcessor" + ("Pil" if pil else "")
    file = ("image_processing_pil_" if pil else "image_processing_") + module
    return getattr(importlib.import_module(f"transformers.models.{module}.{file}"), name)(**spec["image"])


def save(scratch, count):
    for family in FAMILIES:
        for number in range(count):
            folder = scratch / f"{family}-{number}-v{MAJOR}"
            if (folder / "shapes.json").exists() or number % 2 != MAJOR % 2:
                continue
            spec = draw(family, number)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                model = model_class(family)(config_of(spec))
                keys = {k: v for k, v in spec["generation"].items() if v is not None}
                model.generation_config = GenerationConfig(**keys)
                shapes = ff.plain_weights(folder, model)
                kind = transformers.JanusProcessor if family == "janus" else transformers.Emu3Processor
                kind(image_processor=image_processor(spec), tokenizer=words(spec), chat_template=spec["template"],
                     **spec["processor"]).save_pretrained(folder)
            except Exception as error:  # the reference's own refusal: another draw
                print("skip", folder.name, type(error).__name__, str(error)[:300])
                continue
            ff.drop_keys(folder, spec["dropped"])
            path = folder / "tokenizer_config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()),
                                        "tokenizer_class": "PreTrainedTokenizerFast"}))
            (folder / "spec.json").write_text(json.dumps(spec))
            (folder / "shapes.json").write_text(json.dumps(shapes))
    print("saved under", transformers.__version__)


# --- running ------------------------------------------------------------------------------------

def settled(model):
    """What generate() makes of the folder's generation_config.json."""
    config, _ = model._prepare_generation_config(None)
    return {"do_sample": bool(config.do_sample), "temperature": config.temperature, "top_k": config.top_k,
            "top_p": config.top_p, "guidance": config.guidance_scale}


def says_do_sample(folder):
    path = folder / "generation_config.json"
    return path.exists() and json.loads(path.read_text()).get("do_sample") is not None


class Seen:
    """Guided logits of each step, and the prompts that the model embeds first."""

    def __init__(self, model, guide):
        self.rows, self.ids, self.guide, self.call = [], None, guide, guide.__call__
        self.hook = model.get_input_embeddings().register_forward_pre_hook(self.first)

    def first(self, _, inputs):
        if self.ids is None and inputs:
            self.ids = inputs[0].clone()

    def __enter__(self):
        def call(this, ids, scores):
            out = self.call(this, ids, scores)
            self.rows.append(out[0].clone())
            return out
        self.guide.__call__ = call
        return self

    def __exit__(self, *_):
        self.guide.__call__ = self.call
        self.hook.remove()


def run_janus(model, processor, spec):
    turns = [{"role": "user", "content": [{"type": "text", "text": spec["prompt"]}]}]
    prompt = processor.apply_chat_template(turns, add_generation_prompt=True)
    inputs = processor(text=prompt, generation_mode="image", return_tensors="pt")
    with Seen(model, transformers.generation.logits_process.ClassifierFreeGuidanceLogitsProcessor) as seen:
        tokens = model.generate(**inputs, generation_mode="image", do_sample=False)
    gaps = [float(row.topk(2).values.diff().abs()) for row in seen.rows]
    other = seen.ids[1].tolist()
    return inputs["input_ids"][0].tolist(), other, tokens[0].tolist(), min(gaps), model.decode_image_tokens(tokens)


def run_emu3(model, processor, spec):
    size = {"ratio": "1:1", "image_area": (8 * spec["grid"]) ** 2}
    make = lambda text: processor(text=text, return_for_image_generation=True, return_tensors="pt", **size)  # noqa: E731
    inputs, negative = make(spec["prompt"]), make(NEGATIVE)
    (height, width), prompt = inputs.pop("image_sizes")[0], inputs["input_ids"].shape[1]
    height, width = int(height), int(width)
    forced = {(width + 1) * height + 1: "<|extra_201|>", (width + 1) * height + 2: "<|image end|>",
              (width + 1) * height + 3: "<|extra_204|>"}
    codes = list(range(FIRST_CODE, FIRST_CODE + CODES))

    def allowed(_, ids):
        offset = ids.shape[0] - prompt + 1
        if offset in forced:
            return [EMU3_ID[forced[offset]]]
        return [EMU3_ID["<|extra_200|>"]] if offset % (width + 1) == 0 else codes

    rows = []
    extra = {}
    if (settled(model)["guidance"] or 1) > 1:
        extra = {"negative_prompt_ids": negative["input_ids"],
                 "negative_prompt_attention_mask": negative["attention_mask"]}
    out = model.generate(**inputs, max_new_tokens=(width + 1) * height + 3, prefix_allowed_tokens_fn=allowed,
                         do_sample=False, return_dict_in_generate=True, output_scores=True, **extra)
    rows = [s[0] for s in out.scores if int((s[0] > -1e30).sum()) > 1]
    gaps = [float(row.topk(2).values.diff().abs()) for row in rows]
    whole = out.sequences[:, prompt:]
    tokens = [t - FIRST_CODE for t in whole[0].tolist() if t >= FIRST_CODE]
    pixels = model.decode_image_tokens(image_tokens=whole, height=height, width=width)
    return inputs["input_ids"][0].tolist(), negative["input_ids"][0].tolist(), tokens, min(gaps), pixels


def levels_of(processor, pixels, family):
    """Janus' torch processor knows no Pillow images; without do_normalize Emu3's gives plane after plane."""
    wanted = "pt" if family == "janus" else "PIL.Image.Image"
    images = processor.postprocess(list(pixels.float()), return_tensors=wanted)["pixel_values"]
    image = np.asarray(images[0] if np.ndim(images[0]) == 3 else np.stack([np.asarray(i) for i in images]))
    if image.shape[0] == 3 and image.shape[2] != 3:
        image = image.transpose(1, 2, 0)
    assert image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3, (image.dtype, image.shape)
    return np.ascontiguousarray(image)


@torch.no_grad()
def run_one(folder):
    spec = json.loads((folder / "spec.json").read_text())
    shapes = json.loads((folder / "shapes.json").read_text())
    processor = transformers.AutoProcessor.from_pretrained(folder)
    run = run_janus if spec["family"] == "janus" else run_emu3
    for salt in range(SALTS):
        save_file({k: ff.weight(salt, k, s) for k, s in shapes.items()}, folder / "model.safetensors",
                  {"format": "pt"})
        model, info = model_class(spec["family"]).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        assert not info["unexpected_keys"] and not info["missing_keys"], info
        ids, other, tokens, gap, pixels = run(model.eval(), processor, spec)
        if gap >= LEAST_GAP and len(set(tokens)) >= 3:
            break
    else:
        raise ValueError("no weights keep the greedy tokens apart")
    (folder / "model.safetensors").unlink()
    image = levels_of(processor, pixels, spec["family"])
    return {"name": folder.name, "prompt": spec["prompt"], "salt": salt, "ids": ids, "other": other,
            "tokens": tokens, "grid": int(len(tokens) ** 0.5), "settled": settled(model), "says_do_sample": says_do_sample(folder),
            "size": list(image.shape[:2]), "levels": base64.b64encode(image.tobytes()).decode(), "shapes": shapes}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    scratch = Path(sys.argv[2])
    scratch.mkdir(parents=True, exist_ok=True)
    if sys.argv[1] == "save":
        save(scratch, int(sys.argv[3]))
    else:
        ff.write_corpus(scratch, OUT, run_one, in_parts=True)


if __name__ == "__main__":
    main()
