"""Golden files of NBP (Ren et al. 2025), tests/golden/nbp: a tiny seeded model with the published tensor names, and
what this plain reference gives for it. The reference is our own, written from the description of the model in
docs/video.md: one dense mask over the whole sequence for every step, no cache; a second path with a cache must agree.

    python fixtures_nbp.py
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

OUT = Path(__file__).resolve().parents[2] / "tests/golden/nbp"
LAYERS, WIDTH, HEADS, POSITIONS, BLOCK = 2, 16, 2, 40, 4
CONDITIONS, CODES = 6, 20
GRIDS, ROWS, COLS = 3, 2, 4
FIRST_CONDITION, FIRST_CODE = BLOCK, BLOCK + CONDITIONS
VOCABULARY = FIRST_CODE + CODES
TOKENS = GRIDS * ROWS * COLS


def make_weights():
    torch.manual_seed(5)
    shapes = {"tok_emb.weight": (VOCABULARY, WIDTH), "pos_emb": (1, POSITIONS, WIDTH)}
    for i in range(LAYERS):
        for norm in ("ln1", "ln2"):
            shapes[f"blocks.{i}.{norm}.weight"] = shapes[f"blocks.{i}.{norm}.bias"] = (WIDTH,)
        for part in ("key", "query", "value", "proj"):
            shapes[f"blocks.{i}.attn.{part}.weight"] = (WIDTH, WIDTH)
            shapes[f"blocks.{i}.attn.{part}.bias"] = (WIDTH,)
        shapes[f"blocks.{i}.mlp.0.weight"], shapes[f"blocks.{i}.mlp.0.bias"] = (4 * WIDTH, WIDTH), (4 * WIDTH,)
        shapes[f"blocks.{i}.mlp.2.weight"], shapes[f"blocks.{i}.mlp.2.bias"] = (WIDTH, 4 * WIDTH), (WIDTH,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (WIDTH,)
    shapes["head.weight"] = (VOCABULARY, WIDTH)
    weights = {}
    for name, shape in shapes.items():
        values = torch.randn(shape)
        if len(shape) == 1:
            values = 0.3 * values + (1.0 if name.endswith("weight") else 0.0)
        elif "emb" not in name:
            values *= 1.5 / shape[-1] ** 0.5
        weights[name] = values.half().float()
    return weights


def attend(x, w, name, keys_of, mask):
    """Attention of rows x over rows keys_of, both behind the norm; mask [rows, keys], true = seen."""
    heads = lambda rows, part: F.linear(rows, w[f"{name}.{part}.weight"], w[f"{name}.{part}.bias"]) \
        .unflatten(-1, (HEADS, -1)).transpose(0, 1)
    q, k, v = heads(x, "query"), heads(keys_of, "key"), heads(keys_of, "value")
    scores = q @ k.transpose(1, 2) / (WIDTH // HEADS) ** 0.5
    mixed = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v
    return F.linear(mixed.transpose(0, 1).flatten(1), w[f"{name}.proj.weight"], w[f"{name}.proj.bias"])


def norm(x, w, name):
    return F.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)


def mlp(x, w, name):
    inner = F.gelu(F.linear(x, w[f"{name}.0.weight"], w[f"{name}.0.bias"]))
    return F.linear(inner, w[f"{name}.2.weight"], w[f"{name}.2.bias"])


def span_mask(spans):
    """A row sees its own span and all spans before."""
    number = torch.repeat_interleave(torch.arange(len(spans)), torch.tensor(spans))
    return number[:, None] >= number[None, :]


def logits(w, ids, spans):
    """All rows at once. [rows, VOCABULARY]"""
    mask = span_mask(spans)
    x = w["tok_emb.weight"][torch.tensor(ids)] + w["pos_emb"][0, :len(ids)]
    for i in range(LAYERS):
        n = norm(x, w, f"blocks.{i}.ln1")
        x = x + attend(n, w, f"blocks.{i}.attn", n, mask)
        x = x + mlp(norm(x, w, f"blocks.{i}.ln2"), w, f"blocks.{i}.mlp")
    return norm(x, w, "ln_f") @ w["head.weight"].T


def cached_logits(w, ids, spans):
    """Span by span, the normed rows of each layer kept; a new row sees all that is there."""
    seen, out, begin = [torch.empty(0, WIDTH) for _ in range(LAYERS)], [], 0
    for span in spans:
        x = w["tok_emb.weight"][torch.tensor(ids[begin:begin + span])] + w["pos_emb"][0, begin:begin + span]
        for i in range(LAYERS):
            n = norm(x, w, f"blocks.{i}.ln1")
            seen[i] = torch.cat([seen[i], n])
            x = x + attend(n, w, f"blocks.{i}.attn", seen[i], torch.ones(span, len(seen[i]), dtype=torch.bool))
            x = x + mlp(norm(x, w, f"blocks.{i}.ln2"), w, f"blocks.{i}.mlp")
        out.append(norm(x, w, "ln_f") @ w["head.weight"].T)
        begin += span
    return torch.cat(out)


def hybrid_rows(prompt, tokens):
    """Ids and spans that the next law is read from: begin token, the first block token by token, its last token with
    the placeholders 1 ... BLOCK - 1, then blocks."""
    ids, spans = list(prompt) + [0], [len(prompt), 1]
    shifted = [t + FIRST_CODE for t in tokens]
    for t in shifted[:BLOCK - 1]:
        ids.append(t)
        spans.append(1)
    if len(tokens) >= BLOCK:
        ids += [shifted[BLOCK - 1], *range(1, BLOCK)] + shifted[BLOCK:]
        spans += [BLOCK] * (len(tokens) // BLOCK)
    return ids, spans


def greedy_hybrid(w, prompt):
    tokens, gaps, passes = [], [], 0
    while len(tokens) < TOKENS:
        rows = logits(w, *hybrid_rows(prompt, tokens))[-(1 if len(tokens) < BLOCK else BLOCK):, FIRST_CODE:]
        top = rows.topk(2).values
        gaps.append(float((top[:, 0] - top[:, 1]).min()))
        tokens += rows.argmax(-1).tolist()
        passes += 1
    return tokens, passes, min(gaps)


def greedy_given(w, given):
    """All ids are codes; every row of the vocabulary may be drawn."""
    tokens, gaps, passes = list(given), [], 0
    while len(tokens) < TOKENS:
        rows = logits(w, tokens, [BLOCK] * (len(tokens) // BLOCK))[-BLOCK:]
        top = rows.topk(2).values
        gaps.append(float((top[:, 0] - top[:, 1]).min()))
        tokens += rows.argmax(-1).tolist()
        passes += 1
    return tokens, passes, min(gaps)


def main():
    w = make_weights()
    prompt = [2, 5, 0]  # of the conditions
    ids = [FIRST_CONDITION + c for c in prompt]
    fed = torch.randint(0, CODES, (3 * BLOCK,)).tolist()
    rows, spans = hybrid_rows(ids, fed)
    whole = logits(w, rows, spans)
    assert torch.allclose(whole, cached_logits(w, rows, spans), atol=1e-5)
    hybrid, hybrid_passes, hybrid_gap = greedy_hybrid(w, ids)
    given = torch.randint(0, VOCABULARY, (ROWS * COLS,)).tolist()
    going_on, given_passes, given_gap = greedy_given(w, given)
    assert hybrid_passes == BLOCK + TOKENS // BLOCK - 1 and given_passes == (TOKENS - len(given)) // BLOCK
    print("smallest gaps", hybrid_gap, given_gap, "tokens", hybrid, going_on)

    OUT.mkdir(parents=True, exist_ok=True)
    sizes = {"model_type": "nbp", "n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "block_size": POSITIONS,
             "token_number_per_step": BLOCK,
             "clip_config": {"grids": GRIDS, "grid_rows": ROWS, "grid_cols": COLS, "fps": 8}}
    for name, more in (("hybrid", {"hybrid": True, "cond_vocab_size": CONDITIONS, "codes": CODES}),
                       ("given", {"hybrid": False, "cond_vocab_size": 0, "codes": VOCABULARY})):
        (OUT / f"{name}.json").write_text(json.dumps(sizes | more, indent=1) + "\n")
    save_file({f"transformer.{k}": v.half().contiguous() for k, v in w.items()}, OUT / "model.safetensors")
    ints = lambda values: torch.tensor(values, dtype=torch.int32)
    save_file({"prompt": ints(prompt), "fed": ints(fed), "spans": ints(spans),
               "logits": whole[:, FIRST_CODE:].contiguous(), "hybrid": ints(hybrid),
               "given": ints(given), "going_on": ints(going_on)}, OUT / "recorded.safetensors")


if __name__ == "__main__":
    main()
