"""A model that is open, and what it is asked for."""

from __future__ import annotations

import os
from typing import Any, Iterable, Literal, Type, Union, overload

from . import _core
from ._arguments import (
    MAX_NUMBER,
    Conversation,
    Image,
    Seed,
    image_items,
    is_conversation,
    listed,
    optional_text,
    pairs,
    prompt_items,
    several,
    stops,
    switch,
    text_of,
    turns_of,
    whole,
)
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
        partial = whole("partial_images", how.pop("partial_images", 0))
        negative = optional_text("negative_prompt", negative_prompt)

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            item = items[0]
            return core.submit_image(self._number, item.prompt, negative, item.seed, given, partial, progress)

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
        frames, features = list(several("first_frames", first_frames)), os.fsencode(text_features)
        negative, goes_on = optional_text("negative_prompt", negative_prompt), switch("endless", endless)

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            item = items[0]
            return core.submit_video(
                self._number,
                item.prompt,
                negative,
                item.seed,
                frames,
                features,
                goes_on,
                given,
                progress,
            )

        return self._job(Job, prompt_items(prompts, seed, 1), submit, **how)

    def _describe_job(
        self,
        images: Iterable[Any],
        question: str | Conversation | None,
        negative_question: str | None,
        number: int | None,
        max_tokens: int,
        seed: int | None,
        stop: str | Iterable[str] | None,
        settings: dict[str, Any],
        **how: Any,
    ) -> Job[Any]:
        pieces, progress = bool(how.get("pieces")), how.get("on_progress") is not None
        asked = QUESTION if question is None or is_conversation(question) else text_of("question", question)
        turns = turns_of("question", question) if isinstance(question, list) else []
        each = {
            "question": asked,
            "turns": turns,
            "negative_question": optional_text("negative_question", negative_question),
            "max_tokens": whole("max_tokens", max_tokens),
            "seed": None if seed is None else whole("seed", seed),
            "settings": pairs(settings),
            "stop": stops(stop),
        }

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            return core.submit_describe(self._number, [item.data for item in items], each, pieces, progress)

        if number is not None:
            whole("number", number, MAX_NUMBER)
        # One submission has one process that reads images, so several requests go into one.
        group = max(16, 4 * self._slots)
        source = image_items(images, turns, number)
        return self._job(Job, source, submit, group=group, window=group + 1, **how)

    def _complete_job(
        self,
        prompts: Iterable[Any],
        negative_prompt: str | None,
        chat: bool,
        max_tokens: int,
        seed: Seed,
        stop: str | Iterable[str] | None,
        settings: dict[str, Any],
        **how: Any,
    ) -> Job[Any]:
        pieces, progress = bool(how.get("pieces")), how.get("on_progress") is not None
        each = {
            "negative_prompt": optional_text("negative_prompt", negative_prompt),
            "chat": switch("chat", chat),
            "max_tokens": whole("max_tokens", max_tokens),
            "settings": pairs(settings),
            "stop": stops(stop),
        }

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            item = items[0]
            return core.submit_complete(
                self._number, item.prompt, item.turns, item.seed, item.index, each, pieces, progress
            )

        return self._job(Job, prompt_items(prompts, seed, 0, chats=True), submit, **how)

    def _answer_job(
        self, prompts: Iterable[Any], seed: Seed, settings: dict[str, Any], **how: Any
    ) -> Job[Any]:
        given, progress = pairs(settings), how.get("on_progress") is not None

        def submit(core: _core.Core, items: list[Item]) -> _core.Request:
            item = items[0]
            return core.submit_answer(self._number, item.prompt, item.seed, given, progress)

        return self._job(Job, prompt_items(prompts, seed, 1, "answer"), submit, **how)

    def _text_job(self, request: Any, question: Any, options: dict[str, Any]) -> Job[Any]:
        """The request of `stream_text()`, by what the model was opened for."""
        task, take = self.info.task, options.pop
        if task == "describe":
            negative, number = take("negative_question", None), take("number", None)
            most, seed, stop = take("max_tokens", 0), take("seed", None), take("stop", None)
            return self._describe_job(
                [request], question, negative, number, most, seed, stop, options, pieces="text"
            )
        if question is not None:
            raise usage("E_ARGUMENT", "question", "a model that describes images", f"task '{task}'")
        seed = take("seed", 0)
        if task == "complete":
            negative, chat = take("negative_prompt", None), take("chat", False)
            most, stop = take("max_tokens", 0), take("stop", None)
            return self._complete_job([request], negative, chat, most, seed, stop, options, pieces="text")
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
            self._image_job(
                several("prompts", prompts),
                negative_prompt,
                seed,
                settings,
                on_progress=on_progress,
                errors=errors,
            )
        )

    def stream_image(
        self,
        prompt: str,
        negative_prompt: str | None = None,
        seed: int = 0,
        *,
        partial_images: int = 4,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> Stream[Pixels, GeneratedImage]:
        """What there is of an image, ``partial_images`` times, then the image in ``result``: arrays
        [height, width, 3] of uint8, rows to come in one colour. Each costs decoding all pixels."""
        job = self._image_job(
            [prompt], negative_prompt, seed, settings,
            partial_images=partial_images, on_progress=on_progress, pieces="partial",
        )  # fmt: skip
        return Stream(job)

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
        question: str | Conversation | None = ...,
        *,
        negative_question: str | None = ...,
        number: int | None = ...,
        errors: Literal["return"],
        **options: Any,
    ) -> list[Description | Error]: ...
    @overload
    def describe(
        self,
        images: list[Image],
        question: str | Conversation | None = ...,
        *,
        negative_question: str | None = ...,
        number: int | None = ...,
        errors: Literal["raise"] = ...,
        **options: Any,
    ) -> list[Description]: ...
    @overload
    def describe(
        self,
        images: Image,
        question: str | Conversation | None = ...,
        *,
        negative_question: str | None = ...,
        number: int | None = ...,
        errors: Literal["raise"] = ...,
        **options: Any,
    ) -> Description: ...
    def describe(
        self,
        images: Image | list[Image],
        question: str | Conversation | None = None,
        *,
        negative_question: str | None = None,
        number: int | None = None,
        max_tokens: int = 0,
        seed: int | None = None,
        stop: str | Iterable[str] | None = None,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Any:
        """A text about an image; of a list, one about each; of a tuple, one about all its images.

        An image is a path, the bytes of a PNG, JPEG, WebP, GIF or BMP file, or an array
        [height, width, 3] of uint8, also by ``__array_interface__`` as PIL has it. Arrays are copied once.
        A conversation as ``question`` has a part for each image, as `complete()` takes it. ``max_tokens``: 0 is
        the model's setting. ``stop``: texts, before the first of which this one ends. ``number`` is half of
        the key of what is sampled, by default the place in the list; the command takes a hash of the path.
        ``seed`` is the other half, by default that of ``open()``.
        """
        job = self._describe_job(
            listed(images), question, negative_question, number, max_tokens, seed, stop, settings,
            on_progress=on_progress, errors=errors,
        )  # fmt: skip
        return in_order(job, images)

    @overload
    def descriptions(
        self,
        images: Iterable[Image],
        question: str | Conversation | None = ...,
        *,
        negative_question: str | None = ...,
        errors: Literal["return"],
        **options: Any,
    ) -> Results[Description | Error]: ...
    @overload
    def descriptions(
        self,
        images: Iterable[Image],
        question: str | Conversation | None = ...,
        *,
        negative_question: str | None = ...,
        errors: Literal["raise"] = ...,
        **options: Any,
    ) -> Results[Description]: ...
    def descriptions(
        self,
        images: Iterable[Image],
        question: str | Conversation | None = None,
        *,
        negative_question: str | None = None,
        max_tokens: int = 0,
        seed: int | None = None,
        stop: str | Iterable[str] | None = None,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Results[Any]:
        """Each text as it is done; ``index`` is its image's place. Images are read ahead, 16 or more at once."""
        job = self._describe_job(
            several("images", images), question, negative_question, None, max_tokens, seed, stop, settings,
            on_progress=on_progress, errors=errors,
        )  # fmt: skip
        return Results(job)

    @overload
    def complete(
        self,
        prompt: list[str] | list[Conversation],
        negative_prompt: str | None = ...,
        *,
        errors: Literal["return"],
        **settings: Any,
    ) -> list[Completion | Error]: ...
    @overload
    def complete(
        self,
        prompt: list[str] | list[Conversation],
        negative_prompt: str | None = ...,
        *,
        errors: Literal["raise"] = ...,
        **settings: Any,
    ) -> list[Completion]: ...
    @overload
    def complete(
        self,
        prompt: str | Conversation,
        negative_prompt: str | None = ...,
        *,
        errors: Literal["raise"] = ...,
        **settings: Any,
    ) -> Completion: ...
    def complete(
        self,
        prompt: str | Conversation | list[str] | list[Conversation],
        negative_prompt: str | None = None,
        *,
        chat: bool = False,
        max_tokens: int = 0,
        seed: Seed = 0,
        stop: str | Iterable[str] | None = None,
        on_progress: OnProgress | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Any:
        """What follows a text; with ``chat``, the answer to it; of a conversation, its next turn.

        A conversation is a list of turns as `transformers` has them: ``{"role": "user", "content": "Hello"}``.
        ``max_tokens``: 0 is the model's setting. ``stop``: texts, before the first of which this one ends.
        All of a list have the same seed; what is sampled goes by the place too, as with the command.
        """
        one = is_conversation(prompt)
        job = self._complete_job(
            [prompt] if one else listed(prompt), negative_prompt, chat, max_tokens, seed, stop, settings,
            on_progress=on_progress, errors=errors,
        )  # fmt: skip
        return in_order(job, None if one else prompt)

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
        self, request: Any, question: str | Conversation | None = None, **options: Any
    ) -> Stream[str, Union[Description, Completion, Answer]]:
        """Pieces of one text as they are written. ``request`` and ``options`` are those of ``describe()``,
        ``complete()`` or ``answer()``, by what the model was opened for."""
        return Stream(self._text_job(request, question, options))
