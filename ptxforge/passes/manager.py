"""Runs a table of passes: order, timing, dumps, verification and stage texts, the same for every pass.

A pass is a function ``(function, target) -> changed``. The manager knows nothing of any of them; the table
(``pipeline.PIPELINE``) says in which order they run and why.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence

import attrs

from ptxforge.ir.core import Function
from ptxforge.ir.printer import print_function
from ptxforge.ir.state import State
from ptxforge.ir.verifier import verify as verify_function
from ptxforge.passes.analysis.kept import note_change
from ptxforge.passes.properties import PROPERTIES
from ptxforge.support import settings
from ptxforge.support.errors import InternalCompilerError, IRError, PtxforgeError
from ptxforge.support.target import Target

PassFunction = Callable[[Function, Target], bool]
STAGES = ("tile", "gpu")


def _name_of(row: Pass) -> str:
    return row.function.__name__


@attrs.frozen(slots=True)
class Pass:
    """One row of a pipeline.

    ``why`` says why it stands there. ``requires``, ``establishes`` and ``destroys`` name properties
    (``properties.py``): a required one must have been established by an earlier row, an established one holds
    after every later row that does not destroy it. ``keeps`` are analyses whose facts about values stay true
    whatever the pass does: it moves, copies or converts values, but computes none that differ. ``when``
    limits the row to targets of which it holds. A pass that ``settles`` would find nothing if it ran twice in
    a row.
    """

    function: PassFunction
    stage: str
    why: str
    requires: tuple[str, ...] = ()
    establishes: tuple[str, ...] = ()
    destroys: tuple[str, ...] = ()
    keeps: tuple[Callable, ...] = ()
    settles: bool = False
    when: Callable[[Target], bool] | None = None
    name: str = attrs.field(init=False, default=attrs.Factory(_name_of, takes_self=True))

    def runs_on(self, target: Target) -> bool:
        return self.when is None or self.when(target)


def check_order(passes: Sequence[Pass]) -> None:
    """Raise ``ValueError`` when a row requires what no earlier row establishes,
    or a gpu row comes before a tile row."""
    holding: set[str] = set()
    stage = 0
    for row in passes:
        unknown = {*row.requires, *row.establishes, *row.destroys} - PROPERTIES.keys()
        if unknown:
            raise ValueError(f"pass '{row.name}' names unknown properties {sorted(unknown)}")
        missing = [name for name in row.requires if name not in holding]
        if missing:
            raise ValueError(
                f"pass '{row.name}' requires {', '.join(missing)}, which no pass before it establishes"
            )
        if STAGES.index(row.stage) < stage:
            raise ValueError(f"the {row.stage} pass '{row.name}' stands after a {STAGES[stage]} pass")
        stage = STAGES.index(row.stage)
        holding = (holding - set(row.destroys)) | set(row.establishes)


class Snapshot:
    """The IR after one pass: ``name``, ``stage``, and its ``text``."""

    __slots__ = ("name", "stage", "_stages", "_index")

    def __init__(self, name: str, stage: str, stages: Stages, index: int):
        self.name, self.stage, self._stages, self._index = name, stage, stages, index

    @property
    def text(self) -> str:
        return self._stages.texts[self._index]

    def __iter__(self) -> Iterator[str]:
        """Unpacks as ``(name, text)``."""
        yield self.name
        yield self.text


class Stages(Sequence):
    """What a run did: a sequence of snapshots whose texts are made when first asked for.

    Passes are deterministic, so nothing is kept but a copy of the function as it was before the first one:
    asking for any text runs the passes again on that copy and prints after each.
    """

    def __init__(self, before: Function, passes: Sequence[Pass], target: Target):
        self._before, self._passes, self._target = before, passes, target
        self._texts: list[str] | None = None
        self._snapshots: list[Snapshot] = []

    @property
    def texts(self) -> list[str]:
        """The text before the first pass, then after each."""
        if self._texts is None:
            self._texts = self._replay()
        return self._texts

    def _replay(self) -> list[str]:
        function = self._before.clone()
        texts = [print_function(function)]
        for row in self._passes:
            changed = row.function(function, self._target)
            texts.append(print_function(function) if changed else texts[-1])
        return texts

    def __getitem__(self, index):
        if not self._snapshots:
            rows = [Snapshot(row.name, row.stage, self, i + 1) for i, row in enumerate(self._passes)]
            self._snapshots = [Snapshot("frontend", "tile", self, 0), *rows]
        return self._snapshots[index]

    def __len__(self) -> int:
        return len(self._passes) + 1


def run_passes(
    function: Function,
    passes: Sequence[Pass],
    target: Target,
    *,
    dump: str | None = None,
    stop_after: str | None = None,
    verify: bool | None = None,
    on_pass: Callable[[Pass, Function, bool], None] | None = None,
    timings: dict[str, float] | None = None,
    later: Collection[str] = (),
) -> Stages:
    """Run ``passes`` on ``function``, which they change, and return what can be asked about it afterwards.

    ``dump`` (names separated by commas, or ``all``), ``stop_after`` and ``verify`` default to the settings
    ``PTXFORGE_DUMP``, ``PTXFORGE_STOP_AFTER`` and ``PTXFORGE_VERIFY``. ``on_pass(row, function, changed)`` is
    called after each pass (for bisecting); ``timings`` collects seconds by pass name, over repeated rows.
    ``later`` are names of passes that come behind these and heed the variables themselves.

    Raises:
        SettingError: when a variable names a pass that is not among ``passes``.
        IRError: with ``verify``, when a pass requires what does not hold of ``function``.
        InternalCompilerError: when a pass fails or, with ``verify``, leaves what the verifier refuses.
    """
    dumped = _names(settings.DUMP.get() if dump is None else dump)
    last = settings.STOP_AFTER.get() if stop_after is None else stop_after
    last = "" if last in later else last
    checked = settings.VERIFY.flag() if verify is None else verify
    rows = [row for row in passes if row.runs_on(target)]
    if dump is None:
        _check_setting(settings.DUMP, dumped - {"all", *later}, passes)
    if stop_after is None:
        _check_setting(settings.STOP_AFTER, {last} - {""}, rows)
    rows = _until(rows, last)
    stages = Stages(function.clone(), rows, target)
    holding: set[str] = set()
    checks = _Checks(function, target)
    idle: dict[Callable, int] = {}
    function.analyses = {}
    for row in rows:
        if checked:
            _check_requirements(row, function, target)
        start = time.perf_counter()
        changed = _run_unless_idle(row, function, target, idle)
        if timings is not None:
            timings[row.name] = timings.get(row.name, 0.0) + time.perf_counter() - start
        if row.name in dumped or "all" in dumped:
            print(f"// after {row.name}\n{print_function(function)}", file=sys.stderr)
        holding = (holding - set(row.destroys)) | set(row.establishes)
        if checked:
            checks.after(row, holding)
        if on_pass is not None:
            on_pass(row, function, changed)
    function.analyses = None
    return stages


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",") if name.strip()}


def _check_setting(setting: settings.Setting, names: set[str], rows: Sequence[Pass]) -> None:
    """Raise :class:`SettingError` when a variable names a pass that is not among ``rows``."""
    if not names:
        return
    known = dict.fromkeys(row.name for row in rows)
    for name in sorted(names - known.keys()):
        raise setting.error(f"no pass '{name}' in this pipeline; there are {', '.join(known)}")


def _until(rows: list[Pass], last: str) -> list[Pass]:
    """The rows up to the last one called ``last``; all of them when it is empty."""
    if not last:
        return rows
    places = [i for i, row in enumerate(rows) if row.name == last]
    if not places:
        raise ValueError(
            f"no pass '{last}' in this pipeline; there are {', '.join(dict.fromkeys(r.name for r in rows))}"
        )
    return rows[: places[-1] + 1]


def _run_unless_idle(row: Pass, function: Function, target: Target, idle: dict[Callable, int]) -> bool:
    """Run a pass, whose answer is whether it changed the function. What changed nothing (``idle``: at which
    count of changes), or settles, would change nothing now, if nothing else has meanwhile."""
    if idle.get(row.function) == function.changes:
        return False
    changed = _run_one(row, function, target)
    if not changed or row.settles:
        idle[row.function] = function.changes
    return changed


def _run_one(row: Pass, function: Function, target: Target) -> bool:
    function.remarks.pass_name = row.name
    try:
        changed = row.function(function, target)
    except PtxforgeError:
        raise
    except Exception as fault:
        text = _try_print(function)
        raise InternalCompilerError(
            f"pass '{row.name}' failed: {type(fault).__name__}: {fault}\n{text}"
        ) from fault
    if changed:
        note_change(function, row.keeps)
    return changed


def _try_print(function: Function) -> str:
    """The text of a function that a failed pass may have left in any state."""
    try:
        return print_function(function)
    except Exception as fault:  # the half-changed IR is only shown if it can be
        return f"(the IR cannot be printed: {fault})"


def _check_requirements(row: Pass, function: Function, target: Target) -> None:
    """What a row requires holds of the function, however it came to be."""
    for name in row.requires:
        try:
            PROPERTIES[name].check(function, target)
        except IRError as fault:
            raise IRError(f"pass '{row.name}' requires '{name}', which does not hold: {fault}") from fault


class _Checks:
    """The verifier, and the properties that hold, asked after each pass. Where a function is what it was at
    the last question, whatever the pass says of itself, the answers are known."""

    def __init__(self, function: Function, target: Target):
        self._function, self._target = function, target
        self._state: State | None = None
        self._known: frozenset[str] = frozenset()

    def after(self, row: Pass, holding: set[str]) -> None:
        try:
            self._verify_if_changed()
            for name in sorted(holding - self._known):
                PROPERTIES[name].check(self._function, self._target)
        except IRError as fault:
            text = _try_print(self._function)
            raise InternalCompilerError(f"after pass '{row.name}': {fault}\n{text}") from fault
        self._known = frozenset(holding)

    def _verify_if_changed(self) -> None:
        state = State(self._function)
        if self._state is not None and self._state.agrees(state):
            return
        self._known = frozenset()
        verify_function(self._function)
        self._state = state
