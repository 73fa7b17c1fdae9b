"""Writes the torch.save goldens under tests/golden/pickle/.

    python assets/recipes/fixtures_pickle.py

Each good NAME.pt has its values beside it in NAME.safetensors, written by the safetensors package
(dense, one copy per tensor). Files under bad/ must be refused; tests/unit/checkpoint says how.
Seeded; writes the same tensors each time (archive ids inside the .pt files may differ).
"""

import argparse
import collections
import json
import os
import pathlib

import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "pickle"


def dense(state):
    return {name: value.detach().clone().contiguous() for name, value in state.items()}


def save_values(name, state):
    path = OUT / f"{name}.safetensors"
    save_file(dense(state), path)
    path.chmod(0o644)


def good(name, obj, state, **options):
    torch.save(obj, OUT / f"{name}.pt", **options)
    save_values(name, state)


def small_module():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    for value in module.state_dict().values():
        if value.is_floating_point():
            value.normal_()
    return module


def every_dtype():
    state = {}
    for name in ["float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8",
                 "uint8", "bool"]:
        values = torch.randint(-5, 6, (2, 5))
        state[name] = (values > 0 if name == "bool" else values.abs() if name == "uint8"
                       else values).to(getattr(torch, name))
    state["scalar"] = torch.tensor(2.5)
    state["empty"] = torch.zeros(0, 3)
    state["rank4"] = torch.randn(2, 1, 3, 2)
    return state


def write_good():
    state = every_dtype()
    for protocol in [2, 3, 4, 5]:
        good(f"dtypes_protocol{protocol}", state, state, pickle_protocol=protocol)

    module = small_module()
    state = module.state_dict()  # an OrderedDict with attributes
    good("ordered_dict", state, state)
    parameters = dict(module.named_parameters())
    good("parameters", {"state_dict": parameters}, parameters)

    base = torch.randn(6, 4)
    shared = {"whole": base, "rows": base[2:5], "tied": base, "flat_part": base.view(-1)[5:9]}
    good("shared_storage", {"module": shared}, shared)
    strided = {"transposed": base.t(), "every_second": base[:, ::2], "column": base[:, 1],
               "permuted": torch.randn(2, 3, 4).permute(2, 0, 1), "one_row": base.t()[:, :1]}
    good("strided", strided, strided)

    # As training scripts leave it: weights beside the optimiser, the step and the arguments.
    optimiser = torch.optim.AdamW(module.parameters())
    module(torch.randn(5, 3)).sum().backward()
    optimiser.step()
    args = argparse.Namespace(lr=1e-4, betas=(0.9, 0.95), name="c2i", seed=2**70, resume=None,
                              dtype=torch.bfloat16, size=torch.Size([2, 3]))
    state = module.state_dict()
    good("training", {"model": state, "optimizer": optimiser.state_dict(), "steps": 1000,
                      "args": args}, state)

    old = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    good("without_crc", {"model": state}, state)
    torch.serialization.set_crc32_options(old)


def write_sharded():
    folder = OUT / "sharded"
    folder.mkdir(exist_ok=True)
    state = {f"layers.{i}.weight": torch.randn(2, 3) for i in range(4)}
    names = sorted(state)
    parts = {"pytorch_model-00001-of-00002.bin": names[:2],
             "pytorch_model-00002-of-00002.bin": names[2:]}
    for file, part in parts.items():
        torch.save({name: state[name] for name in part}, folder / file)
    index = {"metadata": {"total_size": 96},
             "weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")
    save_values("sharded", state)


class Command:
    def __reduce__(self):
        return os.system, ("true",)


def write_bad():
    bad = OUT / "bad"
    bad.mkdir(exist_ok=True)
    weight = torch.randn(2, 3)
    torch.save({"model": {"weight": weight, "hook": Command()}}, bad / "runs_code.pt")
    torch.save({"weight": weight}, bad / "old_format.pt", _use_new_zipfile_serialization=False)
    torch.save({"weight": weight.to(torch.float8_e4m3fn)}, bad / "float8.pt")
    torch.save({"weight": weight.to(torch.complex64)}, bad / "complex.pt")
    torch.save({"weight": weight.to_sparse()}, bad / "sparse.pt")
    torch.save({"weight": weight[:1].expand(50, 3)}, bad / "expanded.pt")
    torch.save(weight, bad / "bare_tensor.pt")
    torch.save({"steps": 3, "names": ["a"]}, bad / "no_tensors.pt")
    torch.save(small_module(), bad / "whole_module.pt")
    torch.save({3: weight}, bad / "number_key.pt")
    torch.save({"a\x07b": weight}, bad / "control_name.pt")
    torch.save({"weight": collections.Counter({"a": 1})}, bad / "counter.pt")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(bad / "torchscript.pt"))


if __name__ == "__main__":
    torch.manual_seed(7)
    OUT.mkdir(parents=True, exist_ok=True)
    write_good()
    write_sharded()
    write_bad()
