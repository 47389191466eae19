"""The error function's relatives and the normal distribution.

Coefficients of the error function's relatives.

A table has coefficients for float64, then for float32, of highest degree first, fitted at Chebyshev's points
in 220 bits; the variable is mapped to [-1, 1].
"""

from __future__ import annotations

from ptxforge.language import arith, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice._exponentials import _exp
from ptxforge.language.extra.libdevice._floats import (
    polynomial,
    polynomial_between,
    polynomials_between,
    two_product,
)
from ptxforge.language.registry import library
from ptxforge.language.types import PropagateNan, float32, float64

ERFCX = constexpr((
    (
        -2.7641202337342176e-10, 9.297625263710003e-10, 3.2323973445080105e-09, -1.2338731403798628e-08,
        -2.0725802488181516e-08, 1.0631817593818191e-07, 7.771943241086854e-08, -8.210647933297342e-07,
        2.917342557308978e-07, 5.706578299240741e-06, -1.1221135665965907e-05, -2.4397731143023292e-05,
        0.00015062142608651945, -0.0001992571524726518, -0.0007577732435942576, 0.005031970069102256,
        -0.01619773406293477, 0.037167515526338006, -0.06633036581186058, 0.09373283499911264,
        -0.10103906603631811, 0.06809705425466839, 0.015379652102619974, -0.13962111684056228,
        1.2329951186255526,
    ),
    (
        1.16608e-4, -2.486323e-4, -7.1633945e-4, 5.0828094e-3, -1.6222274e-2, 3.713992e-2, -6.632326e-2,
        9.374044e-2, -1.0103995e-1, 6.809613e-2, 1.5379684e-2, -1.3962108e-1, 1.2329952,
    ),
))  # fmt: skip
"""erfcx(x) · (1 + 2x) for all x from 0, in (x - 4) / (x + 4)."""

INVERSE_CENTRE = constexpr((
    (
        -2.7032254091069344e-10, 7.689312733742569e-10, 1.5401738716654886e-09, -8.562787796742932e-09,
        4.792369996100387e-09, 3.915473114023045e-08, -9.867713140174249e-08, -1.0185147576818285e-08,
        5.394320648707009e-07, -1.059321402540731e-06, -6.83718721812117e-07, 7.1300572630824496e-06,
        -1.1257319182677936e-05, -1.5027710420277575e-05, 9.33673917780479e-05, -0.0001168888399309713,
        -0.0002643936684366174, 0.0012324855686812834, -0.0012716922684373015, -0.00413731437741443,
        0.017808361818295655, -0.022604447453449802, -0.05892256710377784, 0.7504943200799635,
        1.6536545626831027,
    ),
    (
        6.5434557e-7, 5.9301685e-5, -1.3252553e-4, -2.2648746e-4, 1.2401178e-3, -1.2911827e-3,
        -4.1390457e-3, 1.7812906e-2, -2.2604302e-2, -5.8922954e-2, 7.504943e-1, 1.6536546,
    ),
))  # fmt: skip
"""erfinv(x) / x in w = -log(1 - x²) for w from 0 to 6.25."""

INVERSE_TAIL = constexpr((
    (
        (
            2.4355543452655723e-11, -6.471554767207546e-11, -1.179100761769929e-10, 9.891297510532429e-10,
            -2.4605291139227303e-09, -3.6906087078089294e-10, 2.63990323529153e-08, -9.468946844911027e-08,
            9.289338749101434e-08, 5.264621626938461e-07, -2.664793846715906e-06, 5.127316786334848e-06,
            2.405864805789804e-06, -4.7391827316182325e-05, 0.00016966502197543766,
            -0.00040063569835358583, 0.0007883078513066945, -0.0015825410894073097, 0.0030211394363747063,
            0.753944225770624, 3.0838856104922208,
        ),
        (
            -5.9657093411553645e-12, 2.5349148528206527e-11, -3.5815405535187326e-11,
            -2.6015560345948585e-11, 3.0261498893003407e-10, -1.148800571103623e-09,
            3.1682796058171477e-09, -7.04393298739029e-09, 1.338431560332405e-08, -2.328175713926913e-08,
            4.2940624563929846e-08, -1.0711466809268775e-07, 3.839833487899148e-07,
            -1.6195268284969994e-06, 6.891264374853721e-06, -2.764059170473629e-05, 9.780198006401693e-05,
            -0.0002482488260303103, -0.00024061923103050028, 1.1112932209525201, 4.950934853078874,
        ),
        (
            7.375908980599807e-12, -2.455966081743493e-11, 4.223781624709983e-11, -1.3525412902057405e-10,
            5.153825849706292e-10, -1.6302673192255673e-09, 4.987220590201865e-09, -1.5364956579741544e-08,
            4.6714375910461945e-08, -1.392742236175372e-07, 4.0597767025971375e-07,
            -1.1487542632126156e-06, 3.1143909632493645e-06, -7.884625548354826e-06, 1.752265500605488e-05,
            -2.731807484429235e-05, -2.1781711003955558e-05, 0.0004986597457975334, -0.0033874355272553915,
            2.9192739597305875, 8.984939177788311,
        ),
        (
            2.8498902251218686e-10, -6.947069873119936e-10, 1.8372989572557824e-10, -3.761696092177564e-10,
            4.069282400730988e-09, -9.285875262626993e-09, 1.6373345230500394e-08, -3.3608584392274834e-08,
            6.608237339557938e-08, -1.0361353370388409e-07, 7.892583770267992e-08, 3.214917663238371e-07,
            -2.319113310174386e-06, 1.0262130567849573e-05, -3.8955087893121176e-05,
            0.00013766744693380557, -0.0004691263931983506, 0.0015748395291074887, -0.0053097441333976965,
            7.718512188715553, 19.62734227797605,
        ),
    ),
    (
        (
            -2.299988e-6, 6.1248543e-6, 2.0086827e-6, -4.8246147e-5, 1.69845e-4, -4.0029056e-4,
            7.8827515e-4, -1.5826002e-3, 3.021141e-3, 7.539442e-1, 3.0838857,
        ),
        (
            2.6838285e-5, -5.834915e-5, 5.1763454e-5, -1.030534e-4, 2.5891428e-4, -4.316888e-4,
            4.8631296e-4, 2.79459e-4, -4.978068e-3, 3.1514618, 6.995086,
        ),
    ),
))  # fmt: skip
"""erfinv(x) / x in the square root of w, between the edges."""

INVERSE_EDGES = constexpr(((2.5, 4.0, 6.2, 12.0, 27.4), (2.5, 4.0, 10.25)))

INVERSE_NEAR = constexpr((
    3.16361366e-05, 6.00136664e-05, 3.70196267e-06, 9.43128998e-06, 0.000175669018, 0.000346291868,
    0.00058769068, 0.00120672793, 0.00257205707, 0.00556695275, 0.0125931986, 0.0305396374,
    0.0834654644, 0.293714017,
))  # fmt: skip
"""For float32: (erfinv(x) / x - sqrt(π) / 2) / x² in x² up to 0.7225."""


@library
def _erfcx_positive(x):
    """exp(x²) · erfc(x) for ``x`` from 0: a polynomial over 1 + 2x (M. M. Shepherd, J. G. Laframboise,
    *Chebyshev Approximation of (1 + 2x) exp(x²) erfc x*, 1981)."""
    row: constexpr = 0 if x.dtype == float64 else 1
    bounded = arith.minimum(x, 1e15, PropagateNan.ALL)
    t = math.div_rn(bounded - 4.0, bounded + 4.0)
    value = math.div_rn(polynomial(t, ERFCX[row]), math.fma(bounded, 2.0, 1.0))
    return arith.where(x > 1e15, math.div_rn(0.5641895835477563, x), value)


@library
def erfcx(x):
    """exp(x²) · erfc(``x``), scaled so as not to vanish: within 4 ulp. erfcx(inf) is 0, erfcx(-inf) inf.

    For negative ``x`` it is 2 exp(x²) - erfcx(-x).
    """
    size = math.abs(x)
    positive = _erfcx_positive(size)
    high, low = two_product(arith.minimum(size, 30.0), arith.minimum(size, 30.0))
    return arith.where(x < 0.0, 2.0 * _exp(high, 0, low) - positive, positive)


@library
def erfc(x):
    """1 - erf(``x``) without cancellation: within 4 ulp. erfc(inf) is 0, erfc(-inf) is 2."""
    far = arith.clamp(x, 0.5, 30.0, PropagateNan.ALL)
    high, low = two_product(far, far)
    return arith.where(x < 0.5, 1.0 - math.erf(x), _exp(-high, 0, -low) * _erfcx_positive(far))


@library
def normcdf(x):
    """The normal distribution's probability of a value below ``x``: within 4 ulp. normcdf(-inf) is 0,
    normcdf(inf) is 1.

    Below -0.7 it is exp(-x²/2) erfcx(-x / sqrt 2) / 2: exp takes x² as it is, where erfc would suffer from
    the rounded ``x / sqrt 2``.
    """
    far = arith.clamp(x, -40.0, -0.7, PropagateNan.ALL)
    high, low = two_product(far, far)
    tail = _exp(-0.5 * high, 1, -0.5 * low) * _erfcx_positive(far * -0.7071067811865476)
    return arith.where(x < -0.7, tail, math.fma(math.erf(x * 0.7071067811865476), 0.5, 0.5))


# -- inverses ----------------------------------------------------------------------------------------------


@library
def _erfinv(x, w):
    """erfinv(x) for ``w = -log(1 - x²)``: x times a function of w (M. Giles, *Approximating the erfinv
    function*, 2012)."""
    row: constexpr = 0 if x.dtype == float64 else 1
    # The product with the leading constant is rounded apart from the rest, which is small.
    z = (w - 3.125) * 0.32
    rest = polynomial(z, INVERSE_CENTRE[row][:-1]) * z
    centre = math.fma(x, rest, x * INVERSE_CENTRE[row][-1])
    if x.dtype == float32:
        square = x * x
        near = polynomial_between(square, 0.0, 0.7225, INVERSE_NEAR)
        series = math.fma(square, near, -2.6623e-08)  # and what sqrt(π) / 2 lacks
        centre = arith.where(math.abs(x) < 0.85, math.fma(x, 0.886226952, x * series), centre)
    root = math.sqrt_rn(arith.maximum(w, 6.25))
    return arith.where(
        w < 6.25, centre, x * polynomials_between(root, INVERSE_EDGES[row], INVERSE_TAIL[row])
    )


@library
def erfinv(x):
    """The number whose error function is ``x``: within 2 ulp. erfinv(±1) is ±inf, beyond NaN."""
    size = math.abs(x)
    value = _erfinv(x, -math.log((1.0 - size) * (1.0 + size)))
    edge = arith.where(size == 1.0, x * float("inf"), float("nan"))
    return arith.where(size < 1.0, arith.where(x == 0.0, x, value), edge)


@library
def erfcinv(x):
    """The number whose complementary error function is ``x``: within 4 ulp. erfcinv(0) is inf, erfcinv(2)
    -inf, beyond NaN."""
    value = _erfinv(1.0 - x, -math.log(x * (2.0 - x)))
    is_inside = (x > 0.0) & (x < 2.0)
    edge = arith.where(x == 0.0, float("inf"), arith.where(x == 2.0, float("-inf"), float("nan")))
    return arith.where(is_inside, value, edge)


@library
def normcdfinv(x):
    """The value below which the normal distribution has the probability ``x``: within 5 ulp. normcdfinv(0) is
    -inf, normcdfinv(1) inf, beyond NaN."""
    value = erfcinv(x + x)
    return arith.where(value == 0.0, 0.0, -1.4142135623730951 * value)
