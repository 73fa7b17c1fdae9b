"""LlamaGen drawn at random, with what its authors' own code makes of it: tests/golden/authors_llamagen/models.json.

The code is that of FoundationVision/LlamaGen at commit ce98ec4, with `ftfy`, `beautifulsoup4`, `accelerate` and
`einops` of PyPI: ModelArgs, Transformer and generate() by class and by text, T5Embedder and the left padding of its
sampler, VQModel and decode_code(); fp32, CPU. Their image tokenizers have 128 channels at the first level; here their
Encoder and Decoder are made with fewer. Their cache has no place for fewer heads of keys than of queries, so such
models run without it. Weights are hashes of names (hashed_weights.py) and no part of the file.

  PYTHONPATH=LLAMAGEN python assets/recipes/fixtures_authors_llamagen.py COUNT
"""
import json
import random
import sys
import warnings
from pathlib import Path

import torch
from autoregressive.models.generate import generate
from autoregressive.models.gpt import ModelArgs, Transformer
from language.t5 import T5Embedder
from tokenizer.tokenizer_image.vq_model import Decoder, Encoder, VQModel
from tokenizer.tokenizer_image.vq_model import ModelArgs as VqArgs

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hashed_weights import weight  # noqa: E402

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
OUT = GOLDEN / "authors_llamagen" / "models.json"
WORDS = ("a", "the", "red", "Blue", "green", "cube", "sphere", "on", "in", "photo", "of", "CAT", "dog", "small",
         "large", "floor", "gray", "shiny", "#7", "(small)", "dog.", "cat,", "x-y", "and", "\u00e9t\u00e9")
LEAST_GAP = 2e-3


def one(r, *values):
    return values[r.randrange(len(values))]


def draw(number):
    """Keys of ModelArgs, the image tokenizer's sizes, a prompt."""
    r = random.Random(f"llamagen {number}")
    text = number % 2 == 1
    heads = one(r, 1, 2, 3, 4, 6)
    keys = {"n_layer": one(r, 1, 2, 3), "n_head": heads, "dim": heads * one(r, 4, 8, 12, 16, 20),
            "vocab_size": one(r, 24, 64, 150), "multiple_of": one(r, 1, 8, 16, 32, 256),
            "block_size": one(r, 2, 3, 4, 5) ** 2, "model_type": "t2i" if text else "c2i"}
    if r.random() < 0.4:
        keys["n_kv_head"] = one(r, *(k for k in range(1, heads + 1) if heads % k == 0))
    if r.random() < 0.4:
        keys["ffn_dim_multiplier"] = one(r, 0.35, 0.7, 1.3, 2.0)
    if r.random() < 0.4:
        keys["rope_base"] = one(r, 10, 100, 500000, 33.5)
    if r.random() < 0.4:
        keys["norm_eps"] = one(r, 1e-6, 1e-3, 0.05)
    spec = {"keys": keys, "guidance": one(r, 1.0, 1.5, 4.0, 7.5)}
    if text:
        keys["block_size"] = min(keys["block_size"], 16)
        encoder = one(r, "gated", "relu")
        # Their unconditional rows are 120 whatever the configuration says.
        keys.update(cls_token_num=120, caption_dim={"gated": 32, "relu": 24}[encoder])
        words = [one(r, *WORDS) for _ in range(one(r, 1, 3, 10, 30))]
        spec.update(encoder=encoder, prompt=" ".join(words))
    else:
        keys["num_classes"] = one(r, 1, 2, 10, 33)
        spec["prompt"] = str(one(r, 0, keys["num_classes"] - 1, r.randrange(keys["num_classes"])))
    levels = one(r, [1], [1, 1], [1, 2], [1, 1, 2], [1, 2, 2])
    spec["vq"] = {"channels": 32, "multipliers": levels, "latent": one(r, 4, 8, 16), "embed_dim": one(r, 2, 4, 8),
                  "blocks": one(r, 1, 2)}
    if r.random() < 0.2:
        spec["vq"]["codebook_l2_norm"] = False
    return spec


def fill(model):
    """Hashes for all weights and for the buffers that are saved; the use of codes stays 0."""
    for name, tensor in model.state_dict().items():
        if not name.endswith("codebook_used"):
            tensor.copy_(weight(name, tuple(tensor.shape)).float())


@torch.no_grad()
def models(spec):
    gpt = Transformer(ModelArgs(**spec["keys"])).eval()
    vq, levels = spec["vq"], spec["vq"]["multipliers"]
    image = VQModel(VqArgs(codebook_size=spec["keys"]["vocab_size"], codebook_embed_dim=vq["embed_dim"],
                           codebook_l2_norm=vq.get("codebook_l2_norm", True), z_channels=vq["latent"],
                           encoder_ch_mult=levels, decoder_ch_mult=levels))
    for name, made in (("encoder", Encoder), ("decoder", Decoder)):
        setattr(image, name, made(ch=vq["channels"], ch_mult=levels, num_res_blocks=vq["blocks"],
                                  z_channels=vq["latent"]))
    fill(gpt)
    fill(image.eval())
    return gpt, image


def text_rows(spec):
    """What the sampler gives generate() for a text: rows and their mask, padding first. None: it would be cut."""
    count = spec["keys"]["cls_token_num"]
    embedder = T5Embedder("cpu", spec["encoder"], local_cache=True, cache_dir=str(GOLDEN / "t5"),
                          torch_dtype=torch.float32, model_max_length=count)
    ids = embedder.tokenizer(embedder.text_preprocessing(spec["prompt"]))["input_ids"]
    if not 1 < len(ids) <= count:
        return None
    rows, mask = embedder.get_text_embeddings([spec["prompt"]])
    valid = int(mask.sum())
    rows, mask = torch.cat([rows[0, valid:], rows[0, :valid]])[None], torch.flip(mask, dims=[-1])
    return rows * mask[:, :, None], mask


class Watched:
    """generate() asks this for logits; how far the best is ahead at least."""

    def __init__(self, model, guidance):
        self.model, self.guidance, self.gap = model, guidance, float("inf")

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, *args, **kwargs):
        logits, loss = self.model(*args, **kwargs)
        last = logits[:, -1]
        if self.guidance > 1:
            last = last[1:] + (last[:1] - last[1:]) * self.guidance
        best = last[0].topk(2).values
        self.gap = min(self.gap, float(best[0] - best[1]))
        return logits, loss


@torch.no_grad()
def uncached(model, cond, steps, mask, guidance):
    """generate() without a cache: the model's own forward() over the whole sequence."""
    count = cond.shape[1] if model.model_type == "t2i" else 1
    if guidance > 1:
        of_text = mask is not None
        null = model.cls_embedding.uncond_embedding[None] if of_text else torch.full_like(cond, model.num_classes)
        cond = torch.cat([cond, null])
    seen = torch.ones(count + steps, count + steps).tril().bool()
    if mask is not None:
        seen[:, :count] &= mask.bool()
        seen |= torch.eye(count + steps).bool()
    tokens, gap = torch.zeros(len(cond), 0, dtype=torch.long), float("inf")
    for step in range(steps):
        total = count + step
        logits, _ = model(tokens, cond, input_pos=torch.arange(total), mask=seen[None, None, :total, :total])
        last = logits[:, -1]
        if guidance > 1:
            last = last[1:] + (last[:1] - last[1:]) * guidance
        best = last[0].topk(2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        tokens = torch.cat([tokens, best.indices[:1].expand(len(cond), 1)], 1)
    return tokens[:1], gap


@torch.no_grad()
def run(spec):
    """Greedy tokens, how far the best was ahead, the image's levels [rows, columns, 3] before they are cut to bytes."""
    gpt, vq = models(spec)
    keys, guidance = spec["keys"], spec["guidance"]
    cond, mask = torch.tensor([int(spec["prompt"])]) if keys["model_type"] == "c2i" else None, None
    if cond is None:
        rows = text_rows(spec)
        if rows is None:
            return None
        cond, mask = rows
    if keys.get("n_kv_head", keys["n_head"]) == keys["n_head"]:
        watched = Watched(gpt, guidance)
        tokens = generate(watched, cond, keys["block_size"], mask, cfg_scale=guidance, temperature=1.0, top_k=1,
                          sample_logits=False)
        gap = watched.gap
    else:
        tokens, gap = uncached(gpt, cond, keys["block_size"], mask, guidance)
    side = round(keys["block_size"] ** 0.5)
    pixels = vq.decode_code(tokens, [1, spec["vq"]["embed_dim"], side, side])
    levels = torch.clamp(127.5 * pixels + 128.0, 0, 255)[0].permute(1, 2, 0)
    return tokens[0].tolist(), gap, levels


def drawn(count):
    """Draws whose greedy tokens do not hang on the last bits, with their numbers."""
    number = 0
    while count:
        spec = draw(number)
        result = run(spec)
        if result and result[1] >= LEAST_GAP and len(set(result[0])) >= min(3, len(result[0])):
            count -= 1
            yield number, spec, result
        number += 1


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = []
    for number, spec, (tokens, gap, levels) in drawn(int(sys.argv[1])):
        rows.append({"number": number, **spec, "tokens": tokens, "pixels": levels.to(torch.uint8).flatten().tolist()})
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
