"""A dataset of PyTorch that generates its images: dataset.py PROMPTS.txt"""

import sys
from typing import Iterator

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import tessera


class Generated(IterableDataset[tuple[torch.Tensor, str]]):
    """Pairs of an image, uint8 [3, height, width], and its prompt.

    Each worker has a runtime of its own and every n-th prompt. Seeds go by a prompt's place, so the
    number of workers changes no image.
    """

    def __init__(self, prompts: list[str], seed: int = 0, slots: int = 4) -> None:
        self.prompts, self.seed, self.slots = prompts, seed, slots

    def __iter__(self) -> Iterator[tuple[torch.Tensor, str]]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        places = range(first, len(self.prompts), step)
        with tessera.Runtime() as runtime:
            model = runtime.open(slots=self.slots, threads=1 if worker else 0)
            prompts = [self.prompts[place] for place in places]
            seeds = [self.seed + place for place in places]
            for made in model.images(prompts, seed=seeds):
                # The tensor has the library's memory: nothing is copied.
                yield torch.from_numpy(made.array).permute(2, 0, 1), made.prompt


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as lines:
        texts = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    for images, prompts in DataLoader(Generated(texts), batch_size=2, num_workers=0):
        print(tuple(images.shape), *prompts, sep="  ")
