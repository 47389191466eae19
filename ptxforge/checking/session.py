"""``with ptxforge.check() as report:`` runs every launch inside under the emulator's checks.

Does the result depend on the order of programs? A launch runs in both orders before the real one.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from ptxforge.checking import torch_device
from ptxforge.checking.issues import SEVERITIES, Issue, Place, Report, issue_of
from ptxforge.checking.tiles import Tiles
from ptxforge.runtime import devices, findings
from ptxforge.runtime.cache import place_of
from ptxforge.runtime.findings import Launch
from ptxforge.runtime.lending import Argument
from ptxforge.support import dtypes
from ptxforge.support.errors import PtxforgeError

_TOLERANCE = {8: 0.25, 16: 2e-2, 32: 1e-4, 64: 1e-10}
"""By the bits of a float: how far results may be apart, of the array's largest magnitude, because sums were
rounded in another order. Integers must agree."""


class Order:
    """Runs launches in ascending and in descending order of programs, one by one, and compares the arrays."""

    def __init__(self, add: Callable[[Issue], None]):
        self.add = add

    def look(self, launch: Launch) -> None:
        """Run a launch that is about to begin twice, and leave the arrays as they were."""
        if launch.grid == (1, 1, 1) or launch.again is None:
            return
        arrays = [launch.device.memory.array_at(a.address, a.nbytes) for a in launch.arguments]
        before = [array.copy() for array in arrays]
        results = []
        for order in ("ascending", "descending"):
            _run(launch, order)
            results.append([array.copy() for array in arrays])
            for array, saved in zip(arrays, before, strict=True):
                array[:] = saved
        for argument, one, other in zip(launch.arguments, *results, strict=True):
            self._compare(launch, argument, one, other)

    def _compare(self, launch: Launch, argument: Argument, one: np.ndarray, other: np.ndarray) -> None:
        if np.array_equal(one, other):
            return
        kind = np.dtype(dtypes.parse(argument.element).numpy) if argument.element in dtypes.BY_NAME else None
        values = [_values(data, kind, argument.itemsize) for data in (one, other)]
        apart = _apart(*values, argument.itemsize)
        if not apart.any():
            return
        first = int(np.flatnonzero(apart)[0])
        where = argument.element_at(argument.address + first * argument.itemsize)
        text = f"{where} is {values[0][first]} when programs run in order, {values[1][first]} in reverse"
        head = place_of(launch.variant.src.fn)
        self.add(
            Issue(
                launch.variant.name, "order", text, Place(head.file, head.line, head.indent + 1),
                element=f"{where}, {argument}", count=int(apart.sum()),
            )
        )  # fmt: skip


def _run(launch: Launch, order: str) -> None:
    """One run in that order, unchecked; what it prints is dropped."""
    device = launch.device
    saved = device.own_check, device.order
    device.check, device.order = "off", order
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            launch.again()
    finally:
        device.check, device.order = saved


def _values(data: np.ndarray, kind: np.dtype | None, itemsize: int) -> np.ndarray:
    """Bytes as numbers: floats as f64, others as they are."""
    found = data.view(f"u{itemsize}" if kind is None else kind)
    return found if found.dtype.kind in "biu" else found.astype(np.float64)


def _apart(one: np.ndarray, other: np.ndarray, itemsize: int) -> np.ndarray:
    """Which elements differ by more than rounding explains."""
    if one.dtype.kind != "f":
        return one != other
    finite = np.isfinite(one) & np.isfinite(other)
    largest = max(np.abs(one[finite]).max(initial=0), np.abs(other[finite]).max(initial=0))
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        close = finite & (np.abs(one - other) <= _TOLERANCE[8 * itemsize] * largest)
    return ~(same | close)


FAIL_ON = (*SEVERITIES, "never")


class CheckError(PtxforgeError):
    """Kernels did something wrong inside ``ptxforge.check()``; ``report`` has all of it."""

    def __init__(self, report: Report, fail_on: str):
        failing = report.failing(fail_on)
        super().__init__("\n\n".join([*map(str, failing), report.summary()]))
        self.report = report


class check:  # noqa: N801 - used like a function
    """Check every kernel that is launched inside a ``with`` block, on the emulator, without a GPU.

        with ptxforge.check() as report:
            kernel[grid](x, y)
        print(report)

    Launches do not stop at what they find: an access out of bounds is left out, and all findings are
    collected, one for each kernel, kind and source line, in ``report.issues``. At the end of the block
    :class:`CheckError` is raised when there is one at least as bad as ``fail_on`` (``"error"``,
    ``"warning"``, ``"note"``, or ``"never"``).

    With ``tiles`` some programs of each launch are interpreted as well, which finds offsets that wrap around
    in 32 bits, promises that are false and masks that never matter; with ``non_finite`` also operations that
    make NaNs and infinities of finite inputs; with ``order`` results that depend on the order of programs,
    by running each launch twice more. Reads of what nobody has written are found in arrays of
    ``ptxforge.empty``; with ``torch_empty`` in tensors of ``torch.empty`` and its like, too, which are made
    inside the block.
    """

    def __init__(
        self,
        fail_on: str = "error",
        tiles: bool = True,
        non_finite: bool = False,
        order: bool = False,
        torch_empty: bool = False,
    ):
        if fail_on not in FAIL_ON:
            raise ValueError(f"fail_on is one of {', '.join(FAIL_ON)}, not {fail_on!r}")
        self.fail_on = fail_on
        self.report = Report()
        self._tiles = Tiles(self.report.add, non_finite) if tiles else None
        self._before = [self._begin, *([self._tiles.look] if self._tiles is not None else [])]
        self._has_begun = False
        if order:
            self._before.append(Order(self.report.add).look)
        self._poisons = torch_empty
        self._poisoning = contextlib.ExitStack()
        self._restore: list[tuple[Any, str, object]] = []

    def __enter__(self) -> Report:
        device = devices.device("emulator")
        self._restore += [(device, "check", device.own_check), (device, "raise_faults", device.raise_faults)]
        self._restore.append((device.memory, "poisons_all", device.memory.poisons_all))
        device.check, device.raise_faults = "all", False
        if self._poisons:
            device.memory.poisons_all = True
            self._poisoning.enter_context(torch_device.poison_empty())
        self._use = devices.use_device(device)
        self._use.__enter__()
        findings.listeners.append(self._listen)
        findings.before.extend(self._before)
        return self.report

    def _begin(self, launch: findings.Launch) -> None:
        self.report.launch += 1
        self._has_begun = True

    def _listen(self, launch: findings.Launch) -> None:
        if not self._has_begun:  # a launch by Triton's own function does not say so
            self._begin(launch)
        self._has_begun = False
        name = launch.variant.name
        self.report.launches[name] = self.report.launches.get(name, 0) + 1
        for finding in launch.device.findings:
            self.report.add(issue_of(finding, launch))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        findings.listeners.remove(self._listen)
        for look in self._before:
            findings.before.remove(look)
        if self._tiles is not None:
            self._tiles.finish()
        self._use.__exit__(kind, error, where)
        self._poisoning.close()
        for owner, name, value in self._restore:
            setattr(owner, name, value)
        self._restore.clear()
        if error is None and self.report.failing(self.fail_on):
            raise CheckError(self.report, self.fail_on)
