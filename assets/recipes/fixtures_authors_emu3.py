"""Folders of Emu3's authors with what their own code makes of them.

Configurations are drawn by a seed. Steps and constants are those of image_generation.py (baaivision/Emu3 at f6ea9aa):
their processor with its constraint, their tokenizers, guidance by transformers' class, but greedy. The tokenizer of
texts is a list of words for tiktoken; tokenizer.json says the same. Their code asks for transformers 4.44: this ran
under 4.45.

  python fixtures_authors_emu3.py EMU3 SCRATCH COUNT          # writes tests/golden/authors_emu3
  python fixtures_authors_emu3.py EMU3 SCRATCH COUNT wide     # of more kinds, with weights and wanted.png, no golden
"""
import ast
import base64
import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers.generation import (GenerationConfig, LogitsProcessorList, PrefixConstrainedLogitsProcessor,
                                     UnbatchedClassifierFreeGuidanceLogitsProcessor)

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, sys.argv[1])
import fixtures_folders as ff  # noqa: E402
from folder_draws import CLIP_MEAN, CLIP_STD, one  # noqa: E402
from emu3.mllm import tokenization_emu3 as texts  # noqa: E402
from emu3.mllm.configuration_emu3 import Emu3Config  # noqa: E402
from emu3.mllm.modeling_emu3 import Emu3ForCausalLM  # noqa: E402
from emu3.mllm.processing_emu3 import Emu3Processor  # noqa: E402
from emu3.tokenizer.configuration_emu3visionvq import Emu3VisionVQConfig  # noqa: E402
from emu3.tokenizer.image_processing_emu3visionvq import Emu3VisionVQImageProcessor  # noqa: E402
from emu3.tokenizer.modeling_emu3visionvq import Emu3VisionVQModel  # noqa: E402

OUT = ff.OUT.parent / "authors_emu3"
VQ = "vision_tokenizer"
CODES, LEAST_GAP, SALTS, WIDE = 40, 0.01, 40, len(sys.argv) > 4
MERGES = ["t h", "th e", "r e", "\u0120 a", "c a", "ca t", "1 2"]
WORDS = {letter: i for i, letter in enumerate(ff.byte_letters())}
WORDS |= {merge.replace(" ", ""): 256 + i for i, merge in enumerate(MERGES)}
texts.SPECIAL_START_ID = len(WORDS)
texts.EXTRAS = tuple(f"<|extra_{i}|>" for i in (0, 199, *range(200, 205)))
IMAGE_TOKENS = ["<|image token|>", "<|image start|>", "<|image end|>"]
VISION_TOKENS = IMAGE_TOKENS + [f"<|visual token {i:06d}|>" for i in range(CODES)]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *texts.EXTRAS, *VISION_TOKENS]
ID = {token: len(WORDS) + i for i, token in enumerate(SPECIAL)}
PROMPTS = ["a portrait of young girl.", "a shiba inu", " there the cat\n", "12 cats 123", "e\u0301t\u00e9 \u732b", "<|extra_203|>x",
           "a <|image start|> sign", "Night, \"neon\"", "x\x1c\u00a0y  ", "<|endoftext|>", "<|extra_200|> row"]


def script():
    """Constants of their script."""
    lines = ast.parse((Path(sys.argv[1]) / "image_generation.py").read_text()).body
    return {line.targets[0].id: ast.literal_eval(line.value) for line in lines if isinstance(line, ast.Assign)
            and isinstance(line.targets[0], ast.Name) and isinstance(line.value, ast.Constant)}


SCRIPT = script()


def draw(number):
    r = random.Random(f"authors emu3 {number}")
    heads = one(r, 2, 4)
    levels = one(r, [1, 2], [1, 2, 2], [1, 1, 2]) if WIDE else [1, 2]
    factor = 2 ** (len(levels) - 1)
    side = one(r, 3, 4, 5, 3.5, 4.5)
    # Their constraint never ends a grid of two columns, which no image of theirs has.
    ratio = "1:1" if side < 4 else one(r, "1:1", "1:1", "4:3", "16:9", "9:16", "3:2")
    vq = {"codebook_size": CODES, "embed_dim": 4, "z_channels": 4, "ch": 32, "ch_mult": levels,
          "num_res_blocks": one(r, 1, 2) if WIDE else 1, "attn_resolutions": [len(levels) - 1],
          "temporal_downsample_factor": one(r, 4, 2) if WIDE else 4}
    text = {"vocab_size": len(WORDS) + len(SPECIAL), "hidden_size": 32, "intermediate_size": one(r, 16, 24, 48),
            "num_hidden_layers": one(r, 1, 2), "num_attention_heads": heads, "num_key_value_heads": one(r, 1, heads),
            "max_position_embeddings": one(r, 512, 1024), "rms_norm_eps": one(r, 1e-5, 1e-6),
            "rope_theta": one(r, 1e6, 1e4), "tie_word_embeddings": r.random() < 0.15,
            "image_area": int((side * factor) ** 2)}
    if r.random() < 0.1:
        text["rope_scaling"] = {"type": "linear", "factor": 2.0}
    image = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "rescale_factor": 1 / 255, "do_rescale": True,
             "do_normalize": True}
    if r.random() < 0.2:
        image.update(image_mean=CLIP_MEAN, image_std=CLIP_STD)
    return {"vq": vq, "text": text, "image": image, "ratio": ratio, "side": side, "factor": factor,
            "prompt": PROMPTS[number % len(PROMPTS)], "other": one(r, "blurry", None),
            "guidance": one(r, SCRIPT["classifier_free_guidance"], SCRIPT["classifier_free_guidance"], 1.5, 5.0)}


def write_words(folder):
    """Their two files, and the same as tokenizer.json."""
    letters = {letter: byte for byte, letter in enumerate(ff.byte_letters())}
    raw = {bytes(letters[c] for c in word): rank for word, rank in WORDS.items()}
    (folder / "emu3.tiktoken").write_text("".join(
        f"{base64.b64encode(word).decode()} {rank}\n" for word, rank in raw.items()))
    (folder / "emu3_vision_tokens.txt").write_text("\n".join(VISION_TOKENS) + "\n")
    core = Tokenizer(models.BPE(vocab=WORDS, merges=[tuple(m.split(" ")) for m in MERGES]))
    core.normalizer = normalizers.NFC()
    core.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(texts.PAT_STR), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "Emu3Tokenizer", "bos_token": "<|extra_203|>", "eos_token": "<|extra_204|>",
        "pad_token": "<|endoftext|>", "img_token": "<|image token|>", "boi_token": "<|image start|>",
        "eoi_token": "<|image end|>", "eol_token": "<|extra_200|>", "eof_token": "<|extra_201|>",
        "model_max_length": 1000000000000000019884624838656, "clean_up_tokenization_spaces": False}))


def save(folder, spec):
    (folder / VQ).mkdir(parents=True, exist_ok=True)
    ids = {"pad": "<|endoftext|>", "bos": "<|extra_203|>", "eos": "<|extra_204|>", "img": "<|image token|>",
           "boi": "<|image start|>", "eoi": "<|image end|>", "eol": "<|extra_200|>", "eof": "<|extra_201|>"}
    config = Emu3Config(**spec["text"], **{f"{key}_token_id": ID[token] for key, token in ids.items()})
    keys = {**config.to_dict(), "architectures": ["Emu3ForCausalLM"], "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(keys))
    (folder / "generation_config.json").write_text(json.dumps({
        "_from_model_config": True, "bos_token_id": ID[ids["bos"]], "eos_token_id": ID[ids["eos"]],
        "pad_token_id": ID[ids["pad"]], "transformers_version": "4.44.0"}))
    keys = {**Emu3VisionVQConfig(**spec["vq"]).to_dict(), "architectures": ["Emu3VisionVQModel"]}
    (folder / VQ / "config.json").write_text(json.dumps(keys))
    Emu3VisionVQImageProcessor(**spec["image"]).save_pretrained(folder / VQ)
    write_words(folder)


def loaded(folder):
    keys = json.loads((folder / "config.json").read_text())
    model = Emu3ForCausalLM._from_config(Emu3Config(**keys), attn_implementation="eager").eval()
    vq = Emu3VisionVQModel(Emu3VisionVQConfig(**json.loads((folder / VQ / "config.json").read_text()))).eval()
    keys = json.loads((folder / "tokenizer_config.json").read_text())
    named = {k: v for k, v in keys.items() if k.endswith("_token")}
    words = texts.Emu3Tokenizer(str(folder / "emu3.tiktoken"), str(folder / "emu3_vision_tokens.txt"), **named,
                                padding_side="left")
    image_processor = Emu3VisionVQImageProcessor.from_pretrained(folder / VQ)
    return model, vq, Emu3Processor(image_processor, vq, words)


def run_steps(model, processor, spec):
    """The steps of their script for one prompt."""
    other = SCRIPT["NEGATIVE_PROMPT"] if spec["other"] is None else spec["other"]
    kwargs = dict(mode="G", ratio=[spec["ratio"]], image_area=model.config.image_area, return_tensors="pt",
                  padding="longest")
    pos, neg = processor(text=[spec["prompt"]], **kwargs), processor(text=[other], **kwargs)
    settings = GenerationConfig(use_cache=True, eos_token_id=model.config.eos_token_id,
                                pad_token_id=model.config.pad_token_id, max_new_tokens=40960, do_sample=False)
    constrained = processor.build_prefix_constrained_fn(pos.image_size[:, 0], pos.image_size[:, 1])
    steps = LogitsProcessorList([
        UnbatchedClassifierFreeGuidanceLogitsProcessor(spec["guidance"], model, unconditional_ids=neg.input_ids),
        PrefixConstrainedLogitsProcessor(constrained, num_beams=1)])
    out = model.generate(pos.input_ids, settings, logits_processor=steps, attention_mask=pos.attention_mask,
                         return_dict_in_generate=True, output_scores=True)
    rows = [s[0] for s in out.scores if int((s[0] > -1e30).sum()) > 1]
    lead = min(float(row.topk(2).values.diff().abs()) for row in rows)
    images = [part for part in processor.decode(out.sequences[0]) if not isinstance(part, str)]
    assert len(images) == 1
    tokens = [i - ID[VISION_TOKENS[3]] for i in out.sequences[0, pos.input_ids.shape[1]:].tolist()
              if i >= ID[VISION_TOKENS[3]]]
    return pos.input_ids[0].tolist(), neg.input_ids[0].tolist(), tokens, lead, np.asarray(images[0])


def shapes_of(module):
    return {k: list(v.shape) for k, v in module.state_dict().items() if v.dtype.is_floating_point}


@torch.no_grad()
def run_one(folder):
    spec = json.loads((folder / "spec.json").read_text())
    model, vq, processor = loaded(folder)
    shapes, vq_shapes = shapes_of(model), shapes_of(vq)
    if spec["text"]["tie_word_embeddings"]:
        shapes.pop("lm_head.weight")
    for salt in range(SALTS):
        weights = {k: ff.weight(salt, k, s) for k, s in shapes.items()}
        vq_weights = {k: ff.weight(salt, k, s) for k, s in vq_shapes.items()}
        model.load_state_dict(weights, strict=False)
        model.tie_weights()
        vq.load_state_dict(vq_weights, strict=False)
        ids, other, tokens, lead, levels = run_steps(model, processor, spec)
        if lead >= LEAST_GAP and len(set(tokens)) >= 3:
            break
    else:
        raise ValueError("no weights keep the greedy tokens apart")
    if WIDE:
        from PIL import Image
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        save_file(vq_weights, folder / VQ / "model.safetensors", {"format": "pt"})
        Image.fromarray(levels).save(folder / "wanted.png")
    return {"name": folder.name, "prompt": spec["prompt"], "negative": spec["other"],
            "vq_weights": VQ + "/model.safetensors",
            "guidance": None if spec["guidance"] == SCRIPT["classifier_free_guidance"] else spec["guidance"],
            "asked": spec["ratio"] != "1:1", "salt": salt, "ids": ids, "other": other, "tokens": tokens, "size": list(levels.shape[:2]),
            "levels": base64.b64encode(np.ascontiguousarray(levels).tobytes()).decode(), "shapes": shapes,
            "vq_shapes": vq_shapes}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    ff.FILES = (*ff.FILES, VQ + "/config.json", VQ + "/preprocessor_config.json")
    scratch = Path(sys.argv[2])
    for number in range(int(sys.argv[3])):
        folder = scratch / f"emu3-{number}"
        spec = draw(number)
        save(folder, spec)
        (folder / "spec.json").write_text(json.dumps(spec))
        (folder / "shapes.json").write_text("{}")
    ff.write_corpus(scratch, scratch.parent / "wide" if WIDE else OUT, run_one, in_parts=True)


if __name__ == "__main__":
    main()
