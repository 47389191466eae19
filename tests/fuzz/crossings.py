"""Random loops of products whose tiles are masked by comparisons of rows with the loop's counter: of which
only the first iterations, the last ones, or some in the middle need the mask. Bounds, rows and steps are any,
also where 32 bits end and indices wrap.

Numpy says what is right.
"""

from __future__ import annotations

import operator

import attrs
import numpy as np

from tests.fuzz.draw import LaunchedProgram, Writer

LEAST, MOST = -(1 << 31), (1 << 31) - 1
COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Crossing(seed).program()


def _wrapped(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(np.int64).astype(np.int32)


class _Crossing(Writer):
    def __init__(self, seed: int):
        super().__init__(seed, 97)
        self.warps, self.stages = self.pick((1, 2, 4, 4)), self.pick((1, 2, 3))
        self.m, self.n, self.d = self.pick((32, 64)), self.pick((32, 64)), 16
        if self.chance(0.5):  # what ``wgmma`` takes
            self.warps, self.m = 4, 64
        self.step = self.pick((self.n, self.n, self.n, self.n // 2, 40))
        self.grid = self.pick((1, 2, 3))
        self.is_block = self.chance(0.5)
        if self.is_block:
            self.place_block()
        else:
            self.place_anywhere()

    def place_block(self) -> None:
        """Rows are those of a program, and the loop ends or begins with them."""
        self.offset = self.pick((0, 0, 0, 30, -40))
        self.length = int(self.rng.integers(0, 5 * self.step))
        ends = ("start + M", "start + M", "min(start + M, L)", "L")
        self.lower, self.upper = self.pick(("0", "0", "start")), self.pick(ends)

    def place_anywhere(self) -> None:
        lower = self.pick((0, 0, 7, -130, MOST - 700, MOST - 500, LEAST, LEAST + 64))
        upper = min(lower + int(self.rng.integers(-50, 5 * self.step)), MOST - self.step)
        self.lower, self.upper = str(lower), str(max(upper, LEAST))
        start = lower + int(self.rng.integers(-150, 400))
        self.offset = int(np.clip(self.pick((start, start, start // 64 * 64, LEAST, MOST)), LEAST, MOST))
        self.length = 0

    def numbers(self, pid: int) -> tuple[int, int, int]:
        """The first row of a program, and the bounds of its loop."""
        start = pid * self.m * self.is_block + self.offset
        names = {"start": start, "M": self.m, "L": self.length, "min": min}
        return start, *(int(eval(text, {}, names)) for text in (self.lower, self.upper))

    def program(self) -> LaunchedProgram:
        spans = [upper - lower for _, lower, upper in map(self.numbers, range(self.grid))]
        rows = max(0, *spans) + self.step + self.n
        q = self.keep("x", self.rng.integers(-2, 3, (self.m, self.d)).astype(np.float16))
        k = self.keep("x", self.rng.integers(-2, 3, (rows, self.d)).astype(np.float16))
        v = self.keep("x", self.rng.integers(-2, 3, (rows, self.d)).astype(np.float16))
        out = self.keep("o", np.zeros((self.grid, self.m, self.d), np.float32))
        offset = self.number("S", self.offset)
        self.emit(f"M, L, pid = {self.m}, {self.number('K', self.length)}, tl.program_id(0)")
        self.emit(f"i, n, d = tl.arange(0, {self.m}), tl.arange(0, {self.n}), tl.arange(0, {self.d})")
        self.emit(f"at = i[:, None] * {self.d} + d[None, :]", f"queries = tl.load({q} + at)")
        self.emit(f"start = pid * {self.m} + {offset}" if self.is_block else f"start = {offset}")
        lower = self.lower if self.is_block else self.number("B", int(self.lower))
        upper = self.upper if self.is_block else self.number("E", int(self.upper))
        self.emit(f"first = {lower}", "rows = start + i", f"acc = tl.zeros(({self.m}, {self.d}), tl.float32)")
        self.emit(f"for j in range(first, {upper}, {self.step}):")
        self.indent += 1
        self.emit(f"t = (j - first + n)[None, :] * {self.d} + d[:, None]")
        self.emit(f"scores = tl.dot(queries, tl.load({k} + t))", "columns = j + n")
        masks = [self.mask() for _ in range(self.pick((1, 1, 2)))]
        is_kept = self.chance(0.6)
        text = (" & " if is_kept else " | ").join(text for text, _ in masks)
        other = int(self.rng.integers(-8, 9))
        arms = f"scores, {other}.0" if is_kept else f"{other}.0, scores"
        self.emit(f"scores = tl.where({text}, {arms})")
        self.emit(f"acc = tl.dot(scores.to(tl.float16), tl.trans(tl.load({v} + t)), acc)")
        self.indent -= 1
        self.emit(f"tl.store({out} + pid * {self.m * self.d} + at, acc)")
        made = self.finish("crossing", self.pick(("sm_90a", "sm_90a", "sm_80")))
        arrays = {name: array.copy() for name, array in self.arrays.items()}
        for pid in range(self.grid):
            arrays[out][pid] = self.truth(pid, [arrays[x] for x in (q, k, v)], masks, is_kept, other)
        return attrs.evolve(made, expected=arrays)

    def mask(self):
        """A comparison as text, and what it is of rows and columns."""
        sign, far, shift = self.pick((*COMPARED,)), self.pick((0, 0, 0, 5, -33, 100)), self.pick((0, 0, 64))
        compare = COMPARED[sign]
        more, after = (f" + {x}" if x else "" for x in (far, shift))
        rows, columns = f"(rows{more})[:, None]", f"(columns{after})[None, :]"

        is_turned = self.chance(0.5)

        def holds(i: np.ndarray, j: np.ndarray) -> np.ndarray:
            left, right = _wrapped(i + far)[:, None], _wrapped(j + shift)[None, :]
            return compare(right, left) if is_turned else compare(left, right)

        return (f"({columns} {sign} {rows})" if is_turned else f"({rows} {sign} {columns})"), holds

    def truth(self, pid: int, tiles: list[np.ndarray], masks: list, is_kept: bool, other: int) -> np.ndarray:
        q, k, v = (tile.astype(np.float64) for tile in tiles)
        start, lower, upper = self.numbers(pid)
        rows = _wrapped(start + np.arange(self.m, dtype=np.int64)).astype(np.int64)
        acc = np.zeros((self.m, self.d))
        for j in range(lower, upper, self.step):
            at = slice(j - lower, j - lower + self.n)
            columns = _wrapped(j + np.arange(self.n, dtype=np.int64)).astype(np.int64)
            found = [holds(rows, columns) for _, holds in masks]
            mask = np.logical_and.reduce(found) if is_kept else ~np.logical_or.reduce(found)
            acc += np.where(mask, q @ k[at].T, other) @ v[at]
        return acc.astype(np.float32)
