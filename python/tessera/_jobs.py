"""Requests on their way: what is submitted, how many at once, and what comes of them.

A job is a state machine without a loop of its own: iterators and ``tessera.aio`` run it.
"""

from __future__ import annotations

import warnings
from collections import deque
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Callable, Generator, Generic, Iterator, List, Optional, TypeVar, Union

from . import _core
from ._error import Error, usage
from ._results import Answer, Completion, Description, GeneratedImage, Pixels, Progress, Video

T = TypeVar("T")
OnProgress = Callable[[Progress], Optional[bool]]


@dataclass
class Item:
    """One request: what the library is given, and what is there so far."""

    index: int
    prompt: str = ""
    seed: int = 0
    data: Any = None
    turns: _core.Turns = field(default_factory=list)  # of a conversation in the place of a prompt
    parts: list[Any] = field(default_factory=list)
    done: bool = False


@dataclass
class Tail:
    """What ends a stream of pieces."""

    result: Any


Submit = Callable[[_core.Core, List[Item]], _core.Request]


# Errors that say nothing of an input: they are raised whatever `errors` is.
OF_ALL = ("E_RUNTIME", "E_MODEL_CLOSED", "E_SETTING", "E_STOP_TEXT", "E_TASK")


class Job(Generic[T]):
    """``source`` gives items, or the error that one could not be made of. ``group`` of them are
    submitted as one; ``window`` requests are in the queue at most. With ``pieces``, those of that
    kind ("text", "frame", "partial") come out as they are made, then a ``Tail``.
    """

    def __init__(
        self,
        core: _core.Core,
        source: Iterator[Union[Item, Error]],
        submit: Submit,
        window: int,
        group: int = 1,
        pieces: str = "",
        errors: str = "raise",
        on_progress: OnProgress | None = None,
    ) -> None:
        if errors not in ("raise", "return"):
            raise usage("E_ERRORS", "errors", "'raise' or 'return'", repr(errors))
        self.core = core
        self.out: deque[T | Error] = deque()
        self._source: Iterator[Union[Item, Error]] | None = source
        self._submit = submit
        self._window = window
        self._group = group
        self._pieces = pieces
        self._errors = errors
        self._on_progress = on_progress
        self._at_work: list[tuple[_core.Request, list[Item]]] = []
        self._stopped: list[_core.Request] = []  # by on_progress

    @property
    def requests(self) -> list[_core.Request]:
        return [request for request, _ in self._at_work]

    @property
    def returns_errors(self) -> bool:
        return self._errors == "return"

    @property
    def over(self) -> bool:
        return self._source is None and not self._at_work and not self.out

    def cancel(self) -> None:
        """Ends its requests; nothing more comes out."""
        source, self._source = self._source, None
        if isinstance(source, Generator):
            source.close()
        for request, _ in self._at_work:
            request.cancel()
        self._at_work.clear()
        self.out.clear()

    def fill(self) -> None:
        """Submits what there is room for."""
        while self._source is not None and sum(len(x) for _, x in self._at_work) < self._window:
            items = self._next_items(self._source)
            if not items:
                return
            try:
                self._at_work.append((self._submit(self.core, items), items))
            except Error as error:
                if error.code.startswith(OF_ALL):
                    raise
                self._fail_rest(items, error)

    def _next_items(self, source: Iterator[Union[Item, Error]]) -> list[Item]:
        items: list[Item] = []
        while len(items) < self._group:
            given = next(source, None)
            if given is None:
                self._source = None
                break
            if isinstance(given, Error):
                self._fail(given, given.index)
            else:
                items.append(given)
        return items

    def _fail(self, error: Error, index: int) -> None:
        own = copy(error)  # of a model, several have the same
        own.index = index
        if self._errors == "raise":
            raise own
        self.out.append(own)

    def collect(self) -> None:
        """Takes what the requests have."""
        for request, items in list(self._at_work):
            while (event := request.take()) is not None:
                place, kind, value = event
                if kind == "error":
                    items[place].done = True
                    self._fail(value, items[place].index)
                elif kind == "failed":
                    self._fail_rest(items, value)
                elif kind == "progress":
                    if self._on_progress is not None and self._on_progress(Progress(**value)) is False:
                        request.stop()
                        self._stopped.append(request)
                else:
                    self._note(items[place], kind, value)
            if request.over:
                self._at_work = [pair for pair in self._at_work if pair[0] is not request]
                self._fail_rest(items, ended(request in self._stopped))

    def _fail_rest(self, items: list[Item], error: Error) -> None:
        for item in items:
            if not item.done:
                item.done = True
                self._fail(error, item.index)

    def _note(self, item: Item, kind: str, value: Any) -> None:
        if kind == "notice":
            warnings.warn(value, RuntimeWarning, stacklevel=2)
            return
        if kind == "frame":
            value = value[1]
        if kind == "image":
            value = GeneratedImage(value, item.prompt, item.seed, item.index)
        if kind == self._pieces:
            self.out.append(value)
            if kind != "text":
                return
        if kind in ("text", "frame") or (kind == "image" and item.data == "answer"):
            item.parts.append(value)
            return
        item.done = True
        made: Any = value if kind == "image" else result_of(item, kind, value)
        self.out.append(Tail(made) if self._pieces else made)  # type: ignore[arg-type]


def ended(stopped: bool) -> Error:
    """Of a request that is over without a result."""
    code, found = ("E_STOPPED", "on_progress stopped it") if stopped else ("E_MODEL_CLOSED", "a closed model")
    return Error(
        f"request: expected a result, found {found}", "general", code, "", "request", "a result", found
    )


def result_of(item: Item, kind: str, value: dict[str, Any]) -> Video | Description | Completion | Answer:
    if kind == "description":
        return Description(index=item.index, **value)
    place: dict[str, Any] = {"prompt": item.prompt, "seed": item.seed, "index": item.index}
    if kind == "completion":
        return Completion(**value, **place)
    if kind == "video":
        frames: list[Pixels] = item.parts
        return Video(frames=frames, **value, **place)
    return Answer(parts=joined(item.parts), **value, **place)


def joined(parts: list[Any]) -> list[str | GeneratedImage]:
    """Texts that follow one another become one."""
    out: list[str | GeneratedImage] = []
    for part in parts:
        if isinstance(part, str) and out and isinstance(out[-1], str):
            out[-1] += part
        else:
            out.append(part)
    return out
