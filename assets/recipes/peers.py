#!/usr/bin/env python3
"""Other programs on the same dimensions with random weights, next to `tessera-lab bench text`: passes of 1, 2 and 8
sequences with cached rows, and prompts. Each round runs every program once, in a process of its own and in turn, so
that what a machine does meanwhile falls on all of them; medians over the rounds are printed as a table.

    pip install openvino ctranslate2      # and torch, transformers
    python peers.py --lab build/cpu/bin/tessera-lab --threads 2 --rounds 5 --out peers.jsonl

A program that cannot be imported is named and left out. OpenVINO gets the graph that its tools write for weights of 8
bits (a scale a row) and 4 bits (a scale for 128 numbers, output layer in 8), with a cache as state; its settings are
its own defaults for latency. CTranslate2 gets int8, transformers bf16. --quick: tiny shapes, whose figures mean nothing.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

L = dict(size="L", layers=24, width=1024, heads=16, ffn=2816, vocab=16384)
TINY = dict(size="B", layers=2, width=256, heads=4, ffn=512, vocab=512)
# (sequences, rows of each): passes after that prompt; and prompts of one sequence.
DECODE, PREFILL = [(1, 600), (2, 300), (8, 300)], [600, 2300]
QUICK_DECODE, QUICK_PREFILL = [(1, 20), (2, 10)], [20]
PEERS = ["openvino:int8", "openvino:int4", "ctranslate2:int8", "transformers:bf16",
         "tessera:q8", "tessera:q4", "tessera:bf16", "tessera:bf16+inputs", "tessera:f32"]


def timed(call):
    """Seconds, processor seconds, and what the call gave."""
    cpu, began = time.process_time(), time.perf_counter()
    result = call()
    return time.perf_counter() - began, time.process_time() - cpu, result


class Numbers:
    """Seeded weights whose products keep the scale of what goes through."""

    def __init__(self):
        import numpy
        self.np, self.draw = numpy, numpy.random.default_rng(1)

    def matrix(self, outputs, inputs):
        scale = self.np.float32(inputs ** -0.5)
        return self.draw.standard_normal((outputs, inputs), dtype=self.np.float32) * scale

    def ids(self, sequences, rows, vocab):
        return self.draw.integers(0, vocab, (sequences, rows))


class OpenVino:
    """A decoder built op by op: constants of few bits, a scale, and a cache that is state."""

    def __init__(self, kind, dims, threads, folder):
        import openvino
        self.ov, self.kind, self.dims, self.numbers = openvino, kind, dims, Numbers()
        self.np = self.numbers.np
        self.version = openvino.__version__.split("-")[0]
        core = openvino.Core()
        model = self.model()
        self.request = core.compile_model(model, "CPU", {
            "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}).create_infer_request()

    def weight(self, outputs, inputs, bits):
        op, np, ov = self.op, self.np, self.ov
        w = self.numbers.matrix(outputs, inputs)
        group = 128 if bits == 4 else inputs
        w = w.reshape(outputs, inputs // group, group)
        most = 2 ** (bits - 1) - 1
        scale = np.abs(w).max(axis=2, keepdims=True) / most
        q = np.rint(w / scale).astype(np.int8)
        if bits == 4:
            nibbles = (q.reshape(-1, 2) & 15).astype(np.uint8)
            packed = nibbles[:, 0] | nibbles[:, 1] << 4
            whole = ov.op.Constant(ov.Tensor(packed, ov.Shape(q.shape), ov.Type.i4))
        else:
            q, scale = q.reshape(outputs, inputs), scale.reshape(outputs, 1)
            whole = op.constant(q)
        product = op.multiply(op.convert(whole, "f16"), op.constant(scale.astype(np.float16)))
        if bits == 4:
            product = op.reshape(product, op.constant(np.array([outputs, inputs])), False)
        return op.convert(product, "f32")

    def linear(self, x, outputs, inputs, bits=None):
        bits = bits or (4 if self.kind == "int4" else 8)
        return self.op.matmul(x, self.weight(outputs, inputs, bits), False, True)

    def norm(self, x):
        op, np = self.op, self.np
        square = op.reduce_mean(op.power(x, op.constant(np.float32(2))), op.constant([-1]), True)
        root = op.sqrt(op.add(square, op.constant(np.float32(1e-5))))
        whole = op.multiply(x, op.divide(op.constant(np.float32(1)), root))
        return op.multiply(whole, op.constant(np.ones(self.dims["width"], np.float32)))

    def turn(self, x, cos, sin, half):
        op = self.op
        axis, step = op.constant([3]), op.constant([1])
        low = op.slice(x, op.constant([0]), op.constant([half]), step, axis)
        high = op.slice(x, op.constant([half]), op.constant([2 * half]), step, axis)
        turned = op.concat([op.negative(high), low], 3)
        return op.add(op.multiply(x, cos), op.multiply(turned, sin))

    def cached(self, name, new, beams, room):
        """Rows so far and the new ones; the state takes both."""
        op, ov = self.op, self.ov
        head = self.dims["width"] // self.dims["heads"]
        old = op.read_value(room, name, ov.Type.f32, ov.PartialShape([-1, self.dims["heads"], -1, head]))
        whole = op.concat([op.gather(old, beams, op.constant(0)), new], 2)
        self.sinks.append(op.assign(whole, name))
        return whole

    def model(self):
        from openvino import opset13 as op
        self.op, self.sinks = op, []
        np, ov, d = self.np, self.ov, self.dims
        head = d["width"] // d["heads"]
        inputs = {"ids": ([-1, -1], ov.Type.i64), "at": ([-1, -1], ov.Type.f32),
                  "mask": ([1, 1, -1, -1], ov.Type.f32), "beams": ([-1], ov.Type.i32)}
        inputs = {name: op.parameter(*what, name) for name, what in inputs.items()}
        for name, node in inputs.items():
            node.output(0).set_names({name})
        ids, at, mask, beams = inputs.values()
        table = op.constant(self.numbers.matrix(d["vocab"], d["width"]).astype(np.float16))
        x = op.gather(op.convert(table, "f32"), ids, op.constant(0))
        speeds = 10000.0 ** (-np.arange(0, head, 2, dtype=np.float32) / head)
        angle = op.multiply(op.unsqueeze(at, op.constant([1, 3])), op.constant(speeds))
        angle = op.concat([angle, angle], 3)
        cos, sin = op.cos(angle), op.sin(angle)
        batch = op.gather(op.shape_of(ids), op.constant([0]), op.constant(0))
        shape = op.concat([batch, op.constant(np.array([d["heads"], 0, head]))], 0)
        room = op.broadcast(op.constant(np.float32(0)), shape)
        split = op.constant(np.array([0, 0, d["heads"], head]))
        order = op.constant(np.array([0, 2, 1, 3]))
        heads = lambda y: op.transpose(op.reshape(y, split, True), order)
        for layer in range(d["layers"]):
            y = self.norm(x)
            q, k, v = (heads(self.linear(y, d["width"], d["width"])) for _ in range(3))
            q, k = self.turn(q, cos, sin, head // 2), self.turn(k, cos, sin, head // 2)
            k = self.cached(f"k{layer}", k, beams, room)
            v = self.cached(f"v{layer}", v, beams, room)
            y = op.transpose(op.scaled_dot_product_attention(q, k, v, mask), order)
            y = op.reshape(y, op.constant(np.array([0, 0, d["width"]])), True)
            x = op.add(x, self.linear(y, d["width"], d["width"]))
            y = self.norm(x)
            gate, up = (self.linear(y, d["ffn"], d["width"]) for _ in range(2))
            x = op.add(x, self.linear(op.multiply(op.swish(gate), up), d["width"], d["ffn"]))
        last = op.slice(x, op.constant([-1]), op.constant([2 ** 31]), op.constant([1]), op.constant([1]))
        logits = self.linear(self.norm(last), d["vocab"], d["width"], 8)
        return ov.Model([op.result(logits)], self.sinks, [ids, at, mask, beams])

    def run(self, sequences, rows, passes):
        np = self.np
        self.request.reset_state()
        ids = self.numbers.ids(sequences, rows, self.dims["vocab"])
        beams = np.arange(sequences, dtype=np.int32)

        def step(ids, first):
            count = ids.shape[1]
            at = np.arange(first, first + count, dtype=np.float32)
            keys = np.arange(first + count, dtype=np.float32)
            mask = np.where(keys[None, :] > at[:, None], np.float32(-3e38), np.float32(0))
            out = self.request.infer({"ids": ids, "at": np.broadcast_to(at, ids.shape).copy(),
                                      "mask": mask[None, None], "beams": beams})
            return next(iter(out.values())).reshape(sequences, -1).argmax(axis=1)[:, None]

        prompt = timed(lambda: step(ids, 0))
        token, steps = prompt[2], []
        for i in range(passes):
            steps.append(timed(lambda: step(token, rows + i)))
            token = steps[-1][2]
        return prompt[:2], [s[:2] for s in steps]


class CTranslate2:
    def __init__(self, kind, dims, threads, folder):
        import ctranslate2
        from ctranslate2.specs import common_spec, transformer_spec
        self.dims, self.numbers, self.version = dims, Numbers(), ctranslate2.__version__
        path = pathlib.Path(folder) / "ctranslate2"
        if not path.exists():
            spec = transformer_spec.TransformerDecoderModelSpec.from_config(
                dims["layers"], dims["heads"], activation=common_spec.Activation.SWISH, pre_norm=True,
                ffn_glu=True, rms_norm=True, rotary_dim=0, rotary_interleave=False, rotary_base=10000)
            self.fill(spec)
            spec.register_vocabulary(["<unk>"] + [f"t{i}" for i in range(1, dims["vocab"])])
            spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "<unk>"
            spec.config.layer_norm_epsilon = 1e-5
            spec.validate()
            spec.optimize(quantization=kind)
            path.mkdir()
            spec.save(str(path))
        self.generator = ctranslate2.Generator(str(path), device="cpu", compute_type=kind,
                                               inter_threads=1, intra_threads=threads)

    def fill(self, spec):
        import numpy as np
        d, matrix = self.dims, self.numbers.matrix
        ones = np.ones(d["width"], np.float32)
        decoder = spec.decoder
        decoder.scale_embeddings = False
        decoder.embeddings.weight = matrix(d["vocab"], d["width"])
        decoder.layer_norm.gamma = ones
        decoder.projection.weight = matrix(d["vocab"], d["width"])
        for layer in decoder.layer:
            layer.self_attention.layer_norm.gamma = layer.ffn.layer_norm.gamma = ones
            layer.self_attention.linear[0].weight = matrix(3 * d["width"], d["width"])
            layer.self_attention.linear[1].weight = matrix(d["width"], d["width"])
            layer.ffn.linear_0.weight = matrix(d["ffn"], d["width"])
            layer.ffn.linear_0_noact.weight = matrix(d["ffn"], d["width"])
            layer.ffn.linear_1.weight = matrix(d["width"], d["ffn"])

    def run(self, sequences, rows, passes):
        """It times whole texts alone: passes are what a longer text takes more."""
        ids = self.numbers.ids(sequences, rows, self.dims["vocab"] - 1) + 1
        prompts = [[f"t{i}" for i in line] for line in ids]

        def text(length):
            return timed(lambda: self.generator.generate_batch(
                prompts, max_length=length, min_length=length, sampling_topk=1,
                include_prompt_in_result=False, max_batch_size=sequences))

        prompt = text(1)
        if passes == 0:
            return prompt[:2], []
        whole = text(1 + passes)
        return prompt[:2], [tuple((whole[i] - prompt[i]) / passes for i in range(2))]


class Transformers:
    def __init__(self, kind, dims, threads, folder):
        import torch
        import transformers
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        self.torch, self.dims, self.numbers = torch, dims, Numbers()
        self.version = transformers.__version__ + ", torch " + torch.__version__
        config = transformers.LlamaConfig(
            vocab_size=dims["vocab"], hidden_size=dims["width"], intermediate_size=dims["ffn"],
            num_hidden_layers=dims["layers"], num_attention_heads=dims["heads"],
            max_position_embeddings=4096)
        self.model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()

    def run(self, sequences, rows, passes):
        torch = self.torch
        ids = torch.from_numpy(self.numbers.ids(sequences, rows, self.dims["vocab"]))
        with torch.inference_mode():
            cache = None

            def step(ids):
                out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                return out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)

            prompt = timed(lambda: step(ids))
            cache, token = prompt[2]
            steps = []
            for _ in range(passes):
                steps.append(timed(lambda: step(token)))
                cache, token = steps[-1][2]
        return prompt[:2], [s[:2] for s in steps]


def record(kind, version, sequences, rows, prompt, steps):
    middle = lambda values: statistics.median(values) if values else None
    return {"peer": kind, "version": version, "sequences": sequences, "rows": rows,
            "prefill_s": prompt[0], "prefill_cpu_s": prompt[1],
            "pass_ms": middle([1e3 * s[0] for s in steps]) if steps else None,
            "pass_cpu_ms": statistics.fmean(1e3 * s[1] for s in steps) if steps else None}


def run_peer(name, args, dims, decode, prefill):
    """One program, in this process: a line of JSON for each case."""
    program, kind = name.split(":")
    made = {"openvino": OpenVino, "ctranslate2": CTranslate2, "transformers": Transformers}[program]
    peer = made(kind, dims, args.threads, args.folder)
    peer.run(1, 16, 2)  # warms up
    for sequences, rows in decode:
        print(json.dumps(record(name, peer.version, sequences, rows, *peer.run(sequences, rows, args.passes))))
    for rows in prefill:
        print(json.dumps(record(name, peer.version, 1, rows, *peer.run(1, rows, 0))))


def run_lab(name, args, dims, decode, prefill):
    kind, lines = name.split(":")[1], []
    kind, *inputs = kind.split("+")  # bf16+inputs: inputs of bf16 too
    runs = [([rows], [sequences], args.passes) for sequences, rows in decode] + [(prefill, [1], 2)]
    for rows, sequences, passes in runs:
        text = subprocess.run(
            [args.lab, "bench", "text", "--random", "llamagen:" + dims["size"], "--dtype", kind,
             *(["--inputs", "bf16"] if inputs else []), "-t", str(args.threads), "--rows", ",".join(map(str, rows)),
             "--batch-sizes", ",".join(map(str, sequences)), "--tokens", str(max(passes, 2)),
             "--runs", "1"], check=True, capture_output=True, text=True).stdout
        for line in map(json.loads, text.splitlines()):
            decodes = passes == args.passes
            lines.append({"peer": name, "version": "", "sequences": line["shape"]["b"],
                          "rows": line["shape"]["S"], "prefill_s": line["prefill_s"],
                          "prefill_cpu_s": line["prefill_cpu_s"],
                          "pass_ms": line["t_us"]["median"] / 1e3 if decodes else None,
                          "pass_cpu_ms": line["cpu_us"] / 1e3 if decodes else None})
    return lines


def machine():
    name = platform.processor()
    for line in open("/proc/cpuinfo", encoding="utf-8") if os.path.exists("/proc/cpuinfo") else []:
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
            break
    return f"{name}, {os.cpu_count()} cores"


def table(lines, args, decode, prefill):
    suffix = "_cpu" if args.processor else ""
    head = [f"{s} x {r} rows, ms" for s, r in decode] + [f"prompt of {r}, s" for r in prefill]
    print("| program | weights | " + " | ".join(head) + " |")
    print("|---" * (2 + len(head)) + "|")
    for name in args.peers:
        own = [line for line in lines if line["peer"] == name]
        if not own:
            continue
        cells = []
        for sequences, rows in decode:
            cells.append([line[f"pass{suffix}_ms"] for line in own if line["sequences"] == sequences and
                          line["rows"] == rows and line["pass_ms"] is not None])
        for rows in prefill:
            cells.append([line[f"prefill{suffix}_s"] for line in own if line["sequences"] == 1 and
                          line["rows"] == rows and line["pass_ms"] is None])
        program, kind = name.split(":")
        version = f"{program} {own[0]['version']}".strip()
        print(f"| {version} | {kind} | " +
              " | ".join(f"{statistics.median(c):.3g}" if c else "" for c in cells) + " |")


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--lab", default="tessera-lab", help="the program to compare with")
    parse.add_argument("--threads", type=int, default=os.cpu_count())
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--passes", type=int, default=16, help="after each prompt")
    parse.add_argument("--peers", type=lambda text: text.split(","), default=PEERS)
    parse.add_argument("--processor", action="store_true",
                       help="the table shows processor time, for machines that are not quiet")
    parse.add_argument("--out", help="JSON lines of every run")
    parse.add_argument("--quick", action="store_true")
    parse.add_argument("--one", help=argparse.SUPPRESS)
    parse.add_argument("--folder", help=argparse.SUPPRESS)
    args = parse.parse_args()
    dims = TINY if args.quick else L
    decode, prefill = (QUICK_DECODE, QUICK_PREFILL) if args.quick else (DECODE, PREFILL)
    if args.one:
        return run_peer(args.one, args, dims, decode, prefill)
    lines, missing = [], set()
    out = open(args.out, "w", encoding="utf-8") if args.out else None
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(args.rounds):
            turn = args.peers if round_ % 2 == 0 else args.peers[::-1]
            for name in [peer for peer in turn if peer not in missing]:
                if name.startswith("tessera:"):
                    new = run_lab(name, args, dims, decode, prefill)
                else:
                    own = [sys.executable, __file__, "--one", name, "--folder", folder, "--threads",
                           str(args.threads), "--passes", str(args.passes)] + ["--quick"] * args.quick
                    done = subprocess.run(own, capture_output=True, text=True)
                    if done.returncode != 0:
                        print(f"{name} is left out: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                        missing.add(name)
                        continue
                    new = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
                for line in new:
                    line["round"], line["load"] = round_ + 1, os.getloadavg()[0]
                    if out:
                        print(json.dumps(line), file=out, flush=True)
                lines += new
                print(f"round {round_ + 1}: {name}", file=sys.stderr, flush=True)
    print(f"{machine()}, {args.threads} threads, {args.rounds} rounds, "
          f"{'processor' if args.processor else 'wall'} time, medians")
    print()
    table(lines, args, decode, prefill)


if __name__ == "__main__":
    main()
