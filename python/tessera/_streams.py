"""Iterators over results, and lists of them."""

from __future__ import annotations

from typing import Any, Generic, Iterator, TypeVar

from ._error import usage
from ._jobs import Job, Tail

T = TypeVar("T")
R = TypeVar("R")
TICK = 0.02  # seconds after which a step gives the interpreter its turn


class Results(Generic[T]):
    """Results as they come. An exception, ``close()`` or the end of its life cancel what is left."""

    def __init__(self, job: Job[T]) -> None:
        self._job = job
        try:
            job.fill()
        except BaseException:
            job.cancel()
            raise

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        item = self._next()
        if isinstance(item, Tail):
            raise usage("E_STREAM", "stream", "pieces", "a result")
        made: T = item
        return made

    def _next(self) -> Any:
        job = self._job
        if not job.over:
            job.core.check()  # another thread changes nothing
        try:
            while True:
                job.fill()
                if job.out:
                    return job.out.popleft()
                if job.over:
                    raise StopIteration
                job.core.run(job.requests, TICK)
                job.collect()
        except StopIteration:
            raise
        except BaseException:
            job.cancel()
            raise

    def close(self) -> None:
        self._job.cancel()

    def __enter__(self) -> Results[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Stream(Results[T], Generic[T, R]):
    """Pieces of one result, which is in ``result`` once they are through."""

    result: R | None = None

    def __next__(self) -> T:
        item = self._next()
        if isinstance(item, Tail):
            self.result = item.result
            raise StopIteration
        piece: T = item
        return piece


def in_order(job: Job[Any], given: Any) -> Any:
    """All results: a list in order for a list, else one."""
    if not isinstance(given, list):
        for made in Results(job):
            return made
    if not given:
        return []
    out: list[Any] = [None] * len(given)
    for made in Results(job):
        out[made.index] = made
    return out
