"""Parity fixtures for LlamaGen's class-conditional transformer: our own reference.

The blocks are the Llama class of `transformers`; the rotary tables are injected: two-dimensional,
one frequency half for the row and one for the column, and a row of ZERO cosines and sines for the
class token (its rotated queries and keys are zero vectors). LlamaGen pairs neighbouring elements
(x_2i, x_2i+1) where Llama pairs halves, so query and key rows are stored permuted: element 2i of a
LlamaGen head is element i of a Llama head, element 2i+1 is element i + hd/2.

Two fixtures under tests/golden/llamagen/: head width 16 (bf16 weights, also saved by torch.save
under LlamaGen's names as c2i_tiny.pt) and head width 20 (fp32). fp32, eager attention, no cache.

  python assets/recipes/fixtures_llamagen.py
"""
import json
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaModel

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "llamagen"
GUIDANCE, GRID, CLASSES = 4.0, 5, 10


class GridRotary(torch.nn.Module):
    """cos, sin [1, T, hd] by position: row 0 is zero, row 1 + r * g + c turns by r and by c."""

    def __init__(self, head_dim, grid, base=10000.0):
        super().__init__()
        half = head_dim // 2
        freq = 1.0 / (base ** (torch.arange(0, half, 2).float() / half))  # half / 2 values
        steps = torch.arange(grid).float()
        angle = torch.outer(steps, freq)
        table = torch.cat((angle[:, None, :].expand(grid, grid, -1),
                           angle[None, :, :].expand(grid, grid, -1)), -1).reshape(grid * grid, half)
        zero = torch.zeros(1, half)
        self.register_buffer("cos_table", torch.cat((zero, table.cos())))
        self.register_buffer("sin_table", torch.cat((zero, table.sin())))

    def forward(self, x, position_ids):
        cos, sin = self.cos_table[position_ids], self.sin_table[position_ids]
        return torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)


def weights(args, seed):
    d, layers, f = args["dim"], args["n_layer"], ffn(args)
    shapes = OrderedDict()
    shapes["tok_embeddings.weight"] = (args["vocab_size"], d)
    shapes["cls_embedding.embedding_table.weight"] = (CLASSES + 1, d)
    for i in range(layers):
        shapes[f"layers.{i}.attention.wqkv.weight"] = (3 * d, d)
        shapes[f"layers.{i}.attention.wo.weight"] = (d, d)
        shapes[f"layers.{i}.feed_forward.w1.weight"] = (f, d)
        shapes[f"layers.{i}.feed_forward.w3.weight"] = (f, d)
        shapes[f"layers.{i}.feed_forward.w2.weight"] = (d, f)
        shapes[f"layers.{i}.attention_norm.weight"] = (d,)
        shapes[f"layers.{i}.ffn_norm.weight"] = (d,)
    shapes["norm.weight"] = (d,)
    shapes["output.weight"] = (args["vocab_size"], d)
    generator = torch.Generator().manual_seed(seed)
    state = OrderedDict()
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        if len(shape) == 1:
            state[name] = 1 + 0.3 * noise
        elif "embed" in name:
            state[name] = noise
        else:
            state[name] = noise * (1.2 / shape[1] ** 0.5)
    return state


def ffn(args):
    plain, step = int(2 * (4 * args["dim"]) / 3), args["multiple_of"]
    return (plain + step - 1) // step * step


def to_halves(w, heads):
    """[H * hd, D] with neighbouring pairs -> the same with pairs of halves"""
    rows, d = w.shape
    return w.view(heads, rows // heads // 2, 2, d).transpose(1, 2).reshape(rows, d)


def llama_from(args, state):
    d, heads = args["dim"], args["n_head"]
    config = LlamaConfig(vocab_size=args["vocab_size"], hidden_size=d, intermediate_size=ffn(args),
                         num_hidden_layers=args["n_layer"], num_attention_heads=heads,
                         rms_norm_eps=1e-5, max_position_embeddings=128)
    config._attn_implementation = "eager"
    model = LlamaModel(config).eval().float()
    model.rotary_emb = GridRotary(d // heads, GRID)
    renamed = {"embed_tokens.weight": state["tok_embeddings.weight"],
               "norm.weight": state["norm.weight"]}
    for i in range(args["n_layer"]):
        q, k, v = state[f"layers.{i}.attention.wqkv.weight"].split(d)
        own = f"layers.{i}."
        renamed[own + "self_attn.q_proj.weight"] = to_halves(q, heads)
        renamed[own + "self_attn.k_proj.weight"] = to_halves(k, heads)
        renamed[own + "self_attn.v_proj.weight"] = v
        renamed[own + "self_attn.o_proj.weight"] = state[own + "attention.wo.weight"]
        renamed[own + "mlp.gate_proj.weight"] = state[own + "feed_forward.w1.weight"]
        renamed[own + "mlp.up_proj.weight"] = state[own + "feed_forward.w3.weight"]
        renamed[own + "mlp.down_proj.weight"] = state[own + "feed_forward.w2.weight"]
        renamed[own + "input_layernorm.weight"] = state[own + "attention_norm.weight"]
        renamed[own + "post_attention_layernorm.weight"] = state[own + "ffn_norm.weight"]
    missing, surplus = model.load_state_dict(renamed, strict=False)
    assert not surplus and all("rotary" in name for name in missing), (missing, surplus)
    return model


def guided_run(model, state, chosen, steps):
    table, output = state["cls_embedding.embedding_table.weight"], state["output.weight"]
    rows = table[torch.tensor([chosen, CLASSES])][:, None]
    tokens, branch_logits, guided_logits = [], [], []
    for _ in range(steps):
        out = model(inputs_embeds=rows, use_cache=False, output_hidden_states=True)
        logits = out.last_hidden_state[:, -1] @ output.t()
        guided = logits[1] + GUIDANCE * (logits[0] - logits[1])
        token = int(guided.argmax())
        step = state["tok_embeddings.weight"][token].expand(2, 1, -1)
        rows = torch.cat((rows, step), 1)
        tokens.append(token)
        branch_logits.append(logits)
        guided_logits.append(guided)
    return tokens, torch.stack(branch_logits), torch.stack(guided_logits), out


@torch.no_grad()
def make(name, args, seed, dtype):
    state = weights(args, seed)
    state = OrderedDict((k, v.to(dtype).float()) for k, v in state.items())
    model = llama_from(args, state)
    chosen = 7
    # The last pass runs over the class token and the 24 tokens before the 25th.
    tokens, logits, guided, out = guided_run(model, state, chosen, GRID * GRID)
    gaps = guided.topk(2, dim=-1).values
    print(name, tokens, "smallest gap", float((gaps[:, 0] - gaps[:, 1]).min()))
    recorded = {"class": torch.tensor([chosen], dtype=torch.int32),
                "tokens": torch.tensor(tokens, dtype=torch.int32),
                "head_logits": logits, "guided_logits": guided,
                "hidden.final": out.last_hidden_state}
    for i, states in enumerate(out.hidden_states[:-1]):
        recorded[f"hidden.{i}"] = states
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    stored = OrderedDict((k, v.to(dtype).contiguous()) for k, v in state.items())
    save_file(stored, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(args, indent=1) + "\n")
    save_file({k: v.contiguous().clone() for k, v in recorded.items()}, OUT / f"{name}.recorded.safetensors")
    return stored


def main():
    torch.set_num_threads(1)
    base = {"model_type": "c2i", "num_classes": CLASSES, "class_dropout_prob": 0.1,
            "cls_token_num": 1, "block_size": GRID * GRID, "rope_base": 10000, "norm_eps": 1e-5,
            "n_kv_head": None, "ffn_dim_multiplier": None, "multiple_of": 16}
    hd16 = {"dim": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128, **base}
    stored = make("hd16", hd16, 11, torch.bfloat16)
    torch.save({"model": stored}, OUT / "c2i_tiny.pt")
    make("hd20", {"dim": 40, "n_layer": 2, "n_head": 2, "vocab_size": 96, **base}, 12, torch.float32)


if __name__ == "__main__":
    main()
