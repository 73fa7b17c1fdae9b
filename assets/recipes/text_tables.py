"""Where this machine's Unicode libraries and those of the `tokenizers` package differ, measured over
every code point.

  text_tables.py        tokenizers/text/unicode_tables.cpp
"""
from __future__ import annotations

import ctypes
import ctypes.util
import tempfile
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = Path(__file__).resolve().parents[2]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()
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


def left_of(normalizer) -> set[int]:
    """Code points that a normaliser takes out after a letter."""
    return {c for c in CODE_POINTS if normalizer.normalize_str("a" + chr(c)) == "a"}


def bert(**wanted):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**(off | wanted))


def charsmap(rules: str) -> bytes:
    """SentencePiece's compiled form of rules "from TAB to", in hex code points."""
    with tempfile.TemporaryDirectory() as folder:
        table, text = Path(folder, "rules.tsv"), Path(folder, "text.txt")
        table.write_text(rules)
        text.write_text("hello world foo bar baz\n" * 50)
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=folder + "/model", vocab_size=25, model_type="unigram",
            normalization_rule_tsv=str(table), hard_vocab_limit=False, minloglevel=2)
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(Path(folder, "model.model").read_bytes())
    return proto.normalizer_spec.precompiled_charsmap


def joined() -> set[int]:
    """Code points that make one grapheme cluster with the letter before: a map of that letter takes
    them away with it."""
    normalizer = normalizers.Precompiled(charsmap("78\t79\n"))
    return {c for c in CODE_POINTS if normalizer.normalize_str("x" + chr(c)) == "y"}


def class_rows() -> list[tuple[str, int, int]]:
    """Classes of which utf8proc's are the base: what the reference has besides, and what it lacks."""
    lib = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
    lib.utf8proc_category_string.restype = ctypes.c_char_p
    lib.utf8proc_grapheme_break_stateful.restype = ctypes.c_bool
    category = {c: lib.utf8proc_category_string(c).decode() for c in CODE_POINTS}
    in_category = lambda *names: {c for c in CODE_POINTS if category[c].startswith(names)}
    marks = pre_tokenizers.BertPreTokenizer()
    punctuation = {c for c in CODE_POINTS if len(marks.pre_tokenize_str(f"a{chr(c)}a")) == 3}
    ascii_marks = {c for c in range(0x21, 0x7f) if not chr(c).isalnum()}
    joins = {c for c in CODE_POINTS
             if not lib.utf8proc_grapheme_break_stateful(0x78, c, ctypes.byref(ctypes.c_int32()))}
    pairs = {"punctuation": (punctuation, in_category("P") | ascii_marks),
             "mark": (left_of(normalizers.StripAccents()), in_category("M")),
             "nonspacing-mark": (left_of(bert(strip_accents=True)), in_category("Mn")),
             "bert-control": (left_of(bert(clean_text=True)),
                              (in_category("Cc", "Cf", "Co") | {0xfffd}) - {9, 10, 13}),
             "grapheme-joins": (joined(), joins)}
    rows = []
    for name, (theirs, mine) in pairs.items():
        rows += [(name, a, b) for a, b in as_ranges(theirs - mine)]
        rows += [(name + "-not", a, b) for a, b in as_ranges(mine - theirs)]
    return rows


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
    rows += class_rows()
    lower = lower_case_additions()
    lines = ["// Written by assets/recipes/text_tables.py: where the classes of the reference",
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


if __name__ == "__main__":
    write_tables()
