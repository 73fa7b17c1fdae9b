"""Captions and images over Ray Data, an actor a device:

    pipeline.py captions INPUT OUTPUT [--actors N]    WebDataset or Parquet with bytes of images
    pipeline.py images INPUT OUTPUT [--actors N]      Parquet with "prompt" and, where given, "seed"

INPUT is a folder of .tar or .parquet files. OUTPUT gets a file of the same form for each, whole or not at
all; a file that is there is not made again, so the same command goes on after a kill.
"""

import argparse
import io
import os
import tarfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List

import pyarrow as pa
import pyarrow.parquet as pq
import ray

import tessera

ENDINGS = ("png", "jpg", "jpeg", "webp", "gif", "bmp")
Rows = List[Dict[str, Any]]


def read(path: Path) -> Rows:
    """Rows of a shard. A sample of a tar is a row: "__key__", and bytes by their endings."""
    if path.suffix == ".parquet":
        rows: Rows = pq.read_table(path).to_pylist()
        return rows
    samples: Dict[str, Dict[str, Any]] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            data = tar.extractfile(member)
            if data is not None:
                folder, name = os.path.split(member.name)
                key, _, ending = name.partition(".")
                key = os.path.join(folder, key)
                samples.setdefault(key, {"__key__": key})[ending] = data.read()
    return list(samples.values())


def write(path: Path, rows: Rows) -> None:
    # An actor of a run that was killed may still write the same shard.
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), part)
    else:
        with tarfile.open(part, "w") as tar:
            for row in rows:
                for ending, data in row.items():
                    if ending != "__key__":
                        member = tarfile.TarInfo(f"{row['__key__']}.{ending}")
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))
    os.replace(part, path)


class Worker:
    """One runtime and one model. Ray gives each actor its device and its cores, and calls it from threads
    of its choice: the runtime has a thread of its own."""

    def __init__(self, task: str, output: str, model: str, slots: int, threads: int) -> None:
        self.task, self.output = task, Path(output)
        self.thread = ThreadPoolExecutor(max_workers=1)
        self.thread.submit(self.open, model, slots, threads).result()

    def __call__(self, row: Dict[str, Any]) -> Dict[str, Any]:
        return self.thread.submit(self.work, row).result()

    def open(self, model: str, slots: int, threads: int) -> None:
        self.runtime = tessera.Runtime()
        opened_for = "describe" if self.task == "captions" else "image"
        self.model = self.runtime.open(model, opened_for, slots=slots, threads=threads)

    def work(self, row: Dict[str, Any]) -> Dict[str, Any]:
        path = Path(row["path"])
        rows = read(path)
        failed = self.caption(rows, path) if self.task == "captions" else self.draw(rows)
        write(self.output / path.name, rows)
        return {"path": str(self.output / path.name), "rows": len(rows), "failed": failed}

    def caption(self, rows: Rows, path: Path) -> int:
        text = (lambda made: made) if path.suffix == ".parquet" else (lambda made: made.encode())
        names = [next((e for e in row if e.lower() in ENDINGS + ("image", "bytes")), None) for row in rows]
        shown = [row for row, name in zip(rows, names) if name is not None]
        images = [row[name] for row, name in zip(rows, names) if name is not None]
        made = self.model.describe(images, errors="return")
        for row, one in zip(shown, made):
            if isinstance(one, tessera.Error):
                row["error"] = text(str(one))
            else:
                row["caption"] = text(one.text)
        return sum(isinstance(one, tessera.Error) for one in made)

    def draw(self, rows: Rows) -> int:
        seeds = [row.get("seed", place) for place, row in enumerate(rows)]
        made = self.model.generate([row["prompt"] for row in rows], seed=seeds, errors="return")
        for row, seed, one in zip(rows, seeds, made):
            failed = isinstance(one, tessera.Error)
            row["seed"], row["png"] = seed, None if failed else one.png()
            row["error"] = str(one) if failed else ""
        return sum(isinstance(one, tessera.Error) for one in made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("task", choices=["captions", "images"])
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", default="", help="folder or name; default: the bundled one")
    parser.add_argument("--actors", type=int, default=1)
    parser.add_argument("--gpus", type=float, default=0, help="of each actor")
    parser.add_argument("--threads", type=int, default=1, help="of each actor, without a GPU its cores")
    parser.add_argument("--slots", type=int, default=8, help="requests that an actor writes at once")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    shards = sorted(path for ending in ("*.tar", "*.parquet") for path in given.input.glob(ending))
    left = [{"path": str(path.resolve())} for path in shards if not (given.output / path.name).exists()]
    print(f"{len(shards)} shards, {len(shards) - len(left)} there already")
    if not left:
        return 0
    arguments = (given.task, str(given.output.resolve()), given.model, given.slots, given.threads)
    done = ray.data.from_items(left, override_num_blocks=len(left)).map(
        Worker,
        fn_constructor_args=arguments,
        compute=ray.data.ActorPoolStrategy(size=given.actors),
        num_gpus=given.gpus or None,
        num_cpus=given.threads,
    )
    failed = 0
    for row in done.iter_rows():
        failed += row["failed"]
        print(f"{row['path']}: {row['rows']} rows, {row['failed']} failed", flush=True)
    return 3 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
