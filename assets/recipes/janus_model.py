"""The tabletop models in plain PyTorch, with the tensor names of the Hugging Face Janus port.

VQ autoencoder: taming/LlamaGen graph (GroupNorm 32, eps 1e-6, swish, attention after every block
of the deepest level and in the middle, right/bottom zero pad before the stride-2 convolution,
nearest upsampling; code vectors and latents are L2-normalised). Language model: pre-norm Llama
(RMSNorm, half-split rotary pairs, SwiGLU, no biases, untied heads) with Janus's small embedding,
aligner and head for picture codes. State dicts can be saved as they are: no renaming on export.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


# --------------------------------------------------------------------------- VQ autoencoder
@dataclass
class VqConfig:
    base_channels: int = 32
    channel_multiplier: list[int] = field(default_factory=lambda: [1, 2, 4])
    num_res_blocks: int = 1
    latent_channels: int = 64
    embed_dim: int = 8
    num_embeddings: int = 512


def swish(x: torch.Tensor) -> torch.Tensor:
    return F.silu(x)


def group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(32, channels, eps=1e-6)


class ResBlock(nn.Module):
    """GN, swish, conv3x3, GN, swish, conv3x3; identity or 1x1 skip. [B, C, H, W]"""

    def __init__(self, c_in: int, c_out: int):
        super().__init__()
        self.norm1, self.conv1 = group_norm(c_in), nn.Conv2d(c_in, c_out, 3, 1, 1)
        self.norm2, self.conv2 = group_norm(c_out), nn.Conv2d(c_out, c_out, 3, 1, 1)
        if c_in != c_out:
            self.nin_shortcut = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x):
        h = self.conv1(swish(self.norm1(x)))
        h = self.conv2(swish(self.norm2(h)))
        return (self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x) + h


class AttnBlock(nn.Module):
    """One head over all H*W places, width C, scores scaled by C^-0.5."""

    def __init__(self, c: int):
        super().__init__()
        self.norm = group_norm(c)
        self.q, self.k, self.v = (nn.Conv2d(c, c, 1) for _ in range(3))
        self.proj_out = nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        n = self.norm(x)
        q, k, v = (m(n).reshape(b, c, h * w) for m in (self.q, self.k, self.v))
        p = torch.softmax(torch.bmm(q.transpose(1, 2), k) * c**-0.5, dim=2)
        return x + self.proj_out(torch.bmm(v, p.transpose(1, 2)).reshape(b, c, h, w))


class Downsample(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, 2, 0)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Upsample(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, 1, 1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Mid(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.block_1, self.attn_1, self.block_2 = ResBlock(c, c), AttnBlock(c), ResBlock(c, c)

    def forward(self, x):
        return self.block_2(self.attn_1(self.block_1(x)))


class Level(nn.Module):
    def __init__(self, c_in: int, c_out: int, blocks: int, attention: bool):
        super().__init__()
        self.block = nn.ModuleList(ResBlock(c_in if j == 0 else c_out, c_out) for j in range(blocks))
        self.attn = nn.ModuleList(AttnBlock(c_out) for _ in range(blocks if attention else 0))

    def forward(self, x):
        for j, block in enumerate(self.block):
            x = block(x)
            if len(self.attn):
                x = self.attn[j](x)
        return x


class Encoder(nn.Module):
    def __init__(self, c: VqConfig):
        super().__init__()
        mult, ch = c.channel_multiplier, c.base_channels
        self.conv_in = nn.Conv2d(3, ch, 3, 1, 1)
        self.down = nn.ModuleList()
        for i, m in enumerate(mult):
            last = i == len(mult) - 1
            level = Level(ch * mult[max(i - 1, 0)] if i else ch, ch * m, c.num_res_blocks, last)
            if not last:
                level.downsample = Downsample(ch * m)
            self.down.append(level)
        top = ch * mult[-1]
        self.mid, self.norm_out = Mid(top), group_norm(top)
        self.conv_out = nn.Conv2d(top, c.latent_channels, 3, 1, 1)

    def forward(self, x):
        x = self.conv_in(x)
        for level in self.down:
            x = level(x)
            if hasattr(level, "downsample"):
                x = level.downsample(x)
        return self.conv_out(swish(self.norm_out(self.mid(x))))


class Decoder(nn.Module):
    """`up.{k}` is stored in execution order: 0 is the deepest level."""

    def __init__(self, c: VqConfig):
        super().__init__()
        mult, ch = c.channel_multiplier, c.base_channels
        top = ch * mult[-1]
        self.conv_in, self.mid = nn.Conv2d(c.latent_channels, top, 3, 1, 1), Mid(top)
        self.up = nn.ModuleList()
        width = top
        for i in reversed(range(len(mult))):
            level = Level(width, ch * mult[i], c.num_res_blocks + 1, i == len(mult) - 1)
            width = ch * mult[i]
            if i:
                level.upsample = Upsample(width)
            self.up.append(level)
        self.norm_out, self.conv_out = group_norm(width), nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, z):
        x = self.mid(self.conv_in(z))
        for level in self.up:
            x = level(x)
            if hasattr(level, "upsample"):
                x = level.upsample(x)
        return self.conv_out(swish(self.norm_out(x)))


class Quantizer(nn.Module):
    def __init__(self, c: VqConfig):
        super().__init__()
        self.embedding = nn.Embedding(c.num_embeddings, c.embed_dim)
        nn.init.normal_(self.embedding.weight)


class VqModel(nn.Module):
    """pixels [B, 3, H, W] in [-1, 1] <-> codes [B, H/4, W/4]"""

    def __init__(self, c: VqConfig):
        super().__init__()
        self.config = c
        self.encoder, self.decoder, self.quantize = Encoder(c), Decoder(c), Quantizer(c)
        self.quant_conv = nn.Conv2d(c.latent_channels, c.embed_dim, 1)
        self.post_quant_conv = nn.Conv2d(c.embed_dim, c.latent_channels, 1)

    def latents(self, pixels):
        """unit vectors [B, H', W', embed_dim], fp32"""
        z = self.quant_conv(self.encoder(pixels))
        return F.normalize(z.permute(0, 2, 3, 1).float(), dim=-1, eps=1e-12)

    def codebook(self):
        return F.normalize(self.quantize.embedding.weight.float(), dim=-1, eps=1e-12)

    def encode(self, pixels):
        return (self.latents(pixels) @ self.codebook().t()).argmax(-1)

    def decode_latents(self, q):
        q = q.permute(0, 3, 1, 2).contiguous().to(self.post_quant_conv.weight.dtype)
        return self.decoder(self.post_quant_conv(q))

    def decode(self, codes):
        return self.decode_latents(F.embedding(codes, self.codebook()))


# --------------------------------------------------------------------------- language model
@dataclass
class LmConfig:
    vocab_size: int = 512
    hidden_size: int = 256
    intermediate_size: int = 640
    num_hidden_layers: int = 6
    num_attention_heads: int = 4
    head_dim: int = 64
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    num_embeddings: int = 512  # picture codes
    embed_dim: int = 8


class RmsNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return y.to(x.dtype) * self.weight


def rotate(x, cos, sin):
    """half-split rotary pairs; x [B, H, T, hd], cos and sin [T, hd/2]"""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self, c: LmConfig):
        super().__init__()
        width = c.num_attention_heads * c.head_dim
        self.heads, self.head_dim = c.num_attention_heads, c.head_dim
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(c.hidden_size, width, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(width, c.hidden_size, bias=False)

    def forward(self, x, cos, sin, mask, cache=None, parts: int = 1):
        """mask: additive [B or 1, 1, T, S]; parts: split queries so that early ones skip late keys"""
        b, t, _ = x.shape
        q, k, v = (m(x).view(b, t, self.heads, self.head_dim).transpose(1, 2)
                   for m in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin) * self.head_dim**-0.5, rotate(k, cos, sin)
        if cache is not None:
            k, v = cache.append(k, v)
        outs, step = [], -(-t // parts)
        for lo in range(0, t, step):
            hi = min(lo + step, t)
            end = hi if parts > 1 else k.shape[2]
            s = q[:, :, lo:hi] @ k[:, :, :end].transpose(-1, -2)
            p = torch.softmax(s + mask[:, :, lo:hi, :end], -1)
            outs.append(p @ v[:, :, :end])
        y = torch.cat(outs, 2) if len(outs) > 1 else outs[0]
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, c: LmConfig):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: LmConfig):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x, cos, sin, mask, cache=None, parts: int = 1):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask, cache, parts)
        return x + self.mlp(self.post_attention_layernorm(x))


class LanguageModel(nn.Module):
    def __init__(self, c: LmConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = RmsNorm(c.hidden_size, c.rms_norm_eps)


class Aligner(nn.Module):
    def __init__(self, c_in: int, width: int):
        super().__init__()
        self.fc1 = nn.Linear(c_in, width)
        self.hidden_layers = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x):
        return self.hidden_layers[0](F.gelu(self.fc1(x)))


class Head(nn.Module):
    def __init__(self, width: int, codes: int):
        super().__init__()
        self.proj_out, self.vision_head = nn.Linear(width, width), nn.Linear(width, codes)

    def forward(self, x):
        return self.vision_head(F.gelu(self.proj_out(x)))


class JanusLm(nn.Module):
    """Everything of Janus but the VQ model; names carry the port's `model.` prefix on export."""

    def __init__(self, c: LmConfig):
        super().__init__()
        self.config = c
        self.language_model = LanguageModel(c)
        self.generation_embeddings = nn.Embedding(c.num_embeddings, c.embed_dim)
        self.generation_aligner = Aligner(c.embed_dim, c.hidden_size)
        self.generation_head = Head(c.hidden_size, c.num_embeddings)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        self.reset()

    def reset(self):
        width = self.config.hidden_size
        for name, p in self.named_parameters():
            if name == "generation_embeddings.weight":
                nn.init.normal_(p, std=1.0)
            elif p.dim() < 2:
                nn.init.ones_(p) if name.endswith("norm.weight") else nn.init.zeros_(p)
            elif "embed_tokens" in name:
                nn.init.normal_(p, std=0.5)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(p, std=0.5 * p.shape[1]**-0.5 / math.sqrt(2 * self.config.num_hidden_layers))
            elif "vision_head" in name or "lm_head" in name:
                nn.init.normal_(p, std=0.5 * width**-0.5)
            else:
                nn.init.normal_(p, std=p.shape[1]**-0.5)

    def rope(self, length: int, dtype, start: int = 0):
        half = self.config.head_dim // 2
        freq = self.config.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = torch.arange(start, start + length, dtype=torch.float32)[:, None] * freq
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def embed(self, text, codes):
        """[B, T] text ids (and [B, N] codes) -> rows [B, T + N, D]"""
        rows = self.language_model.embed_tokens(text)
        if codes is not None and codes.shape[1]:
            pictures = self.generation_aligner(self.generation_embeddings(codes))
            rows = torch.cat((rows, pictures), 1)
        return rows

    def hidden(self, rows, mask, cos, sin, caches=None, parts: int = 1, tap: int = 0):
        """normed rows of the last layer; with `tap`, also the raw rows after that many layers"""
        tapped = None
        for i, layer in enumerate(self.language_model.layers):
            rows = layer(rows, cos, sin, mask, caches[i] if caches else None, parts)
            tapped = rows if i + 1 == tap else tapped
        return (self.language_model.norm(rows), tapped) if tap else self.language_model.norm(rows)


def causal_mask(pad_left, length: int, dtype):
    """additive [B, 1, T, T]: causal, and the first pad_left[b] keys of row b hidden from all others"""
    place = torch.arange(length)
    hidden = place[None, :] > place[:, None]
    hidden = hidden[None] | (place[None, None, :] < pad_left[:, None, None])
    hidden &= ~torch.eye(length, dtype=torch.bool)
    return torch.where(hidden, -30000.0, 0.0).to(dtype)[:, None]


class Cache:
    """K and V of one layer, preallocated: [B, H, capacity, hd]"""

    def __init__(self, batch: int, c: LmConfig, capacity: int, dtype):
        shape = (batch, c.num_attention_heads, capacity, c.head_dim)
        self.k, self.v, self.length = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype), 0

    def append(self, k, v):
        lo, self.length = self.length, self.length + k.shape[2]
        self.k[:, :, lo:self.length], self.v[:, :, lo:self.length] = k, v
        return self.k[:, :, :self.length], self.v[:, :, :self.length]
