"""Text models whose linear layers are quantised, as folders of each published form, with what transformers writes.

One small Llama is drawn by torch's seed and quantised by plain Python written from the formats. Forms that transformers
reads without a GPU are loaded by it, and must give the same numbers and tokens as plain weights of the dequantised
numbers; the others are run with those. Numbers of every matrix are recorded as a digest. Tokenizer:
tests/golden/text_folders/llama_legacy.

  python assets/recipes/fixtures_quantised_folders.py [FORM...]     # with compressed-tensors, bitsandbytes, accelerate
"""
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from sentencepiece import SentencePieceProcessor

ROOT = Path(__file__).resolve().parents[2] / "tests" / "golden"
OUT = ROOT / "quantised"
PROMPTS = ["The cat sat on", "Hello, world! 12345", "a"]
NEW_TOKENS, LEAST_GAP = 16, 1e-3
BLOCK = 32  # of bitsandbytes
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the column of each nibble
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class NearTie(Exception):
    """Two tokens are likely alike: rounding would decide between them."""


# --- codes with scales over cells of a matrix [outputs, inputs]

def spread(cells, shape, rows, columns):
    """A number a cell, repeated over its cell."""
    return cells.repeat_interleave(rows, 0)[:shape[0]].repeat_interleave(columns, 1)[:, :shape[1]]


def cut(weight, rows, columns):
    """Largest and smallest number of every cell; cells at the ends may be smaller."""
    down, along = -(-weight.shape[0] // rows), -(-weight.shape[1] // columns)
    top = torch.empty(down, along)
    low = torch.empty(down, along)
    for i in range(down):
        for j in range(along):
            cell = weight[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns]
            top[i, j], low[i, j] = cell.max(), cell.min()
    return top, low


def integers(weight, bits, columns, symmetric, scale_type, groups=None):
    """Codes from 0 to 2^bits - 1, scales and zeros a group of inputs."""
    rows, inputs = weight.shape
    if groups is None:
        groups = torch.arange(inputs) // columns
    count = int(groups.max()) + 1
    codes = torch.empty(rows, inputs, dtype=torch.int64)
    scales, zeros = torch.empty(rows, count), torch.empty(rows, count, dtype=torch.int64)
    most = 2 ** bits - 1
    for g in range(count):
        part = weight[:, groups == g]
        top, low = part.max(1).values.clamp(min=0), part.min(1).values.clamp(max=0)
        scale = (2 * torch.maximum(top, -low) / most if symmetric else (top - low) / most).to(scale_type).float()
        zero = torch.full((rows,), 2 ** (bits - 1)) if symmetric else torch.round(-low / scale).long().clamp(0, most)
        codes[:, groups == g] = (torch.round(part / scale[:, None]).long() + zero[:, None]).clamp(0, most)
        scales[:, g], zeros[:, g] = scale, zero
    numbers = (codes - zeros[:, groups]).float() * scales[:, groups]
    return codes, scales, zeros, numbers


# --- packing

def bit_stream(codes, bits):
    """Codes of each row one after the other, in words of 32 bits from the lowest bit on."""
    codes = codes.numpy().astype(np.uint64)
    words = -(-codes.shape[1] * bits // 32)
    out = np.zeros((codes.shape[0], words + 1), dtype=np.uint64)
    for i in range(codes.shape[1]):
        at, shift = divmod(i * bits, 32)
        value = codes[:, i] << np.uint64(shift)
        out[:, at] |= value & np.uint64(0xFFFFFFFF)
        out[:, at + 1] |= value >> np.uint64(32)
    return torch.from_numpy(out[:, :words].astype(np.uint32).view(np.int32).copy())


def awq_words(codes):
    """Eight columns a word."""
    codes = codes.numpy().astype(np.uint32)
    out = np.zeros((codes.shape[0], codes.shape[1] // 8), dtype=np.uint32)
    for nibble, column in enumerate(AWQ_ORDER):
        out |= codes[:, column::8] << np.uint32(4 * nibble)
    return torch.from_numpy(out.view(np.int32))


def gptq(weight, stem, bits, group, old=True, symmetric=True, shuffled=False, seed=0):
    rows, inputs = weight.shape
    group = inputs if group < 0 else group
    groups = torch.arange(inputs) // group
    if shuffled:
        groups = groups[torch.from_numpy(np.random.RandomState(seed).permutation(inputs))]
    codes, scales, zeros, numbers = integers(weight, bits, group, symmetric, torch.float16, groups)
    if old and (zeros < 1).any():  # the format has no such zero
        raise NearTie(stem)
    parts = {"qweight": bit_stream(codes, bits).T.contiguous(), "scales": scales.T.contiguous().to(torch.float16),
             "qzeros": bit_stream((zeros - (1 if old else 0)).T.contiguous(), bits), "g_idx": groups.to(torch.int32),
             "bias": torch.zeros(rows, dtype=torch.float16)}
    return {f"{stem}.{leaf}": tensor for leaf, tensor in parts.items()}, numbers


def awq(weight, stem, group):
    codes, scales, zeros, numbers = integers(weight, 4, group, False, torch.float16)
    return {f"{stem}.qweight": awq_words(codes.T.contiguous()), f"{stem}.qzeros": awq_words(zeros.T.contiguous()),
            f"{stem}.scales": scales.T.contiguous().to(torch.float16)}, numbers


def float8(weight, stem, kind, rows, columns, leaf, scale_type=torch.float32, flat=False):
    rows, columns = rows or weight.shape[0], columns or weight.shape[1]
    top, low = cut(weight, rows, columns)
    scale = (torch.maximum(top, -low) / torch.finfo(kind).max).to(scale_type)
    wide = spread(scale.float(), weight.shape, rows, columns)
    codes = (weight / wide).clamp(torch.finfo(kind).min, torch.finfo(kind).max).to(kind)
    return {f"{stem}.weight": codes, f"{stem}.{leaf}": scale.reshape(()) if flat else scale}, codes.float() * wide


def packed(weight, stem, bits, group, symmetric, scale_type=torch.bfloat16):
    codes, scales, zeros, numbers = integers(weight, bits, group, symmetric, scale_type)
    parts = {"weight_packed": bit_stream(codes, bits), "weight_scale": scales.to(scale_type),
             "weight_shape": torch.tensor(weight.shape)}
    if not symmetric:
        parts["weight_zero_point"] = bit_stream(zeros.T.contiguous(), bits).T.contiguous()
    return {f"{stem}.{leaf}": tensor for leaf, tensor in parts.items()}, numbers


def bytes_of(weight, stem):
    scale = weight.abs().amax(1, keepdim=True) / 127
    codes = torch.round(weight / scale).clamp(-128, 127).to(torch.int8)
    return {f"{stem}.weight": codes, f"{stem}.weight_scale": scale}, codes.float() * scale


def rows_of_bytes(weight, stem):
    size = weight.abs().amax(1)
    codes = torch.round(weight * (127.0 / size[:, None])).to(torch.int8)
    numbers = codes.float() * size[:, None] * 7.874015718698502e-3
    return {f"{stem}.weight": codes, f"{stem}.SCB": size, f"{stem}.weight_format": torch.tensor(0, dtype=torch.uint8)}, numbers


def four_bits(weight, stem, kind, nested):
    """By bitsandbytes itself: its maps and its sizes of sizes are its own."""
    import bitsandbytes.functional as bnb

    codes, state = bnb.quantize_4bit(weight, blocksize=BLOCK, compress_statistics=nested, quant_type=kind)
    parts = {f"{stem}.weight": codes}
    parts.update({f"{stem}.weight.{leaf}": tensor for leaf, tensor in state.as_dict(packed=True).items()})
    sizes = state.absmax
    if nested:
        inner = state.state2
        sizes = inner.code[state.absmax.long()] * inner.absmax.repeat_interleave(inner.blocksize)[:len(state.absmax)]
        sizes = sizes + state.offset
    pairs = codes.reshape(-1).long()
    flat = state.code[torch.stack([pairs >> 4, pairs & 15], 1).reshape(-1)]
    numbers = (flat * sizes.repeat_interleave(BLOCK)[:flat.numel()]).reshape(weight.shape)
    assert torch.equal(numbers, bnb.dequantize_4bit(codes, state))  # which needs whole blocks a row
    return parts, numbers


# --- configurations

def compressed(form, inputs=None, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
            "global_compression_ratio": None, "kv_cache_scheme": None, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": inputs, "output_activations": None,
                                          "weights": {"dynamic": False, "symmetric": True, "type": "int", **weights}}}}


def gptq_config(bits, group, form="gptq", **more):
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False, "sym": True,
            "damp_percent": 0.01, "true_sequential": True, "checkpoint_format": form, **more}


def bnb_config(**more):
    return {"quant_method": "bitsandbytes", "load_in_8bit": False, "load_in_4bit": False, "llm_int8_threshold": 6.0,
            "llm_int8_skip_modules": None, "bnb_4bit_compute_dtype": "float32", **more}


E4M3, E5M2, BF16 = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16
INPUTS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": True,
       "modules_to_not_convert": None}
# Name, how a matrix is quantised, quantization_config, how transformers loads it (None: it cannot here).
FORMS = [
    ("fp8_block", lambda w, s: float8(w, s, E4M3, 24, 20, "weight_scale_inv"),
     {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [24, 20]}, None),
    ("fp8_even", lambda w, s: float8(w, s, E4M3, 16, 16, "weight_scale_inv"),
     {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16]}, {"fp8": True}),
    ("fp8_tensor", lambda w, s: float8(w, s, E4M3, 0, 0, "weight_scale", flat=True),
     {"quant_method": "fp8", "activation_scheme": "static"}, None),
    ("fp8_e5m2", lambda w, s: float8(w, s, E5M2, 1, 0, "weight_scale", BF16),
     {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}, None),
    ("awq", lambda w, s: awq(w, s, 16), AWQ, None),
    ("gptq4", lambda w, s: gptq(w, s, 4, 16), gptq_config(4, 16), None),
    ("gptq4_act", lambda w, s: gptq(w, s, 4, 16, shuffled=True, seed=len(s)), gptq_config(4, 16, desc_act=True), None),
    ("gptq3", lambda w, s: gptq(w, s, 3, 16), gptq_config(3, 16), None),
    ("gptq2_v2", lambda w, s: gptq(w, s, 2, 16, old=False, symmetric=False), gptq_config(2, 16, "gptq_v2", sym=False), None),
    ("gptq8", lambda w, s: gptq(w, s, 8, -1), gptq_config(8, -1), None),
    ("ct_int4", lambda w, s: packed(w, s, 4, 16, True),
     compressed("pack-quantized", num_bits=4, strategy="group", group_size=16), {"ct": True}),
    ("ct_int4_zeros", lambda w, s: packed(w, s, 4, 16, False, torch.float32),
     compressed("pack-quantized", num_bits=4, strategy="group", group_size=16, symmetric=False), {"ct": "at once"}),
    ("ct_int5", lambda w, s: packed(w, s, 5, 32, True, torch.float32),
     compressed("pack-quantized", num_bits=5, strategy="group", group_size=32), {"ct": "at once"}),
    ("ct_int8", bytes_of, compressed("int-quantized", INPUTS, num_bits=8, strategy="channel"), {"ct": "at once"}),
    ("ct_float8", lambda w, s: float8(w, s, E4M3, 1, 0, "weight_scale"),
     compressed("float-quantized", num_bits=8, type="float", strategy="channel"), {"ct": "at once"}),
    ("bnb8", rows_of_bytes, bnb_config(load_in_8bit=True), {"bnb": True}),
    ("bnb_nf4", lambda w, s: four_bits(w, s, "nf4", False),
     bnb_config(load_in_4bit=True, bnb_4bit_quant_type="nf4"), {"bnb": True}),
    ("bnb_nf4_nested", lambda w, s: four_bits(w, s, "nf4", True),
     bnb_config(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True), {"bnb": True}),
    ("bnb_fp4", lambda w, s: four_bits(w, s, "fp4", False),
     bnb_config(load_in_4bit=True, bnb_4bit_quant_type="fp4"), {"bnb": True}),
]


# --- running

def answers(model, pieces):
    rows = []
    for prompt in PROMPTS:
        ids = [pieces.bos_id()] + pieces.encode(prompt)
        tokens, gap = list(ids), np.inf
        for _ in range(NEW_TOKENS):
            with torch.no_grad():
                top = model(torch.tensor([tokens])).logits[0, -1].topk(2)
            gap = min(gap, float(top.values[0] - top.values[1]))
            tokens.append(int(top.indices[0]))
        if gap < LEAST_GAP:
            raise NearTie(prompt)
        rows.append({"ids": ids, "tokens": tokens[len(ids):]})
    return rows


def digest(numbers):
    """FNV-1a of 64 bits over the words of the numbers as f32."""
    out = 0xCBF29CE484222325
    for word in numbers.contiguous().numpy().view(np.uint32).reshape(-1).tolist():
        out = (out ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{out:016x}"


def loaded_by_transformers(folder, way):
    more = {}
    if way.get("fp8"):
        more["quantization_config"] = transformers.FineGrainedFP8Config(dequantize=True)
    if way.get("ct") == "at once":  # its other way quantises inputs, and expects zeros that are not packed
        more["quantization_config"] = transformers.CompressedTensorsConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **more).eval()
    if way.get("bnb"):
        model = model.dequantize()
    return model.to(torch.float32)


def make(name, quantise, config, way, seed):
    torch.manual_seed(seed)
    pieces = SentencePieceProcessor(model_file=str(ROOT / "text_folders/llama_legacy/tokenizer.model"))
    keys = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                num_attention_heads=4, num_key_value_heads=4 if name == "gptq3" else 2, max_position_embeddings=256, initializer_range=0.3,
                vocab_size=pieces.vocab_size(), rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("llama", **keys)).float().eval()
    parts, numbers = {}, {}
    with torch.no_grad():
        for at, tensor in model.state_dict().items():
            if at == "lm_head.weight":
                continue
            stem = at.removesuffix(".weight")
            if not stem.endswith(LINEARS):
                plain = tensor.to(torch.float16)
                parts[at] = plain
                tensor.copy_(plain.float())
                continue
            made, dense = quantise(tensor.clone(), stem)
            parts.update(made)
            numbers[at] = dense
            tensor.copy_(dense)
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    whole = json.loads((folder / "config.json").read_text())
    for key in ("transformers_version", "torch_dtype", "dtype"):
        whole.pop(key, None)
    whole["quantization_config"] = config
    (folder / "config.json").write_text(json.dumps(whole, indent=1) + "\n")
    save_file({at: tensor.contiguous() for at, tensor in parts.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    rows = answers(model, pieces)
    if way is not None:
        own = loaded_by_transformers(folder, way)
        assert answers(own, pieces) == rows, name  # compressed-tensors decompresses in its first pass
        for at, dense in numbers.items():
            found = own.get_parameter(at).detach().float()
            assert torch.equal(found, dense), (name, at, (found - dense).abs().max())
    return {"folder": name, "reference_loads": way is not None, "rows": rows,
            "digests": {at: digest(dense) for at, dense in sorted(numbers.items())}}


def settled(name, quantise, config, way):
    """The first of the seeds whose tokens rounding does not decide."""
    for seed in range(1, 60):
        try:
            return make(name, quantise, config, way, seed)
        except NearTie:
            continue
    raise SystemExit(f"{name}: near ties with every seed")


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    file = OUT / "tokens.json"
    known = {row["folder"]: row for row in json.loads(file.read_text())} if wanted and file.exists() else {}
    for form in FORMS:
        if not wanted or form[0] in wanted:
            shutil.rmtree(OUT / form[0], ignore_errors=True)
            known[form[0]] = settled(*form)
            print(form[0], known[form[0]]["reference_loads"], flush=True)
    rows = [known[form[0]] for form in FORMS if form[0] in known]
    file.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
    print(sum(each.stat().st_size for each in OUT.rglob("*") if each.is_file()), "bytes")


if __name__ == "__main__":
    main()
