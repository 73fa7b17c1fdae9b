"""Arguments of Python to what the library takes."""

from __future__ import annotations

import itertools
import os
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Union

from . import _core
from ._error import Error, usage
from ._jobs import Item

Seed = Union[int, Iterable[int]]
Image = Any
"""A path, the bytes of an image file, or an array [height, width, 3] of uint8."""

Turn = Dict[str, Any]
Conversation = List[Turn]
"""Turns as `transformers` has them: {"role": "user", "content": a text, or a list of
{"type": "text", "text": ...} and {"type": "image"}}. Images are given apart, in their order."""

MAX_SEED = 2**63 - 1
MAX_NUMBER = 2**64 - 1


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
    if not isinstance(value, str):
        raise usage("E_ARGUMENT", name, "a str", type(value).__name__)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise usage("E_ARGUMENT", name, "a text that UTF-8 can hold", ascii(value)) from None
    return value


def prompt_of(value: Any, classes: bool) -> str:
    """A text, or a class of the model."""
    if classes and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text_of("prompt", value)


def optional_text(name: str, value: Any) -> str | None:
    return None if value is None else text_of(name, value)


def switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise usage("E_ARGUMENT", name, "True or False", repr(value))
    return value


def whole(name: str, value: Any, most: int = MAX_SEED) -> int:
    if hasattr(value, "__index__") and not isinstance(value, bool):
        number = int(value.__index__())
        if 0 <= number <= most:
            return number
    raise usage("E_ARGUMENT", name, f"an integer from 0 to {most}", repr(value))


def several(name: str, values: Any) -> Iterable[Any]:
    """What is iterated over; a text would be its characters."""
    if isinstance(values, (str, bytes, os.PathLike)) or not hasattr(values, "__iter__"):
        raise usage("E_ARGUMENT", name, "a list or an iterator", type(values).__name__)
    made: Iterable[Any] = values
    return made


def seeds(seed: Seed, step: int) -> Iterator[Any]:
    """Of requests in turn: the given ones, or from one on by `step`."""
    if hasattr(seed, "__iter__"):
        return iter(seed)
    return itertools.count(whole("seed", seed), step) if step else itertools.repeat(whole("seed", seed))


def stops(stop: str | Iterable[str] | None) -> list[str]:
    """Texts that end a text; one may stand for a list."""
    if stop is None:
        return []
    return [text_of("stop", text) for text in ([stop] if isinstance(stop, str) else several("stop", stop))]


def is_conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(turn, dict) for turn in value)


def turns_of(where: str, conversation: Conversation) -> _core.Turns:
    out: _core.Turns = []
    for turn in conversation:
        content = turn.get("content")
        if set(turn) != {"role", "content"} or not isinstance(turn["role"], str):
            raise usage("E_ARGUMENT", where, "turns with 'role' and 'content'", repr(turn))
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(parts, (list, tuple)):
            raise usage("E_ARGUMENT", where, "a content that is a str or a list of parts", repr(content))
        out.append((turn["role"], [part_of(where, part) for part in parts]))
    return out


def part_of(where: str, part: Any) -> tuple[str, bool]:
    if part == {"type": "image"}:
        return "", True
    if isinstance(part, dict) and set(part) == {"type", "text"} and part["type"] == "text":
        return text_of(where, part["text"]), False
    parts = "{'type': 'text', 'text': ...} or {'type': 'image'}"
    raise usage("E_ARGUMENT", where, parts, repr(part), "images are given apart")


def prompt_items(
    prompts: Iterable[Any], seed: Seed, step: int, data: Any = None, chats: bool = False
) -> Iterator[Item | Error]:
    numbers = seeds(seed, step)
    for index, prompt in enumerate(prompts):
        number = next(numbers, None)
        try:
            if number is None:
                raise usage("E_ARGUMENT", "seed", "a seed for each prompt", f"{index} of them")
            item = Item(index, seed=whole("seed", number), data=data)
            if chats and is_conversation(prompt):
                item.turns = turns_of("prompt", prompt)
            else:
                item.prompt = prompt_of(prompt, classes=not chats and data is None)
            yield item
        except Error as error:
            error.index = index
            yield error


def images_of(given: Any) -> tuple[list[Any], list[bytes], list[bytes]]:
    """Arrays, paths and encoded files of one request, which are shown in this order."""
    arrays: list[Any] = []
    files: list[bytes] = []  # names, which need not be UTF-8
    encoded: list[bytes] = []
    for image in given if isinstance(given, tuple) else (given,):
        if isinstance(image, (bytes, bytearray, memoryview)):
            encoded.append(bytes(image))
            continue
        late = bool(encoded)
        if isinstance(image, (str, os.PathLike)):
            files.append(os.fsencode(image))
        else:
            late = late or bool(files)
            arrays.append(_core.checked_array(image))
        if late:
            raise usage("E_IMAGE_ORDER", "images", "arrays, then paths, then bytes", "another order")
    return arrays, files, encoded


def image_items(images: Iterable[Any], turns: _core.Turns, number: int | None) -> Iterator[Item | Error]:
    parts = sum(image for _, content in turns for _, image in content)
    for index, given in enumerate(images):
        try:
            arrays, files, encoded = images_of(given)
            count = len(arrays) + len(files) + len(encoded)
            if turns and parts != count:
                raise usage("E_CHAT_IMAGES", "question", f"{count} parts for images", str(parts))
            yield Item(index, data=(arrays, files, encoded, index if number is None else number))
        except Error as error:
            error.index = index
            yield error


def listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
