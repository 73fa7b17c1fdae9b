"""Goldens of tokenizers/text, made with the `tokenizers` package, and its Unicode tables.

  fixtures_tokenizers.py golden            tests/golden/text/: trained tokenizers, strings with ids
  fixtures_tokenizers.py tables            tokenizers/text/unicode_tables.cpp
  fixtures_tokenizers.py generate N OUT    N random strings x every tokenizer, ids and decoded text,
                                           one JSON line each, for text_tokenizer_replay

The four published pre-tokeniser stacks (DeepSeek-LLM, Llama-3, Qwen2, GPT-2) and smaller tokenizers
that use the other parts are trained on a corpus this script makes itself.
"""
from __future__ import annotations

import ctypes
import ctypes.util
import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "text"


CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()


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
WORDS = {
    "latin": "a the red small cube stands left of big green sphere and behind it there is one shiny "
             "yellow cone on dark floor picture shows three matte objects don't we're I'll he'd "
             "they've I'm it's draw paint with at in Über straße naïve café año señor œuvre ångström "
             "być żółw İstanbul ﬁne ſtill".split(),
    "greek": "ο κόσμος είναι μεγάλος και ωραίος μικρή κόκκινη σφαίρα".split(),
    "cyrillic": "маленький красный куб стоит слева от большой зелёной сферы привет мир".split(),
    "cjk": "小 红色 立方体 在 左边 大 绿色 球体 後面 有 黄色 圓錐 图片 显示 三个 物体 你好 世界".split(),
    "kana": "赤い 小さな 立方体 は 左 に あります カメラ こんにちは ﾊﾝｶｸ".split(),
    "hangul": "작은 빨간 상자 왼쪽 에 있습니다 안녕하세요 한국어".split(),
    "arabic": "مكعب صغير أحمر على اليسار مرحبا بالعالم ١٢٣".split(),
    "hebrew": "קובייה אדומה קטנה שלום עולם".split(),
    "devanagari": "छोटा लाल घन बाईं ओर है नमस्ते दुनिया १२३".split(),
    "thai": "ลูกบาศก์ สีแดง ขนาดเล็ก สวัสดี ๑๒๓".split(),
    "digits": "0 1 2 7 10 42 100 128 1024 65536 3.14 1,000,000 ½ ² Ⅷ ٣ 三 1st 0x1F 2024-05-06".split(),
    "emoji": "🙂 🎨 👩‍🎨 👍🏽 🇫🇷 ❤️ 🧑‍🚀 ✨ 1️⃣ 🏳️‍🌈".split(),
    "marks": "! ? ... ; : -- — – ( ) [ ] { } < > / \\ | @ # $ % ^ & * ~ ` \" ' “ ” ‘ ’ « » ，。！？、"
             "「 」 … ‥ · € £ ¥ ± × ÷ √ ∞ → ⇒ _ = + ++ == != <= >= && || :: ->".split(),
    "combining": ["e\u0301", "a\u0308", "o\u0302\u0323", "n\u0303", "\u1100\u1161\u11a8", "q\u0307\u0323",
                  "\u0958", "\u212b", "\u2126", "\u1e9b\u0323", "c\u0327\u0301", "\u0344", "\ufb01",
                  "\u01c5", "\u00b5", "Z\u0335\u0321\u0322"],
}
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\u00a0", "\u3000", "\u2009",
          "\u200b", "\u180e", "\u0085", "\u2028", "\u200d", "\u000b", "\u000c", "    ", " \t "]
CODE = ["def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
        "<p class=\"x\">a &amp; b</p>\n", "{\"key\": [1, 2.5e-3, null]}\n", "$ ls -la ~/pictures\n"]
# One code point of many ages and kinds each: what regex engines and tables disagree about.
ODD = [0x00, 0x7f, 0x80, 0xad, 0xb2, 0xbc, 0x130, 0x131, 0x17f, 0x1c5, 0x2b0, 0x300, 0x345, 0x378, 0x37e,
       0x61c, 0x6dd, 0x7c0, 0x897, 0xcf3, 0xece, 0xe33, 0x1171e, 0x1680, 0x17b4, 0x180e, 0x1c89, 0x1c8a,
       0x1e9e, 0x200c, 0x200e, 0x202e, 0x2060, 0x2070, 0x212a, 0x2160, 0x2183, 0x2427, 0x2fff, 0x3007,
       0x3021, 0x31ef, 0x32ff, 0x9fa6, 0x9fff, 0xa7cb, 0xa7f2, 0xac00, 0xd7a4, 0xd7ff, 0xe000, 0xfb05,
       0xfdfa, 0xfe0f, 0xfeff, 0xff10, 0xfffd, 0xffff, 0x10780, 0x10781, 0x10d40, 0x10d50, 0x1123f, 0x11930,
       0x11935, 0x11938, 0x11f50, 0x11de0, 0x13430, 0x16ea0, 0x16ff4, 0x1d15e, 0x1d7d8, 0x1e4ec, 0x1e900,
       0x1f600, 0x1f6dc, 0x1fae8, 0x1fbf0, 0x20000, 0x2b739, 0x2ebf0, 0x31350, 0xe0001, 0xe0100, 0xf0000,
       0x10ffff]


def sentence(rng: random.Random, kinds: list[str], length: int) -> str:
    out = ""
    for _ in range(length):
        kind = rng.choice(kinds)
        word = rng.choice(WORDS[kind])
        if kind == "latin" and rng.random() < 0.2:
            word = rng.choice([word.capitalize(), word.upper()])
        glue = "" if kind in ("cjk", "kana") and rng.random() < 0.9 else " "
        out += (glue if out else "") + word
    return out + rng.choice([".", "!", "?", "。", "\n", ".\n\n"])


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


PUBLISHED = {"deepseek_llm": deepseek_llm, "llama3": llama3, "qwen2": qwen2, "gpt2": gpt2}


def all_tokenizers() -> dict[str, Tokenizer]:
    """Every tokenizer as it is read back from its file, so that the file is what decides."""
    made = {name: build() for name, build in PUBLISHED.items()} | zoo()
    return {name: Tokenizer.from_str(t.to_str()) for name, t in made.items()}


# ----------------------------------------------------------------------------------------- strings
def specials_of(tokenizer: Tokenizer) -> list[str]:
    return [t.content for t in tokenizer.get_added_tokens_decoder().values()]


FIXED = [
    "a painting zebra zebras painting paintings 2024 12 124 !!!!", " painting", "zebra", "中文 cubes 2024",
    "", " ", "\n", "a", "  a", "a  ", "   leading spaces", "\n\n\nlines\n\n", "\r\n\r\nCR LF\r\n", "\t\ttabs\t",
    "a small red cube left of a big green sphere", "12345678901234567890", "3.14159, 1,000,000 and 2^10", "007 0x1F ½ ² Ⅷ ٣٤٥ १२३ ๑๒๓ 三",
    "It's they'RE I'LL we'Ve I'M he'D don'T 'ſ", "你好，世界！这是一个小红色立方体。", "中文 with English 混合 text 123", "こんにちは、カメラ ﾊﾝｶｸ",
    "안녕하세요 한국어 \u1100\u1161\u11a8", "привет мир, Ёлка", "مرحبا بالعالم ١٢٣", "שָׁלוֹם עולם", "नमस्ते दुनिया क़", "สวัสดีชาวโลก",
    "🙂🎨👩‍🎨👍🏽🇫🇷🏳️‍🌈1️⃣", "e\u0301 a\u0308 o\u0302\u0323 o\u0323\u0302", "Z\u0335\u0321\u0322\u0301a\u0327lgo", "\u212b \u2126 \u212a ﬁ ﬅ ŉ ǅ",
    "\u00a0\u3000\u2009\u200b\u180e\u0085\u2028", "word\u180eword \u0085 x", "tail   ", "tail \n", "tail\u3000", "a\u00a0b\u3000c", "x\u0000y\u0007z\u007f",
    "ÀÁ øöúÿõ÷ûý ù þü", "é́ é\u0301", "<tool_call>{\"a\": 1}</tool_call>", "cube cubes acube cubed cube. (cube) Cube CUBE", "red re redo are red-re re_d",
    "A" * 300, " " * 200 + "x", "ab" * 150, "\n" * 100, "中" * 120, "e" + "\u0301" * 60, "e" + "\u0301\u0323" * 30, "1" * 64, "=" * 80, "'" * 30,
    "a\ufeffb\ufffdc", "\U0010ffff\U000e0001\ue000", "\U0002ebf0\U00031350 \u1c89\u1c8a \ua7cb", "㋿ ꟲ 𐞁 ﷺ", "\U00011935\U00011930 \U00011938",
]


def random_string(rng: random.Random, specials: list[str]) -> str:
    mode = rng.random()
    if mode < 0.08:
        return "".join(chr(rng.choice(ODD)) for _ in range(rng.randint(1, 12)))
    if mode < 0.14:
        return "".join(chr(c) for c in (rng.randint(0, 0x10ffff) for _ in range(rng.randint(1, 24)))
                       if not 0xd800 <= c <= 0xdfff)
    if mode < 0.20:
        return "".join(chr(rng.randint(32, 126)) for _ in range(rng.randint(1, 40)))
    if mode < 0.26:
        return "".join(chr(rng.choice([0x300, 0x301, 0x308, 0x323, 0x327, 0x334, 0x345, 0x3099, 0x5b0, 0x64b, 0xe38,
                                       0x11f41, 0x1e4ec, 0x897, 0x61, 0x65, 0x6f, 0x304b, 0x1100, 0x1161, 0x11a8,
                                       0xac00, 0xd7a3, 0x915, 0x93c, 0x9c7, 0x9be, 0x1112c, 0x11127]))
                       for _ in range(rng.randint(1, 16)))
    out = ""
    for _ in range(rng.randint(1, 9)):
        choice = rng.random()
        if choice < 0.50:
            word = rng.choice(WORDS[rng.choice(list(WORDS))])
            out += rng.choice([word, word, word.upper(), word.capitalize()])
        elif choice < 0.80:
            out += rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3])
        elif choice < 0.86:
            out += chr(rng.choice(ODD))
        elif choice < 0.93:
            out += rng.choice(specials)
        elif choice < 0.96:
            out += str(rng.randint(0, 10 ** rng.randint(1, 12)))
        else:
            out += rng.choice(CODE)
    return out


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


def write_golden() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    disagreements = GOLDEN / "kept_strings.json"
    kept = json.loads(disagreements.read_text()) if disagreements.exists() else []
    tokenizers = all_tokenizers()
    write_words(tokenizers)
    for name, tokenizer in tokenizers.items():
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


# ---------------------------------------------------------------------------------- Unicode tables
SCRIPTS = ("Latin Greek Cyrillic Armenian Hebrew Arabic Syriac Thaana Devanagari Bengali Gurmukhi Gujarati "
           "Oriya Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Georgian Hangul Ethiopic "
           "Cherokee Khmer Mongolian Hiragana Katakana Bopomofo Han Braille Common Inherited").split()
CODE_POINTS = [c for c in range(0x110000) if not 0xd800 <= c <= 0xdfff]
PCRE_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"


def members(pre) -> set[int]:
    """Code points that a `removed` pre-tokeniser takes out."""
    found = set()
    for at in range(0, len(CODE_POINTS), 4096):
        chunk = CODE_POINTS[at:at + 4096]
        left = {ord(c) for piece, _ in pre.pre_tokenize_str("".join(map(chr, chunk))) for c in piece}
        found |= set(chunk) - left
    return found


def reference_class(pattern: str) -> set[int]:
    return members(pre_tokenizers.Split(Regex(pattern), "removed"))


def numeric() -> set[int]:
    """char::is_numeric of the reference, as its Digits pre-tokeniser shows it."""
    found = set()
    for at in range(0, len(CODE_POINTS), 2048):
        text = "x".join(map(chr, CODE_POINTS[at:at + 2048])) + "x"
        pieces = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(text)
        found |= {ord(t) for t, _ in pieces if len(t) == 1 and t != "x"}
    return found


def word_characters() -> set[int]:
    """The word class of the reference's own regex crate: what stays joined to a letter."""
    found = {ord("a")}
    for at in range(0, len(CODE_POINTS), 2048):
        text = "".join("a" + chr(c) + " " for c in CODE_POINTS[at:at + 2048])
        found |= {ord(t[1]) for t, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text) if len(t) == 2}
    return found


def pcre_class(items: str) -> set[int]:
    """Code points of [items] in the PCRE2 of this machine."""
    lib = ctypes.CDLL(ctypes.util.find_library("pcre2-8"))
    lib.pcre2_compile_8.restype = lib.pcre2_match_data_create_8.restype = ctypes.c_void_p
    lib.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(ctypes.c_size_t)
    pattern, error, where = f"[{items}]+".encode(), ctypes.c_int(), ctypes.c_size_t()
    code = lib.pcre2_compile_8(pattern, ctypes.c_size_t(len(pattern)), 0x000a0000, ctypes.byref(error),
                               ctypes.byref(where), None)  # UTF | UCP
    assert code, (items, error.value)
    data = lib.pcre2_match_data_create_8(4, None)
    subject = "".join(map(chr, CODE_POINTS)).encode()
    at, found = 0, set()
    while lib.pcre2_match_8(ctypes.c_void_p(code), subject, ctypes.c_size_t(len(subject)), ctypes.c_size_t(at),
                            0x40000000, ctypes.c_void_p(data), None) > 0:
        pair = lib.pcre2_get_ovector_pointer_8(ctypes.c_void_p(data))
        found |= set(map(ord, subject[pair[0]:pair[1]].decode()))
        at = pair[1]
    return found



def normalization_unknown() -> set[int]:
    """Code points that utf8proc decomposes, reorders or composes and the reference does not."""
    lib = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
    lib.utf8proc_map.restype = ctypes.c_ssize_t

    def mapped(text: str, options: int) -> str:
        data, out = text.encode(), ctypes.POINTER(ctypes.c_ubyte)()
        size = lib.utf8proc_map(data, ctypes.c_ssize_t(len(data)), ctypes.byref(out), options)
        result = bytes(out[:size]).decode()
        ctypes.CDLL(None).free(out)
        return result

    stable, compat, compose, decompose = 2, 4, 8, 16
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    found = set()
    for c in CODE_POINTS[1:]:
        mine = mapped(chr(c), stable | compat | decompose)
        if mine != chr(c) and nfkd.normalize_str(chr(c)) != mine:
            found.add(c)
            parts = mapped(chr(c), stable | decompose)
            if parts != chr(c) and mapped(parts, stable | compose) == chr(c):
                found |= set(map(ord, parts))
        probe = "a\u0345" + chr(c)
        if c != 0x345 and mapped(probe, stable | decompose) != probe and nfd.normalize_str(probe) == probe:
            found.add(c)
    return found


def lower_case_additions() -> list[tuple[int, int, int]]:
    """(first, last, first of the lower-case row) that utf8proc does not know."""
    lib = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
    lower, rows = normalizers.Lowercase(), []
    for c in CODE_POINTS:
        text = lower.normalize_str(chr(c))
        if len(text) != 1 or ord(text) == lib.utf8proc_tolower(c):
            assert len(text) == 1 or c == 0x130
            continue
        if rows and rows[-1][1] == c - 1 and rows[-1][2] + c - rows[-1][0] == ord(text):
            rows[-1] = (rows[-1][0], c, rows[-1][2])
        else:
            rows.append((c, c, ord(text)))
    return rows


def as_ranges(points: set[int]) -> list[tuple[int, int]]:
    out: list[list[int]] = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return [(a, b) for a, b in out]


def write_tables() -> None:
    rows = []
    for name in CATEGORIES:
        rows += [(name, a, b) for a, b in as_ranges(reference_class(rf"\p{{{name}}}") - pcre_class(rf"\p{{{name}}}"))]
    for name in SCRIPTS:
        mine, theirs = pcre_class(rf"\p{{sc:{name}}}"), reference_class(rf"\p{{{name}}}")
        print(name, "surplus", as_ranges(mine - theirs))
        rows += [(name, a, b) for a, b in as_ranges(theirs - mine)]
    word = pcre_class(PCRE_WORD)
    rows += [("onig-word", a, b) for a, b in as_ranges(reference_class(r"\w") - word)]
    rows += [("rust-word", a, b) for a, b in as_ranges(word_characters() - word)]
    rows += [("rust-number", a, b) for a, b in as_ranges(numeric() - pcre_class(r"\p{N}"))]
    rows += [("no-normalization", a, b) for a, b in as_ranges(normalization_unknown())]
    lower = lower_case_additions()
    lines = ["// Written by assets/recipes/fixtures_tokenizers.py tables: where the classes of the reference",
             "// (Oniguruma with Unicode 16, Rust with Unicode 17, its normaliser with Unicode 12) differ from",
             "// those of PCRE2 10.42 (Unicode 14) and utf8proc.", '#include "tokenizers/text/unicode_tables.h"', "",
             "namespace tessera {", "", "namespace {", "", "// clang-format off", "constexpr ClassRange kAdditions[] = {"]
    lines += [f'    {{"{n}", 0x{a:x}, 0x{b:x}}},' for n, a, b in rows]
    lines += ["};", "", "constexpr LowerCaseRow kLowerCase[] = {"]
    lines += [f"    {{0x{a:x}, 0x{b:x}, 0x{t:x}}}," for a, b, t in lower]
    lines += ["};", "// clang-format on", "", "}  // namespace", "",
              "std::span<const ClassRange> class_additions() { return kAdditions; }", "",
              "std::span<const LowerCaseRow> lower_case_additions() { return kLowerCase; }", "",
              "}  // namespace tessera"]
    (ROOT / "tokenizers" / "text" / "unicode_tables.cpp").write_text("\n".join(lines) + "\n")
    print(len(rows), "rows")


def main() -> None:
    command = sys.argv[1] if len(sys.argv) > 1 else "golden"
    if command == "tables":
        write_tables()
    elif command == "generate":
        out = Path(sys.argv[3])
        out.mkdir(parents=True, exist_ok=True)
        write_generated(int(sys.argv[2]), out)
    else:
        write_golden()


if __name__ == "__main__":
    main()
