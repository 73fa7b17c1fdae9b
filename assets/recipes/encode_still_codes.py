"""Codes of still lifes for train_lm.py: scenes come from scene_dump and pass through the trained
tokenizer of the second world; pixels are not kept.

Writes OUT.jsonl (a line a scene, as scene_dump has it) and OUT.START-END.codes.npy, [N, 256] u16, a
part at a time. The next call with the same --out goes on after the last whole part, until --count.
"""
from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from encode_codes import encode, load_vq
from train_still_vq import Scenes

PART = 512  # scenes


def parts_of(out: Path) -> int:
    """how many scenes are encoded already"""
    ends = [int(path.name[len(out.name) + 1:].split(".")[0].split("-")[1])
            for path in out.parent.glob(f"{out.name}.*.codes.npy")]
    return max(ends, default=0)


def keep_lines(path: Path, count: int) -> None:
    """cuts what an interrupted call wrote after its last whole part"""
    if not path.exists():
        return
    with open(path, encoding="utf-8") as file:
        lines = [line for _, line in zip(range(count), file)]
    partial = path.with_suffix(".partial")
    partial.write_text("".join(lines), encoding="utf-8")
    os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vq", type=Path, required=True)
    parser.add_argument("--scene-dump", default="scene_dump")
    parser.add_argument("--things", type=Path)
    parser.add_argument("--split", choices=["train", "val", "holdout"], default="train")
    parser.add_argument("--first", type=int, default=0, help="index of the set's first scene")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--out", type=Path, required=True, help="without suffix")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_vq(options.vq)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done, lines_path = parts_of(options.out), options.out.with_suffix(".jsonl")
    keep_lines(lines_path, done)
    scenes = Scenes(options, options.split, options.first + done, options.size, with_lines=True)
    begun = time.time()
    while done < options.count:
        count = min(PART, options.count - done)
        lines, codes = [], []
        while len(lines) < count:
            text, pixels = scenes.take_with_lines(min(8, count - len(lines)))
            lines += text
            codes.append(encode(model, pixels, 8))
        with open(lines_path, "a", encoding="utf-8") as file:
            file.writelines(lines)
        target = options.out.parent / f"{options.out.name}.{done}-{done + count}.codes.npy"
        partial = target.with_suffix(".partial")
        with open(partial, "wb") as file:
            np.save(file, np.concatenate(codes))
        os.replace(partial, target)
        done += count
        print(json.dumps({"scenes": done, "seconds": round(time.time() - begun)}), flush=True)
    scenes.close()


if __name__ == "__main__":
    main()
