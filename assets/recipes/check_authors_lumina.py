"""Compares pictures of the program with those of Lumina-mGPT's own code.

Configurations are drawn by a seed and saved as the authors publish them. Prompts, guidance, constraint, loop and
pictures are those of FlexARInferenceSolver (Alpha-VLLM/Lumina-mGPT at 104abe4) at a temperature near 0. Their model
writes begin of image and size itself, as it learned; a random one is made to. Ids of image tokens, sizes and ends are
fixed numbers in their code, so that the vocabulary is too large for a golden. It asks for transformers 4.43 or later of
that release: this ran under 4.45.

  python check_authors_lumina.py PROGRAM LUMINA SCRATCH COUNT
  python check_authors_lumina.py PROGRAM LUMINA SCRATCH COUNT seen    # images in prompts: greedy texts about them

An image in a prompt is cut where their code draws it; here it draws the middle.
"""
import contextlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/lumina_mgpt"]
import fixtures_folders as ff  # noqa: E402
from folder_draws import one  # noqa: E402


def on_the_cpu():
    """Their code names a device of NVIDIA."""
    for name in ("tensor", "arange", "zeros"):
        whole = getattr(torch, name)
        setattr(torch, name, lambda *a, whole=whole, **k: whole(*a, **{x: y for x, y in k.items() if x != "device"}))
    torch.Tensor.cuda = lambda self, *a, **k: self
    to = torch.nn.Module.to
    torch.nn.Module.to = lambda self, *a, **k: self if a == ("cuda",) else to(self, *a, **k)
    torch.cuda.amp.autocast = lambda **k: contextlib.nullcontext()


on_the_cpu()
from data.item_processor import FlexARItemProcessor  # noqa: E402
from inference_solver import FlexARInferenceSolver  # noqa: E402
from model.chameleon import ChameleonConfig, ChameleonForConditionalGeneration  # noqa: E402

CODES, VOCAB, LEAST_GAP, SALTS, NEAR_ZERO, END = 8192, 9000, 1e-3, 40, 1e-7, 8710
BEGIN_IMAGE, END_IMAGE, FIRST_CODE = 8197, 8196, 4
PROMPTS = ["Image of a dog playing water, and a water fall is in the background.", "two cats", " a dog\nunder the rain \n",
           "Night, \"neon\"", "x", "\u00e9t\u00e9 \u732b", "a </s> sign", "<s>twice", "<reserved08706> turn", "  two  spaces\t"]


def code_name(code):
    return "IMGIMG" + "".join("ABCDEFGHIJ"[int(digit)] for digit in str(code)) + "Z"


def vocabulary():
    """Ids as published, a byte a token; codes in order."""
    words = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    words |= {code_name(code): FIRST_CODE + code for code in range(CODES)}
    words |= {"<eoss>": END_IMAGE, "<racm3:break>": BEGIN_IMAGE}
    words |= {letter: 8198 + i for i, letter in enumerate(ff.byte_letters())}
    words |= {f"<reserved{i - 4:05d}>": i for i in range(8198 + 256, VOCAB)}
    assert len(words) == VOCAB and words["<reserved08706>"] == END
    return words


WORDS = vocabulary()


def draw(number):
    r = random.Random(f"authors lumina {number}")
    heads, split = one(r, (4, 1), (4, 2), (2, 1))
    w, h = one(r, (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (1, 3), (4, 1), (2, 3), (1, 4))
    text = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": one(r, 16, 24, 48),
            "num_hidden_layers": one(r, 1, 2), "num_attention_heads": heads, "num_key_value_heads": heads,
            "max_position_embeddings": one(r, 512, 1024), "rms_norm_eps": one(r, 1e-5, 1e-6),
            "rope_theta": one(r, 1e4, 1e3), "model_parallel_size": split, "swin_norm": r.random() < 0.25,
            "mask_image_logits": False, "dropout": 0.05}
    return {"text": text, "levels": [1, 1, 2, 1, 1], "blocks": 1, "prompt": PROMPTS[number % len(PROMPTS)], "w": w, "h": h,
            "attend": r.random() < 0.5, "guidance": one(r, 4.0, 4.0, 3.0, 1.5, 7.0), "kind": one(r, "plain", "xllmx"),
            "bos_added": r.random() < 0.7}


def vq_keys(spec):
    return {"embed_dim": 8, "num_embeddings": CODES, "double_latent": False, "latent_channels": 8, "resolution": 32,
            "in_channels": 3, "base_channels": 32, "channel_multiplier": spec["levels"], "num_res_blocks": 1,
            "attn_resolutions": [2] if spec["attend"] else None, "dropout": 0.0, "attn_type": "vanilla"}


def save(folder, spec):
    place = folder / "ckpts" / "chameleon" / "tokenizer"
    place.mkdir(parents=True, exist_ok=True)
    core = Tokenizer(models.BPE(vocab=WORDS, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = [w for w in WORDS if w in ("<s>", "<pad>", "</s>", "<unk>", "<eoss>", "<racm3:break>") or w.startswith("<reserved")]
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    if spec["bos_added"]:
        core.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    core.save(str(place / "text_tokenizer.json"))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        sep_token="<reserved08706>", clean_up_tokenization_spaces=False).save_pretrained(folder)
    config = ChameleonConfig(**spec["text"], vq_config=vq_keys(spec), vocabulary_map=WORDS)
    keys = {**config.to_dict(), "torch_dtype": "float32", "architectures": ["ChameleonForConditionalGeneration"]}
    if spec["kind"] == "xllmx":
        keys.update(architectures=["ChameleonXLLMXForConditionalGeneration"], z_loss_weight=1e-5)
    else:
        keys["z_loss_weight"] = 0.0
    (folder / "config.json").write_text(json.dumps(keys))
    (folder / "generation_config.json").write_text(json.dumps(
        {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2, "transformers_version": "4.43.3"}))
    dd = {"double_z": False, "z_channels": 8, "resolution": 32, "in_channels": 3, "out_ch": 3, "ch": 32,
          "ch_mult": spec["levels"], "num_res_blocks": 1, "attn_resolutions": [2] if spec["attend"] else [], "dropout": 0.0}
    (place / "vqgan.yaml").write_text(json.dumps({"model": {"params": {
        "embed_dim": 8, "n_embed": CODES, "ddconfig": dd, "lossconfig": {}}}}))


class Forced:
    """Begin of image, size, and the end after it: what a trained model writes."""

    def __init__(self, length, ids):
        self.length, self.ids, self.leads, self.codes = length, ids, [], []

    def __call__(self, ids, scores):
        count = ids.shape[1] - self.length
        wanted = self.ids[count] if count < 3 else END if int(ids[0, -1]) == END_IMAGE else None
        if wanted is not None:
            scores = torch.full_like(scores, -torch.inf)
            scores[:, wanted] = 0
        elif int((scores > -1e30).sum()) > 1:
            best = scores[0].topk(2).values
            self.leads.append(float(best[0] - best[1]))
            self.codes.append(int(scores[0].argmax()) - FIRST_CODE)
        return scores


def solver_of(folder, spec, model):
    solver = FlexARInferenceSolver.__new__(FlexARInferenceSolver)
    solver.dtype, solver.model = torch.float32, model
    here = os.getcwd()
    os.chdir(folder)
    solver.item_processor = FlexARItemProcessor(tokenizer=str(folder), target_size=64)
    os.chdir(here)
    return solver


def shapes_of(module):
    return {k: list(v.shape) for k, v in module.state_dict().items() if v.dtype.is_floating_point}


@torch.no_grad()
def run_one(folder):
    spec = json.loads((folder / "spec.json").read_text())
    place = folder / "ckpts" / "chameleon" / "tokenizer"
    keys = json.loads((folder / "config.json").read_text())
    model = ChameleonForConditionalGeneration._from_config(ChameleonConfig(**keys), attn_implementation="eager").eval()
    torch.save({"state_dict": {}}, place / "vqgan.ckpt")
    solver = solver_of(folder, spec, model)
    vq = solver.item_processor.chameleon_ori_image_tokenizer._vq_model
    shapes, vq_shapes = shapes_of(model), shapes_of(vq)
    width, height = 32 * spec["w"], 32 * spec["h"]
    text = f"Generate an image of {width}x{height} according to the following prompt:\n{spec['prompt']}"
    sizes = [BEGIN_IMAGE, 8804 + spec["h"], 8804 + spec["w"]]
    prompt = solver.item_processor.process_item(
        {"image": [], "conversations": [{"from": "human", "value": text}, {"from": "gpt", "value": None}]})
    for salt in range(SALTS):
        weights = {k: ff.weight(salt, k, s) for k, s in shapes.items()}
        vq_weights = {k: ff.weight(salt, k, s) for k, s in vq_shapes.items()}
        model.load_state_dict(weights)
        vq.load_state_dict(vq_weights)
        steps = solver.create_logits_processor(cfg=spec["guidance"], image_top_k=2000)
        forced = Forced(len(prompt), sizes)
        steps.append(forced)
        with contextlib.redirect_stdout(None):
            _, images = solver.generate([], [[text, None]], 8192, NEAR_ZERO, logits_processor=steps)
        lead, levels = min(forced.leads), np.asarray(images[0])
        if lead >= LEAST_GAP and len(set(forced.codes)) >= 3:
            break
    else:
        raise ValueError("no weights keep the greedy tokens apart")
    assert len(images) == 1 and levels.shape == (height, width, 3), levels.shape
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "tokenizer").mkdir(exist_ok=True)
    torch.save({"state_dict": vq_weights}, folder / "tokenizer" / "vqgan.ckpt")
    return spec, levels


def same(folder, spec, levels):
    """Whether the program makes the same of it, but for a level."""
    out = folder / "own.png"
    command = [sys.argv[1], "generate", "-m", folder, "-p", spec["prompt"], "--temp", "0", "-o", out, "--overwrite",
               "--size", f"{levels.shape[1]}x{levels.shape[0]}", "--device", "cpu", "--dtype", "f32"]
    if spec["guidance"] != 4.0:  # that of their examples
        command += ["--cfg-scale", str(spec["guidance"])]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    own = np.asarray(Image.open(out).convert("RGB")).astype(int)
    return own.shape == levels.shape and int(np.abs(own - levels).max()) <= 1


QUESTIONS = ["What is this?", "Depth estimation.", "a dog, \"here\"", " two\nlines"]
WRITTEN = 12


def largest_square(positions):
    cells = 24
    while 2 * cells * (2 * cells + 1) + 65 > positions:
        cells -= 1
    return 32 * cells


@torch.no_grad()
def seen(folder, number):
    """Whether the program writes what their model writes after their prompt."""
    r = random.Random(f"seen by lumina {number}")
    spec = json.loads((folder / "spec.json").read_text())
    place = folder / "ckpts" / "chameleon" / "tokenizer"
    keys = json.loads((folder / "config.json").read_text())
    model = ChameleonForConditionalGeneration._from_config(ChameleonConfig(**keys), attn_implementation="eager").eval()
    torch.save({"state_dict": {}}, place / "vqgan.ckpt")
    here = os.getcwd()
    os.chdir(folder)
    processor = FlexARItemProcessor(tokenizer=str(folder), target_size=largest_square(spec["text"]["max_position_embeddings"]))
    os.chdir(here)
    vq = processor.chameleon_ori_image_tokenizer._vq_model
    weights = {k: ff.weight(number, k, s) for k, s in shapes_of(model).items()}
    vq_weights = {k: ff.weight(number, k, s) for k, s in shapes_of(vq).items()}
    model.load_state_dict(weights)
    vq.load_state_dict(vq_weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "tokenizer").mkdir(exist_ok=True)
    torch.save({"state_dict": vq_weights}, folder / "tokenizer" / "vqgan.ckpt")
    image = ff.drawn_image(r.randint(20, 900), r.randint(20, 700), number)
    image.save(folder / "seen.png")
    question = QUESTIONS[number % len(QUESTIONS)]
    randint, random.randint = random.randint, lambda a, b: (a + b) // 2
    ids = processor.process_item({"image": [image], "conversations": [{"from": "human", "value": question},
                                                                      {"from": "gpt", "value": None}]})
    random.randint = randint
    prompt, text = len(ids), []
    while len(text) < WRITTEN:
        row = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        row[FIRST_CODE:FIRST_CODE + CODES] = row[BEGIN_IMAGE] = -torch.inf
        ids.append(int(row.argmax()))
        if ids[-1] == END:
            break
        text.append(ids[-1])
    wanted = processor.tokenizer.tokenizer.decode(text, skip_special_tokens=True)
    command = [sys.argv[1], "caption", "-m", folder, "-p", question, "--image", folder / "seen.png", "--device", "cpu", "--dtype", "f32",
               "--max-tokens", str(WRITTEN), "--json"]
    out = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
    own = json.loads(out.splitlines()[0])
    # Control characters are not printed.
    same = [c for c in own["caption"] if c.isprintable() and c != " "] == [c for c in wanted if c.isprintable() and c != " "]
    if not same:
        print(folder.name, image.size, prompt, repr(wanted), out[:600])
    return same


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    count = 0
    for number in range(int(sys.argv[4])):
        folder = Path(sys.argv[3]).resolve() / f"lumina-{number}"
        spec = draw(number)
        save(folder, spec)
        (folder / "spec.json").write_text(json.dumps(spec))
        if len(sys.argv) > 5:
            count += seen(folder, number)
        elif same(folder, *run_one(folder)):
            count += 1
        else:
            print("another picture:", folder.name)
    print(count, "of", sys.argv[4], "alike")


if __name__ == "__main__":
    main()
