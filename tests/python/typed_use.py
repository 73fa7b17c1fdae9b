"""What programs get by their types; mypy reads it, nothing runs it."""

from pathlib import Path
from typing import assert_type

import numpy as np

import tessera
from tessera import Completion, Description, Error, GeneratedImage, Results

with tessera.Runtime() as rt:
    m = rt.open("x", "complete", slots=3, decode="auto")
    turns = [{"role": "user", "content": "hello"}]
    mixed: tessera.Conversation = [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "b"},
    ]
    assert_type(m.complete("a"), Completion)
    assert_type(m.complete("a", stop="x", max_tokens=3, temp=0.4), Completion)
    assert_type(m.complete(turns), Completion)
    assert_type(m.complete(mixed, stop=["a"]), Completion)
    assert_type(m.complete([turns, turns]), list[Completion])
    assert_type(m.complete(["a"]), list[Completion])
    assert_type(m.complete(["a"], errors="return"), list[Completion | Error])
    assert_type(m.describe("a", turns, stop="x"), Description)
    assert_type(m.describe(Path("a")), Description)
    assert_type(m.describe(["a"], errors="return", temp=1), list[Description | Error])
    assert_type(m.describe(np.zeros((3, 4, 3), np.uint8)), Description)
    assert_type(m.descriptions(["a"], negative_question="x", max_tokens=4), Results[Description])
    assert_type(m.generate("a"), GeneratedImage)
    assert_type(m.generate(["a"], on_progress=lambda p: p.tokens_done < 3), list[GeneratedImage])
    assert_type(m.generate("a", on_progress=print, top_k=3), GeneratedImage)
    s = m.stream_image("a", partial_images=3)
    for piece in s:
        print(piece.shape)
    assert s.result is not None
    assert_type(s.result, GeneratedImage)
    assert_type(rt.generate("a"), GeneratedImage)
