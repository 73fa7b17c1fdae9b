"""What requests become."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Union

from numpy import uint8
from numpy.typing import NDArray

from . import _core
from ._error import usage

Pixels = NDArray[uint8]
"""[height, width, 3], RGB, rows from the top."""


class GeneratedImage:
    """An image with all that is needed to generate it again.

    ``array`` is [height, width, 3] of uint8 and owns the library's memory: nothing is copied, and
    what is written into it is what ``save()`` writes.
    """

    def __init__(self, made: _core.Generated, prompt: str, seed: int, index: int) -> None:
        self._made = made
        self.prompt = prompt
        self.seed = seed
        self.index = index  # place among the prompts that were given

    @property
    def array(self) -> Pixels:
        return self._made.array

    @property
    def width(self) -> int:
        """Pixels."""
        return int(self._made.array.shape[1])

    @property
    def height(self) -> int:
        """Pixels."""
        return int(self._made.array.shape[0])

    @property
    def tokens(self) -> int:
        return self._made.tokens

    @property
    def passes(self) -> int:
        """Runs of the model."""
        return self._made.passes

    @property
    def seconds(self) -> float:
        return self._made.seconds

    @property
    def record(self) -> str:
        """JSON: model, seed and settings, as the file holds them."""
        return self._made.record

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array: Any = self._made.array
        if dtype is not None and dtype != array.dtype:
            if copy is False:
                raise ValueError("another dtype needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a PNG file with the record, byte for byte that of ``tessera generate``."""
        self._made.save(png_path(path))

    def png(self) -> bytes:
        """The bytes of that file."""
        return self._made.png()

    def __repr__(self) -> str:
        return f"GeneratedImage({self.prompt!r}, seed={self.seed}, {self.width}x{self.height})"


@dataclass(frozen=True)
class Video:
    """``frames``: arrays [height, width, 3] of uint8 in order; empty where ``frames()`` gave them."""

    frames: list[Pixels]
    count: int  # frames of the whole
    first_frames: int  # that were given
    rate: int  # frames a second
    tokens: int
    passes: int
    seconds: float
    stopped: bool
    record: str  # JSON, as of an image
    prompt: str
    seed: int
    index: int


@dataclass(frozen=True)
class Description:
    text: str
    cut_short: bool  # max_tokens were written
    stopped_by_text: bool  # one of `stop` ended it
    tokens: int
    passes: int
    prompt_tokens: int
    reused_tokens: int  # of the prompt, that an earlier text had read
    known_images: int  # that were encoded for an earlier text
    visual_tokens: int  # before pruning
    kept_tokens: int  # after it
    seconds: float
    notes: list[str]  # of the image reader
    index: int


@dataclass(frozen=True)
class Completion:
    text: str
    cut_short: bool  # max_tokens were written
    stopped_by_text: bool  # one of `stop` ended it
    tokens: int
    passes: int
    prompt_tokens: int
    reused_tokens: int  # of the prompt, that an earlier text had read
    first_seconds: float  # to the first token
    seconds: float
    prompt: str  # empty of a conversation
    seed: int
    index: int


@dataclass(frozen=True)
class Answer:
    text: str  # of all turns
    parts: list[Union[str, GeneratedImage]]  # texts and images in turn
    cut_short: bool
    tokens: int  # of text
    passes: int
    prompt: str
    seed: int
    index: int

    @property
    def images(self) -> list[GeneratedImage]:
        return [part for part in self.parts if isinstance(part, GeneratedImage)]


@dataclass(frozen=True)
class Progress:
    """Of one request. Figures are 0 where a task has none."""

    tokens_done: int = 0
    tokens: int = 0
    frames_done: int = 0
    frames: int = 0
    passes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class ModelInfo:
    task: str
    name: str
    family: str
    title: str
    licence: str
    device: str
    dtype: str
    method: str
    width: int  # pixels of what it generates
    height: int
    frames: int  # of its videos
    rate: int  # frames a second
    max_first_frames: int
    notes: list[str] = field(default_factory=list)  # what its files say that is not followed


@dataclass(frozen=True)
class SettingInfo:
    name: str  # of the keyword argument
    flag: str  # of the program, without dashes in front
    group: str
    of: str  # part of a method, else empty
    kind: str  # "number", "integer", "switch", "name", "text", "ids" or "biases"
    low: float
    high: float
    zero_is_off: bool
    choices: tuple[str, ...]
    unit: str
    help: str
    without: str  # the value, or what holds, where it is not given
    place: str  # "open" or "request"
    changes_bytes: bool


def png_path(path: str | os.PathLike[str]) -> bytes:
    name = os.fsencode(path)
    if not name.lower().endswith(b".png"):
        raise usage("E_OUTPUT_NAME", "path", "a name that ends in .png", f"'{os.fsdecode(name)}'")
    return name
