"""Divisions: integers, and many f32 by one divisor.

*Integers.* The assembler divides by a reciprocal that it computes in f32: a long chain of
instructions, each of which waits for the one before, by constants too. Here:

CONSTANT    A quotient by a power of two is a shift; to round towards zero, 2**k - 1 is added to negative
            dividends. By another constant d it is the high half of a product with m ≈ 2**(width + s) / d,
            shifted by s (Granlund and Montgomery, "Division by invariant integers using multiplication",
            PLDI 1994, theorems 4.2 and 5.1). A remainder is x - (x / d) · d.
NARROW      64-bit numbers take a call of some 100 instructions. Offsets are mostly below 2**32 and positive,
            though 64 bits wide: then they are divided as 32-bit ones, and the call is rare code.
WRAPPED     ``x % n`` of a tensor mostly keeps indices inside a matrix, and most tiles lie inside anyway: then
            the remainder is x, and dividing is rare code. Where that is so says ``mostly_inside``.
SHARED      Where ``x / n`` is computed as well, ``x % n`` is x - (x / n) · n, or all ones for an n of zero.
            Where that is so says ``by_quotient``.

The first two are no choices: every constant divisor, and every pair of 64-bit numbers, is divided so.

*Quotients of many f32 by one divisor.* ``div.full.f32`` is ``(x · k) · rcp(y · k)`` with a power of two ``k``
that keeps the reciprocal normal: 1/4 for |y| > 2^126, 2^24 for |y| < 2^-126, else 1. (So ptxas expands it,
with two conditional multiplications for every dividend.) With one divisor for many dividends the reciprocal
is shared, and multiplying by ``k`` ≠ 1 is rare code: one multiplication for each dividend remains, with the
same bits as result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxforge.codegen_ptx.lower.elementwise import integer_class, sign_extended, width_of, zero_extended
from ptxforge.codegen_ptx.lower.indices import linear_of, run_starts
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import f32, is_constant
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation


def divide(b: Builder, x, y, bits: int, quotient: bool, signed: bool, natural: bool = False):
    """Integer quotient or remainder of two numbers of ``bits`` bits. ``natural``: x is not negative."""
    extend = sign_extended if signed else zero_extended
    x, y = extend(b, x, bits), extend(b, y, bits)
    width = width_of(bits)
    if isinstance(x, Register | tuple) and isinstance(y, int) and abs(y) in range(1, 1 << (width - 1)):
        if y > 0:
            return _by_constant(b, x, y, width, quotient, signed, natural)
        if signed:
            found = _by_constant(b, x, -y, width, quotient, signed, natural)
            return b.sub(0, found, width) if quotient else found
    return b.pure(_template(width, quotient, signed), integer_class(bits), b.plain(x), b.plain(y))


def _template(width: int, quotient: bool, signed: bool) -> str:
    return f"{'div' if quotient else 'rem'}.{'s' if signed else 'u'}{width} %s, %s, %s;"


# -- CONSTANT ---------------------------------------------------------------------------------------------


def _by_constant(b: Builder, x, divisor: int, width: int, quotient: bool, signed: bool, natural: bool):
    """By a constant from 1 to 2**(width - 1) - 1."""
    known = b.range_of(x) if width == 32 else None
    within = known is not None and known[0] >= 0 and b.fits(x)
    natural = natural or within
    precision = width - 1 if signed or natural else width
    signed = signed and not natural
    if divisor == 1:
        return x if quotient else 0
    if divisor & (divisor - 1) == 0:
        if natural and not within and b.split(x)[1] % divisor == 0:
            return _beside(b, *b.split(x), divisor, width, quotient)
        found = _by_power(b, b.plain(x), divisor, width, quotient, signed)
    else:
        found = _by_product(b, b.plain(x), divisor, width, quotient, signed, precision)
    if within:
        bounds = (known[0] // divisor, known[1] // divisor) if quotient else (0, divisor - 1)
        found.within(*bounds)
    return found


def _by_power(b: Builder, x: Register, divisor: int, width: int, quotient: bool, signed: bool) -> Register:
    kind, shift = integer_class(width), divisor.bit_length() - 1
    if not signed:
        if quotient:
            return _shifted(b, x, shift, "u", width)
        return b.pure(f"and.b{width} %s, %s, %s;", kind, x, divisor - 1)
    below = _shifted(b, _shifted(b, x, width - 1, "s", width), width - shift, "u", width)
    rounded = b.add(x, below, width)
    if quotient:
        return _shifted(b, rounded, shift, "s", width)
    return b.sub(x, b.pure(f"and.b{width} %s, %s, %s;", kind, rounded, -divisor), width)


def _beside(b: Builder, root: Register, multiple: int, divisor: int, width: int, quotient: bool):
    """Of ``root + multiple``, which is not negative as the root may be, by a power of two that divides the
    multiple: the remainder is the root's, the quotient as far from its quotient as ever."""
    if quotient:
        found = _shifted(b, root, divisor.bit_length() - 1, "s", width)
        return b.affine(found, multiple // divisor, width)
    return b.pure(f"and.b{width} %s, %s, %s;", integer_class(width), root, divisor - 1)


def _by_product(
    b: Builder, x: Register, divisor: int, width: int, quotient: bool, signed: bool, precision: int
) -> Register:
    """``precision``: that x is below 2**precision."""
    found = _quotient(b, x, divisor, width, signed, precision)
    return found if quotient else b.sub(x, b.mul(found, divisor, width), width)


def _quotient(b: Builder, x: Register, divisor: int, width: int, signed: bool, precision: int) -> Register:
    kind, sign = integer_class(width), "s" if signed else "u"
    factor, shift = _multiplier(divisor, width, precision)
    excess = factor >= 1 << (width - 1 if signed else width)
    if excess:
        factor -= 1 << width
    high = b.pure(f"mul.hi.{sign}{width} %s, %s, %s;", kind, x, factor)
    if signed:
        high = b.add(high, x, width) if excess else high
        return b.sub(_shifted(b, high, shift, "s", width), _shifted(b, x, width - 1, "s", width), width)
    if excess:
        # (x + high) / 2 without the carry that the sum would lose.
        high, shift = b.add(_shifted(b, b.sub(x, high, width), 1, "u", width), high, width), shift - 1
    return _shifted(b, high, shift, "u", width)


def _shifted(b: Builder, x: Register, amount: int, sign: str, width: int) -> Register:
    if amount == 0:
        return x
    return b.pure(f"shr.{sign}{width} %s, %s, %s;", integer_class(width), x, amount)


def _multiplier(divisor: int, width: int, precision: int) -> tuple[int, int]:
    """The m and the smallest s with x // d == (x · m) >> (width + s) for all 0 <= x < 2**precision;
    m < 2**(width + 1)."""
    shift = 0
    while True:
        power = 1 << (width + shift)
        factor = power // divisor + 1
        if factor * divisor - power <= 1 << (width + shift - precision):
            return factor, shift
        shift += 1


# -- NARROW -----------------------------------------------------------------------------------------------


def narrow_first(b: Builder, pairs: Iterable[tuple], quotient: bool, signed: bool) -> dict[tuple, Register]:
    """Quotients or remainders, by pair, of those pairs of 64-bit numbers whose divisor is not known: one look
    at all of them tells whether they fit into 32 bits. A division by zero is rare as well, whose result has
    64 bits."""
    chosen = [pair for pair in dict.fromkeys(pairs) if not any(isinstance(x, int) for x in pair)]
    template = _template(64, quotient, signed)
    results = {pair: b.known((template, pair)) for pair in chosen}
    missing = {pair: b.new("q") for pair in chosen if results[pair] is None}
    if missing:
        _narrow(b, missing, quotient, signed)
    for pair, found in missing.items():
        b.remember((template, pair), found)
    return results | missing


def _narrow(b: Builder, results: dict[tuple, Register], quotient: bool, signed: bool) -> None:
    """Write the quotients or remainders of pairs of 64-bit registers to the registers given for them."""
    plain = {pair: (b.plain(pair[0]), b.plain(pair[1])) for pair in results}
    numbers = dict.fromkeys(x for pair in plain.values() for x in pair)
    numbers |= dict.fromkeys(b.plain(b.add(y, -1, 64)) for _, y in plain.values())
    either, *rest = numbers
    for x in rest:
        either = b.pure("or.b64 %s, %s, %s;", "q", either, x)
    rare = b.pure("setp.gt.u64 %s, %s, %s;", "p", either, (1 << 32) - 1)
    low = {x: b.pure("cvt.u32.u64 %s, %s;", "r", x) for pair in plain.values() for x in pair}
    for pair, (x, y) in plain.items():
        found = b.pure("div.u32 %s, %s, %s;", "r", low[x], low[y])  # one for a quotient and its remainder
        found = found if quotient else b.plain(b.sub(low[x], b.mul(found, low[y], 32), 32))
        b.copy(results[pair], b.pure("cvt.u64.u32 %s, %s;", "q", found))
    end = b.skip_unless(rare, "narrow")
    for pair, (x, y) in plain.items():
        b.effect(_template(64, quotient, signed), results[pair], x, y)
    b.place(end)


# -- remainders --------------------------------------------------------------------------------------------


def runs_upwards(op: Operation, dividends: Sequence) -> Sequence[int]:
    """For each register the first one whose element lies in the same run, in which the remainder counts up
    like the dividend (``contiguity``): if both dividends differ by a constant."""
    if not isinstance(op.result.type, T.TensorType):
        return range(len(dividends))
    lengths = op.attributes.get("contiguity", (1,) * op.result.type.rank)
    starts = run_starts(linear_of(op.result.type), lengths)
    roots = [Builder.split(x)[0] for x in dividends]
    return [s if roots[s] == roots[register] else register for register, s in enumerate(starts)]


# -- WRAPPED ----------------------------------------------------------------------------------------------


def remainders(
    b: Builder, pairs: list[tuple], bits: int, signed: bool, inside: bool = False, natural: bool = False
) -> list:
    """The remainders of pairs (dividend, divisor) of 32- or 64-bit numbers; ``inside`` says to expect them to
    be the dividends, ``natural`` that these are not negative."""
    groups: dict[object, dict] = {}
    for x, y in pairs:
        groups.setdefault(y, {})[x] = None
    found = {
        (x, y): remainder
        for y, xs in groups.items()
        if inside and not isinstance(y, int)
        for x, remainder in _by_one(b, list(xs), y, bits, signed).items()
    }
    if bits == 64:
        found |= narrow_first(b, [pair for pair in pairs if pair not in found], False, signed)
    rest = (pair for pair in dict.fromkeys(pairs) if pair not in found)
    found |= {pair: divide(b, *pair, bits, False, signed, natural) for pair in rest}
    return [found[pair] for pair in pairs]


def _by_one(b: Builder, dividends: list, divisor, bits: int, signed: bool) -> dict:
    """Remainders by dividend."""
    kind = integer_class(bits)
    divisor = b.plain(divisor)
    size = b.pure(f"abs.s{bits} %s, %s;", kind, divisor) if signed else divisor
    plain = {x: b.plain(x) for x in dividends}
    outside = None
    for x in plain.values():
        beyond = b.pure(f"setp.ge.u{bits} %s, %s, %s;", "p", x, size)
        outside = beyond if outside is None else b.pure("or.pred %s, %s, %s;", "p", outside, beyond)
    registers = {x: b.new(kind) for x in dividends}
    for x, register in registers.items():
        b.copy(register, plain[x])
    with b.rare(outside):
        if bits == 64:
            _narrow(b, {(plain[x], divisor): register for x, register in registers.items()}, False, signed)
        else:
            for register in registers.values():
                b.effect(_template(bits, False, signed), register, register, divisor)
    return registers


# -- SHARED -----------------------------------------------------------------------------------------------


def remainders_by_quotients(b: Builder, pairs: list[tuple], bits: int, signed: bool) -> list:
    """The remainders of pairs (dividend, divisor) of 32- or 64-bit numbers whose quotients are computed as
    well, before or behind."""
    quotients = narrow_first(b, pairs, True, signed) if bits == 64 else {}
    found = {}
    for pair in dict.fromkeys(pairs):
        quotient = quotients[pair] if pair in quotients else divide(b, *pair, bits, True, signed)
        found[pair] = _rest(b, *pair, quotient, bits)
    return [found[pair] for pair in pairs]


def _rest(b: Builder, x, y, quotient, bits: int):
    """What is left of a dividend; all ones where there is no quotient."""
    rest = b.sub(x, b.mul(quotient, y, bits), bits)
    divisors = b.range_of(y) if bits == 32 else None
    if isinstance(y, int) or (divisors is not None and divisors[0] > 0):
        return rest
    divides = b.pure(f"setp.ne.b{bits} %s, %s, 0;", "p", b.plain(y))
    return b.pure(f"selp.b{bits} %s, %s, -1, %s;", integer_class(bits), b.plain(rest), divides)


# -- quotients of f32 -------------------------------------------------------------------------------------


def quotients(b: Builder, dividends: list, divisors: list, fewest: int) -> list:
    """The quotients of two lists of f32 operands, entry by entry; from ``fewest`` dividends on, if that is
    not 0, a divisor's reciprocal is computed once."""
    groups: dict[object, dict] = {}
    for x, y in zip(dividends, divisors, strict=True):
        groups.setdefault(y, {})[x] = None
    found = {y: _by_one_float(b, list(xs), y, fewest) for y, xs in groups.items()}
    return [found[y][x] for x, y in zip(dividends, divisors)]


def _by_one_float(b: Builder, dividends: list, divisor, fewest: int) -> dict:
    """Quotients by dividend."""
    registers = [x for x in dividends if not is_constant(x)]
    if not fewest or len(registers) < fewest or is_constant(divisor):
        return {x: b.pure("div.full.f32 %s, %s, %s;", "f", x, divisor) for x in dividends}
    size = b.pure("abs.f32 %s, %s;", "f", divisor)
    large = b.pure("setp.gt.f32 %s, %s, %s;", "p", size, f32(2.0**126))
    small = b.pure("setp.lt.f32 %s, %s, %s;", "p", size, f32(2.0**-126))
    scale = b.pure("selp.f32 %s, %s, %s, %s;", "f", f32(2.0**24), f32(1.0), small)
    scale = b.pure("selp.f32 %s, %s, %s, %s;", "f", f32(0.25), scale, large)
    product = b.pure("mul.rn.f32 %s, %s, %s;", "f", divisor, scale)
    reciprocal = b.pure("rcp.approx.ftz.f32 %s, %s;", "f", product)
    scaled = {x: b.new("f") for x in dividends}
    for x, register in scaled.items():
        b.copy(register, x)
    with b.rare(b.pure("or.pred %s, %s, %s;", "p", large, small)):
        for register in scaled.values():
            b.effect("mul.rn.f32 %s, %s, %s;", register, register, scale)
    return {x: b.pure("mul.rn.f32 %s, %s, %s;", "f", y, reciprocal) for x, y in scaled.items()}
