"""Write the tabletop-llava folder: the published LLaVA-1.5 layout, bf16 tensors under its file names."""
from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import save_file
from tokenizers import Tokenizer

from llava_data import BOS, CHAT_TEMPLATE, EOS, IMAGE, PAD
from llava_model import CLIP_MEAN, CLIP_STD, LlavaSizes, hf_config
from training_common import load_checkpoint

MOST_BYTES = 8_000_000


def write_json(path: Path, value: dict):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def preprocessor_config(s: LlavaSizes) -> dict:
    return {"image_processor_type": "CLIPImageProcessor", "processor_class": "LlavaProcessor",
            "do_convert_rgb": True, "do_resize": True, "size": {"shortest_edge": s.image_size}, "resample": 3,
            "do_center_crop": True, "crop_size": {"height": s.image_size, "width": s.image_size},
            "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
            "image_mean": list(CLIP_MEAN), "image_std": list(CLIP_STD)}


def tokenizer_config() -> dict:
    return {"add_bos_token": True, "add_eos_token": False, "bos_token": BOS, "eos_token": EOS, "pad_token": PAD,
            "image_token": IMAGE, "extra_special_tokens": {"image_token": IMAGE},
            "clean_up_tokenization_spaces": False, "model_max_length": 1024, "padding_side": "left",
            "processor_class": "LlavaProcessor", "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": CHAT_TEMPLATE}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True, help="ema.safetensors")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    weights, meta = load_checkpoint(options.weights)
    sizes, tokenizer = LlavaSizes(**meta["sizes"]), Tokenizer.from_file(str(options.tokenizer))
    tensors = {n.removeprefix("llava."): t.bfloat16().contiguous() for n, t in sorted(weights.items())
               if n.startswith("llava.")}
    model = options.out / "model.safetensors"
    save_file(tensors, str(model), metadata={"format": "pt"})
    if model.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{model}: {model.stat().st_size} bytes, at most {MOST_BYTES} are allowed")
    ids = {n: tokenizer.token_to_id(t) for n, t in (("bos", BOS), ("eos", EOS), ("pad", PAD), ("image", IMAGE))}
    write_json(options.out / "config.json", hf_config(sizes, ids))
    write_json(options.out / "preprocessor_config.json", preprocessor_config(sizes))
    write_json(options.out / "processor_config.json", {
        "processor_class": "LlavaProcessor", "image_token": IMAGE, "patch_size": sizes.patch_size,
        "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"})
    write_json(options.out / "generation_config.json", {
        "bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["pad"], "do_sample": False,
        "max_new_tokens": 64})
    write_json(options.out / "tokenizer_config.json", tokenizer_config())
    shutil.copy(options.tokenizer, options.out / "tokenizer.json")
    print(json.dumps({"tensors": len(tensors), "parameters": sum(t.numel() for t in tensors.values()),
                      "bytes": model.stat().st_size, "stage": meta["stage"], "step": meta["step"],
                      "samples": meta["samples"], "seconds": meta["seconds"]}))


if __name__ == "__main__":
    main()
