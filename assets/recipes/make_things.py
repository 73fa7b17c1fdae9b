"""Make a pack of cut-outs for the second world from what Debian packages: `scene --things FILE`.

Pictures: fonts-noto-color-emoji (bitmaps of the colour font). Names: English short names of
unicode-cldr-core; the list below says which, and what a person would call them. The format is
described in apps/lab/still_life/things.h. The same packages and Pillow give the same bytes.

    apt-get download fonts-noto-color-emoji unicode-cldr-core
    python make_things.py --packages . --out things.pack --sheet things.png
"""
from __future__ import annotations

import argparse
import glob
import struct
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE = 128  # longest side of a cut-out in pixels
GLYPH = 109  # the size at which the font has bitmaps

# CLDR's short name, and after "=" the name in captions where another is plainer.
THINGS = """
dog; cat; wolf; fox; lion; tiger; leopard; horse; unicorn; zebra; deer; bison; cow; pig; boar; ram; ewe=sheep; goat;
camel; llama; giraffe; elephant; mammoth; rhinoceros; hippopotamus=hippo; mouse; rat; rabbit; chipmunk; beaver;
hedgehog; bat; sloth; otter; skunk; kangaroo; badger; turkey; rooster; hatching chick; baby chick; bird; penguin;
dove; eagle; duck; swan; owl; dodo; feather; flamingo; peacock; parrot; crocodile; turtle; lizard; snake; dragon;
sauropod=dinosaur; whale; dolphin; seal; fish; tropical fish; blowfish; shark; octopus; spiral shell=shell; snail;
butterfly; bug=caterpillar; ant; honeybee=bee; beetle; lady beetle=ladybird; cricket; spider; scorpion; mosquito;
crab; lobster; shrimp; squid; monkey; gorilla; bouquet; rose; sunflower; tulip; seedling; potted plant;
evergreen tree=fir tree; deciduous tree=tree; palm tree; cactus; maple leaf; grapes=bunch of grapes; melon;
watermelon; tangerine=orange fruit; lemon; banana; pineapple; mango; red apple; green apple; pear; peach;
cherries=pair of cherries; strawberry; kiwi fruit=kiwi; tomato; coconut; avocado; eggplant; potato; carrot;
ear of corn; hot pepper; bell pepper; cucumber; broccoli=head of broccoli; garlic=bulb of garlic; onion; mushroom;
bread=loaf of bread; croissant; pretzel; bagel; pancakes=stack of pancakes; waffle; cheese wedge=piece of cheese;
hamburger; french fries=bag of french fries; pizza=slice of pizza; hot dog; sandwich; taco; egg;
popcorn=box of popcorn; soft ice cream=ice cream; doughnut; cookie; birthday cake; shortcake=piece of cake; cupcake;
pie; chocolate bar; candy=piece of candy; lollipop; honey pot; baby bottle; glass of milk; teapot; wine glass;
beer mug; cup with straw; spoon; amphora; brick; rock; wood=log; hut; house; castle; church; fountain; tent;
carousel horse; barber pole; locomotive; tram; bus; ambulance; fire engine; police car; taxi; automobile=car;
pickup truck; delivery truck=truck; tractor; racing car; motorcycle; motor scooter=scooter; bicycle; kick scooter;
skateboard; roller skate; fuel pump; stop sign; anchor; sailboat; canoe; ship; airplane; helicopter; rocket;
flying saucer; satellite; luggage=suitcase; hourglass done=hourglass; watch; alarm clock;
mantelpiece clock=mantel clock; umbrella; snowman; jack-o-lantern; balloon; wrapped gift=gift box; trophy;
soccer ball; baseball; basketball; volleyball; american football; boxing glove; ice skate; sled; yo-yo; kite;
crystal ball; joystick; slot machine; game die; puzzle piece; teddy bear; nesting dolls=nesting doll; chess pawn;
artist palette=palette; thread=spool of thread; yarn=ball of yarn; sunglasses=pair of sunglasses; necktie; t-shirt;
jeans=pair of jeans; scarf; gloves=pair of gloves; coat; socks=pair of socks; dress; handbag; backpack;
running shoe; hiking boot; high-heeled shoe; crown; top hat; ring; gem stone=diamond; bell; microphone;
headphone=pair of headphones; radio; saxophone; accordion; guitar; trumpet; violin; banjo; drum; mobile phone;
telephone; laptop; desktop computer=computer; printer; television; camera; movie camera; candle; light bulb;
flashlight; red paper lantern; books=stack of books; scroll; money bag; coin; package=cardboard box; postbox;
pencil; paintbrush; crayon; briefcase; pushpin; paperclip; scissors=pair of scissors; wastebasket; locked=padlock;
key; hammer; axe; water pistol; boomerang; shield; wrench; screwdriver; gear; balance scale; toolbox; magnet;
ladder; test tube; microscope; telescope; syringe; door; mirror; chair; toilet; bathtub; broom; basket; bucket;
toothbrush; fire extinguisher; shopping cart; moai=stone head; robot; ghost; skull; alien; frog; bear; panda; koala;
sparkling heart=heart; glowing star=star; ringed planet=planet; volcano; rainbow; cloud;
"""
VOWEL_SOUNDS = ("a", "e", "i", "o", "umbrella", "hourglass")
CONSONANT_SOUNDS = ("one-",)


def wanted() -> dict[str, str]:
    """CLDR's name -> the name in captions"""
    names = {}
    for entry in THINGS.replace("\n", " ").split(";"):
        source, _, name = entry.strip().partition("=")
        if source:
            names[source.strip()] = (name or source).strip()
    return names


def phrase_of(name: str) -> str:
    vowel = name.startswith(VOWEL_SOUNDS) and not name.startswith(CONSONANT_SOUNDS)
    return ("an " if vowel else "a ") + name


def unpack(packages: Path, name: str, folder: Path) -> None:
    found = sorted(glob.glob(str(packages / f"{name}_*.deb")))
    if not found:
        raise SystemExit(f"{packages}: no {name}_*.deb; run: apt-get download {name}")
    subprocess.run(["dpkg-deb", "-x", found[-1], str(folder)], check=True)


def short_names(folder: Path) -> dict[str, str]:
    """CLDR's English short name -> the characters"""
    names = {}
    path = folder / "usr/share/unicode/cldr/common/annotations/en.xml"
    for entry in ET.parse(path).getroot().iter("annotation"):
        if entry.get("type") == "tts":
            names[entry.text] = entry.get("cp")
    return names


def trimmed(image: Image.Image) -> Image.Image:
    """the part with something in it, its longest side SIDE pixels"""
    alpha = np.asarray(image)[..., 3]
    rows, columns = np.nonzero(alpha > 12)
    image = image.crop((columns.min(), rows.min(), columns.max() + 1, rows.max() + 1))
    scale = SIDE / max(image.size)
    size = tuple(max(1, round(side * scale)) for side in image.size)
    return image.resize(size, Image.LANCZOS)


def glyph(font: ImageFont.FreeTypeFont, text: str) -> Image.Image | None:
    image = Image.new("RGBA", (160, 160), (0, 0, 0, 0))
    ImageDraw.Draw(image).text((12, 12), text, font=font, embedded_color=True)
    return image if image.getextrema()[3][1] > 200 else None


def cut_outs(folder: Path) -> dict[str, Image.Image]:
    """phrase -> picture"""
    font = ImageFont.truetype(str(folder / "usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"), GLYPH)
    names, found = short_names(folder), {}
    for source, name in wanted().items():
        picture = glyph(font, names[source].rstrip("\ufe0f")) if source in names else None
        if picture is None:
            raise SystemExit(f"the packages have no \"{source}\"")
        found[phrase_of(name)] = trimmed(picture)
    return found


def pack_bytes(pictures: dict[str, Image.Image]) -> bytes:
    ordered = sorted(pictures.items(), key=lambda item: item[0].split(" ", 1)[1])
    parts = [b"TESTHNG1", struct.pack("<I", len(ordered))]
    for phrase, picture in ordered:
        text = phrase.encode("ascii")
        parts += [struct.pack("<H", len(text)), text, struct.pack("<HH", *picture.size), picture.tobytes()]
    return b"".join(parts)


def sheet_of(pictures: dict[str, Image.Image], columns: int = 18) -> Image.Image:
    cell, rows = 96, -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * cell, rows * (cell + 12)), (225, 225, 225))
    for i, (phrase, picture) in enumerate(pictures.items()):
        x, y = i % columns * cell, i // columns * (cell + 12)
        small = picture.resize([max(1, side * 88 // SIDE) for side in picture.size], Image.LANCZOS)
        sheet.paste(small, (x + 4, y + 4), small)
        ImageDraw.Draw(sheet).text((x + 2, y + cell - 2), phrase[:17], fill=(0, 0, 0))
    return sheet


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="folder with the downloaded .deb files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sheet", type=Path, help="a PNG of all cut-outs with their names")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in ("fonts-noto-color-emoji", "unicode-cldr-core"):
            unpack(options.packages, package, folder)
        pictures = cut_outs(folder)
    options.out.write_bytes(pack_bytes(pictures))
    if options.sheet:
        sheet_of(pictures).save(options.sheet)
    print(f"{options.out}: {len(pictures)} things, {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
