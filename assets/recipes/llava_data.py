"""What tabletop-llava is trained on: pictures, labels of pictures and patches, packed dialogues.

Run as a program it prepares sets beside the dumped scenes: `native` renders at a size and resizes to
the model's 96 pixels as CLIP's preprocessor does, `vq` passes encoded scenes through the picture
tokenizer, `labels` works out which solid covers which patch, `tokenizer` trains the byte-level BPE.

A dialogue shares one picture among several turns. By default a turn sees the picture and itself
alone, and its positions start right after the picture, exactly as if it had been asked alone.
"""
from __future__ import annotations

import argparse
import json
import os
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers

from encode_codes import load_coded, load_vq
from scene_layout import slots_of
from train_judge import disturb
from training_common import ATTRIBUTES, dump_scenes, load_scenes, to_float, to_u8, truth_labels

BOS, EOS, PAD, IMAGE = "<s>", "</s>", "<pad>", "<image>"
SPECIALS = [PAD, BOS, EOS, IMAGE]
DESCRIBE = "Describe the picture."
SIDE, PLACES = 96, 12
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "{{ 'ASSISTANT: ' }}{% else %}{{ 'USER: ' }}{% endif %}"
    "{% if message['content'] is string %}{% set text = message['content'] %}{% else %}"
    "{% for part in message['content'] if part['type'] == 'image' %}{{ '<image>\n' }}{% endfor %}"
    "{% set text = message['content'] | selectattr('type', 'equalto', 'text') | map(attribute='text') | join %}"
    "{% endif %}{{ text }}{% if message['role'] == 'assistant' %}{{ '</s>' }}{% else %}{{ ' ' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}")


# ------------------------------------------------------------------------------------- pictures
def bicubic_matrix(n_in: int, n_out: int) -> torch.Tensor:
    """[n_out, n_in]: Pillow's bicubic filter (a = -0.5, support stretched when shrinking)"""
    scale = n_in / n_out
    stretch = max(scale, 1.0)
    centre = (np.arange(n_out) + 0.5) * scale
    lo = np.maximum(0, (centre - 2 * stretch + 0.5).astype(int))
    hi = np.minimum(n_in, (centre + 2 * stretch + 0.5).astype(int))
    t = np.abs((np.arange(n_in)[None] - centre[:, None] + 0.5) / stretch)
    w = np.where(t < 1, (1.5 * t - 2.5) * t * t + 1, np.where(t < 2, ((-0.5 * t + 2.5) * t - 4) * t + 2, 0))
    places = np.arange(n_in)[None]
    w = w * ((places >= lo[:, None]) & (places < hi[:, None]))
    return torch.from_numpy(w / w.sum(1, keepdims=True)).float()


def resize(pixels, side: int = SIDE) -> np.ndarray:
    """u8 [N, H, H, 3] -> u8 [N, side, side, 3] by Pillow, as the preprocessor does"""
    return np.stack([np.asarray(Image.fromarray(p).resize((side, side), Image.BICUBIC)) for p in pixels])


class PictureSet:
    """Square u8 pictures [N, h, h, 3], their scenes' labels, patch slots and dialogues. `pixels`: another
    file of the same scenes, from the first one on."""

    def __init__(self, stem: Path, pixels: Path | None = None, start: int = 0, count: int = 0, tokenizer=None):
        stem = Path(stem)
        self.pixels = np.load(pixels or stem.with_suffix(".npy"), mmap_mode="r")[start:]  # both begin with scene 0
        self.pixels = self.pixels[:count] if count else self.pixels
        with open(stem.with_suffix(".jsonl"), encoding="utf-8") as lines:
            self.scenes = [json.loads(line) for line in islice(lines, start, start + len(self.pixels))]
        self.labels = truth_labels(self.scenes)
        slots = stem.with_suffix(".slots.npy")
        self.slots = np.load(slots, mmap_mode="r")[start:start + len(self.pixels)] if slots.exists() else None
        side = self.pixels.shape[1]
        self.matrix = None if side == SIDE else bicubic_matrix(side, SIDE)
        self.turns = encode_turns(tokenizer, self.scenes) if tokenizer else None
        self.cursor = 0

    def __len__(self):
        return len(self.pixels)

    def take(self, count: int) -> np.ndarray:
        """the next indices, in file order: scenes are independent draws"""
        picks = np.arange(self.cursor, self.cursor + count) % len(self)
        self.cursor = (self.cursor + count) % len(self)
        return picks

    def pictures(self, picks, order=None) -> torch.Tensor:
        """fp32 [B, 3, 96, 96] in [0, 1]; with `order`, slightly disturbed"""
        x = to_float(self.pixels[picks])
        if order is not None:
            x = disturb(x, None, order)
        if self.matrix is not None:
            x = (self.matrix @ x @ self.matrix.t()).clamp(-1, 1)
        return (x + 1) / 2

    def patch_targets(self, picks) -> torch.Tensor:
        """[B, 144, 6]: slot (0 none); kind, colour, size, material (-1 uncovered); floor (-1 covered)"""
        slots = np.asarray(self.slots[picks]).astype(np.int64)
        rows = np.arange(len(picks))[:, None]
        columns = [slots]
        for name in ATTRIBUTES:
            table = self.labels[name].numpy()[picks]
            columns.append(np.where(slots > 0, table[rows, np.maximum(slots, 1) - 1], -1))
        floor = self.labels["floor"].numpy()[picks][:, None]
        columns.append(np.where(slots > 0, -1, floor))
        return torch.from_numpy(np.stack(columns, -1))


class Mixture:
    """Batches that hold a fixed number of pictures of every set."""

    def __init__(self, sets: list[PictureSet], counts: list[int]):
        self.sets, self.counts = sets, counts

    def batch(self, order):
        """pictures [B, 3, 96, 96] in [0, 1], labels, patch targets, turns"""
        pictures, labels, targets, turns = [], [], [], []
        for part, count in zip(self.sets, self.counts):
            picks = part.take(count)
            pictures.append(part.pictures(picks, order))
            labels.append({n: t[picks] for n, t in part.labels.items()})
            targets.append(part.patch_targets(picks))
            turns += [part.turns[i] for i in picks] if part.turns else []
        labels = {n: torch.cat([part[n] for part in labels]) for n in labels[0]}
        return torch.cat(pictures), labels, torch.cat(targets), turns


def some_patches(count: int, covered: np.ndarray, order) -> torch.Tensor:
    """[B, count] ascending: patches where `covered` [B, total] is true come first, the rest at random"""
    score = order.random(covered.shape) + covered
    return torch.from_numpy(np.sort(np.argsort(-score, 1)[:, :count], 1))


# ------------------------------------------------------------------------------------ dialogues
def build_tokenizer(texts, basis: Path, vocabulary: int) -> Tokenizer:
    """The splits of tabletop-janus's tokenizer, LLaVA's special tokens, words of these dialogues"""
    old = Tokenizer.from_file(str(basis))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = old.pre_tokenizer, old.decoder
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS}:0 $A:0", pair=f"{BOS}:0 $A:0 {BOS}:1 $B:1", special_tokens=[(BOS, bos)])
    return tokenizer


def prompt_text(question: str = DESCRIBE) -> str:
    """one `<image>` stands for all visual rows"""
    return f"USER: {IMAGE}\n{question} ASSISTANT:"


def prefix_ids(tokenizer: Tokenizer) -> list[int]:
    """what stands before the picture, BOS included"""
    ids = tokenizer.encode(prompt_text()).ids
    return ids[:ids.index(tokenizer.token_to_id(IMAGE))]


def encode_turns(tokenizer: Tokenizer, scenes):
    """per scene: (ids asked first after the picture, ids asked later, ids answered) of every turn"""
    pairs = [[(DESCRIBE, s["canonical"])] + [(t["q"], t["a"]) for t in s["questions"]] for s in scenes]
    known: dict[str, list[int]] = {}

    def ids(text):
        if text not in known:
            known[text] = tokenizer.encode(text, add_special_tokens=False).ids
        return known[text]

    return [[(ids(f"\n{q} ASSISTANT:"), ids(f"USER: {q} ASSISTANT:"), ids(f" {a}{EOS}")) for q, a in turns]
            for turns in pairs]


def pack(turns, prefix, visual: int, width: int, order, joined: float = 0.0):
    """Rows of `prefix`, `visual` places, `width` text ids. Returns ids (text only) [B, width], targets
    [B, width] (-1: not asked), group [B, T] and positions [B, T]. Group 0 is seen by all later rows, a
    turn's rows see their own group too, -1 is seen by none. A share `joined` is one conversation. The
    caption (turn 0) is among the first two turns; later ones that find no room are left out."""
    b, head = len(turns), len(prefix) + visual
    ids, targets = np.zeros((b, width), np.int64), np.full((b, width), -1)
    group, positions = np.full((b, head + width), -1), np.zeros((b, head + width), np.int64)
    group[:, :head], positions[:, :head] = 0, np.arange(head)
    for i, dialogue in enumerate(turns):
        one, at, place = order.random() < joined, 0, head
        turns_order = [int(k) for k in order.permutation(len(dialogue)) if k]
        turns_order.insert(int(order.integers(2)), 0)
        for number, k in enumerate(turns_order):
            first, later, answer = dialogue[k]
            asked = later if one and number else first
            n, m = len(asked), len(answer)
            if at + n + m > width:
                continue
            ids[i, at:at + n], ids[i, at + n:at + n + m] = asked, answer
            targets[i, at + n - 1:at + n + m - 1] = answer
            here = slice(head + at, head + at + n + m)
            group[i, here] = 1 if one else number + 1
            positions[i, here] = place + np.arange(n + m)
            place, at = place + (n + m if one else 0), at + n + m
    return tuple(torch.from_numpy(a) for a in (ids, targets, group, positions))


def mask_of(group: torch.Tensor, dtype) -> torch.Tensor:
    """additive [B, 1, T, T]: causal; only group 0 and one's own group; every row sees itself"""
    t = group.shape[1]
    causal = torch.ones(t, t, dtype=torch.bool).tril()
    seen = ((group[:, None] == 0) | (group[:, None] == group[:, :, None])) & (group[:, None] >= 0)
    seen = (seen & causal) | torch.eye(t, dtype=torch.bool)
    return torch.where(seen, 0.0, -30000.0).to(dtype)[:, None]


# -------------------------------------------------------------------------------------- prepare
def save_array(path: Path, values: np.ndarray):
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as f:
        np.save(f, values)
    os.replace(partial, path)


def prepare_native(options):
    stem = dump_scenes(options.scene_dump, options.data, options.split, options.start, options.count,
                       options.seed, options.size, 1)
    if options.size != SIDE:
        save_array(stem.with_suffix(".resized.npy"), resize(np.load(stem.with_suffix(".npy"), mmap_mode="r")))
    print(stem)


@torch.no_grad()
def prepare_vq(options):
    torch.set_num_threads(1)
    codes = load_coded(options.stem)[2][:options.count or None]
    vq, out = load_vq(options.vq), []
    for lo in range(0, len(codes), 32):
        grid = torch.from_numpy(codes[lo:lo + 32].astype(np.int64)).view(-1, 16, 16)
        out.append(to_u8(vq.decode(grid).float()))
    save_array(options.stem.with_suffix(f".vq-0-{len(codes)}.npy"), np.concatenate(out))


def prepare_labels(options):
    scenes = load_scenes(options.stem, with_pixels=False)[1][:options.count or None]
    slots = np.stack([slots_of(s["scene"], SIDE, PLACES) for s in scenes])
    save_array(options.stem.with_suffix(".slots.npy"), slots)


def prepare_tokenizer(options):
    texts = []
    for s in load_scenes(options.stem, with_pixels=False)[1][:20000]:
        pairs = [(DESCRIBE, s["canonical"]), (DESCRIBE, s["caption"])] + [(t["q"], t["a"]) for t in s["questions"]]
        texts += [f"\n{q} ASSISTANT: {a}" for q, a in pairs] + ["USER: "]
    tokenizer = build_tokenizer(texts, options.basis, options.vocabulary)
    options.data.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.data / "tokenizer.json"))
    print(json.dumps({"vocabulary": tokenizer.get_vocab_size(),
                      "prompt": tokenizer.encode(prompt_text()).tokens}, ensure_ascii=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["native", "vq", "labels", "tokenizer"])
    parser.add_argument("--scene-dump", default="scene_dump")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", default="train")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="scenes; 0: all (labels, vq)")
    parser.add_argument("--stem", type=Path, help="dumped set, without suffix")
    parser.add_argument("--vq", type=Path)
    parser.add_argument("--basis", type=Path, help="tokenizer.json of tabletop-janus")
    parser.add_argument("--vocabulary", type=int, default=448)
    options = parser.parse_args()
    {"native": prepare_native, "vq": prepare_vq, "labels": prepare_labels,
     "tokenizer": prepare_tokenizer}[options.what](options)


if __name__ == "__main__":
    main()
