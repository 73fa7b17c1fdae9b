"""Write the tabletop-video folder: Emu3's layout in the Hugging Face port, see docs/video.md.

model.safetensors holds the writer and the clip tokenizer under the port's names, in bf16 (the tokenizer
in fp32 where bf16 would cost more than 0.1 dB on val).
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

from encode_clip_codes import load_video_vq
from train_video_vq import evaluate
from training_common import load_checkpoint
from video_lm import BOS, EOS, PAD, visual_token


def config_of(lm: dict, vq: dict, tokenizer: Tokenizer, grid, fps: int, prompt: int) -> dict:
    ids = {name: tokenizer.token_to_id(t) for name, t in
           (("bos_token_id", BOS), ("eos_token_id", EOS), ("pad_token_id", PAD))}
    text = {"model_type": "emu3_text_model", "vocab_size": lm["vocab_size"], "hidden_size": lm["hidden_size"],
            "intermediate_size": lm["intermediate_size"], "num_hidden_layers": lm["num_hidden_layers"],
            "num_attention_heads": lm["num_attention_heads"], "num_key_value_heads": lm["num_attention_heads"],
            "hidden_act": "silu", "rms_norm_eps": lm["rms_norm_eps"], "rope_theta": lm["rope_theta"],
            "max_position_embeddings": int(np.prod(grid)) + prompt, "attention_bias": False,
            "mlp_bias": False, "tie_word_embeddings": False, **ids}
    vocabulary = {t: i for t, i in sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])}
    vocabulary |= {visual_token(code): lm["first_code"] + code for code in range(vq["codebook_size"])}
    return {"architectures": ["Emu3ForConditionalGeneration"], "model_type": "emu3", "torch_dtype": "bfloat16",
            "tie_word_embeddings": False, "text_config": text,
            "vq_config": {"model_type": "emu3_vqgan", "in_channels": 3, "out_channels": 3, "double_latent": False,
                          "num_attention_heads": 1, "attention_dropout": 0.0, **vq},
            "clip_config": {"grids": grid[0], "grid_rows": grid[1], "grid_cols": grid[2], "fps": fps,
                            "row_tokens": False, "grid_tokens": False, "end_tokens": False},
            "vocabulary_map": vocabulary}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--vq", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--val", type=Path, required=True, help="dumped val clips, for the bf16 check")
    parser.add_argument("--card", type=Path, help="README.md of the folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--check-clips", type=int, default=64, help="of val, for the bf16 check")
    parser.add_argument("--fps", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=128, help="tokens that a prompt may have")
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    lm, lm_meta = load_checkpoint(options.lm)
    vq, vq_meta = load_checkpoint(options.vq)
    frames = 4 * lm_meta["grid"][0]
    pixels = np.load(options.val.with_suffix(".npy"), mmap_mode="r")[:options.check_clips, :frames]
    exact = evaluate(load_video_vq(options.vq), pixels)[0]
    rounded = evaluate(load_video_vq(options.vq, torch.bfloat16).float(), pixels)[0]
    vq_dtype = torch.bfloat16 if exact - rounded <= 0.1 else torch.float32
    tensors = {n if n.startswith("lm_head") else f"model.text_model.{n}": t.bfloat16() for n, t in lm.items()}
    tensors |= {f"model.vqmodel.{n}": t.to(vq_dtype) for n, t in vq.items() if t.is_floating_point()}
    save_file({n: t.contiguous() for n, t in sorted(tensors.items())},
              str(options.out / "model.safetensors"), metadata={"format": "pt"})
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    config = config_of(lm_meta["config"], vq_meta["config"], tokenizer, lm_meta["grid"], options.fps, options.prompt)
    (options.out / "config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n")
    generation = {"do_sample": True, "guidance_scale": options.guidance, "temperature": options.temperature,
                  "top_k": options.top_k, "top_p": options.top_p, "negative_prompt": ""}
    (options.out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    shutil.copy(options.tokenizer / "tokenizer.json", options.out / "tokenizer.json")
    # The class that follows tokenizer.json; without it, that of Emu3 would.
    (options.out / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}\n')
    if options.card:
        shutil.copy(options.card, options.out / "README.md")
    print(json.dumps({"psnr_fp32": exact, "psnr_bf16_weights": rounded, "vq_dtype": str(vq_dtype),
                      "parameters": sum(t.numel() for t in tensors.values()),
                      "bytes": (options.out / "model.safetensors").stat().st_size,
                      "lm_samples": lm_meta["samples"], "lm_val": lm_meta.get("val_ema")}))


if __name__ == "__main__":
    main()
