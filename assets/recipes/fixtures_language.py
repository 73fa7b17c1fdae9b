"""Parity fixtures of language models whose configurations differ in one thing each: rotary
embeddings, biases, windows, head widths, tied tables, and keys that are left out.

Every variant is saved as a folder and read back by `transformers` (AutoConfig and the model class,
fp32, eager), with weights that are a hash of their names (hashed_weights.py). Written are
tests/golden/lmm/language/variants.json, the configurations, and recorded.safetensors: prompt ids,
places where there are three axes, logits of the last four rows and greedy tokens.

  python assets/recipes/fixtures_language.py [--check]    # --check: compares, writes nothing
"""
import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hashed_weights import weight  # noqa: E402

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "lmm" / "language"
PROMPT, NEW_TOKENS, LEAST_GAP = 40, 8, 0.02
SIZES = dict(hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=64, max_position_embeddings=64)
CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
           "qwen2": "Qwen2ForCausalLM", "qwen2_vl": "Qwen2VLForConditionalGeneration",
           "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration"}
SHORT = [1.0, 1.5, 2.25, 3.0]
LONG = [1.0, 4.0, 9.0, 16.0]


def llama(**keys):
    return dict(model_type="llama", **{**SIZES, **keys})


def qwen_vl(kind="qwen2_vl", **keys):
    vision = {"qwen2_vl": dict(depth=1, embed_dim=16, num_heads=2, hidden_size=32, mlp_ratio=2),
              "qwen2_5_vl": dict(depth=1, hidden_size=16, num_heads=2, out_hidden_size=32,
                                 intermediate_size=16, fullatt_block_indexes=[0])}[kind]
    return dict(model_type=kind, image_token_id=60, video_token_id=61, vision_start_token_id=62,
                vision_end_token_id=63, bos_token_id=1, eos_token_id=2, vision_config=vision,
                **{**SIZES, **keys})


def yarn(**keys):
    return dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, **keys)


# name: (config, the key without which it would be another model or None)
VARIANTS = {
    "llama": (llama(), None),
    "linear": (llama(rope_scaling={"type": "linear", "factor": 2.5}), "rope_scaling"),
    "linear-5": (llama(rope_parameters={"rope_type": "linear", "factor": 3.0,
                                        "rope_theta": 500.0}), "rope_parameters"),
    "dynamic": (llama(rope_scaling={"type": "dynamic", "factor": 4.0}), None),
    "llama3": (llama(rope_theta=500.0, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}), "rope_scaling"),
    "yarn": (llama(rope_scaling=yarn()), "rope_scaling"),
    "yarn-all": (llama(rope_parameters=yarn(rope_theta=800.0, beta_fast=8.0, beta_slow=2.0,
                                            mscale=1.5, mscale_all_dim=0.5, truncate=False)),
                 "rope_parameters"),
    "yarn-factor": (llama(rope_scaling=yarn(attention_factor=0.75)), "rope_scaling"),
    "yarn-no-original": (llama(rope_scaling={"type": "yarn", "factor": 2.0}), "rope_scaling"),
    "longrope": (llama(max_position_embeddings=96, rope_scaling={
        "rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
        "original_max_position_embeddings": 64}), "rope_scaling"),
    "longrope-top": (llama(max_position_embeddings=128, original_max_position_embeddings=64,
                           rope_scaling={"type": "longrope", "short_factor": SHORT,
                                         "long_factor": LONG}), "rope_scaling"),
    "both-spellings": (llama(rope_scaling={"type": "linear", "factor": 2.0},
                             rope_parameters={"rope_type": "linear", "factor": 5.0}),
                       "rope_scaling"),
    "empty-scaling": (llama(rope_scaling={}, rope_parameters={"rope_type": "linear",
                                                              "factor": 5.0}), "rope_parameters"),
    "attention-bias": (llama(attention_bias=True), None),
    "mlp-bias": (llama(mlp_bias=True), None),
    "all-biases": (llama(attention_bias=True, mlp_bias=True, rope_scaling=yarn()), "rope_scaling"),
    "wide-heads": (llama(head_dim=16), None),
    "tied": (llama(tie_word_embeddings=True), None),
    "llama-window": (llama(sliding_window=8), None),  # its class reads no such key
    "mistral": (dict(llama(), model_type="mistral"), None),
    "mistral-window": (dict(llama(sliding_window=56), model_type="mistral"), None),
    "mistral-null": (dict(llama(sliding_window=None), model_type="mistral"), None),
    "qwen2": (dict(llama(sliding_window=8, use_sliding_window=False), model_type="qwen2"), None),
    "qwen2-window": (dict(llama(sliding_window=56, use_sliding_window=True, max_window_layers=1),
                          model_type="qwen2"), None),
    "qwen2-yarn": (dict(llama(rope_theta=1e4, rope_scaling=yarn()), model_type="qwen2"),
                   "rope_scaling"),
    "qwen2-vl": (qwen_vl(rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]}), None),
    "qwen2-vl-yarn": (qwen_vl(rope_theta=500.0,
                              rope_scaling=dict(yarn(), mrope_section=[2, 1, 1])), None),
    "qwen2.5-vl": (qwen_vl("qwen2_5_vl", rope_theta=300.0, rms_norm_eps=1e-6, rope_parameters={
        "rope_type": "linear", "factor": 2.0, "mrope_section": [1, 2, 1]}), None),
}


def open_folder(config):
    """The variant as a folder holds it, read back by the library."""
    model_class = getattr(transformers, CLASSES[config["model_type"]])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "config.json").write_text(json.dumps(config))
        made = model_class._from_config(model_class.config_class.from_pretrained(folder))
        state = {}
        for name, p in made.state_dict().items():
            for old, new in (("model.language_model.", "model."), ("model.visual.", "visual.")):
                name = new + name[len(old):] if name.startswith(old) else name
            state[name] = weight(name, list(p.shape)).float()
        if config.get("tie_word_embeddings"):
            del state["lm_head.weight"]
        save_file(state, path / "model.safetensors", {"format": "pt"})
        model, info = model_class.from_pretrained(folder, dtype=torch.float32,
                                                  attn_implementation="eager",
                                                  output_loading_info=True)
    wrong = [k for k in info["missing_keys"] if k != "lm_head.weight"]
    assert not wrong and not info["unexpected_keys"], info
    return model.eval()


def grid_places():
    """Ten rows in a line, a grid of 3 x 5 at one time, and a line after its largest."""
    line = torch.arange(10).expand(3, 10)
    grid = torch.stack((torch.full((15,), 10), 10 + torch.arange(15) // 5, 10 + torch.arange(15) % 5))
    rest = 15 + torch.arange(PROMPT - 25).expand(3, PROMPT - 25)
    return torch.cat((line, grid, rest), 1)


@torch.no_grad()
def run(model, config, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 60, (PROMPT,), generator=generator)
    three = "vl" in config["model_type"]
    places = grid_places() if three else torch.arange(PROMPT)
    out = {"ids": ids, **({"places": places} if three else {})}
    tokens, gaps = [], []
    for _ in range(NEW_TOKENS + 1):
        at = places[:, None] if three else places[None]
        logits = model(input_ids=ids[None], position_ids=at, use_cache=False).logits[0]
        if not tokens:
            out["logits"] = logits[-4:].clone()
        best = logits[-1].topk(2)
        tokens.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        ids = torch.cat((ids, best.indices[:1]))
        places = torch.cat((places, places.max() + torch.ones_like(places[..., :1])), -1)
    out["greedy"] = torch.tensor(tokens[:NEW_TOKENS])
    return out, min(gaps[:NEW_TOKENS])


def compare(name, config):
    """Another release of the library, which may not read this spelling."""
    want = load_file(OUT / "recorded.safetensors")
    try:
        got, _ = run(open_folder(config), config, int(want[name + ".seed"]))
        off = float((got["logits"] - want[name + ".logits"]).abs().max())
        print(f"{name}: logits off by {off:.1e}")
    except (TypeError, KeyError, ValueError) as error:
        print(f"{name}: not read: {error!r}")


def main():
    check = "--check" in sys.argv
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    recorded, variants = {}, {}
    for name, (config, key) in VARIANTS.items():
        if check:
            compare(name, config)
            continue
        model = open_folder(config)
        out, gap = max((run(model, config, seed) for seed in range(8)), key=lambda both: both[1])
        seed = max(range(8), key=lambda s: run(model, config, s)[1])
        assert gap > LEAST_GAP, (name, gap)
        print(f"{name}: seed {seed}, smallest gap {gap:.3f}")
        recorded[name + ".seed"] = torch.tensor(seed, dtype=torch.int32)
        for part, tensor in out.items():
            kept = tensor.to(torch.int32) if tensor.dtype == torch.int64 else tensor
            recorded[f"{name}.{part}"] = kept.contiguous().clone()
        config = {k: v for k, v in config.items() if k != "vision_config"}
        variants[name] = {"config": config, "needs": key}
    if not check:
        OUT.mkdir(parents=True, exist_ok=True)
        save_file(recorded, OUT / "recorded.safetensors")
        lines = [f"{json.dumps(n)}: {json.dumps(v, sort_keys=True)}" for n, v in variants.items()]
        (OUT / "variants.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        (OUT / "recorded.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
