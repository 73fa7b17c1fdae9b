"""Cosmos' autoregressive models drawn at random, with what their authors' own code makes of them:
tests/golden/authors_cosmos/models.json.

The code is that of nvidia-cosmos/cosmos-predict1 at commit 4ed35fa: Transformer, AutoRegressiveModel.generate(),
CausalDiscreteVideoTokenizer. It runs in fp32 on a CPU: tensors that ask for CUDA get the CPU, and what their files
import for several GPUs and for storage (megatron, boto3, ...) stands empty here, as it is not called. Tables of rotary
angles are rounded to bf16, as the default precision rounds them, but for models that are drawn with fp32. Weights are
hashes of names (hashed_weights.py) and no part of the file. `attrs`, `einops`, `hydra-core`, `iopath`, `loguru`,
`omegaconf` are of PyPI.

  PYTHONPATH=COSMOS python assets/recipes/fixtures_authors_cosmos.py COUNT
"""
import json
import random
import sys
import types
from pathlib import Path

import torch
import torch._inductor.config  # before what it looks for stands empty
from torch.overrides import TorchFunctionMode

EMPTY = ("megatron", "megatron.core", "megatron.core.parallel_state", "megatron.core.tensor_parallel",
         "megatron.core.tensor_parallel.mappings", "megatron.core.tensor_parallel.utils", "boto3", "pandas", "pynvml")


class Empty(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for name in EMPTY:
    sys.modules[name] = Empty(name)
torch.cuda.current_device = lambda: "cpu"


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if str(kwargs.get("device")) == "cuda":
            kwargs["device"] = "cpu"
        return function(*("cpu" if isinstance(a, str) and a == "cuda" else a for a in args), **kwargs)


from cosmos_predict1.autoregressive.configs.base.model import ModelConfig  # noqa: E402
from cosmos_predict1.autoregressive.model import AutoRegressiveModel  # noqa: E402
from cosmos_predict1.autoregressive.networks.transformer import Transformer  # noqa: E402
from cosmos_predict1.autoregressive.tokenizer.networks import CausalDiscreteVideoTokenizer  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hashed_weights import hashed, weight  # noqa: E402

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "authors_cosmos" / "models.json"
TEXT_ROWS = 512
LEAST_GAP = 2e-3


def one(r, *values):
    return values[r.randrange(len(values))]


def draw(number):
    """Keys of ModelConfig, of the video tokenizer, and how many frames are given."""
    r = random.Random(f"cosmos {number}")
    heads, text = one(r, 1, 2, 4, 6), number % 2 == 1
    head = one(r, 6, 8, 12, 16, 22)
    levels = one(r, [5, 4, 3], [8, 5], [2, 3, 4], [7, 8])
    codes = 1
    for level in levels:
        codes *= level
    keys = {"n_layers": one(r, 1, 2, 3), "n_heads": heads, "dim": heads * head, "ffn_hidden_size": one(r, 24, 40, 96),
            "n_kv_heads": one(r, *(k for k in range(1, heads + 1) if heads % k == 0)), "vocab_size": codes,
            "use_qk_normalization": r.random() < 0.8, "pad_to_multiple_of": one(r, 8, 64), "rope_dim": "3D",
            "video_latent_shape": [one(r, 2, 3), one(r, 1, 2), one(r, 2, 3)]}
    if r.random() < 0.4:
        keys.update(head_dim=head, dim=one(r, 20, 36, 64))
    elif keys["dim"] < 12:
        keys["dim"] *= 2
    if r.random() < 0.4:
        keys["rope_theta"] = one(r, 50, 10000, 1e6)
    if r.random() < 0.4:
        keys["norm_eps"] = one(r, 1e-6, 1e-3, 0.05)
    keys["apply_yarn"] = r.random() < 0.5
    if keys["apply_yarn"]:
        keys.update(yarn_scale=one(r, 2, 4), yarn_beta_fast=one(r, 4, 8), yarn_beta_slow=one(r, 1, 2),
                    original_latent_shape=one(r, [3, 40, 64], [12, 4, 8]))
    if r.random() < 0.25:
        keys["precision"] = "float32"
    if text:
        keys.update(insert_cross_attn=True, insert_cross_attn_every_k_layers=1, context_dim=one(r, 16, 24),
                    apply_abs_pos_emb=r.random() < 0.8)
    widths = one(r, [1, 2, 2], [2, 1, 1], [1, 1, 2])
    tokenizer = {"channels": one(r, 4, 8), "channels_mult": widths, "num_res_blocks": one(r, 1, 2),
                 "z_channels": one(r, 2, 4), "levels": levels}
    grids = keys["video_latent_shape"][0]
    return {"keys": keys, "tokenizer": tokenizer, "given": one(r, 1, 9) if grids > 2 else 1,
            "text": r.randint(1, 12) if text else 0}


def fill(model, prefix=""):
    for name, tensor in model.state_dict().items():
        tensor.copy_(weight(prefix + name, tuple(tensor.shape)).float())


@torch.no_grad()
def models(spec):
    keys, t = spec["keys"], spec["tokenizer"]
    places = keys["video_latent_shape"][0] * keys["video_latent_shape"][1] * keys["video_latent_shape"][2]
    places += 1 if spec["text"] else 0
    pad = keys["pad_to_multiple_of"]
    config = ModelConfig(**{**keys, "precision": "float32"}, max_seq_len=(places + pad - 1) // pad * pad)
    own = types.SimpleNamespace(training_type="text_to_video" if spec["text"] else "video_to_video")
    transformer = Transformer(config, tokenizer_config=own).eval()
    if spec["text"]:
        transformer.expand_vocab(keys["vocab_size"] + 1, expand_output_layer=False)
    for table in () if "precision" in keys else ("cos_cached", "sin_cached"):
        setattr(transformer.rope, table, getattr(transformer.rope, table).bfloat16().float())
    fill(transformer)
    tokenizer = CausalDiscreteVideoTokenizer(
        attn_resolutions=[32], channels=t["channels"], channels_mult=t["channels_mult"], dropout=0.0, in_channels=3,
        num_res_blocks=t["num_res_blocks"], out_channels=3, resolution=1024, patch_size=4, patch_method="haar",
        z_channels=t["z_channels"], z_factor=1, num_groups=1, legacy_mode=False, spatial_compression=16,
        temporal_compression=8, embedding_dim=len(t["levels"]), levels=t["levels"]).eval()
    fill(tokenizer, "tokenizer.")
    stops = types.SimpleNamespace(stop_tokens={keys["vocab_size"] + 1})
    return AutoRegressiveModel(transformer, stops, config), tokenizer


def given_frames(spec):
    """[frames, height, width, 3], bytes."""
    _, rows, columns = spec["keys"]["video_latent_shape"]
    return ((hashed("clip", (spec["given"], rows * 16, columns * 16, 3)) + 1) * 128).to(torch.uint8)


def text_rows(spec):
    """Rows of a text, zeros after them: a mask of ones, as their pipeline makes it, lets them be seen."""
    rows = torch.zeros(TEXT_ROWS, spec["keys"]["context_dim"])
    rows[:spec["text"]] = hashed("context", (spec["text"], spec["keys"]["context_dim"])).float()
    return rows


@torch.no_grad()
def run(spec):
    """Codes, how far the best logit was ahead at least, frames before they are cut to levels, how near the latents come
    to an edge between two codes, the logits of the last code."""
    model, tokenizer = models(spec)
    times, rows, columns = spec["keys"]["video_latent_shape"]
    frames = given_frames(spec)
    whole = torch.cat([frames, frames[-1:].repeat(1 + 8 * (times - 1) - len(frames), 1, 1, 1)])
    latents = tokenizer.quant_conv(tokenizer.encoder((whole.float() / 255 * 2 - 1).permute(3, 0, 1, 2)[None]))
    bounded = tokenizer.quantizer.bound(latents.permute(0, 2, 3, 4, 1))
    edge = float((bounded - bounded.floor() - 0.5).abs().min())
    indices, _, _ = tokenizer.quantizer(latents)
    grids = 1 if spec["given"] == 1 else 2
    prompt = indices[0, :grids].flatten().tolist()
    if spec["text"]:
        prompt = [spec["keys"]["vocab_size"], *prompt]
    gaps, last, forward = [], {}, model.model.forward

    def watched(**kwargs):
        logits = forward(**kwargs)
        best = logits[0, -1].topk(2).values
        gaps.append(float(best[0] - best[1]))
        last["logits"] = logits[0, -1]
        return logits

    model.model.forward = watched
    context = text_rows(spec)[None] if spec["text"] else None
    mask = torch.ones(1, TEXT_ROWS) if spec["text"] else None
    made, _ = model.generate([prompt], (times - grids) * rows * columns, temperature=0.0, echo=True, context=context,
                             context_mask=mask, compile_sampling=False, verbose=False)
    codes = made[0, 1 if spec["text"] else 0:].long()
    quant = tokenizer.quantizer.indices_to_codes(codes.reshape(1, times, rows, columns))
    video = tokenizer.decode(quant)[0].permute(1, 2, 3, 0)
    return codes.tolist(), min(gaps), (video * 0.5 + 0.5).clamp(0, 1) * 255, edge, last["logits"].tolist()


def drawn(count):
    """Draws whose codes do not hang on the last bits, with their numbers."""
    number = 0
    while count:
        spec = draw(number)
        with OnCpu():
            result = run(spec)
        if result[1] >= LEAST_GAP and result[3] >= 1e-4 and len(set(result[0])) >= 3:
            count -= 1
            yield number, spec, result
        number += 1


def main():
    torch.set_num_threads(1)
    rows = []
    for number, spec, (codes, _, levels, _, logits) in drawn(int(sys.argv[1])):
        step = max(1, levels.numel() // 200)
        rows.append({"number": number, **spec, "codes": codes, "step": step,
                     "logits": [float(f"{x:.7g}") for x in logits],
                     "levels": levels.to(torch.uint8).flatten()[::step].tolist()})
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
