"""Makes the images of the server's page in docs/images: serve_images.py PROGRAM OUT. Needs Chromium and Pillow.

The window is that of tests/gui/page; the images are of the bundled model, nothing is drawn over.
"""
import os
import sys
import time

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/gui/page"))
import browser  # noqa: E402
import stand_in  # noqa: E402

PROMPTS = [
    ("a large yellow matte cylinder on a dark floor", 1, 4),
    ("a small white shiny cube and a small cyan shiny sphere on a gray floor", 1, 3),
    ("a large red shiny sphere, a small blue matte cube and a small green matte cone on a checkered floor", 4, 7),
]
MAX_BYTES = 150_000


def generate(page, prompt, images, seed):
    page.choose("seed-mode", "fixed")
    page.fill("seed", str(seed))
    page.choose("images", str(images))
    page.fill("prompt", prompt)
    page.key("Enter")


def shoot(page, path):
    time.sleep(0.3)
    page.run("document.activeElement.blur()")
    page.screenshot(path)
    # Few colours: the file is small.
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.FLOYDSTEINBERG).save(path, optimize=True)
    if os.path.getsize(path) > MAX_BYTES:
        sys.exit(f"{path} has {os.path.getsize(path)} bytes, more than {MAX_BYTES}")


def main():
    program, out = sys.argv[1:]
    server = browser.Server(program)
    # It shows each preview for a while.
    slow = stand_in.StandIn(server.url, pause=0.5, slow="a small green")
    window = browser.Browser()
    done = "document.querySelectorAll('.tile[data-state=done]').length"
    try:
        page = browser.Page(window, slow.url)
        page.wait("!document.getElementById('generate-button').disabled")
        count = 0
        for prompt, images, seed in PROMPTS:
            generate(page, prompt, images, seed)
            count += images
            page.wait(f"{done} === {count}")
        generate(page, "a small green shiny cone and a large purple matte sphere on a brown floor", 2, 5)
        page.wait("[...document.querySelectorAll('.tile[data-state=work] progress')].every((each) => each.value >= 2)")
        shoot(page, os.path.join(out, "serve-desktop.png"))
        page.close()
        page = browser.Page(window, server.url, height=720)
        page.wait("!document.getElementById('generate-button').disabled")
        generate(page, PROMPTS[2][0], 2, PROMPTS[2][2])
        page.wait(f"{done} === 2")
        for number, (tile, percent) in enumerate(((0, 100), (0, 30), (1, 10)), 1):
            page.run("(() => { const kept = document.getElementById('kept');"
                     f" kept.value = {percent}; kept.dispatchEvent(new Event('input')); }})()")
            page.run(f"document.querySelectorAll('.tile .describe-it')[{tile}].click()")
            page.wait(f"document.querySelectorAll('.caption[data-state=done]').length === {number}")
        shoot(page, os.path.join(out, "serve-describe.png"))
        page.close()
        page = browser.Page(window, server.url, width=390, height=844)
        page.wait("!document.getElementById('generate-button').disabled")
        generate(page, *PROMPTS[2])
        page.wait(f"{done} === {PROMPTS[2][1]}")
        shoot(page, os.path.join(out, "serve-phone.png"))
        page.close()
    finally:
        window.close()
        slow.close()
        server.close()


if __name__ == "__main__":
    main()
