"""The clip tokenizer of `tabletop-video` in plain PyTorch, with the tensor names of the Hugging Face
Emu3 port (Emu3VQVAE): state dicts can be saved as they are.

Frames pass a 2-D encoder one by one; along time two causal convolutions of stride 2 make one code grid
of four frames. Padding in time is two zeros in front, whatever the kernel. The decoder turns codes
and their vectors into four frames each; every norm of it is conditioned on the code vectors
(SpatialNorm: a group norm times one 1x1 convolution of them, plus another).
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class VideoVqConfig:
    codebook_size: int = 512
    embed_dim: int = 16
    latent_channels: int = 16  # equal to embed_dim: the decoder stacks codes and latents
    temporal_downsample_factor: int = 4
    base_channels: int = 32
    channel_multiplier: list[int] = field(default_factory=lambda: [1, 2, 2])
    num_res_blocks: int = 1
    attn_resolutions: list[int] = field(default_factory=lambda: [2])
    hidden_size: int = 64  # of the attention blocks: the width of the deepest level


class Conv3d(nn.Module):
    """Causal: two zero frames in front, the spatial size kept. [B, C, T, H, W]"""

    def __init__(self, c_in, c_out, kernel, stride=(1, 1, 1)):
        super().__init__()
        pads = [k - s for k, s in zip(kernel[1:], stride[1:])]
        self.padding = sum(((p // 2 + p % 2, p // 2) for p in reversed(pads)), ()) + (2, 0)
        self.conv = nn.Conv3d(c_in, c_out, kernel, stride)

    def forward(self, x):
        return self.conv(F.pad(x, self.padding))


class TimeUp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = Conv3d(c, c, (3, 3, 3))

    def forward(self, x):
        return self.conv(x.repeat_interleave(2, dim=2))


class TimeDown(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = Conv3d(c, c, (4, 3, 3), (2, 1, 1))

    def forward(self, x):
        return self.conv(x)


class TimeRes(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm3d(c), Conv3d(c, c, (3, 3, 3))
        self.norm2, self.conv2 = nn.BatchNorm3d(c), Conv3d(c, c, (3, 3, 3))

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(F.silu(self.norm2(h)))


class SpatialNorm(nn.Module):
    def __init__(self, c_code, c):
        super().__init__()
        self.norm_layer = nn.GroupNorm(32, c, eps=1e-6)
        self.conv_y, self.conv_b = nn.Conv2d(c_code, c, 1), nn.Conv2d(c_code, c, 1)
        nn.init.ones_(self.conv_y.bias)
        nn.init.zeros_(self.conv_b.bias)

    def forward(self, x, codes):
        # 1x1 convolutions and nearest resizing commute, and the small grid is cheaper.
        y, b = self.conv_y(codes), self.conv_b(codes)
        size = x.shape[-2:]
        return self.norm_layer(x) * F.interpolate(y, size=size) + F.interpolate(b, size=size)


class PlainNorm(nn.GroupNorm):
    def __init__(self, c):
        super().__init__(32, c, eps=1e-6)

    def forward(self, x, codes=None):
        return super().forward(x)


def norm_of(c, c_code):
    return SpatialNorm(c_code, c) if c_code else PlainNorm(c)


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, c_code=0):
        super().__init__()
        self.norm1, self.conv1 = norm_of(c_in, c_code), nn.Conv2d(c_in, c_out, 3, 1, 1)
        self.norm2, self.conv2 = norm_of(c_out, c_code), nn.Conv2d(c_out, c_out, 3, 1, 1)
        if c_in != c_out:
            self.nin_shortcut = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x, codes=None):
        h = self.conv1(F.silu(self.norm1(x, codes)))
        h = self.conv2(F.silu(self.norm2(h, codes)))
        return (self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x) + h


class Attention(nn.Module):
    """One head over all places of a frame."""

    def __init__(self, c):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(c, c) for _ in range(4))

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.flatten(2).transpose(1, 2)
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        p = torch.softmax(q @ k.transpose(1, 2) * c**-0.5, dim=2)
        return self.out_proj(p @ v).transpose(1, 2).reshape(b, c, h, w)


class Middle(nn.Module):
    def __init__(self, c, c_code=0):
        super().__init__()
        self.block_1, self.block_2 = ResBlock(c, c, c_code), ResBlock(c, c, c_code)
        self.attn_1, self.attn_norm = Attention(c), norm_of(c, c_code)

    def forward(self, x, codes=None):
        x = self.block_1(x, codes)
        x = x + self.attn_1(self.attn_norm(x, codes))
        return self.block_2(x, codes)


class Down(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, 2, 0)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Up(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, 1, 1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0))


class Level(nn.Module):
    def __init__(self, c_in, c_out, blocks, attention, c_code=0):
        super().__init__()
        self.block = nn.ModuleList(ResBlock(c_in if j == 0 else c_out, c_out, c_code) for j in range(blocks))
        kept = blocks if attention else 0
        self.attn = nn.ModuleList(Attention(c_out) for _ in range(kept))
        self.attn_norms = nn.ModuleList(norm_of(c_out, c_code) for _ in range(kept))

    def forward(self, x, codes=None):
        for j, block in enumerate(self.block):
            x = block(x, codes)
            if len(self.attn):
                x = x + self.attn[j](self.attn_norms[j](x, codes))
        return x


class DownBlock(nn.Module):
    def __init__(self, c: VideoVqConfig):
        super().__init__()
        widths = [c.base_channels * m for m in [1, *c.channel_multiplier]]
        self.down = nn.ModuleList()
        for i in range(len(c.channel_multiplier)):
            level = Level(widths[i], widths[i + 1], c.num_res_blocks, i in c.attn_resolutions)
            if i + 1 < len(c.channel_multiplier):
                level.downsample = Down(widths[i + 1])
            self.down.append(level)

    def forward(self, x):
        for level in self.down:
            x = level(x)
            if hasattr(level, "downsample"):
                x = level.downsample(x)
        return x


class UpBlock(nn.Module):
    """`up.{i}` is level i; they run from the deepest to 0."""

    def __init__(self, c: VideoVqConfig):
        super().__init__()
        widths = [c.base_channels * m for m in c.channel_multiplier]
        self.up = nn.ModuleList()
        for i, width in enumerate(widths):
            c_in = widths[min(i + 1, len(widths) - 1)]
            level = Level(c_in, width, c.num_res_blocks + 1, i in c.attn_resolutions, c.embed_dim)
            if i:
                level.upsample = Up(width)
            self.up.append(level)

    def forward(self, x, codes):
        for level in reversed(self.up):
            x = level(x, codes)
            if hasattr(level, "upsample"):
                x = level.upsample(x)
        return x


class VideoEncoder(nn.Module):
    def __init__(self, c: VideoVqConfig):
        super().__init__()
        top, z = c.base_channels * c.channel_multiplier[-1], c.latent_channels
        self.conv_in = nn.Conv2d(3, c.base_channels, 3, 1, 1)
        self.down_block, self.middle_block = DownBlock(c), Middle(top)
        self.norm_out, self.conv_out = PlainNorm(top), nn.Conv2d(top, z, 3, 1, 1)
        steps = int(math.log2(c.temporal_downsample_factor))
        self.time_conv = nn.ModuleList(TimeDown(z) for _ in range(steps))
        self.time_res_stack = nn.ModuleList(TimeRes(z) for _ in range(c.num_res_blocks))

    def forward(self, x):
        """[B, T, 3, H, W] -> [B, z, T / 4, H', W']"""
        b, t = x.shape[:2]
        h = self.middle_block(self.down_block(self.conv_in(x.flatten(0, 1))))
        h = self.conv_out(F.silu(self.norm_out(h)))
        h = h.unflatten(0, (b, t)).transpose(1, 2)
        for layer in self.time_conv:
            h = F.silu(layer(h))
        for layer in self.time_res_stack:
            h = layer(h)
        return h


class VideoDecoder(nn.Module):
    def __init__(self, c: VideoVqConfig):
        super().__init__()
        top, z = c.base_channels * c.channel_multiplier[-1], c.latent_channels
        steps = int(math.log2(c.temporal_downsample_factor))
        self.time_res_stack = nn.ModuleList(TimeRes(z) for _ in range(c.num_res_blocks))
        self.time_conv = nn.ModuleList(TimeUp(z) for _ in range(steps))
        self.conv_in, self.middle_block = nn.Conv2d(z, top, 3, 1, 1), Middle(top, c.embed_dim)
        self.up_block = UpBlock(c)
        width = c.base_channels * c.channel_multiplier[0]
        self.norm_out, self.conv_out = SpatialNorm(c.embed_dim, width), nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, z, codes):
        """both [B, z, t, H', W'] -> [B * 4 t, 3, H, W]"""
        h = torch.cat((z, codes))
        for layer in self.time_res_stack:
            h = layer(h)
        for layer in self.time_conv:
            h = F.silu(layer(h))
        h, codes = (part.transpose(1, 2).flatten(0, 1) for part in h.chunk(2))
        h = self.up_block(self.middle_block(self.conv_in(h), codes), codes)
        return self.conv_out(F.silu(self.norm_out(h, codes)))


class Quantizer(nn.Module):
    def __init__(self, c: VideoVqConfig):
        super().__init__()
        self.embedding = nn.Embedding(c.codebook_size, c.embed_dim)


class VideoVq(nn.Module):
    """frames [B, T, 3, H, W] in [-1, 1] <-> codes [B, T / 4, H / 4, W / 4]"""

    def __init__(self, c: VideoVqConfig):
        super().__init__()
        self.config = c
        self.encoder, self.decoder, self.quantize = VideoEncoder(c), VideoDecoder(c), Quantizer(c)
        self.quant_conv = Conv3d(c.latent_channels, c.embed_dim, (3, 1, 1))
        self.post_quant_conv = Conv3d(c.embed_dim, c.latent_channels, (3, 1, 1))

    def latents(self, frames):
        """[B, t, H', W', embed_dim], fp32"""
        return self.quant_conv(self.encoder(frames)).permute(0, 2, 3, 4, 1).float()

    def nearest(self, z):
        """z [N, embed_dim] -> squared distances less |z|^2, [N, V]"""
        book = self.quantize.embedding.weight.float()
        return book.square().sum(1) - 2 * z @ book.t()

    def encode(self, frames):
        z = self.latents(frames)
        return self.nearest(z.flatten(0, 3)).argmin(1).view(z.shape[:-1])

    def decode_latents(self, q):
        """q [B, t, H', W', embed_dim] -> [B, 4 t, 3, H, W]"""
        q = q.permute(0, 4, 1, 2, 3).to(self.post_quant_conv.conv.weight.dtype).contiguous()
        frames = self.decoder(self.post_quant_conv(q), q)
        return frames.unflatten(0, (q.shape[0], -1))

    def decode(self, codes):
        return self.decode_latents(F.embedding(codes, self.quantize.embedding.weight))
