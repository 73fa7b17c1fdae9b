"""Train the tabletop clip tokenizer: clips of 64x64 pixels <-> a 16x16 grid of codes for four frames.

Loss: MSE + 0.5 L1 + 0.5 L1 of gradients in space and time + 0.5 codebook/commitment. The first steps
run without codes; then the codebook starts as latents of a batch, and codes that nothing uses are
put on latents again. Latents of places that nothing moves through are held to those of the grid before,
so that what stands still keeps its codes, whatever the zeros in front of a clip; the encoder's convolutions
along the grids begin without a view of earlier ones. Batch norms are averaged anew for the smoothed weights
before each evaluation.
`--resume` starts from weights and re-warms the optimiser.
"""
from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from training_common import (Clock, Log, MixedOptimiser, load_checkpoint, picture_grid,
                             save_checkpoint, scene_arguments, scenes_for, to_float, to_u8)
from video_model import VideoVq, VideoVqConfig


def differences(d: torch.Tensor) -> torch.Tensor:
    return ((d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
            + (d[:, 1:] - d[:, :-1]).abs().mean())


def still_places(x: torch.Tensor, beside: bool = True, grid_frames: int = 4, step: int = 4) -> torch.Tensor:
    """x [B, T, 3, H, W] -> bool [B, T / 4 - 1, H / 4, W / 4]: neither the place nor, unless told otherwise,
    one beside it changes from the grid before to the end of this one"""
    b, t = x.shape[:2]
    changes = F.max_pool2d((x[:, 1:] - x[:, :-1]).abs().amax(2), step)
    near = F.max_pool2d(changes, 3, 1, 1) if beside else changes
    most = [near[:, lo:lo + 2 * grid_frames - 1].amax(1) for lo in range(0, t - grid_frames, grid_frames)]
    return torch.stack(most, 1) < 0.01


def losses(model: VideoVq, x: torch.Tensor, weight: float, with_codes: bool, still_weight: float):
    """x [B, T, 3, H, W]; returns total, its parts, latents [N, d], codes [N]"""
    z = model.latents(x.bfloat16())
    flat = z.flatten(0, 3)
    codes = model.nearest(flat).detach().argmin(1)
    q = F.embedding(codes, model.quantize.embedding.weight.float()).view_as(z)
    if with_codes:
        commit = 0.25 * (z - q.detach()).square().mean() + (q - z.detach()).square().mean()
        taken = z + (q - z).detach()
    else:
        commit, taken = 1e-2 * z.square().mean(), z
    d = model.decode_latents(taken).float() - x
    mse, l1 = d.square().mean(), d.abs().mean()
    held = still_places(x)
    drift = (z[:, 1:] - z[:, :-1])[held].square().mean()
    total = mse + 0.5 * l1 + 0.5 * differences(d) + weight * commit + still_weight * drift
    grids = codes.view(z.shape[:4])
    changed = (grids[:, 1:] != grids[:, :-1])[held].float().mean()
    return total, {"mse": mse, "l1": l1, "commit": commit, "drift": drift, "changed": changed}, flat.detach(), codes


class Windows:
    """Random windows of `frames` frames out of rendered clips, or their starts."""

    def __init__(self, clips, frames: int, seed: int):
        self.clips, self.frames, self.order = clips, frames, np.random.default_rng(seed)

    def batch(self, count: int) -> torch.Tensor:
        picks = self.order.integers(0, len(self.clips), count)
        starts = self.order.integers(0, self.clips.shape[1] - self.frames + 1, count)
        return to_float(np.stack([self.clips[i, s:s + self.frames] for i, s in zip(picks, starts)]))


@torch.no_grad()
def average_norms(model: VideoVq, windows: Windows, batches: int = 24, count: int = 6):
    """Running statistics as the plain mean over batches of the weights as they are now."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm3d)]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    for _ in range(batches):
        model.decode(model.encode(windows.batch(count).to(model.quantize.embedding.weight.dtype)))
    model.eval()


@torch.no_grad()
def evaluate(model: VideoVq, clips, count: int = 96):
    """mean PSNR over frames in dB (u8 in, u8 out), codes in use, perplexity, share of codes that change where
    nothing moves, reconstructions"""
    psnr, used, kept, changed = [], torch.zeros(model.config.codebook_size), [], []
    dtype = model.quantize.embedding.weight.dtype
    for lo in range(0, min(count, len(clips)), 4):
        batch = np.asarray(clips[lo:lo + 4])
        codes = model.encode(to_float(batch).to(dtype))
        changed.append((codes[:, 1:] != codes[:, :-1])[still_places(to_float(batch).float())].float())
        out = to_u8(model.decode(codes))
        used += torch.bincount(codes.flatten(), minlength=len(used)).float()
        error = ((out.astype(np.float64) - batch) ** 2).mean((2, 3, 4))
        psnr += list((10 * np.log10(255.0**2 / np.maximum(error, 1e-9))).flatten())
        if len(kept) < 16:
            kept += [a for pair in zip(batch, out) for clip in pair for a in clip[::2]]
    share = used / used.sum()
    perplexity = math.exp(-(share * (share + 1e-12).log()).sum())
    return (float(np.mean(psnr)), int((used > 0).sum()), perplexity, float(torch.cat(changed).mean()),
            np.stack(kept[:64]))


def picture_weights(weights: dict, levels: int) -> dict:
    """The tensors of a picture tokenizer (janus_model.VqModel) under the names they have here.

    The graphs are the same but for time, the conditioned norms and the width of the latents.
    """
    out = {}
    for name, tensor in weights.items():
        side, _, rest = name.partition(".")
        if side not in ("encoder", "decoder") or rest.startswith("conv_out") and side == "encoder":
            continue
        if side == "decoder" and rest.startswith("conv_in"):
            continue
        part = rest.split(".")
        if part[0] == "mid":
            part[0] = "middle_block"
            if part[1] == "attn_1" and part[2] == "norm":
                part[1:3] = ["attn_norm"]
        elif part[0] in ("down", "up"):
            if part[0] == "up":
                part[1] = str(levels - 1 - int(part[1]))
            if part[2] == "attn" and part[4] == "norm":
                part[2:5] = ["attn_norms", part[3]]
            part.insert(0, part[0] + "_block")
        if part[-2] in ("q", "k", "v", "proj_out"):
            part[-2] = {"proj_out": "out_proj"}.get(part[-2], part[-2] + "_proj")
            tensor = tensor.flatten(1) if tensor.dim() == 4 else tensor
        elif side == "decoder" and (part[-2].startswith(("norm", "attn_norm")) or "attn_norms" in part):
            part.insert(-1, "norm_layer")
        out[".".join([side, *part])] = tensor
    return out


@torch.no_grad()
def forget_earlier_grids(model: VideoVq):
    for conv in [model.quant_conv, *(c for block in model.encoder.time_res_stack for c in (block.conv1, block.conv2))]:
        conv.conv.weight[:, :, :-1] = 0


def is_muon(name: str, p) -> bool:
    return p.dim() >= 4 and min(p.shape[0], p.numel() // p.shape[0]) >= 16 and "conv_in" not in name


def revive(model, optimiser, recent, latents, least: float) -> int:
    """Codes that nothing uses go to random latents."""
    dead = (recent < least).nonzero().flatten()
    if len(dead):
        picks = torch.randint(len(latents), (len(dead),))
        optimiser.master["quantize.embedding.weight"][dead] = latents[picks]
        recent[dead] = 1.0
        optimiser.publish()
    return len(dead)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    scene_arguments(parser)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=6000)
    parser.add_argument("--clip-frames", type=int, default=16)
    parser.add_argument("--frames", type=int, default=8, help="of a training window")
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=0, help="wall time instead of --steps")
    parser.add_argument("--codes", type=int, default=512)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--base", type=int, default=32)
    parser.add_argument("--free-steps", type=int, default=100, help="first steps, without codes")
    parser.add_argument("--muon-lr", type=float, default=0.01)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.6, help="last share of the run, linear to zero")
    parser.add_argument("--commit", type=float, default=0.5)
    parser.add_argument("--still", type=float, default=2.0, help="weight of the drift of what stands still")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="start from these weights, optimiser re-warmed")
    parser.add_argument("--forget", action="store_true", help="weights that are resumed begin so too")
    parser.add_argument("--pictures", type=Path, help="begin with the weights of this picture tokenizer")
    parser.add_argument("--save-minutes", type=float, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    train, _ = scenes_for(options, "train", 0, options.clips, frames=options.clip_frames)
    val, _ = scenes_for(options, "val", 0, 200, frames=options.clip_frames)
    model = VideoVq(VideoVqConfig(codebook_size=options.codes, embed_dim=options.dim,
                                  latent_channels=options.dim, base_channels=options.base,
                                  hidden_size=2 * options.base))
    done = {"step": 0, "windows": 0, "seconds": 0.0}
    if options.pictures:
        known = picture_weights(load_checkpoint(options.pictures)[0], len(model.config.channel_multiplier))
        missing, strangers = model.load_state_dict(known, strict=False)
        assert not strangers, strangers
        print(f"{len(known)} tensors of the picture tokenizer, {len(missing)} begin anew", flush=True)
    forget_earlier_grids(model)
    if options.resume:
        weights, done = load_checkpoint(options.resume)
        model.load_state_dict(weights)
        if options.forget:
            forget_earlier_grids(model)
        options.free_steps = 0
    log = Log(options.out / "log.jsonl")
    log(parameters=sum(p.numel() for p in model.parameters()), options={k: str(v) for k, v in vars(options).items()})
    optimiser = MixedOptimiser(model, is_muon, options.muon_lr, options.adam_lr, clip=1.0, ema=0.995,
                               lr_scale=lambda n: 3.0 if n == "quantize.embedding.weight" else 1.0)
    for m in model.modules():
        if isinstance(m, nn.BatchNorm3d):
            m.float()  # statistics in bf16 would stand still
    clock = Clock(options.steps, options.minutes, 30, options.decay)
    windows = Windows(train, options.frames, options.seed + done["step"])
    recent = torch.ones(options.codes)
    step, saved = 0, time.time()
    while clock.progress(step) < 1:
        with_codes = step >= options.free_steps
        total, parts, latents, codes = losses(model, windows.batch(options.batch), options.commit, with_codes,
                                              options.still)
        total.backward()
        norm = optimiser.step(clock.factor(step))
        if step + 1 == options.free_steps:
            recent.zero_()
            revive(model, optimiser, recent, latents, 1.0)
        if with_codes:
            recent = 0.97 * recent + torch.bincount(codes, minlength=len(recent)).float()
            if step % 25 == 0 and clock.progress(step) < 0.8:
                revive(model, optimiser, recent, latents, 1.0)
        if step % 20 == 0:
            log(step=done["step"] + step, loss=float(total.detach()), norm=norm,
                live=int((recent > 1.0).sum()), **{k: float(v.detach()) for k, v in parts.items()})
        step += 1
        over = clock.progress(step) >= 1
        if over or time.time() - saved > options.save_minutes * 60:
            save(options, model, optimiser, val, windows, log, done, step, clock)
            saved = time.time()


def save(options, model, optimiser, val, windows, log, done, step, clock):
    """Evaluate and keep the exponential average of the masters, in fp32."""
    twin = VideoVq(model.config)
    twin.load_state_dict(optimiser.ema, strict=False)
    twin.quantize.embedding.weight.data.copy_(optimiser.master["quantize.embedding.weight"])
    average_norms(twin, windows)
    psnr, used, perplexity, changed, pictures = evaluate(twin, val)
    meta = {"step": done["step"] + step, "windows": done["windows"] + step * options.batch,
            "seconds": done["seconds"] + time.time() - clock.start, "psnr": psnr, "codes_used": used,
            "perplexity": perplexity, "changed": changed, "config": vars(model.config)}
    log(step=meta["step"], val_psnr=psnr, codes_used=used, perplexity=perplexity, changed=changed)
    save_checkpoint(options.out / "video-vq.safetensors", twin.state_dict(), meta)
    picture_grid(pictures, 8).save(options.out / "reconstructions.png")


if __name__ == "__main__":
    main()
