"""Parity fixtures of clips: tiny models of Qwen2-VL, Qwen2.5-VL and LLaVA-OneVision with a clip of
six frames and one of five, from the library's video processors to the logits and greedy tokens.

The Qwen models are those of fixtures_lmm.py: tests/golden/lmm/NAME/ gets clips.safetensors and
video_preprocessor_config.json beside what is there. LLaVA-OneVision is a model of its own,
tests/golden/lmm/clip-llava-onevision/, with three patches a side, so that resizing to two lies
between places. Processors resize by Pillow, across first and then down, in the place of
torchvision; all else of them is the library's own. Needs torchvision, which they import.

  python assets/recipes/fixtures_clips.py [NAME ...]
"""
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fixtures_lmm as lmm  # noqa: E402
import lmm_families as tiny  # noqa: E402
from transformers.models.llava_onevision.video_processing_llava_onevision import (  # noqa: E402
    LlavaOnevisionVideoProcessor)
from transformers.models.qwen2_vl.video_processing_qwen2_vl import (  # noqa: E402
    Qwen2VLVideoProcessor)
from transformers.video_processing_utils import BaseVideoProcessor  # noqa: E402

FRAMES = (6, 5)
SIZE = (28, 20)
EVERY = 7  # rows of patches that are kept of the pixels
BOUNDS = {"shortest_edge": 192, "longest_edge": 768}
PATCHES = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2}
# Seconds of a grid of two frames; at two ids a second, truncated, grids stand at 0, 1 and 2.
SECONDS = 0.571428


def pillow_resize(self, image, size, resample=None, **_):
    """[..., C, H, W] u8 tensors, frame by frame, by Pillow."""
    flat = image.reshape(-1, *image.shape[-3:])
    out = []
    for frame in flat:
        one = Image.fromarray(frame.permute(1, 2, 0).numpy())
        one = lmm.across_first(one, (size.width, size.height), Image.Resampling.BICUBIC)
        out.append(torch.from_numpy(np.array(one)).permute(2, 0, 1))
    return torch.stack(out).reshape(*image.shape[:-2], size.height, size.width)


def clip(count, seed):
    """A picture that moves: every frame differs. u8 [T, H, W, 3]"""
    return torch.stack([lmm.picture(*SIZE, seed).roll(3 * t, 1)
                        + torch.tensor(5 * t, dtype=torch.uint8) for t in range(count)])


def qwen_cases(family, clips):
    processor = Qwen2VLVideoProcessor(size=dict(BOUNDS), **PATCHES, cap_pixels_per_frame=True)
    for prefix, frames in zip(("", "odd."), clips):
        out = processor(videos=[frames.permute(0, 3, 1, 2)], return_tensors="pt")
        pixels, grid = out["pixel_values_videos"], out["video_grid_thw"]
        inputs = {"pixel_values_videos": pixels, "video_grid_thw": grid}
        recorded = {"pixel_values_videos": pixels[::EVERY], "grid": grid[0]}
        if "5" in family.name:
            inputs["second_per_grid_ts"] = torch.tensor([SECONDS])
            recorded["seconds_per_grid"] = torch.tensor([SECONDS])
        block = [92] + [91] * int(grid[0].prod() // 4) + [93]
        yield tiny.Case(prefix, recorded, inputs, [block])


def onevision_cases(family, clips):
    processor = LlavaOnevisionVideoProcessor(size={"height": 24, "width": 24},
                                             image_mean=[0.5] * 3, image_std=[0.5] * 3)
    for prefix, frames in zip(("", "odd."), clips):
        out = processor(videos=[frames.permute(0, 3, 1, 2)], return_tensors="pt")
        pixels = out["pixel_values_videos"]
        recorded = {"pixel_values_videos": pixels[0].reshape(-1, 24)[::EVERY]}
        yield tiny.Case(prefix, recorded, {"pixel_values_videos": pixels},
                        [[91] * (4 * len(frames) + 1)])


def onevision_family():
    family = tiny.llava_onevision()
    config = family.config
    config.vision_config.image_size, config.vision_config.patch_size = 24, 8
    config.image_grid_pinpoints = [[24 * r, 24 * c] for r in range(1, 3) for c in range(1, 3)]
    family.preprocessor = dict(family.preprocessor, size={"height": 24, "width": 24},
                               image_grid_pinpoints=config.image_grid_pinpoints)
    family.name, family.seed = "clip-llava-onevision", 24
    return family


def record(model, family, cases, seeds):
    """The first clips whose greedy tokens stand apart."""
    for seed in seeds:
        clips = [clip(count, seed + i) for i, count in enumerate(FRAMES)]
        runs = [lmm.run_case(model, family, case) for case in cases(family, clips)]
        if None in runs:
            continue
        recorded = {f"frames.{i}": frames for i, frames in enumerate(clips)}
        for tensors, _ in runs:
            recorded.update({k: v for k, v in tensors.items() if k not in ("features", "projected")})
        return recorded
    return None


def make_qwen(name):
    family = tiny.FAMILIES[name]()
    family.unpermute = False
    print(family.name)
    folder = lmm.OUT / name
    model = family.model_class.from_pretrained(folder, dtype=torch.float32,
                                               attn_implementation="eager").eval()
    recorded = record(model, family, qwen_cases, range(200, 4000, 10))
    if recorded is None:
        raise SystemExit("no clip keeps the greedy tokens apart")
    tensors = {k: v.to(torch.int32) if v.dtype == torch.int64 else v for k, v in recorded.items()}
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "clips.safetensors")
    lmm.write_json(folder / "video_preprocessor_config.json", {"size": BOUNDS, **PATCHES})
    for file in ("clips.safetensors", "video_preprocessor_config.json"):
        (folder / file).chmod(0o644)


def make_onevision():
    family = onevision_family()
    print(family.name)
    torch.manual_seed(0)
    model = family.model_class._from_config(family.config, attn_implementation="eager")
    model = model.eval().float()
    for seed in range(family.seed, family.seed + 20000, 100):
        lmm.randomise(model, seed)
        if recorded := record(model, family, onevision_cases, (200,)):
            break
    else:
        raise SystemExit("no seed keeps the greedy tokens apart")
    folder = lmm.save(model, family, recorded)
    (folder / "published_config.json").unlink()
    (folder / "recorded.safetensors").rename(folder / "clips.safetensors")


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    BaseVideoProcessor.resize = pillow_resize
    for name in sys.argv[1:] or ("qwen2-vl", "qwen2.5-vl", "llava-onevision"):
        make_onevision() if name == "llava-onevision" else make_qwen(name)


if __name__ == "__main__":
    main()
