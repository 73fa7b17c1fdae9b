"""Golden tensors of the VQ tokenizer, from the JanusVQVAE class of `transformers`.

    python assets/recipes/fixtures_vq.py --output tests/golden/vq

Weights are not stored: every parameter is drawn from Philox4x32-10 with key (seed, number of the
tensor) and counter (block, 0, 0, 0), rounded to values that are exact in fp32, so that the test draws
the same ones. `<config>.names` lists "<HF name> <LlamaGen name> <shape>", its line number is the
tensor's number. `<config>.safetensors` holds inputs and outputs.

The class forgets to L2-normalise latents and codebook before the nearest-code search; the original
code normalises both, so the search is done here by hand.
"""
from __future__ import annotations

import argparse
import math
import pathlib
import re

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import JanusVQVAE, JanusVQVAEConfig

SEED = 20260

CONFIGS = {
    # name: base channels, multipliers, residual blocks, latent channels, embed dim, codes, grid
    "plain": (32, [1, 1], 2, 32, 8, 12, (4, 4)),
    "wide": (64, [1, 2], 1, 16, 8, 48, (4, 4)),
    "three": (32, [1, 2, 2], 1, 24, 4, 64, (4, 4)),
    "published": (32, [1, 1, 2, 2, 4], 2, 64, 8, 64, (4, 4)),
}


def philox(seed: int, item: int, count: int) -> np.ndarray:
    """`count` words of Philox4x32-10, key (seed, item), counters (0,0,0,0), (1,0,0,0), ..."""
    blocks = (count + 3) // 4
    c = [np.arange(blocks, dtype=np.uint64)] + [np.zeros(blocks, np.uint64) for _ in range(3)]
    k0, k1 = np.uint64(seed), np.uint64(item)
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> shift) ^ c[1] ^ k0, p1 & low, (p0 >> shift) ^ c[3] ^ k1, p0 & low]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack(c, axis=1).reshape(-1)[:count].astype(np.uint32)


def draw(name: str, shape: tuple[int, ...], number: int) -> torch.Tensor:
    """Uniform, 12 bits. Kernels: about unit gain; vectors: norms around 1, biases around 0."""
    count = math.prod(shape)
    unit = ((philox(SEED, number, count) >> 20).astype(np.float32) - 2047.5) / 2048.0
    if "norm" in name.split(".")[-2]:
        values = unit * 0.5 + (1.0 if name.endswith("weight") else 0.0)
    elif len(shape) == 1:
        values = unit * 0.25
    elif name.endswith("embedding.weight"):
        values = unit
    else:
        fan_in = math.prod(shape[1:])
        values = unit * 2.0 ** round(math.log2(math.sqrt(3.0 / fan_in)))
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def llamagen_name(name: str) -> str:
    name = re.sub(r"^(encoder)\.down\.(\d+)\.block\.", r"\1.conv_blocks.\2.res.", name)
    name = re.sub(r"^(decoder)\.up\.(\d+)\.block\.", r"\1.conv_blocks.\2.res.", name)
    name = re.sub(r"^(encoder)\.down\.", r"\1.conv_blocks.", name)
    name = re.sub(r"^(decoder)\.up\.", r"\1.conv_blocks.", name)
    for part, number in (("block_1", 0), ("attn_1", 1), ("block_2", 2)):
        name = name.replace(f".mid.{part}.", f".mid.{number}.")
    return name


def normalise(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(x, dim=-1, eps=1e-12)


@torch.no_grad()
def make(name: str, folder: pathlib.Path) -> None:
    base, mult, blocks, latent, dim, codes, grid = CONFIGS[name]
    config = JanusVQVAEConfig(base_channels=base, channel_multiplier=mult, num_res_blocks=blocks,
                              latent_channels=latent, embed_dim=dim, num_embeddings=codes,
                              num_patches=grid[0])
    model = JanusVQVAE(config).eval().float()
    lines = []
    for number, (key, tensor) in enumerate(model.state_dict().items()):
        tensor.copy_(draw(key, tuple(tensor.shape), number))
        lines.append(f"{key} {llamagen_name(key)} {','.join(map(str, tensor.shape))}")

    factor = 2 ** (len(mult) - 1)
    height, width = grid[0] * factor, grid[1] * factor
    generator = torch.Generator().manual_seed(SEED)
    image = torch.rand(1, 3, height, width, generator=generator) * 2 - 1
    features = model.encoder(image)
    z = model.quant_conv(features).permute(0, 2, 3, 1)
    rows, book = normalise(z.reshape(-1, dim)), normalise(model.quantize.embedding.weight)
    distance = (rows**2).sum(1, keepdim=True) + (book**2).sum(1) - 2 * rows @ book.t()
    two = distance.topk(2, dim=1, largest=False).values
    assert (two[:, 1] - two[:, 0]).min() > 1e-5, "no near tie, so that indices must agree"
    indices = distance.argmin(1)
    plain = torch.cdist(z.reshape(-1, dim), model.quantize.embedding.weight).argmin(1)
    assert (plain != indices).any(), "the normalisation must matter here"

    ids = torch.randint(0, codes, (1, grid[0] * grid[1]), generator=generator)
    pixels = model.decode(ids)
    save_file({
        "image": image[0].permute(1, 2, 0).contiguous(),
        "features": features[0].permute(1, 2, 0).contiguous(),
        "z": z[0].contiguous(),
        "indices": indices.to(torch.int32).reshape(grid),
        "codes": ids[0].to(torch.int32).reshape(grid),
        "pixels": pixels[0].permute(1, 2, 0).contiguous(),
    }, folder / f"{name}.safetensors", metadata={
        "base_channels": str(base), "channel_multiplier": ",".join(map(str, mult)),
        "num_res_blocks": str(blocks), "latent_channels": str(latent), "embed_dim": str(dim),
        "num_embeddings": str(codes), "seed": str(SEED)})
    (folder / f"{name}.safetensors").chmod(0o644)
    (folder / f"{name}.names").write_text("\n".join(lines) + "\n")
    print(f"{name}: {len(lines)} tensors, {sum(p.numel() for p in model.parameters())} parameters, "
          f"|pixels| <= {pixels.abs().max():.3f}, {len(set(indices.tolist()))} codes seen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    torch.backends.mkldnn.enabled = False
    torch.set_num_threads(1)
    for name in CONFIGS:
        make(name, args.output)


if __name__ == "__main__":
    main()
