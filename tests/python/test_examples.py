"""Examples run, are typed, and do what the command does; those whose packages are not there are skipped by name."""

import csv
import importlib.util
import re
import subprocess
import sys
import tarfile
import unittest


from support import PROMPTS, SOURCE, Case, command, json_lines

EXAMPLES = SOURCE / "examples/python"


def needs(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} is not installed")


class Examples(Case):
    def run_example(self, name, *words):
        done = subprocess.run(
            [sys.executable, EXAMPLES / name, *map(str, words)],
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def put_images(self, count=3):
        photos = self.folder / "photos"
        photos.mkdir()
        for image in self.runtime.generate(PROMPTS[:count], seed=1):
            image.save(photos / f"{image.index}.png")
        out = json_lines(
            command("caption", "photos", "--json", "--anew", "-o", "c.jsonl", folder=self.folder)
        )
        if not out:
            out = json_lines((self.folder / "c.jsonl").read_text())
        return photos, [line["caption"] for line in sorted(out, key=lambda line: line["path"])]

    @needs("pandas")
    def test_a_folder_becomes_a_table(self):
        photos, captions = self.put_images()
        (photos / "broken.jpg").write_bytes(b"no image")
        self.run_example("table.py", photos, "out.csv")
        with open(self.folder / "out.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["caption"] for row in rows], [*captions, ""])
        self.assertTrue(rows[3]["error"].startswith("E_"))

    def test_shards_get_captions(self):
        photos, captions = self.put_images()
        with tarfile.open(self.folder / "a.tar", "w") as tar:
            for i in range(3):
                tar.add(photos / f"{i}.png", f"s{i}.png")
        self.assertIn("3 images", self.run_example("shards.py", "out", "a.tar"))
        with tarfile.open(self.folder / "out/a.tar") as tar:
            names = tar.getnames()
            texts = [tar.extractfile(f"s{i}.caption").read().decode() for i in range(3)]
            self.assertEqual(tar.extractfile("s0.png").read(), (photos / "0.png").read_bytes())
        self.assertEqual(texts, captions)
        self.assertEqual(names[:2], ["s0.png", "s0.caption"])
        self.assertEqual(self.run_example("shards.py", "out", "a.tar"), "", "it is there")

    @needs("torch")
    def test_a_dataset_gives_tensors(self):
        (self.folder / "prompts.txt").write_text("\n".join(PROMPTS[:3]))
        out = self.run_example("dataset.py", "prompts.txt")
        self.assertIn("(2, 3, 64, 64)", out)
        self.assertIn(PROMPTS[2], out)

    def test_tasks_run_together(self):
        out = self.run_example("tasks.py", "out")
        self.assertEqual(len(re.findall(r"^\d: ", out, re.M)), 6)
        for seed in range(6):
            image = self.runtime.generate(PROMPTS_OF_TASKS[seed % 3], seed=seed)
            self.assertEqual((self.folder / f"out/{seed}.png").read_bytes(), image.png())

    def test_examples_are_short(self):
        for path in EXAMPLES.glob("*.py"):
            self.assertLessEqual(len(path.read_text().splitlines()), 60, path)

    @needs("mypy")
    def test_the_package_and_the_examples_are_typed(self):
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", self.folder, "--disable-error-code",
             "import-not-found", "--disable-error-code", "import-untyped", "--disable-error-code", "misc",
             SOURCE / "python/tessera", *EXAMPLES.glob("*.py"),
             SOURCE / "tests/python/typed_use.py"],
            cwd=SOURCE / "python", capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_code_of_the_page_runs(self):
        page = (SOURCE / "docs/python.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", page, re.S)
        self.assertGreaterEqual(len(blocks), 1)
        self.runtime.generate(PROMPTS[0]).save(self.folder / "photo.png")
        for block in blocks:
            done = subprocess.run(
                [sys.executable, "-c", block], cwd=self.folder, capture_output=True, text=True
            )
            self.assertEqual(done.returncode, 0, block + done.stderr)
        self.assertEqual(
            (self.folder / "cube.png").read_bytes(), self.runtime.generate("a red cube", seed=7).png()
        )


PROMPTS_OF_TASKS = [
    "a large red shiny sphere on a gray floor",
    "a small blue matte cube on a gray floor",
    "a large green shiny cylinder on a brown floor",
]

if __name__ == "__main__":
    unittest.main()
