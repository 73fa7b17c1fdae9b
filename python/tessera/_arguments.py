"""Arguments of Python to what the library takes."""

from __future__ import annotations

import itertools
import os
from typing import Any, Iterable, Iterator, Sequence, Union

from . import _core
from ._error import Error, usage
from ._jobs import Item

Seed = Union[int, Iterable[int]]
Image = Any
"""A path, the bytes of an image file, or an array [height, width, 3] of uint8."""

MAX_SEED = 2**63 - 1


def pairs(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Keyword arguments as the flags they are called after; None is not given."""
    out = []
    for name, value in settings.items():
        if value is None:
            continue
        flag = name.rstrip("_").replace("_", "-")  # lambda_ is `lambda`
        if isinstance(value, bool):
            out.append((flag, "true" if value else "false"))
        elif isinstance(value, (int, float, str)):
            out.append((flag, str(value)))
        elif hasattr(value, "item"):  # numbers of numpy
            out.extend(pairs({name: value.item()}))
        else:
            raise usage("E_SETTING_VALUE", name, "a number, a switch or a text", type(value).__name__)
    return out


def text_of(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # a class of the model
    raise usage("E_ARGUMENT", name, "a str, or a list of them", type(value).__name__)


def whole(name: str, value: Any) -> int:
    if hasattr(value, "__index__") and not isinstance(value, bool):
        number = int(value.__index__())
        if 0 <= number <= MAX_SEED:
            return number
    raise usage("E_ARGUMENT", name, f"an integer from 0 to {MAX_SEED}", repr(value))


def seeds(seed: Seed, step: int) -> Iterator[Any]:
    """Of requests in turn: the given ones, or from one on by `step`."""
    if hasattr(seed, "__iter__"):
        return iter(seed)
    return itertools.count(whole("seed", seed), step) if step else itertools.repeat(whole("seed", seed))


def prompt_items(prompts: Iterable[Any], seed: Seed, step: int, data: Any = None) -> Iterator[Item | Error]:
    numbers = seeds(seed, step)
    for index, prompt in enumerate(prompts):
        number = next(numbers, None)
        try:
            if number is None:
                raise usage("E_ARGUMENT", "seed", "a seed for each prompt", f"{index} of them")
            yield Item(index, text_of("prompt", prompt), whole("seed", number), data)
        except Error as error:
            error.index = index
            yield error


def images_of(given: Any) -> tuple[list[Any], list[str], list[bytes]]:
    """Arrays, paths and encoded files of one request, which are shown in this order."""
    arrays: list[Any] = []
    files: list[str] = []
    encoded: list[bytes] = []
    for image in given if isinstance(given, tuple) else (given,):
        if isinstance(image, (bytes, bytearray, memoryview)):
            encoded.append(bytes(image))
            continue
        late = bool(encoded)
        if isinstance(image, (str, os.PathLike)):
            files.append(os.fsdecode(image))
        else:
            late = late or bool(files)
            arrays.append(_core.checked_array(image))
        if late:
            raise usage("E_IMAGE_ORDER", "images", "arrays, then paths, then bytes", "another order")
    return arrays, files, encoded


def image_items(images: Iterable[Any], data: tuple[str, str | None, int | None]) -> Iterator[Item | Error]:
    question, negative, number = data
    for index, given in enumerate(images):
        try:
            shown = (question, negative, *images_of(given), index if number is None else number)
            yield Item(index, data=shown)
        except Error as error:
            error.index = index
            yield error


def listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
