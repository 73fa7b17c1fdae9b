"""Folders of models that see images as codes (Emu3-Chat, Chameleon), with what AutoProcessor and the model make of them.

As fixtures_folders.py: drawn by a seed, saved by save_pretrained of transformers 4 or 5, some keys taken out, read
back and run by transformers 5: prompt ids, pixels, codes' ids, greedy tokens. Weights are hashes of their names.
The tree keeps Emu3's first ten and Chameleon's 0, 2, 5, 10, 12 to 16 and 27.

  python fixtures_code_images.py save SCRATCH COUNT   # under transformers 4, then under 5
  python fixtures_code_images.py run SCRATCH          # under transformers 5: writes tests/golden/code_images
"""
import json
import random
import sys
from pathlib import Path

import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from tokenizers import AddedToken, processors
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fixtures_folders as ff  # noqa: E402
import fixtures_generators as fg  # noqa: E402
from folder_draws import ID, QUESTIONS, VOCAB, level_keys, one, text_keys  # noqa: E402

MAJOR = ff.MAJOR
OUT = ff.OUT.parent / "code_images"
CODES, SIDE = 64, 8
BEGIN = "<|extra_203|>"
PARTS = ("{% for m in messages %}{{ m['role'] | upper }}: {% for c in m['content'] %}{% if c['type'] == 'image' %}<image>"
         "{% endif %}{% endfor %}{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] + ' ' }}{% endif %}"
         "{% endfor %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}")
TEMPLATES = [PARTS, "You are a helpful assistant. " + PARTS, BEGIN + "You are a helpful assistant. " + PARTS]

# Chameleon's vocabulary: image tokens, then control tokens.
CHAMELEON = ["<eoss>", "<racm3:break>", "<reserved08706>"]


def code_name(code):
    return "IMGIMG" + "".join("ABCDEFGHIJ"[int(digit)] for digit in str(code)) + "Z"


# --- draws --------------------------------------------------------------------------------------

def text_of(r, vocab):
    text = text_keys(r, "llama")
    for key in ("head_dim", "attention_bias", "mlp_bias", "rope_scaling"):
        text.pop(key, None)
    text["vocab_size"] = vocab
    return text


def emu3(r):
    text = text_of(r, fg.FIRST_CODE + CODES)
    text.update(bos_token_id=fg.EMU3_ID[BEGIN], eos_token_id=fg.EMU3_ID["<|extra_204|>"])
    deepest = one(r, 1, 2)
    vq = {"codebook_size": CODES, "embed_dim": 4, "latent_channels": 4, "base_channels": 32,
          "channel_multiplier": [1, 1, 1, deepest], "num_res_blocks": 1, "attn_resolutions": [3],
          "hidden_size": 32 * deepest}
    image = level_keys(r)
    least = SIDE * SIDE * one(r, 1, 4, 9)
    image.update(min_pixels=least, max_pixels=least + SIDE * SIDE * one(r, 3, 8, 20))
    return {"text": text, "text_type": "emu3_text_model", "vq": vq, "image": image, "template": one(r, *TEMPLATES),
            "boi": "<|image start|>"}


def chameleon(r):
    text = text_of(r, VOCAB + CODES + len(CHAMELEON) + 4)
    text["swin_norm"] = r.random() < 0.5
    text["model_parallel_size"] = one(r, 1, 2) if text["num_attention_heads"] == text["num_key_value_heads"] else 1
    grid, levels = one(r, 3, 4), one(r, 1, 2, 3)
    side = grid * 2 ** levels
    vq = {"base_channels": 32, "channel_multiplier": [1, *[one(r, 1, 2) for _ in range(levels)]], "num_res_blocks": 1,
          "latent_channels": 8, "embed_dim": 8, "num_embeddings": CODES, "resolution": side,
          "attn_resolutions": one(r, None, None, [grid])}
    image = level_keys(r)
    image.update(size=one(r, {"shortest_edge": side}, {"shortest_edge": side + r.randint(0, 9)},
                          {"height": side + 3, "width": side + 6}), crop_size={"height": side, "width": side})
    order = list(range(CODES))
    if r.random() < 0.5:
        r.shuffle(order)
    return {"text": text, "vq": vq, "image": image, "template": None, "order": order, "tokens": grid * grid}


FAMILIES = {"emu3": emu3, "chameleon": chameleon}


def draw(family, number):
    r = random.Random(f"codes {family} {number}")
    spec = FAMILIES[family](r)
    spec.update(family=family, number=number, question=r.choice(QUESTIONS),
                images=[[r.randint(12, 90), r.randint(12, 90), 1000 * number]],
                tied=family == "chameleon" and r.random() < 0.2)
    spec["dropped"] = r.sample(["do_resize", "do_rescale", "do_normalize", "do_convert_rgb", "rescale_factor",
                                "resample", "image_mean", "image_std", "image_processor_type"], r.choice([0, 0, 2, 4]))
    return spec


# --- saving -------------------------------------------------------------------------------------

def chameleon_words(spec):
    core, _ = ff.tokenizer()
    core.add_special_tokens([AddedToken(f"<unused_{i}>", special=True, normalized=False)
                             for i in range(core.get_vocab_size(), VOCAB)])
    core.add_special_tokens([AddedToken(code_name(c), special=True, normalized=False) for c in spec["order"]])
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CHAMELEON])
    core.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", ID["<s>"])])
    kind = PreTrainedTokenizerFast if MAJOR >= 5 else transformers.LlamaTokenizerFast
    made = kind(tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="</s>",
                sep_token="<reserved08706>", clean_up_tokenization_spaces=False)
    made._tokenizer.post_processor = core.post_processor
    return core, made


def vocabulary(core):
    return {t: i for t, i in core.get_vocab().items() if t.startswith("<") or t.startswith("IMGIMG")}


def config_of(spec, core):
    if spec["family"] == "emu3":
        return fg.config_of(spec)
    text = {k: v for k, v in ff.text_config({"text": spec["text"], "tied": spec["tied"], "text_type": "qwen2_x"}).items()}
    return CONFIG_MAPPING["chameleon"](vq_config=spec["vq"], vocabulary_map=vocabulary(core), **text)


def model_class(family):
    return {"emu3": transformers.Emu3ForConditionalGeneration,
            "chameleon": transformers.ChameleonForConditionalGeneration}[family]


def image_processor(spec):
    import importlib
    stem, module = {"emu3": ("Emu3", "emu3"), "chameleon": ("Chameleon", "chameleon")}[spec["family"]]
    pil = MAJOR >= 5 and spec["family"] == "chameleon"
    file = ("image_processing_pil_" if pil else "image_processing_") + module
    kind = getattr(importlib.import_module(f"transformers.models.{module}.{file}"),
                   f"{stem}ImageProcessor" + ("Pil" if pil else ""))
    return kind(**spec["image"])


def processor_of(spec, words):
    if spec["family"] == "emu3":
        return transformers.Emu3Processor(image_processor=image_processor(spec), tokenizer=words,
                                          chat_template=spec["template"])
    return transformers.ChameleonProcessor(image_processor=image_processor(spec), tokenizer=words,
                                           image_seq_length=spec["tokens"])


def save(scratch, count):
    for family in FAMILIES:
        for number in range(count):
            folder = scratch / f"{family}-{number}-v{MAJOR}"
            if (folder / "shapes.json").exists() or number % 2 != MAJOR % 2:
                continue
            spec = draw(family, number)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                core, words = (None, fg.words({**spec, "bos_added": False})) if family == "emu3" else chameleon_words(spec)
                model = model_class(family)(config_of(spec, core))
                shapes = ff.plain_weights(folder, model)
                processor_of(spec, words).save_pretrained(folder)
            except Exception as error:  # the reference's own refusal: another draw
                print("skip", folder.name, type(error).__name__, str(error)[:300])
                continue
            ff.drop_keys(folder, spec["dropped"])
            if MAJOR < 5 and family == "chameleon":  # it does not save what its successor reads
                path = folder / "processor_config.json"
                saved = json.loads(path.read_text()) if path.exists() else {}
                path.write_text(json.dumps({**saved, "image_seq_length": spec["tokens"]}))
            path = folder / "tokenizer_config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()),
                                        "tokenizer_class": "PreTrainedTokenizerFast"}))
            (folder / "spec.json").write_text(json.dumps(spec))
            (folder / "shapes.json").write_text(json.dumps(shapes))
    print("saved under", transformers.__version__)


# --- running ------------------------------------------------------------------------------------

def inputs_of(processor, spec):
    image = ff.drawn_image(*spec["images"][0])
    if spec["family"] == "chameleon":
        return processor(text="<image>" + spec["question"], images=[image], return_tensors="pt")
    turns = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": spec["question"]}]}]
    return processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=True,
                                         return_tensors="pt")


@torch.no_grad()
def run_one(folder):
    spec = json.loads((folder / "spec.json").read_text())
    shapes = json.loads((folder / "shapes.json").read_text())
    processor = transformers.AutoProcessor.from_pretrained(folder)
    if spec["family"] == "chameleon":
        processor.image_processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    inputs = inputs_of(processor, spec)
    ids = inputs["input_ids"][0].tolist()
    pixels = inputs["pixel_values"].float().contiguous()
    for salt in range(ff.SALTS):
        save_file({k: ff.weight(salt, k, s) for k, s in shapes.items()}, folder / "model.safetensors",
                  {"format": "pt"})
        model, info = model_class(spec["family"]).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        assert not info["unexpected_keys"] and not info["missing_keys"], info
        seen = [inputs["pixel_values"]] + ([inputs["image_sizes"]] if "image_sizes" in inputs else [])
        codes = model.model.get_image_tokens(*seen).flatten().tolist()
        out = model.eval().generate(**inputs, max_new_tokens=ff.NEW_TOKENS, do_sample=False, eos_token_id=None,
                                    pad_token_id=0, return_dict_in_generate=True, output_logits=True)
        tokens = out.sequences[0, len(ids):].tolist()
        best = torch.stack(out.logits)[:, 0].float().topk(2).values
        if float((best[:, 0] - best[:, 1]).min()) >= ff.LEAST_GAP and len(set(tokens)) >= 3 and len(set(codes)) >= 3:
            break
    else:
        raise ValueError("no weights keep the greedy tokens apart")
    (folder / "model.safetensors").unlink()
    return {"name": folder.name, "question": spec["question"], "images": spec["images"], "salt": salt,
            "ids": ff.run_lengths(ids), "pixels": ff.fnv(pixels.numpy().tobytes()), "numbers": pixels.numel(),
            "codes": codes, "greedy": tokens, "shapes": shapes}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    scratch = Path(sys.argv[2])
    scratch.mkdir(parents=True, exist_ok=True)
    if sys.argv[1] == "save":
        save(scratch, int(sys.argv[3]))
    else:
        Image.Image.resize = ff.across_first
        ff.write_corpus(scratch, OUT, run_one, in_parts=True)


if __name__ == "__main__":
    main()
