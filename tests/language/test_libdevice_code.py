"""How much code the device library's float32 functions are where nothing rare happens."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from ptxforge.language import arith, math
from ptxforge.language.extra import libdevice
from ptxforge.language.registry import library

ELEMENTS = 4
INSTRUCTIONS = {
    "hypot": 19, "rhypot": 18, "log1p": 28, "exp": 11, "lgamma": 33, "tgamma": 32, "erfcx": 32, "erfinv": 19,
    "erfcinv": 20, "normcdfinv": 24, "cbrt": 21, "rcbrt": 21, "j0": 24, "j1": 25, "cyl_bessel_i0": 15,
    "cyl_bessel_i1": 17, "asin": 29, "acos": 31, "atan": 22, "atan2": 40, "asinh": 44, "acosh": 39,
    "atanh": 45, "sinh": 40, "cosh": 18,
}  # fmt: skip
"""PTX instructions for an element, outside of what is rare; no more. (Selections of constants, which become
operands of the machine's instructions, count.)"""


@ptxforge.jit
def each(x, y, out, FN: tl.constexpr, ARGUMENTS: tl.constexpr, COUNT: tl.constexpr):
    i = tl.program_id(0) * COUNT + tl.arange(0, COUNT)
    arguments = (tl.load(x + i), tl.load(y + i))
    tl.store(out + i, FN(*arguments[:ARGUMENTS]))


def usual_instructions(ptx: str) -> list[str]:
    """The instructions of threads that skip all rare branches."""
    found, until = [], None
    for line in map(str.strip, ptx[ptx.index(".entry") :].splitlines()):
        if line == until:
            until = None
        elif until is None and re.match(r"[@a-z]", line):
            found.append(line)
            branch = re.match(r"@!%p\d+ bra (\$common_\d+);", line)
            until = branch and branch[1] + ":"
    return found


def compiled(function, arguments: int = 1) -> str:
    signature = {"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16"}
    constants = dict(FN=function, ARGUMENTS=arguments, COUNT=128 * ELEMENTS)
    return each.compile(signature, constants, target="sm_90a", num_warps=4).asm["ptx"]


@library
def unchanged(x):
    return x


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_few_instructions(name):
    arguments = 2 if name in ("hypot", "rhypot", "atan2") else 1
    count = len(usual_instructions(compiled(getattr(libdevice, name), arguments)))
    frame = len(usual_instructions(compiled(unchanged)))
    assert (count - frame) / ELEMENTS <= INSTRUCTIONS[name]


@pytest.mark.parametrize("name", ["lgamma", "tgamma", "j0", "cyl_bessel_i0", "erfinv", "cbrt"])
def test_what_is_rare_stands_behind_a_branch(name):
    """Nothing that takes long is left outside: no float64, no calls, no exact divisions or roots."""
    usual = usual_instructions(compiled(getattr(libdevice, name)))
    assert not re.search(r"\.f64|call|div\.rn|sqrt\.rn", "\n".join(usual))


EXECUTED = {
    ("lgamma", 0.5, 8): 33, ("lgamma", 0.01, 0.5): 58, ("lgamma", 8, 100): 58, ("lgamma", 0.01, 100): 58,
    ("tgamma", 0.01, 2.9): 32, ("tgamma", 3, 35): 135, ("tgamma", 0.01, 35): 84, ("j0", 8, 100): 80,
    ("j1", 8, 100): 85, ("cyl_bessel_i0", 8, 80): 48, ("cyl_bessel_i1", 8, 80): 55,
}  # fmt: skip
"""Instructions that a warp executes for an element between two numbers, evenly spread by their logarithms:
what it takes for others is skipped."""


def executed(function, x: np.ndarray) -> float:
    """Instructions that a warp executes for an element of ``x``."""
    device = EmulatorDevice(check="off", counters=True)
    arrays = [ptxforge.to_device(a, device) for a in (x, x, np.zeros_like(x))]
    each[1, 1, 1](*arrays, FN=function, ARGUMENTS=1, COUNT=len(x))
    return device.last_report.total.instructions / (len(x) // 32)


@pytest.mark.parametrize("name, low, high", EXECUTED)
def test_only_what_the_arguments_take_is_computed(name, low, high):
    x = np.geomspace(low, high, 128 * ELEMENTS).astype(np.float32)
    frame = executed(unchanged, x)
    assert executed(getattr(libdevice, name), x) - frame <= EXECUTED[name, low, high]


BRANCHING = (
    "lgamma", "tgamma", "erfinv", "erfcinv", "normcdfinv", "erfcx", "cbrt", "rcbrt", "asinh", "acosh", "j0",
    "j1", "y0", "y1", "cyl_bessel_i0", "cyl_bessel_i1",
)  # fmt: skip


@pytest.mark.parametrize("name", BRANCHING)
def test_elements_that_go_other_ways_do_not_disturb_each_other(devices, name):
    """In order, threads have arguments of one kind; in disorder, of all kinds, also within one."""
    sizes = np.geomspace(1e-40, 1e38, 60 * ELEMENTS)
    usual = np.linspace(-12, 12, 64 * ELEMENTS)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0]
    x = np.concatenate([-sizes[::-2], usual, sizes[::2], np.resize(special, 4 * ELEMENTS)]).astype(np.float32)
    order = np.random.default_rng(4).permutation(len(x))
    for device in devices:
        found = []
        for some in (x, x[order]):
            placed = [ptxforge.to_device(a, device) for a in (some, some, np.zeros_like(x))]
            each[1, 1, 1](*placed, FN=getattr(libdevice, name), ARGUMENTS=1, COUNT=len(x))
            found.append(placed[-1].numpy().view(np.int32))
        np.testing.assert_array_equal(found[0][order], found[1])


@library
def scaled(x):
    return libdevice.ldexp(x, -libdevice.ilogb(x))


def test_exponents_that_are_usual_take_few_instructions():
    frame = len(usual_instructions(compiled(unchanged)))
    assert (len(usual_instructions(compiled(scaled))) - frame) / ELEMENTS <= 19


@library
def piecewise(x):
    return arith.where_rarely(x > 8.0, math.log(x) / (x * x), x + 1.0)


@library
def integers(x):
    whole = x.to(tl.int32)
    return arith.where_rarely(x > 8.0, whole * 3 - 7, whole + 5).to(tl.float32)


@library
def certain(x):
    return arith.where_rarely(x.shape[0] > 0, math.log(x), x + 1.0)


def test_rare_values(devices):
    x = np.linspace(-10, 10, 128 * ELEMENTS, dtype=np.float32)
    with np.errstate(all="ignore"):
        logarithm = np.log(x.astype(np.float64))
    for function, wanted in (
        (piecewise, np.where(x > 8, logarithm / (x * x), x + np.float32(1))),
        (integers, np.where(x > 8, x.astype(np.int32) * 3 - 7, x.astype(np.int32) + 5)),
        (certain, logarithm),
    ):
        for device in devices:
            placed = [ptxforge.to_device(a, device) for a in (x, x, np.zeros_like(x))]
            each[1, 1, 1](*placed, FN=function, ARGUMENTS=1, COUNT=len(x))
            np.testing.assert_allclose(placed[-1].numpy(), wanted, rtol=1e-6)
    assert "cvt.rn.f32.s32" not in "".join(usual_instructions(compiled(piecewise)))
