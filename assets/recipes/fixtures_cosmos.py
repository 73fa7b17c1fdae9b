"""Parity fixture for the Cosmos family: tests/golden/cosmos/recorded.safetensors.

`transformers` has no Cosmos autoregressive model, so the reference is written here, plainly, from the published
description: whole sequences at once in float64, only the tables of rotary angles and of added places rounded as the
authors' bf16 code keeps them. Weights are no part of the file: each element is a hash of its tensor's name and its
place, which tests/support/hashed_weights.h computes too.

Recorded: for three small transformers (`plain`: the 4B's form; `text`: the 5B's, with attention to other rows, places
added before every layer and a token before the stream; `wide`: the 12B's, with YaRN and heads that are not as wide as
the model) a greedy stream behind a given first grid, its logits and the hidden states that enter the last layer; for a
small clip tokenizer the latents and codes of a clip and samples of the frames that they decode to; a wavelet.

  python assets/recipes/fixtures_cosmos.py
"""
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from hashed_weights import hashed, weight

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "cosmos"
BASE = dict(layers=2, dim=64, heads=4, kv=2, head=16, ffn=96, codes=60, grid=(3, 2, 3), theta=500000.0, pad=8,
            context=0, yarn=None)
FORMS = {
    "plain": BASE,
    "text": BASE | dict(context=24),
    "wide": BASE | dict(dim=80, theta=100.0, yarn=dict(scale=2.0, fast=4.0, slow=1.0, original=(12, 40, 64))),
}
CONTEXT_ROWS, TEXT_ROWS = 7, 4
TOKENIZER = dict(channels=8, mult=(1, 2, 2), res=1, z=4, levels=(8, 8, 8, 5, 5, 5), patch=4, spatial=16, temporal=8)


# --- transformer --------------------------------------------------------------------------------

def axis_widths(width):
    side = width // 6 * 2
    return width - 2 * side, side, side


def places(c):
    """(t, h, w) of each code."""
    t, h, w = c["grid"]
    return torch.stack(torch.meshgrid(torch.arange(t), torch.arange(h), torch.arange(w), indexing="ij"), -1).reshape(-1, 3)


def rotary(c):
    """cos, sin [rows, head]: a row that turns nothing before the stream if a token is there, and at the end."""
    angles = []
    for axis, width in enumerate(axis_widths(c["head"])):
        frequency = 1.0 / c["theta"] ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        if c["yarn"]:
            y = c["yarn"]
            length = y["original"][0 if axis == 0 else 1]
            low, high = 2 * math.pi * y["slow"] / length, 2 * math.pi * y["fast"] / length
            kept = ((frequency - low) / (high - low)).clamp(0, 1)
            frequency = frequency * ((1 - kept) / y["scale"] + kept)
        angles.append(places(c)[:, axis].float()[:, None] * frequency)
    angles = torch.cat(angles * 2, -1)
    if c["context"]:
        angles = torch.cat([torch.zeros(1, c["head"]), angles])
    angles = torch.cat([angles, torch.zeros(-len(angles) % c["pad"], c["head"])])
    return angles.cos().bfloat16().double(), angles.sin().bfloat16().double()


def added_places(c):
    parts = []
    for axis, width in enumerate(axis_widths(c["dim"])):
        omega = 1.0 / 10000 ** (torch.arange(width // 2, dtype=torch.float64) / (width / 2))
        angle = places(c)[:, axis].double()[:, None] * omega
        parts.append(torch.cat([angle.sin(), angle.cos()], -1))
    table = torch.cat(parts, -1).bfloat16().double()
    return torch.cat([torch.zeros(1, c["dim"], dtype=torch.float64), table])


def rms(x, scale):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * scale


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def attend(c, q, k, v, mask):
    """q [heads, rows, head], k and v [kv, keys, head]"""
    k, v = (a.repeat_interleave(c["heads"] // c["kv"], 0) for a in (k, v))
    scores = q @ k.transpose(1, 2) / math.sqrt(c["head"])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1).reshape(q.shape[1], -1)


class Transformer:
    def __init__(self, form):
        self.form, self.c = form, FORMS[form]
        self.cos, self.sin = rotary(self.c)
        self.added = added_places(self.c) if self.c["context"] else None
        self.rows = (self.c["codes"] + 64) // 64 * 64 if self.c["context"] else self.c["codes"]
        self.text = None
        if self.c["context"]:
            self.text = hashed("context", (CONTEXT_ROWS, self.c["context"]))
            self.text[TEXT_ROWS:] = 0

    def w(self, name, *shape):
        return weight(name, shape)

    def heads(self, x, count):
        return x.reshape(len(x), count, self.c["head"]).transpose(0, 1)

    def attention(self, name, x, source, position, past):
        c, hd = self.c, self.c["head"]
        q = self.heads(x @ self.w(name + ".wq.weight", c["heads"] * hd, c["dim"]).T, c["heads"])
        k = self.heads(source @ self.w(name + ".wk.weight", c["kv"] * hd, source.shape[1]).T, c["kv"])
        v = self.heads(source @ self.w(name + ".wv.weight", c["kv"] * hd, source.shape[1]).T, c["kv"])
        q, k = rms(q, self.w(name + ".q_norm.weight", hd)), rms(k, self.w(name + ".k_norm.weight", hd))
        mask = None
        if past is not None:
            rows = position + torch.arange(len(x))
            q, k = (turned(a, self.cos[rows], self.sin[rows]) for a in (q, k))
            if name in past:
                k, v = torch.cat([past[name][0], k], 1), torch.cat([past[name][1], v], 1)
            past[name] = (k, v)
            mask = torch.arange(k.shape[1])[None] <= rows[:, None]
        return attend(c, q, k, v, mask) @ self.w(name + ".wo.weight", c["dim"], c["heads"] * hd).T

    def forward(self, tokens, position, past):
        """Rows of tokens behind `position` cached ones -> what enters the last layer, logits."""
        c = self.c
        x = self.w("tok_embeddings.weight", self.rows, c["dim"])[torch.tensor(tokens)]
        for i in range(c["layers"]):
            name = f"layers.{i}."
            if self.added is not None:
                x = x + self.added[position:position + len(tokens)]
            entering = x
            norm = rms(x, self.w(name + "attention_norm.weight", c["dim"]))
            x = x + self.attention(name + "attention", norm, norm, position, past)
            if self.text is not None:
                norm = rms(x, self.w(name + "cross_attention_norm.weight", c["dim"]))
                x = x + self.attention(name + "cross_attention", norm, self.text, position, None)
            norm = rms(x, self.w(name + "ffn_norm.weight", c["dim"]))
            w1, w3 = (self.w(f"{name}feed_forward.w{j}.weight", c["ffn"], c["dim"]) for j in (1, 3))
            x = x + (F.silu(norm @ w1.T) * (norm @ w3.T)) @ self.w(name + "feed_forward.w2.weight", c["dim"], c["ffn"]).T
        final = rms(x, self.w("norm.weight", c["dim"]))
        return entering, final @ self.w("output.weight", c["codes"], c["dim"]).T


def record_transformer(form, recorded):
    model = Transformer(form)
    c = model.c
    t, h, w = c["grid"]
    given = (hashed(form + ".given", (h * w,)).abs() * c["codes"]).long().tolist()
    before = [c["codes"]] if c["context"] else []
    past, tokens, gaps = {}, list(given), []
    _, logits = model.forward(before + given, 0, past)
    while True:
        best = logits[-1].topk(2).values
        gaps.append(float(best[0] - best[1]))
        tokens.append(int(logits[-1].argmax()))
        if len(tokens) == t * h * w:
            break
        _, logits = model.forward(tokens[-1:], len(before) + len(tokens) - 1, past)
    entering, logits = model.forward(before + tokens[:-1], 0, {})
    free = logits[len(before) + h * w - 1:].argmax(-1).tolist()
    assert free == tokens[h * w:], "the cache changes nothing"
    print(form, "tokens", tokens, "smallest gap %.3f" % min(gaps))
    recorded[form + ".tokens"] = torch.tensor(tokens, dtype=torch.int32)
    recorded[form + ".logits"] = logits.float()
    recorded[form + ".entering"] = entering.float()


# --- clip tokenizer -----------------------------------------------------------------------------

def haar(x, steps):
    """[3, T, H, W], T = 1 + 4 n -> [3 * 8^steps, ...]: low and high along t, h, w, t slowest."""
    x = torch.cat([x[:, :1].repeat_interleave(2**steps, 1), x[:, 1:]], 1)
    for _ in range(steps):
        bands = [x]
        for axis in (1, 2, 3):
            bands = [half for band in bands for half in halves(band, axis)]
        x = torch.cat(bands, 0) / (2 * math.sqrt(2))
    return x


def halves(x, axis):
    a, b = x.unfold(axis, 2, 2).unbind(-1)
    return [(a + b) / math.sqrt(2), (a - b) / math.sqrt(2)]


def inverse_haar(x, steps):
    for _ in range(steps):
        bands = list(x.chunk(8, 0))
        for axis in (3, 2, 1):
            joined = []
            for low, high in zip(bands[0::2], bands[1::2]):
                pair = torch.stack([(low + high) / math.sqrt(2), (low - high) / math.sqrt(2)], axis + 1)
                shape = list(low.shape)
                shape[axis] *= 2
                joined.append(pair.reshape(shape))
            bands = joined
        x = bands[0] * (2 * math.sqrt(2))
    return x[:, 2**steps - 1:]


class Tokenizer:
    """Maps [C, T, H, W]."""

    def __init__(self, c):
        self.c = c
        self.steps = int(math.log2(c["patch"]))
        self.space = int(math.log2(c["spatial"])) - self.steps
        self.time = int(math.log2(c["temporal"])) - self.steps
        self.widths = [c["channels"] * m for m in c["mult"]]

    def conv(self, name, x, out, kernel, stride=(1, 1), pad=True):
        """Zeros around a frame, the first frame before the clip."""
        kt, k = kernel
        name = "tokenizer." + name + ".conv3d"
        x = torch.cat([x[:, :1].repeat(1, (kt - 1) + (1 - stride[0]), 1, 1), x], 1)
        side = k // 2 if pad else 0
        x = F.pad(x, (side, side, side, side))
        return F.conv3d(x[None], weight(name + ".weight", (out, x.shape[0], kt, k, k)), weight(name + ".bias", (out,)),
                        stride=(stride[0], stride[1], stride[1]))[0]

    def split(self, name, x, out):
        return self.conv(name + ".1", self.conv(name + ".0", x, out, (1, 3)), out, (3, 1))

    def norm(self, name, x):
        name = "tokenizer." + name + ".norm"
        frames = F.group_norm(x.transpose(0, 1), 1, weight(name + ".weight", (len(x),)), weight(name + ".bias", (len(x),)), 1e-6)
        return frames.transpose(0, 1)

    def res(self, name, x, out):
        h = self.split(name + ".conv1", F.silu(self.norm(name + ".norm1", x)), out)
        h = self.split(name + ".conv2", F.silu(self.norm(name + ".norm2", h)), out)
        return h + (x if len(x) == out else self.conv(name + ".nin_shortcut", x, out, (1, 1)))

    def attention(self, name, x, along_time):
        c, t, h, w = x.shape
        n = self.norm(name + ".norm", x)
        q, k, v = (self.conv(f"{name}.{leaf}", n, c, (1, 1)) for leaf in "qkv")
        order = (2, 3, 1, 0) if along_time else (1, 2, 3, 0)
        shape = (h * w, t, c) if along_time else (t, h * w, c)
        q, k, v = (a.permute(order).reshape(shape) for a in (q, k, v))
        scores = q @ k.transpose(1, 2) / math.sqrt(c)
        if along_time:
            scores = scores.masked_fill(~torch.ones(t, t).tril().bool(), -math.inf)
        mixed = scores.softmax(-1) @ v
        mixed = mixed.reshape(h, w, t, c).permute(3, 2, 0, 1) if along_time else mixed.reshape(t, h, w, c).permute(3, 0, 1, 2)
        return x + self.conv(name + ".proj_out", mixed, c, (1, 1))

    def middle(self, side, x):
        x = self.res(side + ".mid.block_1", x, len(x))
        x = self.attention(side + ".mid.attn_1.0", x, False)
        x = self.attention(side + ".mid.attn_1.1", x, True)
        return self.res(side + ".mid.block_2", x, len(x))

    def down(self, name, x, space, time):
        if space:
            x = F.pad(x, (0, 1, 0, 1))
            x = self.conv(name + ".conv1", x, len(x), (1, 3), (1, 2), False) + F.avg_pool3d(x, (1, 2, 2), (1, 2, 2))
        if time:
            x = torch.cat([x[:, :1], x], 1)
            x = self.conv(name + ".conv2", x, len(x), (3, 1), (2, 1)) + F.avg_pool3d(x, (2, 1, 1), (2, 1, 1))
        return self.conv(name + ".conv3", x, len(x), (1, 1)) if space or time else x

    def up(self, name, x, space, time):
        if time:
            if x.shape[1] > 1:
                x = x.repeat_interleave(2, 1)[:, 1:]
            x = self.conv(name + ".conv1", x, len(x), (3, 1)) + x
        if space:
            x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
            x = self.conv(name + ".conv2", x, len(x), (1, 3)) + x
        return self.conv(name + ".conv3", x, len(x), (1, 1)) if space or time else x

    def latents(self, clip):
        x = self.split("encoder.conv_in", haar(clip, self.steps), self.c["channels"])
        last = len(self.widths) - 1
        for level, width in enumerate(self.widths):
            for block in range(self.c["res"]):
                x = self.res(f"encoder.down.{level}.block.{block}", x, width)
            if level < last:
                x = self.down(f"encoder.down.{level}.downsample", x, level < self.space, level < self.time)
        x = self.middle("encoder", x)
        x = self.split("encoder.conv_out", F.silu(self.norm("encoder.norm_out", x)), self.c["z"])
        return self.conv("quant_conv", x, len(self.c["levels"]), (1, 1))

    def quantize(self, z):
        """Latents [6, ...] -> codes; how near the nearest edge between two levels is."""
        code, basis, nearest = 0, 1, 1.0
        for element, levels in zip(z, self.c["levels"]):
            half = (levels - 1) * (1 + 1e-3) / 2
            offset = 0.5 if levels % 2 == 0 else 0.0
            bounded = torch.tanh(element + math.atanh(offset / half)) * half - offset
            nearest = min(nearest, float((bounded - bounded.floor() - 0.5).abs().min()))
            code = code + (bounded.round().long() + levels // 2) * basis
            basis *= levels
        return code, nearest

    def vectors(self, codes):
        out, basis = [], 1
        for levels in self.c["levels"]:
            digit = codes // basis % levels
            out.append((digit - levels // 2).double() / (levels // 2))
            basis *= levels
        return torch.stack(out)

    def decode(self, codes):
        x = self.conv("post_quant_conv", self.vectors(codes), self.c["z"], (1, 1))
        x = self.middle("decoder", self.split("decoder.conv_in", x, self.widths[-1]))
        last = len(self.widths) - 1
        for level in range(last, -1, -1):
            for block in range(self.c["res"] + 1):
                x = self.res(f"decoder.up.{level}.block.{block}", x, self.widths[level])
            if level > 0:
                run = last - level
                time = 0 < run < self.time + 1
                space = time or (run < self.space and self.space > self.time)
                x = self.up(f"decoder.up.{level}.upsample", x, space, time)
        x = F.silu(self.norm("decoder.norm_out", x))
        return inverse_haar(self.split("decoder.conv_out", x, 3 * self.c["patch"] ** 3), self.steps)


def record_tokenizer(recorded):
    tokenizer = Tokenizer(TOKENIZER)
    clip = hashed("clip", (17, 32, 48, 3)).permute(3, 0, 1, 2)
    latents = tokenizer.latents(clip)
    codes, nearest = tokenizer.quantize(latents)
    # A clip that goes on standing still has the same first codes.
    still = torch.cat([clip[:, :9], clip[:, 8:9].repeat(1, 8, 1, 1)], 1)
    assert torch.equal(tokenizer.quantize(tokenizer.latents(still))[0][:2], codes[:2])
    frames = tokenizer.decode(codes)
    assert frames.shape == clip.shape
    print(f"{len(codes.unique())} of {codes.numel()} codes differ, {nearest:.1e} from an edge; "
          f"latents up to {float(latents.abs().max()):.2f}, frames up to {float(frames.abs().max()):.2f}")
    recorded["codes"] = codes.int()
    recorded["latents"] = latents.permute(1, 2, 3, 0).float()
    recorded["frames"] = frames.permute(1, 2, 3, 0)[[0, 1, 8, 9, 16], ::3, ::5].float()
    small = hashed("wavelet", (5, 4, 8, 3)).permute(3, 0, 1, 2)
    bands = haar(small, 2)
    assert (inverse_haar(bands, 2) - small).abs().max() < 1e-12
    recorded["wavelet"] = bands.permute(1, 2, 3, 0).float()


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    recorded = {}
    for form in FORMS:
        record_transformer(form, recorded)
    record_tokenizer(recorded)
    OUT.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous().clone() for k, v in recorded.items()}, OUT / "recorded.safetensors")
    print((OUT / "recorded.safetensors").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
