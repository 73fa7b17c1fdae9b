"""Which frames the published processors take: tests/golden/video/frames.json.

Uniform: numpy.linspace(0, total - 1, n, dtype=int), as LLaVA-NeXT-Video's and OneVision's code has it.
Qwen: smart_nframes and the indices of qwen-vl-utils (fps 2, 4 to 768 frames, factor 2), written out
from their description.
"""
from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch

TOTALS = [4, 5, 7, 8, 16, 31, 64, 100, 241, 300, 1799, 18000]


def qwen(total: int, rate: float, wanted: float = 2.0, most: int = 768) -> list[int]:
    low, high = math.ceil(4 / 2) * 2, math.floor(min(most, total) / 2) * 2
    n = total / rate * wanted
    n = min(min(max(n, low), high), total)
    n = math.floor(n / 2) * 2
    return torch.linspace(0, total - 1, n).round().long().tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("tests/golden/video/frames.json"))
    options = parser.parse_args()
    cases = []
    for total in TOTALS:
        for n in (1, 4, 8, 32, 64):
            frames = np.linspace(0, total - 1, n, dtype=int).tolist()
            cases.append({"rule": "uniform", "total": total, "frames": n, "indices": frames})
        for rate in (8, 25, 30, 60):
            for most in (8, 768):
                cases.append({"rule": "qwen", "total": total, "rate": rate, "frames": most,
                              "indices": qwen(total, rate, most=most)})
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n", encoding="utf-8")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
