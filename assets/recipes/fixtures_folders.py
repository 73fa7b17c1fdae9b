"""Folders of every describing family with what AutoProcessor and AutoModel make of them.

Configurations are drawn by a seeded recipe (folder_draws.py). Each is saved by save_pretrained of
transformers 4 or 5, some keys are taken out of its processor file, and the folder is read back by
transformers 5: prompt ids, pixels, greedy tokens. Weights are hashes of their names as the folder's
file has them, so that nothing of them is stored. Images are resized by Pillow, across first.

  python fixtures_folders.py save SCRATCH COUNT      # under transformers 4, then under 5
  python fixtures_folders.py run SCRATCH             # under transformers 5: writes tests/golden/folders
  python fixtures_folders.py keys SCRATCH            # under each: keys of all classes
"""
import gzip
import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parent))
from folder_draws import FAMILIES, ID, SPECIAL, VOCAB, draw  # noqa: E402
from hashed_weights import hashed  # noqa: E402

MAJOR = int(transformers.__version__.split(".")[0])
OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "folders"
NEW_TOKENS, LEAST_GAP, SALTS = 8, 0.02, 24
ONE_CALL = Image.Image.resize


def across_first(self, size, resample=None, box=None, reducing_gap=None):
    return ONE_CALL(ONE_CALL(self, (size[0], self.height), resample), size, resample)


# --- tokenizer and templates --------------------------------------------------------------------

def byte_letters():
    """The letters that byte-level tokenizers write bytes with."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in plain}
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + len(letters) - len(plain))
    return [letters[b] for b in range(256)]


def tokenizer():
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(byte_letters())}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    assert core.token_to_id("<image>") == ID["<image>"]
    named = {"image_token": "<image_placeholder>", "boi_token": "<begin_of_image>",
             "eoi_token": "<end_of_image>"}
    return core, named


def tokenizer_class(family):
    """Processors of transformers 4 take their own kind alone; the saved name is the plain one again."""
    if MAJOR >= 5:
        return PreTrainedTokenizerFast
    return {"qwen2_vl": transformers.Qwen2TokenizerFast, "qwen2_5_vl": transformers.Qwen2TokenizerFast,
            "janus": transformers.LlamaTokenizerFast}.get(family, PreTrainedTokenizerFast)


SYSTEM_JANUS = ("You are a helpful language and vision assistant. You are able to understand the visual "
                "content that the user provides, and assist the user with a variety of tasks using "
                "natural language.")
PARTS = ("{%% for m in messages %%}%s{%% for c in m['content'] %%}{%% if c['type'] == 'image' %%}%s"
         "{%% endif %%}{%% endfor %%}{%% for c in m['content'] %%}{%% if c['type'] == 'text' %%}"
         "{{ c['text'] }}{%% endif %%}{%% endfor %%}%s{%% endfor %%}")
TEMPLATES = {
    "llava": PARTS % ("USER: ", "{{ '<image>\n' }}", " ") + "ASSISTANT:",
    "yi": "<|im_start|>system\nAnswer the questions.<|im_end|>" +
          PARTS % ("<|im_start|>user\n", "{{ '<image>\n' }}", "<|im_end|>") +
          "{{ '<|im_start|>assistant\n' }}",
    "mistral": PARTS % ("[INST] ", "{{ '<image>\n' }}", " [/INST]"),
    "onevision": PARTS % ("<|im_start|>user\n", "{{ '<image>\n' }}", "{{ '<|im_end|>\n' }}") +
                 "{{ '<|im_start|>assistant\n' }}",
    "qwen": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" +
            PARTS % ("<|im_start|>user\n", "<|vision_start|><|image_pad|><|vision_end|>",
                     "{{ '<|im_end|>\n' }}") + "{{ '<|im_start|>assistant\n' }}",
    "idefics3": "<|begin_of_text|>" + PARTS % ("User:", "<image>", "{{ '<end_of_utterance>\n' }}") +
                "Assistant:",
    "smolvlm": "<|im_start|>" + PARTS % ("User:", "<image>", "{{ '<end_of_utterance>\n' }}") +
               "Assistant:",
    # Line breaks around images, as published.
    "janus": SYSTEM_JANUS + "{{ '\n\n' }}{% for m in messages %}<|User|>: {% for c in m['content'] %}"
             "{% if c['type'] == 'image' %}{% if not loop.first %}{{ '\n' }}{% endif %}<image_placeholder>"
             "{{ '\n' }}{% else %}{{ c['text'] }}{% endif %}{% endfor %}{{ '\n\n' }}{% endfor %}"
             "<|Assistant|>:",
}


# --- saving -------------------------------------------------------------------------------------

def text_config(spec):
    keys = dict(spec["text"])
    if MAJOR >= 5:
        rope = {"rope_type": "default", **(keys.pop("rope_scaling", None) or {})}
        if rope.pop("type", None):
            rope["rope_type"] = "default"
        rope["rope_theta"] = keys.pop("rope_theta")
        keys["rope_parameters"] = rope
    keys["tie_word_embeddings"] = spec["tied"]
    if spec["text_type"].startswith("qwen2_") or spec["text_type"] not in CONFIG_MAPPING:
        return keys
    return CONFIG_MAPPING[spec["text_type"]](**keys)


def config_of(spec):
    family = spec["family"]
    vision, text = dict(spec["vision"]), text_config(spec)
    kind = vision.pop("model_type", None)
    if kind and family in ("llava", "llava_next", "llava_onevision"):
        vision = CONFIG_MAPPING[kind](**vision)
    top = dict(spec["top"], tie_word_embeddings=spec["tied"])
    if family == "janus":
        from transformers import JanusVQVAEConfig
        top["vq_config"] = JanusVQVAEConfig(
            base_channels=32, channel_multiplier=[1, 1], num_res_blocks=1, latent_channels=16, embed_dim=8,
            num_embeddings=64, num_patches=4, projection_dim=32, image_token_embed_dim=32, hidden_size=32)
        vision = {k: v for k, v in vision.items()}
    return CONFIG_MAPPING[family](text_config=text, vision_config=vision, **top)


def image_processor(spec):
    name = spec["class"] + ("Pil" if MAJOR >= 5 else "")
    module = {"CLIP": "clip", "Llava": "llava", "Siglip": "siglip", "LlavaNext": "llava_next",
              "LlavaOnevision": "llava_onevision", "Qwen2VL": "qwen2_vl", "Idefics3": "idefics3",
              "SmolVLM": "smolvlm", "Janus": "janus"}[spec["class"].removesuffix("ImageProcessor")]
    import importlib
    kind = "image_processing_pil_" if MAJOR >= 5 else "image_processing_"
    found = getattr(importlib.import_module(f"transformers.models.{module}.{kind}{module}"), name)
    return found(**spec["image"])


def processor_of(spec):
    import transformers.models.auto.processing_auto as auto
    core, named = tokenizer()
    extra = {"extra_special_tokens": named} if spec["family"] == "janus" else {}
    family = spec["family"]
    words = tokenizer_class(family)(tokenizer_object=core, bos_token="<s>", eos_token="</s>",
                                    pad_token="<pad>", clean_up_tokenization_spaces=False, **extra)
    kind = getattr(transformers, {"llava": "LlavaProcessor", "llava_next": "LlavaNextProcessor",
                                  "llava_onevision": "LlavaOnevisionProcessor", "qwen2_vl": "Qwen2VLProcessor",
                                  "qwen2_5_vl": "Qwen2_5_VLProcessor", "idefics3": "Idefics3Processor",
                                  "smolvlm": "SmolVLMProcessor", "janus": "JanusProcessor"}[family])
    keys = dict(spec["processor"], chat_template=TEMPLATES[spec["chat"]])
    parts = {"image_processor": image_processor(spec), "tokenizer": words}
    if family in ("llava_onevision", "qwen2_vl", "qwen2_5_vl", "smolvlm"):
        name = "LlavaOnevisionVideoProcessor" if family == "llava_onevision" else \
            "SmolVLMVideoProcessor" if family == "smolvlm" else "Qwen2VLVideoProcessor"
        same = {k: v for k, v in spec["image"].items()
                if k in ("patch_size", "merge_size", "temporal_patch_size")}
        if family == "llava_onevision":
            same["size"] = spec["image"]["size"]
        parts["video_processor"] = getattr(transformers, name)(**same)
    return kind(**parts, **keys)


def plain_weights(folder, model):
    """Names and shapes as the library saves them."""
    model.save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        shapes = {k: list(file.get_slice(k).get_shape()) for k in file.keys()}
    (folder / "model.safetensors").unlink()
    return shapes


def save(scratch, count):
    for family in FAMILIES:
        for number in range(count):
            folder = scratch / f"{family}-{number}-v{MAJOR}"
            if (folder / "shapes.json").exists() or number % 2 != MAJOR % 2:
                continue
            spec = draw(family, number)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                config = config_of(spec)
                from transformers import AutoModelForImageTextToText
                model = AutoModelForImageTextToText.from_config(config)
                shapes = plain_weights(folder, model)
                processor_of(spec).save_pretrained(folder)
            except Exception as error:  # the reference's own refusal: another draw
                print("skip", folder.name, type(error).__name__, str(error)[:160])
                continue
            drop_keys(folder, spec["dropped"])
            if MAJOR < 5 and family == "janus":  # it does not save what its successor reads
                path = folder / "processor_config.json"
                saved = json.loads(path.read_text()) if path.exists() else {}
                path.write_text(json.dumps({**saved, **spec["processor"]}))
            path = folder / "tokenizer_config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()),
                                        "tokenizer_class": "PreTrainedTokenizerFast"}))
            (folder / "spec.json").write_text(json.dumps(spec))
            (folder / "shapes.json").write_text(json.dumps(shapes))
    print("saved under", transformers.__version__)


def drop_keys(folder, names):
    for file, inside in (("preprocessor_config.json", None), ("processor_config.json", "image_processor")):
        path = folder / file
        if not path.exists():
            continue
        whole = json.loads(path.read_text())
        keys = whole.get(inside) if inside else whole
        for name in names if keys else []:
            keys.pop(name, None)
        path.write_text(json.dumps(whole))


# --- running ------------------------------------------------------------------------------------

def fnv(data):
    """FNV-1a over little-endian words of 32 bits."""
    h = 14695981039346656037
    for word in np.frombuffer(data, "<u4").tolist():
        h = ((h ^ word) * 1099511628211) & (2**64 - 1)
    return f"{h:016x}"


def drawn_image(width, height, seed):
    """Slopes of colours with noise, integers alone."""
    y, x = np.mgrid[0:height, 0:width].astype(np.int64)
    planes = np.stack((x * 200 // width, y * 190 // height, (x + 2 * y) * 4 % 230), axis=-1)
    noise = (hashed(f"image {seed}", (height, width, 3)).numpy() * 2**23 + 2**23).astype(np.int64) >> 18
    return Image.fromarray(np.minimum(planes + noise, 255).astype(np.uint8))


def weight(salt, name, shape):
    noise = hashed(f"{salt}/{name}", shape)
    if name.endswith("running_var"):
        return (1 + noise / 2).float()
    if len(shape) == 1:
        return (1 + noise / 4 if name.endswith(".weight") else noise / 8).float()
    if len(shape) == 2 and "embed" in name:
        return noise.float()
    inputs, steps = int(np.prod(shape[1:])), 0
    while 4 ** (steps + 1) <= inputs:
        steps += 1
    return (noise * 2.0 ** (1 - steps)).float()


def views(inputs, spec, tiles):
    """Pixels as the model takes them, without the empty tiles that fill a batch."""
    pixels = inputs["pixel_values"]
    if spec["family"] in ("llava_next", "llava_onevision") and pixels.dim() == 5:
        pixels = torch.cat([p[:n] for p, n in zip(pixels, tiles)])
    if spec["family"] in ("idefics3", "smolvlm"):
        pixels = pixels[0]
    return pixels.float().contiguous()


def tile_counts(inputs, spec, processor):
    from transformers.image_processing_utils import select_best_resolution
    if spec["family"] not in ("llava_next", "llava_onevision"):
        return []
    if len(spec["images"]) > 1 and spec["family"] == "llava_onevision":
        return [1] * len(spec["images"])
    side = spec["vision"]["image_size"]
    grids = [select_best_resolution(s, spec["top"]["image_grid_pinpoints"])
             for s in inputs["image_sizes"].tolist()]
    return [1 + (h // side) * (w // side) for h, w in grids]


def run_lengths(ids):
    out = []
    for i in ids:
        if out and out[-1][0] == i:
            out[-1][1] += 1
        else:
            out.append([i, 1])
    return out


@torch.no_grad()
def run_one(folder):
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor
    spec = json.loads((folder / "spec.json").read_text())
    shapes = json.loads((folder / "shapes.json").read_text())
    processor = AutoProcessor.from_pretrained(folder)
    processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    images = [drawn_image(*size) for size in spec["images"]]
    content = [{"type": "image"} for _ in images] + [{"type": "text", "text": spec["question"]}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}],
                                           add_generation_prompt=True)
    inputs = processor(text=[prompt], images=[images] if len(images) > 1 else images, return_tensors="pt")
    pixels = views(inputs, spec, tile_counts(inputs, spec, processor))
    ids = inputs["input_ids"][0].tolist()
    extra = {"generation_mode": "text"} if spec["family"] == "janus" else {}
    for salt in range(SALTS):
        save_file({k: weight(salt, k, s) for k, s in shapes.items()}, folder / "model.safetensors",
                  {"format": "pt"})
        model, info = AutoModelForImageTextToText.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        assert not info["unexpected_keys"] and not info["missing_keys"], info
        out = model.eval().generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None,
                                    pad_token_id=0, return_dict_in_generate=True, output_logits=True, **extra)
        tokens = out.sequences[0, len(ids):].tolist()
        best = torch.stack(out.logits)[:, 0].float().topk(2).values
        gap = float((best[:, 0] - best[:, 1]).min())
        if gap >= LEAST_GAP and len(set(tokens)) >= 3:
            break
    else:
        raise ValueError("no weights keep the greedy tokens apart")
    (folder / "model.safetensors").unlink()
    return {"name": folder.name, "question": spec["question"], "images": spec["images"], "salt": salt,
            "ids": run_lengths(ids), "pixels": fnv(pixels.numpy().tobytes()), "numbers": pixels.numel(),
            "greedy": tokens, "shapes": shapes}


def by_layers(shapes):
    """"layers.0.x": s and "layers.1.x": s as "layers.*.x": [2, s]; the rest as [0, s]."""
    out = {}
    for name, shape in shapes.items():
        whole = re.sub(r"\b(layers|blocks)\.\d+\.", r"\1.*.", name, count=1)
        out.setdefault(whole, [0, shape])
        assert out[whole][1] == shape
        out[whole][0] += 1 if whole != name else 0
    return out


FILES = ("config.json", "tokenizer.json", "processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json",
         "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
         "chat_template.json", "chat_template.jinja")


def run(scratch):
    Image.Image.resize = across_first
    write_corpus(scratch, OUT, run_one)


def parts_of(shapes):
    """Shapes by the first two parts of a tensor's name: folders share some of them."""
    parts = {}
    for name, shape in shapes.items():
        parts.setdefault(".".join(name.split(".")[:2]), {})[name] = shape
    return list(parts.values())


def write_corpus(scratch, out, run_folder, in_parts=False):
    """folders.json.gz in `out`: every folder of `scratch` that the reference runs, texts and shapes once each."""
    out.mkdir(parents=True, exist_ok=True)
    texts, lists, rows = {}, {}, []
    for folder in sorted(scratch.iterdir(), key=lambda f: (f.name.split("-")[0], int(f.name.split("-")[1]))
                         if f.is_dir() else ("", 0)):
        if not (folder / "shapes.json").exists():
            continue
        done = folder / "result.json"
        try:
            row = json.loads(done.read_text()) if done.exists() else run_folder(folder)
        except Exception as error:  # legal to save and not to run: no folder
            print("refused by the reference:", folder.name, type(error).__name__, str(error)[:200])
            continue
        done.write_text(json.dumps(row))
        row["files"] = {}
        for name in FILES:
            if (folder / name).exists():
                text = (folder / name).read_text()
                if name.endswith(".json"):
                    text = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
                key = hashlib.sha256(text.encode()).hexdigest()[:12]
                texts[key] = text
                row["files"][name] = key
        for field in [name for name in ("shapes", "vq_shapes") if name in row]:
            keys = []
            for part in parts_of(row[field]) if in_parts else [row[field]]:
                keys.append(hashlib.sha256(json.dumps(part).encode()).hexdigest()[:12])
                lists[keys[-1]] = by_layers(part)
            row[field] = keys if in_parts else keys[0]
        rows.append(row)
    dump = {"transformers": transformers.__version__, "texts": texts, "shapes": lists, "folders": rows}
    text = "{\n" + ",\n".join(
        json.dumps(k) + ":" + (json.dumps(v) if isinstance(v, str) else spread(v)) for k, v in dump.items()) + "\n}\n"
    (out / "folders.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(len(rows), "folders,", (out / "folders.json.gz").stat().st_size, "bytes")


# --- keys of the reference's classes -------------------------------------------------------------

TYPES = ("llava", "llava_next", "llava_onevision", "qwen2_vl", "qwen2_5_vl", "idefics3", "smolvlm", "janus")
PARTS_OF = {"text_config": ("llama", "mistral", "qwen2"), "vision_config": ("clip_vision_model", "siglip_vision_model")}
TEXTS = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text")
GENERATING = ("emu3", "chameleon", "t5")
ALL_TOKENIZERS = [stem + end for stem in ("Llama", "CodeLlama", "Qwen2", "GPT2", "Gemma", "T5", "CLIP")
                  for end in ("Tokenizer", "TokenizerFast")]
CLASSES = {"clip": "CLIP", "llava": "Llava", "siglip": "Siglip", "llava_next": "LlavaNext",
           "llava_onevision": "LlavaOnevision", "qwen2_vl": "Qwen2VL", "idefics3": "Idefics3",
           "smolvlm": "SmolVLM", "janus": "Janus", "emu3": "Emu3", "chameleon": "Chameleon"}


def paths(value, stem=""):
    out = set()
    for key, inner in value.items():
        if isinstance(key, str):
            out.add(stem + key)
            if isinstance(inner, dict) and key not in ("id2label", "label2id"):
                out |= paths(inner, stem + key + ".")
    return out


def class_keys():
    """Every key that a class of this version reads or saves."""
    import importlib
    import inspect
    found = {"config " + t: paths(CONFIG_MAPPING[t]().to_dict()) for t in TYPES}
    for part, kinds in PARTS_OF.items():
        for kind in kinds:
            found[f"{part} {kind}"] = paths(CONFIG_MAPPING[kind]().to_dict())
    for kind in TEXTS:
        found["text " + kind] = paths(CONFIG_MAPPING[kind]().to_dict())
    for module, stem in CLASSES.items():
        for kind, prefix in (("Image", "image"), ("Video", "video")):
            keys = set()
            for suffix, middle in (("", ""), ("Fast", "_fast"), ("Pil", "_pil")):
                file = f"{prefix}_processing{'_pil' if middle == '_pil' else ''}_{module}{middle if middle == '_fast' else ''}"
                try:
                    found_class = getattr(importlib.import_module(f"transformers.models.{module}.{file}"),
                                          f"{stem}{kind}Processor{suffix}")
                except (ImportError, AttributeError):
                    continue
                keys |= set(found_class().to_dict())
                keys |= set(getattr(getattr(found_class, "valid_kwargs", None), "__annotations__", {}))
            if keys:
                found[f"{prefix} {module}"] = keys
        try:
            whole = getattr(importlib.import_module(f"transformers.models.{module}.processing_{module}"),
                            f"{stem}Processor")
        except (ImportError, AttributeError):
            continue
        found["processor " + module] = set(inspect.signature(whole.__init__).parameters) - {
            "self", "args", "kwargs", "image_processor", "tokenizer", "video_processor"}
    for kind in GENERATING:
        found["generating " + kind] = paths(CONFIG_MAPPING[kind]().to_dict())
    found["tokenizer"] = set()
    for name in (*ALL_TOKENIZERS, "PreTrainedTokenizerFast"):
        for base in getattr(transformers, name, object).__mro__:
            if "__init__" in base.__dict__:
                found["tokenizer"] |= set(inspect.signature(base.__init__).parameters)
    found["tokenizer"] -= {"self", "args", "kwargs"}
    config = transformers.GenerationConfig
    found["generation"] = paths(config().to_dict()) | set(vars(config()))
    return found


def keys(scratch):
    (scratch / f"keys-v{MAJOR}.json").write_text(json.dumps({k: sorted(v) for k, v in class_keys().items()}))
    whole = {}
    for file in scratch.glob("keys-v*.json"):
        for name, listed in json.loads(file.read_text()).items():
            whole[name] = sorted(set(whole.get(name, ())) | set(listed))
    # The model types' own keys: what every configuration has is kept once.
    common = sorted(set.intersection(*(set(whole["config " + t]) for t in TYPES)))
    for t in TYPES:
        whole["config " + t] = sorted(set(whole["config " + t]) - set(common))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "keys.json").write_text(spread({"config": common, **whole}) + "\n")
    print({k: len(v) for k, v in whole.items()})


def spread(value):
    """An entry a line."""
    lines = [json.dumps(v, ensure_ascii=False, separators=(",", ":")) if isinstance(value, list) else
             json.dumps(k) + ":" + json.dumps(v, ensure_ascii=False, separators=(",", ":"))
             for k, v in (enumerate(value) if isinstance(value, list) else value.items())]
    ends = "[]" if isinstance(value, list) else "{}"
    return ends[0] + "\n" + ",\n".join(lines) + "\n" + ends[1]


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    scratch = Path(sys.argv[2])
    scratch.mkdir(parents=True, exist_ok=True)
    {"keys": lambda: keys(scratch), "save": lambda: save(scratch, int(sys.argv[3])), "run": lambda: run(scratch)}[sys.argv[1]]()


if __name__ == "__main__":
    main()
