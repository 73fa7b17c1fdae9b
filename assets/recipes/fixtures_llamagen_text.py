"""Parity fixture for LlamaGen's text-to-image transformer: tests/golden/llamagen/text.recorded.safetensors.

Our own reference, written from the published description, after the T5EncoderModel of `transformers` (the folder `gated`
of fixtures_t5.py). It does what the authors' sampler does: rows of padding rotated to the front and multiplied by the
mask, 12 places in front of the image in both branches, keys of padding masked but for a row's own, all rotary rows of
these places zero. Weights are no part of the file: each element is a hash of its tensor's name and its place, as
tests/support/hashed_weights.h computes them too. The image tokenizer is the Janus class with LlamaGen's names.

  python assets/recipes/fixtures_llamagen_text.py
"""
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoTokenizer, JanusVQVAE, JanusVQVAEConfig, T5EncoderModel

from hashed_weights import weight

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
TEXT = "a red cube on the gray floor"
PLACES, GRID, CODES, GUIDANCE = 12, 5, 64, 7.5
D, LAYERS, HEADS, FFN = 32, 2, 2, 96
HD = D // HEADS


def features():
    """[PLACES, width] with padding first and zero, the mask, ids."""
    folder = GOLDEN / "t5" / "gated"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoder = T5EncoderModel.from_pretrained(folder, dtype=torch.float32).eval()
    encoder.config._attn_implementation = "eager"
    batch = tokenizer(TEXT, max_length=PLACES, padding="max_length", truncation=True, return_tensors="pt")
    ids, mask = batch["input_ids"], batch["attention_mask"]
    rows = encoder(input_ids=ids, attention_mask=mask).last_hidden_state[0].double()
    count = int(mask.sum())
    rows, mask = torch.cat([rows[count:], rows[:count]]), mask[0].flip(0)
    return rows * mask[:, None], mask.bool(), ids[0, :count]


def rms(x, scale):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * scale


def rotary():
    """cos, sin [PLACES + GRID * GRID, HD / 2]"""
    half = HD // 2
    frequency = 10000.0 ** (-torch.arange(0, half, 2, dtype=torch.float64) / half)
    angle = torch.arange(GRID, dtype=torch.float64)[:, None] * frequency
    table = torch.cat([angle[:, None].expand(GRID, GRID, -1), angle[None].expand(GRID, GRID, -1)], -1).reshape(-1, half)
    zero = torch.zeros(PLACES, half, dtype=torch.float64)
    return torch.cat([zero, table.cos()]), torch.cat([zero, table.sin()])


def turned(x, cos, sin):
    """Neighbouring pairs of x [branches, heads, rows, HD]."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def w(name, *shape):
    return weight(name, shape)


def logits_of(rows, mask):
    """Rows [2, T, D] of both branches -> logits of the last row [2, CODES]."""
    count = rows.shape[1]
    cos, sin = (table[:count] for table in rotary())
    seen = torch.ones(count, count).tril().bool()
    seen[:, :PLACES] &= mask
    seen |= torch.eye(count).bool()
    x = rows
    for i in range(LAYERS):
        layer = f"layers.{i}."
        n = rms(x, w(layer + "attention_norm.weight", D))
        qkv = n @ w(layer + "attention.wqkv.weight", 3 * D, D).T
        q, k, v = (part.reshape(2, count, HEADS, HD).transpose(1, 2) for part in qkv.split(D, -1))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        scores = (q @ k.transpose(-1, -2) / HD ** 0.5).masked_fill(~seen, -float("inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, count, D)
        x = x + mixed @ w(layer + "attention.wo.weight", D, D).T
        n = rms(x, w(layer + "ffn_norm.weight", D))
        gate, up = (n @ w(layer + f"feed_forward.{m}.weight", FFN, D).T for m in ("w1", "w3"))
        x = x + (F.silu(gate) * up) @ w(layer + "feed_forward.w2.weight", D, FFN).T
    return rms(x[:, -1], w("norm.weight", D)) @ w("output.weight", CODES, D).T


def caption(rows):
    own = "cls_embedding.cap_proj."
    inner = F.gelu(rows @ w(own + "fc1.weight", D, rows.shape[-1]).T, approximate="tanh")
    return inner @ w(own + "fc2.weight", D, D).T


def image(tokens):
    config = JanusVQVAEConfig(base_channels=32, channel_multiplier=[1, 1], num_res_blocks=1, embed_dim=4, latent_channels=8,
                              num_embeddings=CODES)
    vq = JanusVQVAE(config).double().eval()
    state = {}
    for name, p in vq.state_dict().items():
        own = name.replace("decoder.up.", "decoder.conv_blocks.").replace("encoder.down.", "encoder.conv_blocks.")
        own = own.replace(".block.", ".res.")
        for new, old in enumerate(("block_1", "attn_1", "block_2")):
            own = own.replace(f".mid.{old}.", f".mid.{new}.")
        state[name] = weight(own, tuple(p.shape))
    vq.load_state_dict(state)
    rows = F.normalize(vq.quantize.embedding.weight[torch.tensor(tokens)], dim=-1)
    grid = rows.reshape(1, GRID, GRID, -1).permute(0, 3, 1, 2)
    pixels = vq.decoder(vq.post_quant_conv(grid))[0].permute(1, 2, 0)
    print("pixels", tuple(pixels.shape), float(pixels.min()), float(pixels.max()))
    scaled = 127.5 * pixels + 128
    edge = (scaled - scaled.round()).abs()[(scaled > 0) & (scaled < 255)].min()
    print("nearest to an edge between levels", float(edge))
    return scaled.clamp(0, 255).to(torch.uint8)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    rows, mask, ids = features()
    learned = w("cls_embedding.uncond_embedding", PLACES, rows.shape[1])
    sequence = caption(torch.stack([rows, learned]))
    tokens, branches, guided = [], [], []
    table = w("tok_embeddings.weight", CODES, D)
    for _ in range(GRID * GRID):
        logits = logits_of(sequence, mask)
        mixed = logits[1] + GUIDANCE * (logits[0] - logits[1])
        token = int(mixed.argmax())
        sequence = torch.cat([sequence, table[token].expand(2, 1, -1)], 1)
        tokens.append(token)
        branches.append(logits)
        guided.append(mixed)
    top = torch.stack(guided).topk(2, -1).values
    print(len(ids), "ids, tokens", tokens, "smallest gap", float((top[:, 0] - top[:, 1]).min()))
    recorded = {"ids": ids.int(), "features": rows[mask].float(), "tokens": torch.tensor(tokens, dtype=torch.int32),
                "head_logits": torch.stack(branches).float(), "guided_logits": torch.stack(guided).float(),
                "image": image(tokens).int()}
    save_file({k: v.contiguous().clone() for k, v in recorded.items()}, GOLDEN / "llamagen" / "text.recorded.safetensors")


if __name__ == "__main__":
    main()
