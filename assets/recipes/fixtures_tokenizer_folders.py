"""Goldens of folders without tokenizer.json: SentencePiece models and vocab.json with merges.txt, as
`transformers` (4.57) loads them; and of a tokenizer.json that the files next to it add tokens to. With release 5, which numbers
named tokens before listed ones, `newer` records json_listed again.

  fixtures_tokenizer_folders.py golden                tests/golden/text_folders/NAME/
  fixtures_tokenizer_folders.py generate N OUT        the same folders with N strings each
  fixtures_tokenizer_folders.py newer                 json_listed once more, with transformers 5
  fixtures_tokenizer_folders.py more                  text/more_tokens.json, with transformers 5
  fixtures_tokenizer_folders.py rebuilt               text/rebuilt.json, with transformers 5
  fixtures_tokenizer_folders.py sentencepiece         says how many strings the package sentencepiece reads alike
"""
from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer
from transformers import AutoTokenizer, CLIPTokenizerFast, GPT2TokenizerFast, LlamaTokenizerFast
from transformers import PreTrainedTokenizerFast, Qwen2TokenizerFast, T5TokenizerFast

from fixtures_tokenizers import CHARSMAP, GOLDEN, compact, corpus, record, specials_of
from text_strings import FIXED, random_string

FOLDERS = GOLDEN.parent / "text_folders"
CLASSES = {"llama": LlamaTokenizerFast, "t5": T5TokenizerFast, "qwen2": Qwen2TokenizerFast, "gpt2": GPT2TokenizerFast,
           "clip": CLIPTokenizerFast, "json": PreTrainedTokenizerFast}


def train(kind: str, size: int, **more) -> bytes:
    """The bytes of a SentencePiece model of the corpus, with Llama's settings unless others are given."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "corpus.txt")
        text.write_text("\n".join(line.replace("\n", " ") for line in corpus() if max(line) < "\u0500"))
        settings = dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                        split_digits=True, allow_whitespace_only_pieces=True, character_coverage=0.98)
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=folder + "/m", model_type=kind, vocab_size=size, hard_vocab_limit=False,
            minloglevel=2, num_threads=1, **(settings | more))
        return Path(folder, "m.model").read_bytes()


def token(content: str, special: bool = True, **flags) -> dict:
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": special} | flags


def old(content: str, normalized: bool = False) -> dict:
    return {"__type": "AddedToken", "content": content, "lstrip": False, "normalized": normalized, "rstrip": False,
            "single_word": False}


def byte_pairs(name: str) -> dict[str, str]:
    """vocab.json and merges.txt of a golden."""
    model = json.loads((GOLDEN / f"{name}.tokenizer.json").read_text())["model"]
    lines = ["#version: 0.2"] + [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return {"vocab.json": json.dumps(model["vocab"], ensure_ascii=False, separators=(",", ":")),
            "merges.txt": "\n".join(lines) + "\n"}


def folders() -> dict[str, tuple[str, dict[str, object]]]:
    bpe = train("bpe", 420, user_defined_symbols=["<box>", "cube red"], control_symbols=["<ctrl>"])
    n = sentencepiece.SentencePieceProcessor(model_proto=bpe).get_piece_size()
    unigram = train("unigram", 430)
    m = sentencepiece.SentencePieceProcessor(model_proto=unigram).get_piece_size()
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.tsv")
        rules.write_text(CHARSMAP)
        spiece = train("unigram", 400, byte_fallback=False, normalization_rule_tsv=str(rules), pad_id=0, eos_id=1, unk_id=2,
                       bos_id=-1, remove_extra_whitespaces=True, split_digits=False, allow_whitespace_only_pieces=False)
    llama = {"tokenizer_class": "LlamaTokenizer"}
    qwen = byte_pairs("qwen2")
    q = len(json.loads(qwen["vocab.json"]))
    whole = (GOLDEN / "qwen2.tokenizer.json").read_text()
    added = json.loads(whole)["added_tokens"]
    last = added[-1]["id"]
    return {
        "llama_bare": ("llama", {"tokenizer.model": bpe}),
        "llama_legacy": ("llama", {
            "tokenizer.model": bpe, "added_tokens.json": {"<image>": n, "<pad>": n + 1, "Cube": n + 2},
            "special_tokens_map.json": {"bos_token": token("<s>"), "eos_token": "</s>", "pad_token": "<pad>",
                                        "unk_token": token("<unk>", normalized=False),
                                        "additional_special_tokens": ["<image>"]},
            "tokenizer_config.json": llama | {"bos_token": old("<s>"), "eos_token": old("</s>"), "legacy": None}}),
        "llama_first": ("llama", {
            "tokenizer.model": bpe,
            "tokenizer_config.json": llama | {
                "legacy": False, "add_bos_token": True, "pad_token": "<unk>", "eos_token": "<|end|>",
                "added_tokens_decoder": {
                    "0": token("<unk>"), "1": token("<s>"), "2": token("</s>"), str(n): token("<image>", rstrip=True),
                    str(n + 1): token("<|end|>"), str(n + 2): token("red", False, normalized=True, single_word=True),
                    str(n + 3): token("<gap>", lstrip=True)}}}),
        "llama_plain": ("llama", {
            "tokenizer.model": bpe, "tokenizer_config.json": llama | {
                "tokenizer_class": "LlamaTokenizerFast", "legacy": False, "add_prefix_space": False, "add_bos_token": False,
                "add_eos_token": True, "bos_token": old("<s>", True), "additional_special_tokens": ["<a>", old("<b>")]}}),
        "llama_unigram": ("llama", {
            "tokenizer.model": unigram, "tokenizer_config.json": llama | {"legacy": True, "pad_token": "<pad>"},
            "added_tokens.json": {"<pad>": m}}),
        "t5": ("t5", {"spiece.model": spiece, "tokenizer_config.json": {
            "tokenizer_class": "T5Tokenizer", "extra_ids": 4, "legacy": True}}),
        "t5_by_type": ("t5", {"spiece.model": spiece, "config.json": {"model_type": "t5"}}),
        "t5_listed": ("t5", {"spiece.model": spiece, "tokenizer_config.json": {
            "tokenizer_class": "T5Tokenizer", "extra_ids": 2, "legacy": False,
            "added_tokens_decoder": {str(sentencepiece.SentencePieceProcessor(model_proto=spiece).get_piece_size() + 1 - i):
                                     token(f"<extra_id_{i}>", lstrip=True, rstrip=True) for i in (1, 0)},
            "additional_special_tokens": ["<extra_id_0>", "<extra_id_1>"]}}),
        "qwen2": ("qwen2", qwen | {"tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "unk_token": None, "added_tokens_decoder": {
                str(q): token("<|endoftext|>"), str(q + 1): token("<|im_start|>"), str(q + 2): token("<|im_end|>"),
                str(q + 3): token("<tool_call>", False)}}}),
        "gpt2": ("gpt2", byte_pairs("gpt2") | {"tokenizer_config.json": {
            "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True, "add_bos_token": True, "pad_token": "<pad>"}}),
        "json_listed": ("json", {"tokenizer.json": whole, "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<turn>", "pad_token": "in",
            "additional_special_tokens": ["<image>"], "extra_special_tokens": {"row_token": "<row>"},
            "added_tokens_decoder": {str(t["id"]): token(t["content"], t["special"], lstrip=t["id"] == last, rstrip=True)
                                     for t in added} | {str(last + 1): token("<box>", False, normalized=True)}}}),
        "json_older": ("json", {"tokenizer.json": whole, "added_tokens.json": {"<box>": last + 1},
            "special_tokens_map.json": {"eos_token": token("<turn>", rstrip=True), "unk_token": added[0]["content"]},
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}),
        "clip": ("clip", byte_pairs("clip") | {"tokenizer_config.json": {"tokenizer_class": "CLIPTokenizer"}}),
    }


def write_folder(folder: Path, files: dict[str, object]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def load(folder: Path, kind: str) -> Tokenizer:
    """The reference's tokenizer of the folder, as a file of its own would hold it."""
    named = (folder / "tokenizer_config.json").exists() or (folder / "config.json").exists()
    loaded = AutoTokenizer.from_pretrained(folder) if named else CLASSES[kind].from_pretrained(folder)
    assert type(loaded) is CLASSES[kind], type(loaded)
    return Tokenizer.from_str(loaded.backend_tokenizer.to_str())


def record_with_newer(tokenizer: Tokenizer, strings: list[str]) -> list[dict]:
    """transformers 4.57 wants an older `tokenizers`, which decodes some added tokens in another way than the one
    that the other goldens are made with: that one records, in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    script = ("import json, sys; from tokenizers import Tokenizer; from fixtures_tokenizers import record; "
              "given = json.load(sys.stdin); made = Tokenizer.from_str(given[0]); "
              "print(json.dumps([record(made, s) for s in given[1]]))")
    done = subprocess.run([sys.executable, "-c", script], input=json.dumps([tokenizer.to_str(), strings]), text=True,
                          capture_output=True, env=environment, cwd=Path(__file__).parent, check=True)
    return json.loads(done.stdout)


def write(count: int, out: Path) -> None:
    for name, (kind, files) in folders().items():
        write_folder(out / name, files)
        tokenizer = load(out / name, kind)
        specials = specials_of(tokenizer) or ["<s>"]
        rng = random.Random(f"folder {name}")
        strings = FIXED[1:-8:2] + [f"x{s} {s}{s} y" for s in specials[:8]] + ["a <image> b<image>\n c", "</s>a</s> b"]
        while len(strings) < count:
            strings.append(random_string(rng, specials))
        rows = record_with_newer(tokenizer, strings)
        assert [row["ids"] for row in rows] == [tokenizer.encode(s).ids for s in strings]
        lines = [json.dumps(compact(row), ensure_ascii=True, separators=(",", ":")) for row in rows]
        (out / name / "strings.jsonl").write_text("\n".join(lines) + "\n")
        print(name, len(rows))


def compare_with_sentencepiece() -> None:
    rng = random.Random("sentencepiece")
    for name, (kind, files) in folders().items():
        model = next((c for c in files.values() if isinstance(c, bytes)), None)
        if model is None:
            continue
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        with tempfile.TemporaryDirectory() as folder:
            write_folder(Path(folder), files)
            tokenizer = load(Path(folder), kind)
        texts = [random_string(rng, ["x"]) for _ in range(1000)]
        same = sum(tokenizer.encode(t, add_special_tokens=False).ids == processor.encode(t) for t in texts)
        print(f"{name}: {same} of {len(texts)} strings as sentencepiece has them")


def write_more() -> None:
    """Which tokens both names of a list of them add, in two files; null = there is no such file."""
    older, newer = "additional_special_tokens", "extra_special_tokens"
    configs = [{}, *({newer: value} for value in ([], None, ["<a>"], {"x_token": "<a>"})), {older: ["<b>"]},
               *({older: ["<b>"], newer: value} for value in (["<a>"], [], {"x_token": "<a>"}))]
    maps = [None, {older: ["<c>"]}, {newer: ["<d>"]}, {older: ["<c>"], newer: ["<d>"]}]
    whole = (FOLDERS / "json_older" / "tokenizer.json").read_text()
    rows = []
    for config in configs:
        for tokens in maps:
            files = {"tokenizer.json": whole, "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"} | config}
            with tempfile.TemporaryDirectory() as folder:
                write_folder(Path(folder), files | ({} if tokens is None else {"special_tokens_map.json": tokens}))
                known = AutoTokenizer.from_pretrained(folder).backend_tokenizer
            rows.append([config, tokens, [t for t in ("<a>", "<b>", "<c>", "<d>") if known.token_to_id(t) is not None]])
    lines = ",\n".join(json.dumps(row) for row in rows)
    (GOLDEN / "more_tokens.json").write_text(f"[{lines}]\n")


REBUILT_TEXTS = ["Hello there, I've 12345 apples!", "  two  spaces and\ttab\n\nnew  ", "cafe\u0301 \ufb01ne na\u00efve",
                 "<s> a </s>b <s>", "\u65e5\u672c \U0001f98a x", " <unk>x", "a<|endoftext|> b"]


def write_rebuilt() -> None:
    """Ids and texts of a tokenizer.json under classes that make their own normalizer, pre_tokenizer and decoder."""
    named = [{}, *({"tokenizer_class": name} for name in
                   ("PreTrainedTokenizerFast", "LlamaTokenizer", "Qwen2TokenizerFast", "GPT2Tokenizer", "GemmaTokenizer"))]
    more = [{"tokenizer_class": "LlamaTokenizerFast", **keys} for keys in
            ({"legacy": True}, {"legacy": None}, {"add_prefix_space": False}, {"add_bos_token": False})]
    more.append({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": True})
    plan = {"llama2": {"llama": named[1:3] + more[:4], "llava": [more[0]], "janus": [named[2]], "gemma3_text": [named[0], named[5]],
                       "mistral": [named[2]], "": [named[2], named[0]]},
            "gpt2": {"qwen2": named[:4], "qwen3": named[:2] + more[4:], "llama": named[2:5], "qwen2_vl": named[:1],
                     "emu3": named[:1], "smolvlm": [named[3]]},
            "llama3": {"qwen2": [named[1]], "llama": [named[2]], "qwen2_5_vl": [named[0]]},
            "metaspace": {"llama": [named[2], named[4]]}}
    rows = []
    for base, types in plan.items():
        whole = (GOLDEN / f"{base}.tokenizer.json").read_text()
        special = {t["content"] for t in json.loads(whole)["added_tokens"]}
        for kind, configs in types.items():
            for config in configs:
                # Special tokens that a class adds where the vocabulary has none are not part of this.
                roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"} if "<unk>" in special else \
                    {role: min(special) for role in ("bos_token", "eos_token", "unk_token")} if special else {}
                roles |= {role: roles.get("eos_token") for role in ("pad_token", "mask_token")}
                files = {"tokenizer.json": whole, "config.json": {"model_type": kind}} if kind else {"tokenizer.json": whole}
                with tempfile.TemporaryDirectory() as folder:
                    write_folder(Path(folder), files | {"tokenizer_config.json": roles | config})
                    known = AutoTokenizer.from_pretrained(folder)
                ids = [known.backend_tokenizer.encode(text).ids for text in REBUILT_TEXTS]
                texts = [known.backend_tokenizer.decode(row, skip_special_tokens=False) for row in ids]
                rows.append({"base": base, "type": kind, "config": roles | config, "class": type(known).__name__,
                             "ids": ids, "texts": texts})
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (GOLDEN / "rebuilt.json").write_text(f'{{"texts":{json.dumps(REBUILT_TEXTS)},\n"folders":[{lines}]}}\n')


def write_newer() -> None:
    path = FOLDERS / "json_listed"
    known = AutoTokenizer.from_pretrained(path).backend_tokenizer
    rows = [json.loads(line)["text"] for line in (path / "strings.jsonl").read_text().splitlines()]
    lines = [json.dumps(compact(record(known, text)), ensure_ascii=True, separators=(",", ":")) for text in rows]
    (path / "strings.jsonl").write_text("\n".join(lines) + "\n")


def main() -> None:
    command = sys.argv[1] if len(sys.argv) > 1 else "golden"
    if command == "newer":
        write_newer()
    elif command == "sentencepiece":
        compare_with_sentencepiece()
    elif command == "more":
        write_more()
    elif command == "rebuilt":
        write_rebuilt()
    elif command == "generate":
        write(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        write(72, FOLDERS)


if __name__ == "__main__":
    main()
