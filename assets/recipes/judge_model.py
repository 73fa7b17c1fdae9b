"""The judge of `eval scenes`: reads a scene's attributes from pixels alone.

Graph: conv_in 3x3; per level the VQ encoder's ResBlocks (attention after each one of the deepest
level) and its right/bottom-padded stride-2 convolution except after the last level; GroupNorm,
swish; mean over rows, keeping columns: features [C * W], channel-major (index c * W + column);
one Linear head an attribute. Slots are the solids from left to right.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from janus_model import Downsample, Level, group_norm, swish
from training_common import ATTRIBUTES, FLOORS, MAX_SOLIDS


@dataclass
class JudgeConfig:
    image_size: int = 64
    base_channels: int = 32
    channel_multiplier: list[int] = field(default_factory=lambda: [1, 2, 3, 3])
    num_res_blocks: int = 1


def head_sizes() -> dict[str, int]:
    sizes = {"count": MAX_SOLIDS, "floor": len(FLOORS)}
    for slot in range(1, MAX_SOLIDS + 1):
        sizes.update({f"{name}_{slot}": len(values) for name, values in ATTRIBUTES.items()})
    return sizes


class Judge(nn.Module):
    def __init__(self, c: JudgeConfig):
        super().__init__()
        self.config = c
        ch, mult = c.base_channels, c.channel_multiplier
        self.conv_in = nn.Conv2d(3, ch, 3, 1, 1)
        self.down = nn.ModuleList()
        for i, m in enumerate(mult):
            last = i == len(mult) - 1
            level = Level(ch * mult[i - 1] if i else ch, ch * m, c.num_res_blocks, last)
            if not last:
                level.downsample = Downsample(ch * m)
            self.down.append(level)
        top, columns = ch * mult[-1], c.image_size >> (len(mult) - 1)
        self.norm_out = group_norm(top)
        self.head = nn.ModuleDict({n: nn.Linear(top * columns, k) for n, k in head_sizes().items()})

    def features(self, x):
        """[B, 3, H, W] in [-1, 1] -> [B, C * W']"""
        x = self.conv_in(x)
        for level in self.down:
            x = level(x)
            if hasattr(level, "downsample"):
                x = level.downsample(x)
        return swish(self.norm_out(x)).mean(2).flatten(1)

    def forward(self, x) -> dict[str, torch.Tensor]:
        f = self.features(x)
        return {name: head(f) for name, head in self.head.items()}


@torch.no_grad()
def read(model: Judge, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """count-1 [B], floor [B], and [B, 4] of each attribute, -1 beyond the count"""
    logits = model(x.to(model.conv_in.weight.dtype))
    out = {"count": logits["count"].argmax(1), "floor": logits["floor"].argmax(1)}
    beyond = torch.arange(MAX_SOLIDS)[None] > out["count"][:, None]
    for name in ATTRIBUTES:
        seen = torch.stack([logits[f"{name}_{k}"].argmax(1) for k in range(1, MAX_SOLIDS + 1)], 1)
        out[name] = seen.masked_fill(beyond, -1)
    return out


def score(seen: dict, truth: dict) -> dict[str, torch.Tensor]:
    """Marks per picture in [0, 1]: count and floor right or wrong; an attribute's mark is the
    share of the truth's solids whose slot shows it; order: the multiset of solids is right and so
    is their order (1), wrong order (0), not asked where the multiset is wrong (-1); scene: all."""
    marks = {n: (seen[n] == truth[n]).float() for n in ("count", "floor")}
    present = (truth["kind"] >= 0).float()
    whole = marks["count"] * marks["floor"]
    code_seen, code_true = torch.zeros_like(truth["kind"]), torch.zeros_like(truth["kind"])
    for name, values in ATTRIBUTES.items():
        right = (seen[name] == truth[name]).float() * present
        marks[name] = right.sum(1) / present.sum(1)
        whole = whole * (right.sum(1) == present.sum(1)).float()
        code_seen, code_true = code_seen * 10 + seen[name] + 1, code_true * 10 + truth[name] + 1
    same_set = (code_seen.sort(1).values == code_true.sort(1).values).all(1)
    marks["order"] = torch.where(same_set, (code_seen == code_true).all(1).float(), -1.0)
    marks["scene"] = whole
    return marks


def summary(marks: dict, draws: int = 2000, seed: int = 1) -> dict:
    """mean and 95 % bootstrap interval of each mark, in per cent"""
    out, generator = {}, torch.Generator().manual_seed(seed)
    for name, values in marks.items():
        values = values[values >= 0]
        if len(values) == 0:
            continue
        picks = torch.randint(len(values), (draws, len(values)), generator=generator)
        means = values[picks].mean(1).sort().values * 100
        out[name] = [round(float(values.mean() * 100), 2), round(float(means[int(draws * 0.025)]), 2),
                     round(float(means[int(draws * 0.975)]), 2)]
    return out
