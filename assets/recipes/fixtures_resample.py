"""Golden fingerprints of Pillow's Image.resize on RGB pictures.

    python assets/recipes/fixtures_resample.py --output tests/golden/image/resample.txt

Inputs are not stored: byte i of a picture is the top byte (noise), or the top bit times 255 (edges),
of the i-th state of the generator s -> 1664525 s + 1013904223 modulo 2^32, starting from the seed.
A line is "filter pattern in_width in_height out_width out_height seed crc32 crc32", the CRC-32 over the
output's bytes, resized across first (as Pillow up to 12 does) and as Pillow 13 does it; lines that begin with "pixels" add the bytes of a small output in hexadecimal.
"""
from __future__ import annotations

import argparse
import pathlib
import zlib

import numpy as np
import PIL
from PIL import Image

FILTERS = {
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}

SIZES = [  # (in, out): single rows and columns, odd sizes, up, down, one axis only, both ways at once
    ((1, 1), (1, 1)), ((1, 1), (7, 5)), ((1, 9), (1, 4)), ((1, 40), (13, 3)), ((50, 1), (3, 1)), ((37, 1), (90, 11)),
    ((2, 2), (3, 3)), ((3, 3), (2, 2)), ((5, 7), (7, 5)), ((16, 16), (16, 16)), ((16, 16), (32, 32)), ((17, 19), (34, 38)),
    ((64, 48), (48, 64)), ((33, 65), (32, 64)), ((64, 64), (63, 63)), ((100, 75), (100, 31)), ((100, 75), (31, 75)),
    ((101, 67), (7, 3)), ((101, 67), (1, 1)), ((120, 90), (336, 252)), ((200, 3), (40, 60)), ((3, 200), (60, 40)),
    ((255, 254), (128, 127)), ((256, 192), (336, 336)), ((300, 200), (56, 28)), ((311, 97), (384, 119)),
    ((128, 128), (127, 129)), ((90, 160), (89, 158)), ((640, 9), (336, 5)), ((11, 700), (9, 333)), ((500, 2), (2, 500)),
    ((320, 240), (32, 24)), ((320, 240), (107, 80)), ((299, 301), (100, 101)), ((2, 300), (300, 2)), ((400, 300), (23, 317)),
]


def generate(width: int, height: int, seed: int, pattern: str) -> np.ndarray:
    count = width * height * 3
    steps = np.full(count, 1664525, np.uint32)
    with np.errstate(over="ignore"):
        powers = np.cumprod(steps, dtype=np.uint32)  # a^1 ... a^n
        sums = np.cumsum(np.concatenate(([1], powers[:-1])).astype(np.uint32), dtype=np.uint32)
        states = powers * np.uint32(seed) + sums * np.uint32(1013904223)
    data = (states >> 24) if pattern == "noise" else (states >> 31) * 255
    return data.astype(np.uint8).reshape(height, width, 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, required=True)
    output = parser.parse_args().output
    lines = [f"# Pillow {PIL.__version__}; see assets/recipes/fixtures_resample.py"]
    seed = 1
    for name, kind in FILTERS.items():
        for (in_size, out_size) in SIZES:
            for pattern in ("noise", "edges"):
                seed += 1
                picture = Image.fromarray(generate(*in_size, seed, pattern))
                across = picture.resize((out_size[0], in_size[1]), resample=kind)
                pixels = np.asarray(across.resize(out_size, resample=kind)).tobytes()
                direct = np.asarray(picture.resize(out_size, resample=kind)).tobytes()
                line = f"{name} {pattern} {in_size[0]} {in_size[1]} {out_size[0]} {out_size[1]} {seed} {zlib.crc32(pixels):08x} {zlib.crc32(direct):08x}"
                lines.append(f"pixels {line} {pixels.hex()}" if len(pixels) <= 80 else line)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
