"""Calls, arguments, constants, globals and expressions known at compile time."""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.language.registry import library as jit
from ptxforge.support.errors import CompilationError, TypeMismatchError

SCALE = tl.constexpr(3)
ANNOTATED: tl.constexpr = tl.constexpr(4)
PLAIN = 5


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


MODE: tl.constexpr = tl.constexpr(Mode.FAST.value)


@jit
def scaled(x, factor=2, *, offset: tl.constexpr = 0):
    """A docstring is no statement."""
    return x * factor + offset


@jit
def no_value(out, x):
    tl.store(out, x)


@jit
def sum_of(*values):
    total = 0
    for value in values:
        total += value
    return total


@jit
def apply_twice(f, x, SIZE: tl.constexpr):
    return f(f(x, SIZE), SIZE)


@jit
def add_size(x, size):
    return x + tl.arange(0, size)


def calls(out, n):
    tl.store(out, scaled(n))
    tl.store(out + 1, scaled(n, factor=n, offset=7))
    tl.store(out + 2, scaled(n, SCALE) + ANNOTATED)
    no_value(out + 3, n)
    tl.store(out + 4, sum_of(n, 1, 2) + sum_of(*(n, n)))
    tl.store(out + 5 + tl.arange(0, 4), apply_twice(add_size, n, 4))


def test_calls_of_jitted_functions(interpret):
    out = np.zeros(9, np.int32)
    interpret(calls, out, 10)
    assert out.tolist() == [20, 107, 34, 10, 33, 10, 12, 14, 16]


def test_a_parameter_is_a_local_variable_of_the_call(interpret):
    out = np.zeros(2, np.int32)
    interpret(caller_keeps_its_names, out, 5)
    assert out.tolist() == [5, 106]


@jit
def reassigns(n):
    n = n + 1
    x = n + 100
    return x


def caller_keeps_its_names(out, n):
    x = reassigns(n)
    tl.store(out, n)
    tl.store(out + 1, x)


@jit
def three_of(n):
    return n, n + 1, 2


def length_of_a_tuple(out, n):
    parts = three_of(n)
    for i in tl.static_range(len(parts)):
        tl.store(out + i, parts[i])


def test_the_length_of_a_tuple_is_known_while_compiling(interpret):
    out = np.zeros(3, np.int32)
    interpret(length_of_a_tuple, out, 7)
    assert out.tolist() == [7, 8, 2]


def constants(out, SHAPE: tl.constexpr, NAME: tl.constexpr, FLAG: tl.constexpr, NONE: tl.constexpr = None):
    rows: tl.constexpr = SHAPE[0] * 2 + SCALE.value
    tl.static_assert(rows == 11 and SHAPE[1] == 8 and len(SHAPE) == 2)
    tl.static_assert(NAME in ("fast", "exact") and NAME != "slow", f"unknown name {NAME!r}")
    tl.static_assert(f"{rows:03d} {NAME}" == "011 fast" and NAME.upper() == "FAST")
    tl.static_assert(MODE == "fast" and Mode.EXACT.value == "exact" and Mode.FAST is Mode.FAST)
    tl.static_assert(NONE is None and (FLAG or undefined_name) and not (not FLAG))  # noqa: F821
    tl.static_assert(2**5 == 32 and 7 // 2 == 3 and -7 % 4 == 1 and 1 / 4 == 0.25)
    tl.static_assert(min(3, 1, 2) == 1 and max((4, 6)) == 6 and abs(-2) == 2 and int(3.9) == 3)
    tl.static_assert(math.log2(8) == 3 and float("inf") > 0 and round(2.5) == 2)
    tl.static_assert(tl.constexpr(rows) == 11 and isinstance(rows, int))
    tl.static_assert([i * i for i in range(4) if i != 2] == (0, 1, 9))
    tl.static_assert(ptxforge.cdiv(10, 4) == 3 and ptxforge.next_power_of_2(5) == 8)
    tl.static_assert(tl.float16.primitive_bitwidth == 16 and tl.pointer_type(tl.int8).element_ty == tl.int8)
    a, (b, *_) = 1, (2, 3) if False else (SCALE, 3)  # noqa: F841


def constant_values(out, SHAPE: tl.constexpr):
    (a, b), c = SHAPE, [x + 1 for x in SHAPE][-1]
    tl.store(out, a + b + c)
    x = y = 7
    tl.store(out + 1, x + y)
    z: int = 4
    unused: int  # noqa: F842
    tl.store(out + 2, z)
    """A text alone is nothing."""
    tl.store(out + 3, (w := z + 1) + w)
    tl.store(out + 4, (x, y, z)[1:][1])


def test_constant_expressions(ir, interpret):
    with pytest.raises(CompilationError, match="starred target"):
        ir(constants, {"out": "*i32"}, SHAPE=(4, 8), NAME="fast", FLAG=True)
    out = np.zeros(5, np.int32)
    interpret(constant_values, out, SHAPE=(10, 20))
    assert out.tolist() == [51, 14, 4, 10, 4]


class Point(NamedTuple):
    x: int
    y: int


@jit
def moved(point, n):
    return Point(point.x + n, point.y)


def named_tuples(out, n):
    p = Point(n, 2)
    if n > 3:
        p = moved(p, 10)
    for _ in range(2):
        p = moved(p, 1)
    tl.store(out, p.x)
    tl.store(out + 1, p.y)


def test_named_tuples(interpret):
    out = np.zeros(2, np.int32)
    interpret(named_tuples, out, 5)
    assert out.tolist() == [17, 2]


def test_closures(interpret):
    size = tl.constexpr(8)
    helper = scaled

    def kernel(out, n):
        tl.store(out + tl.arange(0, size), helper(n))

    out = np.zeros(8, np.int32)
    interpret(kernel, out, 3)
    assert out.tolist() == [6] * 8


@tl.constexpr_function
def half(n):
    return n // 2


@tl.constexpr
def quarter(n):
    return n // 4


@ptxforge.jit
def real_jit(x):
    return x - 1


def mixed(out, n, FN: tl.constexpr):
    tl.store(out + tl.arange(0, half(8)), FN(n, offset=n) + real_jit(n) + quarter(8))


def test_functions_as_constants(interpret):
    out = np.zeros(4, np.int32)
    interpret(mixed, out, 10, FN=scaled)
    assert out.tolist() == [41] * 4


@jit
def factorial(n):
    if n > 0:
        return n * factorial(n - 1)
    return 1


def recursive(out, n):
    tl.store(out, factorial(n))


def test_recursion_is_refused(ir):
    with pytest.raises(CompilationError, match="'factorial' calls itself"):
        ir(recursive, {"out": "*i32", "n": "i32"})


@pytest.mark.parametrize(
    "source, message",
    [
        ("scaled()", "scaled\\(\\) lacks its argument 'x'"),
        ("scaled(1, 2, 3)", "takes 2 positional arguments, 3 are given"),
        ("scaled(1, x=2)", "scaled\\(\\) is given 'x' twice"),
        ("scaled(1, fly=2)", "is given 'fly' but has no such parameter"),
        ("tl.arange(0)", "arange\\(\\): missing a required argument: 'end'"),
        ("tl.load(out, fly=1)", "load\\(\\): got an unexpected keyword argument 'fly'"),
        ("tl.program_id(3)", "argument 'axis' of program_id\\(\\): must be 0, 1 or 2, is 3"),
        ("PLAIN + 1", "the global variable 'PLAIN' cannot be read"),
        ("math.nothing", "module 'math' has no attribute 'nothing'"),
        ("n.nothing", "a tensor has no attribute 'nothing'"),
        ("plain(1)", "'plain' is a plain Python function"),
        ("nowhere", "'nowhere' is not defined"),
        ("tl.constexpr(n)", "tl.constexpr\\(\\) needs a value known at compile time"),
        ("half(n)", "half\\(\\) is called while compiling"),
        ("1 // 0", "ZeroDivisionError in a compile-time expression"),
        ("(1, 2)[5]", "IndexError in a compile-time expression"),
        ("(1, 2)[n]", "a tuple's index must be known at compile time"),
        ("n[0]", "a block is indexed with ':' and None only, not with constexpr 0"),
        ("tl.constexpr(3)(n)", "constexpr 3 cannot be called"),
        ("float(n)", "float\\(\\) needs compile-time values"),
        ("f'{n}'", "an f-string is made while compiling"),
        ("input()", "'input' has no meaning in a kernel"),
        ("n ** 2", "'\\*\\*' needs compile-time numbers"),
        ("n + None", "'\\+' cannot combine int32 and constexpr None"),
        ("out * 2", "'\\*' cannot combine pointer to int32 and int32"),
        ("out + 1.5", "an offset is an integer"),
        ("n // 2.0", "'//' divides integers, not float32"),
        ("n & 1.5", "'&' combines integers"),
        ("~tl.sqrt(2.0)", "'~' inverts integers, not float32"),
    ],
)
def test_wrong_expressions(tmp_path, ir, source, message):
    with pytest.raises(CompilationError, match=message):
        ir(_kernel_of(tmp_path, source), {"out": "*i32", "n": "i32"})


def plain(x):
    return x


def _kernel_of(folder, expression: str):
    """A kernel in a file of its own that evaluates an expression."""
    path = folder / "kernel.py"
    path.write_text(f"def kernel(out, n):\n    x = {expression}\n")
    scope = {"tl": tl, "math": math, "scaled": scaled, "plain": plain, "half": half, "PLAIN": PLAIN}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["kernel"]


def test_mixed_signs_name_the_types(ir):
    def kernel(out, n, m):
        tl.store(out, n // m)

    with pytest.raises(TypeMismatchError, match="int32 and uint32 have different signedness"):
        ir(kernel, {"out": "*i32", "n": "i32", "m": "u32"})
