"""Parity fixture of the bundled tabletop-llava folder, made by `transformers` from that folder.

Arithmetic in fp32 over the stored bf16 weights, eager attention, on the CPU. Two pictures: a square
one that is enlarged and a wide one that is shrunk and cropped. Writes
tests/golden/lmm/tabletop-llava.safetensors, names as in tests/golden/lmm/README.md, one prompt a picture:
  pixels.{i} u8 [H, W, 3]                 {i}.pixel_values [1, 3, 96, 96]     {i}.input_ids i32 [T]
  {i}.embeds [T, 192]                     {i}.position_ids i32 [T]            {i}.hidden [192], last row
  {i}.logits [4, V], last rows            {i}.greedy i32, the caption with </s>

  python assets/recipes/fixtures_llava_tabletop.py --scene-dump build/cpu/bin/scene_dump
"""
import argparse
import subprocess
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoProcessor, LlavaForConditionalGeneration

from llava_data import mask_of, prompt_text, resize
from llava_model import load_llava, normalise

ROOT = Path(__file__).resolve().parents[2]
MODEL, OUT = ROOT / "assets" / "models" / "tabletop-llava", ROOT / "tests" / "golden" / "lmm"


def render(binary: str, index: int, size: int) -> np.ndarray:
    command = [binary, "--seed", "11", "--split", "val", "--start", str(index), "--count", "1", "--size", str(size),
               "--no-json"]
    return np.frombuffer(subprocess.run(command, check=True, capture_output=True).stdout, np.uint8).reshape(size, size, 3)


@torch.no_grad()
def ours(model, pixels, ids, image: int):
    """logits [T, V] of the recipes' own model, from the cropped picture to the end"""
    h, w, _ = pixels.shape
    if h == w:
        x = torch.from_numpy(resize(pixels[None]))
    else:  # shortest edge to the model's side, then the middle
        side = model.sizes.image_size
        size = (int(side * w / h), side) if h < w else (side, int(side * h / w))
        wide = np.asarray(Image.fromarray(pixels).resize(size, Image.BICUBIC))
        top, left = (wide.shape[0] - side) // 2, (wide.shape[1] - side) // 2
        x = torch.from_numpy(wide[None, top:top + side, left:left + side].copy())
    rows = model.language_model.model.embed_tokens(ids)
    rows[ids == image] = model.visual_rows(model.features(normalise(x.permute(0, 3, 1, 2).float() / 255)))[0]
    places = torch.arange(ids.shape[1])[None]
    hidden = model.hidden(rows, mask_of(torch.zeros_like(ids), rows.dtype), *model.rope(places, rows.dtype))
    return model.language_model.lm_head(hidden)[0]


@torch.no_grad()
def record(model, processor, pixels: np.ndarray) -> dict[str, torch.Tensor]:
    inputs = processor(images=Image.fromarray(pixels), text=prompt_text(), return_tensors="pt")
    ids, x = inputs["input_ids"], inputs["pixel_values"]
    tower, language = model.model.vision_tower, model.model.language_model
    rows = tower(x, output_hidden_states=True).hidden_states[model.config.vision_feature_layer]
    merged = language.embed_tokens(ids)
    merged[ids == model.config.image_token_index] = model.model.multi_modal_projector(rows[:, 1:])[0]
    places = torch.arange(ids.shape[1])[None]
    hidden = language(inputs_embeds=merged, position_ids=places, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden)
    whole = model(**inputs, use_cache=False).logits
    assert torch.allclose(logits, whole, atol=1e-4), float((logits - whole).abs().max())
    mine = ours(load_llava(MODEL), pixels, ids, model.config.image_token_index)
    print("largest difference from the recipes' own model", float((mine - whole[0]).abs().max()))
    assert torch.allclose(mine, whole[0], atol=1e-3)
    out = model.generate(**inputs, do_sample=False, max_new_tokens=64)[0, ids.shape[1]:]
    print(pixels.shape, ids.shape[1], "ids:", processor.tokenizer.decode(out))
    return {"pixel_values": x, "input_ids": ids[0].int(), "embeds": merged[0], "position_ids": places[0].int(),
            "hidden": hidden[0, -1], "logits": logits[0, -4:], "greedy": out.int()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene-dump", default="scene_dump")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = LlavaForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    processor = AutoProcessor.from_pretrained(MODEL, backend="pil")
    pictures = [render(options.scene_dump, 0, 64), render(options.scene_dump, 1, 128)[8:120]]
    tensors = {}
    for i, pixels in enumerate(pictures):
        tensors[f"pixels.{i}"] = torch.from_numpy(pixels.copy())
        tensors |= {f"{i}.{n}": t.contiguous().clone() for n, t in record(model, processor, pixels).items()}
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(OUT / "tabletop-llava.safetensors"))


if __name__ == "__main__":
    main()
