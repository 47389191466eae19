"""Random numbers from a counter: Philox-4x32-10 (and 4x64-10).

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, *Parallel random numbers: as easy as 1, 2, 3* (2011). The
stream is a function of a seed and an offset, the same on every machine, and Triton's bit for bit. ``seed`` is
an integer scalar, ``offset`` a scalar or block of integers, of which each gives a number of its own;
``n_rounds`` is a compile-time integer. A seed of another type is a compile-time error.
"""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.core import static_assert
from ptxforge.language.registry import constexpr_function, library
from ptxforge.language.types import int32, int64, uint32, uint64

N_ROUNDS_DEFAULT = constexpr(10)
_WEYL = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}
_MULTIPLIERS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}


@constexpr_function
def _constants(bits):
    """Two key increments (the golden ratio and sqrt(3) - 1) and two multipliers, as the paper's
    Philox-4x{bits} has them."""
    return (*_WEYL[bits], *_MULTIPLIERS[bits])


@library
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """``n_rounds`` rounds on the counter ``(c0, c1, c2, c3)`` with the key ``(k0, k1)``: the new counter,
    four values.

    All are uint32 or all are uint64 (else a compile-time error).
    """
    static_assert(c0.dtype == uint32 or c0.dtype == uint64, "philox_impl() takes uint32 or uint64")
    constants: constexpr = _constants(c0.dtype.primitive_bitwidth)
    for _ in core.static_range(n_rounds):
        high0, low0 = math.umulhi(constants[2], c0), c0 * constants[2]
        high1, low1 = math.umulhi(constants[3], c2), c2 * constants[3]
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = k0 + constants[0]
        k1 = k1 + constants[1]
    return c0, c1, c2, c3


@library
def philox(seed, c0, c1, c2, c3, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four random integers for an integer ``seed`` and the counters ``c0``, ``c1``, ``c2``, ``c3``.

    They have the counters' width: uint32 for 32 bits, uint64 for 64 bits, and their shape. ``n_rounds`` is 10
    in the paper's recommendation.
    """
    seed = core.to_tensor(seed)
    static_assert(seed.dtype.is_int(), "a seed is an integer")
    seed = seed.to(uint64)
    c0 = core.to_tensor(c0)
    if c0.dtype.primitive_bitwidth == 32:
        word: constexpr = uint32
        low = seed.to(uint32)
        high = (seed >> 32).to(uint32)
    else:
        word: constexpr = uint64
        low = seed
        high = seed * 0
    c1, c2, c3 = core.to_tensor(c1), core.to_tensor(c2), core.to_tensor(c3)
    return philox_impl(c0.to(word), c1.to(word), c2.to(word), c3.to(word), low, high, n_rounds)


@library
def randint4x(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four blocks of random uint32 of ``offset``'s shape, for ``seed`` and ``offset``, in ``n_rounds``
    rounds.

        a, b, c, d = tl.randint4x(seed, offsets)
    """
    offset = core.to_tensor(offset)
    low = offset.to(uint32)
    zero = low * 0
    if offset.dtype.primitive_bitwidth > 32:
        high = (offset >> 32).to(uint32)
    else:
        high = zero
    return philox(seed, low, high, zero, zero, n_rounds)


@library
def randint(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """A block of random uint32 of ``offset``'s shape, for ``seed`` and ``offset``, in ``n_rounds`` rounds.

    Of four that are computed one is used: :func:`randint4x` has all.
    """
    return randint4x(seed, offset, n_rounds)[0]


@library
def uint_to_uniform_float(x):
    """Random integers ``x`` of 32 or 64 bits as float32, uniform in [0, 1).

    Other widths are a compile-time error.
    """
    if x.dtype.primitive_bitwidth == 32:
        x = x.to(int32, bitcast=True)
        scale: constexpr = 4.6566127342e-10  # just below 2**-31
    else:
        static_assert(
            x.dtype.primitive_bitwidth == 64, "uint_to_uniform_float() takes 32- or 64-bit integers"
        )
        x = x.to(int64, bitcast=True)
        scale: constexpr = 1.0842020432385337e-19  # just below 2**-63
    return arith.where(x < 0, ~x, x) * scale


@library
def rand(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """A block of float32, uniform in [0, 1), of ``offset``'s shape, for ``seed`` and ``offset``, in
    ``n_rounds`` rounds.

    keep = tl.rand(seed, offsets) > p
    """
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@library
def rand4x(seed, offsets, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four blocks of float32, uniform in [0, 1), for ``seed`` and ``offsets``, in ``n_rounds`` rounds: for
    the price of one.

        a, b, c, d = tl.rand4x(seed, offsets)
    """
    a, b, c, d = randint4x(seed, offsets, n_rounds)
    return (
        uint_to_uniform_float(a),
        uint_to_uniform_float(b),
        uint_to_uniform_float(c),
        uint_to_uniform_float(d),
    )


@library
def pair_uniform_to_normal(u1, u2):
    """Two independent standard normal values from ``u1`` and ``u2``, uniform in [0, 1).

    G. E. P. Box, M. E. Muller, *A note on the generation of random normal deviates* (1958). ``u1`` below 1e-7
    counts as 1e-7: results are at most 5.7 in magnitude.
    """
    radius = math.sqrt(-2.0 * math.log(arith.maximum(1.0e-7, u1)))
    angle = 6.283185307179586 * u2
    return radius * math.cos(angle), radius * math.sin(angle)


@library
def randn(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """A block of standard normal float32 of ``offset``'s shape, for ``seed`` and ``offset``, in ``n_rounds``
    rounds.

    noise = tl.randn(seed, offsets)
    """
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))[0]


@library
def randn4x(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four blocks of standard normal float32, for ``seed`` and ``offset``, in ``n_rounds`` rounds: for the
    price of one.

        a, b, c, d = tl.randn4x(seed, offsets)
    """
    a, b, c, d = rand4x(seed, offset, n_rounds)
    n0, n1 = pair_uniform_to_normal(a, b)
    n2, n3 = pair_uniform_to_normal(c, d)
    return n0, n1, n2, n3
