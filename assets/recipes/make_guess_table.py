"""Which code usually stands right of one code and below another: counts over encoded training
scenes, as the table that decoding guesses from (`guesses.safetensors` beside the model)."""
from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from encode_clip_codes import load_coded_clips
from encode_codes import load_coded


def likeliest(context: np.ndarray, code: np.ndarray, contexts: int, codes: int) -> np.ndarray:
    """[contexts] the code seen most often in each, the lowest on a tie, -1 where none was seen"""
    pairs, counts = np.unique(context * codes + code, return_counts=True)
    order = np.lexsort((pairs % codes, -counts, pairs // codes))
    keys = pairs[order] // codes
    first = np.concatenate(([True], keys[1:] != keys[:-1]))
    out = np.full(contexts, -1, np.int16)
    out[keys[first]] = (pairs[order] % codes)[first]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="encoded sets, without suffix")
    parser.add_argument("--val", type=Path, required=True)
    parser.add_argument("--clips", action="store_true", help="the sets are clips: all their grids count")
    parser.add_argument("--codes", type=int, default=512)
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    options = parser.parse_args()
    v, side = options.codes, options.side
    grids = lambda stem: (load_coded_clips(stem)[1] if options.clips else load_coded(stem)[2]).reshape(-1, side, side)
    grid = np.concatenate([grids(stem) for stem in options.train]).astype(np.int64)
    here, left, above = grid[:, 1:, 1:], grid[:, 1:, :-1], grid[:, :-1, 1:]
    both = likeliest((left * v + above).ravel(), here.ravel(), v * v, v).reshape(v, v)
    one = np.maximum(likeliest(grid[:, :, :-1].ravel(), grid[:, :, 1:].ravel(), v, v), 0)
    up = np.maximum(likeliest(grid[:, :-1, 0].ravel(), grid[:, 1:, 0].ravel(), v, v), 0)
    val = grids(options.val).astype(np.int64)
    pair = both[val[:, 1:, :-1], val[:, :-1, 1:]]
    guess = np.where(pair >= 0, pair, one[val[:, 1:, :-1]])
    print(f"{len(grid)} grids, {(both >= 0).sum()} of {v * v} pairs seen; "
          f"right on val: {(guess == val[:, 1:, 1:]).mean():.4f}")
    options.out.mkdir(parents=True, exist_ok=True)
    save_file({"left_above": both, "left": one, "above": up}, str(options.out / "guesses.safetensors"),
              {"grids": str(len(grid))})


if __name__ == "__main__":
    main()
