"""Which solid each code of a clip shows, how it looks and how it moves: training-only targets, computed
from the clip itself (motions and camera: docs/world.md). A grid stands for its third frame."""
from __future__ import annotations

import math

import numpy as np
import torch

from scene_layout import EYE, LOOK_AT, camera, progress_of, slots_of
from training_common import ATTRIBUTES

MOTIONS = ("still", "left", "right", "toward", "away", "bounce", "spin")
CLIP_ATTRIBUTES = ATTRIBUTES | {"motion": MOTIONS}
MAX_CLIP_SOLIDS = 2
STEP, BOUNCE_FRAMES, BOUNCE_HEIGHT, ORBIT_DEGREES = 0.12, 8, 1.2, 1.2
DIRECTIONS = {"left": (-STEP, 0), "right": (STEP, 0), "toward": (0, -STEP), "away": (0, STEP)}


def view_at(clip: dict, frame: int):
    angle = math.radians(ORBIT_DEGREES * frame) if clip["camera"] == "orbit" else 0.0
    c, s = math.cos(angle), math.sin(angle)
    x, y, z = EYE - LOOK_AT
    return camera(LOOK_AT + [c * x - s * z, y, s * x + c * z])


def clip_slots(clip: dict, frame: int) -> np.ndarray:
    """slots_of() a frame"""
    solids, lifts = [], []
    for solid, motion in zip(clip["scene"]["solids"], clip["motions"]):
        dx, dz = DIRECTIONS.get(motion, (0, 0))
        solids.append(solid | {"x": solid["x"] + dx * frame, "z": solid["z"] + dz * frame})
        part = frame % BOUNCE_FRAMES / BOUNCE_FRAMES
        lifts.append(4 * BOUNCE_HEIGHT * part * (1 - part) if motion == "bounce" else 0.0)
    return slots_of({"solids": solids}, view=view_at(clip, frame), lifts=lifts)


def clip_layout_targets(clips, grids: int, grid_frames: int = 4) -> torch.Tensor:
    """[B, grids * 256, 6 + solids]: slot (0 none); kind, colour, size, material, motion (-1 where there is no
    solid); progress of each solid within its grid"""
    names = len(CLIP_ATTRIBUTES)
    out = np.full((len(clips), grids, 256, 1 + names + MAX_CLIP_SOLIDS), -1, np.int64)
    for i, clip in enumerate(clips):
        table = np.array([[values.index((solid | {"motion": motion})[name]) for name, values in CLIP_ATTRIBUTES.items()]
                          for solid, motion in zip(clip["scene"]["solids"], clip["motions"])])
        for t in range(grids):
            slots = clip_slots(clip, t * grid_frames + 2)
            out[i, t, :, 0] = slots
            out[i, t, :, 1 + names:] = progress_of(slots)[:, :MAX_CLIP_SOLIDS]
            out[i, t, slots > 0, 1:1 + names] = table[slots[slots > 0] - 1]
    return torch.from_numpy(out).flatten(1, 2)
