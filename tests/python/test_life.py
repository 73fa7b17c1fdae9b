"""Memory, threads, cancellation, errors: what a program may do to a runtime."""

import gc
import os
import threading
import unittest
from pathlib import Path

import numpy as np

import tessera
from support import PROMPTS, TEXT_MODEL, Case, python

INTERRUPTED = """
import os, signal, sys, threading, tessera
runtime = tessera.Runtime()
reader = runtime.open(task="describe", slots=2)
image = runtime.generate("a red cube")
text = reader.describe(image.png()).text
image.save("one.png")
def interrupt():
    os.killpg(0, signal.SIGINT)
threading.Timer(0.5, interrupt).start()
try:
    for _ in reader.descriptions(iter(lambda: "one.png", None)):
        pass
except KeyboardInterrupt:
    again = runtime.generate("a red cube")
    assert (again.array == image.array).all()
    assert reader.describe(image.png()).text == text
    assert runtime._core.stats()[1] == runtime._core.stats()[2], runtime._core.stats()
    print("gone on")
"""


class Memory(Case):
    def test_arrays_have_the_memory_of_the_library(self):
        runtime = tessera.Runtime()
        image = runtime.generate(PROMPTS[0], seed=7)
        array = image.array
        self.assertEqual(array.__array_interface__["data"][0], image._made.address)
        self.assertEqual((array.dtype, array.shape, array.flags.c_contiguous), (np.uint8, (64, 64, 3), True))
        self.assertFalse(array.flags.owndata)
        self.assertTrue(np.shares_memory(array, np.asarray(image)))
        kept = array.copy()
        address = image._made.address
        del image
        runtime.close()
        gc.collect()
        np.testing.assert_array_equal(array, kept)
        self.assertEqual(array.__array_interface__["data"][0], address)

    def test_many_opens_and_closes_keep_no_memory(self):
        pages = os.sysconf("SC_PAGE_SIZE")

        def resident():
            gc.collect()
            return int(Path("/proc/self/statm").read_text().split()[1]) * pages

        def once():
            with tessera.Runtime() as runtime:
                model = runtime.open(slots=2, threads=2)
                model.generate(PROMPTS[:2])
                reader = runtime.open(task="describe", threads=2)
                reader.describe(np.zeros((32, 32, 3), np.uint8))
                reader.close()

        for _ in range(5):
            once()
        before = resident()
        for _ in range(25):
            once()
        self.assertLess(resident() - before, 8 << 20, "a model holds 12 MB")


class Threads(Case):
    def test_another_thread_is_refused(self):
        model = self.runtime.open()
        found = []

        def call():
            for function in (lambda: model.generate("a"), lambda: model.info, self.runtime.close):
                try:
                    function()
                except tessera.Error as error:
                    found.append(error.code)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        self.assertEqual(found, ["E_RUNTIME_THREAD"] * 3)
        self.assertEqual(model.info.width, 64, "and the owner goes on")

    def test_an_iterator_that_another_thread_asks_goes_on_for_its_owner(self):
        images = self.runtime.open(slots=2).images(PROMPTS, seed=3)
        found = []

        def ask():
            try:
                next(images)
            except tessera.Error as error:
                found.append(error.code)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        self.assertEqual(found, ["E_RUNTIME_THREAD"])
        self.assertEqual(sorted(image.seed for image in images), [3, 4, 5, 6, 7])

    def test_a_child_of_fork_is_refused(self):
        child = os.fork()
        if child == 0:
            try:
                self.runtime.generate("a")
            except tessera.Error as error:
                os._exit(0 if error.code == "E_RUNTIME_THREAD" else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_other_threads_run_while_a_model_does(self):
        model = self.runtime.open()
        ticks, over = [0], threading.Event()

        def count():
            while not over.wait(0.001):
                ticks[0] += 1

        request = model._core.submit_image(model._number, PROMPTS[0], None, 0, [], 0, False)
        thread = threading.Thread(target=count)
        thread.start()
        before = ticks[0]
        model._core.run([request], 60)
        counted = ticks[0] - before
        over.set()
        thread.join()
        self.assertEqual(request.take()[1], "image")
        self.assertGreater(counted, 5)


class Cancelling(Case):
    def nothing_is_left(self):
        """After steps for another model, in which requests that go on would not come to their end."""
        self.runtime.generate(PROMPTS[0])
        self.assertEqual(self.left(), 0)

    def left(self):
        _, submitted, over = self.runtime._core.stats()
        return submitted - over

    def test_a_dropped_iterator_cancels_its_requests(self):
        model = self.runtime.open(slots=8)
        images = model.images(PROMPTS * 4)
        next(images)
        self.assertGreater(self.left(), 9)
        del images
        gc.collect()
        self.nothing_is_left()

    def test_one_that_another_thread_drops_is_cancelled_too(self):
        model = self.runtime.open(slots=8)
        held = [model.images(PROMPTS * 4)]
        next(held[0])
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        self.nothing_is_left()

    def test_close_and_with_cancel(self):
        model = self.runtime.open(slots=8)
        with model.images(PROMPTS * 4) as images:
            next(images)
        self.nothing_is_left()
        self.assertEqual(list(images), [])

    def test_what_a_callback_throws_cancels_and_comes_out(self):
        model = self.runtime.open(slots=8)
        calls = []

        def fail(progress):
            calls.append(progress)
            raise ZeroDivisionError("of the callback")

        with self.assertRaises(ZeroDivisionError):
            model.generate(PROMPTS * 4, on_progress=fail)
        self.assertEqual(len(calls), 1)
        self.nothing_is_left()
        image = model.generate(PROMPTS[0], seed=7)
        np.testing.assert_array_equal(image.array, tessera.Runtime().generate(PROMPTS[0], seed=7).array)

    def test_what_a_source_throws_cancels_and_comes_out(self):
        def prompts():
            yield from PROMPTS * 4
            raise ZeroDivisionError("of the source")

        model = self.runtime.open(slots=8)
        with self.assertRaises(ZeroDivisionError):
            list(model.images(prompts()))
        self.nothing_is_left()

    def test_they_are_cancelled_though_iterator_and_error_are_kept(self):
        def sources():
            yield from PROMPTS * 3
            raise ZeroDivisionError("of the source")

        def fail(progress):
            raise ZeroDivisionError("of the callback")

        model = self.runtime.open(slots=8)
        images, kept = model.images(PROMPTS * 4, on_progress=fail), []
        for call in (lambda: next(images), lambda: model.images(sources())):
            try:
                call()
            except ZeroDivisionError as error:
                kept.append(error)
        self.assertEqual(len(kept), 2)
        self.nothing_is_left()
        self.assertEqual(list(images), [])

    def test_two_iterators_take_turns(self):
        model = self.runtime.open(slots=8)
        one, two = model.images(PROMPTS), model.images(PROMPTS, seed=50)
        first, second = next(one), next(two)
        self.assertEqual((first.seed < 50, second.seed >= 50), (True, True))
        self.assertEqual(len(list(two)), len(PROMPTS) - 1)
        self.assertEqual(len(list(one)), len(PROMPTS) - 1)

    def test_ctrl_c_ends_the_requests_and_the_runtime_goes_on(self):
        done = python(INTERRUPTED, self.folder, start_new_session=True)
        self.assertEqual(done.stdout, "gone on\n", done.stderr)


class Errors(Case):
    def test_an_error_has_its_parts(self):
        error = self.refused("E_SETTING_NAME", self.runtime.generate, "a", top_kk=3)
        self.assertEqual((error.kind, error.where, error.found), ("usage", "settings", "'top-kk'"))
        self.assertIn("top-k", error.expected)
        self.assertIn("expected one of", str(error))
        error = self.refused("E_SETTING_VALUE", self.runtime.generate, "a", top_p=7)
        self.assertEqual(error.where, "top-p")
        self.assertIsInstance(error, Exception)

    def test_what_is_given_wrongly_is_refused_by_name(self):
        runtime = self.runtime
        self.refused("E_TASK", runtime.open, task="paint")
        self.refused("E_SETTING_NAME", runtime.open, top_k=3)
        self.refused("E_SETTING_VALUE", runtime.open, prune="divprune")
        self.refused("E_SETTING_VALUE", runtime.open, task="complete")
        self.assertEqual(self.refused("E_ARGUMENT", runtime.open, task="describe", seed=-1).where, "seed")
        self.refused("E_ARGUMENT", runtime.generate, ("a", "b"))
        self.refused("E_ARGUMENT", runtime.generate, "a", seed=1.5)
        self.refused("E_ARGUMENT", runtime.generate, "a", seed=2**63)
        self.refused("E_SETTING_VALUE", runtime.generate, "a", top_k=[3])
        self.refused("E_ERRORS", runtime.generate, "a", errors="hide")
        self.refused("E_OUTPUT_NAME", runtime.generate("a red cube").save, "a.jpg")
        self.refused("E_TASK", self.runtime.open().describe, "x.png")
        self.refused("E_TASK", self.runtime.open().stream_text, "x.png")
        error = self.refused("E_PREFIX", tessera.Runtime, self.folder)
        self.assertEqual(error.file, str(self.folder))
        missing = self.refused_kind("model", runtime.open, "no/such")
        self.assertTrue(missing.hint or missing.expected)
        with self.assertRaises(tessera.Error) as caught:
            runtime.generate("a red cube").save(self.folder / "none" / "a.png")
        self.assertEqual(caught.exception.kind, "storage")

    def test_values_of_another_type_are_refused_by_name(self):
        runtime, model, reader = self.runtime, self.runtime.open(), self.runtime.open(task="describe")
        for name, value in {
            "slots": "x", "threads": None, "device": 0, "dtype": np.uint8, "task": 3, "seed": "1",
            "prune": None, "deterministic": "yes", "tf32": 1,
        }.items():  # fmt: skip
            self.assertEqual(self.refused("E_ARGUMENT", runtime.open, **{name: value}).where, name)
        self.refused("E_ARGUMENT", runtime.open, threads=10**12)
        for prompt in None, b"a", 1.5, True, "a\udc80":
            self.assertEqual(self.refused("E_ARGUMENT", model.generate, prompt).where, "prompt")
        self.assertEqual(self.refused("E_ARGUMENT", model.generate, "a", 3).where, "negative_prompt")
        self.assertEqual(self.refused("E_ARGUMENT", model.images, "ab").where, "prompts")
        self.assertEqual(self.refused("E_ARGUMENT", reader.descriptions, "a.png").where, "images")
        for name, value in {
            "question": 3, "negative_question": 3, "number": -1, "max_tokens": "4", "seed": 1.5, "stop": 3,
        }.items():  # fmt: skip
            refused = self.refused("E_ARGUMENT", reader.describe, "a.png", **{name: value})
            self.assertEqual(refused.where, name)
        self.refused("E_SETTING_NAME", reader.stream_text, "a.png", max_tokes=3)
        self.refused("E_ARGUMENT", runtime.open(TEXT_MODEL, "complete").complete, 3)
        self.refused("E_ARGUMENT", runtime.open(TEXT_MODEL, "complete").complete, "a", chat="yes")

    def test_names_of_files_need_not_be_utf_8(self):
        name = self.folder / os.fsdecode(b"\xff\xfe.png")
        image = self.runtime.generate("a red cube")
        image.save(name)
        self.assertEqual(os.listdir(os.fsencode(self.folder)), [b"\xff\xfe.png"])
        self.assertEqual(self.runtime.describe(name).text, self.runtime.describe(image.array).text)
        name.unlink()
        with self.assertRaises(tessera.Error) as caught:
            self.runtime.describe(name)
        self.assertIn("\ufffd.png", caught.exception.file)

    def test_what_is_wrong_with_all_is_raised_where_errors_are_returned(self):
        model = self.runtime.open()
        self.refused("E_SETTING_NAME", model.generate, ["a"], top_kk=3, errors="return")
        self.refused("E_TASK", model.describe, ["x.png"], errors="return")
        model.close()
        self.refused("E_MODEL_CLOSED", model.generate, ["a"], errors="return")

    def refused_kind(self, kind, call, *args):
        with self.assertRaises(tessera.Error) as caught:
            call(*args)
        self.assertEqual(caught.exception.kind, kind)
        return caught.exception

    def test_arrays_of_another_form_are_refused(self):
        describe = self.runtime.describe
        for array in np.zeros((8, 8), np.uint8), np.zeros((8, 8, 4), np.uint8), np.zeros((8, 8, 3)):
            error = self.refused("E_IMAGE_ARRAY", describe, array)
            self.assertIn(str(array.dtype), error.found)
        self.refused("E_IMAGE_ARRAY", describe, {"no": "image"})
        self.refused("E_IMAGE_ORDER", describe, ("a.png", np.zeros((8, 8, 3), np.uint8)))

    def test_a_closed_model_and_a_closed_runtime_say_so(self):
        runtime = tessera.Runtime()
        model = runtime.open()
        model.close()
        self.refused("E_MODEL_CLOSED", model.generate, "a")
        model = runtime.open()
        images = model.images(PROMPTS[:2])
        model.close()
        self.assertEqual(self.refused("E_MODEL_CLOSED", list, images).found, "a closed model")
        images = runtime.open().images(PROMPTS)
        runtime.close()
        self.assertIn(self.refused("E_RUNTIME_CLOSED", runtime.generate, "a").where, "runtime")
        with self.assertRaises(tessera.Error):
            list(images)

    def test_an_error_of_a_model_ends_all_its_requests(self):
        """Weights that are gone when they are read."""
        import shutil

        folder = self.folder / "model"
        shutil.copytree(TEXT_MODEL.parent / "qwen3_f32", folder)
        model = self.runtime.open(folder, "complete")
        weights = folder / "model.safetensors"
        data = weights.read_bytes()
        os.truncate(weights, len(data) // 2)
        made = model.complete(["a", "b", "c"], errors="return")
        self.assertTrue(all(isinstance(one, tessera.Error) for one in made), made)
        self.assertEqual([one.index for one in made], [0, 1, 2])
        self.assertEqual(self.runtime.generate("a red cube").width, 64)

    def test_settings_are_listed_by_the_names_of_keywords(self):
        names = {row.name: row for row in tessera.settings("image")}
        self.assertEqual((names["top_k"].flag, names["top_k"].place), ("top-k", "request"))
        self.assertEqual(names["decode"].place, "open")
        self.assertIn("gumbel", names["decode"].choices)
        self.refused("E_TASK", tessera.settings, "paint")
        self.assertGreater(self.runtime.open(decode="lantern", lambda_=2.5).info.width, 0)
        self.refused("E_SETTING_VALUE", self.runtime.open, decode="lantern", lambda_=0.5)


if __name__ == "__main__":
    unittest.main()
