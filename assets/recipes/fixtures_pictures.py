"""Small picture files of every kind that Pillow writes, and what Pillow reads back from them.

    python assets/recipes/fixtures_pictures.py --output tests/golden/image/files

`expected.txt` holds a line "file format width height channels crc32" each, the CRC-32 over the upright
pixels as RGB, or RGBA where the file has transparency; and lines "over file crc32" for the picture
laid on white. Of 16-bit pictures the upper byte counts.
"""
from __future__ import annotations

import argparse
import pathlib
import zlib

import numpy as np
import PIL
from PIL import Image, ImageOps

WIDTH, HEIGHT = 24, 17
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".webp": "WebP", ".gif": "GIF", ".bmp": "BMP"}


def colours(seed: int) -> np.ndarray:
    """A smooth picture with some noise: nothing symmetric, so that every turn of it differs."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    noise = np.random.default_rng(seed).integers(0, 24, (HEIGHT, WIDTH, 3))
    planes = np.stack([x * 9, y * 12, (x + 2 * y) * 4], axis=-1) + noise
    return np.clip(planes, 0, 255).astype(np.uint8)


def orientation(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def write_all(folder: pathlib.Path) -> None:
    rgb = Image.fromarray(colours(1))
    other = Image.fromarray(255 - colours(2))
    gray = rgb.convert("L")
    alpha = Image.fromarray(np.roll(colours(3)[..., 2], 5, axis=0) * 3)
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    gray_alpha = Image.merge("LA", (gray, alpha))
    palette = rgb.quantize(13)
    bilevel = rgb.convert("1")
    wide = Image.fromarray((colours(4)[..., 0].astype(np.uint16) * 256 + colours(5)[..., 1]))

    rgb.save(folder / "rgb.png")
    gray.save(folder / "gray.png")
    gray_alpha.save(folder / "gray_alpha.png")
    rgba.save(folder / "rgba.png")
    palette.save(folder / "palette.png")
    palette.save(folder / "palette_alpha.png", transparency=bytes([0, 128, 255, 30]))
    palette.save(folder / "palette_key.png", transparency=3)
    bilevel.save(folder / "bilevel.png")
    wide.save(folder / "gray16.png")
    rgb.save(folder / "exif6.png", exif=orientation(6))

    rgb.save(folder / "rgb444.jpg", quality=90, subsampling=0)
    rgb.save(folder / "rgb422.jpg", quality=85, subsampling=1)
    rgb.save(folder / "rgb420.jpg", quality=75, subsampling=2)
    rgb.save(folder / "progressive.jpg", quality=80, progressive=True)
    rgb.save(folder / "restarts.jpg", quality=80, restart_marker_blocks=1)
    gray.save(folder / "gray.jpg", quality=90)
    rgb.convert("CMYK").save(folder / "cmyk.jpg", quality=95)
    for value in range(1, 9):
        rgb.save(folder / f"exif{value}.jpg", quality=70, exif=orientation(value))

    rgb.save(folder / "lossy.webp", quality=80)
    rgb.save(folder / "lossless.webp", lossless=True)
    rgba.save(folder / "lossy_alpha.webp", quality=80)
    rgba.save(folder / "lossless_alpha.webp", lossless=True, exact=True)
    rgb.save(folder / "exif8.webp", quality=60, exif=orientation(8))
    rgb.save(folder / "animated.webp", save_all=True, append_images=[other], duration=50, lossless=True)
    rgba.save(folder / "animated_alpha.webp", save_all=True, append_images=[other], duration=50, quality=70)

    palette.save(folder / "plain.gif", interlace=0)
    palette.save(folder / "interlaced.gif", interlace=1)
    palette.save(folder / "transparent.gif", transparency=2)
    gray.save(folder / "gray.gif")
    palette.save(folder / "animated.gif", save_all=True, append_images=[other.quantize(30)], duration=50)

    rgb.save(folder / "rgb.bmp")
    palette.save(folder / "palette.bmp")
    gray.save(folder / "gray.bmp")
    bilevel.save(folder / "bilevel.bmp")


def describe(path: pathlib.Path) -> list[str]:
    picture = ImageOps.exif_transpose(Image.open(path))
    has_alpha = "A" in picture.getbands() or picture.info.get("transparency") is not None
    if picture.mode.startswith("I;16"):
        high = (np.asarray(picture) >> 8).astype(np.uint8)
        picture = Image.merge("RGB", [Image.fromarray(high)] * 3)
    picture = picture.convert("RGBA" if has_alpha else "RGB")
    crc = zlib.crc32(picture.tobytes())
    lines = [f"{path.name} {FORMATS[path.suffix]} {picture.width} {picture.height} {len(picture.mode)} {crc:08x}"]
    if has_alpha:
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        over = Image.alpha_composite(white, picture).convert("RGB")
        lines.append(f"over {path.name} {zlib.crc32(over.tobytes()):08x}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, required=True)
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    write_all(folder)
    lines = [f"# Pillow {PIL.__version__}; see assets/recipes/fixtures_pictures.py"]
    for path in sorted(folder.iterdir()):
        if path.suffix in FORMATS:
            lines += describe(path)
    (folder / "expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
