"""The page of `tessera serve` in a browser: serve_page_test.py PROGRAM."""
import base64
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
import unittest
import urllib.request

import browser
import stand_in

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT = "a large red shiny sphere and a small blue matte cube on a gray floor"
KEY = "0123456789abcdef"
DONE = "document.querySelectorAll('.tile[data-state=done]').length"
# Collected from the beginning: what moved without a press shortly before.
SHIFTS = """window.shifts = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
}).observe({type: 'layout-shift', buffered: true});"""


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def metric(url, name):
    with urllib.request.urlopen(url + "/metrics", timeout=60) as answer:
        return float(re.search(rf"^tessera_{name} (\S+)$", answer.read().decode(), re.M).group(1))


class ServePage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.server = browser.Server(PROGRAM, "--slots", "1")
        cls.stand_in = stand_in.StandIn(cls.server.url)
        cls.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.stand_in.close()
        cls.server.close()
        shutil.rmtree(cls.folder)

    def open(self, url=None, **how):
        self.page = browser.Page(self.browser, url or self.server.url, **how)
        self.stand_in.server.asked.clear()
        return self.page

    def ready(self, **how):
        page = self.open(**how)
        page.wait("!document.getElementById('generate-button').disabled")
        return page

    def text(self, selector):
        return self.page.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def setting(self, name, value):
        """Of images; its groups are closed afterwards."""
        opened = "for (const each of document.querySelectorAll('#image-settings, .group')) each.open = "
        self.page.run(opened + "true")
        if self.page.run(f"document.getElementById('image-{name}').tagName") == "SELECT":
            self.page.choose("image-" + name, value)
        else:
            self.page.fill("image-" + name, value)
        self.page.run(opened + "false")

    def generate(self, prompt, images=1, seed=None):
        if seed is not None:
            self.page.choose("seed-mode", "fixed")
            self.page.fill("seed", str(seed))
        self.page.choose("images", str(images))
        self.page.fill("prompt", prompt)
        self.page.key("Enter")

    def download(self, selector):
        """The bytes that a link saves."""
        into = tempfile.mkdtemp(dir=self.folder)
        self.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=into,
                          browserContextId=self.page.context)
        self.page.click(selector)
        end = time.monotonic() + 20
        while not [name for name in os.listdir(into) if name.endswith(".png")]:
            self.assertLess(time.monotonic(), end, "a download")
            time.sleep(0.05)
        (name,) = os.listdir(into)
        with open(os.path.join(into, name), "rb") as saved:
            return name, saved.read()

    def tearDown(self):
        if not hasattr(self, "page"):
            return
        failures, addresses = self.page.failures(), self.page.addresses()
        self.page.close()
        self.assertEqual(failures, [])
        self.assertLessEqual(addresses, {self.server.url, self.stand_in.url, "data:", "blob:"})

    # --- images

    def test_generates_with_previews_and_saves_the_files_bytes(self):
        page = self.ready(url=self.stand_in.url)
        page.run("""window.previews = new Set();
          new MutationObserver(() => { for (const image of document.querySelectorAll('.picture img'))
            if (image.src.startsWith('data:')) window.previews.add(image.src); })
            .observe(document.getElementById('gallery'), {subtree: true, childList: true, attributes: true});""")
        self.generate("slow " + PROMPT, images=2, seed=7)
        page.wait("document.querySelector('.tile[data-state=work]')")
        self.assertIn("at work", self.text(".tile .facts"))
        page.wait(DONE + " === 2")
        self.assertEqual(page.run("window.previews.size"), 6)
        self.assertRegex(self.text(".tile .facts"), r"seed 7.*\d s.*1\.00 tokens a pass")
        asked = self.stand_in.server.asked[0][1]
        self.assertEqual((asked["seed"], asked["n"], asked["partial_images"], asked["stream"]), (7, 2, 3, True))
        name, saved = self.download(".tile:nth-child(2) a")
        self.assertEqual(name, "slow-a-large-red-shiny-sphere-and-a-small-blue-m_8.png")
        whole = post(self.server.url, "/v1/images/generations", {"prompt": "slow " + PROMPT, "seed": 8})
        self.assertEqual(saved, base64.b64decode(whole["data"][0]["b64_json"]))
        self.assertIn(b"parameters", saved)

    def test_repeat_gives_the_same_bytes_and_next_seed_others(self):
        page = self.ready()
        page.choose("seed-mode", "random")
        self.generate(PROMPT)
        page.wait(DONE + " === 1")
        page.click(".tile .actions button:nth-child(1)")
        page.wait(DONE + " === 2")
        self.assertIn("the same bytes", self.text(".tile .facts"))
        files = [self.download(f".tile:nth-child({at}) a") for at in (1, 2)]
        self.assertEqual(files[0], files[1])
        page.click(".tile .actions button:nth-child(2)")
        page.wait(DONE + " === 3")
        seeds = [int(re.search(r"seed (\d+)", self.text(f".tile:nth-child({at}) .facts")).group(1)) for at in (1, 2)]
        self.assertEqual(seeds[0], seeds[1] + 1)
        self.assertNotEqual(self.download(".tile a")[1], files[0][1])

    def test_seed_counts_on_and_a_seed_that_is_none_is_refused(self):
        page = self.ready()
        page.choose("seed-mode", "next")
        page.fill("seed", "41")
        self.page.choose("images", "2")
        page.fill("prompt", PROMPT)
        page.key("Enter")
        page.wait(DONE + " === 2")
        self.assertEqual(page.run("document.getElementById('seed').value"), "43")
        page.fill("seed", "4x")
        page.key("Enter")
        self.assertRegex(self.text("#generate-error"), "seed.*Expected an integer from 0.*Found '4x'")
        self.assertEqual(page.run("document.querySelectorAll('.tile').length"), 2)

    def test_cancel_reaches_the_server(self):
        page = self.ready()
        before = metric(self.server.url, "requests_cancelled_total")
        page.choose("images", "10")
        page.fill("prompt", PROMPT)
        self.assertEqual(page.run("for (let i = 0; i < 6; ++i) document.getElementById('generate').requestSubmit();"
                                  "document.getElementById('queue-text').textContent"), "4 at work, 2 wait")
        page.key("Escape")
        page.wait("document.querySelector('.tile .facts').textContent === 'cancelled'")
        self.assertGreater(page.run("document.querySelectorAll('[data-state=work], [data-state=waiting]').length"), 0)
        page.click("#cancel-all")
        page.wait("document.getElementById('queue-text').textContent === 'Nothing at work'")
        self.assertEqual(page.run("document.querySelectorAll('[data-state=work], [data-state=waiting]').length"), 0)
        self.assertEqual(self.text(".tile .facts"), "cancelled")
        end = time.monotonic() + 20
        while metric(self.server.url, "requests_at_work") + metric(self.server.url, "requests_waiting") > 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.assertGreater(metric(self.server.url, "requests_cancelled_total"), before + 10)

    def test_bad_setting_is_shown_where_it_was_given(self):
        page = self.ready(url=self.stand_in.url)
        self.setting("temp", "hot")
        self.generate(PROMPT)
        page.wait("!document.getElementById('generate-error').hidden")
        self.assertRegex(self.text("#generate-error"), "temp.*Expected a number from 0 to 100.*Found 'hot'")
        self.assertEqual(page.run("document.activeElement.id"), "image-temp")
        self.assertEqual(page.run("document.activeElement.getAttribute('aria-invalid')"), "true")
        self.assertIn("Found 'hot'", self.text("#image-temp-error"))
        self.assertEqual(page.run("document.querySelectorAll('.tile').length"), 0)
        # A value that is good is sent as a number, and the error goes.
        self.setting("temp", "0.5")
        self.setting("width", "32")
        self.setting("decode", "gumbel")
        self.generate(PROMPT)
        page.wait("document.getElementById('queue-text').textContent === 'Nothing at work'")
        self.assertEqual(len(self.stand_in.server.asked), 2)
        asked = self.stand_in.server.asked[1][1]
        self.assertFalse(page.run("document.getElementById('image-temp').hasAttribute('aria-invalid')"))
        self.assertEqual((asked["temp"], asked["decode"], asked["size"]), (0.5, "gumbel", "32x64"))
        page.run("document.getElementById('image-settings').open = true")
        page.click("#image-settings > .quiet")
        done = page.run(DONE)
        self.generate(PROMPT)
        page.wait(f"{DONE} === {done + 1}")
        self.assertTrue({"temp", "decode", "size"}.isdisjoint(self.stand_in.server.asked[-1][1]))

    def test_settings_are_those_of_the_server(self):
        page = self.ready()
        for task, place in (("image", "image-settings"), ("describe", "text-settings")):
            with urllib.request.urlopen(f"{self.server.url}/v1/settings?task={task}") as answer:
                rows = json.load(answer)["data"]
            self.assertGreater(len(rows), 20)
            for row in rows:
                control = f"document.getElementById('{task}-{row['name']}')"
                self.assertTrue(page.run(f"document.getElementById('{place}').contains({control})"), row["name"])
                self.assertIn(row["help"], page.run(f"{control}.closest('.field').textContent"))
                if "choices" in row:
                    shown = page.run(f"[...{control}.options].slice(1).map((each) => each.value)")
                    self.assertEqual(shown, row["choices"])
        self.assertIn("0 to 100", page.run("document.querySelector('label[for=image-temp]').textContent"))

    # --- texts

    def picture(self, name="red.png"):
        file = os.path.join(self.folder, name)
        made = post(self.server.url, "/v1/images/generations", {"prompt": PROMPT, "seed": 7})
        with open(file, "wb") as out:
            out.write(base64.b64decode(made["data"][0]["b64_json"]))
        return file

    def test_dropped_image_is_described_with_what_was_pruned(self):
        page = self.ready(url=self.stand_in.url)
        file = self.picture()
        page.drop([file], 900, 500)
        page.wait("document.querySelector('.caption[data-state=done]')")
        self.assertEqual(self.text(".answer"), stand_in.CAPTION)
        self.assertIn(f"{len(stand_in.KEPT)} of 144 patches kept", self.text(".caption .facts"))
        path, asked = self.stand_in.server.asked[-1]
        parts = asked["messages"][0]["content"]
        self.assertEqual((path, parts[1]["text"]), ("/v1/chat/completions", "Describe the picture."))
        with open(file, "rb") as sent:
            url = "data:image/png;base64," + base64.b64encode(sent.read()).decode()
        self.assertEqual(parts[0]["image_url"]["url"], url)
        # A dropped patch is dark, a kept one is clear.
        alphas = page.run("""(() => { const canvas = document.querySelector('.described canvas');
          const at = (column, row) => canvas.getContext('2d').getImageData((column + 0.5) / 12 * canvas.width,
            (row + 0.5) / 12 * canvas.height, 1, 1).data[3];
          return [at(0, 0), at(11, 11), at(2, 3), at(8, 9)]; })()""")
        self.assertGreater(min(alphas[:2]), 150)
        self.assertEqual(alphas[2:], [0, 0])
        page.click(".caption button[aria-pressed]")
        self.assertTrue(page.run("document.querySelector('.described canvas').hidden"))

    def test_patches_are_drawn_where_the_server_kept_them(self):
        page = self.ready()
        file = self.picture()
        page.click("#tab-describe")
        self.assertEqual(self.text("#kept-text"), "100 %")
        page.run("(() => { const kept = document.getElementById('kept'); kept.value = 30;"
                 " kept.dispatchEvent(new Event('input')); })()")
        self.assertEqual(self.text("#kept-text"), "30 %")
        self.assertEqual(page.run("[document.getElementById('describe-prune').value,"
                                  " document.getElementById('describe-prune-rate').value]"), ["divprune", "0.7"])
        page.drop([file], 900, 500)
        page.wait("document.querySelector('.caption[data-state=done]')")
        with open(file, "rb") as sent:
            url = "data:image/png;base64," + base64.b64encode(sent.read()).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Describe the picture."}]
        made = post(self.server.url, "/v1/chat/completions",
                    {"messages": [{"role": "user", "content": content}], "prune": "divprune", "prune_rate": 0.7})
        visual = made["visual"]
        view, = visual["patches"]
        columns, rows = view["columns"], view["rows"]
        self.assertEqual(len(view["kept"]), visual["kept_tokens"])
        self.assertEqual(columns * rows, visual["tokens"])
        self.assertAlmostEqual(visual["kept_tokens"] / visual["tokens"], 0.3, delta=0.02)
        self.assertIn(f"{visual['kept_tokens']} of {visual['tokens']} patches kept", self.text(".caption .facts"))
        self.assertEqual(self.text(".answer"), made["choices"][0]["message"]["content"])
        clear = page.run(f"""(() => {{ const canvas = document.querySelector('.described canvas');
          const pen = canvas.getContext('2d'), clear = [];
          for (let row = 0; row < {rows}; ++row) for (let column = 0; column < {columns}; ++column) {{
            const alpha = pen.getImageData((column + 0.5) / {columns} * canvas.width,
              (row + 0.5) / {rows} * canvas.height, 1, 1).data[3];
            if (alpha === 0) clear.push(row * {columns} + column);
          }}
          return clear; }})()""")
        self.assertEqual(clear, view["kept"])
        # All of them again: nothing is said of pruning, nothing is drawn.
        page.run("(() => { const kept = document.getElementById('kept'); kept.value = 100;"
                 " kept.dispatchEvent(new Event('input')); })()")
        self.assertEqual(page.run("document.getElementById('describe-prune').value"), "")
        page.run("document.getElementById('describe-button').click()")
        page.wait("document.querySelectorAll('.caption[data-state=done]').length === 2")
        self.assertTrue(page.run("document.querySelector('.described canvas').hidden"))

    def test_what_is_no_image_is_refused_by_name(self):
        page = self.ready(url=self.stand_in.url)
        file = os.path.join(self.folder, "notes.txt")
        with open(file, "w", encoding="utf-8") as out:
            out.write("no image\n")
        page.drop([file], 900, 500)
        page.wait("!document.getElementById('describe-error').hidden")
        self.assertRegex(self.text("#describe-error"), "notes.txt.*Expected an image.*Found text/plain")
        self.assertEqual(self.stand_in.server.asked, [])

    def test_generated_image_is_described(self):
        page = self.ready(url=self.stand_in.url)
        self.generate(PROMPT, seed=3)
        page.wait(DONE + " === 1")
        page.click(".tile .describe-it")
        page.wait("document.querySelector('.caption[data-state=done]')")
        self.assertEqual(page.run("document.getElementById('tab-describe').getAttribute('aria-selected')"), "true")

    # --- the server

    def test_server_that_is_away_is_said_and_found_again(self):
        page = self.ready(url=self.stand_in.url)
        page.wait("document.getElementById('state').dataset.state === 'good'")
        self.stand_in.server.away = True
        try:
            page.wait("document.getElementById('state-text').textContent.startsWith('No answer')")
        finally:
            self.stand_in.server.away = False
        page.wait("document.getElementById('state-text').textContent === 'Ready \\u00b7 0 at work \\u00b7 0 waiting'")
        self.assertRegex(self.text("#model-hint"), r"Janus 6x256 . 64x64 . \S+ . cpu")

    def test_key_is_asked_for_and_kept_for_the_tab(self):
        keys = os.path.join(self.folder, "keys")
        with open(keys, "w", encoding="utf-8") as out:
            out.write(f"me {KEY}\n")
        server = browser.Server(PROGRAM, "--keys", keys)
        try:
            page = browser.Page(self.browser, server.url)
            page.wait("!document.getElementById('key-form').hidden")
            page.wait("document.activeElement.id === 'key'")
            page.type("another key that is wrong")
            page.key("Enter")
            page.wait("document.getElementById('key-text').textContent.startsWith('This is not one')")
            page.fill("key", KEY)
            page.key("Enter")
            page.wait("document.getElementById('key-form').hidden")
            page.type(PROMPT)
            page.key("Enter")
            page.wait(DONE + " === 1")
            self.assertEqual(page.run("[localStorage.length, sessionStorage.length]"), [0, 1])
            page.run("window.before = true")
            page.call("Page.reload")
            page.wait("window.before === undefined && document.readyState === 'complete'")
            page.wait("!document.getElementById('generate-button').disabled")
            page.click("#forget-key")
            page.wait("!document.getElementById('key-form').hidden")
            self.assertEqual(page.run("sessionStorage.length"), 0)
            page.close()
        finally:
            server.close()

    def test_policy_lets_nothing_in_and_nothing_out(self):
        page = self.ready()
        with urllib.request.urlopen(self.server.url + "/") as answer:
            policy, html = answer.headers["Content-Security-Policy"], answer.read()
        self.assertNotIn("unsafe", policy)
        script = re.search(rb'<script type="module">(.*?)</script>', html, re.S).group(1)
        self.assertIn("'sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode() + "'", policy)
        # What the other tests find to stay away would be seen.
        blocked = page.run("""new Promise((done) => {
          document.addEventListener('securitypolicyviolation', (event) => done(event.violatedDirective));
          fetch('http://127.0.0.1:9/').catch(() => {}); })""")
        self.assertEqual(blocked, "connect-src")
        self.assertRegex(page.failures()[0], "violates")
        self.browser.events.clear()
        self.assertFalse(page.run("""(() => { const script = document.createElement('script');
          script.textContent = 'window.entered = true';
          document.body.append(script);
          return Boolean(window.entered); })()"""))
        self.browser.events.clear()

    def test_prompts_stay_text(self):
        page = self.ready()
        self.generate("<img src=x onerror=\"window.entered = true\"><b>red</b>")
        page.wait(DONE + " === 1")
        page.click(".picture")
        page.wait("document.getElementById('viewer').open")
        self.assertEqual(page.run("document.querySelectorAll('.tile b, #viewer b').length"), 0)
        self.assertIn("<b>red</b>", self.text("#viewer-prompt"))
        self.assertFalse(page.run("Boolean(window.entered)"))

    # --- readers

    def test_keyboard_alone_does_it_all(self):
        page = self.ready()
        focus = "document.activeElement.id || document.activeElement.textContent"
        reached = []
        for _ in range(40):
            page.key("Tab")
            self.assertTrue(page.run("((at) => at === document.body || (at.matches(':focus-visible') && "
                                     "getComputedStyle(at).outlineStyle !== 'none'))(document.activeElement)"),
                            page.run(focus))
            reached.append(page.run(focus))
            if reached[-1] == "prompt":
                page.type(PROMPT)
            if reached[-1] == "generate-button":
                break
        self.assertEqual(reached[:10], ["Skip to the results", "tab-generate", "model", "prompt", "negative", "images",
                                        "previews", "seed-mode", "Settings", "generate-button"])
        page.key("Tab", "Shift")
        page.key("Enter")
        page.wait("document.getElementById('image-settings').open")
        page.run("document.getElementById('seed-mode').focus()")
        page.key("Enter", "Control")
        page.wait(DONE + " === 1")
        page.run("document.getElementById('generate-button').focus()")
        for want in ("clear", "Enlarge", "Repeat"):
            page.key("Tab")
            self.assertIn(want, page.run(f"document.activeElement.getAttribute('aria-label') || {focus}"))
        page.key("Enter")
        page.wait(DONE + " === 2")
        self.assertRegex(self.text("#live"), r"Image finished, seed \d+")
        page.run("document.querySelector('.picture').focus()")
        page.key("Enter")
        page.wait("document.getElementById('viewer').open")
        page.key("Escape")
        page.wait("!document.getElementById('viewer').open")
        self.assertTrue(page.run("document.activeElement.matches('.picture')"))
        page.run("document.getElementById('tab-generate').focus()")
        page.key("ArrowRight")
        self.assertEqual(page.run(focus), "tab-describe")
        self.assertFalse(page.run("document.getElementById('describe').hidden"))

    def audit(self, where):
        with open(os.path.join(HERE, "audit.js"), encoding="utf-8") as script:
            found = self.page.run(script.read())
        self.assertGreater(found["texts"], 20, where)
        self.assertEqual(found["pale"], [], where)
        nameless = found["nameless"]
        for node in self.page.call("Accessibility.getFullAXTree")["nodes"]:
            can_focus = any(each["name"] == "focusable" and each["value"]["value"]
                            for each in node.get("properties", []))
            role = node.get("role", {}).get("value", "")
            if not node["ignored"] and can_focus and role != "RootWebArea" and not node.get("name", {}).get("value"):
                nameless.append(role)
        self.assertEqual(nameless, [], where)

    def test_names_and_contrast(self):
        page = self.ready(url=self.stand_in.url)
        self.generate(PROMPT, seed=3)
        page.wait(DONE + " === 1")
        self.setting("temp", "hot")
        self.generate(PROMPT)
        page.wait("!document.getElementById('generate-error').hidden")
        page.run("for (const each of document.querySelectorAll('details')) each.open = true")
        for scheme in ("light", "dark"):
            page.media(scheme, "reduce")
            page.click("#tab-generate")
            self.audit(scheme)
            page.click("#tab-describe")
            self.audit(scheme + ", texts")
        # The audit itself sees what is wrong.
        page.media("light")
        page.run("document.getElementById('results-title').style.color = '#888';"
                 "document.getElementById('results').append(document.createElement('button'))")
        for fault in ("of \"Texts\"", "button"):
            with self.assertRaisesRegex(AssertionError, fault):
                self.audit("faults")
            page.run("document.getElementById('results-title').style.color = ''")

    def test_fits_a_phone(self):
        page = self.ready(url=self.stand_in.url, width=390, height=844, scale=2)
        self.generate("slow " + PROMPT + " " + "averylongwordwithoutanyblank" * 6, images=4, seed=5)
        page.wait(DONE + " === 4")
        page.run("for (const each of document.querySelectorAll('details')) each.open = true")
        wide = ("[document.documentElement.scrollWidth, ...[...document.querySelectorAll('main *, header *')]"
                ".filter((each) => each.checkVisibility())"
                ".map((each) => Math.ceil(each.getBoundingClientRect().right))]"
                ".reduce((a, b) => Math.max(a, b))")
        self.assertLessEqual(page.run(wide), 390)
        page.click(".tile .describe-it")
        page.wait("document.querySelector('.caption[data-state=done]')")
        self.assertLessEqual(page.run(wide), 390)
        small = page.run("[...document.querySelectorAll('button, a.button, select')]"
                         ".filter((each) => each.checkVisibility())"
                         ".map((each) => each.getBoundingClientRect().height).reduce((a, b) => Math.min(a, b))")
        self.assertGreaterEqual(small, 33)

    def test_nothing_moves_while_images_grow(self):
        page = self.ready(url=self.stand_in.url, before=SHIFTS)
        self.generate("slow " + PROMPT, images=4, seed=5)
        time.sleep(0.6)  # what a press moves is meant to move
        page.run("window.shifts = 0")
        page.wait(DONE + " === 4")
        self.assertLess(page.run("window.shifts"), 0.001)
        page.run("document.querySelector('.tile-prompt').style.height = '90px'")
        page.wait("window.shifts > 0.001")  # it would be seen

    def test_reduced_motion_stops_what_moves(self):
        page = self.ready(url=self.stand_in.url)
        moving = "document.getAnimations().filter((each) => each.animationName === 'breathe').length"
        self.generate("slow " + PROMPT, images=8)
        page.wait(moving + " > 0")
        page.media("light", "reduce")
        page.wait(moving + " === 0")
        self.assertGreater(page.run("document.querySelectorAll('[data-state=work]').length"), 0)
        page.key("Escape")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
