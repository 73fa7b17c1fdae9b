"""Train the draft model: caption and codes so far -> the target's guided law, in one branch.

The first `--plain` of the run is cross-entropy on the codes alone. After it the target runs beside,
both branches over the true codes, and the draft model learns p = softmax(u + guidance (c - u)):
cross-entropy against p plus `--tv-weight` times the total variation, since what exact acceptance
keeps of a guess is 1 - TV. Captions are never dropped: the draft model has no unconditional branch.
"""
from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from eval_torch import load_lm
from janus_model import JanusLm
from tabletop_tokenizer import PAD
from train_lm import Coded, is_muon, make_model, mask_of, pack
from training_common import Clock, Log, MixedOptimiser, load_checkpoint, save_checkpoint


def code_logits(model: JanusLm, text, codes, mask, parts: int = 2):
    """fp32 logits of every code from the prompt and the codes before it"""
    dtype, width = model.lm_head.weight.dtype, text.shape[1]
    cos, sin = model.rope(width + codes.shape[1] - 1, dtype)
    h = model.hidden(model.embed(text, codes[:, :-1]), mask, cos, sin, parts=parts)
    return model.generation_head(h[:, width - 1:]).float()


def guided_law(target: JanusLm, text, codes, mask, guidance: float):
    """softmax(u + guidance (c - u)); `text` and `mask` hold captioned rows, then unconditional ones"""
    c, u = code_logits(target, text, codes.repeat(2, 1), mask).chunk(2)
    return (u + guidance * (c - u)).softmax(-1)


def law_loss(model: JanusLm, text, codes, mask, law):
    """mean cross-entropy against the law, mean total variation from it"""
    log_q = code_logits(model, text, codes, mask).log_softmax(-1)
    nats = -(law * log_q).sum(-1).mean()
    return nats, (log_q.exp() - law).abs().sum(-1).mean() / 2


class Batches:
    """Encoded scenes as what the losses take, prompts padded to one width"""

    def __init__(self, data: Coded, pad: int, model: JanusLm, width: int = 0):
        self.data, self.pad, self.model = data, pad, model
        self.width = width or max(map(len, data.prompts))

    def codes(self, picks):
        return torch.from_numpy(self.data.codes[picks].astype(np.int64))

    def prompts(self, picks, branches: int):
        """ids and mask; two branches: captioned rows, then unconditional ones"""
        rows = [self.data.prompts[i] for i in picks]
        dropped = np.arange(branches * len(rows)) >= len(rows)
        text, hidden = pack(rows * branches, self.pad, dropped, self.width)
        places = torch.empty(len(text), self.data.codes.shape[1])
        return text, mask_of(self.model, text, hidden, places)


@torch.no_grad()
def law_over(target: JanusLm, batches: Batches, picks, codes, guidance: float, law_of=guided_law):
    text, mask = batches.prompts(picks, 2)
    return law_of(target, text, codes, mask, guidance)


@torch.no_grad()
def agreement(model: JanusLm, target: JanusLm, batches: Batches, guidance: float, count: int,
              seed: int = 1) -> dict:
    """Draft law q against the target's guided law p over true codes, means over all codes.

    acceptance: sum of min(p, q), what the exact rule keeps; tv: its complement; same_draw: both draw
    the same code from one noise (Gumbel); nats: -log q of the true code; entropy: of p.
    """
    sums = dict.fromkeys(("acceptance", "same_draw", "nats", "entropy"), 0.0)
    generator = torch.Generator().manual_seed(seed)
    for lo in range(0, count, 16):
        picks = np.arange(lo, min(lo + 16, count))
        codes = batches.codes(picks)
        p = law_over(target, batches, picks, codes, guidance)
        text, mask = batches.prompts(picks, 1)
        log_q = code_logits(model, text, codes, mask).log_softmax(-1)
        q = log_q.exp()
        noise = torch.empty_like(p).exponential_(generator=generator)
        same = (p / noise).argmax(-1) == (q / noise).argmax(-1)
        sums["acceptance"] += float(torch.minimum(p, q).sum())
        sums["same_draw"] += float(same.sum())
        sums["nats"] -= float(log_q.gather(-1, codes[..., None]).sum())
        sums["entropy"] -= float(torch.xlogy(p, p).sum())
    out = {k: v / (count * codes.shape[1]) for k, v in sums.items()}
    return {**out, "tv": 1 - out["acceptance"], "pictures": count, "guidance": guidance}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="encoded sets, without suffix")
    parser.add_argument("--val", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--vq", type=Path, required=True, help="its codebook starts the code embedding")
    parser.add_argument("--target", type=Path, required=True, help="lm-ema.safetensors of the model drafted for")
    parser.add_argument("--guidance", type=float, default=2.5, help="of the law that is learned")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--minutes", type=float, default=0, help="wall time instead of --steps")
    parser.add_argument("--plain", type=float, default=0.2, help="share of the run without the target")
    parser.add_argument("--tv-weight", type=float, default=1.0)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--mlp", type=int, default=352)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=448)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.5)
    parser.add_argument("--muon-decay", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="draft.safetensors; give --plain 0 when that part is over")
    parser.add_argument("--save-minutes", type=float, default=3)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    return parser.parse_args()


def start(options):
    """model, its target, what was done before"""
    book = F.normalize(load_checkpoint(options.vq)[0]["quantize.embedding.weight"], dim=-1)
    model, done = make_model(options, *book.shape), {"step": 0, "samples": 0, "seconds": 0.0}
    with torch.no_grad():
        model.generation_embeddings.weight.copy_(book * book.shape[1] ** 0.5)
    model.lm_head.weight.requires_grad_(False)  # a draft model reads no words and is not exported with it
    if options.resume:
        weights, meta = load_checkpoint(options.resume)
        model.load_state_dict(weights)
        done = {k: meta[k] for k in done}
    return model, load_lm(options.target)[0], done


def save(options, model, target, optimiser, val, log, done):
    """Masters for resuming (draft.safetensors) and their exponential average (draft-ema.safetensors)."""
    twin = JanusLm(model.config)
    twin.load_state_dict(optimiser.ema)
    meta = {**done, "config": vars(model.config), "guidance": options.guidance,
            **agreement(twin.bfloat16(), target, val, options.guidance, 48)}
    log(**{k: v for k, v in meta.items() if k != "config"})
    save_checkpoint(options.out / "draft.safetensors", optimiser.master, meta)
    save_checkpoint(options.out / "draft-ema.safetensors", optimiser.ema, meta)


def train(options, model, target, batches: Batches, val: Batches, log, done):
    optimiser = MixedOptimiser(model, is_muon, options.muon_lr, options.adam_lr, betas=(0.9, 0.98),
                               muon_decay=options.muon_decay, clip=1.0, ema=0.995)
    clock = Clock(options.steps, options.minutes, options.warmup, options.decay)
    law_of, loss_of = guided_law, law_loss
    if options.compile:
        law_of, loss_of = torch.compile(guided_law), torch.compile(law_loss)
    before, step, saved, window = dict(done), 0, time.time(), []
    while clock.progress(step) < 1:
        # Scenes are independent draws: read in file order, also by a resumed run.
        picks = (done["samples"] + np.arange(options.batch)) % len(batches.data)
        codes = batches.codes(picks)
        text, mask = batches.prompts(picks, 1)
        plain = clock.progress(step) < options.plain
        law = F.one_hot(codes, model.config.num_embeddings).float() if plain else \
            law_over(target, batches, picks, codes, options.guidance, law_of)
        nats, tv = loss_of(model, text, codes, mask, law)
        (nats + (0 if plain else options.tv_weight) * tv).backward()
        norm = optimiser.step(clock.factor(step))
        window.append((float(nats.detach()), float(tv.detach())))
        step += 1
        done |= {"step": before["step"] + step, "samples": done["samples"] + options.batch,
                 "seconds": before["seconds"] + time.time() - clock.start}
        if step % 20 == 0:
            log(step=done["step"], samples=done["samples"], norm=norm, factor=clock.factor(step),
                nats=np.mean([w[0] for w in window]), tv=np.mean([w[1] for w in window]))
            window = []
        if clock.progress(step) >= 1 or time.time() - saved > options.save_minutes * 60:
            save(options, model, target, optimiser, val, log, done)
            saved = time.time()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    pad = tokenizer.token_to_id(PAD)
    data, held_out = Coded(options.train, tokenizer, options.limit), Coded([options.val], tokenizer)
    model, target, done = start(options)
    options.out.mkdir(parents=True, exist_ok=True)
    log = Log(options.out / "log.jsonl")
    log(parameters=sum(p.numel() for p in model.parameters() if p.requires_grad), scenes=len(data),
        options={k: str(v) for k, v in vars(options).items()})
    train(options, model, target, Batches(data, pad, model), Batches(held_out, pad, model), log, done)


if __name__ == "__main__":
    main()
