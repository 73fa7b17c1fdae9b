"""The way back from the bundled folder to checkpoints, so that training can go on anywhere.

Reads assets/models/tabletop-janus and writes OUT/lm.safetensors, OUT/vq.safetensors and
OUT/tokenizer/, which `train_lm.py --resume`, `encode_codes.py` and `eval_torch.py` take. Weights come
back as they were exported (bf16 values in fp32); the layout head is not among them and starts anew.
"""
from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file

from training_common import save_checkpoint

VQ_PREFIX = "model.vqmodel."
LM_CONFIG = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
             "num_attention_heads", "head_dim", "rms_norm_eps", "rope_theta")
VQ_CONFIG = ("base_channels", "channel_multiplier", "num_res_blocks", "latent_channels", "embed_dim",
             "num_embeddings")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the bundled folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--step", type=int, default=0, help="optimiser steps so far, from the model card")
    parser.add_argument("--samples", type=int, default=0, help="training samples so far, likewise")
    parser.add_argument("--seconds", type=float, default=0.0, help="training time so far, likewise")
    options = parser.parse_args()
    config = json.loads((options.model / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(str(options.model / "model.safetensors"))
    vq = {n.removeprefix(VQ_PREFIX): t.float() for n, t in tensors.items() if n.startswith(VQ_PREFIX)}
    lm = {n.removeprefix("model."): t.float() for n, t in tensors.items() if not n.startswith(VQ_PREFIX)}
    vq_config = {k: config["vq_config"][k] for k in VQ_CONFIG}
    lm_config = {k: config["text_config"][k] for k in LM_CONFIG}
    lm_config |= {k: vq_config[k] for k in ("num_embeddings", "embed_dim")}
    save_checkpoint(options.out / "vq.safetensors", vq, {"config": vq_config})
    save_checkpoint(options.out / "lm.safetensors", lm, {"step": options.step, "samples": options.samples,
                                                         "seconds": options.seconds, "config": lm_config})
    (options.out / "tokenizer").mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(options.model / name, options.out / "tokenizer" / name)
    print(f"{options.out}: {len(lm)} tensors of the language model, {len(vq)} of the picture tokenizer")


if __name__ == "__main__":
    main()
