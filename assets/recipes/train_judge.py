"""Train the judge on true renders, some of them passed through the picture tokenizer.

A share of each batch is replaced by VQ reconstructions and gets slight noise or blur, so that the
judge does not punish the tokenizer. Writes the model folder and the golden of the C++ tests.
"""
from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from encode_codes import load_vq
from judge_model import Judge, JudgeConfig, head_sizes, read, score, summary
from training_common import (ATTRIBUTES, COLOURS, FLOORS, KINDS, MATERIALS, MAX_SOLIDS, SIZES, Clock, Log,
                             MixedOptimiser, load_checkpoint, save_checkpoint, scene_arguments,
                             scenes_for, to_float, truth_labels)


def loss_of(logits, labels):
    total = F.cross_entropy(logits["count"].float(), labels["count"])
    total = total + F.cross_entropy(logits["floor"].float(), labels["floor"])
    for name in ATTRIBUTES:
        for k in range(MAX_SOLIDS):
            target = labels[name][:, k]
            if bool((target >= 0).any()):
                share = (target >= 0).float().mean()
                total = total + share * F.cross_entropy(logits[f"{name}_{k + 1}"].float(), target,
                                                        ignore_index=-1)
    return total


def disturb(x, reconstructed, order):
    """x fp32 [B, 3, H, W]; rows of `reconstructed` (or None) stand in; slight noise or blur"""
    if reconstructed is not None:
        x = torch.cat((reconstructed, x[len(reconstructed):]))
    n = len(x)
    noise = torch.from_numpy(order.uniform(0, 0.05, (n, 1, 1, 1)).astype(np.float32))
    noise = noise * torch.from_numpy((order.random((n, 1, 1, 1)) < 0.4).astype(np.float32))
    blurred = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)
    mix = torch.from_numpy((order.uniform(0, 0.5, (n, 1, 1, 1)) * (order.random((n, 1, 1, 1)) < 0.25)).astype(np.float32))
    return (x * (1 - mix) + blurred * mix + noise * torch.randn_like(x)).clamp(-1, 1)


@torch.no_grad()
def examine(model, pixels, labels, vq=None):
    seen = []
    for lo in range(0, len(pixels), 64):
        x = to_float(pixels[lo:lo + 64])
        if vq is not None:
            x = vq.decode(vq.encode(x.to(vq.quant_conv.weight.dtype))).float().clamp(-1, 1)
        seen.append(read(model, x))
    seen = {n: torch.cat([s[n] for s in seen]) for n in seen[0]}
    return score(seen, labels), seen


def is_muon(name, p):
    return p.dim() == 4 and min(p.shape[0], p.numel() // p.shape[0]) >= 16 and "conv_in" not in name


def export(model: Judge, folder: Path, meta: dict):
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "tabletop-judge", **vars(model.config), "norm_groups": 32, "norm_eps": 1e-6,
              "attention": "after every block of the deepest level", "pool": "mean over rows",
              "pixel_range": [-1, 1], "heads": head_sizes(), "max_solids": MAX_SOLIDS,
              "labels": {"count": [1, 2, 3, 4], "floor": FLOORS, "kind": KINDS, "colour": COLOURS,
                         "size": SIZES, "material": MATERIALS},
              "slots": "solids from left to right; slots beyond the count are not read", "training": meta}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({n: t.bfloat16().contiguous() for n, t in model.state_dict().items()},
              str(folder / "model.safetensors"), metadata={"format": "pt"})


@torch.no_grad()
def golden(model: Judge, pixels, path: Path):
    """8 pictures u8, and features and fp32 logits of the bf16-rounded weights, heads concatenated in order"""
    path.parent.mkdir(parents=True, exist_ok=True)
    x = to_float(pixels[:8])
    logits = torch.cat(list(model(x).values()), 1)
    save_file({"pixels": torch.from_numpy(np.array(pixels[:8])), "logits": logits.contiguous(),
               "features": model.features(x).contiguous()}, str(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    scene_arguments(parser)
    parser.add_argument("--vq", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--scenes", type=int, default=40000)
    parser.add_argument("--scene-seed", type=int, default=2)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--vq-share", type=float, default=0.3)
    parser.add_argument("--muon-lr", type=float, default=0.015)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--export-only", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    val, val_scenes = scenes_for(options, "val", 0, 1000, seed=2)
    val_labels = truth_labels(val_scenes)
    vq = load_vq(options.vq) if options.vq else None
    model, log = Judge(JudgeConfig()), Log(options.out / "log.jsonl")
    if options.resume:
        model.load_state_dict(load_checkpoint(options.resume)[0])
    if not options.export_only:
        train(options, model, vq, log, val, val_labels)
    finish(options, model, vq, log, val, val_labels)


def train(options, model, vq, log, val, val_labels):
    pixels, scenes = scenes_for(options, "train", 0, options.scenes, seed=options.scene_seed)
    labels = truth_labels(scenes)
    optimiser = MixedOptimiser(model, is_muon, options.muon_lr, options.adam_lr, clip=5.0, ema=0.995)
    clock, order, step = Clock(options.steps, options.minutes, 30, options.decay), np.random.default_rng(options.seed), 0
    log(parameters=sum(p.numel() for p in model.parameters()))
    while clock.progress(step) < 1:
        picks = order.choice(len(pixels), options.batch, replace=False)
        x, batch = to_float(pixels[np.sort(picks)]), {n: t[np.sort(picks)] for n, t in labels.items()}
        shuffle = torch.from_numpy(order.permutation(options.batch))
        x, batch = x[shuffle], {n: t[shuffle] for n, t in batch.items()}
        through = None
        if vq is not None and options.vq_share:
            with torch.no_grad():
                part = x[: math.ceil(options.batch * options.vq_share)].bfloat16()
                through = vq.decode(vq.encode(part)).float().clamp(-1, 1)
        loss = loss_of(model(disturb(x, through, order).bfloat16()), batch)
        loss.backward()
        norm = optimiser.step(clock.factor(step))
        if step % 20 == 0:
            log(step=step, loss=float(loss.detach()), norm=norm)
        step += 1
        if step % 300 == 0 or clock.progress(step) >= 1:
            twin = Judge(model.config)
            twin.load_state_dict(optimiser.ema)
            marks, _ = examine(twin.bfloat16(), val[:300], {n: t[:300] for n, t in val_labels.items()})
            log(step=step, **{n: float(m[m >= 0].mean()) for n, m in marks.items()})
            save_checkpoint(options.out / "judge.safetensors", optimiser.ema,
                            {"step": step, "batch": options.batch, "config": vars(model.config)})
    model.float().load_state_dict(optimiser.ema)


def finish(options, model, vq, log, val, val_labels):
    """Ceiling on true renders and on tokenizer reconstructions; accepted mismatched pairs."""
    model.bfloat16().float()  # the exported weights are bf16: measure those
    marks, seen = examine(model, val, val_labels)
    roll = {n: torch.roll(t, 1, 0) for n, t in val_labels.items()}
    same = torch.ones(len(val), dtype=torch.bool)
    for name in val_labels:
        same &= (roll[name] == val_labels[name]).view(len(val), -1).all(1)
    wrong = score(seen, roll)["scene"][~same]
    meta = {"true_renders": summary(marks), "mismatched_accepted": [int(wrong.sum()), len(wrong)]}
    if vq is not None:
        meta["reconstructions"] = summary(examine(model, val, val_labels, vq.float())[0])
    log(**meta)
    if options.export:
        export(model, options.export, meta)
    if options.golden:
        golden(model, val, options.golden)


if __name__ == "__main__":
    main()
