"""Does the result depend on the order of programs? A launch runs in both orders before the real one."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

import numpy as np

from ptxforge.checking.issues import Issue, Place
from ptxforge.runtime.findings import Launch
from ptxforge.runtime.lending import Argument
from ptxforge.runtime.places import place_of
from ptxforge.support import dtypes

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
