"""What `tessera quantize` writes, read by the `gguf` package and by transformers 4.57.

Folders of tests/golden/gguf_text, and one with a Qwen2 tokenizer that is drawn here, become files of every type. The
package reads each; every tensor equals what it makes of the folder's numbers, bit for bit. transformers loads the
files of plain numbers and must give the logits and the ids of the folder.

  python assets/recipes/check_quantize.py PROGRAM
"""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from fixtures_gguf_text import LAYERS, PROMPTS, ROOT, SIZES, paired

TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8": "Q8_0", "q4": "Q4_0"}
TABLES = {"f32": "F32", "f16": "F32", "bf16": "BF16", "q8": "BF16", "q4": "BF16"}
HEADS = dict(TYPES, q4="Q8_0")
PLAIN = ("f32", "f16", "bf16")


def qwen_folder(folder):
    """A folder with tied tables in bf16, biases and a chat template."""
    torch.manual_seed(11)
    config = transformers.AutoConfig.for_model("qwen2", **dict(
        SIZES, vocab_size=1024, rms_norm_eps=1e-5, rope_theta=1000000.0, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=[1002, 1000]))
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.config.save_pretrained(folder)
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"},
              folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("merges.txt", "vocab.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "text_folders/qwen2" / name, folder)
    return folder


def wanted_type(name, shape, kind, tied):
    if len(shape) < 2:
        return "F32"
    if name == "token_embd.weight":
        return "F32" if kind == "f32" else "BF16" if tied else TABLES[kind]
    return HEADS[kind] if name == "output.weight" else TYPES[kind]


def own_name(name):
    for own, wanted in {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}.items():
        if name.rsplit(".", 1)[0] == wanted:
            return own + "." + name.rsplit(".", 1)[1]
    parts = name.split(".")
    stem = {wanted: own for own, wanted in LAYERS.items()}[".".join(parts[3:-1])]
    return f"blk.{parts[2]}.{stem}.{parts[-1]}"


def check_tensors(reader, folder, kind, config):
    tied, llama = config["tie_word_embeddings"], config["model_type"] != "qwen2"
    found = {tensor.name: tensor for tensor in reader.tensors}
    weights = load_file(folder / "model.safetensors")
    assert len(found) == len(weights), (len(found), len(weights))
    for name, tensor in weights.items():
        own = own_name(name)
        values = tensor.to(torch.float32)
        if llama and ".attn_q." in own:
            values = paired(values, config["num_attention_heads"])
        if llama and ".attn_k." in own:
            values = paired(values, config["num_key_value_heads"])
        quant = gguf.GGMLQuantizationType[wanted_type(own, values.shape, kind, tied)]
        assert found[own].tensor_type == quant, (own, found[own].tensor_type, quant)
        expected = gguf.quants.quantize(values.numpy(), quant)
        assert np.array_equal(found[own].data.view(np.uint8).reshape(-1), expected.view(np.uint8).reshape(-1)), own


def check_keys(reader, kind):
    def key(name):
        return reader.fields[name].contents()
    assert key("general.file_type") == {"f32": 0, "f16": 1, "bf16": 32, "q8": 7, "q4": 2}[kind]
    assert len(key("tokenizer.ggml.tokens")) == len(key("tokenizer.ggml.token_type"))
    if kind in ("q8", "q4"):
        assert key("general.quantization_version") == gguf.GGML_QUANT_VERSION


def check_reference(path, folder):
    """transformers on the file against transformers on the folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    own = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    other = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for prompt in PROMPTS[:5]:
        ids = own(prompt)["input_ids"]
        assert tokenizer(prompt)["input_ids"] == ids, prompt
        with torch.no_grad():
            logits, others = (net(torch.tensor([ids])).logits for net in (model, other))
        error = float((logits - others).norm() / others.norm())
        assert error < (1e-5 if path.stem == "f32" else 2e-2), (path.stem, error)


def check(program, folder, scratch):
    config = json.loads((folder / "config.json").read_text())
    for kind in TYPES:
        path = scratch / f"{kind}.gguf"
        subprocess.run([program, "quantize", "-m", folder, "-o", path, "--type", kind, "--force"], check=True)
        reader = gguf.GGUFReader(path)
        check_tensors(reader, folder, kind, config)
        check_keys(reader, kind)
        if kind in PLAIN:
            check_reference(path, folder)


def main():
    program = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        (scratch / "qwen").mkdir()
        check(program, ROOT / "gguf_text/llama_f32", scratch)
        check(program, qwen_folder(scratch / "qwen"), scratch)
    print("equal")


if __name__ == "__main__":
    main()
