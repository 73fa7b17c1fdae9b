"""Captions for WebDataset shards, tar in and tar out: shards.py OUTPUT_FOLDER SHARD.tar...

A shard that is there is not made again. Images are decoded by the helper process.
"""

import io
import os
import sys
import tarfile
from pathlib import Path

import tessera

ENDINGS = ("png", "jpg", "jpeg", "webp", "gif", "bmp")


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def caption(model: tessera.Model, shard: Path, output: Path) -> int:
    with tarfile.open(shard) as tar:
        members = [(m.name, tar.extractfile(m)) for m in tar if m.isfile()]
        files = [(name, data.read()) for name, data in members if data is not None]
    images = [(name, data) for name, data in files if name.rsplit(".", 1)[-1].lower() in ENDINGS]
    texts = model.describe([data for _, data in images], errors="return")
    half = output.with_suffix(".part")
    with tarfile.open(half, "w") as tar:
        captions = {name: made for (name, _), made in zip(images, texts)}
        for name, data in files:
            if not name.endswith((".caption", ".error")):
                add(tar, name, data)
            made = captions.get(name)
            key = name.rsplit(".", 1)[0]
            if isinstance(made, tessera.Error):
                add(tar, f"{key}.error", str(made).encode())
            elif made is not None:
                add(tar, f"{key}.caption", made.text.encode())
    os.replace(half, output)
    return len(images)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tessera.Runtime() as runtime:
        captioner = runtime.open(task="describe", slots=8)
        for given in map(Path, sys.argv[2:]):
            made_file = folder / given.name
            if not made_file.exists():
                print(f"{made_file}: {caption(captioner, given, made_file)} images")
