"""Tessera: images, videos and texts by autoregressive models.

import tessera
tessera.Runtime().generate("a red cube", seed=7).save("cube.png")
"""

from __future__ import annotations

import os
from typing import Any

from . import _core
from ._arguments import Conversation
from ._error import Error
from ._model import Model
from ._results import (
    Answer,
    Completion,
    Description,
    GeneratedImage,
    ModelInfo,
    Progress,
    SettingInfo,
    Video,
    png_path,
)
from ._runtime import Runtime
from ._streams import Results, Stream

__version__: str = _core.version()


def settings(task: str) -> list[SettingInfo]:
    """The settings of a task: "image", "video", "describe", "complete" or "answer".

    ``place`` says whether ``Runtime.open()`` takes one or a request.
    """
    return [SettingInfo(name=row["flag"].replace("-", "_"), **row) for row in _core.settings(task)]


def save_png(path: str | os.PathLike[str], image: Any) -> None:
    """Writes an array [height, width, 3] of uint8, for instance a frame of a video."""
    _core.save_png(image, png_path(path))


def png(image: Any) -> bytes:
    """The bytes of the file that ``save_png()`` writes."""
    return _core.png(image)


__all__ = [
    "Answer",
    "Completion",
    "Conversation",
    "Description",
    "Error",
    "GeneratedImage",
    "Model",
    "ModelInfo",
    "Progress",
    "Results",
    "Runtime",
    "SettingInfo",
    "Stream",
    "Video",
    "png",
    "save_png",
    "settings",
]
