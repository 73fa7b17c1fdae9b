"""Results are byte for byte those of the command, in the order that was asked for."""

import os
import subprocess
import unittest

import numpy as np

import tessera
from support import PROMPTS, TEXT_MODEL, Case, command, json_lines, pixels


class Images(Case):
    def test_files_equal_those_of_the_command(self):
        (self.folder / "prompts.txt").write_text("\n".join(PROMPTS))
        flags = ["--prompt-file", "prompts.txt", "-s", 7, "--top-k", 200, "--decode", "gumbel"]
        command("generate", *flags, "-o", "c-%d.png", folder=self.folder)
        model = self.runtime.open(slots=3, decode="gumbel")
        made = model.generate(PROMPTS, seed=7, top_k=200)
        theirs = sorted(self.folder.glob("c-*.png"), key=lambda path: int(path.stem[2:]))
        self.assertEqual(len(theirs), len(PROMPTS))
        for i, (image, file) in enumerate(zip(made, theirs)):
            self.assertEqual((image.index, image.prompt, image.seed), (i, PROMPTS[i], 7 + i))
            image.save(self.folder / "mine.png")
            self.assertEqual((self.folder / "mine.png").read_bytes(), file.read_bytes())
            self.assertEqual(image.png(), file.read_bytes())
            np.testing.assert_array_equal(image.array, pixels(file))

    def test_images_come_as_they_are_done_and_prompts_are_read_as_needed(self):
        read = []

        def prompts():
            for prompt in PROMPTS * 4:
                read.append(prompt)
                yield prompt

        model = self.runtime.open(slots=2)
        images = model.images(prompts(), seed=3)
        first = next(images)
        self.assertLess(len(read), 10)
        rest = list(images)
        self.assertEqual(sorted([first.index] + [i.index for i in rest]), list(range(20)))
        again = model.generate(PROMPTS[2], seed=5)
        third = next(image for image in [first, *rest] if image.index == 2)
        np.testing.assert_array_equal(third.array, again.array)

    def test_seeds_may_be_given_one_by_one(self):
        model = self.runtime.open(slots=2)
        made = model.generate(PROMPTS[:2], seed=[9, np.int64(4)])
        self.assertEqual([image.seed for image in made], [9, 4])
        np.testing.assert_array_equal(made[1].array, model.generate(PROMPTS[1], seed=4).array)
        self.refused("E_ARGUMENT", model.generate, PROMPTS[:2], seed=[9])

    def test_progress_is_heard_and_false_stops(self):
        heard = []
        self.runtime.generate(PROMPTS[0], on_progress=heard.append)
        self.assertGreater(len(heard), 10)
        self.assertEqual(heard[-1].tokens, 256)
        self.assertEqual([p.tokens_done for p in heard], sorted(p.tokens_done for p in heard))
        self.refused("E_STOPPED", self.runtime.generate, PROMPTS[0], on_progress=lambda p: p.tokens_done < 9)

    def test_no_prompts_are_no_images(self):
        self.assertEqual(self.runtime.generate([]), [])

    def test_partial_images_come_on_the_way_and_change_nothing(self):
        model = self.runtime.open()
        whole = model.generate(PROMPTS[0], seed=7)
        for count in (0, 3):
            stream = model.stream_image(PROMPTS[0], seed=7, partial_images=count)
            partial = list(stream)
            self.assertEqual([image.shape for image in partial], [(64, 64, 3)] * count)
            self.assertEqual(stream.result.png(), whole.png())
        flat = [int((np.ptp(image, axis=1) == 0).all(axis=1).sum()) for image in partial]
        self.assertEqual(flat, [48, 32, 16], "rows to come")
        first = next(model.stream_image(PROMPTS[0], seed=7, partial_images=3))
        np.testing.assert_array_equal(first, partial[0], "before the image is there")
        self.refused("E_SETTING_VALUE", model.stream_image, PROMPTS[0], partial_images=65)
        self.refused("E_ARGUMENT", model.stream_image, PROMPTS[0], partial_images=-1)


class Videos(Case):
    PROMPT = "a large red shiny sphere moving left on a gray floor"

    def test_frames_equal_those_of_the_command_and_come_in_order(self):
        command("video", "-p", self.PROMPT, "-s", 7, "-o", "f-%04d.png", folder=self.folder)
        theirs = [pixels(path) for path in sorted(self.folder.glob("f-*.png"))]
        model = self.runtime.open(task="video")
        stream = model.frames(self.PROMPT, seed=7)
        mine = list(stream)
        self.assertEqual((len(mine), stream.result.count, stream.result.rate), (16, 16, 8))
        np.testing.assert_array_equal(np.stack(mine), np.stack(theirs))
        whole = model.video(self.PROMPT, seed=7, frames=16)
        np.testing.assert_array_equal(np.stack(whole.frames), np.stack(mine))

    def test_a_video_goes_on_from_frames_and_may_be_endless(self):
        model = self.runtime.open(task="video")
        first = model.video(self.PROMPT, seed=1).frames[-4:]
        onward = model.video(self.PROMPT, seed=2, first_frames=first)
        self.assertEqual(onward.first_frames, 4)
        self.assertFalse(np.array_equal(onward.frames[-1], model.video(self.PROMPT, seed=2).frames[-1]))
        stopped = model.video(self.PROMPT, seed=2, endless=True, on_progress=lambda p: p.frames_done < 20)
        self.assertTrue(stopped.stopped)
        self.assertGreaterEqual(len(stopped.frames), 20)

    def test_a_frame_is_saved(self):
        frame = next(self.runtime.open(task="video").frames(self.PROMPT, seed=7))
        tessera.save_png(self.folder / "frame.png", frame)
        np.testing.assert_array_equal(pixels(self.folder / "frame.png"), frame)
        self.assertEqual(tessera.png(frame), (self.folder / "frame.png").read_bytes())


class Captions(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = [image.png() for image in cls.runtime.open(slots=4).generate(PROMPTS * 5, seed=1)]

    def setUp(self):
        super().setUp()
        self.files = [self.folder / f"p{place:02}.png" for place in range(25)]
        for file, image in zip(self.files, self.images):
            file.write_bytes(image)

    def test_captions_equal_those_of_the_command(self):
        out = json_lines(command("caption", ".", "--json", "--batch-size", 4, folder=self.folder))
        theirs = {os.path.basename(line["path"]): line for line in out}
        model = self.runtime.open(task="describe", slots=4)
        mine = model.describe(self.files)
        self.assertEqual([made.index for made in mine], list(range(25)))
        for file, made in zip(self.files, mine):
            self.assertEqual(made.text, theirs[file.name]["caption"])
            self.assertEqual(made.tokens, theirs[file.name]["tokens"])
        self.assertGreater(len({made.text for made in mine}), 3)

    def test_arrays_bytes_and_iterators_give_the_same_texts(self):
        model = self.runtime.open(task="describe", slots=2)
        texts = [made.text for made in model.describe(self.files)]
        arrays = [pixels(file) for file in self.files]
        self.assertEqual([made.text for made in model.describe(arrays)], texts)
        encoded = [file.read_bytes() for file in self.files]
        self.assertEqual([made.text for made in model.describe(encoded)], texts)
        got = {made.index: made.text for made in model.descriptions(iter(self.files))}
        self.assertEqual([got[i] for i in range(25)], texts)
        wide = np.zeros((64, 128, 3), np.uint8)
        wide[:, ::2] = arrays[3]
        self.assertEqual(model.describe(wide[:, ::2]).text, texts[3], "an array with gaps")

        class Picture:
            __array_interface__ = arrays[4].__array_interface__

        self.assertEqual(model.describe(Picture()).text, texts[4])

    def test_one_broken_file_leaves_the_others(self):
        self.files[1].write_bytes(b"\x89PNG\r\n\x1a\nbroken")
        model = self.runtime.open(task="describe", slots=2)
        made = model.describe(self.files[:4], errors="return")
        self.assertIsInstance(made[1], tessera.Error)
        self.assertEqual((made[1].index, made[1].file), (1, str(self.files[1])))
        self.assertTrue(all(isinstance(made[i], tessera.Description) for i in (0, 2, 3)))
        with self.assertRaises(tessera.Error):
            model.describe(self.files[:4])
        self.assertEqual(model.describe(self.files[0]).text, made[0].text)

    def test_questions_are_asked_and_pieces_join_to_the_text(self):
        model = self.runtime.open(task="describe")
        line = json_lines(
            command("caption", "--image", self.files[0], "-p", "What is there?", "--json", folder=self.folder)
        )[0]
        made = model.describe(self.files[0], question="What is there?")
        self.assertIn(made.text, line.values())
        stream = model.stream_text(self.files[0], question="What is there?")
        self.assertEqual("".join(stream), made.text)
        self.assertEqual(stream.result.text, made.text)
        pieces = list(model.stream_text(self.files[0]))
        self.assertGreater(len(pieces), 5)
        self.assertEqual("".join(pieces), model.describe(self.files[0]).text)

    def test_settings_seed_and_length_are_of_a_request(self):
        model = self.runtime.open(task="describe", slots=4)
        files = self.files[:8]
        texts = []
        for seed in (5, 6, 8):
            flags = ["--image", files[0], "--temp", 3, "-s", seed, "--max-tokens", 12, "--json"]
            (line,) = json_lines(command("caption", *flags, folder=self.folder))
            texts.append(model.describe(files[0], temp=3, seed=seed, max_tokens=12).text)
            self.assertIn(texts[-1], line.values())
        self.assertGreater(len(set(texts)), 1)
        made = model.describe(files, temp=3, seed=5, max_tokens=12)
        self.assertEqual(made[0].text, texts[0])
        self.assertLessEqual(max(one.tokens for one in made), 12)
        self.assertTrue(any(one.cut_short for one in made))
        self.assertEqual(model.describe(files[3], temp=3, seed=5, max_tokens=12, number=3).text, made[3].text)
        self.refused("E_SETTING_NAME", model.describe, files, tempp=2, errors="return")
        self.refused("E_SETTING_NAME", self.runtime.open, task="describe", temp=2)
        self.refused("E_TEXT_LENGTH", model.describe, files, max_tokens=9999)

    def test_a_text_ends_before_one_that_stops_it(self):
        model = self.runtime.open(task="describe", slots=4)
        whole = model.describe(self.files)
        for stop in ("on a", ["never", "on a"]):
            for before, made in zip(whole, model.describe(self.files, stop=stop)):
                self.assertIn("on a", before.text)
                self.assertEqual(made.text, before.text.split("on a")[0].strip())
                self.assertEqual((made.stopped_by_text, before.stopped_by_text), (True, False))
        stream = model.stream_text(self.files[0], stop="on a")
        self.assertEqual("".join(stream), whole[0].text.split("on a")[0].strip())
        self.refused("E_STOP_TEXT", model.describe, self.files, stop="", errors="return")
        self.refused("E_ARGUMENT", model.describe, self.files, stop=[None])

    def test_a_question_may_be_a_conversation(self):
        model = self.runtime.open(task="describe", slots=2)
        turns = [
            {
                "role": "user",
                "content": [{"type": "image"}, {"type": "text", "text": "Describe the picture."}],
            }
        ]
        plain = [made.text for made in model.describe(self.files[:3])]
        self.assertEqual([made.text for made in model.describe(self.files[:3], turns)], plain)
        turns += [{"role": "assistant", "content": "Red."}, {"role": "user", "content": "And what else?"}]
        asked = model.describe(self.files[0], turns)
        self.assertGreater(asked.prompt_tokens, model.describe(self.files[0]).prompt_tokens)
        self.assertEqual("".join(model.stream_text(self.files[0], turns)), asked.text)
        both = tuple(self.files[:2])
        made = model.describe([self.files[0], both], turns, errors="return")
        self.assertEqual((made[0].text, made[1].code, made[1].index), (asked.text, "E_CHAT_IMAGES", 1))
        self.refused("E_CHAT_ROLE", model.describe, self.files[0], [{"role": "robot", "content": [IMAGE]}])
        for wrong in (
            [],
            [{"role": "user"}],
            [{"role": "user", "content": [{"type": "image", "url": "x.png"}]}],
            [{"role": "user", "content": [{"type": "sound"}]}],
            [{"role": "user", "content": 3}],
            [{"role": "user", "content": "a", "name": "b"}],
        ):
            self.refused("E_ARGUMENT", model.describe, self.files[0], wrong)


IMAGE = {"type": "image"}
TEMPLATE = """{% for turn in messages %}<{{ turn.role }}> {{ turn.content }}
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""


class Texts(Case):
    PROMPTS = ["The cat sat on", "Hello, world! 12345", "a"]

    def test_texts_equal_those_of_the_command(self):
        for more, options in ([], {}), (["--temp", 0.8, "-s", 5], {"temp": 0.8, "seed": 5}):
            flags = [word for prompt in self.PROMPTS for word in ("-p", prompt)]
            lines = json_lines(
                command(
                    "complete", TEXT_MODEL, *flags, "--json", "--max-tokens", 24, *more, folder=self.folder
                )
            )
            theirs = {line["id"] - 1: line for line in lines}
            model = self.runtime.open(TEXT_MODEL, "complete", slots=2, max_tokens=24)
            for made in model.complete(self.PROMPTS, **options):
                line = theirs[made.index]
                self.assertEqual((made.text, made.tokens), (line["text"], line["tokens"]))
                self.assertEqual(made.cut_short, line["ended"] == "max-tokens")

    def test_pieces_join_and_fewer_tokens_are_kept_to(self):
        model = self.runtime.open(TEXT_MODEL, "complete")
        stream = model.stream_text("The cat sat on", max_tokens=12)
        pieces = list(stream)
        self.assertGreater(len(pieces), 1)
        self.assertEqual("".join(pieces), stream.result.text)
        self.assertEqual(stream.result.tokens, 12)

    def test_a_text_ends_before_one_that_stops_it(self):
        model = self.runtime.open(TEXT_MODEL, "complete", slots=3)
        whole = model.complete(self.PROMPTS, max_tokens=24)
        stop = whole[0].text[9:12]
        for before, made in zip(whole, model.complete(self.PROMPTS, max_tokens=24, stop=stop)):
            self.assertEqual(made.text, before.text.split(stop)[0])
            self.assertEqual(made.stopped_by_text, stop in before.text)
        self.assertEqual(
            "".join(model.stream_text(self.PROMPTS[0], max_tokens=24, stop=[stop])),
            whole[0].text.split(stop)[0],
        )

    def test_a_prompt_may_be_a_conversation(self):
        (self.folder / "chat.jinja").write_text(TEMPLATE)
        model = self.runtime.open(
            TEXT_MODEL, "complete", slots=2, chat_template=self.folder / "chat.jinja", max_tokens=12
        )
        first = [{"role": "user", "content": "Hello"}]
        longer = [
            {"role": "system", "content": "Be brief."},
            *first,
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": [{"type": "text", "text": "Nothing."}]},
        ]
        written = "<system> Be brief.\n<user> Hello\n<assistant> Yes?\n<user> Nothing.\n<assistant>"
        one = model.complete(longer)
        self.assertEqual(one.text, model.complete(written).text)
        self.assertEqual(one.prompt_tokens, model.complete(written).prompt_tokens)
        made = model.complete([first, longer])
        self.assertEqual([made[0].text, made[1].text], [model.complete("Hello", chat=True).text, one.text])
        self.assertEqual("".join(model.stream_text(longer)), one.text)
        self.refused("E_CHAT_IMAGES", model.complete, [{"role": "user", "content": [IMAGE]}])
        self.refused("E_ARGUMENT", self.runtime.generate, [first])


class Answers(Case):
    def test_answers_equal_those_of_the_command(self):
        subprocess.run([os.environ["TESSERA_MIXED_MODEL"], self.folder / "model"], check=True)
        flags = ["-p", "a red", "-s", 7, "--temp", 1, "-b", 6, "--max-tokens", 24, "--json", "-o", "a-%d.png"]
        lines = json_lines(command("generate", "--interleave", "-m", "model", *flags, folder=self.folder))
        model = self.runtime.open(self.folder / "model", "answer", slots=3, max_tokens=24)
        made = model.answer(["a red"] * 6, seed=7, temp=1)
        images = 0
        for line, answer in zip(lines, made):
            self.assertEqual(line["seed"], answer.seed)
            self.assertEqual(len(line["parts"]), len(answer.parts))
            for theirs, mine in zip(line["parts"], answer.parts):
                if isinstance(mine, str):
                    self.assertEqual(theirs["text"], mine)
                else:
                    images += 1
                    self.assertEqual((self.folder / theirs["image"]).read_bytes(), mine.png())
        self.assertGreater(images, 1)


if __name__ == "__main__":
    unittest.main()
