"""Parity fixtures for T5's encoder: tests/golden/t5/.

Two folders as `save_pretrained` of transformers writes them, every parameter random: `gated` (T5 1.1: a whole
T5ForConditionalGeneration in bf16, of which the encoder is read) and `relu` (T5 1.0: a T5EncoderModel in f32, other
buckets), each with a tokenizer. recorded.safetensors has texts' ids and what the encoder makes of them in f32, as one
padded batch: rows of padding left out, the same numbers with padding at either end; and the buckets of distances.

  python assets/recipes/fixtures_t5.py
"""
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import T5Config, T5EncoderModel, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "t5"
LENGTHS = (1, 2, 9, 33, 150)
VOCABULARY = 96
SHARED = dict(vocab_size=VOCABULARY, num_layers=2, num_decoder_layers=1, dropout_rate=0.0, tie_word_embeddings=False)
GATED = T5Config(d_model=32, d_kv=12, num_heads=3, d_ff=40, feed_forward_proj="gated-gelu", **SHARED)
RELU = T5Config(d_model=24, d_kv=8, num_heads=4, d_ff=56, feed_forward_proj="relu", relative_attention_num_buckets=12,
                relative_attention_max_distance=20, **SHARED)


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() == 1:
            p.data = 1 + 0.3 * noise
        elif "relative_attention_bias" in name:
            p.data = 1.5 * noise
        elif "shared" in name or "embed" in name:
            p.data = noise
        else:  # scores are not scaled: smaller queries keep attention from one key
            p.data = noise * (0.35 if ".q." in name else 1.2) / p.shape[1] ** 0.5


def tokenizer(folder):
    """Words of a few letters, in T5's form: a Unigram model behind Metaspace, </s> at the end."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
    pieces += [(c, -4.0 - 0.01 * i) for i, c in enumerate("abcdefghijklmnopqrstuvwxyz,.-")]
    words = "a the red blue green cube sphere on in of photo cat dog small large floor gray shiny".split()
    pieces += [("\u2581" + w, -3.0 - 0.1 * i) for i, w in enumerate(words)]
    own = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    own.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(left=False, right=True)])
    own.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    own.add_special_tokens(["<pad>", "</s>", "<unk>"])
    own.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    own.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 0,
                                                              "eos_token": "</s>", "pad_token": "<pad>",
                                                              "unk_token": "<unk>"}) + "\n")


def record(name, encoder, recorded):
    """Valid rows of all texts, one after the other."""
    generator = torch.Generator().manual_seed(5)
    texts = [torch.randint(3, VOCABULARY, (n,), generator=generator) for n in LENGTHS]
    longest = max(LENGTHS)
    results = []
    for left in (False, True):
        ids = torch.zeros(len(texts), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        spans = [slice(longest - len(t), longest) if left else slice(0, len(t)) for t in texts]
        for row, (text, span) in enumerate(zip(texts, spans)):
            ids[row, span], mask[row, span] = text, 1
        hidden = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        results.append(torch.cat([hidden[row, span] for row, span in enumerate(spans)]))
    alone = torch.cat([encoder(input_ids=t[None]).last_hidden_state[0] for t in texts])
    print(name, "left and right pads differ by", float((results[0] - results[1]).abs().max()), "from no pads by",
          float((results[0] - alone).abs().max()), "largest", float(alone.abs().max()))
    recorded[name + ".ids"] = torch.cat(texts).int()
    assert torch.equal(*results)
    recorded[name + ".hidden"] = results[0]
    distances = torch.arange(-200, 201)
    c = encoder.config
    recorded[name + ".buckets"] = T5Attention._relative_position_bucket(
        distances, True, c.relative_attention_num_buckets, c.relative_attention_max_distance).int()


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    recorded = {"lengths": torch.tensor(LENGTHS, dtype=torch.int32)}
    for name, config, whole, seed in (("gated", GATED, True, 21), ("relu", RELU, False, 22)):
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model = (T5ForConditionalGeneration if whole else T5EncoderModel)(config).eval()
        randomise(model, seed)
        if whole:
            model = model.bfloat16()
        model.save_pretrained(folder)
        encoder = T5EncoderModel.from_pretrained(folder, dtype=torch.float32).eval()
        encoder.config._attn_implementation = "eager"
        record(name, encoder, recorded)
        tokenizer(folder)
    save_file({k: v.contiguous().clone() for k, v in recorded.items()}, OUT / "recorded.safetensors")
    print(sum(p.stat().st_size for p in OUT.rglob("*") if p.is_file()), "bytes")


if __name__ == "__main__":
    main()
