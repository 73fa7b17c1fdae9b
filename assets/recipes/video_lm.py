"""The clip writer of `tabletop-video` in plain PyTorch: a Llama over one vocabulary, text below, codes
last, with the tensor names of the Hugging Face Emu3 port below `model.text_model.` (`lm_head` beside).
"""
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from janus_model import Layer, RmsNorm

BOS, EOS, PAD = "<|extra_203|>", "<|extra_204|>", "<|endoftext|>"
BEGIN_IMAGE, END_IMAGE, IMAGE = "<|image start|>", "<|image end|>", "<|image token|>"
SPECIALS = [PAD, BOS, EOS, BEGIN_IMAGE, END_IMAGE, IMAGE]


def clip_prompt(caption: str, grid) -> str:
    """What stands before the codes of a clip of `grid` = (T, H, W)"""
    return f"{BOS}{caption}{BEGIN_IMAGE}{'*'.join(str(n) for n in grid)}{IMAGE}"


def visual_token(code: int) -> str:
    return f"<|visual token {code:06d}|>"


@dataclass
class ClipLmConfig:
    vocab_size: int = 960
    first_code: int = 448  # ids from here on are codes
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 5
    num_attention_heads: int = 3
    head_dim: int = 64
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0


class ClipLm(nn.Module):
    def __init__(self, c: ClipLmConfig):
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        self.reset()

    def reset(self):
        for name, p in self.named_parameters():
            if p.dim() < 2:
                nn.init.ones_(p)
            elif "embed_tokens" in name:
                nn.init.normal_(p, std=0.5)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(p, std=0.5 * p.shape[1]**-0.5 / math.sqrt(2 * self.config.num_hidden_layers))
            elif "lm_head" in name:
                nn.init.normal_(p, std=0.5 * p.shape[1]**-0.5)
            else:
                nn.init.normal_(p, std=p.shape[1]**-0.5)

    @torch.no_grad()
    def begin_codes(self, book):
        """Codes that look alike begin alike: entries [codes, d] of the clip tokenizer, turned at random"""
        book = nn.functional.normalize(book.float(), dim=-1)
        turned = book @ torch.randn(book.shape[1], self.config.hidden_size)
        self.embed_tokens.weight[self.config.first_code:] = 0.5 * turned
        self.lm_head.weight[self.config.first_code:] = 0.5 * turned * self.config.hidden_size**-0.5

    def hidden(self, ids, mask, parts: int = 2, tap: int = 0):
        """ids [B, N], mask additive [B, 1, N, N] -> normed rows [B, N, D], and rows before layer `tap`"""
        half, dtype = self.config.head_dim // 2, self.lm_head.weight.dtype
        freq = self.config.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = torch.arange(ids.shape[1], dtype=torch.float32)[:, None] * freq
        cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        rows = middle = self.embed_tokens(ids)
        for i, layer in enumerate(self.layers):
            if i == tap:
                middle = rows
            rows = layer(rows, cos, sin, mask, None, parts)
        return self.norm(rows), middle

    def code_logits(self, rows):
        """[B, N, D] -> logits over codes alone"""
        return rows @ self.lm_head.weight[self.config.first_code:].t()
