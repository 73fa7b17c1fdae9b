"""Which solid each picture code shows, and which solids are still to come: training-only targets,
computed from the scene itself.

Silhouettes are the convex hulls of projected outline points under the world's fixed camera
(docs/world.md), painted far to near. Slots count solids from left to right, 1 to 4; 0 is none.
"""
from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn

from training_common import ATTRIBUTES, MAX_SOLIDS

EYE, LOOK_AT, TAN_HALF = np.array([0, 10.5, -12.5]), np.array([0, 0.4, 0.3]), 0.222
FORWARD = (LOOK_AT - EYE) / np.linalg.norm(LOOK_AT - EYE)
UP = np.array([0.0, FORWARD[2], -FORWARD[1]])
RADIUS = {"sphere": 1.0, "cube": 0.78, "cylinder": 0.8, "cone": 1.05}
HEIGHT = {"sphere": 2.0, "cube": 1.56, "cylinder": 1.8, "cone": 2.1}
RING = np.array([[math.cos(a), math.sin(a)] for a in np.linspace(0, 2 * math.pi, 16, endpoint=False)])


def outline(kind: str) -> np.ndarray:
    """points around a large solid at the origin, [N, 3]"""
    r, h = RADIUS[kind], HEIGHT[kind]
    if kind == "cube":
        c, s = 0.90630779, 0.42261826
        corners = [(x, z) for x in (-r, r) for z in (-r, r)]
        return np.array([(c * x - s * z, y, s * x + c * z) for x, z in corners for y in (0, h)])
    low = np.stack((RING[:, 0] * r, np.zeros(16), RING[:, 1] * r), 1)
    if kind == "cone":
        return np.concatenate((low, [[0, h, 0]]))
    if kind == "cylinder":
        return np.concatenate((low, low + [0, h, 0]))
    side = np.cross(FORWARD, [1.0, 0, 0])
    return [0, r, 0] + r * (RING[:, :1] * [1.0, 0, 0] + RING[:, 1:] * side)


OUTLINES = {kind: outline(kind) for kind in RADIUS}


def convex_hull(points):
    points = sorted(map(tuple, points))
    def half(order):
        chain = []
        for p in order:
            while len(chain) > 1 and ((chain[-1][0] - chain[-2][0]) * (p[1] - chain[-2][1])
                                      - (chain[-1][1] - chain[-2][1]) * (p[0] - chain[-2][0])) <= 0:
                chain.pop()
            chain.append(p)
        return chain[:-1]
    return half(points) + half(points[::-1])


def camera(eye=EYE):
    """eye, forward and up of a camera that looks at the middle of the table"""
    forward = (LOOK_AT - eye) / np.linalg.norm(LOOK_AT - eye)
    right = np.array([forward[2], 0.0, -forward[0]])
    return eye, forward, np.cross(forward, right / np.linalg.norm(right))


def slots_of(scene: dict, pixels: int = 64, places: int = 16, view=None, lifts=None) -> np.ndarray:
    """u8 [places * places]: the slot that covers most of a place's covered pixels. `lifts`: how far
    each solid is above the table; `view`: another camera()"""
    eye, forward, up = view or (EYE, FORWARD, UP)
    canvas = Image.new("L", (pixels, pixels))
    draw = ImageDraw.Draw(canvas)
    order = sorted(range(len(scene["solids"])), key=lambda k: -scene["solids"][k]["z"])
    for k in order:
        solid = scene["solids"][k]
        scale = 1.0 if solid["size"] == "large" else 0.6
        offset = OUTLINES[solid["kind"]] * scale + [solid["x"], lifts[k] if lifts else 0, solid["z"]] - eye
        depth = offset @ forward * TAN_HALF
        u, v = offset @ np.cross(up, forward) / depth, offset @ up / depth
        hull = convex_hull(np.stack(((u + 1) * pixels / 2 - 0.5, (1 - v) * pixels / 2 - 0.5), 1))
        draw.polygon(hull, fill=k + 1)
    step = pixels // places
    cells = np.asarray(canvas).reshape(places, step, places, step).transpose(0, 2, 1, 3)
    cells = cells.reshape(places * places, step * step)
    counts = np.stack([(cells == k).sum(1) for k in range(1, MAX_SOLIDS + 1)], 1)
    return np.where(counts.sum(1) >= step, counts.argmax(1) + 1, 0).astype(np.uint8)


def progress_of(slots: np.ndarray) -> np.ndarray:
    """[256, 4]: at each place of the raster, is solid 1 … 4 absent 0, still to come 1, begun 2, done 3"""
    out = np.zeros((len(slots), MAX_SOLIDS), np.int64)
    for k in range(MAX_SOLIDS):
        places = np.flatnonzero(slots == k + 1)
        if len(places):
            out[:, k] = 1
            out[places[0]:, k] = 2
            out[places[-1] + 1:, k] = 3
    return out


def layout_targets(scenes) -> torch.Tensor:
    """[B, 256, 9]: slot (0 none); kind, colour, size, material (-1 where there is no solid); progress of four"""
    out = np.full((len(scenes), 256, 9), -1, np.int64)
    for i, scene in enumerate(scenes):
        slots = slots_of(scene)
        out[i, :, 0], out[i, :, 5:] = slots, progress_of(slots)
        table = np.array([[values.index(solid[name]) for name, values in ATTRIBUTES.items()]
                          for solid in scene["solids"]])
        out[i, slots > 0, 1:5] = table[slots[slots > 0] - 1]
    return torch.from_numpy(out)


class LayoutHead(nn.Module):
    """Reads, from a middle layer's row, the solid of the code just seen and of the code to come, and
    after the code just seen which solids are begun, done or missing."""

    def __init__(self, width: int, solids: int = MAX_SOLIDS, attributes: dict = ATTRIBUTES):
        super().__init__()
        self.solids = solids
        self.SIZES = [solids + 1] + [len(values) for values in attributes.values()]
        self.seen, self.next = nn.Linear(width, sum(self.SIZES)), nn.Linear(width, sum(self.SIZES))
        self.progress = nn.Linear(width, 4 * solids)
        for head in (self.seen, self.next, self.progress):
            nn.init.normal_(head.weight, std=0.1 * width**-0.5)
            nn.init.zeros_(head.bias)

    def forward(self, rows, targets):
        """rows [B, 1 + 255, D] (last prompt row, then codes but the last); nats a covered place,
        plus nats a place for the progress of four solids"""
        rows = F.rms_norm(rows, rows.shape[-1:])
        covered = (targets[..., 0] > 0).sum().clamp(min=1)
        total = 0.0
        for head, x, t in ((self.next, rows, targets), (self.seen, rows[:, 1:], targets[:, :-1])):
            parts = head(x).float().flatten(0, 1).split(self.SIZES, -1)
            for k, logits in enumerate(parts):
                total = total + F.cross_entropy(logits, t[..., k].flatten(), ignore_index=-1, reduction="sum")
        states = self.progress(rows[:, 1:]).float().view(-1, 4)
        progress = F.cross_entropy(states, targets[:, :-1, len(self.SIZES):].flatten()) * self.solids
        return total / (2 * covered) + progress
