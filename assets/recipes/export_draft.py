"""Write the tabletop-draft folder: the Hugging Face Janus layout without text head and picture tokenizer.

`"draft_config"` is our extension: the folder only guesses for another model over the same codes, and
its conditional branch alone imitates that model's law under the guidance it names. Prints how well it
does (`agreement`), with the weights as stored.
"""
from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from eval_torch import load_lm
from export_janus import config_of
from tabletop_tokenizer import BEGIN_IMAGE, BOS, EOS, PAD
from train_draft import Batches, agreement
from train_lm import Coded
from training_common import load_checkpoint


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draft", type=Path, required=True, help="draft-ema.safetensors")
    parser.add_argument("--target", type=Path, required=True, help="lm-ema.safetensors of the model drafted for")
    parser.add_argument("--vq", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--val", type=Path, required=True, help="encoded set, without suffix")
    parser.add_argument("--count", type=int, default=200, help="pictures of it to measure on")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    draft, meta = load_checkpoint(options.draft)
    tensors = {f"model.{n}": t.bfloat16().contiguous() for n, t in sorted(draft.items())
               if not n.startswith("lm_head")}
    save_file(tensors, str(options.out / "model.safetensors"), metadata={"format": "pt"})
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    config = config_of(meta["config"], load_checkpoint(options.vq)[1]["config"], tokenizer, options.image_size)
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = True
    config["draft_config"] = {"guidance": meta["guidance"]}
    (options.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {"bos_token_id": tokenizer.token_to_id(BOS), "eos_token_id": tokenizer.token_to_id(EOS),
                  "pad_token_id": tokenizer.token_to_id(PAD), "do_sample": True, "guidance_scale": 1.0,
                  "temperature": 1.0, "top_k": 0, "top_p": 1.0,
                  "generation_kwargs": {"boi_token_id": tokenizer.token_to_id(BEGIN_IMAGE)}}
    (options.out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(options.tokenizer / name, options.out / name)
    model, target = load_lm(options.draft)[0], load_lm(options.target)[0]
    held_out = Batches(Coded([options.val], tokenizer), tokenizer.token_to_id(PAD), model)
    print(json.dumps({**agreement(model, target, held_out, meta["guidance"], options.count),
                      "parameters": sum(t.numel() for t in tensors.values()),
                      "bytes": sum(p.stat().st_size for p in options.out.iterdir()),
                      "step": meta["step"], "samples": meta["samples"], "seconds": meta["seconds"]}))


if __name__ == "__main__":
    main()
