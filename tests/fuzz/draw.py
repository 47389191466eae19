"""What random programs that are launched as users launch them are written with: a :class:`Writer` draws and
emits lines, a :class:`LaunchedProgram` is the kernel with its launch."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np

TARGETS = ("sm_90a", "sm_90a", "sm_90a", "sm_80")
CTAS = (1, 1, 2, 4)
"""Of programs that do not draw them, on targets that have clusters."""
SHORT = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
}  # fmt: skip
"""Element types by numpy's names, as signatures say them."""
_NARROW = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}


def numpy_type(name: str) -> np.dtype:
    """The element type of this name, one of ``ml_dtypes`` if numpy has none."""
    return _NARROW[name] if name in _NARROW else np.dtype(name)


@attrs.frozen
class LaunchedProgram:
    """A kernel with its launch. ``arrays`` by parameter (outputs begin with ``o``), ``scalars`` likewise. Two
    parameters may be given one array: then both point at the same memory."""

    name: str
    seed: int
    source: str
    arrays: dict[str, np.ndarray]
    scalars: dict[str, int]
    grid: int
    target: str
    options: dict[str, int]
    has_steps: bool = True
    """Whether there is anything to multiply: else a tensor may have no size, of which there is no map."""
    tolerance: float = 0.0
    """Of results that are not exact, absolute and relative."""
    expected: dict[str, np.ndarray] | None = None
    """The arrays behind the launch, if more than the compiler's own interpreter says it."""

    @property
    def signature(self) -> dict[str, str]:
        types = {name: f"*{SHORT[array.dtype.name]}:16" for name, array in self.arrays.items()}
        return types | {name: _scalar_type(value) for name, value in self.scalars.items()}


def _scalar_type(value: int) -> str:
    wide = "i32" if -(2**31) <= value < 2**31 else "i64"
    return wide if value % 16 else f"{wide}:16"


class Writer:
    """Draws what a program consists of, and writes it. ``stream`` makes the numbers of a kind of programs
    other ones than those of the other kinds."""

    def __init__(self, seed: int, stream: int):
        self.seed, self.rng = seed, np.random.default_rng((seed, stream))
        self.lines: list[str] = []
        self.indent = 1
        self.arrays: dict[str, np.ndarray] = {}
        self.scalars: dict[str, int] = {}
        self.grid, self.warps, self.stages = 1, 4, 3
        self.count = 0

    def pick(self, choices):
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def emit(self, *lines: str) -> None:
        self.lines += ["    " * self.indent + line for line in lines]

    def fresh(self, prefix: str) -> str:
        """A name that is not taken."""
        self.count += 1
        return f"{prefix}{self.count}"

    def let(self, text: str, prefix: str = "v") -> str:
        """A new variable with this value."""
        name = self.fresh(prefix)
        self.emit(f"{name} = {text}")
        return name

    def number(self, name: str, value: int) -> str:
        """``value``, written out or passed."""
        if self.chance(0.5):
            return str(value)
        self.scalars[name] = value
        return name

    def keep(self, prefix: str, data: np.ndarray) -> str:
        """A new parameter with these data; an output if it begins with ``o``."""
        name = f"{prefix}{len(self.arrays)}"
        self.arrays[name] = data
        return name

    def array(self, prefix: str, count: int, dtype: str, most: int = 0) -> str:
        """A new parameter: numbers from ``-most`` to ``most``."""
        return self.keep(prefix, self.rng.integers(-most, most + 1, max(count, 1)).astype(numpy_type(dtype)))

    def finish(
        self, name: str, target: str = "", ctas: int = 0, has_steps: bool = True, tolerance: float = 0.0
    ) -> LaunchedProgram:
        """The program of what has been written, called ``name`` and its seed; by ``ctas`` for each, or 1 to 4
        of them where the target has clusters."""
        target = target or self.pick(TARGETS)
        ctas = ctas or (CTAS[self.seed // 2 % len(CTAS)] if target == "sm_90a" else 1)
        name = f"{name}_{self.seed}"
        source = "\n".join([f"def {name}({', '.join([*self.arrays, *self.scalars])}):", *self.lines])
        options = {"num_warps": self.warps, "num_stages": self.stages, "num_ctas": ctas}
        return LaunchedProgram(
            name,
            self.seed,
            source,
            self.arrays,
            self.scalars,
            self.grid,
            target,
            options,
            has_steps,
            tolerance,
        )
