"""Sample held-out prompts with guidance in PyTorch, let the judge read the pictures, print marks.

One JSON line a setting: marks in per cent with a 95 % bootstrap interval. `--sweep` takes several
guidance scales, temperatures, top-k and top-p values and runs their product.
"""
from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from encode_codes import load_vq
from janus_model import Cache, JanusLm, LmConfig, causal_mask
from judge_model import Judge, JudgeConfig, read, score, summary
from tabletop_tokenizer import PAD, prompt_text
from train_lm import pack
from training_common import load_checkpoint, load_scenes, picture_grid, to_u8, truth_labels, to_float


def truncate(logits, top_k: int, top_p: float):
    """ties at the k-th value are kept; the first token that crosses top_p is kept"""
    if 0 < top_k < logits.shape[-1]:
        floor = logits.topk(top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < floor, float("-inf"))
    if top_p < 1:
        ordered, index = logits.sort(-1, descending=True)
        p = ordered.softmax(-1)
        ordered = ordered.masked_fill(p.cumsum(-1) - p > top_p, float("-inf"))
        logits = torch.full_like(logits, float("-inf")).scatter(-1, index, ordered)
    return logits


@torch.no_grad()
def sample_codes(model: JanusLm, prompts, pad: int, codes: int, guidance: float, temperature: float,
                 top_k: int, top_p: float, generator) -> torch.Tensor:
    """prompt ids -> [B, codes]; rows [caption; unconditional], pads of the latter are attended"""
    n, dtype = len(prompts), model.lm_head.weight.dtype
    both = list(prompts) + list(prompts)
    dropped = [False] * n + [True] * n
    text, hidden = pack(both, pad, dropped)
    width = text.shape[1]
    total = width + codes
    cos, sin = model.rope(total, dtype)
    mask = causal_mask(hidden, total, dtype)
    caches = [Cache(2 * n, model.config, total, dtype) for _ in range(model.config.num_hidden_layers)]
    rows = model.embed(text, None)
    h = model.hidden(rows, mask[:, :, :width, :width], cos[:width], sin[:width], caches)[:, -1]
    out = torch.empty(n, codes, dtype=torch.long)
    for i in range(codes):
        logits = model.generation_head(h).float()
        c, u = logits[:n], logits[n:]
        logits = truncate((u + guidance * (c - u)) / temperature, top_k, top_p)
        noise = torch.empty_like(logits).exponential_(generator=generator)
        out[:, i] = (logits.softmax(-1) / noise).argmax(-1)
        at = width + i
        rows = model.generation_aligner(model.generation_embeddings(out[:, i:i + 1]))
        rows = rows.repeat(2, 1, 1)
        if i + 1 < codes:
            h = model.hidden(rows, mask[:, :, at:at + 1, :at + 1], cos[at:at + 1], sin[at:at + 1], caches)[:, -1]
    return out


def load_judge(path: Path) -> Judge:
    weights, meta = load_checkpoint(path)
    judge = Judge(JudgeConfig(**meta["config"]))
    judge.load_state_dict(weights)
    return judge.bfloat16().float().eval()


def load_lm(path: Path, dtype=torch.bfloat16):
    weights, meta = load_checkpoint(path)
    model = JanusLm(LmConfig(**meta["config"]))
    model.load_state_dict(weights)
    return model.to(dtype).eval(), meta


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--vq", type=Path, required=True)
    parser.add_argument("--judge", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--scenes", type=Path, required=True, help="dumped set with prompts and truth")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--canonical", action="store_true", help="fixed wording instead of the paraphrases")
    parser.add_argument("--guidance", type=float, nargs="+", default=[3.0])
    parser.add_argument("--temperature", type=float, nargs="+", default=[1.0])
    parser.add_argument("--top-k", type=int, nargs="+", default=[0])
    parser.add_argument("--top-p", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sheet", type=Path, help="PNG of the first 48 pictures")
    parser.add_argument("--untrained", action="store_true", help="random weights: the floor of the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    pad = tokenizer.token_to_id(PAD)
    model, meta = load_lm(options.lm)
    if options.untrained:
        torch.manual_seed(options.seed)
        model.float().reset()
        model.bfloat16()
    vq, judge = load_vq(options.vq, torch.float32), load_judge(options.judge)
    _, scenes = load_scenes(options.scenes, with_pixels=False)
    scenes = scenes[options.start:options.start + options.count]
    truth = truth_labels(scenes)
    key = "canonical" if options.canonical else "caption"
    prompts = [e.ids for e in tokenizer.encode_batch([prompt_text(s[key]) for s in scenes])]
    for setting in itertools.product(options.guidance, options.temperature, options.top_k, options.top_p):
        begin, pictures = time.time(), []
        generator = torch.Generator().manual_seed(options.seed)
        for lo in range(0, len(prompts), options.batch):
            codes = sample_codes(model, prompts[lo:lo + options.batch], pad, 256, *setting, generator)
            with torch.no_grad():
                pictures.append(torch.from_numpy(to_u8(vq.decode(codes.view(-1, 16, 16)))))
        pixels = torch.cat(pictures).numpy()
        seen = [read(judge, to_float(pixels[lo:lo + 64])) for lo in range(0, len(pixels), 64)]
        marks = score({n: torch.cat([s[n] for s in seen]) for n in seen[0]}, truth)
        print(json.dumps({"samples": meta["samples"], "scenes": options.scenes.name, "n": len(prompts),
                          "guidance": setting[0], "temperature": setting[1], "top_k": setting[2],
                          "top_p": setting[3], **summary(marks), "seconds": round(time.time() - begin)}), flush=True)
        if options.sheet:
            picture_grid(pixels[:48], 8).save(options.sheet)


if __name__ == "__main__":
    main()
