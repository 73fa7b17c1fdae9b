"""Weights that no file holds: each element is a hash of its tensor's name and its place, as
tests/support/hashed_weights.h computes them too."""
from __future__ import annotations

import numpy as np
import torch


def hashed(name, shape):
    """Uniform in [-1, 1), 24 bits, by SplitMix64 of FNV-1a of the name."""
    key = 14695981039346656037
    for byte in name.encode():
        key = (key ^ byte) * 1099511628211 % 2**64
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = np.uint64(key) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(40)).astype(np.int64) - 2**23
    return torch.from_numpy(u.astype(np.float64) / 2**23).reshape(shape)


def weight(name, shape):
    """Vectors near 1 (norms, variances) or 0 (biases, means), tables of size 1, matrices by their inputs; factors
    are powers of two."""
    noise = hashed(name, shape)
    if len(shape) == 1:
        if name.endswith("running_var"):
            return 1 + noise / 2
        return 1 + noise / 4 if name.endswith(".weight") else noise / 8
    if "embed" in name:
        return noise
    inputs, steps = int(np.prod(shape[1:])), 0
    while 4 ** (steps + 1) <= inputs:
        steps += 1
    return noise * 2.0 ** (1 - steps)
