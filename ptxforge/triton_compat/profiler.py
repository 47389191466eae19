"""``triton.profiler``: scopes, the launches in them, and how long both take.

    proton.start("matmul", hook="triton")
    with proton.scope("warm", {"flops16": 2 * M * N * K}):
        kernel[grid](...)
    proton.finalize()                       # writes matmul.hatchet

Launches of ptxforge's kernels are timed one by one: by CUDA events on their stream, and in the emulator,
whose launches end when they return, by the host's clock. A scope in which none of them runs (a library's
call) is timed as a whole. Times are ns.

``triton.profiler.viewer``: a profile as a tree with rates.

    tree, metrics = viewer.parse(["tflop16/s", "time/ms"], "matmul.hatchet")
    viewer.print_tree(tree, metrics)

``time/s``, ``/ms``, ``/us``, ``/ns`` and ``avg_time/…`` are times, ``count`` the launches, ``[kmgt]flop/s``
and ``flop8/s`` … ``flop64/s`` and ``[kmgt]byte/s`` rates. Each is of a scope with all below it.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from ptxforge.driver.cuda import CudaDevice
from ptxforge.runtime import hooks
from ptxforge.runtime.devices import default_device
from ptxforge.support.errors import PtxforgeError
from ptxforge.support.target import parse_target

TIME = "time (ns)"


@attrs.define(slots=True)
class Node:
    """A scope or a kernel: ``metrics`` of its own, without those of its ``children``."""

    name: str
    metrics: dict[str, float] = attrs.field(factory=dict)
    children: dict[str, Node] = attrs.field(factory=dict)
    spans: list[tuple[Any, Any]] = attrs.field(factory=list)
    launches: int = 0

    def child(self, name: str) -> Node:
        """The child of that name, made when it is new."""
        return self.children.setdefault(name, Node(name))

    def add(self, metrics: dict[str, float]) -> None:
        """Add to the metrics."""
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def settle(self) -> bool:
        """Turn the spans into time; whether a kernel ran in it or below."""
        ran = [child.settle() for child in self.children.values()]
        is_timed = self.launches > 0 or not any(ran)
        if self.spans and is_timed:
            self.add({TIME: sum(_nanoseconds(*span) for span in self.spans)})
        self.spans.clear()
        return self.launches > 0 or any(ran)

    def described(self) -> dict[str, Any]:
        """As hatchet's literals."""
        return {
            "frame": {"name": self.name, "type": "function"},
            "metrics": self.metrics | ({"count": self.launches} if self.launches else {}),
            "children": [child.described() for child in self.children.values()],
        }


def _now(stream: int | None) -> Any:
    """A point in time: of the stream on a GPU, of the host else."""
    device = default_device()
    if not isinstance(device, CudaDevice):
        return time.perf_counter_ns()
    event = device.event()
    event.record(stream or 0)
    return event


def _nanoseconds(start: Any, end: Any) -> float:
    if isinstance(start, int):
        return float(end - start)
    end.synchronize()
    return end.milliseconds_since(start) * 1e6


class Session:
    """One profile, from :func:`start` to :func:`finalize`."""

    def __init__(self, name: str, with_metadata: bool):
        self.name, self._with_metadata = name, with_metadata
        self.root = Node("ROOT")
        self.path = [self.root]
        self._hook: hooks.Hook | None = None
        self._starts: list[tuple[Node, Any]] = []

    @property
    def is_active(self) -> bool:
        """Whether it records."""
        return self._hook is not None

    def activate(self) -> None:
        """Record from now on."""
        if self._hook is None:
            self._hook = hooks.add(self._enter, self._exit)

    def deactivate(self) -> None:
        """Record no more, until it is activated again."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _enter(self, launch: hooks.Launch) -> None:
        told = launch.metadata if self._with_metadata else {}
        node = self.path[-1].child(str(told.get("name", launch.name)))
        node.add({name: value for name, value in told.items() if isinstance(value, (int, float))})
        node.launches += 1
        self._starts.append((node, _now(launch.stream)))

    def _exit(self, launch: hooks.Launch) -> None:
        node, start = self._starts.pop()
        node.spans.append((start, _now(launch.stream)))

    def literals(self) -> list[dict[str, Any]]:
        """The tree, and what is known of the device."""
        self.root.settle()
        device = default_device()
        facts = {"arch": str(parse_target(device.target).sm), "num_sms": device.multiprocessors}
        return [self.root.described(), {"CUDA": {"0": facts}}]


_sessions: list[Session] = []
DEFAULT_PROFILE_NAME = "proton"


def start(
    name: str | None = None,
    *,
    context: str = "shadow",
    data: str = "tree",
    backend: str | None = None,
    mode: str | None = None,
    hook: str | None = None,
) -> int:
    """Begin a session; its number. With ``hook="triton"``, what kernels' ``launch_metadata`` tells is
    added to their metrics. The profile is a tree of scopes and kernels.

    Raises :class:`PtxforgeError` for a context, data or hook that there is not.
    """
    for given, known, what in (
        (context, ("shadow",), "context"), (data, ("tree",), "data"), (hook, (None, "triton"), "hook")
    ):  # fmt: skip
        if given not in known:
            raise PtxforgeError(f"the profiler has no {what} '{given}'; there is {known[-1]!r}")
    session = Session(name or DEFAULT_PROFILE_NAME, hook == "triton")
    _sessions.append(session)
    session.activate()
    return len(_sessions) - 1


def activate(session: int | None = None) -> None:
    """Go on recording (``None``: every session)."""
    for chosen in _chosen(session):
        chosen.activate()


def deactivate(session: int | None = None, flushing: bool = False) -> None:
    """Stop recording for a while (``None``: every session)."""
    for chosen in _chosen(session):
        chosen.deactivate()


def finalize(session: int | None = None, output_format: str = "") -> None:
    """End a session, or all of them, and write ``<name>.hatchet``. Raises :class:`PtxforgeError` for another
    format."""
    if output_format not in ("", "hatchet"):
        raise PtxforgeError(f"the profiler writes no '{output_format}'; it writes 'hatchet'")
    for chosen in _chosen(session):
        chosen.deactivate()
        path = Path(f"{chosen.name}.hatchet")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(chosen.literals(), indent=1))
    if session is None:
        _sessions.clear()


def get(session: int | None = 0, phase: int = 0) -> list[dict[str, Any]]:
    """The tree so far, as the file has it. There is one phase."""
    return _chosen(session)[0].literals() if session is not None else []


def _chosen(session: int | None) -> list[Session]:
    """Raises :class:`PtxforgeError` for a session that there is not."""
    if session is None:
        return list(_sessions)
    if not 0 <= session < len(_sessions):
        raise PtxforgeError(f"there is no profiler session {session}")
    return [_sessions[session]]


class scope:
    """``with scope(name, metrics):`` or ``@scope(name)``: what runs inside stands below that name, and the
    metrics (``flops16``, ``bytes``, …) are added there."""

    def __init__(self, name: str, metrics: dict[str, float] | None = None):
        self.name, self.metrics = name, dict(metrics or {})
        self._entered: list[list[tuple[Session, Node, Any]]] = []

    def __enter__(self) -> scope:
        entered = []
        for session in _sessions:
            if session.is_active:
                node = session.path[-1].child(self.name)
                node.add(self.metrics)
                session.path.append(node)
                entered.append((session, node, _now(None)))
        self._entered.append(entered)
        return self

    def add(self, metrics: dict[str, float]) -> None:
        """Add metrics where it was entered last."""
        for _, node, _ in self._entered[-1]:
            node.add(metrics)

    def __exit__(self, *error: object) -> None:
        for session, node, began in self._entered.pop():
            node.spans.append((began, _now(None)))
            session.path.remove(node)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with scope(self.name, self.metrics):
                return function(*args, **kwargs)

        return inside


cpu_timed_scope = scope
_open_scopes: list[scope] = []


def enter_scope(name: str, *, metrics: dict[str, float] | None = None) -> None:
    """Enter a scope; :func:`exit_scope` leaves it."""
    _open_scopes.append(scope(name, metrics).__enter__())


def exit_scope(name: str | None = None, *, metrics: dict[str, float] | None = None) -> None:
    """Leave the scope entered last, which has that ``name`` if one is given, and add ``metrics`` to it.
    Raises :class:`PtxforgeError` when there is none, or it has another name."""
    if not _open_scopes:
        raise PtxforgeError("no scope of the profiler is open")
    if name not in (None, _open_scopes[-1].name):
        raise PtxforgeError(f"the scope entered last is '{_open_scopes[-1].name}', not '{name}'")
    _open_scopes[-1].add(metrics or {})
    _open_scopes.pop().__exit__()


def profile(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    context: str = "shadow",
    data: str = "tree",
    backend: str | None = None,
    mode: str | None = None,
    hook: str | None = None,
) -> Any:
    """A decorator: a session around each call, with the options of :func:`start`."""
    options = {"context": context, "data": data, "backend": backend, "mode": mode, "hook": hook}
    if func is None:
        return functools.partial(profile, name=name, **options)

    @functools.wraps(func)
    def inside(*args: Any, **kwargs: Any) -> Any:
        session = start(name, **options)
        try:
            return func(*args, **kwargs)
        finally:
            deactivate(session)

    return inside


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
