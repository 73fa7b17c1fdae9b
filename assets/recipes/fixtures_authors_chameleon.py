"""Releases of Chameleon's authors with what their own code makes of them.

Configurations are drawn by a seed. Prompts, the loop of its three branches, constraint and pictures are those of
facebookresearch/chameleon at dbbe47f, greedy. Parts of xformers that it needs are plain torch here. Images have 32 x 32
codes in their code; smaller numbers are put in the place of those.

  python fixtures_authors_chameleon.py CHAMELEON SCRATCH COUNT          # writes tests/golden/authors_chameleon
  python fixtures_authors_chameleon.py CHAMELEON SCRATCH COUNT wide  # of more kinds; weights, wanted.png, no golden
"""
import base64
import inspect
import json
import random
import sys
import types
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, sys.argv[1])
import fixtures_folders as ff  # noqa: E402
from folder_draws import one  # noqa: E402

# --- xformers --------------------------------------------------------------------------------------


class RMSNorm(torch.nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class PaddedKeys:
    """Sequences one after another; keys of each in a part of the cache of its own."""

    @classmethod
    def from_seqlens(cls, q_seqlen, kv_seqlen, kv_padding):
        out = cls()
        start = torch.tensor([0, *q_seqlen]).cumsum(0)
        out.q_seqinfo = types.SimpleNamespace(seqstart=start, max_seqlen=max(q_seqlen), seqstart_py=start.tolist())
        out.k_seqinfo = types.SimpleNamespace(seqlen=torch.tensor(kv_seqlen))
        out.padding = kv_padding
        return out

    def parts(self):
        """Rows of queries, first key in the cache, keys."""
        start = self.q_seqinfo.seqstart.tolist()
        for i, keys in enumerate(self.k_seqinfo.seqlen.tolist()):
            yield slice(start[i], start[i + 1]), i * self.padding, keys


def turned(x, positions, theta):
    """Neighbours in pairs."""
    half = x.shape[-1] // 2
    angles = positions[:, None].float() * theta ** (-torch.arange(half).float() / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def rope_padded(xq, xk, xv, cache_k, cache_v, attn_bias, theta):
    out = torch.empty_like(xq)
    for rows, first, keys in attn_bias.parts():
        count = rows.stop - rows.start
        places = torch.arange(keys - count, keys)
        out[0, rows] = turned(xq[0, rows], places, theta)
        cache_k[0, first + keys - count:first + keys] = turned(xk[0, rows], places, theta)
        cache_v[0, first + keys - count:first + keys] = xv[0, rows]
    return out


def attention(xq, cache_k, cache_v, attn_bias):
    """[1, rows, key heads, heads of each, width]"""
    out = torch.empty_like(xq)
    for rows, first, keys in attn_bias.parts():
        count = rows.stop - rows.start
        q = xq[0, rows].permute(1, 2, 0, 3)
        k, v = (cache[0, first:first + keys].permute(1, 2, 0, 3) for cache in (cache_k, cache_v))
        seen = torch.ones(count, keys, dtype=torch.bool).tril(keys - count)
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf)
        out[0, rows] = (scores.softmax(-1) @ v).permute(2, 0, 1, 3)
    return out


def put_in_place():
    names = ("xformers", "xformers.ops", "xformers.ops.fmha", "xformers.ops.fmha.attn_bias")
    ops, fmha, bias = (types.ModuleType(name) for name in names[1:])
    ops.RMSNorm, ops.fmha, ops.rope_padded = RMSNorm, fmha, rope_padded
    fmha.memory_efficient_attention_forward, fmha.attn_bias = attention, bias
    bias.BlockDiagonalCausalWithOffsetPaddedKeysMask = PaddedKeys
    sys.modules.update(zip(names, (types.ModuleType(names[0]), ops, fmha, bias)))


put_in_place()
from chameleon.inference import chameleon, image_tokenizer, model_adapter  # noqa: E402
from chameleon.inference.transformer import ModelArgs, Transformer  # noqa: E402

# --- draws -----------------------------------------------------------------------------------------

OUT = ff.OUT.parent / "authors_chameleon"
CODES, LEAST_GAP, SALTS, WIDE = 64, 0.005, 40, len(sys.argv) > 4
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
CONTROL = ["<eoss>", "<racm3:break>", "<reserved08706>", "<reserved08707>"]
PROMPTS = ["A red cube on a table", "two cats", " a dog\nunder the rain \n", "Night, \"neon\"", "x", "\u00e9t\u00e9 \u732b",
           "a </s> sign", "<reserved08706> turn", "  two  spaces\t"]


def code_name(code):
    return "IMGIMG" + "".join("ABCDEFGHIJ"[int(digit)] for digit in str(code)) + "Z"


def vocabulary():
    words = SPECIAL + [code_name(code) for code in range(CODES)] + CONTROL + ff.byte_letters()
    return {word: i for i, word in enumerate(words)}


WORDS = vocabulary()


def draw(number):
    r = random.Random(f"authors chameleon {number}")
    heads = one(r, 2, 4)
    grid = one(r, 2, 3, 4, 5)
    model = {"dim": 32, "n_layers": one(r, 1, 2), "n_heads": heads, "vocab_size": len(WORDS), "multiple_of": one(r, 8, 48, 256),
             "norm_eps": one(r, 1e-5, 1e-6), "rope_theta": one(r, 1e4, 1e3), "qk_normalization": r.random() < 0.8,
             "swin_norm": r.random() < 0.4}
    if r.random() < 0.5:
        model["n_kv_heads"] = one(r, 1, heads)
    if r.random() < 0.5:
        model["ffn_dim_multiplier"] = one(r, 1.3, 0.5, 1.0)
    levels = one(r, [1, 2], [1, 1, 2], [1, 2, 2]) if WIDE else [1, 2]
    return {"model": model, "levels": levels, "blocks": one(r, 1, 2) if WIDE else 1, "attend": r.random() < 0.5, "grid": grid,
            "latent": one(r, 8, 16) if WIDE else 8, "guidance": one(r, 3.0, 3.0, 1.5, 5.0), "prompt": PROMPTS[number % len(PROMPTS)]}


def save(folder, spec):
    place = folder / "tokenizer"
    place.mkdir(parents=True, exist_ok=True)
    core = Tokenizer(models.BPE(vocab=WORDS, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL + CONTROL])
    core.save(str(place / "text_tokenizer.json"))
    (folder / "params.json").write_text(json.dumps({"seed": 7, "model": spec["model"]}))
    (folder / "consolidate_params.json").write_text(json.dumps({"model_parallel_size": 1}))
    resolution = spec["grid"] * 2 ** (len(spec["levels"]) - 1)
    dd = {"double_z": False, "z_channels": spec["latent"], "resolution": resolution, "in_channels": 3, "out_ch": 3, "ch": 32,
          "ch_mult": spec["levels"], "num_res_blocks": spec["blocks"],
          "attn_resolutions": [spec["grid"]] if spec["attend"] else [], "dropout": 0.0}
    (place / "vqgan.yaml").write_text(json.dumps({"model": {"params": {
        "embed_dim": 8, "n_embed": CODES, "ddconfig": dd, "lossconfig": {}}}}))


# --- running ---------------------------------------------------------------------------------------

def replaced(function, old, new):
    code = function.__code__
    function.__code__ = code.replace(co_consts=tuple(new if c == old and type(c) is int else c for c in code.co_consts))


class Counts:
    """Smaller numbers of codes in their functions."""

    def __init__(self):
        self.count, self.side = 1024, 32

    def set(self, grid):
        decoder, manager = chameleon.ImageDecoder, chameleon.TokenManager
        for function in (decoder.__init__, decoder.__next__, manager.pil_from_bpe_tokens):
            replaced(function, self.count, grid * grid)
        replaced(image_tokenizer.ImageTokenizer.pil_from_img_toks, self.side, grid)
        self.count, self.side = grid * grid, grid


def transformer(folder):
    """As their loader, but in fp32."""
    params = json.loads((folder / "params.json").read_text())
    params = {**params, **params["model"], **json.loads((folder / "consolidate_params.json").read_text())}
    known = inspect.signature(ModelArgs.__init__).parameters
    return Transformer(ModelArgs(**{k: v for k, v in params.items() if k in known})).float().eval()


def plain_shapes(model):
    """Names of a release: what is one tensor in their model are several in its file."""
    out = {}
    for name, value in model.state_dict().items():
        shape = list(value.shape)
        if name.endswith("wqkv.weight"):
            args = model.args
            width = args.dim // args.n_heads
            kv = (args.n_kv_heads or args.n_heads) * width
            for part, rows in (("wq", args.dim), ("wk", kv), ("wv", kv)):
                out[name.replace("wqkv", part)] = [rows, shape[1]]
        elif name.endswith("w13.weight"):
            for part in ("w1", "w3"):
                out[name.replace("w13", part)] = [shape[0] // 2, shape[1]]
        else:
            out[name] = shape
    return out


@torch.no_grad()
def run_one(folder):
    spec = json.loads((folder / "spec.json").read_text())
    place = folder / "tokenizer"
    torch.save({"state_dict": {}}, place / "vqgan.ckpt")
    COUNTS.set(spec["grid"])
    manager = chameleon.TokenManager(str(place / "text_tokenizer.json"), str(place / "vqgan.yaml"), str(place / "vqgan.ckpt"))
    vq, model = manager.image_tokenizer._vq_model, transformer(folder)
    shapes = plain_shapes(model)
    vq_shapes = {k: list(v.shape) for k, v in vq.state_dict().items()}
    prompt = manager.tokens_from_ui([{"type": "text", "value": spec["prompt"]}, {"type": "sentinel", "value": "<END-OF-TURN>"}])
    options = chameleon.Options(txt=False, img=chameleon.Options.Image(
        cfg=chameleon.Options.Image.CFG(guidance_scale_text=spec["guidance"]), greedy=True))
    for salt in range(SALTS):
        weights = {k: ff.weight(salt, k, s) for k, s in shapes.items()}
        vq_weights = {k: ff.weight(salt, k, s) for k, s in vq_shapes.items()}
        model.load_state_dict(dict(weights))
        vq.load_state_dict(vq_weights)
        branches, tokens, lead = None, [], float("inf")
        with torch.inference_mode():
            generator = chameleon.Generator(model, manager.vocab, options, [list(prompt)])
            branches = generator.dyngen.gen.gen._original_inputs.tolist()
            for token in generator:
                best = token.logits[0].topk(2).values
                lead = min(lead, float(best[0] - best[1]) * options.img.temp)
                tokens.append(token.id)
        ids = torch.stack(tokens).T
        if lead >= LEAST_GAP and len(set(ids[0].tolist())) >= 3:
            break
    else:
        raise ValueError("no weights keep the greedy tokens apart")
    levels = np.asarray(manager.decode_image(ids.clone())[0])
    pad = manager.vocab.pad_id
    whole, image, other = ([i for i in branch if i != pad] for branch in branches)
    assert image == other, (image, other)
    if WIDE:
        from PIL import Image
        torch.save({**weights, "rope.freqs": torch.zeros(4)}, folder / "consolidated.pth")
        torch.save({"state_dict": vq_weights}, place / "vqgan.ckpt")
        Image.fromarray(levels).save(folder / "wanted.png")
    return {"name": folder.name, "prompt": spec["prompt"],
            "guidance": None if spec["guidance"] == 3.0 else spec["guidance"],
            "weights": "consolidated.safetensors", "vq_weights": "tokenizer/vqgan.safetensors", "asked": True, "salt": salt, "ids": whole,
            "other": other, "tokens": manager.translation.convert_bpe2img(ids)[0].tolist(), "size": list(levels.shape[:2]),
            "levels": base64.b64encode(np.ascontiguousarray(levels).tobytes()).decode(), "shapes": shapes,
            "vq_shapes": vq_shapes}


COUNTS = Counts()


def on_the_cpu():
    model_adapter.cudagraph_wrap = lambda function: function
    zeros = torch.zeros
    torch.zeros = lambda *a, **k: zeros(*a, **{x: y for x, y in k.items() if x != "device"})
    ff.by_layers = lambda shapes: {k: [0, v] for k, v in shapes.items()}  # parts are single layers
    ff.FILES = ("params.json", "consolidate_params.json", "tokenizer/text_tokenizer.json")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    on_the_cpu()
    scratch = Path(sys.argv[2])
    for number in range(int(sys.argv[3])):
        folder = scratch / f"chameleon-{number}"
        spec = draw(number)
        save(folder, spec)
        (folder / "spec.json").write_text(json.dumps(spec))
        (folder / "shapes.json").write_text("{}")
    ff.write_corpus(scratch, scratch.parent / "wide" if WIDE else OUT, run_one, in_parts=True)


if __name__ == "__main__":
    main()
