"""What the tests share: the command, pixels of its files, one runtime."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

import numpy as np

import tessera

PROGRAM = os.environ["TESSERA_PROGRAM"]
SOURCE = Path(os.environ["TESSERA_SOURCE"])
TEXT_MODEL = SOURCE / "tests/golden/gguf_text/qwen3_f32.gguf"
PROMPTS = [
    "a large red shiny sphere and a small blue matte cube on a gray floor",
    "a small green matte cylinder on a brown floor",
    "a large yellow shiny cube on a gray floor",
    "a small red matte sphere on a brown floor",
    "a large blue shiny cylinder on a gray floor",
]


def command(*words, folder, check=True):
    """What the command prints."""
    done = subprocess.run([PROGRAM, *map(str, words)], cwd=folder, capture_output=True)
    if check and done.returncode != 0:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stderr.decode()}")
    return done.stdout.decode()


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def python(code, folder, **options):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120, **options
    )


def pixels(path):
    """Of a PNG file of 8-bit RGB."""
    data, at, packed = Path(path).read_bytes(), 8, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        if kind == b"IDAT":
            packed += body
        at += 12 + size
    raw = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 3 * width)
    out = np.zeros((height, 3 * width), np.uint8)
    for y in range(height):
        for x in range(3 * width):
            left = int(out[y, x - 3]) if x >= 3 else 0
            up = int(out[y - 1, x]) if y > 0 else 0
            corner = int(out[y - 1, x - 3]) if x >= 3 and y > 0 else 0
            guess = left + up - corner
            near = min((left, up, corner), key=lambda value: abs(guess - value))
            filtered = [0, left, up, (left + up) // 2, near][raw[y, 0]]
            out[y, x] = (int(raw[y, 1 + x]) + filtered) & 255
    return out.reshape(height, width, 3)


class Case(unittest.TestCase):
    """A folder of each test's own, and a runtime of each class."""

    @classmethod
    def setUpClass(cls):
        cls.runtime = tessera.Runtime()

    @classmethod
    def tearDownClass(cls):
        cls.runtime.close()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def refused(self, code, call, *args, **options):
        with self.assertRaises(tessera.Error) as caught:
            call(*args, **options)
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        return caught.exception
