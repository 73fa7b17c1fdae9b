"""A folder of a published model's dimensions with random weights in 4 bits, to see what it takes: memory, loading, time.

    pip install numpy gguf
    python full_size.py tests/golden/lmm/names/llava-1.5-7b.txt FOLDER
    python full_size.py --check FOLDER PROGRAM IMAGE    # captions, or images where the model generates

The file of names gives every tensor and its shape. Matrices of the language model's layers are blocks of Q4_0, its output
layer is Q8_0, everything else bf16, as `tessera quantize --type q4` writes folders. The tokenizer is made up.
`--check` prints the most memory that was resident, and the time of the first answer beside reading the files.
"""
import json
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CLIP = {"crop_size": {"height": 336, "width": 336}, "do_center_crop": True, "do_convert_rgb": True, "do_normalize": True,
        "do_rescale": True, "do_resize": True, "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_processor_type": "CLIPImageProcessor", "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3,
        "rescale_factor": 1 / 255, "size": {"shortest_edge": 336}}
JANUS = {"do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.5, 0.5, 0.5],
         "image_processor_type": "JanusImageProcessor", "image_std": [0.5, 0.5, 0.5], "min_size": 14, "resample": 3,
         "rescale_factor": 1 / 255, "size": {"height": 384, "width": 384}}
SPECIAL = {"llava": {32000: "<image>", 32001: "<pad>"},
           "janus": {100000: "<｜begin▁of▁sentence｜>", 100001: "<｜end▁of▁sentence｜>", 100015: "<｜▁pad▁｜>",
                     100016: "<begin_of_image>", 100592: "<end_of_image>", 100593: "<begin_of_image_old>",
                     100594: "<image_placeholder>", 100595: "<|User|>", 100596: "<|Assistant|>"}}


def tensors_of(lines):
    """Names and shapes; {0-31} stands for every layer."""
    for line in lines:
        name, *shape = line.split()
        shape = [int(extent) for extent in shape]
        found = re.search(r"\{(\d+)-(\d+)\}", name)
        for i in range(int(found[1]), int(found[2]) + 1) if found else [None]:
            yield name if i is None else name.replace(found[0], str(i)), shape


def kind_of(name, shape):
    """The format of a tensor."""
    if len(shape) != 2 or "vision" in name or "projector" in name or "embed" in name or "align" in name:
        return None
    if re.search(r"layers\.\d+\.", name):
        return "Q4_0"
    return "Q8_0" if "lm_head" in name else None


def blocks(random, shape, kind):
    size, first = (18, 2) if kind == "Q4_0" else (34, 2)
    rows = random.integers(0, 256, (shape[0], shape[1] // 32, size), dtype=np.uint8)
    scale = np.float16(0.7 / np.sqrt(shape[1]) / (8 if kind == "Q4_0" else 127))
    rows[:, :, :first] = np.frombuffer(scale.tobytes(), np.uint8)
    return rows.reshape(shape[0], -1)


def write_rest(path, tensors, random):
    """A safetensors file of bf16, tensor by tensor."""
    header, at = {}, 0
    for name, shape in tensors:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            count = int(np.prod(shape))
            for first in range(0, count, 1 << 24):
                some = min(1 << 24, count - first)
                if len(shape) == 1 and "norm" in name and name.endswith("weight"):
                    numbers = np.ones(some, np.float32)
                else:
                    numbers = random.standard_normal(some, dtype=np.float32) * np.float32(0.02)
                out.write((numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def write_tokenizer(folder, family, vocabulary):
    special = {0: "<unk>", 1: "<s>", 2: "</s>"} if family == "llava" else {}
    special |= SPECIAL[family]
    vocab, next_id = {}, 0
    pieces = [f"<0x{byte:02X}>" for byte in range(256)] + ["▁"]
    pieces += [chr(c) for c in range(33, 127)] + [f"w{i}" for i in range(vocabulary)]
    for piece in pieces:
        while next_id in special:
            next_id += 1
        if next_id >= vocabulary:
            break
        vocab[piece] = next_id
        next_id += 1
    if family == "llava":
        vocab |= {"<unk>": 0, "<s>": 1, "</s>": 2}
    added = [{"id": i, "content": text, "special": True, "normalized": False, "lstrip": False, "rstrip": False,
              "single_word": False} for i, text in sorted(special.items())]
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>" if family == "llava" else None,
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": True,
             "vocab": vocab, "merges": []}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                 "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "pre_tokenizer": None,
                 "post_processor": None,
                 "decoder": {"type": "Sequence", "decoders": [
                     {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                     {"type": "Fuse"}]},
                 "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))


def make(names, folder):
    import gguf
    head, *lines = Path(names).read_text().splitlines()
    config = json.loads(head[1:])["config"]
    family = config["model_type"]
    tensors, random = list(tensors_of(lines)), np.random.default_rng(1)
    folder.mkdir(parents=True)
    writer = gguf.GGUFWriter(folder / "model-blocks.gguf", "tessera", use_temp_file=True)
    rest = []
    for name, shape in tensors:
        kind = kind_of(name, shape)
        if kind is None:
            rest.append((name, shape))
            continue
        writer.add_tensor(name, blocks(random, shape, kind), raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_rest(folder / "model-rest.safetensors", rest, random)
    places = {name: "model-rest.safetensors" for name, _ in rest}
    index = {name: places.get(name, "model-blocks.gguf") for name, _ in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "preprocessor_config.json").write_text(json.dumps(CLIP if family == "llava" else JANUS, indent=1))
    write_tokenizer(folder, family, config["text_config"]["vocab_size"])
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e9:.2f} GB")


def check(folder, program, image):
    files = sorted(folder.glob("model-*"))
    for drop in ("cold", "read"):  # the second pass reads what the page cache holds
        began = time.monotonic()
        for file in files:
            with open(file, "rb", buffering=0) as data:
                while data.read(1 << 24):
                    pass
        read = time.monotonic() - began
    family = json.loads((folder / "config.json").read_text())["model_type"]
    command = [program, "caption", "-m", str(folder), image, "--max-tokens", "16", "--json"]
    if family == "janus":
        command = [program, "generate", "-m", str(folder), "-p", "a cube", "-o", "/tmp/full-size.png", "--overwrite",
                   "--json"]
    began = time.monotonic()
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    out = run.stdout.read()
    import os
    _, status, use = os.wait4(run.pid, 0)
    print(out.strip()[:300])
    print(f"exit {os.waitstatus_to_exitcode(status)}, {time.monotonic() - began:.1f} s, resident at most "
          f"{use.ru_maxrss / 1e6:.2f} GB; reading the files from the page cache {read:.1f} s, "
          f"{sum(file.stat().st_size for file in files) / 1e9:.2f} GB")


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        make(sys.argv[1], Path(sys.argv[2]))
