"""Goldens of engine/checkpoint/gguf: a file of the `gguf` package and what the package reads in it.

tests/golden/gguf/types.gguf has keys of every kind of value and a tensor of every block format, its
bytes drawn at random (scales are finite). numbers.safetensors has the same tensors as f32.
written.safetensors has numbers of many sizes and their blocks as the package writes them.

  python assets/recipes/fixtures_gguf.py
"""
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "gguf"
TYPES = ("F32", "F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "F64", "BF16")
ROWS, BLOCKS = 3, 2
# Where the f16 scales of a block stand, in bytes.
SCALES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
          "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def blocks_of(name, random):
    kind = gguf.GGMLQuantizationType[name]
    if name in ("F32", "F64"):
        return random.normal(size=(ROWS, 5)).astype(np.float32 if name == "F32" else np.float64), None
    if name in ("F16", "BF16"):
        values = random.normal(size=(ROWS, 5)).astype(np.float32)
        if name == "F16":
            return values.astype(np.float16), None
        return gguf.quants.quantize(values, kind), kind
    size = gguf.GGML_QUANT_SIZES[kind][1]
    data = random.integers(0, 256, size=(ROWS, BLOCKS, size), dtype=np.uint8)
    for at in SCALES[name]:
        scale = (random.normal(size=(ROWS, BLOCKS)) * 0.1).astype(np.float16)
        scale[0, 0] = np.float16(3e-7) if at in (0, 80, 108, 208) else np.float16(0.0)  # a subnormal, and none
        data[:, :, at:at + 2] = scale[..., None].view(np.uint8)
    return data.reshape(ROWS, BLOCKS * size), kind


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(5)
    writer = gguf.GGUFWriter(OUT / "types.gguf", "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4000000000)
    writer.add_int32("a.i32", -2000000000)
    writer.add_uint64("a.u64", 2 ** 53 + 1)
    writer.add_int64("a.i64", -2 ** 53 - 1)
    writer.add_float32("a.f32", 0.1)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "smile \U0001f600")
    writer.add_array("a.strings", ["", "one", "zwei"])
    writer.add_array("a.numbers", [-1, 2, 3])
    expected = {}
    for name in TYPES:
        data, kind = blocks_of(name, random)
        own = gguf.GGMLQuantizationType[name] if kind is None else kind
        writer.add_tensor(f"t.{name}", data, raw_dtype=None if kind is None else kind)
        wide = data.astype(np.float32) if kind is None else gguf.quants.dequantize(data, own)
        expected[f"t.{name}"] = np.ascontiguousarray(wide, dtype=np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, OUT / "numbers.safetensors")
    numbers = random.normal(size=(24, 32)).astype(np.float32) * np.logspace(-9, 4, 24, dtype=np.float32)[:, None]
    numbers[3] = 0
    numbers[4] = np.tile([0.5, -1.0, 1.5, -2.0], 8)  # ties, and two of the largest size
    numbers[5, :] = 0
    numbers[5, 7] = -3
    written = {"numbers": numbers}
    for name in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        written[name] = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[name])
    save_file(written, OUT / "written.safetensors")


if __name__ == "__main__":
    main()
