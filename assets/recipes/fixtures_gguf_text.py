"""Text models as GGUF files and as folders, with what transformers writes with them.

Each model is drawn at random by torch's seed, saved as a folder, and written as GGUF by the `gguf` package:
Llama's query and key rows as pairs, as the converters of published files do. transformers loads the file
(its own reader turns the rows back and dequantises) and gives logits and greedy tokens; for files of f32 the
folder must give the same. Tokenizers are those of tests/golden/text_folders.

  python assets/recipes/fixtures_gguf_text.py            # under transformers 4.57, whose tokenizers it compares with
  python assets/recipes/fixtures_gguf_text.py qwen3_f32  # some of them; the others stay
"""
import json
import shutil
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from sentencepiece import SentencePieceProcessor

from gguf_layout import LAYERS, llama3_divisors, paired

ROOT = Path(__file__).resolve().parents[2] / "tests" / "golden"
OUT = ROOT / "gguf_text"
PROMPTS = ["The cat sat on", "Hello, world! 12345", "a", "  two spaces\nand a line; caf\u00e9 \u4f60\u597d",
           "It's 3.14 o'clock, isn't it?", "<s> <|im_end|> written out"]
NEW_TOKENS, LEAST_GAP = 24, 1e-3
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
GEMMA_LAYERS = dict(LAYERS, post_attention_norm="post_attention_layernorm", ffn_norm="pre_feedforward_layernorm",
                    post_ffw_norm="post_feedforward_layernorm")
SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=512, initializer_range=0.3)
# Formats that are drawn: bytes of a block's scale and of the scale of what is taken off, and the quants' middle.
SCALES = {"Q2_K": (80, 82, 1.5), "Q3_K": (108, None, 0), "Q4_K": (0, 2, 7.5), "Q5_K": (0, 2, 15.5),
          "Q6_K": (208, None, 0)}
# As published files mix them: parts of one product of several types.
MIXED = {"token_embd": "Q6_K", "attn_q": "Q4_K", "attn_k": "Q4_K", "attn_v": "Q6_K", "attn_output": "Q5_K",
         "ffn_gate": "Q4_1", "ffn_up": "Q5_1", "ffn_down": "Q3_K"}
MORE_MIXED = {"token_embd": "Q5_0", "attn_q": "Q5_0", "attn_k": "Q8_0", "attn_v": "F16", "attn_output": "Q4_0",
              "ffn_gate": "Q2_K", "ffn_up": "Q2_K", "ffn_down": "Q5_1"}
GEMMA = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=7, num_attention_heads=2, num_key_value_heads=1,
             head_dim=8, query_pre_attn_scalar=8, sliding_window=6, rope_theta=1000000.0, tie_word_embeddings=True,
             rms_norm_eps=1e-6, pad_token_id=0)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


class NearTie(Exception):
    """Two tokens are likely alike: rounding would decide between them."""


def write_keys(writer, kind, keys):
    writer.add_context_length(keys["max_position_embeddings"])
    writer.add_embedding_length(keys["hidden_size"])
    writer.add_block_count(keys["num_hidden_layers"])
    writer.add_feed_forward_length(keys["intermediate_size"])
    writer.add_head_count(keys["num_attention_heads"])
    writer.add_head_count_kv(keys["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(keys["rms_norm_eps"])
    writer.add_rope_freq_base(keys["rope_theta"])
    if keys.get("head_dim"):
        writer.add_key_length(keys["head_dim"])
        writer.add_value_length(keys["head_dim"])
    if kind == "gemma3":
        writer.add_sliding_window(keys["sliding_window"])
    if kind == "llama":
        writer.add_rope_dimension_count(keys["hidden_size"] // keys["num_attention_heads"])
        writer.add_vocab_size(keys["vocab_size"])


def of_pieces(kind):
    return kind in ("llama", "gemma3")


def write_pieces(writer, vocab):
    model = SentencePieceProcessor(model_file=str(ROOT / "text_folders/llama_legacy/tokenizer.model"))
    tokens, scores, kinds = [], [], []
    for i in range(model.vocab_size()):
        tokens.append(model.id_to_piece(i).encode())
        scores.append(model.get_score(i))
        kinds.append(2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


def write_bytes(writer, vocab):
    folder = ROOT / "text_folders/qwen2"
    ids = json.loads((folder / "vocab.json").read_text())
    added = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    tokens, kinds = [f"[PAD{i}]" for i in range(vocab)], [5] * vocab
    for token, i in ids.items():
        tokens[i], kinds[i] = token, 1
    for i, token in added.items():
        tokens[int(i)], kinds[int(i)] = token["content"], 3 if token["special"] else 4
    merges = [line for line in (folder / "merges.txt").read_text().split("\n") if line and not line.startswith("#version")]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def drawn_blocks(draws, quant, values):
    """Blocks of random bits, as the package does not write these formats; spread like `values`."""
    numbers, size = gguf.GGML_QUANT_SIZES[quant]
    scale, offset, middle = SCALES[quant.name]
    rows, columns = values.shape
    blocks = draws.integers(0, 256, (rows * columns // numbers, size), dtype=np.uint8)

    def put_scale(d):
        blocks[:, scale:scale + 2] = np.frombuffer(np.float16(d).tobytes(), dtype=np.uint8)
        if offset is not None:
            blocks[:, offset:offset + 2] = np.frombuffer(np.float16(d * middle).tobytes(), dtype=np.uint8)

    put_scale(1.0)
    put_scale(values.std() / gguf.quants.dequantize(blocks, quant).std())
    return blocks.reshape(rows, -1)


def write_gguf(path, kind, keys, weights, type_name, split=0):
    writer = gguf.GGUFWriter(path, kind, split_max_tensors=split)
    write_keys(writer, kind, keys)
    (write_pieces if of_pieces(kind) else write_bytes)(writer, keys["vocab_size"])

    draws = np.random.default_rng(7)

    def put(name, tensor):
        values = tensor.to(torch.float32).numpy()
        if kind == "gemma3" and "norm" in name:  # as it is multiplied
            values = 1 + values
        own = type_name[name.split(".")[-2]] if isinstance(type_name, dict) and values.ndim == 2 else type_name
        if values.ndim < 2 or own == "F32":
            return writer.add_tensor(name, values)
        quant = gguf.GGMLQuantizationType[own]
        blocks = drawn_blocks(draws, quant, values) if own in SCALES else gguf.quants.quantize(values, quant)
        writer.add_tensor(name, blocks, raw_dtype=quant)

    put("token_embd.weight", weights["model.embed_tokens.weight"])
    put("output_norm.weight", weights["model.norm.weight"])
    if not keys["tie_word_embeddings"]:
        put("output.weight", weights["lm_head.weight"])
    for i in range(keys["num_hidden_layers"]):
        for own, name in (GEMMA_LAYERS if kind == "gemma3" else LAYERS).items():
            for leaf in ("weight", "bias"):
                tensor = weights.get(f"model.layers.{i}.{name}.{leaf}")
                if tensor is None:
                    continue
                if kind == "llama" and own in ("attn_q", "attn_k"):
                    tensor = paired(tensor, keys["num_attention_heads" if own == "attn_q" else "num_key_value_heads"])
                put(f"blk.{i}.{own}.{leaf}", tensor)
    if keys.get("rope_scaling"):
        writer.add_tensor("rope_freqs.weight", llama3_divisors(keys, keys["hidden_size"] // keys["num_attention_heads"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(model, tokenizer, chat):
    rows = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        if prompt == PROMPTS[-1]:
            continue
        rows.append(answer(model, tokenizer, prompt, ids, False))
    if chat:
        for prompt in PROMPTS[:2]:
            messages = [{"role": "user", "content": prompt}]
            text = tokenizer.apply_chat_template(messages, chat_template=TEMPLATE, tokenize=False,
                                                 add_generation_prompt=True)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            rows.append(answer(model, tokenizer, prompt, ids, True))
    return rows


def answer(model, tokenizer, prompt, ids, chat):
    tokens, gap, first = list(ids), np.inf, None
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, -1]
        first = logits if first is None else first
        top = logits.topk(2)
        gap = min(gap, float(top.values[0] - top.values[1]))
        tokens.append(int(top.indices[0]))
        if tokens[-1] == tokenizer.eos_token_id:
            break
    if gap < LEAST_GAP:
        raise NearTie(prompt)
    new = tokens[len(ids):]
    return {"prompt": prompt, "chat": chat, "ids": ids, "tokens": new,
            "text": tokenizer.decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False)}, first


def make(name, kind, type_name, seed, folder_too, split=0, **more):
    torch.manual_seed(seed)
    keys = dict(SIZES, vocab_size=380 if of_pieces(kind) else 1024, rms_norm_eps=1e-5, rope_theta=10000.0,
                tie_word_embeddings=False, bos_token_id=1 if of_pieces(kind) else None,
                eos_token_id=2 if of_pieces(kind) else 1002)
    keys.update(more)
    if of_pieces(kind):
        model_file = SentencePieceProcessor(model_file=str(ROOT / "text_folders/llama_legacy/tokenizer.model"))
        keys["vocab_size"] = model_file.vocab_size()
    config = transformers.AutoConfig.for_model("gemma3_text" if kind == "gemma3" else kind, **keys)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.float32).eval()
    with torch.no_grad():
        for at, parameter in model.named_parameters():
            if at.endswith("bias"):
                parameter.normal_(0, 0.2)
            elif parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    weights = {at: tensor.clone() for at, tensor in model.state_dict().items()}
    path = OUT / f"{name}.gguf"
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / path.name
        write_gguf(whole, kind, keys, weights, type_name)
        # Its reader of keys takes the class's own width for heads whose width a file names: there the folder's keys.
        stated = {"config": model.config} if keys.get("head_dim") else {}
        loaded = transformers.AutoModelForCausalLM.from_pretrained(scratch, gguf_file=path.name, dtype=torch.float32,
                                                                   **stated).eval()
        if not split:
            shutil.copy(whole, path)
    if split:
        write_gguf(path, kind, keys, weights, type_name, split)
        path = sorted(OUT.glob(f"{name}-00001-of-*.gguf"))[0]
    tokenizer_files = Path(tempfile.mkdtemp())
    if of_pieces(kind):
        shutil.copy(ROOT / "text_folders/llama_legacy/tokenizer.model", tokenizer_files)
        (tokenizer_files / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer"}))
    else:
        for file in ("merges.txt", "vocab.json", "tokenizer_config.json"):
            shutil.copy(ROOT / "text_folders/qwen2" / file, tokenizer_files)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_files)
    if keys.get("rope_scaling"):  # its reader leaves the divisors out: the folder's weights, with them
        loaded.model.rotary_emb = model.model.rotary_emb
    rows = run(loaded, tokenizer, not of_pieces(kind))
    if type_name == "F32":
        own = run(model, tokenizer, not of_pieces(kind))
        for (row, first), (other, others) in zip(rows, own):
            assert row == other, (row, other)
            assert torch.allclose(first, others, rtol=1e-5, atol=1e-5)
    if folder_too:
        target = OUT / name
        target.mkdir(exist_ok=True)
        model.config.save_pretrained(target)
        save_file({at: tensor for at, tensor in weights.items() if at != "lm_head.weight" or not keys["tie_word_embeddings"]},
                  target / "model.safetensors", metadata={"format": "pt"})
        for file in tokenizer_files.iterdir():
            shutil.copy(file, target)
        (target / "model.safetensors").chmod(0o644)
    shutil.rmtree(tokenizer_files)
    # Logits of the first prompt are stored whole, in f32.
    return {"file": path.name, "folder": name if folder_too else "", "rows": [row for row, _ in rows],
            "logits": [float(x) for x in rows[0][1]]}


def settled(name, kind, type_name, seed, folder_too, **more):
    """The first of the seeds whose texts rounding does not decide."""
    for salt in range(100):
        try:
            return make(name, kind, type_name, seed + 10 * salt, folder_too, **more)
        except NearTie:
            continue
    raise SystemExit(f"{name}: near ties with every seed")


WIDE = dict(hidden_size=256, intermediate_size=256, num_hidden_layers=1, initializer_range=0.1,
            tie_word_embeddings=True)
MODELS = {"llama_f32": ("llama", "F32", 1, True, {}),
          "llama3_q8": ("llama", "Q8_0", 2, False, dict(split=9, rope_scaling=LLAMA3, rope_theta=500000.0)),
          "qwen2_f16": ("qwen2", "F16", 3, False, {}),
          "qwen2_tied_bf16": ("qwen2", "BF16", 4, False, dict(tie_word_embeddings=True)),
          # Heads wider than a share of the hidden size, as in Qwen3-0.6B.
          "qwen3_f32": ("qwen3", "F32", 5, True, dict(head_dim=16, tie_word_embeddings=True)),
          "qwen3_q8": ("qwen3", "Q8_0", 6, False, dict(head_dim=16, rope_theta=1000000.0, rms_norm_eps=1e-6)),
          # Texts go beyond the window, which all layers but the sixth have.
          "gemma3_f32": ("gemma3", "F32", 7, True, GEMMA),
          "llama_mixed": ("llama", MIXED, 7, False, WIDE),
          "llama_more_mixed": ("llama", MORE_MIXED, 8, False, WIDE)}


def main():
    OUT.mkdir(exist_ok=True)
    names = sys.argv[1:] or list(MODELS)
    kept = {} if not sys.argv[1:] else {
        row["file"].split(".")[0].split("-0")[0]: row for row in json.loads((OUT / "texts.json").read_text())}
    for name in names:
        kind, type_name, seed, folder_too, more = MODELS[name]
        kept[name] = settled(name, kind, type_name, seed, folder_too, **more)
    models = [kept[name] for name in MODELS]
    (OUT / "texts.json").write_text(json.dumps(models, ensure_ascii=False) + "\n")
    print(sum(file.stat().st_size for file in OUT.rglob("*") if file.is_file()), "bytes")


if __name__ == "__main__":
    main()
