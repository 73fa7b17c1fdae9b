"""Video processors of the folders of tests/golden/folders under other keys, with what the reference
makes of a few frames: pixels, or a refusal.

Folders are those of folders.json.gz. Keys of video processors are drawn by a seed, in each of the three
files where the reference looks for them. Frames are resized by Pillow, across first, in the place of
torchvision; all else is the library's own. A view that the model does not take is a refusal too.

  python fixtures_folder_videos.py SCRATCH      # under transformers 5: writes videos.json
"""
import gzip
import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fixtures_folders as base  # noqa: E402
from folder_draws import draw, level_keys, one  # noqa: E402
from transformers.image_utils import PILImageResampling  # noqa: E402
from transformers.utils.generic import to_numpy  # noqa: E402
from transformers.video_processing_utils import BaseVideoProcessor  # noqa: E402

CLASSES = {"llava_onevision": "LlavaOnevisionVideoProcessor", "qwen2_vl": "Qwen2VLVideoProcessor",
           "qwen2_5_vl": "Qwen2VLVideoProcessor", "smolvlm": "SmolVLMVideoProcessor"}
NESTED, OWN, IMAGES = "processor_config.json", "video_preprocessor_config.json", "preprocessor_config.json"
SAMPLES = 24
TORCH_RESIZE = BaseVideoProcessor.resize
FILTERS = {"lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4}


def pillow_resize(self, image, size, resample=None, **keys):
    """[..., C, H, W] u8 tensors, frame by frame, by Pillow."""
    if not (size.height and size.width):
        return TORCH_RESIZE(self, image, size, PILImageResampling.BICUBIC, **keys)
    kind = PILImageResampling(FILTERS[resample.value] if hasattr(resample, "value") and
                              isinstance(resample.value, str) else int(resample))
    out = []
    for frame in image.reshape(-1, *image.shape[-3:]):
        one_frame = Image.fromarray(to_numpy(frame.permute(1, 2, 0)))
        out.append(torch.from_numpy(np.array(base.across_first(one_frame, (size.width, size.height), kind)))
                   .permute(2, 0, 1))
    return torch.stack(out).reshape(*image.shape[:-2], size.height, size.width)


# --- drawing --------------------------------------------------------------------------------------

def onevision_keys(r, side):
    keys = {"size": one(r, *[{"height": side, "width": side}] * 6, {"height": side + 5, "width": side},
                        {"shortest_edge": side}, side)}
    if r.random() < 0.15:
        keys.pop("size")
    if r.random() < 0.3:
        keys["do_center_crop"] = one(r, True, False)
        if r.random() < 0.7:
            keys["crop_size"] = one(r, {"height": side, "width": side}, {"height": side, "width": side}, side - 2)
    return keys


def qwen_keys(r, spec):
    own = spec["image"]
    patch, merge = own["patch_size"], own["merge_size"]
    unit = (patch * merge) ** 2
    keys = {"patch_size": patch, "merge_size": merge, "temporal_patch_size": 2}
    low, high = unit * one(r, 1, 4), unit * one(r, 9, 16, 30)
    keys.update(one(r, {"size": {"shortest_edge": low, "longest_edge": high}},
                    {"size": {"shortest_edge": low, "longest_edge": high}, "max_pixels": high // 2},
                    {"min_pixels": low, "max_pixels": high}, {"size": {"longest_edge": high}}))
    if r.random() < 0.4:
        keys.update(cap_pixels_per_frame=True, max_video_tokens=r.randint(8, 40))
    elif r.random() < 0.3:
        keys.update(cap_pixels_per_frame=False, max_video_tokens=r.randint(8, 40))
    if r.random() < 0.2:
        keys.pop(one(r, "patch_size", "merge_size", "temporal_patch_size"))
    return keys


def smolvlm_keys(r, side):
    keys = {"max_image_size": {"longest_edge": side}}
    if r.random() < 0.2:
        keys["max_image_size"] = {"longest_edge": side + 12}
    elif r.random() < 0.1:
        keys.pop("max_image_size")
    if r.random() < 0.5:
        keys["size"] = one(r, {"longest_edge": 2 * side}, {"longest_edge": side + 7},
                           {"height": side + r.randint(0, 40), "width": side + r.randint(0, 40)})
    if r.random() < 0.5:
        keys["video_sampling"] = {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": side + 3}}
    return keys


def drawn(row):
    """The folder's files that are other ones, and its frames."""
    family, number, _ = row["name"].rsplit("-", 2)
    spec = draw(family, int(number))
    r = random.Random("video " + row["name"])
    keys = level_keys(r)
    if family == "llava_onevision":
        keys.update(onevision_keys(r, spec["vision"]["image_size"]))
    elif family == "smolvlm":
        keys.update(smolvlm_keys(r, spec["image"]["max_image_size"]["longest_edge"]))
    else:
        keys.update(qwen_keys(r, spec))
    if r.random() < 0.08:
        keys["do_resize"] = False
    name = one(r, *[CLASSES[family]] * 5, None, None, "LlavaOnevisionVideoProcessor")
    if name:
        keys["video_processor_type"] = name
    frames = [r.randint(24, 90), r.randint(24, 90), one(r, 2, 3, 4), 5000 + int(number)]
    # Bounds of images are not those of Qwen's frames here: docs/captions.md.
    places = [NESTED, NESTED, OWN, OWN, None] + ([] if family.startswith("qwen") else [IMAGES])
    return keys, one(r, *places), frames


def placed(files, keys, place):
    """Contents of the processor files with `keys` for videos in the file `place`; None: nowhere."""
    whole = {n: json.loads(files[n]) if n in files else None for n in (NESTED, OWN, IMAGES)}
    nested = whole[NESTED] or {}
    nested.pop("video_processor", None)
    whole[OWN] = None
    if place == NESTED:
        whole[NESTED] = dict(nested, video_processor=keys)
    elif place == OWN:
        whole[OWN] = keys
    else:
        image = nested.pop("image_processor", None) or whole[IMAGES]
        if place == IMAGES:
            whole[IMAGES] = image
        else:
            whole[NESTED], whole[IMAGES] = dict(nested, image_processor=image), None
    return {n: None if v is None else json.dumps(v) for n, v in whole.items()}


# --- running --------------------------------------------------------------------------------------

def pixels_of(folder, frames, family):
    from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor
    processor = AutoProcessor.from_pretrained(folder)
    width, height, count, seed = frames
    video = torch.from_numpy(np.stack([np.array(base.drawn_image(width, height, seed + i))
                                       for i in range(count)])).permute(0, 3, 1, 2)
    inputs = processor.video_processor(videos=[video], return_tensors="pt", do_sample_frames=False)
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder)).eval()
    if family == "smolvlm":
        pixels = inputs["pixel_values"]
        seen = model.model.get_image_features(pixels, inputs.get("pixel_attention_mask"))
        seen = torch.cat(list(getattr(seen, "pooler_output", seen)))
        wanted = processor.image_seq_len * count
        if seen.numel() // seen.shape[-1] != wanted:
            raise ValueError(f"{wanted} tokens")
    else:
        pixels = inputs["pixel_values_videos"]
        extra = [inputs["video_grid_thw"]] if "video_grid_thw" in inputs else []
        model.model.get_video_features(pixels, *extra)
    return pixels.float().flatten()


def run(row, texts, scratch):
    family = row["name"].rsplit("-", 2)[0]
    keys, place, frames = drawn(row)
    files = {n: texts[k] for n, k in row["files"].items()}
    changed = placed(files, keys, place)
    for path in scratch.iterdir():
        path.unlink()
    for name, text in {**files, **changed}.items():
        if text is not None:
            (scratch / name).write_text(text)
    out = {"name": row["name"], "files": {n: t for n, t in changed.items() if t != files.get(n)},
           "frames": frames}
    try:
        flat = pixels_of(scratch, frames, family)
    except Exception as error:
        return {**out, "refused": f"{type(error).__name__}: {error}".splitlines()[0][:80].replace(str(scratch), "FOLDER")}
    picks = [i * (flat.numel() - 1) // (SAMPLES - 1) for i in range(SAMPLES)]
    return {**out, "numbers": flat.numel(), "samples": [float(np.float32(flat[i])) for i in picks]}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    BaseVideoProcessor.resize = pillow_resize
    scratch = Path(sys.argv[1])
    scratch.mkdir(parents=True, exist_ok=True)
    corpus = json.loads(gzip.decompress((base.OUT / "folders.json.gz").read_bytes()))
    rows = [run(row, corpus["texts"], scratch) for row in corpus["folders"]
            if row["name"].rsplit("-", 2)[0] in CLASSES]
    (base.OUT / "videos.json").write_text(base.spread(rows) + "\n")
    print(len(rows), "folders,", sum("refused" in r for r in rows), "refused")


if __name__ == "__main__":
    main()
