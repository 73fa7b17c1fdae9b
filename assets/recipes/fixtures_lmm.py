"""Whole-model parity fixtures of the captioning families, made by `transformers` on tiny models.

Per family tests/golden/lmm/NAME/ gets config.json as the library saves it, published_config.json in
the older spelling of the published files, model.safetensors under the names of the published files,
preprocessor_config.json, and recorded.safetensors: two pictures, what the image processor makes of
them, and every stage up to the logits and twelve greedy tokens (tests/golden/lmm/README.md).

Every parameter is random. Weights are bf16 numbers, so that the files are small; computation is fp32
on the CPU with eager attention. Pictures go through the processors' Pillow path, resized across
first and then down, as Pillow did until version 12. Every folder is read back by the library, from
either configuration, and must give the same logits.

  python assets/recipes/fixtures_lmm.py [NAME ...]
"""
import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from PIL import Image
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lmm_families import FAMILIES  # noqa: E402

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "lmm"
NEW_TOKENS = 12
LEAST_GAP = 0.02  # between the best and the second logit of every greedy token
LEAST_KINDS = 6   # different tokens among them
PROMPT_SEED = 7
# Keys that every configuration of the library has and that say nothing about the model.
NOT_PUBLISHED = {"_name_or_path", "attention_dropout", "chunk_size_feed_forward", "dtype",
                 "id2label", "initializer_range", "is_encoder_decoder", "label2id", "layer_types",
                 "output_attentions", "output_hidden_states", "return_dict",
                 "transformers_version"}
ONE_CALL = Image.Image.resize


def across_first(self, size, resample=None, box=None, reducing_gap=None):
    if box is not None or reducing_gap is not None:
        raise ValueError("two calls stand for a plain resize only")
    return ONE_CALL(ONE_CALL(self, (size[0], self.height), resample), size, resample)


def picture(width, height, seed):
    """A slope of colours with noise: nothing in it is symmetric. u8 [H, W, 3]"""
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    planes = torch.stack((x * 200 // width, y * 190 // height, (x + 2 * y) * 4 % 230), dim=-1)
    noise = torch.randint(0, 56, (height, width, 3), generator=generator)
    return (planes + noise).clamp(0, 255).to(torch.uint8)


def scale_of(name, p):
    if p.dim() < 2 or "embed_tokens" in name or "generation_embeddings" in name:
        return 1.0
    if "position_embedding" in name:
        return 0.5
    return 1.3 / p[0].numel() ** 0.5


def randomise(model, seed):
    """Activations stay near 1, attention is not flat, and every number is a bf16 number."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() < 2:
                noise = 1 + 0.3 * noise if name.endswith("weight") else 0.3 * noise
            p.copy_((scale_of(name, p) * noise).bfloat16().float())


class Watch:
    """What enters the projector and the language model, and what leaves them, in one forward."""

    def __init__(self, model, family):
        self.seen = {}
        projector = model.get_submodule(family.projector)
        self.hooks = [
            projector.register_forward_pre_hook(self.keep_input("features")),
            projector.register_forward_hook(lambda _, __, out: self.put("projected", out)),
            model.get_submodule(family.language_model).register_forward_pre_hook(
                self.keep_rows, with_kwargs=True),
            model.lm_head.register_forward_pre_hook(self.keep_input("hidden")),
        ]

    def put(self, name, tensor):
        self.seen[name] = tensor.detach().clone()

    def keep_input(self, name):
        return lambda _, args: self.put(name, args[0])

    def keep_rows(self, _, __, kwargs):
        self.put("embeds", kwargs["inputs_embeds"][0])
        if kwargs.get("position_ids") is not None:
            self.put("position_ids", kwargs["position_ids"][:, 0])

    def close(self):
        for hook in self.hooks:
            hook.remove()


def greedy(model, family, rows, positions):
    """The whole sequence again for every token: no cache that could hide a fault of a cache."""
    lm, embed = model.get_submodule(family.language_model), model.get_input_embeddings()
    tokens, gaps = [], []
    for _ in range(NEW_TOKENS):
        at = positions[:, None] if positions.dim() == 2 else positions[None]
        hidden = lm(inputs_embeds=rows[None], position_ids=at, use_cache=False).last_hidden_state
        best = model.lm_head(hidden[0, -1]).topk(2)
        tokens.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        rows = torch.cat((rows, embed(best.indices[:1])))
        # All axes of a position go on by one after the largest of them.
        positions = torch.cat((positions, positions.max() + torch.ones_like(positions[..., :1])), -1)
    return tokens, min(gaps)


def generated(model, family, inputs):
    """The library's own loop, with its cache."""
    extra = {"generation_mode": "text"} if family.name == "janus" else {}
    out = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None,
                         pad_token_id=0, attention_mask=torch.ones_like(inputs["input_ids"]), **extra)
    return out[0, inputs["input_ids"].shape[1]:].tolist()


def run_case(model, family, case):
    """One prompt -> recorded tensors and the inputs it was run with; None where rounding could
    choose another greedy token, the tokens repeat, or a picture's own id or an end is chosen."""
    generator = torch.Generator().manual_seed(PROMPT_SEED)

    def words(count):
        return torch.randint(*family.words, (count,), generator=generator).tolist()

    ids = [family.bos] if family.bos is not None else []
    for block in case.blocks:
        ids += words(4) + block
    ids = torch.tensor([ids + words(6)])
    inputs = dict(case.inputs, input_ids=ids)
    if "image_grid_thw" in inputs:
        inputs["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
    if "video_grid_thw" in inputs:
        inputs["mm_token_type_ids"] = 2 * (ids == model.config.video_token_id).int()
    watch = Watch(model, family)
    logits = model(**inputs, use_cache=False).logits[0]
    watch.close()
    seen = watch.seen
    count = ids.shape[1]
    three = "qwen" in family.name
    if "position_ids" not in seen:
        plain = torch.arange(count)
        seen["position_ids"] = plain.expand(3, count) if three else plain
    tokens, gap = greedy(model, family, seen["embeds"], seen["position_ids"])
    kinds = set(tokens)
    if gap < LEAST_GAP or len(kinds) < LEAST_KINDS or {model.config.image_token_id, 0, 1, 2} & kinds:
        return None
    theirs = generated(model, family, inputs)
    assert theirs == tokens, (theirs, tokens)
    recorded = dict(case.recorded)
    recorded.update(input_ids=ids[0], position_ids=seen["position_ids"],
                    hidden=seen["hidden"][0, -1], logits=logits[-4:], greedy=torch.tensor(tokens))
    if not case.prefix:
        recorded.update({k: seen[k] for k in ("features", "projected", "embeds")})
        if family.unpermute:
            recorded["projected"] = recorded["projected"][recorded["window_index"].argsort()]
    if three:
        recorded["rope_delta"] = seen["position_ids"].max()[None] + 1 - count
    print(f"  {case.prefix or 'main':8} {count} ids, smallest gap of greedy {gap:.3f}, "
          f"largest logit {logits[-4:].abs().max():.2f}, embeds {seen['embeds'].std():.2f}")
    return {case.prefix + k: v for k, v in recorded.items()}, inputs


def share_of_keys(model, inputs):
    """exp(entropy) of attention over the keys that a row sees, per softmax call: 1 is flat."""
    shares, plain = [], torch.nn.functional.softmax

    def counted(x, dim=-1, **kwargs):
        out = plain(x, dim=dim, **kwargs)
        seen = (out > 0).sum(-1)
        entropy = -(out * out.clamp_min(1e-30).log()).sum(-1)
        if (seen > 3).any():
            shares.append(float((entropy.exp() / seen)[seen > 3].mean()))
        return out

    torch.nn.functional.softmax = counted
    model(**inputs, use_cache=False)
    torch.nn.functional.softmax = plain
    return shares


def sensitivity(model, inputs):
    """How much the last four rows of logits move when one number moves by 1e-3, tensor by tensor."""
    want = model(**inputs, use_cache=False).logits[0, -4:]
    used = int(inputs["input_ids"][0, 0])
    moved, dead = {}, []
    for name, p in model.named_parameters():
        if ".vqmodel." in name or ".generation_" in name:
            continue
        at = used * p.shape[1] if "embed_tokens" in name else p.numel() // 2
        kept = p.detach().clone()
        p.view(-1)[at] += 1e-3
        moved[name] = float((model(**inputs, use_cache=False).logits[0, -4:] - want).abs().max())
        p.copy_(kept * 1.05)
        whole = float((model(**inputs, use_cache=False).logits[0, -4:] - want).abs().max())
        p.copy_(kept)
        if whole < 1e-5:
            dead.append(name)
    live = sorted(v for k, v in moved.items() if k not in dead)
    print(f"  one number + 1e-3 moves the logits by {live[0]:.1e} to {live[-1]:.1e}, median "
          f"{live[len(live) // 2]:.1e}, over {len(live)} tensors; without effect: {dead}")


def published_name(name, family):
    for old, new in family.rename:
        if name.startswith(old):
            return new + name[len(old):]
    return name


def plain(part):
    return {k: v for k, v in part.items() if v is not None and k not in NOT_PUBLISHED}


def older_text(text):
    """rope_parameters as rope_theta and rope_scaling."""
    text = plain(text)
    rope = dict(text.pop("rope_parameters"))
    text["rope_theta"] = rope.pop("rope_theta")
    if "mrope_section" in rope:
        text["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    elif rope["rope_type"] != "default":
        text["rope_scaling"] = rope
    return text


def published_config(family, config):
    """The same configuration in the spelling of the published files."""
    out = plain(config.to_dict())
    text, vision = older_text(out.pop("text_config")), plain(out.pop("vision_config"))
    vision.pop("rope_parameters", None)
    out.update(architectures=[family.model_class.__name__], torch_dtype="bfloat16")
    if "_pad_token_id" in out:
        out["pad_token_id"] = out.pop("_pad_token_id")
    if "vq_config" in out:
        out["vq_config"] = plain(out["vq_config"])
    if "qwen" in family.name:  # flat: the language model's keys stand beside the tower's
        text.pop("model_type")
        vision["in_chans"] = vision.pop("in_channels")
        return {**text, **out, "vision_config": vision}
    return {**out, "text_config": text, "vision_config": vision}


def spelled(value, indent=0):
    """JSON with every key on a line of its own and every list on one."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    lines = [f"{' ' * (indent + 1)}{json.dumps(k)}: {spelled(v, indent + 1)}"
             for k, v in sorted(value.items())]
    return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"


def write_json(path, value):
    path.write_text(spelled(value) + "\n")


def save(model, family, recorded):
    folder = OUT / family.name
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config
    state = {published_name(n, family): p.detach().bfloat16().contiguous().clone()
             for n, p in model.named_parameters() if ".vqmodel." not in n}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    with tempfile.TemporaryDirectory() as scratch:
        config.architectures, config.dtype = [family.model_class.__name__], torch.bfloat16
        config.save_pretrained(scratch)
        write_json(folder / "config.json", json.loads((Path(scratch) / "config.json").read_text()))
    write_json(folder / "published_config.json", published_config(family, config))
    write_json(folder / "preprocessor_config.json", family.preprocessor)
    tensors = {k: v.to(torch.int32) if v.dtype == torch.int64 else v for k, v in recorded.items()}
    tensors = {k: v.contiguous().clone() for k, v in tensors.items()}
    save_file(tensors, folder / "recorded.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"  {size} bytes, {len(state)} tensors, {sum(v.numel() for v in state.values())} numbers")
    for name, tensor in sorted(tensors.items()):
        print(f"    {name} {str(tensor.dtype)[6:]} {list(tensor.shape)}")
    return folder


def read_back(family, folder, inputs, want):
    """Both configurations and the published names, through the library's own loader."""
    for spelling in ("config.json", "published_config.json"):
        with tempfile.TemporaryDirectory() as scratch:
            for name, source in (("config.json", spelling), ("model.safetensors",) * 2):
                (Path(scratch) / name).symlink_to(folder / source)
            model, info = family.model_class.from_pretrained(
                scratch, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        missing = [k for k in info["missing_keys"] if ".vqmodel." not in k]
        assert not missing and not info["unexpected_keys"] and not info["mismatched_keys"], info
        got = model.eval()(**inputs, use_cache=False).logits[0, -4:]
        assert torch.equal(got, want), (spelling, float((got - want).abs().max()))


@torch.no_grad()
def make(family):
    print(family.name)
    torch.manual_seed(0)
    model = family.model_class._from_config(family.config, attn_implementation="eager")
    model = model.eval().float()
    pictures = [picture(*size, 100 + i) for i, size in enumerate(family.sizes)]
    recorded = {f"pixels.{i}": p for i, p in enumerate(pictures)}
    images = [Image.fromarray(p.numpy()) for p in pictures]
    for seed in range(family.seed, family.seed + 20000, 100):
        randomise(model, seed)
        runs = [run_case(model, family, case) for case in family.cases(model, images)]
        if None not in runs:
            break
    else:
        raise SystemExit("no seed keeps the greedy tokens apart")
    for tensors, _ in runs:
        recorded.update(tensors)
    main_inputs = runs[0][1]
    shares = share_of_keys(model, main_inputs)
    print(f"  attention: {min(shares):.2f} to {max(shares):.2f} of the keys")
    sensitivity(model, main_inputs)
    folder = save(model, family, recorded)
    read_back(family, folder, main_inputs, recorded["logits"])


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    Image.Image.resize = across_first
    names = sys.argv[1:] or list(FAMILIES)
    for name in names:
        make(FAMILIES[name]())


if __name__ == "__main__":
    main()
