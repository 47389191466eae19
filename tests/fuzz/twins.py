"""What random programs whose truth numpy says (``truths.py``) are written with: every line that is emitted
comes with a function that does the same with arrays, by Triton's rules as they are stated here once more:
nothing of the compiler, its interpreter among it, is asked.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from tests.fuzz.draw import LaunchedProgram, Writer, numpy_type

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
EXACT = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}
"""Up to where a float type holds all integers."""

Env = dict[str, np.ndarray]
Act = Callable[[Env], None]


@attrs.frozen
class Known:
    """A variable: its name, element type and shape (``()`` for a scalar). Floats are integers of a magnitude
    of at most ``most``; with ``most`` 0 anything."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    most: int = 0

    @property
    def is_int(self) -> bool:
        return self.dtype in SIGNED + UNSIGNED

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def bits(self) -> int:
        return 1 if self.dtype == "int1" else int(self.dtype.lstrip("uintbfloa"))

    @property
    def count(self) -> int:
        return int(np.prod(self.shape))


def host_type(dtype: str) -> np.dtype:
    """The numpy type of an element type of the language."""
    return np.dtype(bool) if dtype == "int1" else numpy_type(dtype)


def promoted(one: str, other: str) -> str:
    """The common type of two integer types, or int1: the wider one; of equal width the unsigned one."""
    a, b = (1 if name == "int1" else int(name.lstrip("uint")) for name in (one, other))
    if a == b:
        return other if other in UNSIGNED else one
    return one if a > b else other


def cast(value: np.ndarray, dtype: str) -> np.ndarray:
    """``value.to(dtype)``: integers wrap around, floats are rounded to nearest even, or towards zero to
    integers."""
    with np.errstate(all="ignore"):
        if dtype == "int1":
            return np.asarray(value != 0)
        return np.asarray(value).astype(host_type(dtype))


class Twin(Writer):
    """Writes a program twice: its text, and functions that do on numpy arrays what each line does."""

    def __init__(self, seed: int, stream: int):
        super().__init__(seed, stream)
        self.pool: list[Known] = []
        self.acts: list[Act] = []
        self.depth = 0

    # -- statements ------------------------------------------------------------------------------------

    def define(
        self, text: str, value: Callable[[Env], np.ndarray], dtype: str, shape: tuple[int, ...], most: int = 0
    ) -> Known:
        """A new variable, in the pool."""
        made = Known(self.fresh("v"), dtype, shape, most)
        self.assign(made, text, value)
        self.pool.append(made)
        return made

    def define_all(
        self, text: str, value: Callable[[Env], tuple], types: list[str], shape: tuple[int, ...]
    ) -> list[Known]:
        """Several variables that one expression gives."""
        made = [Known(self.fresh("v"), dtype, shape) for dtype in types]
        names = [one.name for one in made]
        self.emit(f"{', '.join(names)} = {text}")
        self.acts.append(lambda env: env.update(zip(names, map(np.asarray, value(env)), strict=True)))
        self.pool += made
        return made

    def assign(self, to: Known, text: str, value: Callable[[Env], np.ndarray]) -> None:
        self.emit(f"{to.name} = {text}")
        kind, shape, name = host_type(to.dtype), to.shape, to.name

        def act(env: Env) -> None:
            with np.errstate(all="ignore"):
                found = np.asarray(value(env))
            assert found.dtype == kind and found.shape == shape, (text, found.dtype, kind, found.shape, shape)
            env[name] = found

        self.acts.append(act)

    def block(self, write: Callable[[], None]) -> list[Act]:
        """The acts of lines in a block; what they define is not known behind it."""
        outer, pool = self.acts, list(self.pool)
        self.acts, inner = [], []
        self.indent += 1
        self.depth += 1
        write()
        inner = self.acts
        self.depth -= 1
        self.indent -= 1
        self.acts, self.pool = outer, pool
        return inner

    # -- what is there ---------------------------------------------------------------------------------

    def choose(self, test: Callable[[Known], bool] = lambda value: True) -> Known | None:
        """A variable for which ``test`` holds, later ones preferred."""
        fitting = [value for value in self.pool if test(value)]
        return fitting[-1 - min(int(self.rng.geometric(0.25)) - 1, len(fitting) - 1)] if fitting else None

    def cast_to(self, one: Known, dtype: str) -> Known:
        if one.dtype == dtype:
            return one
        most = one.most if dtype in FLOATS else 0
        return self.define(
            f"{one.name}.to(tl.{dtype})", lambda env: cast(env[one.name], dtype), dtype, one.shape, most
        )

    def place(self, shape: tuple[int, ...]) -> str:
        """The index of each element in row-major order."""
        terms, stride = [], 1
        for axis in range(len(shape) - 1, -1, -1):
            key = ", ".join(":" if d == axis else "None" for d in range(len(shape)))
            terms.append(f"tl.arange(0, {shape[axis]})[{key}] * {stride}")
            stride *= shape[axis]
        return " + ".join(terms[::-1]) or "0"

    def keep_value(self, one: Known) -> None:
        """Store a variable where nothing else is stored."""
        out = self.keep("o", np.zeros(one.count * self.grid, host_type(one.dtype)))
        place = f"pid * {one.count} + {self.place(one.shape)}"
        self.emit(f"tl.store({out} + ({place}), {one.name})")

        def act(env: Env) -> None:
            first = int(env["pid"]) * one.count
            env[out][first : first + one.count] = env[one.name].reshape(-1)

        self.acts.append(act)

    def complete(self, name: str, target: str, ctas: int) -> LaunchedProgram:
        """The program, with its truth."""
        made = self.finish(name, target, ctas)
        copies = {id(array): array.copy() for array in self.arrays.values()}
        env: Env = {key: copies[id(array)] for key, array in self.arrays.items()}
        scalars = {key: np.asarray(value, _scalar(value)) for key, value in self.scalars.items()}
        for pid in range(self.grid):
            local = env | scalars | {"pid": np.asarray(pid, np.int32)}
            for act in self.acts:
                act(local)
        return attrs.evolve(made, expected=env)


def _scalar(value: int) -> type:
    return np.int32 if -(2**31) <= value < 2**31 else np.int64
