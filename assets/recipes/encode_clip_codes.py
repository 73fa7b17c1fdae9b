"""Encode dumped clips with the trained clip tokenizer: one .codes.npy [N, T / 4, 16, 16] u16 a part.

With `--hold` a place that nothing moves through keeps the code of the grid before, if that is not much
farther from its latents than the nearest one: a writer then learns that what stands still stays."""
from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch

from training_common import load_checkpoint, load_scenes, to_float
from train_video_vq import still_places
from video_model import VideoVq, VideoVqConfig


def load_video_vq(path: Path, dtype=torch.float32) -> VideoVq:
    weights, meta = load_checkpoint(path)
    model = VideoVq(VideoVqConfig(**meta["config"]))
    model.load_state_dict(weights)
    return model.to(dtype).eval()


@torch.no_grad()
def codes_of(model: VideoVq, pixels, hold: float):
    """pixels [B, T, 3, H, W] -> codes [B, T / 4, H / 4, W / 4]"""
    z = model.latents(pixels)
    far = model.nearest(z.flatten(0, 3)).unflatten(0, z.shape[:-1])
    least, codes = far.min(-1)
    if hold > 0:
        still = still_places(pixels.float(), beside=False)
        for t in range(1, codes.shape[1]):
            before = far[:, t].gather(-1, codes[:, t - 1, ..., None])[..., 0]
            codes[:, t] = torch.where(still[:, t - 1] & (before - least[:, t] < hold), codes[:, t - 1], codes[:, t])
    return codes


def encode(model: VideoVq, clips, frames: int, hold: float = 0.0, batch: int = 8) -> np.ndarray:
    out, dtype = [], model.quantize.embedding.weight.dtype
    for lo in range(0, len(clips), batch):
        pixels = to_float(clips[lo:lo + batch, :frames]).to(dtype)
        out.append(codes_of(model, pixels, hold).numpy().astype(np.uint16))
    return np.concatenate(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vq", type=Path, required=True)
    parser.add_argument("--clips", type=Path, required=True, help="dumped set, without suffix")
    parser.add_argument("--frames", type=int, default=8, help="of each clip, from its first")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="0: to the end")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="twice as fast; about 2 %% of the codes differ")
    parser.add_argument("--hold", type=float, default=0.0, help="most that a held code may be farther, squared")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pixels = np.load(options.clips.with_suffix(".npy"), mmap_mode="r")
    stop = options.start + options.count if options.count else len(pixels)
    begin = time.time()
    model = load_video_vq(options.vq, torch.bfloat16 if options.bf16 else torch.float32)
    codes = encode(model, pixels[options.start:stop], options.frames, options.hold)
    target = options.clips.parent / f"{options.clips.name}.{options.start}-{stop}.codes.npy"
    partial = target.with_suffix(".partial")
    with open(partial, "wb") as f:
        np.save(f, codes)
    os.replace(partial, target)
    print(f"{target}: {len(codes)} clips in {time.time() - begin:.0f} s")


def load_coded_clips(stem: Path):
    """lines (caption, clip) and codes [N, T, H, W] of every encoded part of one dumped set"""
    stem, kept, codes, parts = Path(stem), [], [], []
    _, lines = load_scenes(stem, with_pixels=False)
    for path in stem.parent.glob(f"{stem.name}.*.codes.npy"):
        lo, hi = (int(v) for v in path.name[len(stem.name) + 1:].split(".")[0].split("-"))
        parts.append((lo, hi, path))
    for lo, hi, path in sorted(parts):
        codes.append(np.load(path))
        kept += lines[lo:hi]
    if not codes:
        raise FileNotFoundError(f"no codes beside {stem}; run encode_clip_codes.py first")
    return kept, np.concatenate(codes)


if __name__ == "__main__":
    main()
