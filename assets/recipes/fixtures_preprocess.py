"""Fingerprints of what the image processors of `transformers` (Pillow path) make of pictures.

    python assets/recipes/fixtures_preprocess.py --output tests/golden/image/preprocess.txt

A line is "order policy width height seed views view_height view_width crc32(pixels) crc32(values)": the first CRC
over the resized, padded and cut 8-bit pixels of all views [views, 3, H, W], the second over the normalised
f32 values. For Qwen2-VL both are over patch rows. Inputs come from the generator of fixtures_resample.py.
`order` says how Pillow resized: "pillow13" as version 13 does it by itself, "across" with the horizontal pass
first, as all versions before it did; the latter is forced here by resizing in two calls. A picture has a line of
"pillow13" only where that differs.
"resolutions" lines hold the token map of LLaVA-NeXT after unpadding, "sizes" lines those of smart_resize.
"""
from __future__ import annotations

import argparse
import pathlib
import zlib

import numpy as np
import PIL
import torch
import transformers
from PIL import Image
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape, unpad_image
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from fixtures_resample import generate

SIZES = [(64, 48), (48, 64), (50, 50), (101, 37), (37, 150), (7, 9), (400, 30), (333, 336), (1, 3), (190, 127)]
LARGE = [(640, 480), (480, 640), (1000, 300)]
LARGE_VIEWS = ("idefics3", "smolvlm", "smolvlm-500m")  # always a dozen tiles and more: half of the sizes
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLIP_336 = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}


def tiles(kind, side: int):
    return kind(size={"longest_edge": 4 * side}, max_image_size={"longest_edge": side})


PROCESSORS = {
    "llava-1.5": LlavaImageProcessorPil(do_pad=True, **CLIP_336),
    "llava-1.5-hf": LlavaImageProcessorPil(**CLIP_336),
    "llava-next": LlavaNextImageProcessorPil(**CLIP_336),
    "llava-onevision": LlavaOnevisionImageProcessorPil(**HALF),
    "janus-hf": JanusImageProcessorPil(**HALF),
    "qwen2-vl": Qwen2VLImageProcessorPil(min_pixels=4 * 784, max_pixels=16384 * 784),
    "idefics3": tiles(Idefics3ImageProcessorPil, 364),
    "smolvlm": tiles(SmolVLMImageProcessorPil, 384),
    "smolvlm-500m": tiles(SmolVLMImageProcessorPil, 512),
}


ONE_CALL = Image.Image.resize


def across_first(self, size, resample=None, box=None, reducing_gap=None):
    if box is not None or reducing_gap is not None:
        raise ValueError("two calls stand for a plain resize only")
    return ONE_CALL(ONE_CALL(self, (size[0], self.height), resample), size, resample)


ORDERS = {"across": across_first, "pillow13": ONE_CALL}


def crc(values: np.ndarray) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(values).tobytes()):08x}"


def run(name: str, picture: Image.Image, **switches) -> np.ndarray:
    out = PROCESSORS[name](picture, return_tensors="np", **switches)["pixel_values"]
    out = np.asarray(out)
    return out if name == "qwen2-vl" else out.reshape(-1, *out.shape[-3:])


def line(order: str, name: str, width: int, height: int, seed: int) -> str:
    Image.Image.resize = ORDERS[order]
    picture = Image.fromarray(generate(width, height, seed, "noise"))
    pixels = run(name, picture, do_rescale=False, do_normalize=False)
    values = run(name, picture).astype(np.float32)
    views, rows, cols = (1, *pixels.shape) if name == "qwen2-vl" else (len(pixels), *pixels.shape[-2:])
    return f"{order} {name} {width} {height} {seed} {views} {rows} {cols} {crc(pixels.astype(np.uint8))} {crc(values)}"


def map_line(width: int, height: int) -> str:
    pinpoints = LlavaNextImageProcessorPil.image_grid_pinpoints
    rows, cols = get_anyres_image_grid_shape((height, width), pinpoints, 336)
    shown = unpad_image(torch.zeros(1, rows * 24, cols * 24), (height, width))
    return f"resolutions {width} {height} {rows} {cols} {shown.shape[1]} {shown.shape[2]}"


def size_line(width: int, height: int, most: int) -> str:
    rows, cols = smart_resize(height, width, 28, 4 * 784, most * 784)
    return f"sizes {width} {height} {most} {cols} {rows}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, required=True)
    output = parser.parse_args().output
    if not PIL.__version__.startswith("13."):
        raise SystemExit("Pillow 13 makes both orders; an older one makes only the first")
    lines = [f"# transformers {transformers.__version__}, Pillow {PIL.__version__}; see assets/recipes/fixtures_preprocess.py"]
    for name in PROCESSORS:
        sizes = SIZES + (LARGE if name in ("llava-1.5", "llava-next", "qwen2-vl", "janus-hf", "idefics3") else [])
        for i, (width, height) in enumerate(sizes):
            if name in LARGE_VIEWS and i % 2 == 1:
                continue
            across, itself = (line(order, name, width, height, 100 + i) for order in ORDERS)
            lines.append(across)
            if itself.split()[1:] != across.split()[1:]:
                lines.append(itself)
    draw = np.random.default_rng(11)
    for _ in range(600):
        short = int(draw.integers(1, 1200))
        other = int(min(12000, max(1, short * draw.uniform(1, 60))))
        width, height = (short, other) if draw.integers(2) else (other, short)
        lines.append(map_line(width, height))
        if max(width, height) / min(width, height) <= 200:
            lines.append(size_line(width, height, int(draw.choice([1280, 16384]))))
    output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
