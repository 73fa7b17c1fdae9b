"""Train the text tokenizer of the tabletop models: byte-level BPE in the DeepSeek-LLM style.

Writes tokenizer.json and tokenizer_config.json. Pre-tokenizer: a Sequence of regex Splits (line
breaks, letters, punctuation, trailing space, CJK), single digits, then ByteLevel without its own
regex. At most 512 ids; every byte is representable. BOS is added by the post-processor.
"""
from __future__ import annotations

import argparse
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from training_common import load_scenes

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
BEGIN_IMAGE, END_IMAGE, PLACEHOLDER = "<begin_of_image>", "<end_of_image>", "<image_placeholder>"
USER, ASSISTANT = "<|User|>", "<|Assistant|>"
SPECIALS = [BOS, EOS, PAD, BEGIN_IMAGE, END_IMAGE, PLACEHOLDER, USER, ASSISTANT]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "{{ '<|Assistant|>: ' + message['content'] + eos_token }}{% else %}"
    "{{ '<|User|>: ' + message['content'] + '\n\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|Assistant|>:' }}{% endif %}")


def prompt_text(caption: str) -> str:
    """Janus-Pro's template with an empty assistant turn; the tokenizer itself adds BOS."""
    return f"{USER}: {caption}\n\n{ASSISTANT}:{BEGIN_IMAGE}"


def build(texts, vocabulary: int, specials=tuple(SPECIALS), first: str | None = BOS) -> Tokenizer:
    """`first`: the token that the post-processor puts in front of every text, or None"""
    tokenizer = Tokenizer(models.BPE())
    punctuation = "!-/:-~！-／：-～‘-‟　-。"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[\r\n]"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
        pre_tokenizers.Split(Regex(rf"\s?[{punctuation}]+"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s+$"), "isolated"),
        pre_tokenizers.Split(Regex(r"[一-龥ࠀ-一가-퟿]+"), "isolated"),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[AddedToken(s, special=True, normalized=False) for s in specials],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    if first:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first}:0 $A:0", pair=f"{first}:0 $A:0 {first}:1 $B:1",
            special_tokens=[(first, tokenizer.token_to_id(first))])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=Path, nargs="+", required=True, help="dumped sets, without suffix")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocabulary", type=int, default=512)
    options = parser.parse_args()
    texts = []
    for stem in options.scenes:
        for line in load_scenes(stem, with_pixels=False)[1]:
            texts.append(f": {line['caption']}\n\n")
            texts += [f"\n{pair['q']}\n\n: {pair['a']}" for pair in line.get("questions", [])]
    tokenizer = build(texts, options.vocabulary)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.out / "tokenizer.json"))
    config = {"add_bos_token": True, "add_eos_token": False, "bos_token": BOS, "eos_token": EOS,
              "pad_token": PAD, "clean_up_tokenization_spaces": False, "model_max_length": 512,
              "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE}
    (options.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    lengths = [len(tokenizer.encode(t).ids) for t in texts[:20000]]
    print(json.dumps({"vocabulary": tokenizer.get_vocab_size(), "mean_tokens": sum(lengths) / len(lengths),
                      "longest": max(lengths)}))


if __name__ == "__main__":
    main()
