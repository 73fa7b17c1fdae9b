"""examples/ray on a local cluster of two workers. A script, since Ray is large:

    pip install 'ray[data]' && python tests/python/ray_test.py    with the variables of run.py

It says so and ends with 77 where Ray or the package cannot be imported.
"""

import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
PIPELINE = SOURCE / "examples/ray/pipeline.py"


def pipeline(*words, **options):
    done = subprocess.run(
        [sys.executable, str(PIPELINE), *map(str, words), "--actors", "2"],
        capture_output=True, text=True, **options,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def shards_of(folder, images):
    """Tar files of three samples, each an image and its class."""
    folder.mkdir()
    for start in range(0, len(images), 3):
        with tarfile.open(folder / f"s{start:02}.tar", "w") as tar:
            for i in range(start, min(start + 3, len(images))):
                for ending, data in ("png", images[i].png()), ("cls", b"1"):
                    member = tarfile.TarInfo(f"{i:03}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def captions_of(folder):
    texts = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for name in tar.getnames():
                if name.endswith(".caption"):
                    texts[name[:-8]] = tar.extractfile(name).read()
    return texts


def check_captions(folder, support):
    import tessera

    with tessera.Runtime() as runtime:
        images = runtime.open(slots=4).generate(support.PROMPTS * 4, seed=1)
    shards_of(folder / "in", images)
    command = ["caption", *sorted((folder / "in").glob("*.tar")), "--anew", "-o", "c.jsonl"]
    support.command(*command, folder=folder)
    lines = support.json_lines((folder / "c.jsonl").read_text())
    theirs = {Path(line.get("key") or line["path"]).name.split(".")[0]: line["caption"] for line in lines}
    assert len(theirs) == 20, sorted(theirs)

    # Killed once a shard is there; the same command goes on. Actors may finish theirs meanwhile.
    first = subprocess.Popen(
        [sys.executable, str(PIPELINE), "captions", str(folder / "in"), str(folder / "out"), "--actors", "2"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while not list((folder / "out").glob("*.tar")) and first.poll() is None:
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    there = {path: path.stat().st_mtime_ns for path in (folder / "out").glob("*.tar")}
    assert there
    code, out, err = pipeline("captions", folder / "in", folder / "out")
    assert code == 0, out + err
    (found,) = re.findall(r"7 shards, (\d) there already", out)
    assert len(there) <= int(found) < 7 and out.count(" rows, 0 failed") == 7 - int(found), out
    assert all(path.stat().st_mtime_ns == when for path, when in there.items()), "made again"
    mine = captions_of(folder / "out")
    assert {key: text.decode() for key, text in mine.items()} == theirs
    assert "7 shards, 7 there already" in pipeline("captions", folder / "in", folder / "out")[1]


def check_images(folder, support):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "prompts").mkdir()
    for shard in range(2):
        rows = [{"prompt": prompt, "seed": 10 * shard + i} for i, prompt in enumerate(support.PROMPTS)]
        rows.append({"prompt": "x" * 20000, "seed": 0})
        pq.write_table(pa.Table.from_pylist(rows), folder / f"prompts/{shard}.parquet")
    code, out, err = pipeline("images", folder / "prompts", folder / "made")
    assert code == 3, out + err  # the long prompts
    for shard in range(2):
        rows = pq.read_table(folder / f"made/{shard}.parquet").to_pylist()
        assert rows[-1]["png"] is None and "at most" in rows[-1]["error"]
        for row in rows[:-1]:
            flags = ["-p", row["prompt"], "-s", row["seed"], "-o", "c.png", "--overwrite"]
            support.command("generate", *flags, folder=folder)
            assert row["png"] == (folder / "c.png").read_bytes(), row["prompt"]


def main():
    try:
        import pyarrow  # noqa: F401
        import ray  # noqa: F401

        import tessera  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    sys.path.insert(0, str(Path(__file__).parent))
    import support

    for check in check_captions, check_images:
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder), support)
        print(f"{check.__name__}: passed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
