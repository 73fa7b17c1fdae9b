#!/usr/bin/env python3
"""What PyTorch makes of the same dimensions on the same device, with random weights: whole pictures
of Janus-Pro by transformers' eager generation and by a loop of our own (eager, and compiled with a
static cache, CUDA graphs, both branches in one pass and draws on the device), pixels included; and
the prompt of LLaVA-NeXT-7B. Appends JSON lines of the benchmarks' schema; says so and ends well
where torch or the device is missing. --quick: tiny shapes, whose figures mean nothing.
"""
import argparse
import datetime
import json
import statistics
import time

SIZES = {"1B": dict(layers=24, width=2048, heads=16, ffn=5632),
         "7B": dict(layers=30, width=4096, heads=32, ffn=11008),
         "tiny": dict(layers=2, width=64, heads=4, ffn=128)}
FULL = dict(codes=16384, vocab=102400, prompt=32, grid=24, runs=3, visual=2340, text=60, vq={},
            vision={}, llava=dict(layers=32, width=4096, heads=32, ffn=11008, vocab=32064))
TINY = dict(codes=64, vocab=256, prompt=4, grid=4, runs=1, visual=20, text=4,
            vq=dict(base_channels=32, channel_multiplier=[1, 1, 2], num_res_blocks=1,
                    latent_channels=32),
            vision=dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=16,
                        patch_size=4, mlp_ratio=2.0),
            llava=dict(layers=2, width=64, heads=4, ffn=128, vocab=128))
GUIDANCE = 5.0


class Bench:
    """A device, the shapes, and where objects go."""

    def __init__(self, torch, device, out, quick):
        self.torch, self.device, self.out, self.quick = torch, device, out, quick
        self.shapes = TINY if quick else FULL
        self.cuda = device.type == "cuda"
        self.tokens = self.shapes["grid"] ** 2
        self.dtype = torch.bfloat16

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def compiled(self, function, **options):
        """On a processor the graph alone is taken, without a compiler behind it."""
        if not self.cuda:
            return self.torch.compile(function, backend="eager")
        return self.torch.compile(function, **options)

    def times(self, once, warmup=1):
        """Seconds of each call that was not for warming up, and what the last one gave."""
        seconds, last = [], None
        for run in range(warmup + self.shapes["runs"]):
            self.wait()
            began = time.perf_counter()
            last = once()
            self.wait()
            if run >= warmup:
                seconds.append(time.perf_counter() - began)
        return seconds, last

    def emit(self, name, impl, dims, shape, seconds, summary, **extra):
        torch = self.torch
        ordered = sorted(seconds)
        at = lambda q: ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))] * 1e6
        device = {"name": "cpu"}
        if self.cuda:
            device = {"name": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
        line = {"schema": "tessera.bench/1", "name": name,
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "device": device, "quick": self.quick,
                "model": {"dims": f"{dims['layers']}x{dims['width']}", "dtype": "bf16",
                          "kv_dtype": "bf16", "weights": "random"},
                "shape": shape, "impl": impl, "peer_version": "torch " + torch.__version__,
                "reps": len(seconds),
                "t_us": {"median": statistics.median(ordered) * 1e6, "p10": at(0.1),
                         "p90": at(0.9), "min": ordered[0] * 1e6},
                "quality": None, "summary": summary, **extra}
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()
        print(summary, flush=True)

    def emit_picture(self, impl, size, seconds, pixels, **extra):
        """A whole picture, prompt and (where `pixels`) its way to pixels included."""
        shape = {"b": 1, "c": 2, "w": 1, "S": self.shapes["prompt"] + self.tokens // 2,
                 "V": self.shapes["codes"]}
        middle = statistics.median(seconds)
        # What has no pixels is no picture.
        name, what = ("image.peer", "") if pixels else ("tokens.peer", " without pixels")
        self.emit(name, impl, SIZES[size], shape, seconds,
                  f"{name}, {impl}, Janus-Pro {size}: {middle:.3f} s{what}", tokens=self.tokens,
                  pixels=pixels, tok_s=self.tokens / middle, **extra)


def janus_config(bench, size):
    from transformers import JanusConfig
    dims, shapes = SIZES[size], bench.shapes
    heads = dims["heads"]
    return JanusConfig(
        text_config={"model_type": "llama", "hidden_size": dims["width"],
                     "num_hidden_layers": dims["layers"], "num_attention_heads": heads,
                     "num_key_value_heads": heads, "intermediate_size": dims["ffn"],
                     "vocab_size": shapes["vocab"],
                     "max_position_embeddings": 16384 if not bench.quick else 256},
        vision_config={"projection_dim": dims["width"], "num_image_tokens": bench.tokens,
                       **shapes["vision"]},
        vq_config={"num_embeddings": shapes["codes"], "num_patches": shapes["grid"],
                   "projection_dim": dims["width"], "image_token_embed_dim": dims["width"],
                   **shapes["vq"]})


def draw(torch, module):
    for weight in module.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.02)
    return module.eval()


def made(bench, make):
    """A model of transformers, drawn on the device. What sets device and type while it is made
    would slow every call of an eager loop, so both are as they were behind it."""
    torch = bench.torch
    torch.set_default_dtype(bench.dtype)
    try:
        with bench.device:
            return make().eval()
    finally:
        torch.set_default_dtype(torch.float32)


def build(bench, size):
    """A Llama of this size with Janus' tables and head and a static cache; a step is one token of
    both branches."""
    torch, dims, shapes = bench.torch, SIZES[size], bench.shapes
    from torch import nn
    import torch.nn.functional as F
    width, heads, hd = dims["width"], dims["heads"], dims["width"] // dims["heads"]
    places = shapes["prompt"] + bench.tokens

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
            rows = x.shape[1]
            qkv = self.qkv(self.norms[0](x)).view(2, rows, 3, heads, hd)
            q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
            turn = lambda t: t * cos + torch.cat((-t[..., hd // 2:], t[..., :hd // 2]), -1) * sin
            self.keys.index_copy_(2, place, turn(k))
            self.values.index_copy_(2, place, v)
            seen = F.scaled_dot_product_attention(turn(q), self.keys, self.values, attn_mask=mask)
            x = x + self.out(seen.transpose(1, 2).reshape(2, rows, width))
            gate, up = self.up(self.norms[1](x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block() for _ in range(dims["layers"])])
            self.texts = nn.Embedding(shapes["vocab"], width)
            self.codes = nn.Embedding(shapes["codes"], 8)
            self.align = nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, width))
            self.norm = nn.RMSNorm(width, eps=1e-6)
            self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(),
                                      nn.Linear(width, shapes["codes"]))

        def layers(self, x, place):
            turns = torch.arange(0, hd, 2, device=x.device) / hd
            angle = place.float()[:, None] / 10000 ** turns
            cos, sin = (f(angle).repeat(1, 2).to(x.dtype) for f in (torch.cos, torch.sin))
            mask = (torch.arange(places, device=x.device)[None, :] <= place[:, None])[None, None]
            for block in self.blocks:
                x = block(x, place, mask, cos, sin)
            cond, uncond = self.head(self.norm(x[:, -1])).float()
            law = torch.softmax(uncond + GUIDANCE * (cond - uncond), -1)
            # Drawn by the race of exponentials, which needs no copy to the host.
            return torch.argmax(law / torch.empty_like(law).exponential_(1), -1, keepdim=True)

        def prompt(self, ids, place):
            return self.layers(self.texts(ids), place)

        def forward(self, code, place):
            return self.layers(self.align(self.codes(code)).expand(2, 1, width), place)

    torch.manual_seed(0)
    return draw(torch, Model().to(device=bench.device, dtype=bench.dtype))


def pixel_decoder(bench, size):
    """Codes to pixels on the host by transformers' own module, or None where that is missing."""
    torch = bench.torch
    try:
        from transformers.models.janus.modeling_janus import JanusVQVAE
        model = JanusVQVAE._from_config(janus_config(bench, size).vq_config)
    except ImportError as error:
        print(f"no transformers with Janus, so no pixels: {error}")
        return None
    model = draw(torch, model.to(device=bench.device, dtype=bench.dtype,
                                 memory_format=torch.channels_last))
    return model.decode


def own_loops(bench, size):
    torch, shapes = bench.torch, bench.shapes
    with torch.no_grad():
        model, pixels = build(bench, size), pixel_decoder(bench, size)
        ids = torch.full((2, shapes["prompt"]), 7, dtype=torch.long, device=bench.device)

        def picture(step, decode):
            place = torch.arange(shapes["prompt"], device=bench.device)
            code = model.prompt(ids, place)
            place = torch.full((1,), shapes["prompt"], dtype=torch.long, device=bench.device)
            codes = [code]
            for _ in range(bench.tokens - 1):
                code = step(code, place).clone()
                codes.append(code)
                place += 1
            if decode is not None:
                decode(torch.cat(codes)[None]).float().cpu()

        seconds, _ = bench.times(lambda: picture(model, pixels))
        bench.emit_picture("torch eager", size, seconds, pixels is not None)
        step = bench.compiled(model, mode="max-autotune", fullgraph=True)
        decode = None if pixels is None else bench.compiled(pixels, mode="reduce-overhead")
        seconds, _ = bench.times(lambda: picture(step, decode), warmup=2)
        bench.emit_picture("torch compiled", size, seconds, pixels is not None,
                           compiled="max-autotune, static cache, CUDA graphs")


def transformers_janus(bench, size):
    torch, shapes = bench.torch, bench.shapes
    try:
        import transformers
        from transformers import JanusForConditionalGeneration
        config = janus_config(bench, size)
    except ImportError as error:
        print(f"no transformers with Janus: {error}")
        return
    model = made(bench, lambda: JanusForConditionalGeneration(config))
    # What the published folder sets.
    model.generation_config.generation_kwargs = {"boi_token_id": shapes["vocab"] - 1}
    model.generation_config.pad_token_id = 0
    model.generation_config.bos_token_id = 1
    ids = torch.full((1, shapes["prompt"]), 7, dtype=torch.long, device=bench.device)
    mask = torch.ones_like(ids)

    def picture():
        codes = model.generate(input_ids=ids, attention_mask=mask, generation_mode="image",
                               guidance_scale=GUIDANCE, do_sample=True, use_cache=True)
        model.decode_image_tokens(codes).float().cpu()

    with torch.inference_mode():
        seconds, _ = bench.times(picture)
    bench.emit_picture("transformers eager", size, seconds, True,
                       peer_version="transformers " + transformers.__version__)


def llava_prompt(bench, _size):
    """A prompt of visual tokens through a Llama, to the logits of its last row."""
    torch, dims = bench.torch, bench.shapes["llava"]
    try:
        import transformers
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        print(f"no transformers with Llama: {error}")
        return
    rows = bench.shapes["visual"] + bench.shapes["text"]
    config = LlamaConfig(hidden_size=dims["width"], num_hidden_layers=dims["layers"],
                         num_attention_heads=dims["heads"], num_key_value_heads=dims["heads"],
                         intermediate_size=dims["ffn"], vocab_size=dims["vocab"])
    layer = 4 * dims["width"] ** 2 + 3 * dims["ffn"] * dims["width"]
    flops = dims["layers"] * (2 * layer * rows + 2 * rows * (rows + 1) * dims["width"])
    flops += 2 * dims["width"] * dims["vocab"]
    model = made(bench, lambda: LlamaForCausalLM(config))
    x = torch.randn(1, rows, dims["width"], device=bench.device, dtype=bench.dtype)
    for impl, forward in (("transformers eager", model), ("torch compiled", bench.compiled(model))):
        with torch.no_grad():
            seconds, _ = bench.times(
                lambda: forward(inputs_embeds=x, use_cache=True, logits_to_keep=1), warmup=3)
        middle = statistics.median(seconds)
        bench.emit("prefill.peer", impl, dims,
                   {"M": rows, "visual": bench.shapes["visual"], "V": dims["vocab"]}, seconds,
                   f"prefill.peer, {impl}, {bench.shapes['visual']} visual tokens: "
                   f"{middle * 1e3:.2f} ms, {flops / middle * 1e-12:.0f} Tflop/s",
                   flops=flops, tflops=flops / middle * 1e-12,
                   transformers_version=transformers.__version__)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--sizes", default="1B,7B")
    parser.add_argument("--quick", action="store_true")
    flags = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch is not installed: no peers")
        return
    try:
        device = torch.device(flags.device)
    except RuntimeError:
        print(f"torch knows no device {flags.device}: no peers")
        return
    if device.type == "cpu" and not flags.quick:
        print("peers on a processor mean nothing here: no peers")
        return
    if device.type == "cuda":
        if not torch.cuda.is_available():
            print("torch sees no CUDA device: no peers")
            return
        torch.cuda.set_device(device)
    sizes = ["tiny"] if flags.quick else flags.sizes.split(",")
    # What is compared first comes first: a time limit may cut the rest off.
    plan = [(peer, sizes[0]) for peer in (transformers_janus, own_loops, llava_prompt)]
    plan += [(peer, size) for size in sizes[1:] for peer in (own_loops, transformers_janus)]
    with open(flags.out, "a", encoding="utf-8") as out:
        bench = Bench(torch, device, out, flags.quick)
        for peer, size in plan:
            # One peer that breaks off does not cost the others.
            try:
                peer(bench, size)
            except Exception as error:  # noqa: BLE001
                print(f"{peer.__name__}, {size}: {type(error).__name__}: {error}")
            if bench.cuda:
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
