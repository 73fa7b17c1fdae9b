"""Train the image tokenizer of the second world: 256x256 pixels <-> 16x16 codes out of 4096.

The graph is that of train_vq.py with four halvings. Scenes come from scene_dump as they are needed
and never twice; most batches are crops of 128 pixels, the rest whole images. Loss: that of
train_vq.py and a perceptual distance (perceptual.py). Codes that nobody uses are moved to latents
that are there.

Runs until it is ended. Every --save-minutes it writes, whole or not at all, OUT/master.safetensors
(to go on: the next call with the same --out does) and OUT/vq.safetensors (the average of the weights,
to use). --anneal-minutes ends a training: the learning rate falls to zero within that time.
"""
from __future__ import annotations

import argparse
import subprocess
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from janus_model import VqConfig, VqModel
from perceptual import Perceptual
from train_vq import evaluate, is_muon, losses
from training_common import Log, MixedOptimiser, load_checkpoint, picture_grid, save_checkpoint, to_float


class Scenes:
    """still lifes one after the other from `start`: pixels u8 [size, size, 3], and their JSON lines if asked for"""

    def __init__(self, options, split: str, start: int, size: int, with_lines: bool = False):
        """options.scene_dump, options.things: the program and the pack"""
        self.options, self.split, self.next, self.size = options, split, start, size
        self.with_lines, self.process = with_lines, None

    def begin(self):
        binary = self.options.scene_dump
        command = [str(Path(binary).resolve()) if "/" in binary else binary, "--world", "2", "--split", self.split,
                   "--start", str(self.next), "--count", str(1 << 40), "--size", str(self.size)]
        command += [] if self.with_lines else ["--no-json"]
        command += ["--things", str(self.options.things)] if self.options.things else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=1 << 18)

    def take_with_lines(self, count: int):
        """lines (none without `with_lines`) and pixels [count, size, size, 3]"""
        if self.process is None:
            self.begin()
        size, lines = self.size, []
        pixels = np.empty((count, size, size, 3), np.uint8)
        for i in range(count):
            if self.with_lines:
                lines.append(self.process.stdout.readline().decode("utf-8"))
            raw = self.process.stdout.read(size * size * 3)
            if len(raw) != size * size * 3:
                raise RuntimeError(f"scene_dump ended at scene {self.next} of {self.split}")
            pixels[i] = np.frombuffer(raw, np.uint8).reshape(size, size, 3)
            self.next += 1
        return lines, pixels

    def take(self, count: int) -> np.ndarray:
        return self.take_with_lines(count)[1]

    def close(self):
        if self.process is not None:
            self.process.terminate()
            self.process.stdout.close()
            self.process.wait()
            self.process = None


def batch_of(scenes: Scenes, options, order) -> torch.Tensor:
    """crops of half the side, two an image, or whole images of the same number of pixels"""
    images = scenes.take(options.batch // 2 if order.random() >= options.whole_share else options.batch // 4)
    if len(images) == options.batch // 4:
        return to_float(images)
    half, crops = options.size // 2, []
    for image in images:
        for x, y in order.integers(0, half + 1, (2, 2)):
            crops.append(image[y:y + half, x:x + half])
    return to_float(np.stack(crops))


class Reviver:
    """moves codes that have not been used for a while to latents of the batch"""

    def __init__(self, codes: int):
        self.recent = torch.ones(codes)

    @torch.no_grad()
    def step(self, optimiser, codes, latents, order) -> int:
        self.recent.mul_(0.997).add_(torch.bincount(codes, minlength=len(self.recent)).float())
        dead = torch.nonzero(self.recent < 0.05).flatten()[:32]
        if len(dead):
            picks = torch.from_numpy(order.integers(0, len(latents), len(dead)))
            moved = latents[picks] + 0.02 * torch.randn(len(dead), latents.shape[1])
            for weights in (optimiser.master, optimiser.ema):
                weights["quantize.embedding.weight"][dead] = moved
            self.recent[dead] = 1.0
            optimiser.publish()
        return len(dead)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene-dump", default="scene_dump", help="the scene_dump program")
    parser.add_argument("--things", type=Path, help="pack of cut-outs (make_things.py)")
    parser.add_argument("--perceptual", type=Path, help="weights of perceptual.py")
    parser.add_argument("--perceptual-weight", type=float, default=0.15)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8, help="crops; a quarter as many whole images")
    parser.add_argument("--whole-share", type=float, default=0.15, help="of batches that are whole images")
    parser.add_argument("--base", type=int, default=64, help="channels at full size")
    parser.add_argument("--multiplier", type=int, nargs="+", default=[1, 1, 2, 2, 2])
    parser.add_argument("--codes", type=int, default=4096)
    parser.add_argument("--latent", type=int, default=64)
    parser.add_argument("--muon-lr", type=float, default=0.01)
    parser.add_argument("--adam-lr", type=float, default=1.5e-3)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--commit", type=float, default=0.5)
    parser.add_argument("--entropy", type=float, default=0.02)
    parser.add_argument("--entropy-temperature", type=float, default=0.07)
    parser.add_argument("--entropy-stride", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="of this call")
    parser.add_argument("--anneal-minutes", type=float, default=0, help="this call lasts so long and ends the training")
    parser.add_argument("--save-minutes", type=float, default=10)
    parser.add_argument("--val", type=int, default=32, help="val images of an evaluation")
    return parser.parse_args()


def save(options, model, optimiser, val, log, done):
    twin = VqModel(model.config)
    twin.load_state_dict(optimiser.ema)
    psnr, used, perplexity, pictures = evaluate(twin, val, len(val))
    log(step=done["step"], scenes=done["scenes"], hours=done["seconds"] / 3600, val_psnr=psnr, codes_used=used,
        perplexity=perplexity)
    meta = {**done, "psnr": psnr, "codes_used": used, "perplexity": perplexity, "config": vars(model.config)}
    save_checkpoint(options.out / "vq.safetensors", optimiser.ema, meta)
    save_checkpoint(options.out / "master.safetensors", optimiser.master, meta)
    picture_grid(pictures[:8], 2, 1).save(options.out / "reconstructions.png")


def main():
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    model = VqModel(VqConfig(base_channels=options.base, channel_multiplier=options.multiplier,
                             latent_channels=options.latent, num_embeddings=options.codes))
    done = {"step": 0, "scenes": 0, "seconds": 0.0}
    master = options.out / "master.safetensors"
    if master.exists():
        weights, meta = load_checkpoint(master)
        model.load_state_dict(weights)
        done = {name: meta[name] for name in done}
    options.out.mkdir(parents=True, exist_ok=True)
    log = Log(options.out / "log.jsonl")
    log(parameters=sum(p.numel() for p in model.parameters()), begun_at=done["step"],
        options={name: str(value) for name, value in vars(options).items()})
    perceptual = Perceptual(options.perceptual).bfloat16() if options.perceptual else None
    optimiser = MixedOptimiser(model, is_muon, options.muon_lr, options.adam_lr, clip=1.0, ema=0.998,
                               lr_scale=lambda name: 3.0 if name == "quantize.embedding.weight" else 1.0)
    if done["step"]:
        optimiser.ema = load_checkpoint(options.out / "vq.safetensors")[0]
    held = Scenes(options, "val", 0, options.size)
    val = held.take(options.val)
    held.close()
    scenes, reviver = Scenes(options, "train", done["scenes"], options.size), Reviver(options.codes)
    order = np.random.default_rng([options.seed, done["step"]])
    begun, used = time.time(), time.process_time()
    saved = begun
    earlier, first, window = done["seconds"], done["step"], []
    minutes = options.anneal_minutes or options.minutes
    while time.time() - begun < 60 * minutes:
        x = batch_of(scenes, options, order)
        total, parts, codes, latents, y = losses(model, x, options)
        if perceptual is not None:
            parts["perceptual"] = perceptual(y.bfloat16(), x.bfloat16())
            total = total + options.perceptual_weight * parts["perceptual"].float()
        total.backward()
        left = 1 - (time.time() - begun) / (60 * minutes) if options.anneal_minutes else 1.0
        norm = optimiser.step(min(1.0, (done["step"] - first + 1) / options.warmup) * max(left, 0.0))
        moved = reviver.step(optimiser, codes, latents, order)
        done.update(step=done["step"] + 1, scenes=scenes.next, seconds=earlier + time.time() - begun)
        window.append(float(parts["mse"].detach()))
        if done["step"] % 20 == 0:
            log(step=done["step"], db=float(-10 * np.log10(np.mean(window) / 4)), norm=norm, moved=moved,
                live=int((reviver.recent > 0.05).sum()), cpu=(time.process_time() - used) / (done["step"] - first),
                **{name: float(value.detach()) for name, value in parts.items()})
            window = []
        if time.time() - saved > 60 * options.save_minutes:
            save(options, model, optimiser, val, log, done)
            saved = time.time()
    save(options, model, optimiser, val, log, done)
    scenes.close()


if __name__ == "__main__":
    main()
