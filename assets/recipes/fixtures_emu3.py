"""Parity fixture for the Emu3 family, made by `transformers` on a tiny configuration.

Every parameter is randomised; fp32 on the CPU, eager attention. The clip tokenizer is that of tests/golden/movq
(fixtures_movq.py). Writes tests/golden/emu3/: config.json and language.safetensors, the port's tensors but for the
tokenizer's, and recorded.safetensors with a prompt, a negative prompt of
another length, the hidden states of every layer and the visual tokens' logits over the whole guided greedy stream (log-softmax
guidance 3, row ends, grid end, image end and stream end forced), its tokens, the laws of a run's positions under
top-k, and the picture that its codes decode to.

  python assets/recipes/fixtures_emu3.py
"""
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Emu3Config, Emu3ForConditionalGeneration, Emu3TextConfig, Emu3VQVAEConfig

from hashed_weights import weight

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "emu3"
TOKENIZER = OUT.parent / "movq" / "movq.safetensors"
GUIDANCE, TOP_K = 3.0, 20
HIDDEN, GRID, CODES, TEXT = 32, 5, 64, 99
FIRST = TEXT
SPECIALS = {"<image>": 90, "<|extra_200|>": 91, "<|extra_201|>": 92, "<|extra_203|>": 93,
            "<|extra_204|>": 94, "<|image token|>": 95, "<|image start|>": 96, "<|image end|>": 97}
EOL, EOF, EOI, EOS = 91, 92, 97, 94


def config():
    text = Emu3TextConfig(vocab_size=TEXT + CODES, hidden_size=HIDDEN, intermediate_size=48,
                          num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                          max_position_embeddings=128, bos_token_id=93, eos_token_id=94, pad_token_id=0)
    vq = Emu3VQVAEConfig(codebook_size=CODES, embed_dim=4, latent_channels=4, base_channels=32,
                         channel_multiplier=[1, 2], num_res_blocks=2, attn_resolutions=[1], hidden_size=64)
    words = SPECIALS | {f"<|visual token {i:06d}|>": FIRST + i for i in range(CODES)}
    out = Emu3Config(text_config=text, vq_config=vq, vocabulary_map=words)
    out.image_area = (2 * GRID) ** 2
    return out


def randomise(model):
    generator = torch.Generator().manual_seed(20241011)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()) + sorted(model.named_buffers()):
            if not p.dtype.is_floating_point or "inv_freq" in name or ".vqmodel." in name:
                continue
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() < 2:
                p.copy_(1 + 0.3 * noise if name.endswith("weight") else 0.3 * noise)
            elif "embed" in name:
                p.copy_(noise)
            else:
                p.copy_(noise * (1.2 / p[0].numel() ** 0.5))
            p.copy_(p.bfloat16().float())


def forced_id(position):
    """The id that the stream forces behind `position` tokens of it, or None."""
    if position == GRID * (GRID + 1):
        return EOF
    if position == GRID * (GRID + 1) + 1:
        return EOI
    if position == GRID * (GRID + 1) + 2:
        return EOS
    return EOL if (position + 1) % (GRID + 1) == 0 else None


def guided(cond, uncond):
    c, u = torch.log_softmax(cond, -1), torch.log_softmax(uncond, -1)
    return u + GUIDANCE * (c - u)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    c = config()
    c._attn_implementation = "eager"
    model = Emu3ForConditionalGeneration(c).eval().float()
    model.set_attn_implementation("eager")
    randomise(model)
    shapes = {n: t.shape for n, t in model.model.vqmodel.state_dict().items() if t.dtype.is_floating_point}
    tokenizer = {n: (weight(n, shape) * (0.5 if len(shape) > 1 else 1)).float() for n, shape in shapes.items()}
    tokenizer["quantize.embedding.weight"] = load_file(TOKENIZER)["quantize.embedding.weight"].float()
    model.model.vqmodel.load_state_dict(tokenizer, strict=False)
    text = model.model.text_model

    prompt = [93, 17, 42, 63, 8, 77, 30, 96, 5, 10, 5, 95]
    negative = [93, 11, 12, 96, 5, 10, 5, 95]
    tokens, laws, forced = [], [], []
    length = GRID * (GRID + 1) + 3
    logits = lambda ids: model.lm_head(text(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state)[0]
    for position in range(length):
        row = guided(logits(prompt + tokens)[-1], logits(negative + tokens)[-1])
        row[:FIRST] = -torch.inf
        edge = row.topk(TOP_K).values[-1]
        laws.append(torch.softmax(torch.where(row < edge, -torch.inf, row), -1)[FIRST:])
        wanted = forced_id(position)
        forced.append(wanted is not None)
        tokens.append(int(row.argmax()) if wanted is None else wanted)
    codes = [t - FIRST for t in tokens if t >= FIRST]
    assert len(codes) == GRID * GRID
    gaps = torch.stack(laws)[[not f for f in forced]].topk(2).values
    print("tokens", tokens, "smallest gap", float((gaps[:, 0] - gaps[:, 1]).min()))

    recorded = {
        "prompt": torch.tensor(prompt, dtype=torch.int32),
        "negative": torch.tensor(negative, dtype=torch.int32),
        "tokens": torch.tensor(tokens, dtype=torch.int32),
        "laws": torch.stack(laws),
        "pixels": model.model.vqmodel.decode(torch.tensor(codes).reshape(1, GRID, GRID))[0].permute(1, 2, 0),
    }
    for name, ids in (("cond", prompt), ("uncond", negative)):
        out = text(input_ids=torch.tensor([ids + tokens[:-1]]), use_cache=False, output_hidden_states=True)
        for i, states in enumerate(out.hidden_states[:-1]):
            recorded[f"{name}.hidden.{i}"] = states[0]
        recorded[f"{name}.final"] = out.last_hidden_state[0]
        recorded[f"{name}.logits"] = model.lm_head(out.last_hidden_state)[0, :, FIRST:]
    OUT.mkdir(parents=True, exist_ok=True)
    state = {k: v.bfloat16().contiguous() for k, v in model.state_dict().items() if ".vqmodel." not in k}
    save_file(state, OUT / "language.safetensors", {"format": "pt"})
    (OUT / "config.json").write_text(
        json.dumps(json.loads(c.to_json_string(use_diff=False)), indent=1, sort_keys=True) + "\n")
    save_file({k: v.contiguous().clone() for k, v in recorded.items()}, OUT / "recorded.safetensors")


if __name__ == "__main__":
    main()
