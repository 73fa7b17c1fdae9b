"""tessera.aio: many tasks, one thread that owns the runtime."""

import asyncio
import itertools
import unittest
import unittest.mock

import numpy as np

import tessera
import tessera.aio
from support import PROMPTS, TEXT_MODEL, Case, python


async def unfinished(runtime):
    _, submitted, over = await runtime._worker.call(lambda inner: inner._core.stats())
    return submitted - over


class Asyncio(Case):
    def test_tasks_get_what_they_would_get_alone(self):
        async def main():
            async with tessera.aio.Runtime() as runtime:
                model = await runtime.open(slots=4)
                self.assertEqual((await model.info()).width, 64)
                alone = [model.agenerate(prompt, seed=3) for prompt in PROMPTS]
                return await asyncio.gather(*alone, model.agenerate(PROMPTS, seed=3))

        *alone, listed = asyncio.run(main())
        for made, prompt in zip(alone, PROMPTS):
            expected = self.runtime.generate(prompt, seed=3)
            np.testing.assert_array_equal(made.array, expected.array)
        self.assertEqual([image.seed for image in listed], [3, 4, 5, 6, 7])

    def test_results_pieces_and_frames_come_one_by_one(self):
        async def main():
            async with tessera.aio.Runtime() as runtime:
                model = await runtime.open(slots=2)
                places = [image.index async for image in model.images(PROMPTS)]
                self.assertEqual(sorted(places), [0, 1, 2, 3, 4])
                writer = await runtime.open(TEXT_MODEL, "complete")
                stream = writer.stream_text("The cat sat on", max_tokens=9)
                pieces = [piece async for piece in stream]
                self.assertEqual("".join(pieces), stream.result.text)
                films = await runtime.open(task="video")
                stopped = await writer.acomplete("The cat sat on", max_tokens=9, stop=pieces[-1])
                self.assertTrue(stopped.stopped_by_text)
                stream = model.stream_image(PROMPTS[0], seed=3, partial_images=2)
                self.assertEqual([image.shape async for image in stream], [(64, 64, 3)] * 2)
                self.assertEqual(stream.result.png(), (await model.agenerate(PROMPTS[0], seed=3)).png())
                frames = [frame async for frame in films.frames("a red sphere", seed=1)]
                reader = await runtime.open(task="describe", slots=2)
                texts = await reader.adescribe(frames[:3])
                self.assertEqual([made.index for made in texts], [0, 1, 2])
                short = await reader.adescribe(frames[:2], max_tokens=3, temp=1.5, seed=4)
                self.assertEqual([made.tokens for made in short], [3, 3])
                return frames, [made.text for made in texts]

        frames, texts = asyncio.run(main())
        video = self.runtime.video("a red sphere", seed=1)
        np.testing.assert_array_equal(np.stack(frames), np.stack(video.frames))
        self.assertEqual(texts, [made.text for made in self.runtime.describe(frames[:3])])

    def test_a_cancelled_task_and_a_left_loop_cancel_their_requests(self):
        async def main():
            async with tessera.aio.Runtime() as runtime:
                model = await runtime.open(slots=2)
                task = asyncio.create_task(model.agenerate(PROMPTS * 20))
                await asyncio.sleep(0.2)
                self.assertGreater(await unfinished(runtime), 0)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await asyncio.sleep(0.2)
                self.assertEqual(await unfinished(runtime), 0)
                async for _ in model.images(PROMPTS * 20):
                    break
                await asyncio.sleep(0.2)
                await model.agenerate(PROMPTS[0])
                self.assertEqual(await unfinished(runtime), 0)

        asyncio.run(main())

    def test_the_loop_runs_while_a_model_does(self):
        async def main():
            ticks = 0
            async with tessera.aio.Runtime() as runtime:
                model = await runtime.open()
                task = asyncio.create_task(model.agenerate(PROMPTS))
                while not task.done():
                    await asyncio.sleep(0.001)
                    ticks += 1
            return ticks

        self.assertGreater(asyncio.run(main()), 20)

    def test_errors_come_to_the_task_that_caused_them(self):
        async def main():
            async with tessera.aio.Runtime() as runtime:
                model = await runtime.open()
                wrong, right = await asyncio.gather(
                    model.agenerate("a", top_kk=1), model.agenerate(PROMPTS[0]), return_exceptions=True
                )
                self.assertEqual(wrong.code, "E_SETTING_NAME")
                self.assertEqual(right.width, 64)
                returned = await model.agenerate(["a red cube", "x" * 20000], errors="return")
                self.assertEqual(returned[1].code, "E_PROMPT_LENGTH")
                with self.assertRaises(tessera.Error):
                    await runtime.open("no/such")
                waiting = asyncio.create_task(model.agenerate(PROMPTS * 9))
                await asyncio.sleep(0.05)
                await runtime.close()
                with self.assertRaises(tessera.Error) as caught:
                    await waiting
                self.assertEqual(caught.exception.code, "E_RUNTIME_CLOSED")
                with self.assertRaises(tessera.Error):
                    await model.agenerate("a")

        asyncio.run(main())

    def test_a_runtime_that_nobody_closed_ends_with_the_program(self):
        code = (
            "import asyncio, tessera.aio\n"
            "async def main():\n"
            "    model = await tessera.aio.Runtime().open()\n"
            "    async for image in model.images(['a red cube'] * 99):\n"
            "        return print(image.width)\n"
            "asyncio.run(main())\n"
        )
        done = python(code, self.folder)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "64\n", ""))

    def test_a_slow_consumer_holds_a_long_source(self):
        async def main():
            async with tessera.aio.Runtime() as runtime:
                model = await runtime.open()
                with unittest.mock.patch.object(tessera.aio, "MAX_WAITING", 3):
                    images = model.images(itertools.repeat(PROMPTS[0]))
                    await images.__anext__()
                    held = []
                    while len(held) < 2 or held[-1] < 3 or held[-2] < held[-1] < 20:
                        await asyncio.sleep(1)
                        held.append(images._running.results.qsize())
                    taken = [await images.__anext__() for _ in range(10)]
                    await images.aclose()
                return held, [image.index for image in taken]

        held, indexes = asyncio.run(main())
        self.assertLess(held[-1], 8)
        self.assertEqual(indexes, list(range(1, 11)), "it goes on")


if __name__ == "__main__":
    unittest.main()
