"""A wheel in a fresh environment, away from the repository. Long; not a part of ./test:

    wheel_test.py FOLDER PROGRAM    builds, installs and runs in FOLDER; needs the network for pip

PROGRAM is the command that 500 captions are compared with.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
IMAGE = "import tessera; tessera.Runtime().generate(prompt='a red cube', seed=7).save('cube.png')"


def run(*words, **options):
    subprocess.run([str(word) for word in words], check=True, **options)


def main():
    folder, program = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run(sys.executable, "-m", "venv", folder / "env")
    python = folder / "env/bin/python"
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "wheels", SOURCE)
    (wheel,) = (folder / "wheels").glob("tessera-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "lib/libtessera.so.0",
        "bin/tessera-helper",
        "share/tessera/models/tabletop-llava/config.json",
    ):
        assert f"tessera/{name}" in names, name
    assert "tessera/py.typed" in names and "tessera/_core.pyi" in names
    run(python, "-m", "pip", "install", "-q", "--force-reinstall", wheel)
    away = folder / "away"
    away.mkdir(exist_ok=True)
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(away)}
    run(python, "-c", IMAGE, cwd=away, env=clean)
    run(program, "generate", "-p", "a red cube", "-s", 7, "-o", "theirs.png", "--overwrite", cwd=away)
    assert (away / "cube.png").read_bytes() == (away / "theirs.png").read_bytes()
    bench = [SOURCE / "python/bench.py", program, folder / "images", "--make", "--count", 500]
    run(python, *bench, "--rounds", 3, cwd=away, env=clean)
    print("passed: the wheel, an image, 500 captions")


if __name__ == "__main__":
    main()
