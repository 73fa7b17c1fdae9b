"""Train the text tokenizer of the clip writer: byte-level BPE over clip captions, Emu3's names of control
tokens. It adds none by itself: the prompt names them."""
from __future__ import annotations

import argparse
import json
from pathlib import Path

from tabletop_tokenizer import build
from training_common import load_scenes
from video_lm import SPECIALS, clip_prompt


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=Path, nargs="+", required=True, help="dumped sets, without suffix")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocabulary", type=int, default=448)
    options = parser.parse_args()
    captions = [line["caption"] for stem in options.clips for line in load_scenes(stem, with_pixels=False)[1]]
    tokenizer = build(captions, options.vocabulary, SPECIALS, first=None)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.out / "tokenizer.json"))
    lengths = [len(tokenizer.encode(clip_prompt(c, (2, 16, 16))).ids) for c in captions]
    print(json.dumps({"vocabulary": tokenizer.get_vocab_size(), "mean_tokens": sum(lengths) / len(lengths),
                      "longest": max(lengths)}))


if __name__ == "__main__":
    main()
