"""Marks of tabletop-llava's captions, question by question if asked, as `eval_torch.py` marks pictures.

A caption is read back by the grammar of canonical captions; one that does not fit it has every mark
zero. `keep` hides visual rows from the language model (the rest closing up): what pruning does.
"""
from __future__ import annotations

import argparse
import copy
import json
import re
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from encode_codes import load_vq
from janus_model import Cache
from judge_model import score, summary
from llava_data import EOS, IMAGE, PictureSet, prompt_text, resize
from llava_model import Llava, chosen, load_llava, normalise
from training_common import (ATTRIBUTES, COLOURS, FLOORS, KINDS, MATERIALS, MAX_SOLIDS, SIZES, to_float,
                             to_u8)

SOLID = re.compile(rf"a ({'|'.join(SIZES)}) ({'|'.join(COLOURS)}) ({'|'.join(MATERIALS)}) ({'|'.join(KINDS)})")
ORDER = ("size", "colour", "material", "kind")
LONGEST = 40  # ids of an answer


def parse(text: str):
    """canonical caption -> (floor, [(size, colour, material, kind)]), or None"""
    found = re.fullmatch(rf"(.*) on a ({'|'.join(FLOORS)}) floor", text)
    if not found:
        return None
    parts = re.split(", | and ", found[1])
    solids = [SOLID.fullmatch(p) for p in parts]
    joints = re.findall(", | and ", found[1])
    proper = not joints or (joints[-1] == " and " and all(j == ", " for j in joints[:-1]))
    if not all(solids) or len(solids) > MAX_SOLIDS or not proper:
        return None
    return found[2], [s.groups() for s in solids]


def labels_of(texts) -> dict[str, torch.Tensor]:
    """as `training_common.truth_labels`, read from captions; -2 where a caption cannot be read"""
    n = len(texts)
    labels = {name: torch.full((n,), -2) for name in ("count", "floor")}
    labels |= {name: torch.full((n, MAX_SOLIDS), -2) for name in ATTRIBUTES}
    for i, text in enumerate(texts):
        read = parse(text)
        if read is None:
            continue
        labels["floor"][i], labels["count"][i] = FLOORS.index(read[0]), len(read[1]) - 1
        for name in ATTRIBUTES:
            labels[name][i] = -1
        for k, solid in enumerate(read[1]):
            for name, value in zip(ORDER, solid):
                labels[name][i, k] = ATTRIBUTES[name].index(value)
    return labels


def marks_of(texts, truth) -> dict[str, torch.Tensor]:
    return score(labels_of(texts), truth)


@torch.no_grad()
def answer(model: Llava, rows, prompt: list[int], image: int, eos: int, longest: int = LONGEST) -> list[list[int]]:
    """greedy; rows [B, M, D] projected, M the same for all; `prompt` holds `image` once"""
    at, b, dtype = prompt.index(image), len(rows), rows.dtype
    embed = model.language_model.model.embed_tokens
    before, after = (embed(torch.tensor([ids])).expand(b, -1, -1) for ids in (prompt[:at], prompt[at + 1:]))
    x = torch.cat((before, rows, after), 1)
    length = x.shape[1]
    caches = [Cache(b, model.sizes, length + longest, dtype) for _ in range(model.sizes.num_hidden_layers)]
    mask = torch.full((length, length), -30000.0).triu(1).to(dtype)[None, None]
    places, out = torch.arange(length)[None], []
    over = torch.zeros(b, dtype=torch.bool)
    for _ in range(longest):
        h = model.hidden(x, mask, *model.rope(places, dtype), caches)[:, -1]
        token = model.language_model.lm_head(h).float().argmax(-1).masked_fill(over, eos)
        over |= token == eos
        out.append(token)
        if bool(over.all()):
            break
        x, mask, places = embed(token[:, None]), None, places[:, -1:] + 1
    return [row[:row.index(eos)] if eos in row else row for row in torch.stack(out, 1).tolist()]


@torch.no_grad()
def captions_of(model: Llava, pictures: PictureSet, tokenizer: Tokenizer, keep=None, question=None,
                limit: int = 0, batch: int = 50) -> list[str]:
    """keep: [N, K] ascending indices of visual rows that stay, or None"""
    dtype = model.language_model.lm_head.weight.dtype
    prompt = tokenizer.encode(prompt_text(question) if question else prompt_text()).ids
    image, eos, texts = tokenizer.token_to_id(IMAGE), tokenizer.token_to_id(EOS), []
    total = limit or len(pictures)
    for lo in range(0, total, batch):
        picks = np.arange(lo, min(lo + batch, total))
        rows = model.visual_rows(model.features(normalise(pictures.pictures(picks)).to(dtype)))
        if keep is not None:
            rows = chosen(rows, keep[picks])
        texts += [tokenizer.decode(ids).strip() for ids in answer(model, rows, prompt, image, eos)]
    return texts


# -------------------------------------------------------------------------------------- figures
def with_pixels(pictures: PictureSet, pixels: np.ndarray) -> PictureSet:
    """the same scenes shown by other pixels, brought to the model's side by Pillow"""
    twin = copy.copy(pictures)
    twin.pixels, twin.matrix = resize(pixels), None
    return twin


def through_vq(pixels, vq) -> np.ndarray:
    out = []
    for lo in range(0, len(pixels), 50):
        with torch.no_grad():
            x = to_float(pixels[lo:lo + 50]).to(vq.quant_conv.weight.dtype)
            out.append(to_u8(vq.decode(vq.encode(x)).float()))
    return np.concatenate(out)


def mismatched(texts, truth) -> list[int]:
    """captions that name the neighbour's scene: [accepted, asked]"""
    roll = {n: torch.roll(t, 1, 0) for n, t in truth.items()}
    same = torch.ones(len(texts), dtype=torch.bool)
    for n in truth:
        same &= (roll[n] == truth[n]).view(len(texts), -1).all(1)
    wrong = marks_of(texts, roll)["scene"][~same]
    return [int(wrong.sum()), len(wrong)]


@torch.no_grad()
def cls_scores(model: Llava, pictures: PictureSet) -> torch.Tensor:
    """attention of CLS in the last layer, mean over heads: [N, tokens]"""
    out = []
    for lo in range(0, len(pictures), 50):
        look = []
        model.features(normalise(pictures.pictures(np.arange(lo, min(lo + 50, len(pictures))))), look=look)
        out.append(look[-1][:, 1:])
    return torch.cat(out)


def questions(model: Llava, pictures: PictureSet, tokenizer) -> dict:
    """share of right answers by kind of question; one pass for each distinct place in the list"""
    tally: dict[str, list[int]] = {}
    for place in range(5):
        rows = [i for i, s in enumerate(pictures.scenes) if len(s["questions"]) > place]
        by_text: dict[str, list[int]] = {}
        for i in rows:
            by_text.setdefault(pictures.scenes[i]["questions"][place]["q"], []).append(i)
        for text, picks in by_text.items():
            part = copy.copy(pictures)
            part.pixels = pictures.pixels[picks]
            for i, said in zip(picks, captions_of(model, part, tokenizer, question=text)):
                kind = " ".join(text.split()[:2])
                right = said == pictures.scenes[i]["questions"][place]["a"]
                tally.setdefault(kind, []).append(int(right))
    return {k: [round(100 * float(np.mean(v)), 1), len(v)] for k, v in sorted(tally.items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="exported folder")
    parser.add_argument("--sets", type=Path, nargs="+", required=True, help="dumped sets, without suffix")
    parser.add_argument("--vq", type=Path, help="picture tokenizer: the first set once more, passed through it")
    parser.add_argument("--keep", type=int, nargs="*", default=[], help="visual rows to keep, on the first set")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--untrained", action="store_true", help="also a fresh model of this shape")
    parser.add_argument("--questions", type=int, default=0, help="scenes of the first set to ask about")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    model = load_llava(options.model)

    def report(name, texts, truth, **more):
        print(json.dumps({"set": name, "count": len(texts), **summary(marks_of(texts, truth)), **more}), flush=True)

    first = None
    for stem in options.sets:
        plain = PictureSet(stem, count=options.count)
        shown = with_pixels(plain, plain.pixels)
        texts = captions_of(model, shown, tokenizer)
        report(stem.name, texts, plain.labels, mismatched_accepted=mismatched(texts, plain.labels))
        first = first or (plain, shown)
    plain, shown = first
    if options.vq:
        seen = with_pixels(plain, through_vq(plain.pixels, load_vq(options.vq, torch.float32)))
        report("through the picture tokenizer", captions_of(model, seen, tokenizer), plain.labels)
    draw = torch.Generator().manual_seed(1)
    scores = cls_scores(model, shown) if options.keep else None
    for k in options.keep:
        ways = {"most CLS attention": scores, "random": torch.rand(scores.shape, generator=draw)}
        for way, value in ways.items():
            keep = value.topk(k, dim=1).indices.sort(1).values
            report(f"{k} rows kept, {way}", captions_of(model, shown, tokenizer, keep=keep), plain.labels)
    if options.untrained:
        torch.manual_seed(1)
        report("untrained", captions_of(Llava(model.sizes).eval(), shown, tokenizer), plain.labels)
    if options.questions:
        part = with_pixels(plain, plain.pixels[:options.questions])
        part.scenes = plain.scenes[:options.questions]
        print(json.dumps({"questions": questions(model, part, tokenizer)}))


if __name__ == "__main__":
    main()
