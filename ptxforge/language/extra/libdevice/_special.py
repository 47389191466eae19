"""Special functions: gamma and its logarithm, the error function's relatives, the normal distribution.

A table has coefficients for float64, then for float32, of highest degree first, fitted at Chebyshev's points
in 220 bits; the variable is mapped to [-1, 1].
"""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice._exponentials import _exp
from ptxforge.language.extra.libdevice._floats import (
    polynomial,
    polynomial_between,
    polynomials_between,
    two_product,
)
from ptxforge.language.extra.libdevice._trigonometry import sinpi
from ptxforge.language.registry import library
from ptxforge.language.types import PropagateNan, float32, float64

NEAR_1 = constexpr((
    (
        -7.979598225397292e-10, 1.6469928917833468e-09, 2.1827709860649723e-09, -4.490075610433403e-09,
        -8.21181742556287e-09, 1.6982931758783137e-08, -3.047966636629851e-09, 6.622054396429401e-09,
        -5.307208518126023e-08, 1.1130501823817055e-07, -2.0208808679067717e-07, 4.2744933031519466e-07,
        -9.256025456119982e-07, 1.9703047200189415e-06, -4.204031791898769e-06, 9.029658952007896e-06,
        -1.9503491369358582e-05, 4.2393636763432495e-05, -9.285766952675569e-05, 0.0002052981182133205,
        -0.00045920266722066384, 0.0010426832555553084, -0.0024161927666072084, 0.005764938028979333,
        -0.014393317820479734, 0.0388585664659889, -0.12262568426129018, 0.5772156649015329,
    ),
    (
        1.9717916e-5, -4.2252315e-5, 2.6938773e-5, -5.9993814e-5, 2.1523087e-4, -4.8031457e-4,
        1.0396758e-3, -2.409802e-3, 5.7653217e-3, -1.4394132e-2, 3.885855e-2, -1.2262566e-1, 5.772157e-1,
    ),
))  # fmt: skip
"""lgamma(x) / ((x - 1) (x - 2)) for x from 0.5 to 1.5."""

NEAR_2 = constexpr((
    (
        1.0793695910668129e-11, -3.377714967085556e-11, 4.92361707655989e-11, -1.5541470807813495e-10,
        6.194339630121299e-10, -1.9609769273489686e-09, 6.067625171423504e-09, -1.9352272055410812e-08,
        6.211572570822804e-08, -1.9998382152832278e-07, 6.477165472702376e-07, -2.113574573485792e-06,
        6.96012938268613e-06, -2.3187395980633794e-05, 7.842743111330793e-05, -0.00027076146607226754,
        0.0009622289503497507, -0.003570760544169681, 0.014213449664599944, -0.06441063566344568,
        0.3995894876556691,
    ),
    (
        -2.7041647e-6, 8.869523e-6, -2.2643666e-5, 7.6670476e-5, -2.7096012e-4, 9.628707e-4,
        -3.5707355e-3, 1.4213368e-2, -6.4410634e-2, 3.9958948e-1,
    ),
))  # fmt: skip
"""The same for x from 1.5 to 3."""

STIRLING = constexpr((
    (
        1.15185352118627e-15, -4.8106265025283106e-14, 2.8769112170847075e-12, -2.718191768252192e-10,
        4.760738262224275e-08, -2.1605346910997007e-05, 0.08331168010429436,
    ),
    (
        4.760954e-8, -2.160555e-5, 8.331168e-2,
    ),
))  # fmt: skip
"""(lgamma(x) - (x - 1/2) log x + x - log(2π)/2) · x in 1/x², for x from 8."""

GAMMA = constexpr((
    (
        3.1107055603112123e-12, -1.5443061779555456e-11, 6.51572360327812e-11, -3.080763108698437e-10,
        1.7718103539968532e-09, -6.2550094513430585e-09, 5.989210476105906e-08, 7.701042460415819e-09,
        2.9471647009899543e-06, 1.255781561154807e-05, 0.0001623813035082171, 0.0008862743936967716,
        0.0068545771251365545, 0.03173390585513512, 0.16363964449533416, 0.4673672608130429,
        1.329340388179137,
    ),
    (
        3.088195e-6, 1.2552642e-5, 1.6227401e-4, 8.8628376e-4, 6.8546073e-3, 3.1733904e-2, 1.6363963e-1,
        4.6736726e-1, 1.3293403,
    ),
))  # fmt: skip
"""Γ(x) for x from 2 to 3."""

GAMMA_FAR = constexpr((
    (
        2.215964252440953e-15, -1.211092861071118e-13, -5.256872747236651e-13, 9.795581728498845e-11,
        -1.9836185564280634e-10, -1.9574090718180698e-07, 5.443115869126454e-06, 0.0034836943911667946,
        1.0034780558311105,
    ),
    (
        -1.9564305e-7, 5.442917e-6, 3.4836943e-3, 1.003478,
    ),
))  # fmt: skip
"""Γ(x) / (sqrt(2π) x**(x - 1/2) exp(-x)) in 1/x, for x from 12."""


@library
def _lgamma_positive(x):
    """lgamma of a float64 ``x`` above 0. Up to 3 a polynomial times the zeros at 1 and 2, up to 8 that of a
    number from 2 to 3 and the logarithm of what lies between, then Stirling's series."""
    is_small = x < 0.5
    near = arith.where(is_small, x + 1.0, x)
    zeros = arith.where(is_small, x * (x - 1.0), (x - 1.0) * (x - 2.0))
    near_1 = zeros * polynomial_between(near, 0.5, 1.5, NEAR_1[0])
    # Down to 2 … 3 by products.
    here, product = arith.minimum(x, 8.0), core.full(x.shape, 1.0, x.dtype)
    for _ in core.static_range(5):
        is_far = here >= 3.0
        here = arith.where(is_far, here - 1.0, here)
        product = arith.where(is_far, product * here, product)
    near_2 = (here - 1.0) * (here - 2.0) * polynomial_between(here, 1.5, 3.0, NEAR_2[0])
    log = math.log(arith.where(is_small | (x >= 8.0), x, product))
    far = arith.maximum(x, 8.0)
    inverse = math.div_rn(1.0, far)
    series = inverse * polynomial_between(inverse * inverse, 0.0, 0.015625, STIRLING[0])
    far = math.fma(far - 0.5, log - 1.0, 0.4189385332046727 + series)
    middle = arith.where(x < 3.0, near_2, near_2 + log)
    value = arith.where(x < 1.5, near_1, arith.where(x < 8.0, middle, far))
    return arith.where(is_small, near_1 - log, arith.where(x == float("inf"), x, value))


@library
def lgamma(x):
    """The logarithm of the magnitude of the gamma function at ``x``: within 4 ulp above -2.26; below, where
    it has zeros, that many ulp of the larger one of ``log(π / |x sin πx|)`` and ``lgamma(-x)``, whose
    difference it is. Of infinities inf; of integers up to 0 inf.

    float32 is computed in float64, and within 1 ulp.
    """
    return _lgamma(x.to(float64)).to(x.dtype)


@library
def _lgamma(x):
    """:func:`lgamma` of a float64."""
    size = math.abs(x)
    positive = _lgamma_positive(arith.where(size == 0.0, 1.0, size))
    wave = math.abs(sinpi(x))
    reflected = math.log(math.div_rn(3.141592653589793, arith.where(wave == 0.0, 1.0, size * wave)))
    negative = arith.where(wave == 0.0, float("inf"), reflected - positive)
    tiny = -math.log(size)
    value = arith.where(x > 0.0, positive, arith.where(size < 1e-19, tiny, negative))
    value = arith.where(value == 0.0, 0.0, value)
    return arith.where(size == float("inf"), size, arith.where(x == x, value, x))


@library
def _gamma_positive(x):
    """Γ of a float64 ``x`` from 0.5, and a factor that it is still to be multiplied by: up to 12 products and
    a polynomial, then ``sqrt(2π) x**(x - 1/2) exp(-x)`` times a series in 1/x."""
    small = arith.minimum(x, 12.0)
    is_below_2 = small < 2.0
    is_below_1 = small < 1.0
    here = arith.where(is_below_1, small + 2.0, arith.where(is_below_2, small + 1.0, small))
    product = core.full(x.shape, 1.0, x.dtype)
    for _ in core.static_range(9):
        is_far = here >= 3.0
        here = arith.where(is_far, here - 1.0, here)
        product = arith.where(is_far, product * here, product)
    divisor = arith.where(is_below_1, small * (small + 1.0), arith.where(is_below_2, small, 1.0))
    near = math.div_rn(polynomial_between(here, 2.0, 3.0, GAMMA[0]), divisor) * product
    large = arith.maximum(x, 12.0)
    series = polynomial_between(math.div_rn(1.0, large), 0.0, 0.08333333333333333, GAMMA_FAR[0])
    half = math.pow(large, math.fma(large, 0.5, -0.25))
    far = half * _exp(-large, 0) * (series * 2.5066282746310002)
    return arith.where(x < 12.0, near, far), arith.where(x < 12.0, 1.0, half)


@library
def tgamma(x):
    """The gamma function of ``x``: within 8 ulp. tgamma(±0.0) is ±inf, tgamma(inf) is inf, of negative
    integers and -inf NaN.

    Of negative numbers ``-π / (x sin(πx) Γ(-x))``. float32 is computed in float64, and within 1 ulp.
    """
    return _tgamma(x.to(float64)).to(x.dtype)


@library
def _tgamma(x):
    """:func:`tgamma` of a float64."""
    size = math.abs(x)
    is_reflected = x < 0.5
    argument = arith.where(is_reflected, arith.where(x < -0.5, size, 1.0 - x), x)
    value, factor = _gamma_positive(arith.clamp(argument, 0.5, 185.0, PropagateNan.ALL))
    wave = sinpi(x)
    # Γ(x) = π / (sin(πx) Γ(1 - x)) = -π / (x sin(πx) Γ(-x))
    divisor = arith.where(x < -0.5, -x * wave, wave)
    divisor = arith.where(wave == 0.0, 1.0, divisor)
    mirrored = math.div_rn(math.div_rn(3.141592653589793, divisor * value), factor)
    mirrored = arith.where(size < 1e-17, math.div_rn(1.0, x), mirrored)
    is_pole = (x < 0.0) & (math.floor(x) == x)
    value = arith.where(is_reflected, mirrored, value * factor)
    value = arith.where(x > 172.0, float("inf"), value)
    return arith.where(is_pole | (x != x), float("nan"), value)


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
