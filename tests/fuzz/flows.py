"""Random control flow: names that are given each other's values, numbers known while compiling and not, tiles
and tuples, in loops of all kinds within each other and branches, left by ``break``, ``continue`` and
``return``; functions that return from anywhere. Python runs the same text and says what is right.
"""

from __future__ import annotations

import types

import attrs
import numpy as np

from tests.fuzz.draw import LaunchedProgram, Writer

NUMBERS = ("x", "y", "z", "w", "u")
TILES = ("v", "r")
WIDTH = 32
OUT = 64
"""Numbers that a program may store."""


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Flows(seed).program()


class _Flows(Writer):
    def __init__(self, seed: int):
        super().__init__(seed, 81)
        self.warps = self.pick((1, 2, 4))
        self.counters: list[str] = []
        self.helpers: list[tuple[str, int]] = []
        self.depth, self.loops, self.left = 0, 0, 16
        self.in_function = self.in_unrolled = False

    def program(self) -> LaunchedProgram:
        texts = [self.helper() for _ in range(self.pick((0, 1, 2)))]
        self.out = self.keep("o", np.zeros(OUT, np.int32))
        self.tiles = self.keep("o", np.zeros(len(TILES) * WIDTH, np.int32))
        self.given = self.keep("x", self.rng.integers(0, 50, 16).astype(np.int32))
        self.scalars = {name: int(self.rng.integers(0, 6)) for name in "abc"}
        self.begin()
        self.body(self.pick((3, 5, 7)))
        for place, name in enumerate(NUMBERS):
            self.emit(f"tl.store({self.out} + {place}, {name})")
        for place, name in enumerate(TILES):
            self.emit(f"tl.store({self.tiles} + {place * WIDTH} + i, {name} + i * 0)")
        self.emit(f"tl.store({self.out} + 6, t[0] + t[1] * 3)")
        made = self.finish("flow")
        made = attrs.evolve(made, source="\n\n\n".join([*texts, made.source]))
        return attrs.evolve(made, expected=_run(made))

    def begin(self) -> None:
        self.emit(f"i = tl.arange(0, {WIDTH})")
        for name in NUMBERS:
            value = self.pick(
                (
                    str(self.pick((0, 1, 2, 7))),
                    self.pick("abc"),
                    f"tl.load({self.given} + {self.pick((0, 3, 9))})",
                )
            )
            self.emit(f"{name} = {value}")
        self.emit(
            f"v = {self.pick(('i', 'i * 3', f'tl.load({self.given} + i % 16)'))}", "r = i + x", "t = (x, y)"
        )

    # -- expressions -----------------------------------------------------------------------------------

    def number(self, depth: int = 2) -> str:
        if depth == 0 or self.chance(0.3):
            names = [*NUMBERS, *self.counters, *self.counters]
            return self.pick(
                [
                    *names,
                    *(() if self.in_function else "abc"),
                    "t[0]",
                    "t[1]",
                    str(self.pick((0, 1, 2, 5, 31))),
                ]
            )
        one, other = self.number(depth - 1), self.number(depth - 1)
        kind = self.pick(("+", "+", "-", "*", "^", "&", "if", "max", "call", "and"))
        if kind == "if":
            return f"({one} if {self.test(depth - 1)} else {other})"
        if kind == "max":
            return f"{self.pick(('min', 'max'))}({one}, {other})"
        if kind == "call" and self.helpers:
            name, count = self.pick(self.helpers)
            call = f"{name}({', '.join(self.number(0) for _ in range(count))})"
            return f"({call} & 255)"
        return f"(({one} {kind if kind in '+-*^&' else '+'} {other}) & 1023)"

    def test(self, depth: int = 1) -> str:
        one, other = self.number(depth), self.number(0)
        kind = self.pick(("<", ">", "==", "!=", "<=", "chain", "odd", "and", "not"))
        if kind == "chain":
            return f"{self.number(0)} <= {one} < {other} + 9"
        if kind == "odd":
            return f"{one} % 2 == {self.pick((0, 1))}"
        if kind == "and":
            return f"({one} > {other} {self.pick(('and', 'or'))} {self.number(0)} % 3 == 1)"
        if kind == "not":
            return f"not ({one} < {other})"
        return f"{one} {kind} {other}"

    # -- statements ------------------------------------------------------------------------------------

    def body(self, count: int) -> None:
        self.depth += 1
        for _ in range(count):
            self.left -= 1
            steps = [self.assign] * 4 + [self.exchange] * 2 + [self.tile, self.pair, self.store]
            if self.depth < 4 and self.left > 0:
                steps += [self.branch] * 3 + [self.loop] * 2 + [self.count_down]
            if self.loops and not self.in_unrolled:
                steps += [self.leave] * 2
            if self.in_function or self.chance(0.1):
                steps += [self.come_back]
            self.pick(steps)()
        self.depth -= 1

    def assign(self) -> None:
        name = self.pick(NUMBERS)
        self.emit(
            self.pick(
                (
                    f"{name} = {self.number()}",
                    f"{name} = {self.pick(NUMBERS)}",
                    f"{name} = ({name} + {self.number(1)}) & 511",
                )
            )
        )

    def exchange(self) -> None:
        one, other = self.rng.choice(NUMBERS, 2, False)
        third = self.pick(NUMBERS)
        self.emit(
            self.pick(
                (
                    f"{one}, {other} = {other}, {one}",
                    f"{one}, {other} = {other}, {third}",
                    f"{one} = {other}",
                    f"{one}, {other} = {self.number(1)}, {one}",
                )
            )
        )

    def tile(self) -> None:
        if self.in_function:
            return self.exchange()
        one, other = self.pick((TILES, TILES[::-1]))
        self.emit(self.pick((
            f"{one}, {other} = {other}, {one}", f"{one} = {other}",
            f"{one} = ({one} + {self.number(1)}) & 1023", f"{self.pick(NUMBERS)} = tl.max({one}, 0)",
            f"{one} = tl.where({other} > {self.number(0)}, {one}, {other})",
            f"{one} = ({one} ^ {other}) + 1",
        )))  # fmt: skip

    def pair(self) -> None:
        one, other = self.rng.choice(NUMBERS, 2, False)
        self.emit(
            self.pick(
                (
                    f"t = ({one}, {self.number(1)})",
                    "t = (t[1], t[0])",
                    f"{one}, {other} = t",
                    f"t = ({one}, t[0])",
                )
            )
        )

    def store(self) -> None:
        if self.in_function:
            return self.assign()
        self.emit(f"tl.store({self.out} + {8 + int(self.rng.integers(OUT - 8))}, {self.number()})")

    def branch(self) -> None:
        self.emit(f"if {self.test()}:")
        self.block()
        if self.chance(0.3):
            self.emit(f"elif {self.test()}:")
            self.block()
        if self.chance(0.5):
            self.emit("else:")
            self.block()

    def block(self) -> None:
        self.indent += 1
        self.body(self.pick((1, 1, 2, 3)))
        self.indent -= 1

    def loop(self) -> None:
        k = self.fresh("k")
        end = self.pick((f"{self.pick(NUMBERS)} & 3", "2", "3", "0", "1"))
        header = self.pick((
            f"range({end})", f"range({end})", f"tl.range(0, {end})", "range(4, 0, -2)", "tl.static_range(3)",
            f"range({self.pick(NUMBERS)} & 1, 4, 2)", f"({self.pick(NUMBERS)}, 2, {self.pick(NUMBERS)})",
            f"tl.range(0, {end}, loop_unroll_factor=2)",
        ))  # fmt: skip
        self.emit(f"for {k} in {header}:")
        self.around(k, header.startswith(("tl.static", "(")))

    def around(self, k: str, is_unrolled: bool) -> None:
        """The body of a loop, in which ``k`` is a number."""
        before, self.in_unrolled = self.in_unrolled, is_unrolled and self.chance(0.5)
        self.counters.append(k)
        self.loops += 1
        self.block()
        self.loops -= 1
        self.counters.remove(k)
        self.in_unrolled = before

    def count_down(self) -> None:
        """A ``while``."""
        k = self.fresh("k")
        self.emit(f"{k} = {self.pick(('0', self.pick(NUMBERS) + ' & 3'))}")
        test = self.pick(
            (f"{k} < 4", f"({k} < 3) & ({self.pick(NUMBERS)} < 700)", f"{k} < ({self.pick(NUMBERS)} & 3)")
        )
        self.emit(f"while {test}:", f"    {k} += 1")
        if self.chance(0.2):
            self.emit(f"    if {k} > 5:", "        break")
        elif "NUMBERS" in test or "&" in test:
            self.emit(f"    if {k} > 9:", "        break")
        self.around(k, False)

    def leave(self) -> None:
        if self.chance(0.8):
            self.emit(f"if {self.test()}:")
            self.indent += 1
            if self.chance(0.5):
                self.assign()
            self.emit(self.pick(("break", "continue")))
            self.indent -= 1
        else:
            self.assign()

    def come_back(self) -> None:
        """A ``return``."""
        if self.in_function:
            value = self.number()
        else:
            value = ""
        self.emit(f"if {self.test()}:", f"    return {value}".rstrip())

    # -- functions -------------------------------------------------------------------------------------

    def helper(self) -> str:
        """The text of a function of numbers."""
        name, count = f"helper_{self.seed}_{len(self.helpers)}", self.pick((1, 2, 3))
        before, self.lines, self.in_function, self.left = self.lines, [], True, 10
        for place, number in enumerate(NUMBERS):
            self.emit(f"{number} = {f'p{place}' if place < count else self.pick((0, 2, 'p0'))}")
        self.emit("t = (x, 1)")
        self.body(self.pick((2, 3)))
        self.emit(f"return {self.number()}")
        text = "\n".join(
            ["@ptxforge.jit", f"def {name}({', '.join(f'p{n}' for n in range(count))}):", *self.lines]
        )
        self.lines, self.in_function, self.left = before, False, 16
        self.helpers.append((name, count))
        return text


# -- Python's answer ---------------------------------------------------------------------------------------


@attrs.frozen
class _At:
    """An address in an array."""

    array: np.ndarray
    place: object = 0

    def __add__(self, other: object) -> _At:
        return _At(self.array, self.place + other)


def _run(program: LaunchedProgram) -> dict[str, np.ndarray]:
    """The arrays after Python has run the program's text."""
    arrays = {name: array.copy() for name, array in program.arrays.items()}

    def store(at: _At, value: object) -> None:
        at.array[at.place] = value

    tl = types.SimpleNamespace(
        arange=np.arange, load=lambda at: at.array[at.place].astype(np.int64), store=store, where=np.where,
        range=lambda *bounds, **advice: range(*bounds), static_range=range, max=lambda x, axis: x.max(),
    )  # fmt: skip
    names = {"tl": tl, "ptxforge": types.SimpleNamespace(jit=lambda function: function)}
    exec(program.source, names)
    names[program.name](*[_At(array) for array in arrays.values()], *program.scalars.values())
    return arrays
