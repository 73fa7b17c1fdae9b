"""The runtime that models are open in."""

from __future__ import annotations

import os
from typing import Any, Literal, overload

from . import _core
from ._arguments import Image, pairs, switch, text_of, whole
from ._error import Error
from ._model import Model
from ._results import Description, GeneratedImage, Video


class Runtime:
    """Models that are open, and one queue for all requests to them. One thread owns it."""

    def __init__(self, prefix: str | os.PathLike[str] = "") -> None:
        self._core = _core.Core(os.fsencode(prefix))
        self._bundled: dict[str, Model] = {}

    def open(
        self,
        name: str | os.PathLike[str] = "",
        task: str = "image",
        *,
        device: str = "auto",
        threads: int = 0,
        dtype: str = "auto",
        slots: int = 1,
        seed: int = 0,
        prune: str = "",
        deterministic: bool = False,
        tf32: bool = False,
        text_encoder: str | os.PathLike[str] = "",
        chat_template: str | os.PathLike[str] = "",
        mmproj: str | os.PathLike[str] = "",
        image_cache: int = 0,
        **settings: Any,
    ) -> Model:
        """Opens a model for "image", "video", "describe", "complete" or "answer".

        ``image_cache``: bytes that a captioner may keep of encoded images, for when one comes again.
        ``slots`` requests are written at once: it changes speed and memory, never a result. Weights are
        read when they are needed. ``threads``: 0 is one a core. ``tessera.settings(task)`` lists settings.
        """
        options = {
            "device": text_of("device", device),
            "threads": whole("threads", threads, 2**31 - 1),
            "dtype": text_of("dtype", dtype),
            "slots": whole("slots", slots),
            "seed": whole("seed", seed),
            "prune": text_of("prune", prune),
            "deterministic": switch("deterministic", deterministic),
            "tf32": switch("tf32", tf32),
            "text_encoder": os.fsencode(text_encoder),
            "chat_template": os.fsencode(chat_template),
            "mmproj": os.fsencode(mmproj),
            "image_cache": whole("image_cache", image_cache),
            "settings": pairs(settings),
        }
        return Model(self._core, self._core.open(os.fsencode(name), text_of("task", task), options), slots)

    def _of(self, task: str) -> Model:
        if task not in self._bundled:
            self._bundled[task] = self.open(task=task)
        return self._bundled[task]

    @overload
    def generate(
        self, prompt: list[str], *args: Any, errors: Literal["return"], **options: Any
    ) -> list[GeneratedImage | Error]: ...
    @overload
    def generate(
        self, prompt: list[str], *args: Any, errors: Literal["raise"] = ..., **options: Any
    ) -> list[GeneratedImage]: ...
    @overload
    def generate(
        self, prompt: str, *args: Any, errors: Literal["raise"] = ..., **options: Any
    ) -> GeneratedImage: ...
    def generate(self, prompt: Any, *args: Any, **options: Any) -> Any:
        """``Model.generate()`` of the bundled model."""
        return self._of("image").generate(prompt, *args, **options)

    @overload
    def video(
        self, prompt: list[str], *args: Any, errors: Literal["return"], **options: Any
    ) -> list[Video | Error]: ...
    @overload
    def video(
        self, prompt: list[str], *args: Any, errors: Literal["raise"] = ..., **options: Any
    ) -> list[Video]: ...
    @overload
    def video(self, prompt: str, *args: Any, errors: Literal["raise"] = ..., **options: Any) -> Video: ...
    def video(self, prompt: Any, *args: Any, **options: Any) -> Any:
        """``Model.video()`` of the bundled model."""
        return self._of("video").video(prompt, *args, **options)

    @overload
    def describe(
        self, images: list[Image], *args: Any, errors: Literal["return"], **options: Any
    ) -> list[Description | Error]: ...
    @overload
    def describe(
        self, images: list[Image], *args: Any, errors: Literal["raise"] = ..., **options: Any
    ) -> list[Description]: ...
    @overload
    def describe(
        self, images: Image, *args: Any, errors: Literal["raise"] = ..., **options: Any
    ) -> Description: ...
    def describe(self, images: Any, *args: Any, **options: Any) -> Any:
        """``Model.describe()`` of the bundled model."""
        return self._of("describe").describe(images, *args, **options)

    @property
    def open_models(self) -> int:
        return self._core.stats()[0]

    def close(self) -> None:
        """Ends requests and models. What they made stays."""
        self._core.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
