"""tabletop-llava in plain PyTorch, with the tensor names of published LLaVA-1.5 files.

CLIP ViT with CLS (pre_layrnorm, quick_gelu, patch convolution without bias), projector of two
linear maps with gelu(erf), Llama language model (the blocks of `janus_model`). Features are the
last layer's patch rows, before post_layernorm; CLS is dropped, as `"default"` says. State dicts
of `Llava` can be saved as they are. `VisionHeads` is for training only and is never exported.
"""
from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from janus_model import LanguageModel, rotate
from judge_model import head_sizes
from training_common import ATTRIBUTES, FLOORS, MAX_SOLIDS

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass
class LlavaSizes:
    """What config.json says; the language model's fields are read by `janus_model`'s blocks."""
    image_size: int = 96
    patch_size: int = 8
    vision_width: int = 192
    vision_mlp: int = 512
    vision_layers: int = 6
    vision_heads: int = 3
    vision_eps: float = 1e-5
    vocab_size: int = 384
    hidden_size: int = 192
    intermediate_size: int = 288
    num_hidden_layers: int = 5
    num_attention_heads: int = 3
    head_dim: int = 64
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def side(self) -> int:
        return self.image_size // self.patch_size

    @property
    def tokens(self) -> int:
        return self.side**2


def weights_of(q, k, mask=None):
    """softmax(q k^T + mask), written out: the fused kernel's bf16 backward takes four times as long"""
    scores = q @ k.transpose(-1, -2)
    return torch.softmax(scores if mask is None else scores + mask, -1)


def chosen(rows, keep):
    """rows [B, N, D], keep [B, K] -> [B, K, D]"""
    return rows.gather(1, keep[:, :, None].expand(-1, -1, rows.shape[-1]))


# -------------------------------------------------------------------------------- vision tower
class ClipAttention(nn.Module):
    """Full attention with biases; scores times head_dim^-0.5."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, look=None):
        b, t, d = x.shape
        q, k, v = (m(x).view(b, t, self.heads, d // self.heads).transpose(1, 2)
                   for m in (self.q_proj, self.k_proj, self.v_proj))
        p = weights_of(q * q.shape[-1]**-0.5, k)
        if look is not None:
            look.append(p[:, :, 0].float().mean(1))
        return self.out_proj((p @ v).transpose(1, 2).reshape(b, t, d))


class ClipMlp(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.fc2(F.silu(1.702 * self.fc1(x)) / 1.702)  # quick_gelu: h sigmoid(1.702 h)


class ClipLayer(nn.Module):
    def __init__(self, s: LlavaSizes):
        super().__init__()
        self.self_attn = ClipAttention(s.vision_width, s.vision_heads)
        self.layer_norm1 = nn.LayerNorm(s.vision_width, s.vision_eps)
        self.mlp = ClipMlp(s.vision_width, s.vision_mlp)
        self.layer_norm2 = nn.LayerNorm(s.vision_width, s.vision_eps)

    def forward(self, x, look=None):
        x = x + self.self_attn(self.layer_norm1(x), look)
        return x + self.mlp(self.layer_norm2(x))


class ClipEmbeddings(nn.Module):
    def __init__(self, s: LlavaSizes):
        super().__init__()
        self.class_embedding = nn.Parameter(torch.zeros(s.vision_width))
        self.patch_embedding = nn.Conv2d(3, s.vision_width, s.patch_size, s.patch_size, bias=False)
        self.position_embedding = nn.Embedding(s.tokens + 1, s.vision_width)

    def forward(self, x):
        patches = self.patch_embedding(x).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(len(x), 1, -1)
        return torch.cat((first, patches), 1) + self.position_embedding.weight


class ClipEncoder(nn.Module):
    def __init__(self, s: LlavaSizes):
        super().__init__()
        self.layers = nn.ModuleList(ClipLayer(s) for _ in range(s.vision_layers))


class ClipVision(nn.Module):
    """normalised pixels [B, 3, S, S] -> rows of the last layer [B, 1 + S/P * S/P, D], CLS first.
    Training may keep some patches only, `keep` [B, K] ascending indices. A list `look` receives the
    attention of CLS in every layer, mean over heads: fp32 [B, 1 + tokens]."""

    def __init__(self, s: LlavaSizes):
        super().__init__()
        self.embeddings, self.encoder = ClipEmbeddings(s), ClipEncoder(s)
        self.pre_layrnorm = nn.LayerNorm(s.vision_width, s.vision_eps)
        self.post_layernorm = nn.LayerNorm(s.vision_width, s.vision_eps)

    def forward(self, x, keep=None, look=None):
        rows = self.embeddings(x)
        if keep is not None:
            rows = torch.cat((rows[:, :1], chosen(rows[:, 1:], keep)), 1)
        rows = self.pre_layrnorm(rows)
        for layer in self.encoder.layers:
            rows = layer(rows, look)
        return rows


class VisionTower(nn.Module):
    def __init__(self, s: LlavaSizes):
        super().__init__()
        self.vision_model = ClipVision(s)


class VisionHeads(nn.Module):
    """Training only. CLS, through post_layernorm: the judge's attribute heads. Patch rows, normed
    without weights: which solid covers a patch (0: none), its attributes, the floor."""

    PATCH = [MAX_SOLIDS + 1] + [len(v) for v in ATTRIBUTES.values()] + [len(FLOORS)]

    def __init__(self, width: int):
        super().__init__()
        self.names, self.sizes = list(head_sizes()), list(head_sizes().values())
        self.cls, self.patch = nn.Linear(width, sum(self.sizes)), nn.Linear(width, sum(self.PATCH))
        for head in (self.cls, self.patch):
            nn.init.normal_(head.weight, std=0.1 * width**-0.5)
            nn.init.zeros_(head.bias)

    def of_picture(self, cls_row) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, self.cls(cls_row).float().split(self.sizes, -1)))

    def of_patches(self, rows) -> tuple[torch.Tensor, ...]:
        return self.patch(F.layer_norm(rows, rows.shape[-1:])).float().flatten(0, 1).split(self.PATCH, -1)


# ---------------------------------------------------------------------------------- the whole
class Projector(nn.Module):
    def __init__(self, s: LlavaSizes):
        super().__init__()
        self.linear_1 = nn.Linear(s.vision_width, s.hidden_size)
        self.linear_2 = nn.Linear(s.hidden_size, s.hidden_size)

    def forward(self, x):
        return self.linear_2(F.gelu(self.linear_1(x)))


class LanguageHalf(nn.Module):
    def __init__(self, s: LlavaSizes):
        super().__init__()
        self.model = LanguageModel(s)
        self.lm_head = nn.Linear(s.hidden_size, s.vocab_size, bias=False)


class Llava(nn.Module):
    def __init__(self, s: LlavaSizes):
        super().__init__()
        self.sizes = s
        self.vision_tower, self.multi_modal_projector = VisionTower(s), Projector(s)
        self.language_model = LanguageHalf(s)
        self.reset()

    def reset(self):
        deep = math.sqrt(2 * self.sizes.num_hidden_layers)
        for name, p in self.named_parameters():
            if p.dim() < 2:
                norm = name.endswith(("norm.weight", "norm1.weight", "norm2.weight", "layrnorm.weight"))
                nn.init.ones_(p) if norm else nn.init.zeros_(p)
            elif "embed_tokens" in name:
                nn.init.normal_(p, std=0.5)
            elif "position_embedding" in name:
                with torch.no_grad():
                    p.copy_(0.5 * waves(self.sizes.side, self.sizes.vision_width))
            elif name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight", "fc2.weight")):
                nn.init.normal_(p, std=0.5 * p.shape[1]**-0.5 / deep)
            elif "lm_head" in name:
                nn.init.normal_(p, std=0.5 * p.shape[1]**-0.5)
            else:
                nn.init.normal_(p, std=p[0].numel()**-0.5)
        nn.init.normal_(self.vision_tower.vision_model.embeddings.class_embedding, std=0.5)

    def features(self, pixels, keep=None, look=None):
        """[B, 3, S, S] -> rows [B, 1 + tokens, D]; row 0 is CLS"""
        return self.vision_tower.vision_model(pixels, keep, look)

    def visual_rows(self, rows):
        """what the language model sees: CLS dropped, projected"""
        return self.multi_modal_projector(rows[:, 1:])

    def rope(self, positions, dtype):
        """positions [B, T] -> cos, sin [B, 1, T, hd/2]"""
        half = self.sizes.head_dim // 2
        freq = self.sizes.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = positions[:, None, :, None].float() * freq
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def hidden(self, rows, mask, cos, sin, caches=None):
        """rows [B, T, D] -> normed rows of the last layer; mask additive [B, 1, T, S]"""
        model = self.language_model.model
        for i, layer in enumerate(model.layers):
            rows = rows + attend(layer.self_attn, layer.input_layernorm(rows), mask, cos, sin,
                                 caches[i] if caches else None)
            rows = rows + layer.mlp(layer.post_attention_layernorm(rows))
        return model.norm(rows)


def attend(a, x, mask, cos, sin, cache=None):
    """`janus_model.Attention` with a rotary table for every row of the batch"""
    b, t, _ = x.shape
    q, k, v = (m(x).view(b, t, a.heads, a.head_dim).transpose(1, 2) for m in (a.q_proj, a.k_proj, a.v_proj))
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    if cache is not None:
        k, v = cache.append(k, v)
    y = weights_of(q * a.head_dim**-0.5, k, mask) @ v
    return a.o_proj(y.transpose(1, 2).reshape(b, t, -1))


def waves(side: int, width: int) -> torch.Tensor:
    """start of the position table: sines and cosines of row and column, zero for CLS"""
    quarter = width // 4
    freq = math.pi * torch.exp(torch.linspace(math.log(0.5), math.log(side / 2), quarter))
    place = (torch.arange(side) + 0.5) / side
    angle = place[:, None] * freq
    line = torch.cat((angle.sin(), angle.cos()), 1)
    grid = torch.cat((line[:, None].expand(side, side, -1), line[None].expand(side, side, -1)), 2)
    return torch.cat((torch.zeros(1, width), grid.reshape(side * side, width)))


def normalise(x: torch.Tensor) -> torch.Tensor:
    """fp32 [B, 3, H, W] in [0, 1] -> CLIP's mean and deviation"""
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (CLIP_MEAN, CLIP_STD))
    return (x - mean) / std


# ------------------------------------------------------------------------------------- folders
def hf_config(s: LlavaSizes, ids: dict[str, int]) -> dict:
    """config.json of the Hugging Face LLaVA-1.5 layout; ids: bos, eos, pad, image"""
    special = {"bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["pad"]}
    return {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "torch_dtype": "bfloat16",
        "image_token_index": ids["image"], "image_seq_length": s.tokens, "projector_hidden_act": "gelu",
        "multimodal_projector_bias": True, "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default", "tie_word_embeddings": False, **special,
        "text_config": {
            "model_type": "llama", "vocab_size": s.vocab_size, "hidden_size": s.hidden_size,
            "intermediate_size": s.intermediate_size, "num_hidden_layers": s.num_hidden_layers,
            "num_attention_heads": s.num_attention_heads, "num_key_value_heads": s.num_attention_heads,
            "head_dim": s.head_dim, "hidden_act": "silu", "rms_norm_eps": s.rms_norm_eps,
            "rope_theta": s.rope_theta, "max_position_embeddings": 1024, "attention_bias": False,
            "mlp_bias": False, "tie_word_embeddings": False, **special},
        "vision_config": {
            "model_type": "clip_vision_model", "image_size": s.image_size, "patch_size": s.patch_size,
            "num_channels": 3, "hidden_size": s.vision_width, "intermediate_size": s.vision_mlp,
            "num_hidden_layers": s.vision_layers, "num_attention_heads": s.vision_heads,
            "hidden_act": "quick_gelu", "layer_norm_eps": s.vision_eps, "projection_dim": s.vision_width},
    }


def sizes_of(config: dict) -> LlavaSizes:
    text, vision = config["text_config"], config["vision_config"]
    names = [n for n in asdict(LlavaSizes()) if n in text]
    return LlavaSizes(
        image_size=vision["image_size"], patch_size=vision["patch_size"], vision_width=vision["hidden_size"],
        vision_mlp=vision["intermediate_size"], vision_layers=vision["num_hidden_layers"],
        vision_heads=vision["num_attention_heads"], vision_eps=vision["layer_norm_eps"],
        **{n: text[n] for n in names})


def load_llava(folder: Path, dtype=torch.float32) -> Llava:
    """An exported folder; arithmetic in `dtype` over the stored bf16 weights."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    model = Llava(sizes_of(config))
    model.load_state_dict({n: t.float() for n, t in load_file(str(Path(folder) / "model.safetensors")).items()})
    return model.to(dtype).eval()
