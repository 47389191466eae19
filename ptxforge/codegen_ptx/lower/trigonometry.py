"""Range reduction for sin, cos and tan: x = quadrant · π/2 + r with |r| ≤ π/4, for every x.

Up to 10⁵, π/2 is subtracted in three parts by ``fma`` (Cody & Waite, *Software Manual for the Elementary
Functions*, 1980): the first product cancels exactly, the others are below the last place of r. Beyond, a
device function computes the fraction of x · 2/π from the bits of 2/π that matter (Payne & Hanek, 1983): with
x = M · 2**E and a window W of 192 bits of 2/π, the upper bits of M · W are the quadrant and the fraction. It
is called by those lanes only that need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce

from ptxforge.codegen_ptx.lower.reals import TO_WHOLE
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import f64
from ptxforge.codegen_ptx.ptx.formula import Step, Value, evaluate, fma, maximum, rint, where
from ptxforge.codegen_ptx.ptx.registers import Register

_LIMIT = 1e5
_WORDS = 22


@lru_cache(maxsize=1)
def two_over_pi() -> tuple[int, ...]:
    """2/π as 64-bit words after one word of zeros, by Machin's formula π = 16 atan(1/5) - 4 atan(1/239)."""
    bits = 64 * _WORDS
    one = 1 << (bits + 64)

    def arctangent(n: int) -> int:
        total, term, k = 0, one // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term //= n * n
            k += 2
        return total

    pi = 16 * arctangent(5) - 4 * arctangent(239)
    fraction = (2 * one << bits) // pi
    return tuple((fraction >> (bits - 64 * i)) & (2**64 - 1) for i in range(_WORDS))


def _split_half_pi(parts: int, mantissa: int) -> list[float]:
    """π/2 as a sum of floats of ``mantissa`` bits, largest first."""
    scale = 64 * (_WORDS - 2)
    words = two_over_pi()
    fraction = 0
    for word in words[1:]:
        fraction = fraction << 64 | word
    rest = (1 << (scale + 64 * (_WORDS - 1))) // fraction
    result = []
    for _ in range(parts):
        negative, size = rest < 0, abs(rest)
        cut = size.bit_length() - mantissa
        head = (size + (1 << (cut - 1))) >> cut << cut
        result.append((-head if negative else head) / (1 << scale))
        rest -= -head if negative else head
    return result


@lru_cache(maxsize=2)
def half_pi(kind: str) -> tuple[float, float, float]:
    """π/2 in three parts of the format's precision."""
    return tuple(_split_half_pi(3, 24 if kind == "f" else 53))


_REDUCE = """.func (.param .align 8 .b8 result[16]) reduce_pi (.param .b64 argument)
{
	.reg .pred %p<4>;
	.reg .b32 %r<10>;
	.reg .b64 %q<40>;
	.reg .b64 %d<12>;

	ld.param.b64 %q0, [argument];
	// argument = mantissa * 2**E, E = exponent field - 1075
	bfe.u64 %q1, %q0, 52, 11;
	cvt.u32.u64 %r0, %q1;
	and.b64 %q2, %q0, 0xFFFFFFFFFFFFF;
	or.b64 %q2, %q2, 0x10000000000000;
	// first bit of the window: 62 + E bits into the table
	add.s32 %r1, %r0, -1013;
	shr.u32 %r2, %r1, 6;
	and.b32 %r3, %r1, 63;
	sub.s32 %r4, 64, %r3;
	mov.b64 %q3, two_over_pi;
	mad.wide.u32 %q3, %r2, 8, %q3;
	ld.global.b64 %q4, [%q3];
	ld.global.b64 %q5, [%q3+8];
	ld.global.b64 %q6, [%q3+16];
	ld.global.b64 %q7, [%q3+24];
	shl.b64 %q8, %q4, %r3;
	shr.u64 %q9, %q5, %r4;
	or.b64 %q10, %q8, %q9;
	shl.b64 %q11, %q5, %r3;
	shr.u64 %q12, %q6, %r4;
	or.b64 %q13, %q11, %q12;
	shl.b64 %q14, %q6, %r3;
	shr.u64 %q15, %q7, %r4;
	or.b64 %q16, %q14, %q15;
	// the upper 128 of the lower 192 bits of mantissa * window
	mul.hi.u64 %q17, %q2, %q16;
	mul.lo.u64 %q18, %q2, %q13;
	add.u64 %q19, %q17, %q18;
	setp.lt.u64 %p0, %q19, %q17;
	mul.hi.u64 %q20, %q2, %q13;
	mul.lo.u64 %q21, %q2, %q10;
	add.u64 %q22, %q20, %q21;
	selp.b64 %q23, 1, 0, %p0;
	add.u64 %q22, %q22, %q23;
	// quadrant and fraction, rounded to the nearest quadrant
	shr.u64 %q24, %q22, 62;
	cvt.u32.u64 %r5, %q24;
	shl.b64 %q25, %q22, 2;
	shr.u64 %q26, %q19, 62;
	or.b64 %q25, %q25, %q26;
	shl.b64 %q27, %q19, 2;
	setp.lt.s64 %p1, %q25, 0;
	selp.b32 %r6, 1, 0, %p1;
	add.s32 %r5, %r5, %r6;
	not.b64 %q28, %q25;
	selp.b64 %q25, %q28, %q25, %p1;
	not.b64 %q29, %q27;
	selp.b64 %q27, %q29, %q27, %p1;
	// normalise the magnitude to 64 bits, 53 + 11 of them as two floats
	clz.b64 %r7, %q25;
	sub.s32 %r8, 64, %r7;
	shl.b64 %q30, %q25, %r7;
	shr.u64 %q31, %q27, %r8;
	or.b64 %q30, %q30, %q31;
	and.b64 %q32, %q30, 0x7FF;
	sub.u64 %q33, %q30, %q32;
	cvt.rn.f64.u64 %d0, %q33;
	cvt.rn.f64.u64 %d1, %q32;
	mul.rn.f64 %d2, %d0, HALF_PI;
	neg.f64 %d3, %d2;
	fma.rn.f64 %d4, %d0, HALF_PI, %d3;
	fma.rn.f64 %d4, %d0, HALF_PI_LOW, %d4;
	fma.rn.f64 %d4, %d1, HALF_PI, %d4;
	add.rn.f64 %d5, %d2, %d4;
	// times 2**-(64 + shift)
	sub.s32 %r9, 959, %r7;
	cvt.u64.u32 %q34, %r9;
	shl.b64 %q34, %q34, 52;
	mul.rn.f64 %d6, %d5, %q34;
	neg.f64 %d7, %d6;
	selp.b64 %d8, %d7, %d6, %p1;
	// an odd function
	setp.lt.s64 %p2, %q0, 0;
	neg.f64 %d9, %d8;
	selp.b64 %d8, %d9, %d8, %p2;
	neg.s32 %r6, %r5;
	selp.b32 %r5, %r6, %r5, %p2;
	st.param.b64 [result], %d8;
	st.param.b32 [result+8], %r5;
	ret;
}"""


def _reduce(b: Builder, x: Register) -> tuple[Register, Register]:
    reduce_together(b, [x])
    return b.known(("reduce_pi", x))


reduced = Step("xr", _reduce)
"""(r, quadrant) of ``x``; infinities and NaN give NaN."""


def sine(wave: Callable, x: Value) -> Value:
    """sin(x), by a ``wave(r, turns)`` that is sin(r + turns · π/2)."""
    zero = x == 0.0  # sin(-0) is -0.
    return where(zero, x, wave(*reduced(x)))


def cosine(wave: Callable, x: Value) -> Value:
    """cos(x), by the same."""
    r, turns = reduced(x)
    return wave(r, turns + 1)


def reduce_together(b: Builder, arguments: Sequence[Register]) -> None:
    """Reduce several arguments, so that :data:`reduced` finds them. There is one branch for large ones: what
    is computed of the others before and behind it can overlap."""
    some = [x for x in dict.fromkeys(arguments) if b.known(("reduce_pi", x)) is None]
    if not some:
        return
    found = {x: _in_registers(b, evaluate(b, _near, x)) for x in some}
    with b.rare(evaluate(b, _any_is_far, *some)):
        for x, (rest, quadrant) in found.items():
            _far(b, x, rest, quadrant)
    for x in some:
        b.remember(("reduce_pi", x), found[x])


def _in_registers(b: Builder, values: Sequence[Register]) -> tuple[Register, ...]:
    """Copies that may be assigned again."""
    copies = tuple(b.several([x.kind for x in values]))
    for register, value in zip(copies, values):
        b.copy(register, value)
    return copies


def _near(x: Value) -> tuple[Value, Value]:
    """The result for an argument that is not large."""
    parts = half_pi(x.kind)
    turns, quadrant = _nearest_multiple(x, 1 / parts[0])
    for part in parts:
        x = fma(turns, -part, x)
    return x, quadrant


def _nearest_multiple(x: Value, factor: float) -> tuple[Value, Value]:
    """``x · factor`` rounded to an integer, as a float and as an integer (whose low bits count). For f32
    without conversions, of which there are few a cycle; below 2**22."""
    if x.kind == "d":
        whole = rint(x * factor)
        return whole, whole.to_integer()
    moved = fma(x, factor, TO_WHOLE)
    return moved - TO_WHOLE, moved.bits()


def _any_is_far(*arguments: Value) -> Value:
    return reduce(maximum, map(abs, arguments)) > _LIMIT


def _is_far(x: Value) -> Value:
    size = abs(x)
    return (size > _LIMIT) & (size < math.inf)


def _far(b: Builder, x: Register, result: Register, turns: Register) -> None:
    """Assign ``result`` and ``turns`` anew where ``x`` is large."""
    _declare(b)
    end = b.skip_unless(evaluate(b, _is_far, x), "reduced")
    wide = x
    if x.kind == "f":
        wide = b.new("d")
        b.effect("cvt.f64.f32 %s, %s;", wide, x)
    precise = b.new("d")
    b.effect(
        "%.0s%.0s{ .param .b64 p0; .param .align 8 .b8 r0[16]; st.param.b64 [p0], %s; "
        "call (r0), reduce_pi, (p0); ld.param.b64 %s, [r0]; ld.param.b32 %s, [r0+8]; }",
        precise, turns, wide, precise, turns,
    )  # fmt: skip
    b.effect("cvt.rn.f32.f64 %s, %s;" if x.kind == "f" else "mov.b64 %s, %s;", result, precise)
    b.place(end)


def _declare(b: Builder) -> None:
    words = ", ".join(f"0x{word:016X}" for word in two_over_pi())
    b.declarations[f".global .align 8 .b64 two_over_pi[{_WORDS}] = {{{words}}};"] = None
    high, low, _ = half_pi("d")
    b.declarations[_REDUCE.replace("HALF_PI_LOW", f64(low)).replace("HALF_PI", f64(high))] = None
