"""Captions as LlamaGen's sampler cleans them: tests/golden/text/captions.jsonl, lines of [text, cleaned].

The rules are the authors': the recipe calls them out of language/t5.py of their repository, with `ftfy` and
`beautifulsoup4` of PyPI. Texts are drawn at random of words, numbers, addresses, punctuation and scripts that the rules
speak of; without tags, entities and texts in a wrong encoding, which are not repaired here.

  python assets/recipes/fixtures_captions.py LLAMAGEN/language/t5.py [COUNT OUT.jsonl]
"""
import importlib.util
import json
import random
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "text" / "captions.jsonl"
WORDS = ("a an the of on in Photo photo CAT Dog cube sphere red Blue green free shipping worldwide download click here for "
         "page 12 page 7 images png jpg image.png film.mp4 http://a.example.com/x https://b.org www.site.ru visit site.net/a-b "
         "@someone @a1 #12 #1234 #123456 123456 12345678 10.0.0.1 1.2.3.4 jc6640 ab123cd 66a40 6640vc231 j2d1a2a 10x20 3.5x4 "
         "12:30 3:45 this-is-my-cat this_is_my_cat well-known don't \"quoted\" 'single' <person> ... .. . , ; : - _ -- ~ * ** "
         "(round) [square] {curly} a|b a\\b \\n 50% 100%25 %41%42 a+b 1+1 \u00e9t\u00e9 na\u00efve \u00dcber stra\u00dfe "
         "\u4e00\u4e8c \u65e5\u672c \u3042 \u041f\u0440\u0438\u0432\u0435\u0442 \u2014 \u2013 \u2010 \u201csmart\u201d "
         "\u2018q\u2019 \u00abx\u00bb \u00a9 \u2122 \u00ae \u2022 \u00bd \u00b7 \u00d7 5\u00d76 caf\u00e9.").split(" ")
JOINTS = [" "] * 12 + ["", ",", ", ", ".", ". ", "/", "-", "_", "  ", " : ", "\t", "\n", "'", '"', ":", ";", "!", "?", "& "]


def authors(path):
    spec = importlib.util.spec_from_file_location("authors", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cleaner = object.__new__(module.T5Embedder)
    cleaner.use_text_preprocessing = True
    return cleaner.text_preprocessing


def text(draw):
    out = ""
    for _ in range(draw.randint(1, 14)):
        out += draw.choice(WORDS) + draw.choice(JOINTS)
    return out


def main():
    clean = authors(sys.argv[1])
    count, out = (int(sys.argv[2]), Path(sys.argv[3])) if len(sys.argv) > 2 else (400, OUT)
    draw = random.Random(7)
    with open(out, "w") as file:
        for _ in range(count):
            own = text(draw)
            file.write(json.dumps([own, clean(own)], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
