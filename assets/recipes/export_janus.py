"""Write the tabletop-janus folder: the Hugging Face Janus layout, without an understanding half.

model.safetensors holds the port's tensor names in bf16 (the VQ model in fp32 where bf16 would cost
more than 0.1 dB on val). `"vision_config": null` is our extension: no picture encoder in the file.
"""
from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from encode_codes import load_vq
from tabletop_tokenizer import BEGIN_IMAGE, BOS, EOS, PAD, PLACEHOLDER
from train_still_vq import Scenes
from train_vq import evaluate
from training_common import load_checkpoint


def config_of(lm: dict, vq: dict, tokenizer: Tokenizer, image_size: int) -> dict:
    ids = {name: tokenizer.token_to_id(t) for name, t in
           (("bos_token_id", BOS), ("eos_token_id", EOS), ("pad_token_id", PAD))}
    down = 2 ** (len(vq["channel_multiplier"]) - 1)
    width = lm["hidden_size"]
    text = {"model_type": "llama", "vocab_size": lm["vocab_size"], "hidden_size": width,
            "intermediate_size": lm["intermediate_size"], "num_hidden_layers": lm["num_hidden_layers"],
            "num_attention_heads": lm["num_attention_heads"],
            "num_key_value_heads": lm["num_attention_heads"], "head_dim": lm["head_dim"],
            "hidden_act": "silu", "rms_norm_eps": lm["rms_norm_eps"], "rope_theta": lm["rope_theta"],
            "max_position_embeddings": 1024, "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": False, **ids}
    vq_config = {"model_type": "janus_vqgan", "base_channels": vq["base_channels"],
                 "channel_multiplier": vq["channel_multiplier"], "num_res_blocks": vq["num_res_blocks"],
                 "latent_channels": vq["latent_channels"], "embed_dim": vq["embed_dim"],
                 "num_embeddings": vq["num_embeddings"], "double_latent": False, "in_channels": 3,
                 "out_channels": 3, "dropout": 0.0, "num_patches": image_size // down,
                 "image_token_embed_dim": width, "projection_dim": width, "num_hidden_layers": 2,
                 "hidden_act": "gelu"}
    return {"architectures": ["JanusForConditionalGeneration"], "model_type": "janus",
            "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "image_token_id": tokenizer.token_to_id(PLACEHOLDER), "text_config": text,
            "vision_config": None, "vq_config": vq_config}


def val_pixels(options, count: int) -> np.ndarray:
    """u8 [count, size, size, 3]"""
    if not options.still:
        return np.load(options.val.with_suffix(".npy"), mmap_mode="r")
    scenes = Scenes(options, "val", 0, options.image_size)
    pixels = scenes.take(count)
    scenes.close()
    return pixels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--vq", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    val = parser.add_mutually_exclusive_group(required=True)
    val.add_argument("--val", type=Path, help="dumped val set, for the bf16 check")
    val.add_argument("--still", action="store_true", help="that of the second world, from scene_dump")
    parser.add_argument("--scene-dump", default="scene_dump")
    parser.add_argument("--things", type=Path, help="pack of cut-outs of the second world")
    parser.add_argument("--card", type=Path, help="README.md of the folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--draft", help="name of the folder beside this one that guesses for it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    lm, lm_meta = load_checkpoint(options.lm)
    vq, vq_meta = load_checkpoint(options.vq)
    count = 64 if options.still else 256
    pixels = val_pixels(options, count)
    exact = evaluate(load_vq(options.vq, torch.float32), pixels, count)[0]
    rounded = evaluate(load_vq(options.vq, torch.bfloat16).float(), pixels, count)[0]
    vq_dtype = torch.bfloat16 if exact - rounded <= 0.1 else torch.float32
    tensors = {}
    for name, t in lm.items():
        tensors[name if name.startswith("lm_head") else f"model.{name}"] = t.bfloat16()
    for name, t in vq.items():
        tensors[f"model.vqmodel.{name}"] = t.to(vq_dtype)
    save_file({n: t.contiguous() for n, t in sorted(tensors.items())},
              str(options.out / "model.safetensors"), metadata={"format": "pt"})
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    config = config_of(lm_meta["config"], vq_meta["config"], tokenizer, options.image_size)
    (options.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {"bos_token_id": tokenizer.token_to_id(BOS), "eos_token_id": tokenizer.token_to_id(EOS),
                  "pad_token_id": tokenizer.token_to_id(PAD), "do_sample": True,
                  "guidance_scale": options.guidance, "temperature": options.temperature,
                  "top_k": options.top_k, "top_p": options.top_p,
                  "generation_kwargs": {"boi_token_id": tokenizer.token_to_id(BEGIN_IMAGE)}}
    if options.draft:
        generation["draft_model"] = options.draft
    (options.out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(options.tokenizer / name, options.out / name)
    if options.card:
        shutil.copy(options.card, options.out / "README.md")
    print(json.dumps({"psnr_fp32": exact, "psnr_bf16_weights": rounded, "vq_dtype": str(vq_dtype),
                      "tensors": len(tensors), "parameters": sum(t.numel() for t in tensors.values()),
                      "bytes": (options.out / "model.safetensors").stat().st_size,
                      "lm_samples": lm_meta["samples"], "lm_val": lm_meta.get("val_ema")}))


if __name__ == "__main__":
    main()
