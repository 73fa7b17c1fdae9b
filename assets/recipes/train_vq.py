"""Train the tabletop picture tokenizer: 64x64 pixels <-> 16x16 codes out of 512.

Loss: MSE + 0.5 L1 + 0.5 L1 of picture gradients + 0.5 codebook/commitment
+ 0.02 (sample entropy - entropy of the mean code distribution, temperature 0.07).
"""
from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from janus_model import VqConfig, VqModel
from training_common import (Clock, Log, MixedOptimiser, load_checkpoint, picture_grid,
                             save_checkpoint, scene_arguments, scenes_for, to_float, to_u8)


def losses(model: VqModel, x: torch.Tensor, options):
    """x [B, 3, H, W]; returns total, its parts, codes, latents [B*H'*W', D] and what is decoded"""
    z = model.latents(x.bfloat16())
    flat, book = z.reshape(-1, z.shape[-1]), model.codebook()
    similarity = flat @ book.t()
    codes = similarity.detach().argmax(-1)
    q = F.embedding(codes, book).view_as(z)
    commit = 0.25 * (z - q.detach()).square().sum(-1).mean() + (q - z.detach()).square().sum(-1).mean()
    logits = 2 * similarity[:: options.entropy_stride] / options.entropy_temperature
    logp = F.log_softmax(logits, -1)
    p = logp.exp()
    mean = p.mean(0)
    entropy = -(p * logp).sum(-1).mean() + (mean * (mean + 1e-9).log()).sum()
    y = model.decode_latents(z + (q - z).detach()).float()
    d = y - x
    mse, l1 = d.square().mean(), d.abs().mean()
    edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
    total = mse + 0.5 * l1 + 0.5 * edges + options.commit * commit + options.entropy * entropy
    parts = {"mse": mse, "l1": l1, "commit": commit, "entropy": entropy}
    return total, parts, codes, flat.detach(), y


@torch.no_grad()
def evaluate(model: VqModel, pixels, count: int = 512):
    """mean PSNR over pictures in dB (u8 in, u8 out), codes in use, perplexity, reconstructions"""
    psnr, used, kept = [], torch.zeros(model.config.num_embeddings), []
    for lo in range(0, min(count, len(pixels)), 32):
        batch = np.asarray(pixels[lo:lo + 32])
        dtype = model.post_quant_conv.weight.dtype
        codes = model.encode(to_float(batch).to(dtype))
        out = to_u8(model.decode(codes))
        used += torch.bincount(codes.flatten(), minlength=len(used)).float()
        error = ((out.astype(np.float64) - batch) ** 2).mean((1, 2, 3))
        psnr += list(10 * np.log10(255.0**2 / np.maximum(error, 1e-9)))
        if len(kept) < 8:
            kept += [np.concatenate((a, b), 1) for a, b in zip(batch[:16], out[:16])]
    share = used / used.sum()
    perplexity = math.exp(-(share * (share + 1e-12).log()).sum())
    return float(np.mean(psnr)), int((used > 0).sum()), perplexity, np.stack(kept)


def is_muon(name: str, p) -> bool:
    return p.dim() == 4 and min(p.shape[0], p.numel() // p.shape[0]) >= 16 and "conv_in" not in name


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    scene_arguments(parser)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=40000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=0, help="wall time instead of --steps")
    parser.add_argument("--multiplier", type=int, nargs="+", default=[1, 2, 2])
    parser.add_argument("--base", type=int, default=32)
    parser.add_argument("--muon-lr", type=float, default=0.01)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--no-muon", action="store_true", help="AdamW for every tensor")
    parser.add_argument("--decay", type=float, default=0.6, help="last share of the run, linear to zero")
    parser.add_argument("--commit", type=float, default=0.5)
    parser.add_argument("--entropy", type=float, default=0.02)
    parser.add_argument("--entropy-temperature", type=float, default=0.07)
    parser.add_argument("--entropy-stride", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="start from these weights, optimiser re-warmed")
    parser.add_argument("--eval-every", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    train, _ = scenes_for(options, "train", 0, options.scenes)
    val, _ = scenes_for(options, "val", 0, 2000)
    model = VqModel(VqConfig(base_channels=options.base, channel_multiplier=options.multiplier))
    if options.resume:
        model.load_state_dict(load_checkpoint(options.resume)[0])
    log = Log(options.out / "log.jsonl")
    log(parameters=sum(p.numel() for p in model.parameters()), options={k: str(v) for k, v in vars(options).items()})
    # An L2-normalised code is scale-free: its rows take larger steps than other tensors.
    optimiser = MixedOptimiser(
        model, (lambda n, p: False) if options.no_muon else is_muon, options.muon_lr, options.adam_lr,
        clip=1.0, ema=0.995, lr_scale=lambda n: 3.0 if n == "quantize.embedding.weight" else 1.0)
    clock = Clock(options.steps, options.minutes, 30, options.decay)
    order = np.random.default_rng(options.seed)
    recent = torch.zeros(model.config.num_embeddings)
    step = 0
    while clock.progress(step) < 1:
        picks = np.sort(order.choice(len(train), options.batch, replace=False))
        total, parts, codes, _, _ = losses(model, to_float(train[picks]), options)
        total.backward()
        norm = optimiser.step(clock.factor(step))
        recent = 0.98 * recent + torch.bincount(codes, minlength=len(recent)).float()
        if step % 20 == 0:
            log(step=step, loss=float(total.detach()), norm=norm, live=int((recent > 0.5).sum()),
                **{k: float(v.detach()) for k, v in parts.items()})
        step += 1
        if step % options.eval_every == 0 or clock.progress(step) >= 1:
            save(options, model, optimiser, val, log, step)


def save(options, model, optimiser, val, log, step):
    """Evaluate and keep the exponential average of the masters, in fp32."""
    twin = VqModel(model.config)
    twin.load_state_dict(optimiser.ema)
    psnr, used, perplexity, pictures = evaluate(twin, val)
    log(step=step, val_psnr=psnr, codes_used=used, perplexity=perplexity)
    meta = {"step": step, "batch": options.batch, "psnr": psnr, "codes_used": used,
            "perplexity": perplexity, "config": vars(model.config)}
    save_checkpoint(options.out / "vq.safetensors", optimiser.ema, meta)
    picture_grid(pictures, 4).save(options.out / "reconstructions.png")


if __name__ == "__main__":
    main()
