"""Looks at the server's page in a browser without a window, and photographs it for docs/images.

    pip install playwright; apt-get install chromium
    python serve_page.py PROGRAM FOLDER

PROGRAM is `tessera`. Generates with partial images, repeats, stops, describes, meets an error, by mouse and by keyboard, in a
desktop's and a phone's width. Fails where the page scrolls sideways, asks another host, breaks its own policy, has a control
without a name or text of too little contrast.
"""
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

LONG = "a red cube left of a blue sphere on a green floor"
NAMES = """() => [...document.querySelectorAll("button, input, select, textarea, summary, a")]
  .filter(e => e.offsetParent !== null && !e.textContent.trim() && !e.getAttribute("aria-label") && !(e.labels || []).length)
  .map(e => e.outerHTML)"""
CONTRAST = """() => {
  const light = c => { const v = c.match(/[\\d.]+/g).map(Number).slice(0, 3).map(x => x / 255)
    .map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!c.endsWith(", 0)")) return c; } return "rgb(255, 255, 255)"; };
  return [...document.querySelectorAll("h1, h2, label, p, button:enabled, .facts, .prompt, summary, #state")]
    .filter(e => e.offsetParent !== null && e.textContent.trim())
    .map(e => { const a = light(getComputedStyle(e).color), b = light(back(e));
      return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.textContent.slice(0, 40)]; })
    .filter(([ratio]) => ratio < 4.5); }"""


def until(page, script, seconds=60):
    for _ in range(seconds * 20):
        if page.evaluate(script):
            return
        time.sleep(0.05)
    raise SystemExit("never: " + script)


def generate(page, prompt, seed, count, images):
    page.fill("#prompt", prompt)
    page.fill("#seed", str(seed))
    page.fill("#count", str(count))
    page.keyboard.press("Control+Enter")
    until(page, f"document.querySelectorAll('figure').length == {images} && !document.querySelector('figure progress')")


def walk(page, url):
    page.goto(url)
    page.wait_for_selector("#model option", state="attached")
    generate(page, "a red cube", 3, 3, 3)
    first = page.get_attribute("figure:last-child img", "src")
    page.locator("figure:last-child button:has-text('Repeat')").click()
    until(page, "document.querySelectorAll('figure').length == 4 && !document.querySelector('figure progress')")
    assert page.get_attribute("figure:first-child img", "src") == first, "a repeated image has other bytes"
    generate(page, LONG, 11, 2, 6)
    page.locator("figure button:has-text('Describe')").first.click()
    until(page, "document.querySelector('#text-facts').textContent.includes('tokens')")
    assert len(page.inner_text("#text")) > 10
    page.fill("#count", "10")
    page.fill("#prompt", "a green cone")
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    until(page, "!document.querySelector('figure progress')")
    assert page.locator(".facts:has-text('stopped')").count() > 0, "Escape stops nothing"
    assert not (bare := page.evaluate(NAMES)), bare
    assert not (faint := page.evaluate(CONTRAST)), faint
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"


def main(program, folder):
    server = subprocess.Popen([program, "serve", "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True)
    url = server.stdout.readline().split('"')[3]
    said, asked = [], set()
    try:
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            for name, width, height, scheme in [("desktop", 1280, 860, "light"), ("phone", 390, 844, "dark")]:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                page.on("console", lambda message: said.append(message.text))
                page.on("pageerror", lambda error: said.append(str(error)))
                page.on("request", lambda request: asked.add(request.url.split("/")[2]))
                walk(page, url)
                page.reload()
                page.wait_for_selector("#model option", state="attached")
                generate(page, LONG, 3, 3, 3)
                page.evaluate("scrollTo(0, 0)")
                page.screenshot(path=Path(folder) / f"serve-{name}.png")
                page.locator("summary").first.click()
                page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
                page.fill("#set-temp", "-7")
                page.keyboard.press("Control+Enter")
                until(page, "document.querySelector('figure .facts.bad')")
                assert "0 to 100" in page.inner_text("figure .facts.bad")
            browser.close()
    finally:
        server.terminate()
        server.wait()
    assert asked <= {url.split("/")[2], ""}, asked
    said = [text for text in said if "400" not in text]
    assert not said, said
    print("the page does what it should")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
