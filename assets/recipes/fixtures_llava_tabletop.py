"""Parity fixture of the bundled tabletop-llava folder, made by `transformers` from that folder.

Arithmetic in fp32 over the stored bf16 weights, eager attention, on the CPU. Two pictures: a square
one that is enlarged and a wide one that is shrunk and cropped. Writes tests/golden/llava/tabletop.safetensors:
  pixels.{i} u8 [H, W, 3]            normalised.{i} [3, 96, 96]       prompt.{i} i32 [T], the picture expanded
  hidden.{i} [1 + 144, 192]          last layer's rows, CLS first, before post_layernorm
  cls_attention.{i} [6, 145]         last layer's CLS row of every head
  projected.{i} [144, 192]           merged.{i} [T, 192]              positions.{i} i32 [T]
  logits.{i} [T, V] (picture 1: the last row alone)                   caption.{i} i32, greedy ids with </s>

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
MODEL, OUT = ROOT / "assets" / "models" / "tabletop-llava", ROOT / "tests" / "golden" / "llava"


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
def record(model, processor, pixels: np.ndarray, all_logits: bool) -> dict[str, torch.Tensor]:
    inputs = processor(images=Image.fromarray(pixels), text=prompt_text(), return_tensors="pt")
    ids, x = inputs["input_ids"], inputs["pixel_values"]
    tower, language = model.model.vision_tower, model.model.language_model
    seen = tower(x, output_hidden_states=True, output_attentions=True)
    hidden = seen.hidden_states[model.config.vision_feature_layer]
    projected = model.model.multi_modal_projector(hidden[:, 1:])
    where = ids == model.config.image_token_index
    merged = language.embed_tokens(ids)
    merged[where] = projected[0]
    places = torch.arange(ids.shape[1])[None]
    logits = model.lm_head(language(inputs_embeds=merged, position_ids=places, use_cache=False).last_hidden_state)
    whole = model(**inputs, use_cache=False).logits
    assert torch.allclose(logits, whole, atol=1e-4), float((logits - whole).abs().max())
    mine = ours(load_llava(MODEL), pixels, ids, model.config.image_token_index)
    print("largest difference from the recipes' own model", float((mine - whole[0]).abs().max()))
    assert torch.allclose(mine, whole[0], atol=1e-3)
    out = model.generate(**inputs, do_sample=False, max_new_tokens=64)[0, ids.shape[1]:]
    print(pixels.shape, ids.shape[1], "ids:", processor.tokenizer.decode(out))
    return {"pixels": torch.from_numpy(pixels.copy()), "normalised": x[0], "prompt": ids[0].int(),
            "hidden": hidden[0], "cls_attention": seen.attentions[-1][0, :, 0], "projected": projected[0],
            "merged": merged[0], "positions": places[0].int(), "logits": whole[0] if all_logits else whole[0, -1:],
            "caption": out.int()}


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
        tensors |= {f"{n}.{i}": t.contiguous().clone()
                    for n, t in record(model, processor, pixels, i == 0).items()}
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(OUT / "tabletop.safetensors"))


if __name__ == "__main__":
    main()
