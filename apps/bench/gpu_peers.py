#!/usr/bin/env python3
"""What PyTorch makes of Janus-Pro's dimensions on the same device: a loop of its own, compiled, with
a static cache and both branches in one pass, and transformers' eager generation where that is
installed. Random weights. Appends JSON lines of the benchmarks' schema; says so and ends well where
torch or the device is missing.
"""
import argparse
import datetime
import json
import statistics
import time

SIZES = {"1B": dict(layers=24, width=2048, heads=16, ffn=5632),
         "7B": dict(layers=30, width=4096, heads=32, ffn=11008)}
CODES, PROMPT, TOKENS, RUNS = 16384, 32, 576, 3


def quantiles(seconds):
    ordered = sorted(seconds)
    at = lambda q: ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))] * 1e6
    return {"median": statistics.median(ordered) * 1e6, "p10": at(0.1), "p90": at(0.9),
            "min": ordered[0] * 1e6}


def emit(out, torch, name, impl, size, seconds, extra, summary):
    dims = SIZES[size]
    line = {"schema": "tessera.bench/1", "name": name,
            "date": datetime.datetime.utcnow().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "device": {"name": torch.cuda.get_device_name(), "cuda": torch.version.cuda},
            "model": {"family": "janus", "dims": f"{dims['layers']}x{dims['width']}",
                      "dtype": "bf16", "kv_dtype": "bf16", "weights": "random"},
            "shape": {"b": 1, "c": 2, "w": 1, "S": PROMPT + TOKENS // 2, "V": CODES},
            "impl": impl, "peer_version": "torch " + torch.__version__, "reps": len(seconds),
            "t_us": quantiles(seconds), "quality": None, "summary": summary, **extra}
    out.write(json.dumps(line) + "\n")
    out.flush()
    print(summary, flush=True)


def build(torch, size):
    """A Llama of this size with a static cache; one call is one token of both branches."""
    from torch import nn
    import torch.nn.functional as F
    dims = SIZES[size]
    width, heads, hd = dims["width"], dims["heads"], dims["width"] // dims["heads"]
    places = PROMPT + TOKENS

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            make = lambda n, k: nn.Linear(k, n, bias=False)
            self.qkv, self.out = make(3 * width, width), make(width, width)
            self.up, self.down = make(2 * dims["ffn"], width), make(width, dims["ffn"])
            self.norms = nn.ModuleList([nn.RMSNorm(width, eps=1e-6) for _ in range(2)])
            for which in ("keys", "values"):
                self.register_buffer(which, torch.zeros(2, heads, places, hd))

        def forward(self, x, place, mask, cos, sin):
            q, k, v = self.qkv(self.norms[0](x)).view(2, 3, heads, 1, hd).unbind(1)
            turn = lambda t: t * cos + torch.cat((-t[..., hd // 2:], t[..., :hd // 2]), -1) * sin
            self.keys.index_copy_(2, place, turn(k))
            self.values.index_copy_(2, place, v)
            seen = F.scaled_dot_product_attention(turn(q), self.keys, self.values, attn_mask=mask)
            x = x + self.out(seen.reshape(2, 1, width))
            gate, up = self.up(self.norms[1](x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block() for _ in range(dims["layers"])])
            self.codes = nn.Embedding(CODES, width)
            self.norm, self.head = nn.RMSNorm(width, eps=1e-6), nn.Linear(width, CODES, bias=False)

        def forward(self, code, place):
            x = self.codes(code).expand(2, 1, width)
            angle = place.float()[:, None] / 10000 ** (torch.arange(0, hd, 2, device=x.device) / hd)
            cos, sin = (f(angle).repeat(1, 2).to(x.dtype) for f in (torch.cos, torch.sin))
            mask = (torch.arange(places, device=x.device) <= place)[None, None, None]
            for block in self.blocks:
                x = block(x, place, mask, cos, sin)
            cond, uncond = self.head(self.norm(x)).float()[:, 0]
            law = torch.softmax(uncond + 5.0 * (cond - uncond), -1)
            # Drawn by the race of exponentials, which needs no copy to the host.
            return torch.argmax(law / torch.empty_like(law).exponential_(1), -1, keepdim=True)

    torch.manual_seed(0)
    model = Model().to(device="cuda", dtype=torch.bfloat16).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.02)
    return model


def loop_times(torch, step, tokens):
    code = torch.zeros(1, dtype=torch.long, device="cuda")
    place = torch.zeros(1, dtype=torch.long, device="cuda")
    times = []
    for run in range(RUNS + 1):
        place.fill_(PROMPT)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(tokens):
            code = step(code, place).clone()
            place += 1
        torch.cuda.synchronize()
        if run > 0:
            times.append((time.perf_counter() - began) / tokens)
    return times


def own_loops(torch, size, out):
    with torch.inference_mode():
        model = build(torch, size)
        eager = loop_times(torch, model, 64)
        emit(out, torch, "step.peer", "torch eager", size, eager, {"tokens": 64},
             f"torch eager, Janus-Pro {size}: {statistics.median(eager) * 1e3:.3f} ms a token")
        compiled = torch.compile(model, mode="max-autotune", fullgraph=True)
        times = loop_times(torch, compiled, TOKENS)
        emit(out, torch, "step.peer", "torch compiled", size, times, {"tokens": TOKENS},
             f"torch compiled, static cache, Janus-Pro {size}: "
             f"{statistics.median(times) * 1e3:.3f} ms a token")


def transformers_janus(torch, size, out):
    try:
        import transformers
        from transformers import JanusConfig, JanusForConditionalGeneration
    except ImportError as error:
        print(f"no transformers with Janus: {error}")
        return
    dims = SIZES[size]
    config = JanusConfig(text_config={
        "model_type": "llama", "hidden_size": dims["width"], "num_hidden_layers": dims["layers"],
        "num_attention_heads": dims["heads"], "num_key_value_heads": dims["heads"],
        "intermediate_size": dims["ffn"], "vocab_size": 102400})
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"), torch.inference_mode():
        model = JanusForConditionalGeneration(config).eval()
        # What the published folder sets.
        model.generation_config.generation_kwargs = {"boi_token_id": 100016}
        model.generation_config.pad_token_id = 0
        ids = torch.full((1, PROMPT), 7, dtype=torch.long)
        times = []
        for run in range(3):
            torch.cuda.synchronize()
            began = time.perf_counter()
            model.generate(input_ids=ids, attention_mask=torch.ones_like(ids),
                           generation_mode="image", guidance_scale=5, do_sample=True,
                           use_cache=True)
            torch.cuda.synchronize()
            if run > 0:
                times.append((time.perf_counter() - began) / TOKENS)
    torch.set_default_dtype(torch.float32)
    emit(out, torch, "step.peer", "transformers eager", size, times,
         {"tokens": TOKENS, "peer_version": "transformers " + transformers.__version__},
         f"transformers eager, Janus-Pro {size}: {statistics.median(times) * 1e3:.3f} ms a token")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--sizes", default="1B,7B")
    flags = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch is not installed: no peers")
        return
    if not torch.cuda.is_available():
        print("torch sees no CUDA device: no peers")
        return
    torch.cuda.set_device(flags.device)
    with open(flags.out, "a", encoding="utf-8") as out:
        for size in flags.sizes.split(","):
            # One peer that breaks off does not cost the others.
            for peer in (own_loops, transformers_janus):
                try:
                    peer(torch, size, out)
                except Exception as error:  # noqa: BLE001
                    print(f"{peer.__name__}, {size}: {type(error).__name__}: {error}")
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
