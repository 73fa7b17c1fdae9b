"""Goldens of engine/sampling/processors: logits as transformers' processors leave them.

The list of processors is the one that GenerationMixin._get_logits_processor builds for a GenerationConfig, so their
order is its order. The two penalties that it lacks are written here as vLLM has them (output tokens counted; frequency
times count off first, then presence) and stand after the repetition penalty. Each case is a text that is written
greedily by random logits: every step has its logits, the processed ones to the bit, and the token. Cases with cuts say
which ids are left instead. A step at which nothing would be left is drawn again.

`more` are cases under the two processors that came later, sequence_bias and exponential_decay_length_penalty.

What each key of GenerationConfig does to texts of generate(), greedy and sampled by one seed: effects.json, by which
the account of folders' keys is tested.

Whole texts: the tiny models of tests/golden/lmm, with and without images, each under configurations of every
processor, by generate(); those whose smallest gap between two best scores rounding could close are left out.

    python fixtures_processors.py --out tests/golden/processors --models tests/golden/lmm
"""

import argparse
import gzip
import json
import math
import pathlib
import random

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation.logits_process import LogitsProcessor

VOCAB, STEPS, CASES = 16, 5, 160


class CountPenalties(LogitsProcessor):
    def __init__(self, prompt, frequency, presence):
        self.prompt, self.frequency, self.presence = prompt, frequency, presence

    def __call__(self, input_ids, scores):
        counts = torch.zeros_like(scores)
        for token in input_ids[0, self.prompt:]:
            counts[0, token] += 1
        out = scores - self.frequency * counts
        return out - self.presence * (counts > 0).to(scores.dtype)


def draw_later(dice):
    sequences = {tuple(dice.randrange(VOCAB) for _ in range(dice.choice([1, 1, 2, 2, 3]))): dice.randint(-128, 128) / 32
                 for _ in range(dice.randint(1, 24))}
    out = {"sequence_bias": [[list(ids), bias] for ids, bias in sequences.items()],
           "exponential_decay_length_penalty": [dice.randint(0, 3), dice.choice([0.8, 1.01, 1.2, 1.7])]}
    if dice.random() < 0.6:
        out.pop(dice.choice(sorted(out)))
    return out


def draw_settings(dice):
    """Some of the keys, the more the rarer; and the two penalties that are no keys."""
    ids = lambda most: sorted(dice.sample(range(VOCAB), dice.randint(1, most)))
    makers = {
        "encoder_repetition_penalty": lambda: dice.choice([0.5, 0.9, 1.3, 2.0]),
        "repetition_penalty": lambda: dice.choice([0.7, 1.05, 1.1, 1.2, 1.7]),
        "no_repeat_ngram_size": lambda: dice.choice([1, 2, 2, 3]),
        "encoder_no_repeat_ngram_size": lambda: dice.choice([1, 2, 2, 3]),
        "bad_words_ids": lambda: [[dice.randrange(VOCAB) for _ in range(dice.choice([1, 1, 2, 2, 3]))]
                                  for _ in range(dice.randint(2, 8))],
        "min_length": lambda: dice.randint(1, 14),
        "min_new_tokens": lambda: dice.randint(1, 4),
        "forced_bos_token_id": lambda: dice.randrange(VOCAB),
        "forced_eos_token_id": lambda: dice.choice([dice.randrange(VOCAB), ids(3)]),
        "suppress_tokens": lambda: ids(5),
        "begin_suppress_tokens": lambda: ids(5),
    }
    count = dice.choice([1, 1, 2, 3, 5, len(makers)])
    settings = {key: makers[key]() for key in dice.sample(sorted(makers), count)}
    extra = {}
    if dice.random() < 0.3:
        extra["frequency_penalty"] = dice.choice([-0.3, 0.1, 0.5, 1.1])
    if dice.random() < 0.3:
        extra["presence_penalty"] = dice.choice([-0.3, 0.1, 0.5, 1.1])
    cuts = {}
    if dice.random() < 0.2:
        cuts = {"do_sample": True, "temperature": dice.choice([0.5, 1.0, 1.4]), "top_k": dice.choice([0, 2, 5]),
                "top_p": dice.choice([0.6, 0.9, 1.0])}
    return settings, extra, cuts


def processors_of(model, settings, extra, cuts, prompt, stops):
    config = GenerationConfig(**{"do_sample": False, "top_k": 0, **settings, **cuts}, eos_token_id=stops,
                              pad_token_id=0, max_new_tokens=STEPS)
    config.max_length = prompt.shape[1] + STEPS
    model._prepare_special_tokens(config, kwargs_has_attention_mask=True, device=prompt.device)
    out = model._get_logits_processor(config, input_ids_seq_length=prompt.shape[1], encoder_input_ids=prompt,
                                      device=prompt.device)
    if extra:
        own = CountPenalties(prompt.shape[1], extra.get("frequency_penalty", 0.0), extra.get("presence_penalty", 0.0))
        before = [i for i, one in enumerate(out) if "Repetition" in type(one).__name__ or "Bias" in type(one).__name__]
        out.insert(max(before) + 1 if before else 0, own)
    return out


def bits(value):
    return None if math.isinf(value) else int(torch.tensor(value, dtype=torch.float32).view(torch.int32))


def make_case(model, dice, later=False):
    settings, extra, cuts = draw_settings(dice)
    if later:
        settings.update(draw_later(dice))
        if cuts and isinstance(settings.get("forced_eos_token_id"), list):
            return None  # cuts among equals have no order there
    length = 1 if "forced_bos_token_id" in settings and dice.random() < 0.7 else dice.randint(2, 9)
    prompt = [dice.randrange(VOCAB) for _ in range(length)]
    stops = sorted(dice.sample(range(VOCAB), dice.randint(1, 2)))
    if all(word in [[stop] for stop in stops] for word in settings.get("bad_words_ids", [[-1]])):
        settings.pop("bad_words_ids", None)  # transformers refuses a list that has nothing else
    forced = {id_ for key in ("forced_bos_token_id", "forced_eos_token_id")
              for id_ in (settings.get(key, []) if isinstance(settings.get(key, []), list) else [settings[key]])}
    if forced & (set(settings.get("suppress_tokens", [])) | set(settings.get("begin_suppress_tokens", []))):
        return None  # refused by version 5
    processors = processors_of(model, settings, extra, cuts, torch.tensor([prompt]), stops)
    written, steps = [], []
    while len(written) < STEPS:
        logits = [dice.randint(-255, 255) / 64 for _ in range(VOCAB)]
        if len(set(logits)) < VOCAB:
            continue
        ids = torch.tensor([prompt + written])
        scores = processors(ids, torch.tensor([logits], dtype=torch.float32))[0]
        if torch.isinf(scores).all():
            return None
        left = [i for i in range(VOCAB) if not math.isinf(scores[i])]
        top = torch.sort(scores[left], descending=True).values
        if not cuts and len(left) > 1 and top[0] == top[1] and top[0] != 0:
            continue  # equals among the likeliest have no order there
        token = min(left, key=lambda i: (-float(scores[i]), i))
        step = {"logits": logits, "token": token}
        step.update({"left": left} if cuts else {"scores": [bits(float(score)) for score in scores]})
        steps.append(step)
        written.append(token)
    return {"config": settings, "penalties": extra, "cuts": cuts, "prompt": prompt, "stops": stops, "steps": steps}


LEAST_GAP, NEW_TOKENS = 0.02, 12
FAMILIES = {"llava-1.5": ["pixel_values"], "llava-next": ["pixel_values", "image_sizes"], "idefics3": [], "smolvlm": [],
            "qwen2-vl": ["pixel_values", "image_grid_thw"], "qwen2.5-vl": ["pixel_values", "image_grid_thw"]}


def text_configs(ids, plain, dice):
    """Configurations that change this text: the ids of what is written without any."""
    yield {"repetition_penalty": 1.3}
    yield {"repetition_penalty": 1.05, "no_repeat_ngram_size": 2}
    yield {"no_repeat_ngram_size": 1}
    yield {"suppress_tokens": plain[:3], "begin_suppress_tokens": [plain[4]]}
    yield {"bad_words_ids": [[plain[0]], plain[2:4], [plain[5]]], "encoder_repetition_penalty": 1.4}
    yield {"eos_token_id": [plain[1], plain[3]], "min_new_tokens": 6, "forced_eos_token_id": plain[1]}
    yield {"eos_token_id": plain[2], "min_length": len(ids) + 5, "encoder_no_repeat_ngram_size": 2}
    yield {"eos_token_id": plain[1], "forced_eos_token_id": [dice.randrange(96), plain[1]], "repetition_penalty": 0.8}
    yield {"sequence_bias": [[[plain[0]], -3.0], [plain[1:3], 2.5], [[ids[-1], plain[3]], 4.0], [[plain[5]], 1.25]]}
    yield {"eos_token_id": plain[4], "exponential_decay_length_penalty": [1, 1.4], "no_repeat_ngram_size": 1}


def write_texts(folder, dice):
    out = []
    for name, keys in FAMILIES.items():
        recorded = load_file(folder / name / "recorded.safetensors")
        model = AutoModelForImageTextToText.from_pretrained(folder / name, dtype=torch.float32).eval()
        for prefix in ["", "text."] if keys else ["text."]:
            ids = recorded[prefix + "input_ids"].long()[None]
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            inputs.update({key: recorded[key] for key in keys if not prefix})
            for key in ("image_sizes", "image_grid_thw"):
                if key in inputs:
                    inputs[key] = inputs[key].long()
            if "qwen" in name:
                inputs["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
            plain = recorded[prefix + "greedy"].tolist()
            for config in text_configs(ids[0].tolist(), plain, dice):
                generation = GenerationConfig(**{"eos_token_id": None, **config}, do_sample=False, pad_token_id=0,
                                              max_new_tokens=NEW_TOKENS)
                model.generation_config = generation
                result = model.generate(**inputs, return_dict_in_generate=True, output_scores=True)
                tokens = result.sequences[0, ids.shape[1]:].tolist()
                gaps = [float(scores[0].topk(2).values.diff().abs()) for scores in result.scores]
                if min(gaps) < LEAST_GAP or tokens == plain or model.config.image_token_id in tokens:
                    continue
                stops = config.get("eos_token_id", [])
                out.append({"family": name, "prompt": prefix, "config": config, "tokens": tokens,
                            "stops": stops if isinstance(stops, list) else [stops]})
    return out


# A value of each key by which something could change, for texts of so many tokens. Keys that are not here say
# what the call returns, or how ids are padded.
EFFECT_TOKENS = 10
CHANGES = {
    "max_length": 9, "max_new_tokens": 5, "min_length": 15, "min_new_tokens": 8, "early_stopping": True,
    "max_time": 0.0, "stop_strings": ["a"], "do_sample": True, "num_beams": 3, "use_mtp": True,
    "use_cache": False, "cache_implementation": "static", "max_cache_len": 80, "temperature": 0.4,
    "top_k": 2, "top_p": 0.4, "min_p": 0.4, "top_h": 0.3, "typical_p": 0.3, "epsilon_cutoff": 0.04, "eta_cutoff": 0.04,
    "repetition_penalty": 1.6, "encoder_repetition_penalty": 1.6, "length_penalty": 3.0, "no_repeat_ngram_size": 1,
    "bad_words_ids": [[i] for i in range(0, 60, 2)], "renormalize_logits": True, "forced_bos_token_id": 5,
    "forced_eos_token_id": 9, "remove_invalid_values": True, "exponential_decay_length_penalty": [1, 1.7],
    "suppress_tokens": list(range(0, 60, 2)), "begin_suppress_tokens": list(range(0, 60, 2)),
    "sequence_bias": [[[i], 6.0] for i in range(0, 60, 3)], "token_healing": True, "guidance_scale": 2.5,
    "watermarking_config": {"bias": 8.0, "seeding_scheme": "lefthash"}, "eos_token_id": list(range(0, 60, 2)),
    "encoder_no_repeat_ngram_size": 1, "is_assistant": True, "num_assistant_tokens": 3,
    "num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0.9, "prompt_lookup_num_tokens": 3,
    "max_matching_ngram_size": 2, "assistant_early_exit": 1, "assistant_lookbehind": 3, "target_lookbehind": 3,
    "assistant_ensemble_weight": 0.5, "penalty_alpha": 0.6, "dola_layers": "low", "num_beam_groups": 2,
    "diversity_penalty": 0.5, "constraints": [1], "force_words_ids": [[5]], "num_return_sequences": 2,
    "low_memory": True, "prefill_chunk_size": 4, "disable_compile": True}
STOPS = [3, 61]


def effects():
    """By key: "same", "changes" or "refuses", of greedy and of sampled texts."""
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                         num_attention_heads=2, initializer_range=0.6, max_position_embeddings=256,
                                         bos_token_id=60, eos_token_id=None, pad_token_id=None)).eval()
    dice = random.Random(5)
    prompts = [torch.tensor([[dice.randrange(60) for _ in range(7)]])] + [torch.tensor([[7]])]

    def texts(own, key, value):
        options = {"eos_token_id": STOPS, "pad_token_id": 0, "top_k": 0, **own, key: value}
        if key not in ("max_length", "max_new_tokens"):
            options["max_new_tokens"] = EFFECT_TOKENS
        elif key != "max_new_tokens":
            options.pop("max_new_tokens", None)
        model.generation_config = GenerationConfig(**options)
        out = []
        for prompt in prompts:
            torch.manual_seed(11)
            out.append(model.generate(prompt, attention_mask=torch.ones_like(prompt))[0, prompt.shape[1]:].tolist())
        return out

    out = {}
    for key, value in CHANGES.items():
        row = {}
        for name, own in {"greedy": {"do_sample": False}, "sampled": {"do_sample": True}}.items():
            plain = texts(own, "pad_token_id", 0)
            try:
                row[name] = "same" if texts(own, key, value) == plain else "changes"
            except Exception:  # whatever the reference says no by
                row[name] = "refuses"
        out[key] = {"value": value, **row}
    return out


def write_json(path, value, first):
    text = json.dumps(value, separators=(",", ":")).replace('{"%s"' % first, '\n{"%s"' % first)
    data = (text + "\n").encode()
    path.write_bytes(gzip.compress(data, 9, mtime=0) if path.suffix == ".gz" else data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                         num_attention_heads=1))
    dice = random.Random(20)
    cases = []
    while len(cases) < CASES:
        case = make_case(model, dice)
        if case is not None:
            cases.append(case)
    more, own = [], random.Random(21)
    while len(more) < CASES:
        case = make_case(model, own, later=True)
        if case is not None:
            more.append(case)
    out = {"transformers": transformers.__version__, "vocabulary": VOCAB, "cases": cases, "more": more}
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "scores.json.gz", out, "config")
    found = {"transformers": transformers.__version__, "keys": effects()}
    (options.out / "effects.json").write_text(json.dumps(found, indent=1) + "\n")
    texts = {"transformers": transformers.__version__, "texts": write_texts(options.models, dice)}
    write_json(options.out / "texts.json", texts, "family")


if __name__ == "__main__":
    main()
