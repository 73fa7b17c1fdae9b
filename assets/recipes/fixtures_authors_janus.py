"""Folders of Janus' authors with what their own code makes of them.

Configurations are drawn by a seed. The loop is generate() of generation_inference.py (deepseek-ai/Janus at 1daa72f),
taken out of the script; prompts are those of its VLChatProcessor. A temperature near 0 makes its draws greedy. The
image tokenizer and the encoder have one size in their code; smaller ones are put in its place. Their code asks for
transformers 4: this ran under 4.45.

  python fixtures_authors_janus.py JANUS SCRATCH COUNT          # writes tests/golden/authors_janus
  python fixtures_authors_janus.py JANUS SCRATCH COUNT wide     # of more kinds, with weights and wanted.png, no golden
"""
import ast
import base64
import json
import os
import random
import sys
import types
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, sys.argv[1])
import fixtures_folders as ff  # noqa: E402
from folder_draws import one, text_keys  # noqa: E402



class Tower(torch.nn.Module):
    """In the place of the encoder of images, which generates nothing: its tensors by name."""

    def __init__(self, width, layers, patch_size, mlp_width, image_size, **_):
        super().__init__()
        nn, block = torch.nn, {}
        for i in range(layers):
            block[str(i)] = nn.ModuleDict({
                "norm1": nn.LayerNorm(width), "norm2": nn.LayerNorm(width),
                "attn": nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)}),
                "mlp": nn.ModuleDict({"fc1": nn.Linear(width, mlp_width), "fc2": nn.Linear(mlp_width, width)})})
        self.vision_tower = nn.ModuleDict({
            "patch_embed": nn.ModuleDict({"proj": nn.Conv2d(3, width, patch_size, patch_size)}),
            "blocks": nn.ModuleDict(block), "norm": nn.LayerNorm(width)})
        self.vision_tower.pos_embed = nn.Parameter(torch.zeros(1, (image_size // patch_size) ** 2, width))


# Used by their preparation of images and by that encoder alone.
for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional", "janus.models.clip_encoder"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]
sys.modules["torchvision.transforms"].functional = sys.modules["torchvision.transforms.functional"]
sys.modules["janus.models.clip_encoder"].CLIPVisionTower = Tower
from janus.models import MultiModalityCausalLM, VLChatProcessor, VLMImageProcessor  # noqa: E402
from janus.models import modeling_vlm, vq_model  # noqa: E402

OUT = ff.OUT.parent / "authors_janus"
BY_LAYERS, WIDE = ff.by_layers, len(sys.argv) > 4
CODES, LEAST_GAP, SALTS, NEAR_ZERO = 64, 0.01, 40, 1e-7
PAD = "<\uff5c\u2581pad\u2581\uff5c>"
BEGIN, END = "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"
IMAGES = ["<image_placeholder>", "<begin_of_image>", "<end_of_image>"]
PROMPTS = ["A red cube on a table", "two cats", " a dog\nunder the rain \n", "Night, \"neon\"", "x", "\u00e9t\u00e9 \u732b",
           "a <begin_of_image> sign", "User: x\n\nAssistant:", "<|User|>: y", PAD + "z", "a " + END, "  \t two  spaces\u3000",
           "<image_placeholder>", "\u00a0nbsp\u00a0", "a\x1cb\x1f", "line\rfeed\r\n"]


def draw(number):
    r = random.Random(f"authors janus {number}")
    levels = one(r, [1, 1], [1, 1, 2], [1, 2]) if WIDE else [1, 2]
    factor = 2 ** (len(levels) - 1)
    grid = one(r, 2, 3, 4, 5)
    text = text_keys(r, "llama")
    for key in ("head_dim", "attention_bias", "mlp_bias", "bos_token_id", "eos_token_id", "pad_token_id"):
        text.pop(key, None)
    pro = r.random() < 0.5
    spec = {"levels": levels, "res_blocks": one(r, 1, 2) if WIDE else 1, "latent": one(r, 16, 32) if WIDE else 16,
            "grid": grid, "patch": factor, "side": factor * grid, "depth": one(r, 1, 2), "text": text, "pro": pro,
            "bos_added": r.random() < 0.8 if WIDE else pro, "prompt": PROMPTS[number % len(PROMPTS)],
            "guidance": one(r, 5.0, 5.0, 3.0, 1.5, 7.5),
            "images": one(r, 1, 2)}
    return spec


def words(spec):
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(ff.byte_letters())}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.decoder = decoders.ByteLevel()
    special = [BEGIN, END, PAD, *IMAGES] + (["<|User|>", "<|Assistant|>"] if spec["pro"] else [])
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return transformers.LlamaTokenizerFast(
        tokenizer_object=core, bos_token=BEGIN, eos_token=END, pad_token=PAD, unk_token=None, legacy=True,
        add_bos_token=spec["bos_added"], add_eos_token=False, clean_up_tokenization_spaces=False,
        additional_special_tokens=special[3:])


def config_of(spec):
    width = spec["text"]["hidden_size"]
    return {
        "model_type": "multi_modality", "architectures": ["MultiModalityCausalLM"],
        "language_config": {"model_type": "llama", **spec["text"]},
        "vision_config": {"cls": "CLIPVisionTower", "model_type": "vision", "params": {
            "image_size": spec["side"], "model_name": "siglip_tiny", "width": 24, "layers": 2,
            "patch_size": spec["patch"], "mlp_width": 24, "select_feature": "same", "select_layer": -1}},
        "aligner_config": {"cls": "MlpProjector", "model_type": "aligner", "params": {
            "depth": spec["depth"], "input_dim": 24, "n_embed": width, "projector_type": "mlp_gelu"}},
        "gen_vision_config": {"cls": "VQ-16", "model_type": "gen_vision", "params": {
            "image_token_size": CODES, "n_embed": 8, "base_channels": 32, "encoder_ch_mult": spec["levels"],
            "num_res_blocks": spec["res_blocks"], "z_channels": spec["latent"]}},
        "gen_aligner_config": {"cls": "MlpProjector", "model_type": "gen_aligner", "params": {
            "depth": 2, "input_dim": 8, "n_embed": width, "projector_type": "mlp_gelu"}},
        "gen_head_config": {"cls": "vision_head", "model_type": "gen_head", "params": {
            "image_token_embed": width, "image_token_size": CODES, "n_embed": width}},
        "torch_dtype": "float32"}


def small_parts(spec):
    """Their classes with the sizes of this draw in place of the published ones."""
    args = vq_model.ModelArgs(codebook_size=CODES, encoder_ch_mult=spec["levels"], decoder_ch_mult=spec["levels"],
                              z_channels=spec["latent"])
    sizes = {"ch": 32, "num_res_blocks": spec["res_blocks"]}

    def made():
        whole = vq_model.Encoder, vq_model.Decoder
        vq_model.Encoder, vq_model.Decoder = (partial(part, **sizes) for part in whole)
        model = vq_model.VQModel(args)
        vq_model.Encoder, vq_model.Decoder = whole
        return model
    vq_model.VQ_models["VQ-16"] = made


def save(folder, spec):
    folder.mkdir(parents=True, exist_ok=True)
    small_parts(spec)
    (folder / "config.json").write_text(json.dumps(config_of(spec)))
    processor = VLChatProcessor(
        image_processor=VLMImageProcessor(image_size=spec["side"], min_size=min(14, spec["side"]),
                                          image_mean=[0.5] * 3, image_std=[0.5] * 3),
        tokenizer=words(spec), num_image_tokens=spec["grid"] ** 2)
    processor.image_processor.save_pretrained(folder)
    processor.tokenizer.save_pretrained(folder)
    (folder / "processor_config.json").write_text(json.dumps({
        "add_special_token": False, "ignore_id": -100, "image_tag": "<image_placeholder>", "mask_prompt": True,
        "num_image_tokens": spec["grid"] ** 2, "processor_class": "VLChatProcessor", "sft_format": "deepseek"}))


class Kept:
    """In the place of Pillow in their script: images that it would write."""

    def __init__(self):
        self.images = []
        self.Image = self

    def fromarray(self, array):
        self.images.append(array.copy())
        return self

    def save(self, path):
        pass


def their_loop(kept):
    script = ast.parse((Path(sys.argv[1]) / "generation_inference.py").read_text())
    loop = [node for node in script.body if isinstance(node, ast.FunctionDef) and node.name == "generate"]
    names = {"torch": torch, "np": np, "PIL": kept, "MultiModalityCausalLM": MultiModalityCausalLM,
             "VLChatProcessor": VLChatProcessor,
             "os": types.SimpleNamespace(makedirs=lambda *a, **k: None, path=os.path)}
    exec(compile(ast.Module(loop, []), "generation_inference.py", "exec"), names)
    return names["generate"]


def run_loop(model, processor, spec, prompt):
    """Prompts of both branches, tokens, least lead of the best logit, images."""
    kept, seen, leads, codes = Kept(), [], [], []
    table, vq = model.language_model.get_input_embeddings(), model.gen_vision_model
    hook = table.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    softmax, decode = torch.softmax, vq.decode_code

    def watched(logits, dim):
        best = (logits * NEAR_ZERO).topk(2).values
        leads.append(float((best[:, 0] - best[:, 1]).min()))
        return softmax(logits, dim=dim)

    def decoded(tokens, shape):
        codes.append(tokens.clone())
        return decode(tokens, shape=shape)
    torch.softmax, vq.decode_code = watched, decoded
    try:
        their_loop(kept)(model, processor, prompt, temperature=NEAR_ZERO, parallel_size=spec["images"],
                         cfg_weight=spec["guidance"], image_token_num_per_image=spec["grid"] ** 2,
                         img_size=spec["side"], patch_size=spec["patch"])
    finally:
        torch.softmax, vq.decode_code = softmax, decode
        hook.remove()
    return seen[0][0].tolist(), seen[0][1].tolist(), codes[0][0].tolist(), min(leads), kept.images[0]


def run_one(folder):
    spec = json.loads((folder / "spec.json").read_text())
    small_parts(spec)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    processor = VLChatProcessor(VLMImageProcessor.from_pretrained(folder), tokenizer)
    roles = ("<|User|>", "<|Assistant|>") if spec["pro"] else ("User", "Assistant")
    text = processor.apply_sft_template_for_multi_turn_prompts(
        conversations=[{"role": roles[0], "content": spec["prompt"]}, {"role": roles[1], "content": ""}],
        sft_format=processor.sft_format, system_prompt="") + processor.image_start_tag
    config = modeling_vlm.MultiModalityConfig(**json.loads((folder / "config.json").read_text()))
    config.language_config._attn_implementation = "eager"
    model = MultiModalityCausalLM(config).eval()
    shapes = {k: list(v.shape) for k, v in model.state_dict().items()}
    for salt in range(SALTS):
        weights = {k: ff.weight(salt, k, s) for k, s in shapes.items()}
        model.load_state_dict(weights)
        ids, other, tokens, lead, levels = run_loop(model, processor, spec, text)
        if lead >= LEAST_GAP and len(set(tokens)) >= 3:
            break
    else:
        raise ValueError("no weights keep the greedy tokens apart")
    if WIDE:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        Image.fromarray(levels).save(folder / "wanted.png")
    return {"name": folder.name, "prompt": spec["prompt"], "salt": salt, "ids": ids,
            "guidance": None if spec["guidance"] == 5.0 else spec["guidance"],
            "other": other, "tokens": tokens, "size": list(levels.shape[:2]),
            "levels": base64.b64encode(np.ascontiguousarray(levels).tobytes()).decode(), "shapes": shapes}


def by_layers(shapes):
    """Aligners count their layers by twos."""
    plain = {k: v for k, v in shapes.items() if "aligner." in k}
    return {**{k: [0, v] for k, v in plain.items()}, **BY_LAYERS({k: v for k, v in shapes.items() if k not in plain})}


def main():
    torch.set_num_threads(1)
    torch.Tensor.cuda = lambda self, *a, **k: self
    transformers.logging.set_verbosity_error()
    ff.by_layers = by_layers
    scratch = Path(sys.argv[2])
    for number in range(int(sys.argv[3])):
        folder = scratch / f"janus-{number}"
        spec = draw(number)
        save(folder, spec)
        (folder / "spec.json").write_text(json.dumps(spec))
        (folder / "shapes.json").write_text("{}")
    ff.write_corpus(scratch, scratch.parent / "wide" if WIDE else OUT, run_one, in_parts=True)


if __name__ == "__main__":
    main()
