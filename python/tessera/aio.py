"""The same for asyncio: a thread of its own owns the runtime, and requests of many tasks are written together.

async with tessera.aio.Runtime() as runtime:
    model = await runtime.open(slots=4)
    image = await model.agenerate("a red cube", seed=7)
"""

from __future__ import annotations

import asyncio
import atexit
import os
import queue
import threading
from typing import Any, AsyncIterator, Callable, Generic, Iterable, TypeVar

from . import _model, _runtime
from ._arguments import Conversation, Image, Seed, is_conversation, listed, several
from ._error import Error, usage
from ._jobs import Job, Tail
from ._results import Answer, Completion, Description, GeneratedImage, ModelInfo, Pixels, Video

T = TypeVar("T")
TICK = 0.01  # seconds after which new calls are looked at
MAX_WAITING = 64  # results that a consumer has not taken


class _End:
    """Nothing more comes."""


class _Running:
    """A job and where its results go."""

    def __init__(self, job: Job[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.loop = loop
        self.results: asyncio.Queue[Any] = asyncio.Queue()
        self.ended = False

    @property
    def full(self) -> bool:
        return self.results.qsize() >= MAX_WAITING

    def emit(self, made: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(self.results.put_nowait, made)
        except RuntimeError:  # the loop is closed
            self.job.cancel()
            self.ended = True

    def end(self, why: Any) -> None:
        self.job.cancel()
        if not self.ended:
            self.ended = True
            self.emit(why)

    def advance(self, step: Callable[[], None]) -> None:
        """One part of its work; what it throws is its end."""
        if self.ended:
            return
        try:
            step()
        except BaseException as error:
            self.end(error)

    def deliver(self) -> None:
        while self.job.out:
            self.emit(self.job.out.popleft())
        if self.job.over and not self.ended:
            self.end(_End())


class _Worker:
    """The thread that owns a runtime."""

    def __init__(self, prefix: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._running: list[_Running] = []
        self._prefix = prefix
        self._closing = False
        self.runtime: _runtime.Runtime | None = None
        self._thread = threading.Thread(target=self._work, name="tessera", daemon=True)
        self._thread.start()
        atexit.register(self._exit)  # a thread in the library must not outlive the interpreter

    @property
    def closed(self) -> bool:
        return self._closing

    def post(self, call: Callable[[], None] | None) -> None:
        self._calls.put(call)

    def call(self, function: Callable[[_runtime.Runtime], T]) -> asyncio.Future[T]:
        """The result of a function that runs in the thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(set_it: Callable[[Any], None], value: Any) -> None:
            if not future.done():
                set_it(value)

        def work() -> None:
            try:
                if self._closing:
                    raise closed()
                made = function(self._open())
            except BaseException as error:
                loop.call_soon_threadsafe(settle, future.set_exception, error)
            else:
                loop.call_soon_threadsafe(settle, future.set_result, made)

        if self._closing:
            raise closed()
        self.post(work)
        return future

    def _open(self) -> _runtime.Runtime:
        if self.runtime is None:
            self.runtime = _runtime.Runtime(self._prefix)
        return self.runtime

    def add(self, running: _Running) -> None:
        running.advance(running.job.fill)
        self._running.append(running)

    def close(self, _: _runtime.Runtime | None = None) -> None:
        self._closing = True
        atexit.unregister(self._exit)
        for running in self._running:
            running.end(closed())
        self._running.clear()
        if self.runtime is not None:
            self.runtime.close()

    def _exit(self) -> None:
        self.post(self.close)
        self._thread.join()

    def _work(self) -> None:
        while not self._closing:
            busy = [running for running in self._running if not running.full]
            self._take_calls(wait=not busy)
            busy = [running for running in self._running if not running.full and not running.ended]
            for running in busy:
                running.advance(running.job.fill)
            requests = [request for running in busy for request in running.job.requests]
            left = any(running.ended for running in self._running)  # a step ends what was cancelled
            if (requests or left) and not self._closing:
                try:
                    self._open()._core.run(requests, TICK)
                except Error as error:  # of no request
                    for running in busy:
                        running.end(error)
            for running in busy:
                running.advance(running.job.collect)
                running.advance(running.deliver)
            self._running = [running for running in self._running if not running.ended]
        self._take_calls(wait=False)  # they hear that it is closed

    def _take_calls(self, wait: bool) -> None:
        try:
            call = self._calls.get(block=wait)
            while True:
                if call is not None:
                    call()
                call = self._calls.get_nowait()
        except queue.Empty:
            return


def closed() -> Error:
    return usage("E_RUNTIME_CLOSED", "runtime", "a runtime that is open", "a closed one")


class Results(Generic[T]):
    """Results as they come, by ``async for``. ``aclose()``, a cancelled task or the end of its life cancel."""

    result: Any = None  # of a stream of pieces, once they are through

    def __init__(self, worker: _Worker, make: Callable[[], Job[Any]]) -> None:
        self._worker = worker
        self._make = make
        self._running: _Running | None = None
        self._over = False

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if self._over:
            raise StopAsyncIteration
        try:
            if self._running is None:
                self._running = await self._begin()
            made = await self._running.results.get()
            self._worker.post(None)  # there is room for more
        except BaseException:
            self._cancel()
            raise
        if isinstance(made, Tail):
            self.result = made.result
            made = _End()
        if isinstance(made, _End):
            self._over = True
            raise StopAsyncIteration
        if isinstance(made, BaseException) and not self._returned(made):
            self._over = True
            raise made
        item: T = made
        return item

    def _returned(self, error: BaseException) -> bool:
        """Whether it stands in the place of a result."""
        running = self._running
        return isinstance(error, Error) and running is not None and running.job.returns_errors

    async def _begin(self) -> _Running:
        loop = asyncio.get_running_loop()

        def begin(_: _runtime.Runtime) -> _Running:
            running = _Running(self._make(), loop)
            self._running = running  # so that a cancelled wait finds it
            self._worker.add(running)
            return running

        return await self._worker.call(begin)

    def _cancel(self) -> None:
        self._over = True
        results = self

        def cancel() -> None:
            if results._running is not None:
                results._running.end(_End())

        self._worker.post(cancel)

    async def aclose(self) -> None:
        self._cancel()

    def __del__(self) -> None:
        running = self._running
        if running is not None and not self._over:
            self._worker.post(lambda: running.end(_End()))


class Model:
    """``tessera.Model`` with methods to await. Arguments are the same, without ``on_progress``."""

    def __init__(self, worker: _Worker, model: _model.Model) -> None:
        self._worker = worker
        self._model = model

    async def info(self) -> ModelInfo:
        return await self._worker.call(lambda _: self._model.info)

    async def close(self) -> None:
        await self._worker.call(lambda _: self._model.close())

    def _results(self, make: Callable[[], Job[Any]]) -> Results[Any]:
        return Results(self._worker, make)

    async def _in_order(self, make: Callable[[], Job[Any]], given: Any) -> Any:
        many = isinstance(given, list)
        out: list[Any] = [None] * (len(given) if many else 1)
        results = self._results(make)
        async for made in results:
            out[made.index] = made
        return out if many else out[0]

    async def agenerate(
        self,
        prompt: str | list[str],
        negative_prompt: str | None = None,
        seed: Seed = 0,
        *,
        errors: str = "raise",
        **settings: Any,
    ) -> Any:
        return await self._in_order(
            lambda: self._model._image_job(listed(prompt), negative_prompt, seed, settings, errors=errors),
            prompt,
        )

    def images(
        self,
        prompts: Iterable[str],
        negative_prompt: str | None = None,
        seed: Seed = 0,
        *,
        errors: str = "raise",
        **settings: Any,
    ) -> Results[GeneratedImage]:
        return self._results(
            lambda: self._model._image_job(
                several("prompts", prompts), negative_prompt, seed, settings, errors=errors
            )
        )

    def stream_image(
        self,
        prompt: str,
        negative_prompt: str | None = None,
        seed: int = 0,
        *,
        partial_images: int = 4,
        **settings: Any,
    ) -> Results[Pixels]:
        return self._results(
            lambda: self._model._image_job(
                [prompt], negative_prompt, seed, settings, partial_images=partial_images, pieces="partial"
            )
        )

    async def avideo(
        self,
        prompt: str = "",
        negative_prompt: str | None = None,
        seed: Seed = 0,
        *,
        first_frames: Iterable[Image] = (),
        text_features: str | os.PathLike[str] = "",
        **settings: Any,
    ) -> Video:
        made: Video = await self._in_order(
            lambda: self._model._video_job(
                [prompt], negative_prompt, seed, first_frames, text_features, False, settings
            ),
            prompt,
        )
        return made

    def frames(
        self,
        prompt: str = "",
        negative_prompt: str | None = None,
        seed: Seed = 0,
        *,
        first_frames: Iterable[Image] = (),
        text_features: str | os.PathLike[str] = "",
        endless: bool = False,
        **settings: Any,
    ) -> Results[Pixels]:
        return self._results(
            lambda: self._model._video_job(
                [prompt],
                negative_prompt,
                seed,
                first_frames,
                text_features,
                endless,
                settings,
                pieces="frame",
            )
        )

    async def adescribe(
        self,
        images: Image | list[Image],
        question: str | Conversation | None = None,
        *,
        negative_question: str | None = None,
        number: int | None = None,
        max_tokens: int = 0,
        seed: int | None = None,
        stop: str | Iterable[str] | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Any:
        return await self._in_order(
            lambda: self._model._describe_job(
                listed(images), question, negative_question, number, max_tokens, seed, stop, settings,
                errors=errors,
            ),
            images,
        )  # fmt: skip

    def descriptions(
        self,
        images: Iterable[Image],
        question: str | Conversation | None = None,
        *,
        negative_question: str | None = None,
        max_tokens: int = 0,
        seed: int | None = None,
        stop: str | Iterable[str] | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Results[Description]:
        return self._results(
            lambda: self._model._describe_job(
                several("images", images),
                question,
                negative_question,
                None,
                max_tokens,
                seed,
                stop,
                settings,
                errors=errors,
            )
        )

    async def acomplete(
        self,
        prompt: str | Conversation | list[str] | list[Conversation],
        negative_prompt: str | None = None,
        *,
        chat: bool = False,
        max_tokens: int = 0,
        seed: Seed = 0,
        stop: str | Iterable[str] | None = None,
        errors: str = "raise",
        **settings: Any,
    ) -> Any:
        prompts = [prompt] if is_conversation(prompt) else listed(prompt)
        return await self._in_order(
            lambda: self._model._complete_job(
                prompts, negative_prompt, chat, max_tokens, seed, stop, settings, errors=errors
            ),
            None if is_conversation(prompt) else prompt,
        )

    async def aanswer(
        self, prompt: str | list[str], seed: Seed = 0, *, errors: str = "raise", **settings: Any
    ) -> Any:
        return await self._in_order(
            lambda: self._model._answer_job(listed(prompt), seed, settings, errors=errors), prompt
        )

    def stream_text(
        self, request: Any, question: str | Conversation | None = None, **options: Any
    ) -> Results[str]:
        return self._results(lambda: self._model._text_job(request, question, dict(options)))


class Runtime:
    """``tessera.Runtime`` in a thread of its own."""

    def __init__(self, prefix: str | os.PathLike[str] = "") -> None:
        self._worker = _Worker(os.fspath(prefix))

    async def open(self, name: str | os.PathLike[str] = "", task: str = "image", **options: Any) -> Model:
        """As ``tessera.Runtime.open()``."""
        model = await self._worker.call(lambda runtime: runtime.open(name, task, **options))
        return Model(self._worker, model)

    async def close(self) -> None:
        if not self._worker.closed:
            await self._worker.call(self._worker.close)

    async def __aenter__(self) -> Runtime:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


__all__ = ["Answer", "Completion", "Model", "Results", "Runtime"]
