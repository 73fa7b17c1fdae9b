"""A folder of images to a table of captions: table.py FOLDER OUTPUT.csv"""

import sys
from pathlib import Path

import pandas as pd

import tessera

ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"}


def captions(folder: Path) -> pd.DataFrame:
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    rows = []
    with tessera.Runtime() as runtime:
        model = runtime.open(task="describe", slots=8)
        for file, made in zip(files, model.describe(list(files), errors="return")):
            if isinstance(made, tessera.Error):
                rows.append((str(file), "", 0, made.code))
            else:
                rows.append((str(file), made.text, made.tokens, ""))
    return pd.DataFrame(rows, columns=["path", "caption", "tokens", "error"])


if __name__ == "__main__":
    table = captions(Path(sys.argv[1]))
    table.to_csv(sys.argv[2], index=False)
    print(table.to_string())
