"""Train tabletop-llava: `--stage vision`, then `language`, then `joint`.

vision: the tower alone under heads that are thrown away later (`VisionHeads`): CLS reads the scene
as the judge does and looks at every solid alike, patches read the solid that covers them. language: projector and language model
over the frozen tower, captions and questions packed behind one picture. joint: everything, heads
still on, so that CLS keeps its meaning. Muon for hidden matrices, AdamW for the rest, in bf16 over
fp32 masters; weights are saved every few minutes and a run goes on from them (`--resume`).
"""
from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn

from eval_llava import captions_of, marks_of
from judge_model import score
from llava_data import Mixture, PictureSet, mask_of, pack, prefix_ids, some_patches
from llava_model import Llava, LlavaSizes, VisionHeads, chosen, normalise
from training_common import (ATTRIBUTES, MAX_SOLIDS, Clock, Log, MixedOptimiser, load_checkpoint,
                             save_checkpoint)

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "gate_proj", "up_proj", "down_proj", "fc1", "fc2",
            "linear_1", "linear_2")


class Trainee(nn.Module):
    def __init__(self, sizes: LlavaSizes):
        super().__init__()
        self.llava, self.heads = Llava(sizes), VisionHeads(sizes.vision_width)


class Chosen:
    """What MixedOptimiser needs of a model, for those parameters that a stage trains."""

    def __init__(self, model: nn.Module, wanted):
        self.model, self.wanted = model, wanted
        for name, p in model.named_parameters():
            p.requires_grad_(wanted(name))

    def named_parameters(self):
        return [(n, p) for n, p in self.model.named_parameters() if self.wanted(n)]

    def bfloat16(self):
        self.model.bfloat16()


def is_muon(name: str, p) -> bool:
    return p.dim() == 2 and name.removesuffix(".weight").endswith(MATRICES)


def wanted_in(stage: str):
    seeing = ("llava.vision_tower.", "heads.")
    return {"vision": lambda n: n.startswith(seeing), "language": lambda n: not n.startswith(seeing),
            "joint": lambda n: True}[stage]


# --------------------------------------------------------------------------------------- losses
def picture_loss(trainee: Trainee, rows, labels):
    """sum over the judge's heads of nats a picture, read from CLS"""
    logits = trainee.heads.of_picture(trainee.llava.vision_tower.vision_model.post_layernorm(rows[:, 0]))
    total = F.cross_entropy(logits["count"], labels["count"]) + F.cross_entropy(logits["floor"], labels["floor"])
    for name in ATTRIBUTES:
        for k in range(MAX_SOLIDS):
            nats = F.cross_entropy(logits[f"{name}_{k + 1}"], labels[name][:, k], ignore_index=-1, reduction="sum")
            total = total + nats / len(rows)
    return total


def patch_loss(trainee: Trainee, rows, targets):
    """nats a covered patch (slot, attributes), plus nats an uncovered one (floor)"""
    flat = targets.flatten(0, 1)
    covered = (flat[:, 0] > 0).sum().clamp(min=1)
    per = [covered] * 5 + [(len(flat) - covered).clamp(min=1)]
    total = 0.0
    for k, logits in enumerate(trainee.heads.of_patches(rows[:, 1:])):
        total = total + F.cross_entropy(logits, flat[:, k], ignore_index=-1, reduction="sum") / per[k]
    return total


def fair_look(slots):
    """[B, N] slots (0: bare) -> [B, N] shares of one look: every solid the same, spread evenly over its patches"""
    solids = F.one_hot(slots, MAX_SOLIDS + 1)[..., 1:].float()
    patches = solids.sum(1, keepdim=True)
    shares = (solids / patches.clamp(min=1)).sum(-1)
    return shares / (patches > 0).sum(-1).clamp(min=1)


def glance_loss(look, targets):
    """nats by which CLS's attention, in every layer but the first, differs from a fair look at all
    solids (KL divergence from the fair look)"""
    fair = fair_look(targets[:, :, 0])
    nats = [(fair * ((fair + 1e-6).log() - (p[:, 1:] + 1e-6).log())).sum(1) for p in look[1:]]
    return torch.stack(nats).mean()


def vision_losses(trainee: Trainee, x, labels, targets, keep=None):
    look = []
    rows = trainee.llava.features(x, keep, look)
    targets = targets if keep is None else chosen(targets, keep)
    return picture_loss(trainee, rows, labels), patch_loss(trainee, rows, targets), glance_loss(look, targets)


def text_loss(llava: Llava, visual, prefix, ids, targets, mask, cos, sin):
    """mean nats a token of the answers; visual [B, M, D] projected rows"""
    embed = llava.language_model.model.embed_tokens
    rows = torch.cat((embed(prefix).expand(len(ids), -1, -1), visual, embed(ids)), 1)
    h = llava.hidden(rows, mask, cos, sin)[:, -ids.shape[1]:]
    logits = llava.language_model.lm_head(h).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def language_losses(trainee: Trainee, features, keep, *text):
    visual = trainee.llava.visual_rows(features)
    return text_loss(trainee.llava, visual if keep is None else chosen(visual, keep), *text)


def joint_losses(trainee: Trainee, x, labels, targets, keep, heard, *text):
    look = []
    rows = trainee.llava.features(x, keep, look)
    targets = targets if keep is None else chosen(targets, keep)
    return (picture_loss(trainee, rows, labels), patch_loss(trainee, rows, targets), glance_loss(look, targets),
            language_losses(trainee, rows, heard, *text))


# ----------------------------------------------------------------------------------------- data
def set_of(spec: str, tokenizer):
    """STEM[,pixels=FILE][,start=N][,count=N][,share=N]: pictures and how many a batch holds"""
    stem, *rest = spec.split(",")
    given = dict(part.split("=") for part in rest)
    share = int(given.pop("share", 1))
    return PictureSet(Path(stem), pixels=Path(given["pixels"]) if "pixels" in given else None,
                      start=int(given.get("start", 0)), count=int(given.get("count", 0)),
                      tokenizer=tokenizer), share


def text_batch(options, trainee, turns, prefix, visual: int, order):
    dtype = trainee.llava.language_model.lm_head.weight.dtype
    ids, targets, group, positions = pack(turns, prefix, visual, options.width, order, options.joined)
    cos, sin = trainee.llava.rope(positions, dtype)
    return torch.tensor([prefix]), ids, targets, mask_of(group, dtype), cos, sin


# ---------------------------------------------------------------------------------------- exams
@torch.no_grad()
def examine_vision(trainee: Trainee, val: PictureSet):
    """marks of the CLS heads, shares of covered patches read rightly, and the share of CLS's last
    attention that rests on covered patches"""
    seen, right = [], []
    dtype = trainee.heads.cls.weight.dtype
    for lo in range(0, len(val), 50):
        picks = np.arange(lo, min(lo + 50, len(val)))
        look = []
        rows = trainee.llava.features(normalise(val.pictures(picks)).to(dtype), look=look)
        logits = trainee.heads.of_picture(trainee.llava.vision_tower.vision_model.post_layernorm(rows[:, 0]))
        reading = {n: logits[n].argmax(1) for n in ("count", "floor")}
        beyond = torch.arange(MAX_SOLIDS)[None] > reading["count"][:, None]
        for name in ATTRIBUTES:
            slots = torch.stack([logits[f"{name}_{k}"].argmax(1) for k in range(1, MAX_SOLIDS + 1)], 1)
            reading[name] = slots.masked_fill(beyond, -1)
        seen.append(reading)
        targets = val.patch_targets(picks).flatten(0, 1)
        parts = trainee.heads.of_patches(rows[:, 1:])
        covered = targets[:, 0] > 0
        shares = [(parts[k].argmax(1) == targets[:, k])[covered].float().mean() for k in range(5)]
        shares.append((look[-1][:, 1:].flatten() * covered).sum() / len(picks))
        right.append([float(v) for v in shares])
    marks = score({n: torch.cat([s[n] for s in seen]) for n in seen[0]}, val.labels)
    named = {f"cls_{n}": float(m[m >= 0].mean()) for n, m in marks.items()}
    return named | {f"patch_{n}": float(v) for n, v in zip(("slot", *ATTRIBUTES, "glance"), np.mean(right, 0))}


def examine_language(trainee: Trainee, val: PictureSet, tokenizer, keep=None):
    texts = captions_of(trainee.llava, val, tokenizer, keep=keep)
    marks = marks_of(texts, val.labels)
    return {n: float(m[m >= 0].mean()) for n, m in marks.items()}


# ----------------------------------------------------------------------------------------- runs
class Run:
    def __init__(self, options):
        self.options, self.log = options, Log(options.out / "log.jsonl")
        self.tokenizer = Tokenizer.from_file(str(options.tokenizer))
        talks = self.tokenizer if options.stage != "vision" else None
        sets, shares = zip(*(set_of(spec, talks) for spec in options.train))
        self.data, self.val = Mixture(sets, shares), [set_of(spec, None)[0] for spec in options.val]
        self.prefix = prefix_ids(self.tokenizer)
        self.trainee = Trainee(LlavaSizes(vocab_size=options.vocabulary))
        self.done = {"step": 0, "samples": 0, "seconds": 0.0}
        self.base = {}
        if options.resume:
            self.load(options.resume)
        self.base = {n: p.detach().float().clone() for n, p in self.trainee.named_parameters()}
        self.optimiser = MixedOptimiser(
            Chosen(self.trainee, wanted_in(options.stage)), is_muon, options.muon_lr, options.adam_lr,
            betas=(0.9, 0.98), muon_decay=options.muon_decay, clip=options.clip, ema=options.ema,
            lr_scale=lambda n: options.tower_scale if n.startswith("llava.vision_tower") else 1.0)
        self.clock = Clock(options.steps, options.minutes, options.warmup, options.decay)
        self.order = np.random.default_rng(options.seed + self.done["step"])
        self.step, self.saved, self.window = 0, time.time(), []
        self.log(stage=options.stage, pictures=[len(s) for s in sets], shares=shares, resumed=self.done,
                 parameters=sum(p.numel() for p in self.trainee.llava.parameters()),
                 options={k: str(v) for k, v in vars(options).items()})

    def load(self, path: Path):
        weights, meta = load_checkpoint(path)
        unknown = self.trainee.load_state_dict(weights, strict=False)
        if unknown.unexpected_keys:
            raise ValueError(f"{path}: {unknown}")
        self.done = {k: meta[k] for k in self.done}
        for part, cursor in zip(self.data.sets, meta["cursors"]):
            part.cursor = cursor % len(part)

    def losses_of(self):
        options, trainee = self.options, self.trainee
        body = {"vision": vision_losses, "language": language_losses, "joint": joint_losses}[options.stage]
        body = torch.compile(body) if options.compile else body
        see = torch.compile(trainee.llava.features) if options.compile else trainee.llava.features

        def losses(pictures, labels, targets, turns):
            x, total = normalise(pictures).bfloat16(), trainee.llava.sizes.tokens
            count = int(self.order.choice(options.rows))
            covered = targets[:, :, 0].numpy() > 0
            if options.stage == "language":  # the frozen tower sees all patches; what is left out is random
                covered[:] = False
            keep = some_patches(count, covered, self.order) if count < total else None
            if options.stage == "vision":
                return body(trainee, x, labels, targets, keep)
            told = min(count, int(self.order.choice(options.heard))) if options.stage == "joint" else count
            text = text_batch(options, trainee, turns, self.prefix, told, self.order)
            if options.stage == "joint":
                heard = some_patches(told, np.zeros((len(x), count)), self.order) if told < count else None
                return body(trainee, x, labels, targets, keep, heard, *text)
            with torch.no_grad():
                rows = see(x)
            return (body(trainee, rows, keep, *text),)
        return losses

    def train(self):
        options, losses = self.options, self.losses_of()
        seeing = ("picture", "patch", "glance")
        names = {"vision": seeing, "language": ("text",), "joint": (*seeing, "text")}
        weights = dict(zip((*seeing, "text"), options.weights))
        while self.clock.progress(self.step) < 1:
            parts = dict(zip(names[options.stage], losses(*self.data.batch(self.order))))
            sum(weights[n] * v for n, v in parts.items()).backward()
            norm = self.optimiser.step(self.clock.factor(self.step))
            self.window.append([float(v.detach()) for v in parts.values()])
            self.step += 1
            if self.step % 20 == 0 or self.step == 1:
                self.log(step=self.done["step"] + self.step, samples=self.samples(), norm=norm,
                         factor=self.clock.factor(self.step), **dict(zip(parts, np.mean(self.window, 0).tolist())))
                self.window = []
            over = self.clock.progress(self.step) >= 1
            if over or time.time() - self.saved > options.save_minutes * 60:
                self.save()
                self.saved = time.time()

    def samples(self):
        return self.done["samples"] + self.step * sum(self.data.counts)

    def save(self):
        """last.safetensors (masters, to resume) and ema.safetensors (averages, to use)"""
        ema = self.base | self.optimiser.ema
        meta = {"stage": self.options.stage, "step": self.done["step"] + self.step, "samples": self.samples(),
                "seconds": self.done["seconds"] + time.time() - self.clock.start,
                "cursors": [part.cursor for part in self.data.sets], "sizes": asdict(self.trainee.llava.sizes)}
        save_checkpoint(self.options.out / "last.safetensors", self.base | self.optimiser.master, meta)
        save_checkpoint(self.options.out / "ema.safetensors", ema, meta)
        twin = Trainee(self.trainee.llava.sizes)
        twin.load_state_dict(ema)
        twin.bfloat16().eval()
        for spec, val in zip(self.options.val, self.val):
            marks = examine_vision(twin, val) if self.options.stage != "language" else {}
            if self.options.stage != "vision":
                marks |= examine_language(twin, val, self.tokenizer)
            self.log(step=meta["step"], samples=meta["samples"], val=Path(spec.split(",")[0]).name, **marks)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=["vision", "language", "joint"], required=True)
    parser.add_argument("--train", nargs="+", required=True, help=set_of.__doc__)
    parser.add_argument("--val", nargs="+", required=True, help="the same, for the exams")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", type=Path, help="weights of this stage or of the one before")
    parser.add_argument("--vocabulary", type=int, default=448)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=0, help="wall time instead of --steps")
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--decay", type=float, default=0.4)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--muon-decay", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--tower-scale", type=float, default=1.0, help="times the rates of the vision tower")
    parser.add_argument("--clip", type=float, default=0.0)
    parser.add_argument("--ema", type=float, default=0.995)
    parser.add_argument("--weights", type=float, nargs=4, default=(1.0, 1.0, 0.3, 3.0),
                        help="of the losses: picture, patch, glance, text")
    parser.add_argument("--width", type=int, default=104, help="text ids behind one picture; 104 holds all turns")
    parser.add_argument("--joined", type=float, default=0.2, help="share of dialogues that are one conversation")
    parser.add_argument("--rows", type=int, nargs="+", default=[144],
                        help="each batch draws one: patches kept, by the tower (vision) or after the projector")
    parser.add_argument("--heard", type=int, nargs="+", default=[144],
                        help="each joint batch draws one: rows that the language model is given, at random, of those "
                        "the tower kept")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-minutes", type=float, default=4)
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    run = Run(options)
    run.train()


if __name__ == "__main__":
    main()
