"""The runtime that models are open in."""

from __future__ import annotations

import os
from typing import Any

from . import _core
from ._arguments import pairs, switch, text_of, whole
from ._model import Model


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
        **settings: Any,
    ) -> Model:
        """Opens a model for "image", "video", "describe", "complete" or "answer".

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
            "settings": pairs(settings),
        }
        return Model(self._core, self._core.open(os.fsencode(name), text_of("task", task), options), slots)

    def _of(self, task: str) -> Model:
        if task not in self._bundled:
            self._bundled[task] = self.open(task=task)
        return self._bundled[task]

    def generate(self, prompt: Any, *args: Any, **options: Any) -> Any:
        """``Model.generate()`` of the bundled model."""
        return self._of("image").generate(prompt, *args, **options)

    def video(self, prompt: Any, *args: Any, **options: Any) -> Any:
        """``Model.video()`` of the bundled model."""
        return self._of("video").video(prompt, *args, **options)

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
