"""Strings of many scripts and habits, for comparing tokenizers. The standard library is enough."""
from __future__ import annotations

import random

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
