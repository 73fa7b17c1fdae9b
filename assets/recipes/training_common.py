"""What the tabletop recipes share: scenes from scene_dump, optimiser, schedule, checkpoints.

Models train in bf16 copies of fp32 master weights. Matrices and convolution kernels are updated by
Muon (momentum orthogonalised by five Newton-Schulz steps), everything else by AdamW. Checkpoints
hold fp32 master weights only; a resumed run re-warms the optimiser.
"""
from __future__ import annotations

import json
import math
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

KINDS = ["sphere", "cube", "cylinder", "cone"]
COLOURS = ["red", "green", "blue", "yellow", "purple", "cyan", "orange", "white"]
SIZES = ["small", "large"]
MATERIALS = ["matte", "shiny"]
FLOORS = ["gray", "brown", "dark", "checkered"]
ATTRIBUTES = {"kind": KINDS, "colour": COLOURS, "size": SIZES, "material": MATERIALS}
MAX_SOLIDS = 4


# ------------------------------------------------------------------------------------- scenes
def dump_scenes(binary: str, folder: Path, split: str, start: int, count: int, seed: int, size: int,
                threads: int, frames: int = 0):
    """Run scene_dump once; keep pixels [N, size, size, 3] u8 in .npy and one JSON line a scene.

    With `frames`, clips: pixels [N, frames, size, size, 3].
    """
    folder.mkdir(parents=True, exist_ok=True)
    shape = (frames, size, size, 3) if frames else (size, size, 3)
    stem = folder / f"{split}-seed{seed}-size{size}{f'-frames{frames}' if frames else ''}-{start}-{count}"
    pixels_path, lines_path = stem.with_suffix(".npy"), stem.with_suffix(".jsonl")
    if pixels_path.exists() and lines_path.exists():
        return stem
    command = [binary, "--seed", str(seed), "--split", split, "--start", str(start), "--count",
               str(count), "--size", str(size), "--threads", str(threads)]
    command += ["--frames", str(frames)] if frames else []
    partial = stem.with_suffix(".partial.npy")
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=1 << 20) as process:
        pixels = np.lib.format.open_memmap(partial, "w+", np.uint8, (count, *shape))
        with open(lines_path, "w", encoding="utf-8") as lines:
            for i in range(count):
                line = process.stdout.readline()
                raw = process.stdout.read(math.prod(shape))
                if len(raw) != math.prod(shape):
                    raise RuntimeError(f"{binary}: scene {start + i} of {split} is cut short")
                lines.write(line.decode("utf-8"))
                pixels[i] = np.frombuffer(raw, np.uint8).reshape(shape)
        if process.wait() != 0:
            raise RuntimeError(f"{binary} ended with {process.returncode}")
    pixels.flush()
    os.replace(partial, pixels_path)
    return stem


def load_scenes(stem: Path, with_pixels: bool = True):
    """(pixels memmap or None, list of parsed JSON lines)"""
    stem = Path(stem)
    with open(stem.with_suffix(".jsonl"), encoding="utf-8") as lines:
        scenes = [json.loads(line) for line in lines]
    pixels = np.load(stem.with_suffix(".npy"), mmap_mode="r") if with_pixels else None
    return pixels, scenes


def scene_arguments(parser):
    parser.add_argument("--scene-dump", default="scene_dump", help="the scene_dump program")
    parser.add_argument("--data", type=Path, required=True, help="folder for rendered scenes")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--dump-threads", type=int, default=1)


def scenes_for(options, split: str, start: int, count: int, with_pixels: bool = True, seed: int = 1,
               frames: int = 0):
    stem = dump_scenes(options.scene_dump, options.data, split, start, count, seed, options.size,
                       options.dump_threads, frames)
    return load_scenes(stem, with_pixels)


def to_float(pixels) -> torch.Tensor:
    """u8 [..., H, W, 3] -> fp32 [..., 3, H, W] in [-1, 1]"""
    x = torch.from_numpy(np.array(pixels)).movedim(-1, -3)
    return x.float().div_(127.5).sub_(1.0).contiguous()


def to_u8(x: torch.Tensor) -> np.ndarray:
    """[..., 3, H, W] in [-1, 1] -> u8 [..., H, W, 3], Janus's rule: clip, then truncate"""
    y = ((x.float() + 1) / 2 * 255).clamp(0, 255).to(torch.uint8)
    return y.movedim(-3, -1).contiguous().numpy()


def truth_labels(scenes) -> dict[str, torch.Tensor]:
    """count-1 [N], floor [N], and kind, colour, size, material [N, 4] (-1 where no solid stands)"""
    n = len(scenes)
    labels = {"count": torch.empty(n, dtype=torch.long), "floor": torch.empty(n, dtype=torch.long)}
    for name in ATTRIBUTES:
        labels[name] = torch.full((n, MAX_SOLIDS), -1, dtype=torch.long)
    for i, line in enumerate(scenes):
        scene = line["scene"]
        labels["count"][i] = len(scene["solids"]) - 1
        labels["floor"][i] = FLOORS.index(scene["floor"])
        for k, solid in enumerate(scene["solids"]):
            for name, values in ATTRIBUTES.items():
                labels[name][i, k] = values.index(solid[name])
    return labels


# ---------------------------------------------------------------------------------- optimiser
def orthogonalise(g: torch.Tensor) -> torch.Tensor:
    """[B, rows, cols] -> near-orthogonal of the same span; quintic Newton-Schulz in bf16"""
    x = g / (g.norm(dim=(1, 2), keepdim=True) + 1e-7)
    flip = x.shape[1] > x.shape[2]
    x = (x.transpose(1, 2) if flip else x).bfloat16().contiguous()
    for a, b, c in [(3.4445, -4.7750, 2.0315)] * 5:
        s = x @ x.transpose(1, 2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return (x.transpose(1, 2) if flip else x).float()


class MixedOptimiser:
    """fp32 masters of a bf16 model; Muon for `muon` names, AdamW for the rest."""

    def __init__(self, model, is_muon, muon_lr: float, adam_lr: float, betas=(0.9, 0.95),
                 momentum: float = 0.95, muon_decay: float = 0.0, adam_decay: float = 0.0,
                 clip: float = 0.0, ema: float = 0.0, lr_scale=None):
        self.named = list(model.named_parameters())
        self.master = {n: p.detach().float().clone() for n, p in self.named}
        model.bfloat16()
        self.muon_lr, self.adam_lr, self.betas, self.momentum = muon_lr, adam_lr, betas, momentum
        self.muon_decay, self.adam_decay, self.clip, self.ema_rate = muon_decay, adam_decay, clip, ema
        self.lr_scale = lr_scale or (lambda name: 1.0)
        self.groups: dict[tuple, list[str]] = {}
        self.adam: list[str] = []
        for name, p in self.named:
            if is_muon(name, p):
                self.groups.setdefault((p.shape[0], p.numel() // p.shape[0]), []).append(name)
            else:
                self.adam.append(name)
        self.first = {n: torch.zeros_like(self.master[n]) for n, _ in self.named}
        self.second = {n: torch.zeros_like(self.master[n]) for n in self.adam}
        self.steps = 0
        self.ema = {n: w.clone() for n, w in self.master.items()} if ema else None
        self.publish()

    def publish(self):
        with torch.no_grad():
            for name, p in self.named:
                p.copy_(self.master[name])

    @torch.no_grad()
    def step(self, factor: float) -> float:
        """One update with learning rates times `factor`; returns the gradient norm."""
        self.steps += 1
        grads = {n: p.grad.float() for n, p in self.named if p.grad is not None}
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads.values()))
        if not math.isfinite(norm):
            raise FloatingPointError("the gradient is not finite")
        if self.clip and norm > self.clip:
            for g in grads.values():
                g.mul_(self.clip / norm)
        for (rows, cols), names in self.groups.items():
            names = [n for n in names if n in grads]
            stack = []
            for n in names:
                m, g = self.first[n], grads[n]
                m.lerp_(g, 1 - self.momentum)
                stack.append(g.lerp(m, self.momentum).view(rows, cols))
            updates = orthogonalise(torch.stack(stack))
            scale = self.muon_lr * factor * max(1.0, rows / cols) ** 0.5
            for n, u in zip(names, updates):
                w = self.master[n]
                w.mul_(1 - self.muon_lr * factor * self.muon_decay)
                w.sub_(u.view_as(w), alpha=scale * self.lr_scale(n))
        b1, b2 = self.betas
        c1, c2 = 1 - b1**self.steps, 1 - b2**self.steps
        for n in self.adam:
            if n not in grads:
                continue
            g, m, v, w = grads[n], self.first[n], self.second[n], self.master[n]
            m.lerp_(g, 1 - b1)
            v.lerp_(g * g, 1 - b2)
            rate = self.adam_lr * factor * self.lr_scale(n)
            if w.dim() > 1:
                w.mul_(1 - rate * self.adam_decay)
            w.sub_((m / c1) / ((v / c2).sqrt() + 1e-8) * rate)
        if self.ema is not None:
            rate = min(self.ema_rate, (1 + self.steps) / (10 + self.steps))
            for n, w in self.master.items():
                self.ema[n].lerp_(w, 1 - rate)
        for _, p in self.named:
            p.grad = None
        self.publish()
        return norm


class Clock:
    """Progress by steps or by wall time: warm-up, constant, then linear decay to zero."""

    def __init__(self, steps: int, minutes: float, warmup: int, decay: float, done: float = 0.0):
        self.steps, self.seconds, self.warmup, self.decay = steps, minutes * 60, warmup, decay
        self.start, self.done = time.time(), done

    def progress(self, step: int) -> float:
        if self.seconds:
            part = (time.time() - self.start) / self.seconds
            return self.done + (1 - self.done) * part
        return step / self.steps

    def factor(self, step: int) -> float:
        warm = min(1.0, (step + 1) / self.warmup)
        left = max(0.0, 1.0 - self.progress(step))
        return warm * min(1.0, left / self.decay)


# -------------------------------------------------------------------------------- checkpoints
def save_checkpoint(path: Path, tensors: dict, meta: dict):
    """safetensors with a JSON header entry, renamed into place"""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    save_file({n: t.contiguous() for n, t in tensors.items()}, str(partial),
              metadata={"meta": json.dumps(meta)})
    os.replace(partial, path)


def load_checkpoint(path: Path):
    with safe_open(str(path), "pt") as f:
        return {n: f.get_tensor(n) for n in f.keys()}, json.loads(f.metadata()["meta"])


class Log:
    """JSON lines on stdout and in a file"""

    def __init__(self, path: Path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.file, self.start = open(path, "a", encoding="utf-8"), time.time()

    def __call__(self, **values):
        values = {"seconds": round(time.time() - self.start, 1), **values}
        line = json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in values.items()})
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


def picture_grid(pixels: np.ndarray, columns: int, scale: int = 3):
    """u8 [N, H, W, 3] -> PIL image"""
    from PIL import Image
    n, h, w, _ = pixels.shape
    rows = -(-n // columns)
    sheet = np.zeros((rows * h, columns * w, 3), np.uint8)
    for i in range(n):
        r, c = divmod(i, columns)
        sheet[r * h:(r + 1) * h, c * w:(c + 1) * w] = pixels[i]
    return Image.fromarray(sheet).resize((columns * w * scale, rows * h * scale), Image.NEAREST)
