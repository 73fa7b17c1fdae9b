"""The official client of OpenAI's interface against `tessera serve`, unchanged: openai_client.py PROGRAM

77: the package `openai` is not there. Images are held against those of the command line, byte by byte.
"""

import base64
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import openai
except ImportError:
    print("skipped: the package openai is not there")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        keys = Path(cls.folder.name) / "keys"
        keys.write_text("somebody sk-0123456789abcdef\n")
        cls.server = subprocess.Popen(
            [PROGRAM, "serve", "--json", "--port", "0", "--keys", str(keys), "--queue", "8"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        cls.url = json.loads(cls.server.stdout.readline())["url"] + "/v1"
        cls.client = openai.OpenAI(base_url=cls.url, api_key="sk-0123456789abcdef", max_retries=0)
        image = Path(cls.folder.name) / "a.png"
        subprocess.run([PROGRAM, "generate", "-p", "a red cube", "-s", "3", "-o", str(image)], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.png = image.read_bytes()
        url = "data:image/png;base64," + base64.b64encode(cls.png).decode()
        cls.messages = [{"role": "user", "content": [{"type": "text", "text": "Describe the picture."},
                                                     {"type": "image_url", "image_url": {"url": url}}]}]

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.code = cls.server.wait(60)
        cls.server.stdout.close()
        cls.folder.cleanup()
        assert cls.code == 75, cls.code

    def chat(self, **more):
        return self.client.chat.completions.create(model="tabletop-llava", messages=self.messages, **more)

    def test_models(self):
        self.assertIn("tabletop-janus", [model.id for model in self.client.models.list()])
        self.assertEqual(self.client.models.retrieve("tabletop-llava").id, "tabletop-llava")

    def test_images(self):
        made = self.client.images.generate(prompt="a red cube", n=2, extra_body={"seed": 3})
        self.assertEqual(len(made.data), 2)
        self.assertEqual(base64.b64decode(made.data[0].b64_json), self.png)
        self.assertGreater(made.usage.output_tokens, 0)
        self.assertGreater(made.usage.input_tokens, 0)

    def test_images_as_events(self):
        events = list(self.client.images.generate(prompt="a red cube", stream=True, partial_images=2,
                                                  extra_body={"seed": 3}))
        self.assertEqual([event.type for event in events],
                         ["image_generation.partial_image"] * 2 + ["image_generation.completed"])
        self.assertEqual([event.partial_image_index for event in events[:2]], [0, 1])
        self.assertEqual(base64.b64decode(events[2].b64_json), self.png)

    def test_chats(self):
        made = self.chat(logprobs=True, top_logprobs=2)
        text = made.choices[0].message.content
        self.assertEqual(made.choices[0].finish_reason, "stop")
        listed = made.choices[0].logprobs.content
        self.assertEqual("".join(token.token for token in listed).strip(), text)
        self.assertTrue(all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in listed))
        again = self.chat()
        self.assertEqual(again.choices[0].message.content, text)
        self.assertGreater(again.usage.prompt_tokens_details.cached_tokens, 0)
        pieces = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices), text)
        self.assertEqual(pieces[-1].usage.completion_tokens, again.usage.completion_tokens)
        word = text.split()[2]
        cut = self.chat(stop=[word])
        self.assertEqual(cut.choices[0].message.content.strip(), text[: text.index(word)].strip())
        self.assertEqual(self.chat(max_tokens=2).choices[0].finish_reason, "length")
        drawn = self.chat(temperature=2, seed=5, n=3).choices
        self.assertEqual([one.message.content for one in drawn],
                         [one.message.content for one in self.chat(temperature=2, seed=5, n=3).choices])

    def test_errors(self):
        create = self.client.chat.completions.create
        bad_image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]
        far_image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}]
        for kind, code, call in [
            (openai.NotFoundError, "E_SERVED_MODEL", lambda: create(model="other", messages=self.messages)),
            (openai.BadRequestError, "E_GEOMETRY", lambda: self.client.images.generate(prompt="a", size="512x512")),
            (openai.BadRequestError, "E_FIELD", lambda: self.chat(tools=[{"type": "function", "function": {"name": "f"}}])),
            (openai.BadRequestError, "E_PICTURE_FORMAT", lambda: create(model="tabletop-llava", messages=bad_image)),
            (openai.BadRequestError, "E_MEDIA", lambda: create(model="tabletop-llava", messages=far_image)),
            (openai.RateLimitError, "E_QUEUE_FULL", lambda: self.client.images.generate(prompt="a", n=10)),
            (openai.AuthenticationError, "E_KEY",
             lambda: openai.OpenAI(base_url=self.url, api_key="sk-other-0123456789", max_retries=0).models.list()),
        ]:
            with self.subTest(code=code), self.assertRaises(kind) as caught:
                call()
            self.assertEqual(caught.exception.code, code)

    def test_edits_are_refused_by_name(self):
        with self.assertRaises(openai.APIStatusError) as caught:
            self.client.images.edit(image=("a.png", self.png), prompt="x")
        self.assertTrue(caught.exception.code.startswith("E_"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
