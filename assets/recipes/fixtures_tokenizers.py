"""Goldens of tokenizers/text, made with the `tokenizers` package.

  fixtures_tokenizers.py golden [NAME...]  tests/golden/text/: trained tokenizers, strings with ids
  fixtures_tokenizers.py generate N OUT    N random strings x every tokenizer, ids and decoded text,
                                           one JSON line each, for text_tokenizer_replay

The four published pre-tokeniser stacks (DeepSeek-LLM, Llama-3, Qwen2, GPT-2) and smaller tokenizers
that use the other parts are trained on a corpus this script makes itself.
"""
from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from text_strings import CODE, FIXED, WORDS, random_string, sentence
from text_tables import CATEGORIES, charsmap

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "text"


# ------------------------------------------------------------------------------ published patterns
def span(ranges: str) -> str:
    """'41-5A B5' -> the characters of a regex class, from hex code points."""
    out = ""
    for item in ranges.split():
        first, _, last = item.partition("-")
        out += chr(int(first, 16)) + ("-" + chr(int(last, 16)) if last else "")
    return out


DEEPSEEK_LETTERS = span(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 "
    "388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA "
    "1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 "
    "1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB "
    "1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D "
    "212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 "
    "A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A "
    "FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF "
    "1E900-1E943")
DEEPSEEK_MARKS = span("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
DEEPSEEK_CJK = span("4E00-9FA5 800-4E00 AC00-D7FF")
CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def isolated(pattern: str):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(use_regex: bool, prefix: bool = False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


# ------------------------------------------------------------------------------------------ corpus
def corpus() -> list[str]:
    rng = random.Random(20240607)
    lines = []
    for kind, share in [("latin", 700), ("greek", 80), ("cyrillic", 150), ("cjk", 250), ("kana", 120),
                        ("hangul", 120), ("arabic", 80), ("hebrew", 60), ("devanagari", 80),
                        ("thai", 60), ("digits", 120), ("emoji", 60), ("combining", 60)]:
        for _ in range(share):
            lines.append(sentence(rng, [kind] * 5 + ["marks", "digits"], rng.randint(4, 14)))
    return lines + CODE * 12


# -------------------------------------------------------------------------------------- tokenizers
def train(tokenizer: Tokenizer, size: int, specials: list[str], alphabet: list[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=alphabet,
                                  limit_alphabet=600, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def byte_alphabet() -> list[str]:
    return pre_tokenizers.ByteLevel.alphabet()


def template(tokenizer: Tokenizer, bos: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                         special_tokens=[(bos, tokenizer.token_to_id(bos))])


def with_unmerged(tokenizer: Tokenizer, words: list[str]) -> Tokenizer:
    """Adds words to the vocabulary that no merge makes: what ignore_merges is for."""
    file = json.loads(tokenizer.to_str())
    vocab = file["model"]["vocab"]
    for word in words:
        vocab.setdefault(word, len(vocab))
    return Tokenizer.from_str(json.dumps(file))


def deepseek_llm() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        isolated("[\r\n]"), isolated(r"\s?[" + DEEPSEEK_LETTERS + "]+"),
        isolated(r"\s?[" + DEEPSEEK_MARKS + "]+"), isolated(r"\s+$"), isolated("[" + DEEPSEEK_CJK + "]+"),
        pre_tokenizers.Digits(individual_digits=True), byte_level(False)])
    tokenizer.decoder = decoders.ByteLevel()
    never_in_utf8 = "øöúÿõ÷ûýÀùÁþü"
    train(tokenizer, 960, [], [c for c in byte_alphabet() if c not in never_in_utf8])
    tokenizer.add_special_tokens([AddedToken(t, normalized=True, special=True)
                                  for t in ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"]])
    tokenizer.add_tokens([AddedToken(c, normalized=True) for c in never_in_utf8])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in [
        "<｜▁pad▁｜>", "<image_placeholder>", "<begin_of_image>", "<end_of_image>", "<|User|>",
        "<|Assistant|>"]])
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template(tokenizer, "<｜begin▁of▁sentence｜>")])
    return tokenizer


def llama3() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([isolated(LLAMA3), byte_level(False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 1000, [], byte_alphabet())
    tokenizer = with_unmerged(tokenizer, ["Ġpainting", "zebra", "ä¸ŃæĸĩĠ", "Ġcube", "Ġcubes", "!!!!", "12", "2024"])
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                                  "<|end_header_id|>", "<|eot_id|>"])
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), template(tokenizer, "<|begin_of_text|>")])
    return tokenizer


def qwen2() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([isolated(QWEN2), byte_level(False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 1000, [], byte_alphabet())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("é́", normalized=True)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def gpt2() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level(True)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 1000, ["<|endoftext|>"], byte_alphabet())
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False),
                                  AddedToken("<sep>", rstrip=True, lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("cube", single_word=True), AddedToken("cubes", normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


# What the published stacks do not reach: metaspace with byte fallback, the other Split behaviours,
# the other normalisers, newer published patterns.
def llama2() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    train(trained, 420, [], [])
    model = json.loads(trained.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokens += sorted(model["vocab"], key=model["vocab"].get)
    tokenizer.model = models.BPE(vocab={t: i for i, t in enumerate(tokens)},
                                 merges=[tuple(m) for m in model["merges"]], unk_token="<unk>",
                                 fuse_unk=True, byte_fallback=True)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_special_tokens([AddedToken("<image>", normalized=False)])
    tokenizer.add_tokens([AddedToken("<box>", normalized=True)])
    tokenizer.post_processor = template(tokenizer, "<s>")
    return tokenizer


def small(pre, normalizer=None, decoder=None, size=330, alphabet=(), **model) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if decoder is not None:
        tokenizer.decoder = decoder
    specials = ["[UNK]"] if model.get("unk_token") else []
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials,
                                  limit_alphabet=max(200, len(alphabet)),
                                  initial_alphabet=list(alphabet), show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([AddedToken("<s>", single_word=True), AddedToken("<pad>", rstrip=True)])
    tokenizer.add_tokens([AddedToken("Cube", normalized=True, lstrip=True), AddedToken("red", single_word=True),
                          AddedToken("re", single_word=True), AddedToken("⅓", normalized=True)])
    return tokenizer


def zoo() -> dict[str, Tokenizer]:
    p, n, d = pre_tokenizers, normalizers, decoders
    unk = dict(unk_token="[UNK]")
    alphabet = byte_alphabet()
    return {
        "llama2": llama2(),
        "metaspace": small(p.Metaspace(prepend_scheme="first"), n.NFKC(), d.Metaspace(prepend_scheme="first"),
                           unk_token="[UNK]", fuse_unk=False),
        "metaspace_whole": small(p.Sequence([p.Split(Regex(r"\d+"), "isolated"),
                                             p.Metaspace(prepend_scheme="always", split=False)]),
                                 n.NFD(), d.Metaspace(), unk_token="[UNK]", fuse_unk=True),
        "lower": small(p.Whitespace(), n.Sequence([n.Lowercase(), n.NFKD(), n.Strip()]), None, **unk),
        "removed": small(p.Split(Regex(r"[\p{P}\p{S}]+"), "removed"), n.Replace(Regex(r"\s+"), " "),
                         d.Fuse(), **unk),
        "previous": small(p.Sequence([p.Split(" ", "merged_with_previous"), p.Digits(individual_digits=False)]),
                          n.Strip(left=True, right=False), d.Replace("e", "E"), **unk),
        "next": small(p.Sequence([p.Split(Regex(r"[\s\p{Han}]"), "merged_with_next"),
                                  p.Split(Regex(r"\p{Nd}"), "contiguous")]), None, d.Strip("a", 0, 1), **unk),
        "invert": small(p.Split(Regex(r"\w+|[^\w\s]+"), "removed", invert=True), None, d.ByteFallback(), **unk),
        "spaces": small(p.Sequence([p.WhitespaceSplit(), byte_level(False)]), None, d.ByteLevel(), size=420,
                        alphabet=alphabet),
        "gpt4o": small(p.Sequence([isolated(GPT4O), byte_level(False)]), None, d.ByteLevel(), size=420,
                       alphabet=alphabet),
        "deepseek3": small(p.Sequence([isolated(r"\p{N}{1,3}"), isolated("[一-龥぀-ゟ゠-ヿ]+"),
                                       isolated(DEEPSEEK3), byte_level(False)]), n.Sequence([]), d.ByteLevel(),
                           size=420, alphabet=alphabet),
        "digits_gpt2": small(p.Sequence([p.Digits(individual_digits=True), byte_level(True, prefix=True)]),
                             None, d.ByteLevel(), size=420, alphabet=alphabet),
        "empty_matches": small(p.Sequence([p.Split(Regex(r"(?=(?:\d{3})+(?!\d))"), "isolated"),
                                           p.Split(Regex(r"\b|x*|(?<=o)"), "isolated"), byte_level(False)]),
                               None, d.ByteLevel(), size=420, alphabet=alphabet),
        "possessive": small(p.Sequence([
            isolated(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
                     r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"), byte_level(False)]), None, d.ByteLevel(), size=420,
            alphabet=alphabet),
    }


# Other models than BPE, and what their published files have around them.
CHARSMAP = "".join(f"{a}\t{b}\n" for a, b in [
    ("9", "20"), ("A", "20"), ("D", "20"), ("D A", "20"), ("A0", "20"), ("3000", "20"), ("200B", "20"), ("AD", ""),
    ("FF21", "41"), ("FF22", "42"), ("FF76", "30AB"), ("FF76 FF9E", "30AC"), ("FB01", "66 69"), ("BD", "31 2044 32"),
    ("41 301", "C1"), ("65 301", "E9"), ("66", "46"), ("E4", "61 308"), ("1F642", "3A 29"), ("2126", "3A9"),
    ("301", ""), ("FDFA", "635 644 649 20 627 644 644 647"), ("B2", "32"), ("2163", "49 56")])


def unigram(pre, normalizer, decoder, size: int, specials: list[str], unk: str, fallback: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=specials, unk_token=unk, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    if fallback:
        vocab = [tuple(v) for v in json.loads(tokenizer.to_str())["model"]["vocab"]]
        vocab = vocab[:len(specials)] + [(f"<0x{b:02X}>", 0.0) for b in range(256)] + vocab[len(specials):]
        tokenizer.model = models.Unigram(vocab, specials.index(unk), True)
    tokenizer.decoder = decoder
    return tokenizer


def t5() -> Tokenizer:
    n = normalizers
    tokenizer = unigram(pre_tokenizers.Metaspace(), n.Sequence([
        n.Precompiled(charsmap(CHARSMAP)), n.Strip(left=False, right=True), n.Replace(Regex(" {2,}"), "▁")]),
        decoders.Metaspace(), 420, ["<pad>", "</s>", "<unk>"], "<unk>", False)
    tokenizer.add_special_tokens([AddedToken(f"<extra_id_{i}>", lstrip=True, rstrip=True) for i in range(3)])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                             special_tokens=[("</s>", 1)])
    return tokenizer


def unigram_bytes() -> Tokenizer:
    d = decoders
    tokenizer = unigram(pre_tokenizers.Metaspace(prepend_scheme="first", split=False), None, d.Sequence(
        [d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)]), 420, ["<unk>", "<s>", "</s>"], "<unk>",
        True)
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<image>", normalized=False)])
    tokenizer.add_tokens(["<box>"])
    tokenizer.post_processor = template(tokenizer, "<s>")
    return tokenizer


def word_piece(normalizer, pre, size: int, longest: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=longest))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials,
                                                                      limit_alphabet=250, show_progress=False))
    file = json.loads(tokenizer.to_str())
    file["model"]["max_input_chars_per_word"] = longest
    return Tokenizer.from_str(json.dumps(file))


def bert() -> Tokenizer:
    tokenizer = word_piece(normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer(), 500, 100)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer


def bert_cased() -> Tokenizer:
    n, p = normalizers, pre_tokenizers
    tokenizer = word_piece(n.Sequence([n.Nmt(), n.StripAccents(), n.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False)]),
        p.Sequence([p.CharDelimiterSplit("e"), p.WhitespaceSplit(), p.Punctuation("merged_with_previous")]), 500, 9)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return tokenizer


def clip() -> Tokenizer:
    n, p = normalizers, pre_tokenizers
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    tokenizer.normalizer = n.Sequence([n.NFC(), n.Replace(Regex(r"\s+"), " "), n.Lowercase()])
    tokenizer.pre_tokenizer = p.Sequence([
        p.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        byte_level(True)])
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|startoftext|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(vocab_size=760, special_tokens=specials, end_of_word_suffix="</w>",
                                  initial_alphabet=byte_alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), False, False)
    return tokenizer


def affixes() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", continuing_subword_prefix="@@", unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(vocab_size=560, special_tokens=["<unk>", "<s>"], end_of_word_suffix="</w>",
                                  continuing_subword_prefix="@@", limit_alphabet=100, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


OTHER_MODELS = {"t5": t5, "unigram_bytes": unigram_bytes, "bert": bert, "bert_cased": bert_cased, "clip": clip,
                "affixes": affixes}
PUBLISHED = {"deepseek_llm": deepseek_llm, "llama3": llama3, "qwen2": qwen2, "gpt2": gpt2}


def all_tokenizers() -> dict[str, Tokenizer]:
    """Every tokenizer as it is read back from its file, so that the file is what decides."""
    made = {name: build() for name, build in (PUBLISHED | OTHER_MODELS).items()} | zoo()
    return {name: Tokenizer.from_str(t.to_str()) for name, t in made.items()}


# ----------------------------------------------------------------------------------------- strings
def specials_of(tokenizer: Tokenizer) -> list[str]:
    return [t.content for t in tokenizer.get_added_tokens_decoder().values()]


def record(tokenizer: Tokenizer, text: str) -> dict:
    ids = tokenizer.encode(text).ids
    return {"text": text, "ids": ids, "plain": tokenizer.encode(text, add_special_tokens=False).ids,
            "decoded": tokenizer.decode(ids), "raw": tokenizer.decode(ids, skip_special_tokens=False)}


def compact(row: dict) -> dict:
    """Leaves out what can be told from the rest, so that the goldens stay small."""
    if row["raw"] == row["decoded"]:
        del row["raw"]
    if row["decoded"] == row["text"]:
        del row["decoded"]
    if row["plain"] == row["ids"]:
        del row["plain"]
    return row


# Where words begin and end is seen here and not in the ids: a small vocabulary has few merges across.
SPLIT_TEXTS = FIXED + [
    "a--b-c--", "--a", "  a  b ", "12ab345 6", "a1b22c333", "中a中中b", "aabbaab", "x=1;;y=2", "a\n\nb\r\n c",
    "a\u1c89b\u1c8a \ua7cb\ua7da's", "\U00031350\U0002ebf0中 \U0001fae8🙂", "\U00011f50\U0001e4f01\U00011de0\U00016ff4 2",
    "a\u0897b \u0cf3c\u1b4e.\u2427\u2fff", "a\u180eb \u0085\u180e\u2028x", "a²b ⅧⅣ½ x\u203fy\u200dz", "ǅ\u02b0\u0300Ab ÀÉ'S x'ſ",
    "can't CAN'T I'LL'VE 'tis '' s'", "1234567 12 3", "oxox xx", "\u3001\u30fb\u30fc中",
]


def behaviours() -> list:
    names = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    pre = pre_tokenizers.Split
    return ([pre(Regex("-|a+"), name, invert) for name in names for invert in (False, True)]
            + [pre(" ", name) for name in names] + [isolated(rf"\p{{{c}}}+") for c in CATEGORIES]
            + [isolated(rf"\{c}+") for c in "swdhSWDv"] + [isolated(rf"\p{{{c}}}+") for c in ("Han", "Latin", "Common")]
            + [pre_tokenizers.Sequence([pre(Regex("[- ]"), name), pre_tokenizers.Metaspace(prepend_scheme="first")])
               for name in names]
            + [isolated("^.|.$"), isolated(r"a{1,2}+|[^\s\p{L}-]{,2}x"), isolated(r"(?i:[a-cſK]+)")])


def words_of(pre, text: str) -> list[str]:
    return [word for word, _ in pre.pre_tokenize_str(text)]


def write_words(tokenizers: dict[str, Tokenizer]) -> None:
    lines = []
    for pre in [t.pre_tokenizer for t in tokenizers.values() if t.pre_tokenizer] + behaviours():
        holder = Tokenizer(models.BPE())
        holder.pre_tokenizer = pre
        rows = [[text, words_of(pre, text)] for text in SPLIT_TEXTS if len(text) < 60]
        rows = [row for row in rows if len(row[1]) > 1 or row[0] != "".join(row[1])]
        lines.append(json.dumps({"pre_tokenizer": json.loads(holder.to_str())["pre_tokenizer"], "rows": rows},
                                ensure_ascii=False, separators=(",", ":")))
    (GOLDEN / "words.jsonl").write_text("\n".join(lines) + "\n")


def write_golden(only: list[str]) -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    disagreements = GOLDEN / "kept_strings.json"
    kept = json.loads(disagreements.read_text()) if disagreements.exists() else []
    tokenizers = all_tokenizers()
    if not only:
        write_words({name: t for name, t in tokenizers.items() if name not in OTHER_MODELS})
    for name, tokenizer in tokenizers.items():
        if only and name not in only:
            continue
        text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
        (GOLDEN / f"{name}.tokenizer.json").write_text(text + "\n")
        rng = random.Random(name)
        specials = specials_of(tokenizer)
        strings = list(FIXED) + kept + [f"x{s} {s}{s} y {s.upper()}" for s in specials[:12]]
        wanted = 200 + len(kept) if name in PUBLISHED else 90 + len(kept)
        while len(strings) < wanted:
            strings.append(random_string(rng, specials))
        rows = [json.dumps(compact(record(tokenizer, s)), ensure_ascii=True, separators=(",", ":")) for s in strings]
        (GOLDEN / f"{name}.strings.jsonl").write_text("\n".join(rows) + "\n")


def write_generated(count: int, out: Path) -> None:
    for name, tokenizer in all_tokenizers().items():
        (out / f"{name}.tokenizer.json").write_text(tokenizer.to_str())
        rng = random.Random(f"generated {name}")
        specials = specials_of(tokenizer)
        with open(out / f"{name}.strings.jsonl", "w") as lines:
            for _ in range(count):
                row = record(tokenizer, random_string(rng, specials))
                if tokenizer.pre_tokenizer:
                    row["words"] = words_of(tokenizer.pre_tokenizer, row["text"])
                lines.write(json.dumps(row) + "\n")


def main() -> None:
    command = sys.argv[1] if len(sys.argv) > 1 else "golden"
    if command == "generate":
        out = Path(sys.argv[3])
        out.mkdir(parents=True, exist_ok=True)
        write_generated(int(sys.argv[2]), out)
    else:
        write_golden(sys.argv[2:])


if __name__ == "__main__":
    main()
