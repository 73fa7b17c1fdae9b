"""Small tar archives of Python's tarfile, for tests/golden/tar.

Three formats of one set of members (files, a folder, links, long names), and an archive whose every byte the
program's writer must give again. Deterministic: no times, no owners.

    python fixtures_tar.py --out tests/golden/tar
"""

import argparse
import io
import pathlib
import tarfile

DEEP = "folder/" + "d" * 60 + "/" + "e" * 60 + "/long.jpg"
FAR = "f" * 120 + "/" + "g" * 150 + ".jpg"


def add(archive, name, data=b"", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    archive.addfile(info, io.BytesIO(data))


def mixed(path, form):
    with tarfile.open(path, "w", format=form) as archive:
        add(archive, "a.jpg", b"picture a")
        add(archive, "a.txt", b"a caption")
        add(archive, "empty.json")
        add(archive, "folder", kind=tarfile.DIRTYPE)
        add(archive, "link.jpg", kind=tarfile.SYMTYPE, link="/etc/passwd")
        add(archive, "b/\u00e4.png", b"picture b")
        add(archive, "hard.jpg", kind=tarfile.LNKTYPE, link="a.jpg")
        add(archive, "block.bin", b"x" * 512)
        add(archive, DEEP, b"deep")
        if form != tarfile.USTAR_FORMAT:
            add(archive, FAR, b"far")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    mixed(out / "ustar.tar", tarfile.USTAR_FORMAT)
    mixed(out / "gnu.tar", tarfile.GNU_FORMAT)
    mixed(out / "pax.tar", tarfile.PAX_FORMAT)
    with tarfile.open(out / "written.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        add(archive, "a.jpg", b"picture a")
        add(archive, "empty.json")
        add(archive, DEEP, b"y" * 600)


if __name__ == "__main__":
    main()
