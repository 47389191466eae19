"""Functions of the device library that are instructions: a table.

What they do is the PTX ISA's (*Floating-Point Instructions*, *Integer Arithmetic Instructions*,
*cvt*), bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.language.instructions import Form, Instruction
from ptxforge.language.types import dtype, float32, float64, int32, int64, uint32, uint64

MODES = {"rn": ("rn", "to nearest even"), "rz": ("rz", "towards zero"), "rd": ("rm", "down"),
         "ru": ("rp", "up")}  # fmt: skip
"""The library's word for a rounding mode, PTX's, and the docstring's."""

_FLOATS = {"f32": float32, "f64": float64}
_ARITHMETIC = {  # name: parameters, instruction, what it is
    "add": ("x, y", "add", "``x + y``"),
    "sub": ("x, y", "sub", "``x - y``"),
    "mul": ("x, y", "mul", "``x * y``"),
    "div": ("x, y", "div", "``x / y``"),
    "fma": ("x, y, z", "fma", "``x * y + z``"),
    "rcp": ("x", "rcp", "``1 / x``"),
    "sqrt": ("x", "sqrt", "the square root of ``x``"),
}
_INTEGERS = {"int": (int32, "s32"), "uint": (uint32, "u32"), "ll": (int64, "s64"), "ull": (uint64, "u64")}
_WORDS = {"s32": int32, "u32": uint32}
_ALL = {"s32": int32, "u32": uint32, "s64": int64, "u64": uint64}
_SIGNED = {uint32: int32, uint64: int64}


def _operands(parameters: str) -> str:
    return ", ".join(f"${i}" for i in range(parameters.count(",") + 2))


def _arithmetic() -> Iterator[Instruction]:
    """``add_rd`` … ``sqrt_ru``."""
    for name, (parameters, opcode, what) in _ARITHMETIC.items():
        count = parameters.count(",") + 1
        for mode, (suffix, words) in MODES.items():
            forms = [
                Form((type,) * count, type, f"{opcode}.{suffix}.{t} {_operands(parameters)};")
                for t, type in _FLOATS.items()
            ]
            doc = f"{what[0].upper() + what[1:]} of float32 or float64, rounded exactly {words}. Never fused."
            yield Instruction(f"{name}_{mode}", parameters, forms, doc)


def _to_integers() -> Iterator[Instruction]:
    """``float2int_rn`` … ``double2ull_ru``. As in Triton, unsigned results come in the signed type of their
    width."""
    for source, own in (("float", "f32"), ("double", "f64")):
        for name, (type, t) in _INTEGERS.items():
            for mode, (suffix, words) in MODES.items():
                result = _SIGNED.get(type, type)
                forms = [
                    Form((_FLOATS[f],), result, f"cvt.{suffix}i.{t}.{f} $0, $1;")
                    for f in sorted(_FLOATS, key=lambda f: f != own)
                ]
                nan = "0" if own == "f32" and type.primitive_bitwidth == 32 else "the highest bit alone"
                bits = f", in the bits of an {result.base.name}" if result is not type else ""
                doc = (
                    f"``x``, a float, as {type.base.name}{bits}, rounded exactly {words}; what does not fit"
                    f" becomes the nearest limit, a NaN of {_FLOATS[own].base.name} {nan}."
                )
                yield Instruction(f"{source}2{name}_{mode}", "x", forms, doc)


def _to_floats() -> Iterator[Instruction]:
    """``int2float_rn`` … ``ull2double_ru``, ``double2float_rd``. 32-bit integers are exact in float64, so
    only ``_rn`` is there."""
    for target, t in (("float", "f32"), ("double", "f64")):
        for name, (type, s) in _INTEGERS.items():
            for mode, (suffix, words) in MODES.items():
                if t == "f64" and type.primitive_bitwidth == 32 and mode != "rn":
                    continue
                doc = f"``x``, an {type.base.name}, as {_FLOATS[t].base.name}, rounded exactly {words}."
                form = Form((type,), _FLOATS[t], f"cvt.{suffix}.{t}.{s} $0, $1;")
                yield Instruction(f"{name}2{target}_{mode}", "x", [form], doc)
    for mode, (suffix, words) in MODES.items():
        doc = f"``x``, a float64, as float32, rounded exactly {words}."
        form = Form((float64,), float32, f"cvt.{suffix}.f32.f64 $0, $1;")
        yield Instruction(f"double2float_{mode}", "x", [form], doc)


def _same_type(text: str, count: int, types: dict[str, dtype]) -> list[Form]:
    """Forms whose result has the arguments' type; ``{t}`` in the text is PTX's name of it."""
    return [Form((type,) * count, type, text.format(t=t)) for t, type in types.items()]


def _counting(text: str) -> list[Form]:
    """Forms of 32- or 64-bit integers that give an int32; ``{t}`` is the width."""
    return [Form((type,), int32, text.format(t=type.primitive_bitwidth)) for type in _ALL.values()]


def _integers() -> Iterator[Instruction]:
    yield Instruction(
        "popc", "x", _counting("popc.b{t} $0, $1;"),
        "The number of bits set in ``x``, a 32- or 64-bit integer, as int32.",
    )  # fmt: skip
    yield Instruction(
        "clz", "x", _counting("clz.b{t} $0, $1;"),
        "The number of zero bits above the highest set bit of ``x``, a 32- or 64-bit integer, as int32; of 0"
        " all bits.",
    )  # fmt: skip
    lowest = "{{ .reg .b{t} mirrored; brev.b{t} mirrored, $1; bfind.shiftamt.u{t} $0, mirrored; }}"
    yield Instruction(
        "ffs", "x", _counting(lowest + " add.s32 $0, $0, 1;"),
        "The position of the lowest set bit of ``x``, a 32- or 64-bit integer, counted from 1, as int32; 0"
        " for 0.",
    )  # fmt: skip
    brev = [Form((type,), type, f"brev.b{t[1:]} $0, $1;") for t, type in _ALL.items()]
    yield Instruction(
        "brev", "x", brev, "The bits of ``x``, a 32- or 64-bit integer, in opposite order, as its type."
    )
    yield Instruction(
        "mulhi", "x, y", _same_type("mul.hi.{t} $0, $1, $2;", 2, _ALL),
        "The upper half of the product of ``x`` and ``y``, 32- or 64-bit integers of one type, with their"
        " sign.",
    )  # fmt: skip
    yield Instruction(
        "mul24", "x, y", _same_type("mul24.lo.{t} $0, $1, $2;", 2, _WORDS),
        "The low 32 bits of the product of the low 24 bits of ``x`` and ``y``, both int32 or both uint32.",
    )  # fmt: skip
    sad = [Form((x, x, z), x, f"sad.{t} $0, $1, $2, $3;") for z in (uint32, int32) for t, x in _WORDS.items()]
    yield Instruction(
        "sad", "x, y, z", sad,
        "``abs(x - y) + z`` of 32-bit integers ``x`` and ``y`` of one type and ``z``, without overflow of the"
        " difference.",
    )  # fmt: skip
    permute = [
        Form((x, x, s), x, "and.b32 $0, $3, 0x7777; prmt.b32 $0, $1, $2, $0;")
        for x in _WORDS.values()
        for s in _WORDS.values()
    ]
    yield Instruction(
        "byte_perm", "x, y, s", permute,
        "Four of the eight bytes of ``x`` (0 … 3) and ``y`` (4 … 7), 32-bit integers: byte i of the result is"
        " the one that the low three bits of the i-th hexadecimal digit of ``s`` name.",
    )  # fmt: skip


_LOG2_E, _LN_2, _LOG2_10, _LOG10_2 = "0f3FB8AA3B", "0f3F317218", "0f40549A78", "0f3E9A209B"
_FAST = (
    ("fast_sinf", "x", "sin.approx.ftz.f32 $0, $1;",
     "Sine of ``x``, a float32: within 2**-20.5 (absolute) in [-π, π], worse beyond. ``sin.approx.ftz``."),
    ("fast_cosf", "x", "cos.approx.ftz.f32 $0, $1;",
     "Cosine of ``x``, a float32: within 2**-20.5 (absolute) in [-π, π], worse beyond."
     " ``cos.approx.ftz``."),
    ("fast_tanf", "x",
     "{ .reg .f32 c; cos.approx.ftz.f32 c, $1; sin.approx.ftz.f32 $0, $1; div.approx.ftz.f32 $0, $0, c; }",
     "``fast_sinf(x) / fast_cosf(x)`` of ``x``, a float32: relative error as of those two."),
    ("fast_tanhf", "x", "tanh.approx.f32 $0, $1;",
     "Hyperbolic tangent of ``x``, a float32: relative error up to 2**-11. ``tanh.approx``."),
    ("fast_log2f", "x", "lg2.approx.ftz.f32 $0, $1;",
     "Logarithm of ``x``, a float32, to base 2: within 2**-22 (absolute) near 1, else 2 ulp;"
     " subnormal arguments are 0. ``lg2.approx.ftz``."),
    ("fast_logf", "x", f"lg2.approx.ftz.f32 $0, $1; mul.ftz.f32 $0, $0, {_LN_2};",
     "Natural logarithm of ``x``, a float32: within 2**-21.4 (absolute) near 1, else 3 ulp; subnormal"
     " arguments are 0. ``fast_log2f(x)`` times log 2."),
    ("fast_log10f", "x", f"lg2.approx.ftz.f32 $0, $1; mul.ftz.f32 $0, $0, {_LOG10_2};",
     "Logarithm of ``x``, a float32, to base 10: within 2**-22 (absolute) near 1, else 3 ulp; subnormal"
     " arguments are 0. ``fast_log2f(x)`` times log10 2."),
    ("fast_expf", "x", f"mul.ftz.f32 $0, $1, {_LOG2_E}; ex2.approx.ftz.f32 $0, $0;",
     "e to the power ``x``, a float32: within ``2 + 1.173 * abs(x)`` ulp; results below 2**-126 are 0."
     " ``ex2.approx.ftz``."),
    ("fast_exp10f", "x", f"mul.ftz.f32 $0, $1, {_LOG2_10}; ex2.approx.ftz.f32 $0, $0;",
     "10 to the power ``x``, a float32: within ``2 + 2.97 * abs(x)`` ulp; results below 2**-126 are 0."
     " ``ex2.approx.ftz``."),
    ("fast_powf", "x, y", "lg2.approx.ftz.f32 $0, $1; mul.ftz.f32 $0, $2, $0; ex2.approx.ftz.f32 $0, $0;",
     "``x`` to the power ``y``, float32: 2 to the power ``y * fast_log2f(x)``, relative error ``abs(y)``"
     " times that one's error. NaN for negative ``x``."),
    ("fast_dividef", "x, y", "div.approx.ftz.f32 $0, $1, $2;",
     "``x / y`` of float32: within 2 ulp; 0 (of infinite ``x`` NaN) where ``abs(y)`` is above 2**126."
     " ``div.approx.ftz``."),
)  # fmt: skip
"""CUDA's intrinsics, as they are with flushed subnormals (*CUDA C++ Programming Guide*, *Intrinsic
Functions*): name, parameters, instructions, and what they compute."""


def _fast_functions() -> Iterator[Instruction]:
    for name, parameters, text, doc in _FAST:
        forms = [Form((float32,) * (parameters.count(",") + 1), float32, text)]
        yield Instruction(name, parameters, forms, doc)
    yield Instruction(
        "rcp64h", "x", [Form((float64,), float64, "rcp.approx.ftz.f64 $0, $1;")],
        "``1 / x`` of a float64, whose lower half is 0: relative error about 2**-20."
        " ``rcp.approx.ftz.f64``.",
    )  # fmt: skip


_TABLES = (_arithmetic, _to_integers, _to_floats, _integers, _fast_functions)
globals().update({function.__name__: function for table in _TABLES for function in table()})
