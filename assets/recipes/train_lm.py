"""Train the tabletop language model: caption -> 256 picture codes (raster order).

Rows are left-padded (hidden by the mask), so that pictures start at one place in the batch. Ten
per cent of captions become Janus's unconditional row: all tokens but the first and the last are
the pad id, and those pads are attended. Muon for hidden matrices, AdamW for the rest; warm-up,
constant, then linear decay to zero. `--resume` starts from weights and re-warms the optimiser.

The caption's worth is about 0.06 nats a code, little beside the floor's noise. A layout head, used in
training only, therefore reads from a middle layer which solid each code shows and that solid's
attributes, so that solids are tied to their phrases early; it is not exported.
"""
from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from encode_codes import load_coded
from janus_model import JanusLm, LmConfig, causal_mask
from scene_layout import LayoutHead, layout_targets
from tabletop_tokenizer import PAD, prompt_text
from training_common import Clock, Log, MixedOptimiser, load_checkpoint, save_checkpoint


LAYOUT_TAP = 4  # layers before the layout head


class Coded:
    """Encoded scenes: prompt ids and codes"""

    def __init__(self, stems, tokenizer: Tokenizer, limit: int = 0):
        self.prompts, self.scenes, parts = [], [], []
        for stem in stems:
            captions, scenes, codes = load_coded(stem)
            self.scenes += scenes
            self.prompts += [e.ids for e in tokenizer.encode_batch([prompt_text(c) for c in captions])]
            parts.append(codes)
        self.codes = np.concatenate(parts)
        if limit:
            self.prompts, self.codes = self.prompts[:limit], self.codes[:limit]

    def __len__(self):
        return len(self.prompts)


def pack(prompts, pad: int, dropped=None, width: int = 0):
    """left-padded ids [B, P], number of hidden pads [B]; P: the longest prompt or `width`"""
    width = max(width, max(len(p) for p in prompts))
    text, hidden = torch.full((len(prompts), width), pad), torch.empty(len(prompts), dtype=torch.long)
    for i, ids in enumerate(prompts):
        ids = torch.tensor(ids)
        if dropped is not None and dropped[i]:
            ids[1:-1] = pad
        text[i, width - len(ids):], hidden[i] = ids, width - len(ids)
    return text, hidden


def mask_of(model: JanusLm, text, hidden, codes):
    """Made outside of `losses`: compiled with it, every softmax would work it out again."""
    return causal_mask(hidden, text.shape[1] + codes.shape[1] - 1, model.lm_head.weight.dtype)


def losses(model: JanusLm, text, hidden, codes, dropped, mask, targets=None, parts: int = 2):
    """mean nats a picture code, mean nats a text token, layout nats a covered place"""
    dtype, width = model.lm_head.weight.dtype, text.shape[1]
    length = width + codes.shape[1] - 1
    cos, sin = model.rope(length, dtype)
    rows = model.embed(text, codes[:, :-1])
    h, middle = model.hidden(rows, mask, cos, sin, parts=parts, tap=LAYOUT_TAP)
    layout = model.layout(middle[:, width - 1:], targets) if targets is not None else 0.0
    logits = model.generation_head(h[:, width - 1:]).float()
    picture = F.cross_entropy(logits.flatten(0, 1), codes.flatten())
    words = model.lm_head(h[:, :width - 1]).float()
    asked = (torch.arange(width - 1)[None] >= hidden[:, None]) & ~dropped[:, None]
    nats = F.cross_entropy(words.flatten(0, 1), text[:, 1:].flatten(), reduction="none")
    return picture, (nats * asked.flatten()).sum() / asked.sum().clamp(min=1), layout


@torch.no_grad()
def validate(model: JanusLm, data: Coded, pad: int, count: int = 256):
    total = 0.0
    for lo in range(0, count, 32):
        text, hidden = pack(data.prompts[lo:lo + 32], pad)
        codes = torch.from_numpy(data.codes[lo:lo + 32].astype(np.int64))
        kept = torch.zeros(len(text), dtype=torch.bool)
        total += float(losses(model, text, hidden, codes, kept, mask_of(model, text, hidden, codes))[0])
    return total / math.ceil(count / 32)


MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def is_muon(name: str, p) -> bool:
    stem = name.removesuffix(".weight")
    return p.dim() == 2 and (stem.endswith(MATRICES) or stem == "generation_head.proj_out"
                             or stem == "generation_aligner.hidden_layers.0")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="encoded sets, without suffix")
    parser.add_argument("--val", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--vq", type=Path, required=True, help="its codebook starts the code embedding")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=0, help="wall time instead of --steps")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--mlp", type=int, default=640)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=448)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.25)
    parser.add_argument("--muon-decay", type=float, default=0.02)
    parser.add_argument("--caption-dropout", type=float, default=0.1)
    parser.add_argument("--text-weight", type=float, default=0.05)
    parser.add_argument("--layout-weight", type=float, default=0.1, help="0: no layout head")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--save-minutes", type=float, default=5)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="torch.compile; prompts padded to one width")
    return parser.parse_args()


def make_model(options, codes: int, embed_dim: int) -> JanusLm:
    return JanusLm(LmConfig(vocab_size=options.vocabulary, hidden_size=options.width,
                            intermediate_size=options.mlp, num_hidden_layers=options.layers,
                            num_attention_heads=options.width // 64, num_embeddings=codes,
                            embed_dim=embed_dim))


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    pad = tokenizer.token_to_id(PAD)
    train, val = Coded(options.train, tokenizer, options.limit), Coded([options.val], tokenizer)
    book = F.normalize(load_checkpoint(options.vq)[0]["quantize.embedding.weight"], dim=-1)
    model = make_model(options, *book.shape)
    done = {"step": 0, "samples": 0, "seconds": 0.0}
    with torch.no_grad():
        model.generation_embeddings.weight.copy_(book * book.shape[1] ** 0.5)
    if options.layout_weight:
        model.layout = LayoutHead(options.width)
    if options.resume:
        weights, meta = load_checkpoint(options.resume)
        unknown = model.load_state_dict(weights, strict=False)
        if [n for n in sum(unknown, []) if not n.startswith("layout.")]:
            raise ValueError(f"{options.resume}: {unknown}")
        done = {k: meta[k] for k in done}
    options.out.mkdir(parents=True, exist_ok=True)
    log = Log(options.out / "log.jsonl")
    log(parameters=sum(p.numel() for p in model.parameters()), scenes=len(train),
        options={k: str(v) for k, v in vars(options).items()})
    optimiser = MixedOptimiser(model, is_muon, options.muon_lr, options.adam_lr, betas=(0.9, 0.98),
                               muon_decay=options.muon_decay, clip=1.0, ema=0.995)
    clock = Clock(options.steps, options.minutes, options.warmup, options.decay)
    order = np.random.default_rng(options.seed + done["step"])
    # Scenes are independent draws, so they are read in file order; a resumed run goes on where it
    # stopped, also when more scenes have been encoded since.
    cursor, step, saved = done["samples"] % len(train), 0, time.time()
    loss_of = torch.compile(losses) if options.compile else losses
    width = max(map(len, train.prompts)) if options.compile else 0
    window = []
    while clock.progress(step) < 1:
        picks = np.arange(cursor, cursor + options.batch) % len(train)
        cursor += options.batch
        dropped = torch.from_numpy(order.random(options.batch) < options.caption_dropout)
        text, hidden = pack([train.prompts[i] for i in picks], pad, dropped, width)
        codes = torch.from_numpy(train.codes[picks].astype(np.int64))
        targets = layout_targets([train.scenes[i] for i in picks]) if options.layout_weight else None
        mask = mask_of(model, text, hidden, codes)
        picture, words, layout = loss_of(model, text, hidden, codes, dropped, mask, targets)
        (picture + options.text_weight * words + options.layout_weight * layout).backward()
        norm = optimiser.step(clock.factor(step))
        window.append(float(picture.detach()))
        step += 1
        if step % 20 == 0:
            log(step=done["step"] + step, samples=done["samples"] + step * options.batch,
                picture=float(np.mean(window)), text=float(words.detach()), layout=float(layout), norm=norm,
                factor=clock.factor(step))
            window = []
        over = clock.progress(step) >= 1
        if over or time.time() - saved > options.save_minutes * 60:
            saved = time.time()
            save(options, model, optimiser, val, pad, log, done, step, clock)


def save(options, model, optimiser, val, pad, log, done, step, clock):
    """Masters for resuming (lm.safetensors) and their exponential average (lm-ema.safetensors)."""
    raw = validate(model, val, pad)
    twin = JanusLm(model.config)
    smooth_weights = {n: t for n, t in optimiser.ema.items() if not n.startswith("layout.")}
    twin.load_state_dict(smooth_weights)
    smooth = validate(twin.bfloat16(), val, pad)
    meta = {"step": done["step"] + step, "samples": done["samples"] + step * options.batch,
            "seconds": done["seconds"] + time.time() - clock.start, "val": raw, "val_ema": smooth,
            "config": vars(model.config)}
    log(step=meta["step"], samples=meta["samples"], val=raw, val_ema=smooth)
    save_checkpoint(options.out / "lm.safetensors", optimiser.master, meta)
    save_checkpoint(options.out / "lm-ema.safetensors", smooth_weights, meta)


if __name__ == "__main__":
    main()
