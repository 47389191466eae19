"""``triton.profiler.viewer``: a profile as a tree with rates.

    tree, metrics = viewer.parse(["tflop16/s", "time/ms"], "matmul.hatchet")
    viewer.print_tree(tree, metrics)

``time/s``, ``/ms``, ``/us``, ``/ns`` and ``avg_time/…`` are times, ``count`` the launches, ``[kmgt]flop/s``
and ``flop8/s`` … ``flop64/s`` and ``[kmgt]byte/s`` rates. Each is of a scope with all below it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from ptxforge.support.errors import PtxforgeError
from ptxforge.triton_compat.profiler import TIME

_TIMES = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_RATE = re.compile(r"([kmgt]?)(flop(?:8|16|32|64)?|byte)/s")


@attrs.define(slots=True)
class Tree:
    """A scope with its metrics, all below it included, by the names that were asked for."""

    name: str
    values: dict[str, float | None]
    children: list[Tree]


def parse(
    metrics: Sequence[str],
    filename: str,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
) -> tuple[Tree, list[str]]:
    """The tree of a file, and the names of its metrics. ``include`` and ``exclude`` are regular expressions
    for names; ``threshold`` is the least share of the first metric that is shown.

    Raises :class:`PtxforgeError` for a metric that there is not.
    """
    literals = json.loads(Path(filename).read_text())[0]
    for metric in metrics:
        _value({}, metric)  # raises for one that there is not
    tree = _tree(literals, list(metrics))
    least = (threshold or 0) * (tree.values[metrics[0]] or 0) if metrics else 0
    return _kept(tree, metrics, include, exclude, least), list(metrics)


def _tree(node: dict[str, Any], metrics: list[str]) -> Tree:
    totals = _totals(node)
    children = [_tree(child, metrics) for child in node["children"]]
    return Tree(node["frame"]["name"], {metric: _value(totals, metric) for metric in metrics}, children)


def _totals(node: dict[str, Any]) -> dict[str, float]:
    """The metrics of a node and of all below it."""
    found = dict(node["metrics"])
    for child in node["children"]:
        for name, value in _totals(child).items():
            found[name] = found.get(name, 0) + value
    return found


def _value(totals: dict[str, float], metric: str) -> float | None:
    """A metric of a node; ``None`` where it was not recorded."""
    kind, _, unit = metric.partition("/")
    time = totals.get(TIME)
    if metric == "count":
        return totals.get("count")
    if kind in ("time", "avg_time") and unit in _TIMES:
        launches = totals.get("count", 1) if kind == "avg_time" else 1
        return None if time is None else time / launches / _TIMES[unit]
    rate = _RATE.fullmatch(metric)
    if rate is None:
        raise PtxforgeError(f"the viewer has no metric '{metric}'; there are time/ms, tflop16/s, gbyte/s")
    work = totals.get("bytes" if rate[2] == "byte" else rate[2].replace("flop", "flops"))
    return None if not time or work is None else work / (time / 1e9) / _PREFIXES[rate[1]]


def _kept(tree: Tree, metrics: Sequence[str], include: str | None, exclude: str | None, least: float) -> Tree:
    """The tree without what is not to be shown."""
    children = []
    for child in tree.children:
        kept = _kept(child, metrics, include, exclude, least)
        wanted = include is None or re.search(include, child.name) or kept.children
        if not wanted or exclude is not None and re.search(exclude, child.name):
            continue
        if not least or (child.values[metrics[0]] or 0) >= least:
            children.append(kept)
    return Tree(tree.name, tree.values, children)


def format_tree(tree: Tree, metrics: Sequence[str], depth: int = 100) -> str:
    """The tree as text: the metrics, the name, and below it what it consists of."""
    lines = [" ".join(metrics)]

    def show(node: Tree, indent: str, left: int) -> None:
        values = (node.values[metric] for metric in metrics)
        shown = " ".join("nan" if value is None else f"{value:.3f}" for value in values)
        lines.append(f"{indent}{shown} {node.name}")
        if left > 0:
            for child in node.children:
                show(child, f"{indent}  ", left - 1)

    show(tree, "", depth)
    return "\n".join(lines)


def print_tree(tree: Tree, metrics: Sequence[str], depth: int = 100, format: str | None = None) -> None:
    """Print the tree."""
    print(format_tree(tree, metrics, depth))


def main(arguments: Sequence[str] | None = None) -> int:
    """``proton-viewer``: ``-m time/ms,tflop16/s FILE.hatchet``."""
    parser = argparse.ArgumentParser(prog="proton-viewer", description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--metrics", default="time/ms", help="names, separated by commas")
    parser.add_argument("-d", "--depth", type=int, default=100)
    parser.add_argument("file")
    options = parser.parse_args(list(sys.argv[1:] if arguments is None else arguments))
    print_tree(*parse(options.metrics.split(","), options.file), depth=options.depth)
    return 0
