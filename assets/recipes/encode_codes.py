"""Encode dumped scenes with the trained picture tokenizer: one .codes.npy [N, 256] u16 a set."""
from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch

from janus_model import VqConfig, VqModel
from training_common import load_checkpoint, load_scenes, to_float


def load_vq(path: Path, dtype=torch.bfloat16) -> VqModel:
    weights, meta = load_checkpoint(path)
    model = VqModel(VqConfig(**meta["config"]))
    model.load_state_dict(weights)
    return model.to(dtype).eval()


@torch.no_grad()
def encode(model: VqModel, pixels, batch: int = 32) -> np.ndarray:
    dtype, out = model.quant_conv.weight.dtype, []
    for lo in range(0, len(pixels), batch):
        codes = model.encode(to_float(pixels[lo:lo + batch]).to(dtype))
        out.append(codes.flatten(1).numpy().astype(np.uint16))
    return np.concatenate(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vq", type=Path, required=True)
    parser.add_argument("--scenes", type=Path, required=True, help="dumped set, without suffix")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="0: to the end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_vq(options.vq)
    pixels = np.load(options.scenes.with_suffix(".npy"), mmap_mode="r")
    stop = options.start + options.count if options.count else len(pixels)
    begin = time.time()
    codes = encode(model, pixels[options.start:stop])
    target = options.scenes.parent / f"{options.scenes.name}.{options.start}-{stop}.codes.npy"
    partial = target.with_suffix(".partial")
    with open(partial, "wb") as f:
        np.save(f, codes)
    os.replace(partial, target)
    print(f"{target}: {len(codes)} scenes in {time.time() - begin:.0f} s")


def load_coded(stem: Path):
    """captions, scenes and codes of every encoded part of one dumped set"""
    stem, captions, truth, codes = Path(stem), [], [], []
    _, scenes = load_scenes(stem, with_pixels=False)
    parts = []
    for path in stem.parent.glob(f"{stem.name}.*.codes.npy"):
        lo, hi = (int(v) for v in path.name[len(stem.name) + 1:].split(".")[0].split("-"))
        parts.append((lo, hi, path))
    for lo, hi, path in sorted(parts):
        codes.append(np.load(path))
        captions += [s["caption"] for s in scenes[lo:hi]]
        truth += [s["scene"] for s in scenes[lo:hi]]
    if not codes:
        raise FileNotFoundError(f"no codes beside {stem}; run encode_codes.py first")
    return captions, truth, np.concatenate(codes)


if __name__ == "__main__":
    main()
