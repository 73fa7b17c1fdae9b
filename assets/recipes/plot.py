"""Draw what `tessera-lab bench decode`, `prune` or `quality` measured, from its JSON lines, as SVG.

    tessera-lab bench decode ... > decode.jsonl
    python plot.py decode.jsonl --out ../../docs/images/decoding.svg --csv decode.csv

Points of one name are one series: of one colour, joined in their order, named once. Marks of methods
that write another distribution than plain decoding are empty. Types of weights are a series a file, named
by it, without f32, which the others are compared with. `--csv` writes the figures that are drawn.
"""
from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import NamedTuple

FIELDS = ("name", "x", "x_low", "x_high", "y", "y_low", "y_high", "filled")
TITLES = {
    "decode": ("tokens a pass", "kind right, %", "Decoding methods"),
    "prune": ("visual tokens kept", "whole scene right, %", "Accuracy against tokens kept"),
    "quality": ("bits a weight", "KL divergence from f32, nats a token", "What types of weights cost"),
}
LOGARITHMIC = {"quality"}


class Point(NamedTuple):
    name: str
    x: float
    x_low: float
    x_high: float
    y: float
    y_low: float
    y_high: float
    filled: bool
    label: str = ""  # next to the mark


def bounds(interval: dict, scale: float = 1) -> tuple[float, float, float]:
    return tuple(scale * interval[key] for key in ("mean", "low", "high"))


def point_of(line: dict, file: Path, whole: float) -> tuple[str, Point] | None:
    """kind of the measurement and its point; None for lines that have none. whole: bytes of f32 weights"""
    kind, _, name = line.get("name", "").partition(".")
    if kind == "decode" and "tokens_per_pass" in line:
        method = line["method"]
        tree = "" if method.get("tree", "none") == "none" else f", tree {method['tree']}"
        window = "auto" if method["adaptive"] else method["window"]
        label = f"{name}, {method['drafter']}{tree}, window {window}"
        point = Point(label, *bounds(line["tokens_per_pass"]), *bounds(line["quality"]["kind"], 100),
                      line["promise"] != "none")
    elif kind == "prune" and "kept_tokens" in line:
        point = Point(name, *bounds(line["kept_tokens"]), *bounds(line["quality"]["scene"], 100), True)
    elif kind == "quality" and line["kl"]["mean"] > 0:
        bits = 32 * line["weight_bytes"] / whole
        kl = line["kl"]["mean"]
        point = Point(file.stem, bits, bits, bits, kl, kl, kl, True, name)
    else:
        return None
    return kind, point


def read(files: list[Path]) -> tuple[str, list[Point]]:
    kinds, points = set(), []
    for file in files:
        lines = [json.loads(text) for text in file.read_text().splitlines() if text.startswith("{")]
        whole = next((line["weight_bytes"] for line in lines if line.get("name") == "quality.f32"), 0)
        for line in lines:
            if found := point_of(line, file, whole):
                kinds.add(found[0])
                points.append(found[1])
    if len(kinds) != 1:
        raise SystemExit(f"expected lines of one benchmark, decode, prune or quality; found {sorted(kinds) or 'none'}")
    return kinds.pop(), points


def draw(kind: str, points: list[Point], out: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tessera"  # the same figures give the same file
    from matplotlib import pyplot

    x_title, y_title, title = TITLES[kind]
    figure, axes = pyplot.subplots(figsize=(9.2, 4.6), layout="constrained")
    colours = pyplot.get_cmap("tab20").colors
    names = list(dict.fromkeys(point.name for point in points))
    for index, name in enumerate(names):
        series = [point for point in points if point.name == name]
        colour = colours[index % len(colours)]
        axes.plot([p.x for p in series], [p.y for p in series], color=colour, linewidth=1.5)
        for at, p in enumerate(series):
            axes.errorbar(p.x, p.y, xerr=[[p.x - p.x_low], [p.x_high - p.x]],
                          yerr=[[p.y - p.y_low], [p.y_high - p.y]], fmt="o", color=colour,
                          markerfacecolor=colour if p.filled else "white",
                          label=name if at == 0 else None)
            if p.label:
                axes.annotate(p.label, (p.x, p.y), xytext=(5, 4), textcoords="offset points", fontsize="small")
    axes.set(xlabel=x_title, ylabel=y_title, title=title)
    if kind in LOGARITHMIC:
        axes.set_yscale("log")
    axes.grid(color="#dddddd")
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="JSON lines of one benchmark")
    parser.add_argument("--out", type=Path, required=True, help="SVG")
    parser.add_argument("--csv", type=Path, help="the figures that are drawn")
    args = parser.parse_args()
    kind, points = read(args.files)
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(FIELDS)
            writer.writerows(points)
    draw(kind, points, args.out)


if __name__ == "__main__":
    main()
