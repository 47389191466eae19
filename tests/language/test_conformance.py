"""Every function of the language by every element type that it takes, at edge values, on every executor; and
what is not in the table here stands in one that says which file tests it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.language import registry
from ptxforge.language.extra import cuda
from ptxforge.support.errors import CompilationError

TESTS = Path(__file__).parents[1]
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("float16", "float32", "float64")
WIDE = ("float32", "float64")
NUMBERS = INTEGERS + FLOATS
ROWS, COLUMNS = 8, 4
SIZE = ROWS * COLUMNS


def edges(dtype: str, seed: int) -> np.ndarray:
    """Values of a type, its edges among them, in an order of its own for each ``seed``."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        half = 1 << (kind.itemsize * 4)
        ends = [limits.min, limits.max, limits.min + 1, limits.max - 1, limits.max // 2, half, 0, 1, 2, 3, 7]
        values = np.array([*ends, *rng.integers(0, 100, SIZE - len(ends)).tolist()], object).astype(kind)
    else:
        limits = np.finfo(kind)
        ends = [0.0, -0.0, math.inf, -math.inf, limits.max, -limits.max, limits.tiny, limits.eps, 1.0, -1.0]
        values = np.array([*ends, *rng.normal(0, 3, SIZE - len(ends))]).astype(kind)
    return rng.permutation(values)


@attrs.frozen
class Case:
    """A function of one, two or three blocks of the types ``dtypes``, and what it gives by numpy.

    ``kernel`` calls it, if more is needed than ``tl.NAME(x, y, z)``. ``error`` is how far a result may be
    from that of 64-bit floats, relative to it, in units of the type's rounding; 0: it is numpy's own in that
    type.
    ``domain`` maps the edge values to those that the function has a result for.
    """

    dtypes: tuple[str, ...]
    meaning: Callable[..., np.ndarray]
    arity: int = 1
    kernel: Any = None
    error: float = 0
    domain: Callable[[np.ndarray], np.ndarray] = lambda x: x


@ptxforge.jit
def call1(x, out, F: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    put(out, F(tl.load(x + at)))


@ptxforge.jit
def call2(x, y, out, F: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    put(out, F(tl.load(x + at), tl.load(y + at)))


@ptxforge.jit
def call3(x, y, z, out, F: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    put(out, F(tl.load(x + at), tl.load(y + at), tl.load(z + at)))


@ptxforge.jit
def put(out, value):
    """All elements in order, a result behind the other."""
    if isinstance(value, tl.tuple):
        for index in tl.static_range(len(value)):
            put_one(out, value[index])
            out += value[index].numel
    else:
        put_one(out, value)


@ptxforge.jit
def put_one(out, value):
    tl.store(out + tl.arange(0, value.numel), tl.reshape(value, (value.numel,)))


def positive(x: np.ndarray) -> np.ndarray:
    return np.abs(x)


def small(x: np.ndarray) -> np.ndarray:
    """Finite numbers of moderate size."""
    return np.clip(np.nan_to_num(x.astype(np.float64)), -8, 8).astype(x.dtype)


def nonzero(x: np.ndarray) -> np.ndarray:
    return np.where(small(x) == 0, x.dtype.type(1), small(x))


def natural(x: np.ndarray) -> np.ndarray:
    """Positive integers of which two can be added."""
    return np.where(x < 1, 3, x // 4 + 1).astype(x.dtype)


def high_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the bits taken as unsigned."""
    bits, unsigned = 8 * x.dtype.itemsize, f"u{x.dtype.itemsize}"
    high = (x.view(unsigned).astype(object) * y.view(unsigned).astype(object)) >> bits
    return high.astype(unsigned).view(x.dtype)


def promoted(function: Callable) -> Callable:
    """Sums and products of small integers have 32 bits."""

    def meaning(x: np.ndarray) -> np.ndarray:
        wide = {"i": np.int32, "u": np.uint32}.get(x.dtype.kind)
        wide = wide if wide is not None and x.dtype.itemsize < 4 else x.dtype
        return function(x.reshape(ROWS, COLUMNS).astype(wide), wide)

    return meaning


@ptxforge.jit
def clamped(x, y, z):
    return tl.clamp(x, tl.minimum(y, z), tl.maximum(y, z))


@ptxforge.jit
def rows_of(x):
    return tl.squeeze(tl.unsqueeze(x, 1), 1), tl.ravel(tl.expand_dims(x, 0)), tl.view(x, (4, 8))


@ptxforge.jit
def swizzled(x):
    """The elements at the places that swizzle2d gives."""
    i = tl.arange(0, 8)[:, None]
    j = tl.arange(0, 4)[None, :]
    row, column = tl.swizzle2d(i, j, 8, 4, 2)
    return tl.gather(tl.ravel(x), tl.ravel(row * 4 + column), 0)


def swizzled_places() -> np.ndarray:
    """Triton's documented order: groups of two rows, column by column in each."""
    places = []
    for at in range(SIZE):
        group, inside = divmod(at, 2 * COLUMNS)
        places.append((2 * group + inside % 2) * COLUMNS + inside // 2)
    return np.array(places)


@ptxforge.jit
def moved(x):
    return tl.trans(x), tl.permute(x, (1, 0)), tl.flip(x, 1)


@ptxforge.jit
def paired(x, y):
    left, right = tl.split(tl.join(x, y))
    row, column = tl.broadcast(x, tl.sum(y * 0, 1)[:, None].to(x.dtype))
    return tl.interleave(x, y), left, right, tl.cat(x, y, dim=0), row


@ptxforge.jit
def filled(x):
    first = tl.broadcast_to(x[:, 0:1], (8, 4))
    return tl.zeros_like(x), tl.full((4,), 3, x.dtype), tl.zeros((4,), x.dtype), first


@ptxforge.jit
def ordered(x):
    return tl.sort(x), tl.topk(x, 2), tl.sort(x, descending=True)


@ptxforge.jit
def extremes(x):
    return tl.max(x, 1), tl.min(x, 1)


@ptxforge.jit
def places_of_extremes(x):
    return tl.argmax(x, 1), tl.argmin(x, 1)


@ptxforge.jit
def bits_together(x):
    return tl.xor_sum(x, 1), tl.reduce_or(x, 1)


@ptxforge.jit
def sums(x):
    return tl.sum(x, 1)


@ptxforge.jit
def running_sums(x):
    return tl.cumsum(x, 1)


@ptxforge.jit
def running_products(x):
    return tl.cumprod(x, 1)


@ptxforge.jit
def chosen(x, y):
    return tl.where(x < y, x, y)


@ptxforge.jit
def larger(x, y):
    return x if x > y else y


@ptxforge.jit
def combined(x):
    return tl.reduce(x, 1, larger), tl.associative_scan(x, 1, larger)


@ptxforge.jit
def both_true(x, y):
    return tl.logical_and(x > 0, y > 0).to(x.dtype), tl.logical_or(x > 0, y > 0).to(x.dtype)


@ptxforge.jit
def waits(x):
    """Launches that overlap change no value."""
    tl.extra.cuda.gdc_wait()
    y = x + x
    tl.extra.cuda.gdc_launch_dependents()
    return y


@ptxforge.jit
def through_bytes(x):
    """To float8e4b15 and back."""
    byte = cuda.convert_custom_float8(x, tl.float8e4b15)
    again = cuda.convert_custom_float8_sm70(cuda.convert_custom_float8(byte, x.dtype), tl.float8e4b15)
    return cuda.convert_custom_float8_sm80(again, x.dtype)


@ptxforge.jit
def to_float(x):
    return tl.cast(x, tl.float32), x.to(tl.float64)


def concatenated(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in parts])


def matrix(meaning: Callable) -> Callable:
    return lambda x: meaning(x.reshape(ROWS, COLUMNS))


def of_two(meaning: Callable) -> Callable:
    return lambda x, y: meaning(x.reshape(ROWS, COLUMNS), y.reshape(ROWS, COLUMNS))


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


CASES: dict[str, Case] = {
    "abs": Case(NUMBERS, np.abs),
    "add": Case(NUMBERS, np.add, 2),
    "sub": Case(NUMBERS, np.subtract, 2),
    "mul": Case(NUMBERS, np.multiply, 2),
    "minimum": Case(NUMBERS, np.fmin, 2),
    "maximum": Case(NUMBERS, np.fmax, 2),
    "where": Case(NUMBERS, lambda x, y: np.where(x < y, x, y), 2, chosen),
    "clamp": Case(
        FLOATS, lambda x, y, z: np.clip(x, np.fmin(y, z), np.fmax(y, z)), 3, clamped
    ),
    "logical_and logical_or": Case(
        NUMBERS, lambda x, y: concatenated((x > 0) & (y > 0), (x > 0) | (y > 0)).astype(x.dtype), 2,
        both_true,
    ),
    "cdiv": Case(INTEGERS, lambda x, y: (x + y - 1) // y, 2, domain=natural),
    "umulhi": Case(("int32", "uint32", "int64", "uint64"), high_product, 2),
    "ceil": Case(WIDE, np.ceil),
    "floor": Case(WIDE, np.floor),
    "sqrt": Case(WIDE, np.sqrt, error=4, domain=positive),
    "sqrt_rn": Case(WIDE, np.sqrt, domain=positive),
    "rsqrt": Case(WIDE, lambda x: 1 / np.sqrt(x), error=4, domain=positive),
    "div_rn": Case(WIDE, np.divide, 2, domain=nonzero),
    "fdiv": Case(WIDE, np.divide, 2, error=4, domain=nonzero),
    "fma": Case(WIDE, lambda x, y, z: x * y + z, 3, error=8, domain=lambda x: np.round(small(x))),
    "exp": Case(WIDE, np.exp, error=8, domain=small),
    "exp2": Case(WIDE, np.exp2, error=8, domain=small),
    "log": Case(WIDE, np.log, error=8, domain=lambda x: np.abs(nonzero(x)) + 1),
    "log2": Case(WIDE, np.log2, error=8, domain=lambda x: np.abs(nonzero(x)) + 1),
    "sin": Case(WIDE, np.sin, error=16, domain=small),
    "cos": Case(WIDE, np.cos, error=64, domain=small),
    "erf": Case(WIDE, erf, error=8, domain=small),
    "sigmoid": Case(WIDE, lambda x: 1 / (1 + np.exp(-x)), error=16, domain=small),
    "softmax": Case(
        WIDE, matrix(lambda x: np.exp(x) / np.exp(x).sum(0)), error=64, domain=lambda x: small(x) / 4
    ),
    "sum": Case(INTEGERS, promoted(lambda x, kind: x.sum(1, dtype=kind)), 1, sums),
    "cumsum": Case(INTEGERS, promoted(lambda x, kind: x.cumsum(1, dtype=kind)), 1, running_sums),
    "cumprod": Case(
        ("int32", "uint32", "int64", "uint64"), promoted(lambda x, kind: x.cumprod(1, dtype=kind)), 1,
        running_products,
    ),
    "max min": Case(NUMBERS, matrix(lambda x: concatenated(x.max(1), x.min(1))), 1, extremes),
    "argmax argmin": Case(
        NUMBERS, matrix(lambda x: concatenated(x.argmax(1), x.argmin(1)).astype(np.int32)), 1,
        places_of_extremes,
    ),
    "xor_sum reduce_or": Case(
        INTEGERS,
        matrix(lambda x: concatenated(np.bitwise_xor.reduce(x, 1), np.bitwise_or.reduce(x, 1))), 1,
        bits_together,
    ),
    "reduce associative_scan": Case(
        NUMBERS, matrix(lambda x: concatenated(x.max(1), np.maximum.accumulate(x, 1))), 1, combined
    ),
    "sort topk": Case(
        NUMBERS,
        matrix(lambda x: concatenated(np.sort(x), np.sort(x)[:, :1:-1], np.sort(x)[:, ::-1])), 1, ordered,
    ),
    "squeeze unsqueeze expand_dims ravel view reshape": Case(
        NUMBERS, lambda x: concatenated(x, x, x), 1, rows_of
    ),
    "swizzle2d gather": Case(NUMBERS, lambda x: x[swizzled_places()], 1, swizzled),
    "trans permute flip": Case(
        NUMBERS, matrix(lambda x: concatenated(x.T, x.T, x[:, ::-1])), 1, moved
    ),
    "join split interleave cat broadcast": Case(
        NUMBERS,
        of_two(lambda x, y: concatenated(np.stack([x, y], 2), x, y, np.concatenate([x, y]), x)), 2, paired,
    ),
    "zeros_like full zeros broadcast_to": Case(
        NUMBERS,
        matrix(lambda x: concatenated(
            0 * x.astype(bool), np.full(4, 3), np.zeros(4), np.repeat(x[:, :1], 4, 1)).astype(x.dtype)), 1,
        filled,
    ),
    "cuda.gdc_wait cuda.gdc_launch_dependents": Case(NUMBERS, lambda x: x + x, 1, waits),
    "cast": Case(
        NUMBERS, lambda x: concatenated(x.astype(np.float32).astype(np.float64), x.astype(np.float64)), 1,
        to_float,
    ),
    "cuda.convert_custom_float8 cuda.convert_custom_float8_sm70 cuda.convert_custom_float8_sm80": Case(
        ("float16",), lambda x: x, 1, through_bytes,
        domain=lambda x: (np.sign(small(x)) * np.floor(np.abs(small(x))) / 8).astype(x.dtype),
    ),
}  # fmt: skip
"""Names, divided by blanks where one kernel has several, and what they take."""


@pytest.mark.parametrize("names", CASES)
@np.errstate(all="ignore")
def test_by_every_type(execute, names):
    case = CASES[names]
    function = case.kernel or getattr(tl, names)
    launch = (call1, call2, call3)[case.arity - 1]
    for dtype in case.dtypes:
        values = [case.domain(edges(dtype, seed)) for seed in range(case.arity)]
        wide = [x.astype(np.float64) for x in values] if case.error else values
        expected = np.ravel(case.meaning(*wide))
        expected = expected.astype(dtype) if case.error else expected
        out = np.zeros_like(expected)
        constants = {"F": function, "R": ROWS, "C": COLUMNS}
        for (got,) in execute(launch, (1,), [*values, out], constants, outputs=[case.arity], num_warps=1):
            if case.error:
                limits = np.finfo(dtype)
                np.testing.assert_allclose(
                    got, expected, case.error * limits.eps, limits.tiny, err_msg=dtype
                )
            else:
                np.testing.assert_array_equal(got, expected, err_msg=dtype)


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [(name, [t for t in NUMBERS if t not in case.dtypes]) for name, case in CASES.items() if case.error],
)
def test_other_types_are_refused(name, dtypes):
    """Functions of 32-bit and 64-bit floats take no integers."""
    case = CASES[name]
    launch = (call1, call2, call3)[case.arity - 1]
    for dtype in dtypes:
        if np.dtype(dtype).kind == "f" or name in ("softmax", "fma", "fdiv", "sigmoid"):
            continue
        signature = dict.fromkeys(("x", "y", "z")[: case.arity], f"*{getattr(tl, dtype).base.short}")
        constants = {"F": case.kernel or getattr(tl, name), "R": ROWS, "C": COLUMNS}
        with pytest.raises(CompilationError):
            launch.compile(signature | {"out": "*fp32"}, constants, target="sm_90a")


ELSEWHERE = {
    "frontend/test_language.py": """
        arange assume atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor
        device_assert device_print expect_zero histogram load max_constancy max_contiguous multiple_of
        next_power_of_2 num_programs philox program_id rand rand4x randint randn randn4x static_assert
        static_print store uint_to_uniform_float""",
    "frontend/test_types.py": "to_tensor",
    "kernels/test_block_pointers.py": "advance make_block_ptr",
    "kernels/test_cluster_memory.py": "debug_barrier",
    "kernels/test_descriptors.py": """
        load_tensor_descriptor make_tensor_descriptor store_tensor_descriptor""",
    "kernels/test_dot_scaled.py": "dot_scaled",
    "kernels/test_dots.py": "dot",
    "kernels/test_language_in_clusters.py": "pair_uniform_to_normal philox_impl randint4x",
    "language/test_aggregates.py": "aggregate_replace",
    "language/test_atomic_loads.py": "atomic_load atomic_poll atomic_store",
    "language/test_cuda.py": "cuda.globaltimer cuda.num_threads cuda.num_warps cuda.smid",
    "language/test_inline_asm.py": "inline_asm_elementwise",
    "language/test_map_elementwise.py": "map_elementwise",
    "language/test_sorting.py": "bitonic_merge",
}
"""Names that other tests are about, by their file."""


def test_every_name_is_tested_somewhere():
    computed = {name for names in CASES for name in names.split()}
    told = {name: file for file, names in ELSEWHERE.items() for name in names.split()}
    functions = {
        name for name in tl.__all__
        if registry.is_builtin(getattr(tl, name)) or isinstance(getattr(tl, name), registry.LibraryFunction)
    } | {f"cuda.{name}" for name in cuda.__all__ if name != "libdevice"}  # fmt: skip
    assert sorted(functions - computed - {*told}) == []
    assert computed & {*told} == set() and {*told} <= functions and computed <= functions
    for name, file in told.items():
        text = (TESTS / file).read_text()
        assert re.search(rf"\b{name.rpartition('.')[2]}\b", text), f"{file} does not call {name}"
