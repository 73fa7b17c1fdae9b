"""Rough colours of picture codes: the mean 4 x 4 patch of pixels that each code stood for.

Reads encoded scenes (encode_codes.py) and writes patches.safetensors, `patches` [V, 4, 4, 3] U8.
Codes that stand nowhere get the patch of the nearest code vector that does.
"""
from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from encode_codes import load_vq


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vq", type=Path, required=True)
    parser.add_argument("--pixels", type=Path, required=True, help=".npy of scenes [N, H, W, 3] u8")
    parser.add_argument("--codes", type=Path, required=True, help=".codes.npy of the first scenes of the set")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    vectors = torch.nn.functional.normalize(load_vq(options.vq, torch.float32).quantize.embedding.weight.detach(), dim=1)
    codes = np.load(options.codes).astype(np.int64)
    pixels = np.load(options.pixels, mmap_mode="r")
    grid = int(codes.shape[1] ** 0.5)
    side = pixels.shape[1] // grid
    sums = np.zeros((len(vectors), side, side, 3))
    counts = np.zeros(len(vectors))
    for lo in range(0, len(codes), 500):
        part = np.asarray(pixels[lo:lo + 500], dtype=np.float64)[:len(codes) - lo]
        patches = part.reshape(len(part), grid, side, grid, side, 3).transpose(0, 1, 3, 2, 4, 5)
        ids = codes[lo:lo + len(part)].reshape(-1)
        np.add.at(sums, ids, patches.reshape(-1, side, side, 3))
        counts += np.bincount(ids, minlength=len(vectors))
    seen = np.flatnonzero(counts)
    means = sums[seen] / counts[seen, None, None, None]
    nearest = (vectors @ vectors[torch.tensor(seen)].T).argmax(1).numpy()
    save_file({"patches": np.rint(means[nearest]).astype(np.uint8)}, options.out)
    print(f"{len(codes)} scenes, {len(seen)} of {len(vectors)} codes seen")


if __name__ == "__main__":
    main()
