"""What Python adds: captions by the package and by the command, in turns.

    bench.py PROGRAM IMAGES [--count 500] [--rounds 5] [--batch 8] [--threads 0]

IMAGES is a folder; `--make` fills it by the package first. Both read the same files, open the model anew
each time, and must write the same texts. Times are whole runs: the start of the program, that of Python.
Processor seconds are those of the run and its helpers; they are what a busy machine leaves comparable.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The package that is installed, not its sources next to this file.
sys.path = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]

WORK = """
import json, sys
import tessera
from pathlib import Path
files = sorted(Path(sys.argv[1]).glob("*.png"))
with tessera.Runtime() as runtime:
    model = runtime.open(task="describe", slots=int(sys.argv[3]), threads=int(sys.argv[4]))
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for made in model.descriptions(files):
            print(json.dumps([files[made.index].name, made.text]), file=out)
"""
SUBJECTS = [
    f"a {size} {colour} {finish} {shape} on a {floor} floor"
    for size in ("large", "small")
    for colour in ("red", "green", "blue", "yellow")
    for finish in ("shiny", "matte")
    for shape in ("cube", "sphere", "cylinder")
    for floor in ("gray", "brown")
]


def make_images(folder, count):
    import tessera

    folder.mkdir(parents=True, exist_ok=True)
    prompts = [SUBJECTS[i % len(SUBJECTS)] for i in range(count)]
    with tessera.Runtime() as runtime:
        for made in runtime.open(slots=8).images(prompts, seed=1):
            made.save(folder / f"{made.index:05}.png")


def timed(words):
    """Seconds by the clock and of processors."""
    before, start = os.times(), time.perf_counter()
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    clock, after = time.perf_counter() - start, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return clock, used


def by_command(given, out):
    words = [given.program, "caption", given.images, "-o", out, "--anew", "--batch-size", given.batch]
    seconds = timed([*words, "--threads", given.threads])
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return seconds, {Path(line["path"]).name: line["caption"] for line in lines}


def by_package(given, out):
    seconds = timed([sys.executable, "-c", WORK, given.images, out, given.batch, given.threads])
    return seconds, dict(json.loads(line) for line in out.read_text(encoding="utf-8").splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--make", action="store_true", help="generate the images first")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    if given.make:
        make_images(given.images, given.count)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(given.rounds):
            runs = [("command", by_command), ("package", by_package)]
            got = {}
            for name, run in runs if turn % 2 == 0 else runs[::-1]:
                got[name] = run(given, Path(folder) / f"{name}.jsonl")
            if got["command"][1] != got["package"][1]:
                print("the texts differ")
                return 1
            (a, cpu_a), (b, cpu_b) = got["command"][0], got["package"][0]
            ratios.append((b / a, cpu_b / cpu_a))
            print(f"command {a:.2f} s, {cpu_a:.2f} of processors; package {b:.2f} s, {cpu_b:.2f}", flush=True)
    clock, used = (statistics.median(column) for column in zip(*ratios))
    texts = len(got["command"][1])
    print(f"{texts} texts, equal; package/command, medians: clock {clock:.3f}, processors {used:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
