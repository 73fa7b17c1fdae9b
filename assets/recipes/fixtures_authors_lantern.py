"""Which drafts LANTERN's own code accepts at temperature 0, for tests/golden/authors_lantern.

    python fixtures_authors_lantern.py LANTERN      # jadohu/LANTERN at 3a56e45

Rows of logits and a codebook are drawn; every code is tried as the draft of every row, under both bounds.
"""
import ast
import sys
import types
from pathlib import Path
from typing import Tuple

import numpy as np
import torch
from safetensors.torch import save_file

OUT = Path(__file__).resolve().parents[2] / "tests/golden/authors_lantern"
CODES, WIDTH, ROWS, NEAREST = 48, 4, 64, 12
BOUNDS = (0.05, 0.3, 1.5, 4.0)  # above 1: lambda


def theirs(repository):
    """Their function, without the models that its file needs."""
    body = ast.parse((Path(repository) / "models/ea_model_llamagen.py").read_text()).body
    tvd = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "calculate_tvd"]
    methods = [node for cls in body if isinstance(cls, ast.ClassDef) for node in cls.body
               if isinstance(node, ast.FunctionDef) and node.name == "evaluate_posterior_v1"]
    for method in methods:
        method.decorator_list = []
    scope = {"torch": torch, "np": np, "Tuple": Tuple}
    exec(compile(ast.Module(tvd + methods, []), "lantern", "exec"), scope)
    return scope["evaluate_posterior_v1"]


def main():
    evaluate = theirs(sys.argv[1])
    torch.manual_seed(1)
    codebook = torch.randn(CODES, WIDTH)
    unit = torch.nn.functional.normalize(codebook.double(), dim=1)
    distance = torch.cdist(unit, unit)
    distance.fill_diagonal_(-1)
    nearest = distance.argsort(dim=1)[:, 1:NEAREST + 1]
    model = types.SimpleNamespace(nearest_latents=nearest)
    logits = torch.randn(ROWS, CODES) * torch.linspace(0.2, 3, ROWS)[:, None]
    accepted = torch.zeros(len(BOUNDS), ROWS, CODES, dtype=torch.uint8)
    for b, bound in enumerate(BOUNDS):
        for row in range(ROWS):
            for draft in range(CODES):
                pair = torch.stack([logits[row], torch.zeros(CODES)])[None]
                _, count, _ = evaluate(model, pair, torch.tensor([[0, draft]]), None, None, None, None, None, None,
                                       lantern=True, lantern_k=NEAREST, lantern_delta=bound)
                accepted[b, row, draft] = int(count > 0)
    print("accepted of each bound:", accepted.float().mean(dim=(1, 2)).tolist(), "strict:", 1 / CODES)
    OUT.mkdir(exist_ok=True)
    save_file({"codebook": codebook, "logits": logits, "accepted": accepted, "bounds": torch.tensor(BOUNDS)},
              OUT / "greedy.safetensors")


main()
