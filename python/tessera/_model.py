"""A model that is open, and what it is asked for."""

from __future__ import annotations

import os
from typing import Any, Iterable, Literal, Type, Union, overload

from . import _core
from ._arguments import Image, Seed, image_items, listed, pairs, prompt_items, text_of, whole
from ._error import Error, usage
from ._jobs import Item, Job, OnProgress
from ._results import Answer, Completion, Description, GeneratedImage, ModelInfo, Pixels, Video
from ._streams import Results, Stream, in_order

QUESTION = "Describe the picture."


class Model:
    """A model that is open for one task. Settings of requests are keyword arguments.

    A list of inputs gives a list of results in order. With ``errors="return"`` an ``Error`` is in
    the place of a result that failed. ``on_progress`` is called between passes; False stops.
    """

    def __init__(self, core: _core.Core, number: int, slots: int) -> None:
        self._core = core
        self._number = number
        self._slots = slots

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(**self._core.info(self._number))

    def close(self) -> None:
        """Drops its requests, weights and caches."""
        self._core.close_model(self._number)

    # --- jobs: what is asked for, without the loop that waits for it ---

    def _job(self, kind: Type[Job[Any]], source: Any, submit: Any, **how: Any) -> Job[Any]:
        how.setdefault("window", 2 * self._slots)
        return kind(self._core, source, submit, **how)

    def _image_job(
        self,
        prompts: Iterable[Any],
        negative_prompt: str | None,
        seed: Seed,
        settings: dict[str, Any],
        **how: Any,
    ) -> Job[Any]:
        given, progress = pairs(settings), how.get("on_progress") is not None

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            item = items[0]
            return core.submit_image(self._number, item.prompt, negative_prompt, item.seed, given, progress)

        return self._job(Job, prompt_items(prompts, seed, 1), submit, **how)

    def _video_job(
        self,
        prompts: Iterable[Any],
        negative_prompt: str | None,
        seed: Seed,
        first_frames: Iterable[Any],
        text_features: str | os.PathLike[str],
        endless: bool,
        settings: dict[str, Any],
        **how: Any,
    ) -> Job[Any]:
        given, progress = pairs(settings), how.get("on_progress") is not None
        frames, features = list(first_frames), os.fspath(text_features)

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            item = items[0]
            return core.submit_video(
                self._number,
                item.prompt,
                negative_prompt,
                item.seed,
                frames,
                features,
                endless,
                given,
                progress,
            )

        return self._job(Job, prompt_items(prompts, seed, 1), submit, **how)

    def _describe_job(
        self,
        images: Iterable[Any],
        question: str | None,
        negative_question: str | None,
        number: int | None,
        **how: Any,
    ) -> Job[Any]:
        pieces, progress = bool(how.get("pieces")), how.get("on_progress") is not None

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            return core.submit_describe(self._number, [item.data for item in items], pieces, progress)

        asked = QUESTION if question is None else text_of("question", question)
        if number is not None:
            whole("number", number)
        # One submission has one process that reads images, so several requests go into one.
        group = max(16, 4 * self._slots)
        source = image_items(images, (asked, negative_question, number))
        return self._job(Job, source, submit, group=group, window=group + 1, **how)

    def _complete_job(
        self,
        prompts: Iterable[Any],
        negative_prompt: str | None,
        chat: bool,
        max_tokens: int,
        seed: Seed,
        settings: dict[str, Any],
        **how: Any,
    ) -> Job[Any]:
        given, progress = pairs(settings), how.get("on_progress") is not None
        pieces = bool(how.get("pieces"))

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            item = items[0]
            return core.submit_complete(
                self._number,
                item.prompt,
                negative_prompt,
                chat,
                max_tokens,
                item.seed,
                item.index,
                given,
                pieces,
                progress,
            )

        return self._job(Job, prompt_items(prompts, seed, 0), submit, **how)

    def _answer_job(
        self, prompts: Iterable[Any], seed: Seed, settings: dict[str, Any], **how: Any
    ) -> Job[Any]:
        given, progress = pairs(settings), how.get("on_progress") is not None

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            item = items[0]
            return core.submit_answer(self._number, item.prompt, item.seed, given, progress)

        return self._job(Job, prompt_items(prompts, seed, 1, "answer"), submit, **how)

    def _text_job(self, request: Any, question: str | None, options: dict[str, Any]) -> Job[Any]:
        """The request of `stream_text()`, by what the model was opened for."""
        task = self.info.task
        if task == "describe":
            negative, number = options.pop("negative_question", None), options.pop("number", None)
            if options:
                raise usage(
                    "E_SETTING_NAME", "stream_text", "settings given to open()", f"'{next(iter(options))}'"
                )
            return self._describe_job([request], question, negative, number, pieces="text")
        if question is not None:
            raise usage("E_ARGUMENT", "question", "a model that describes images", f"task '{task}'")
        seed = options.pop("seed", 0)
        if task == "complete":
            known = ("negative_prompt", "chat", "max_tokens")
            negative, chat, most = (options.pop(name, None) for name in known)
            return self._complete_job(
                [request], negative, bool(chat), most or 0, seed, options, pieces="text"
            )
        if task == "answer":
            return self._answer_job([request], seed, options, pieces="text")
        raise usage("E_TASK", "stream_text", "a model that writes texts", f"task '{task}'")

    # --- images ---

    @overload
    def generate(
        self,
        prompt: list[str],
        negative_prompt: str | None = ...,
        seed: Seed = ...,
        *,
        errors: Literal["return"],
        **settings: Any,
    ) -> list[GeneratedImage | Error]: ...
    @overload
    def generate(
        self,
        prompt: list[str],
        negative_prompt: str | None = ...,
        seed: Seed = ...,
        *,
        errors: Literal["raise"] = ...,
        **settings: Any,
    ) -> list[GeneratedImage]: ...
    @overload
    def generate(
        self,
        prompt: str,
        negative_prompt: str | None = ...,
        seed: Seed = ...,
        *,
        errors: Literal["raise"] = ...,
        **settings: Any,
    ) -> GeneratedImage: ...
    def generate(
        self,
        prompt: str | list[str],
        negative_prompt: str | None = None,
        seed: Seed = 0,
        *,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Any:
        """An image of a text; a class number may stand for it. A list begins at ``seed`` and counts on,
        as the command does; ``seed`` may also be a list."""
        job = self._image_job(
            listed(prompt), negative_prompt, seed, settings, on_progress=on_progress, errors=errors
        )
        return in_order(job, prompt)

    @overload
    def images(
        self,
        prompts: Iterable[str],
        negative_prompt: str | None = ...,
        seed: Seed = ...,
        *,
        errors: Literal["return"],
        **options: Any,
    ) -> Results[GeneratedImage | Error]: ...
    @overload
    def images(
        self,
        prompts: Iterable[str],
        negative_prompt: str | None = ...,
        seed: Seed = ...,
        *,
        errors: Literal["raise"] = ...,
        **options: Any,
    ) -> Results[GeneratedImage]: ...
    def images(
        self,
        prompts: Iterable[str],
        negative_prompt: str | None = None,
        seed: Seed = 0,
        *,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Results[Any]:
        """Each image as it is done; ``index`` is its prompt's place. Prompts are read as slots get free."""
        return Results(
            self._image_job(prompts, negative_prompt, seed, settings, on_progress=on_progress, errors=errors)
        )

    # --- videos ---

    @overload
    def video(
        self,
        prompt: list[str],
        negative_prompt: str | None = ...,
        seed: Seed = ...,
        *,
        errors: Literal["return"],
        **settings: Any,
    ) -> list[Video | Error]: ...
    @overload
    def video(
        self,
        prompt: list[str],
        negative_prompt: str | None = ...,
        seed: Seed = ...,
        *,
        errors: Literal["raise"] = ...,
        **settings: Any,
    ) -> list[Video]: ...
    @overload
    def video(
        self,
        prompt: str = ...,
        negative_prompt: str | None = ...,
        seed: Seed = ...,
        *,
        errors: Literal["raise"] = ...,
        **settings: Any,
    ) -> Video: ...
    def video(
        self,
        prompt: str | list[str] = "",
        negative_prompt: str | None = None,
        seed: Seed = 0,
        *,
        first_frames: Iterable[Image] = (),
        text_features: str | os.PathLike[str] = "",
        endless: bool = False,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Any:
        """Frames of a text. ``first_frames``: arrays [height, width, 3] of uint8, copied, of the model's size.
        An endless one is over when ``on_progress`` returns False."""
        job = self._video_job(
            listed(prompt), negative_prompt, seed, first_frames, text_features, endless, settings,
            on_progress=on_progress, errors=errors,
        )  # fmt: skip
        return in_order(job, prompt)

    def frames(
        self,
        prompt: str = "",
        negative_prompt: str | None = None,
        seed: int = 0,
        *,
        first_frames: Iterable[Image] = (),
        text_features: str | os.PathLike[str] = "",
        endless: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> Stream[Pixels, Video]:
        """Frames in order as they are done: arrays [height, width, 3] of uint8 that own their memory."""
        job = self._video_job(
            [prompt], negative_prompt, seed, first_frames, text_features, endless, settings,
            on_progress=on_progress, pieces="frame",
        )  # fmt: skip
        return Stream(job)

    # --- texts ---

    @overload
    def describe(
        self,
        images: list[Image],
        question: str | None = ...,
        *,
        negative_question: str | None = ...,
        number: int | None = ...,
        errors: Literal["return"],
        on_progress: OnProgress | None = ...,
    ) -> list[Description | Error]: ...
    @overload
    def describe(
        self,
        images: list[Image],
        question: str | None = ...,
        *,
        negative_question: str | None = ...,
        number: int | None = ...,
        errors: Literal["raise"] = ...,
        on_progress: OnProgress | None = ...,
    ) -> list[Description]: ...
    @overload
    def describe(
        self,
        images: Image,
        question: str | None = ...,
        *,
        negative_question: str | None = ...,
        number: int | None = ...,
        errors: Literal["raise"] = ...,
        on_progress: OnProgress | None = ...,
    ) -> Description: ...
    def describe(
        self,
        images: Image | list[Image],
        question: str | None = None,
        *,
        negative_question: str | None = None,
        number: int | None = None,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
    ) -> Any:
        """A text about an image; of a list, one about each; of a tuple, one about all its images.

        An image is a path, the bytes of a PNG, JPEG, WebP, GIF or BMP file, or an array
        [height, width, 3] of uint8, also by ``__array_interface__`` as PIL has it. Arrays are copied once.
        ``number`` is half of the key of what is sampled; without it, the place in the list.
        """
        job = self._describe_job(
            listed(images), question, negative_question, number, on_progress=on_progress, errors=errors
        )
        return in_order(job, images)

    @overload
    def descriptions(
        self,
        images: Iterable[Image],
        question: str | None = ...,
        *,
        negative_question: str | None = ...,
        errors: Literal["return"],
        on_progress: OnProgress | None = ...,
    ) -> Results[Description | Error]: ...
    @overload
    def descriptions(
        self,
        images: Iterable[Image],
        question: str | None = ...,
        *,
        errors: Literal["raise"] = ...,
        on_progress: OnProgress | None = ...,
    ) -> Results[Description]: ...
    def descriptions(
        self,
        images: Iterable[Image],
        question: str | None = None,
        *,
        negative_question: str | None = None,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
    ) -> Results[Any]:
        """Each text as it is done; ``index`` is its image's place. Images are read ahead, 16 or more at once."""
        return Results(
            self._describe_job(
                images, question, negative_question, None, on_progress=on_progress, errors=errors
            )
        )

    @overload
    def complete(
        self,
        prompt: list[str],
        negative_prompt: str | None = ...,
        *,
        errors: Literal["return"],
        **settings: Any,
    ) -> list[Completion | Error]: ...
    @overload
    def complete(
        self,
        prompt: list[str],
        negative_prompt: str | None = ...,
        *,
        errors: Literal["raise"] = ...,
        **settings: Any,
    ) -> list[Completion]: ...
    @overload
    def complete(
        self,
        prompt: str,
        negative_prompt: str | None = ...,
        *,
        errors: Literal["raise"] = ...,
        **settings: Any,
    ) -> Completion: ...
    def complete(
        self,
        prompt: str | list[str],
        negative_prompt: str | None = None,
        *,
        chat: bool = False,
        max_tokens: int = 0,
        seed: Seed = 0,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Any:
        """What follows a text; with ``chat``, the answer to it. All of a list have
        the same seed; what is sampled goes by the place too, as with the command."""
        job = self._complete_job(
            listed(prompt), negative_prompt, chat, max_tokens, seed, settings,
            on_progress=on_progress, errors=errors,
        )  # fmt: skip
        return in_order(job, prompt)

    @overload
    def answer(
        self, prompt: list[str], seed: Seed = ..., *, errors: Literal["return"], **settings: Any
    ) -> list[Answer | Error]: ...
    @overload
    def answer(
        self, prompt: list[str], seed: Seed = ..., *, errors: Literal["raise"] = ..., **settings: Any
    ) -> list[Answer]: ...
    @overload
    def answer(
        self, prompt: str, seed: Seed = ..., *, errors: Literal["raise"] = ..., **settings: Any
    ) -> Answer: ...
    def answer(
        self,
        prompt: str | list[str],
        seed: Seed = 0,
        *,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Any:
        """Texts and images in turn."""
        job = self._answer_job(listed(prompt), seed, settings, on_progress=on_progress, errors=errors)
        return in_order(job, prompt)

    def stream_text(
        self, request: Any, question: str | None = None, **options: Any
    ) -> Stream[str, Union[Description, Completion, Answer]]:
        """Pieces of one text as they are written. ``request`` and ``options`` are those of ``describe()``,
        ``complete()`` or ``answer()``, by what the model was opened for."""
        return Stream(self._text_job(request, question, options))
