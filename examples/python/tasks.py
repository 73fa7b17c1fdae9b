"""Images and their captions by many tasks at once: tasks.py FOLDER"""

import asyncio
import sys
from pathlib import Path

import tessera
import tessera.aio

PROMPTS = [
    "a large red shiny sphere on a gray floor",
    "a small blue matte cube on a gray floor",
    "a large green shiny cylinder on a brown floor",
]


async def draw(generator: tessera.aio.Model, reader: tessera.aio.Model, seed: int, folder: Path) -> str:
    prompt = PROMPTS[seed % len(PROMPTS)]
    image = await generator.agenerate(prompt, seed=seed)
    image.save(folder / f"{seed}.png")
    described = await reader.adescribe(image.array)
    return f"{seed}: {prompt} -> {described.text}"


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    async with tessera.aio.Runtime() as runtime:
        generator = await runtime.open(slots=4)
        reader = await runtime.open(task="describe", slots=4)
        for line in await asyncio.gather(*(draw(generator, reader, seed, folder) for seed in range(6))):
            print(line)
        async for piece in reader.stream_text(folder / "0.png"):
            print(piece, end="", flush=True)
        print()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
