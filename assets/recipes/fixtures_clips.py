"""Parity fixtures of clips: tiny models of Qwen2-VL, Qwen2.5-VL and LLaVA-OneVision with a clip of
six frames and one of five, from the library's video processors to the logits and greedy tokens.

Folders tests/golden/lmm/clip-NAME/, made and laid out as fixtures_lmm.py does it, with `frames.N`
(u8 [T, H, W, 3]) in the place of pictures, `pixel_values_videos`, `grid` and `seconds_per_grid`.
The processors resize by Pillow, across first and then down, in the place of torchvision; all else
of them is the library's own. Needs torchvision, which the processors import.

  python assets/recipes/fixtures_clips.py [NAME ...]
"""
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fixtures_lmm as lmm  # noqa: E402
import lmm_families as tiny  # noqa: E402
from transformers.models.llava_onevision.video_processing_llava_onevision import (  # noqa: E402
    LlavaOnevisionVideoProcessor)
from transformers.models.qwen2_vl.video_processing_qwen2_vl import (  # noqa: E402
    Qwen2VLVideoProcessor)
from transformers.video_processing_utils import BaseVideoProcessor  # noqa: E402

FRAMES = (6, 5)
# Seconds between frames of a grid of two, times two ids a second, truncated: 0, 1, 2 and 0, 1, 2.
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


def clip(width, height, count, seed):
    """A picture that moves: every frame differs. u8 [T, H, W, 3]"""
    return torch.stack([lmm.picture(width, height, seed).roll(3 * t, 1)
                        + torch.tensor(5 * t, dtype=torch.uint8) for t in range(count)])


def qwen_family(name, seed):
    family = tiny.FAMILIES[name]()
    family.name, family.seed = "clip-" + name, seed
    processor = Qwen2VLVideoProcessor(
        size={"shortest_edge": 192, "longest_edge": 768}, patch_size=4, merge_size=2,
        temporal_patch_size=2, cap_pixels_per_frame=True)
    family.video = {"size": {"shortest_edge": 192, "longest_edge": 768}}
    merger = family.unpermute
    family.unpermute = False

    def cases(_, clips):
        for prefix, frames in zip(("", "odd."), clips):
            out = processor(videos=[frames.permute(0, 3, 1, 2)], return_tensors="pt")
            pixels, grid = out["pixel_values_videos"], out["video_grid_thw"]
            inputs = {"pixel_values_videos": pixels, "video_grid_thw": grid}
            recorded = {"pixel_values_videos": pixels, "grid": grid[0]}
            if merger:
                inputs["second_per_grid_ts"] = torch.tensor([SECONDS])
                recorded["seconds_per_grid"] = torch.tensor([SECONDS])
            block = [92] + [91] * int(grid[0].prod() // 4) + [93]
            yield tiny.Case(prefix, recorded, inputs, [block])
    family.cases = cases
    return family


def onevision_family(seed):
    family = tiny.llava_onevision()
    # Three patches a side: resized to two, so that the places lie between.
    config = family.config
    config.vision_config.image_size, config.vision_config.patch_size = 24, 8
    config.image_grid_pinpoints = [[24 * r, 24 * c] for r in range(1, 7) for c in range(1, 7)]
    family.preprocessor = dict(family.preprocessor, size={"height": 24, "width": 24},
                               image_grid_pinpoints=config.image_grid_pinpoints)
    family.name, family.seed = "clip-llava-onevision", seed
    processor = LlavaOnevisionVideoProcessor(size={"height": 24, "width": 24},
                                             image_mean=[0.5] * 3, image_std=[0.5] * 3)
    family.video = {}

    def cases(_, clips):
        for prefix, frames in zip(("", "odd."), clips):
            out = processor(videos=[frames.permute(0, 3, 1, 2)], return_tensors="pt")
            pixels = out["pixel_values_videos"]
            yield tiny.Case(prefix, {"pixel_values_videos": pixels[0]},
                            {"pixel_values_videos": pixels}, [[91] * (4 * len(frames) + 1)])
    family.cases = cases
    return family


@torch.no_grad()
def make(family):
    print(family.name)
    torch.manual_seed(0)
    model = family.model_class._from_config(family.config, attn_implementation="eager")
    model = model.eval().float()
    clips = [clip(40, 30, count, 200 + i) for i, count in enumerate(FRAMES)]
    recorded = {f"frames.{i}": frames for i, frames in enumerate(clips)}
    for seed in range(family.seed, family.seed + 20000, 100):
        lmm.randomise(model, seed)
        runs = [lmm.run_case(model, family, case) for case in family.cases(model, clips)]
        if None not in runs:
            break
    else:
        raise SystemExit("no seed keeps the greedy tokens apart")
    for tensors, _ in runs:
        recorded.update({k: v for k, v in tensors.items() if k not in ("features", "projected")})
    folder = lmm.save(model, family, recorded)
    (folder / "published_config.json").unlink()
    if family.video:
        lmm.write_json(folder / "video_preprocessor_config.json", family.video)
        (folder / "video_preprocessor_config.json").chmod(0o644)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    BaseVideoProcessor.resize = pillow_resize
    makers = {"qwen2-vl": lambda: qwen_family("qwen2-vl", 26),
              "qwen2.5-vl": lambda: qwen_family("qwen2.5-vl", 27),
              "llava-onevision": lambda: onevision_family(24)}
    for name in sys.argv[1:] or list(makers):
        make(makers[name]())


if __name__ == "__main__":
    main()
