"""Train the tabletop clip writer: caption -> grids of codes, one stream, in Emu3's layout.

The stream is `<|extra_203|>` caption `<|image start|>T*H*W<|image token|>`, then the codes of all grids
in raster order. Text and codes share one vocabulary, codes last. Rows are left-padded (hidden by the
mask), so that clips start at one place in the batch. Ten per cent of captions are dropped: the prompt
of nothing is what guidance leans on. A layout head (clip_layout.py), for training alone, reads after
layer 3 which solid a code shows and how it moves. Muon for hidden matrices, AdamW for the rest.
`--resume` starts from weights and re-warms the optimiser, also for clips of other lengths.
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

from clip_layout import CLIP_ATTRIBUTES, MAX_CLIP_SOLIDS, clip_layout_targets
from encode_clip_codes import load_coded_clips
from janus_model import causal_mask
from scene_layout import LayoutHead
from train_lm import MATRICES
from training_common import Clock, Log, MixedOptimiser, load_checkpoint, save_checkpoint
from video_lm import PAD, ClipLm, ClipLmConfig, clip_prompt

LAYOUT_TAP = 3  # layers before the layout head


def pack(prompts, pad: int, width: int):
    """Left-padded to `width`: ids [B, width], how many places are padding [B]"""
    text = torch.full((len(prompts), width), pad)
    for row, ids in zip(text, prompts):
        row[width - len(ids):] = torch.tensor(ids)
    return text, torch.tensor([width - len(ids) for ids in prompts])


class CodedClips:
    """Prompt ids, those of the empty caption, and codes [N, T, H, W]"""

    def __init__(self, stems, tokenizer: Tokenizer, grids: int = 0):
        lines, parts = [], []
        for stem in stems:
            more, codes = load_coded_clips(stem)
            lines += more
            parts.append(codes[:, :grids or None])
        self.codes, self.clips = np.concatenate(parts), [line["clip"] for line in lines]
        self.grid = self.codes.shape[1:]
        encode = lambda text: tokenizer.encode(clip_prompt(text, self.grid), add_special_tokens=False).ids
        self.prompts, self.nothing = [encode(line["caption"]) for line in lines], encode("")
        self.width = max(map(len, self.prompts))

    def __len__(self):
        return len(self.prompts)

    def batch(self, picks, pad: int, dropped=None):
        prompts = [self.nothing if dropped is not None and dropped[k] else self.prompts[i]
                   for k, i in enumerate(picks)]
        text, hidden = pack(prompts, pad, self.width)
        return text, hidden, torch.from_numpy(self.codes[picks].astype(np.int64)).flatten(1)


def mask_of(model: ClipLm, text, hidden, codes):
    """Made outside of `losses`: compiled with it, every softmax would work it out again."""
    return causal_mask(hidden, text.shape[1] + codes.shape[1] - 1, model.lm_head.weight.dtype)


def losses(model: ClipLm, text, hidden, codes, mask, targets=None):
    """mean nats a code, mean nats a text token, layout nats a covered place"""
    width = text.shape[1]
    ids = torch.cat((text, codes[:, :-1] + model.config.first_code), 1)
    h, middle = model.hidden(ids, mask, tap=LAYOUT_TAP)
    layout = model.layout(middle[:, width - 1:], targets) if targets is not None else 0.0
    clip = model.code_logits(h[:, width - 1:]).float()
    words = model.lm_head(h[:, :width - 1]).float()
    asked = torch.arange(width - 1)[None] >= hidden[:, None]
    nats = F.cross_entropy(words.flatten(0, 1), text[:, 1:].flatten(), reduction="none")
    return (F.cross_entropy(clip.flatten(0, 1), codes.flatten()),
            (nats * asked.flatten()).sum() / asked.sum().clamp(min=1), layout)


@torch.no_grad()
def validate(model: ClipLm, data: CodedClips, pad: int, count: int = 128):
    """mean nats a code with the caption, and without it"""
    sums, count = [0.0, 0.0], min(count, len(data))
    for lo in range(0, count, 16):
        picks = np.arange(lo, min(lo + 16, count))
        for k, dropped in enumerate((None, np.ones(len(picks), bool))):
            text, hidden, codes = data.batch(picks, pad, dropped)
            sums[k] += float(losses(model, text, hidden, codes, mask_of(model, text, hidden, codes))[0]) * len(picks)
    return [total / count for total in sums]


def is_muon(name: str, p) -> bool:
    return p.dim() == 2 and name.removesuffix(".weight").endswith(MATRICES)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="encoded clips, without suffix")
    parser.add_argument("--val", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--codes", type=int, default=512)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--mlp", type=int, default=512)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=0, help="wall time instead of --steps")
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.25)
    parser.add_argument("--caption-dropout", type=float, default=0.1)
    parser.add_argument("--text-weight", type=float, default=0.05)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--vq", type=Path, required=True, help="its codebook starts the embeddings of codes")
    parser.add_argument("--grids", type=int, default=0, help="of each clip, from its first; 0: all")
    parser.add_argument("--layout-weight", type=float, default=0.1, help="0: no layout head")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--save-minutes", type=float, default=5)
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    pad = tokenizer.token_to_id(PAD)
    train, val = (CodedClips(stems, tokenizer, options.grids) for stems in (options.train, [options.val]))
    words = tokenizer.get_vocab_size()
    model = ClipLm(ClipLmConfig(vocab_size=words + options.codes, first_code=words, hidden_size=options.width,
                                intermediate_size=options.mlp, num_hidden_layers=options.layers,
                                num_attention_heads=options.width // 64))
    done = {"step": 0, "samples": 0, "seconds": 0.0}
    model.begin_codes(load_checkpoint(options.vq)[0]["quantize.embedding.weight"])
    if options.layout_weight:
        model.layout = LayoutHead(options.width, MAX_CLIP_SOLIDS, CLIP_ATTRIBUTES)
    if options.resume:
        weights, meta = load_checkpoint(options.resume)
        unknown = model.load_state_dict(weights, strict=False)
        if [n for n in sum(unknown, []) if not n.startswith("layout.")]:
            raise ValueError(f"{options.resume}: {unknown}")
        done = {k: meta[k] for k in done}
    options.out.mkdir(parents=True, exist_ok=True)
    log = Log(options.out / "log.jsonl")
    log(parameters=sum(p.numel() for p in model.parameters()), clips=len(train), grid=list(train.grid),
        options={k: str(v) for k, v in vars(options).items()})
    optimiser = MixedOptimiser(model, is_muon, options.muon_lr, options.adam_lr, betas=(0.9, 0.98),
                               muon_decay=0.02, clip=1.0, ema=0.995)
    clock = Clock(options.steps, options.minutes, options.warmup, options.decay)
    order = np.random.default_rng(options.seed + done["step"])
    loss_of = torch.compile(losses) if options.compile else losses
    cursor, step, saved, window = done["samples"] % len(train), 0, time.time(), []
    while clock.progress(step) < 1:
        picks = np.arange(cursor, cursor + options.batch) % len(train)
        cursor += options.batch
        dropped = order.random(options.batch) < options.caption_dropout
        text, hidden, codes = train.batch(picks, pad, dropped)
        targets = (clip_layout_targets([train.clips[i] for i in picks], train.grid[0])
                   if options.layout_weight else None)
        clip, words_loss, layout = loss_of(model, text, hidden, codes, mask_of(model, text, hidden, codes), targets)
        (clip + options.text_weight * words_loss + options.layout_weight * layout).backward()
        norm = optimiser.step(clock.factor(step))
        window.append(float(clip.detach()))
        step += 1
        if step % 20 == 0:
            log(step=done["step"] + step, samples=done["samples"] + step * options.batch,
                clip=float(np.mean(window)), text=float(words_loss.detach()),
                layout=float(layout), norm=norm)
            window = []
        over = clock.progress(step) >= 1
        if over or time.time() - saved > options.save_minutes * 60:
            saved = time.time()
            save(options, model, optimiser, val, pad, log, done, step, clock)


def save(options, model, optimiser, val, pad, log, done, step, clock):
    """Masters for resuming (lm.safetensors) and their exponential average (lm-ema.safetensors)."""
    twin = ClipLm(model.config)
    smooth = {n: t for n, t in optimiser.ema.items() if not n.startswith("layout.")}
    twin.load_state_dict(smooth)
    val_ema, val_nothing = validate(twin.bfloat16(), val, pad)
    meta = {"step": done["step"] + step, "samples": done["samples"] + step * options.batch,
            "seconds": done["seconds"] + time.time() - clock.start, "val_ema": val_ema,
            "val_nothing": val_nothing, "grid": list(val.grid), "config": vars(model.config)}
    log(step=meta["step"], samples=meta["samples"], val_ema=val_ema, val_nothing=val_nothing)
    save_checkpoint(options.out / "lm.safetensors", optimiser.master, meta)
    save_checkpoint(options.out / "lm-ema.safetensors", smooth, meta)


if __name__ == "__main__":
    main()
