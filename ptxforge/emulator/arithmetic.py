"""Arithmetic, logic, comparison, selection, moves and conversions: everything that is one lane's own
business.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator import integers, numerics
from ptxforge.emulator.memory import LOCAL_WINDOW, PARAM_BASE, SHARED_WINDOW, WINDOW_MASK, address_of
from ptxforge.emulator.numerics import NATURAL
from ptxforge.emulator.parser import Immediate, Instruction, Pair, Register, Sink, Vector
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import CARRY
from ptxforge.emulator.translate import Emitter

_INTEGER_TYPES = {"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "u16x2", "s16x2", "b16", "b32", "b64"}
_CARRY = Register(CARRY, 1)


def dtype_of(kind: str) -> str:
    """numpy dtype code of a PTX type, as :data:`numerics.NATURAL` has it."""
    found = NATURAL[kind]
    return "?" if found.kind == "b" else found.str.lstrip("<|")


def unsigned(kind: str) -> str:
    return dtype_of("b" + kind[1:]) if kind[0] in "usbf" and kind[1:].isdigit() else dtype_of(kind)


@instruction("rcp", "sqrt", "rsqrt", "copysign", "sin", "cos", "lg2", "ex2", "tanh", "testp", "fma", "cvt")
def emit_float(e: Emitter, i: Instruction) -> None:
    """Everything that :func:`numerics.lookup` knows."""
    try:
        operation = numerics.lookup(i.opcode, len(i.operands) - 1)
    except numerics.UnknownOperation as error:
        raise e.error(str(error)) from error
    sources = [
        (operand, dtype_of(kind)) for operand, kind in zip(i.operands[1:], operation.sources, strict=False)
    ]
    if len(sources) != len(i.operands) - 1 or len(sources) != len(operation.sources):
        raise e.error(f"{len(operation.sources)} source operands are expected")
    e.apply(operation.function, (i.operands[0], dtype_of(operation.result)), *sources, takes_out=True)


def _integer_instruction(*names: str) -> Callable:
    """Register a handler for integer types; other types are :func:`emit_float`'s."""

    def register(emit: Callable) -> Callable:
        instruction(*names)(lambda e, i: (emit if i.parts[-1] in _INTEGER_TYPES else emit_float)(e, i))
        return emit

    return register


def _same(e: Emitter, i: Instruction, function: Callable, dtype: str, result: str | None = None) -> None:
    """``d = function(*sources)`` with all operands of one dtype."""
    e.apply(function, (i.operands[0], result or dtype), *[(operand, dtype) for operand in i.operands[1:]])


# ---- integer arithmetic ------------------------------------------------------------------------------------
@_integer_instruction("add", "sub")
def emit_add(e: Emitter, i: Instruction) -> None:
    kind, subtract = i.parts[-1], i.parts[0] == "sub"
    ufunc = np.subtract if subtract else np.add
    if kind.endswith("x2"):
        _same(e, i, integers.packed16(ufunc, "u2"), "u4")
    elif i.has("sat"):
        _same(e, i, integers.saturating("i4", subtract), "i4")
    elif i.has("cc"):
        _emit_carry(e, i, subtract, carry_in=False)
    else:
        _same(e, i, ufunc, unsigned(kind))


@instruction("addc", "subc")
def emit_addc(e: Emitter, i: Instruction) -> None:
    _emit_carry(e, i, i.parts[0] == "subc", carry_in=True)


def _emit_carry(e: Emitter, i: Instruction, subtract: bool, carry_in: bool) -> None:
    function = e.constant_object(integers.sub_borrow if subtract else integers.add_carry)
    dtype = unsigned(i.parts[-1])
    a, b = (e.read(operand, dtype) for operand in i.operands[1:3])
    carry = e.read(_CARRY, "?") if carry_in else "0"
    _assign_with_carry(e, i, f"{function}({a}, {b}, {carry})", dtype)


def _assign_with_carry(e: Emitter, i: Instruction, total_and_carry: str, dtype: str) -> None:
    e.line(f"total, carry = {total_and_carry}")
    e.line(f"copyto({e.write(i.operands[0], dtype)}, total)")
    if i.has("cc"):
        e.line(f"copyto({e.write(_CARRY, '?')}, carry)")


@_integer_instruction("mul")
def emit_mul(e: Emitter, i: Instruction) -> None:
    dtype = dtype_of(i.parts[-1])
    if i.has("wide"):
        wide = dtype[0] + str(2 * int(dtype[1]))
        a, b = (e.read(operand, dtype) for operand in i.operands[1:])
        e.line(f"multiply({a}, {b}, out={e.write(i.operands[0], wide)}, dtype='{wide}')")
    elif i.has("hi"):
        _same(e, i, integers.mul_hi(dtype), dtype)
    elif i.has("lo"):
        _same(e, i, np.multiply, unsigned(i.parts[-1]))
    else:
        raise e.error(".lo, .hi or .wide is expected")


@_integer_instruction("mad")
def emit_mad(e: Emitter, i: Instruction) -> None:
    dtype = dtype_of(i.parts[-1])
    d, a, b, c = i.operands
    if i.has("cc"):
        _emit_mad_carry(e, i, carry_in=False)
    elif i.has("sat"):
        _same(e, i, integers.mad_hi_sat, "i4")
    elif i.has("wide"):
        wide = dtype[0] + str(2 * int(dtype[1]))
        product = e.temp(wide)
        e.line(f"multiply({e.read(a, dtype)}, {e.read(b, dtype)}, out={product}, dtype='{wide}')")
        e.line(f"add({product}, {e.read(c, wide)}, out={e.write(d, wide)})")
    elif i.has("hi"):
        high = integers.mul_hi(dtype)
        _same(e, i, lambda x, y, z: high(x, y) + z, dtype)
    elif not i.has("lo"):
        raise e.error(".lo, .hi or .wide is expected")
    else:
        dtype = unsigned(i.parts[-1])
        product = e.temp(dtype)
        e.line(f"multiply({e.read(a, dtype)}, {e.read(b, dtype)}, out={product})")
        e.line(f"add({product}, {e.read(c, dtype)}, out={e.write(d, dtype)})")


@instruction("madc")
def emit_madc(e: Emitter, i: Instruction) -> None:
    _emit_mad_carry(e, i, carry_in=True)


def _emit_mad_carry(e: Emitter, i: Instruction, carry_in: bool) -> None:
    """mad.cc / madc: the product's half, added with carry."""
    signed_dtype, dtype = dtype_of(i.parts[-1]), unsigned(i.parts[-1])
    product = integers.mul_hi(signed_dtype) if i.has("hi") else np.multiply
    a, b = (e.read(operand, signed_dtype) for operand in i.operands[1:3])
    c = e.read(i.operands[3], dtype)
    carry = e.read(_CARRY, "?") if carry_in else "0"
    low = f"{e.constant_object(product)}({a}, {b}).view('{dtype}')"
    _assign_with_carry(e, i, f"{e.constant_object(integers.add_carry)}({low}, {c}, {carry})", dtype)


@_integer_instruction("div")
def emit_div(e: Emitter, i: Instruction) -> None:
    dtype = dtype_of(i.parts[-1])
    _same(e, i, integers.divide(dtype), dtype)


@_integer_instruction("abs", "neg")
def emit_abs(e: Emitter, i: Instruction) -> None:
    _same(e, i, np.absolute if i.parts[0] == "abs" else np.negative, dtype_of(i.parts[-1]))


@_integer_instruction("min", "max")
def emit_min(e: Emitter, i: Instruction) -> None:
    ufunc = np.minimum if i.parts[0] == "min" else np.maximum
    kind = i.parts[-1]
    function = (lambda a, b: np.maximum(ufunc(a, b), 0)) if i.has("relu") else ufunc
    if kind.endswith("x2"):
        _same(e, i, integers.packed16(function, kind[0].replace("s", "i") + "2"), "u4")
    else:
        _same(e, i, function, dtype_of(kind))


# ---- integer functions and bits ----------------------------------------------------------------------------
def _mad_24(i: Instruction, dtype: str) -> Callable:
    product = integers.mul_24(dtype, i.has("hi"))
    add = integers.saturating("i4", False) if i.has("sat") else np.add
    return lambda a, b, c: add(product(a, b), c)


def _byte_types(i: Instruction) -> list[str]:
    return [part[0].replace("s", "i") + "1" for part in i.types]


_WORDS = ("u4",) * 4
_FUNCTIONS: dict[str, tuple[Callable[[Instruction, str], Callable], tuple[str, ...]]] = {
    "rem": (lambda i, dtype: integers.remainder(dtype), ("", "", "")),
    "sad": (lambda i, dtype: integers.sad(dtype), ("", "", "", "")),
    "mul24": (lambda i, dtype: integers.mul_24(dtype, i.has("hi")), ("", "", "")),
    "mad24": (_mad_24, ("", "", "", "")),
    "cnot": (lambda i, dtype: lambda a: np.equal(a, 0), ("", "")),
    "popc": (lambda i, dtype: integers.popc, ("u4", "")),
    "clz": (lambda i, dtype: integers.clz, ("u4", "")),
    "bfind": (lambda i, dtype: integers.bfind(dtype, i.has("shiftamt")), ("u4", "")),
    "brev": (lambda i, dtype: integers.reverse_bits, ("", "")),
    "bfe": (lambda i, dtype: integers.bfe(dtype), ("", "", "u4", "u4")),
    "bfi": (lambda i, dtype: integers.bfi(dtype), ("", "", "", "u4", "u4")),
    "bmsk": (lambda i, dtype: integers.bmsk(i.has("wrap")), ("u4", "u4", "u4")),
    "szext": (lambda i, dtype: integers.szext(dtype, i.has("wrap")), ("", "", "u4")),
    "fns": (lambda i, dtype: integers.fns, ("u4", "u4", "u4", "i4")),
    "dp4a": (lambda i, dtype: integers.dp4a(*_byte_types(i)), _WORDS),
    "dp2a": (lambda i, dtype: integers.dp2a(*_byte_types(i), i.has("hi")), _WORDS),
    "prmt": (lambda i, dtype: integers.prmt(i.parts[2] if len(i.parts) > 2 else ""), _WORDS),
    "shf": (lambda i, dtype: integers.funnel(i.has("l"), i.has("wrap")), _WORDS),
}
"""Opcode -> what makes its function, from the instruction and the dtype of its type; and the dtypes of the
result and of the sources, empty where it is that one."""


@instruction(*_FUNCTIONS)
def emit_function(e: Emitter, i: Instruction) -> None:
    make, dtypes = _FUNCTIONS[i.parts[0]]
    own = dtype_of(i.types[-1])
    target, *sources = zip(i.operands, [dtype or own for dtype in dtypes], strict=True)
    e.apply(make(i, own), target, *sources)


@instruction("lop3")
def emit_lop3(e: Emitter, i: Instruction) -> None:
    """lop3.b32 d, a, b, c, table; lop3.BoolOp.b32 d|p, a, b, c, table, q: p is (d != 0) BoolOp q."""
    table = e.constant(i.operands[4])
    if table is None:
        raise e.error("the table must be a literal")
    target, a, b, c = i.operands[:4]
    sources = ", ".join(e.read(operand, "u4") for operand in (a, b, c))
    boolean = next((_BOOLEANS[part] for part in i.parts if part in _BOOLEANS), None)
    d, p = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
    if boolean is None:
        e.line(f"copyto({e.write(d, 'u4')}, {e.constant_object(integers.lop3(table))}({sources}))")
        return
    result = e.temp("u4")
    e.line(f"copyto({result}, {e.constant_object(integers.lop3(table))}({sources}))")
    e.line(f"{boolean.__name__}({result}, {e.read(i.operands[5], '?')}, out={e.write(p, '?')})")
    e.line(f"copyto({e.write(d, 'u4')}, {result})")


@instruction("cvt.pack")
def emit_cvt_pack(e: Emitter, i: Instruction) -> None:
    """cvt.pack.sat.ctype.s32{.b32} d, a, b{, c}: a and b, saturated, below c moved up."""
    target = next(part for part in i.parts if part in ("u2", "s2", "u4", "s4", "u8", "s8", "u16", "s16"))
    d, a, b, *rest = i.operands
    c = rest[0] if rest else Immediate(0)
    e.apply(
        integers.pack_saturated(target[0] == "s", int(target[1:])), (d, "u4"), (a, "i4"), (b, "i4"), (c, "u4")
    )


UFUNCS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
"""What reductions of integers do."""
_LOGIC = {
    "and": (np.bitwise_and, np.logical_and),
    "or": (np.bitwise_or, np.logical_or),
    "xor": (np.bitwise_xor, np.logical_xor),
    "not": (np.invert, np.logical_not),
}


@instruction("and", "or", "xor", "not")
def emit_logic(e: Emitter, i: Instruction) -> None:
    bitwise, logical = _LOGIC[i.parts[0]]
    if i.parts[-1] == "pred":
        _same(e, i, logical, "?")
    else:
        _same(e, i, bitwise, unsigned(i.parts[-1]))


@instruction("shl", "shr")
def emit_shift(e: Emitter, i: Instruction) -> None:
    """Counts of the width or more give 0 (or the sign): numpy's shifts do the same."""
    kind, ufunc = i.parts[-1], np.left_shift if i.parts[0] == "shl" else np.right_shift
    d, a, count = i.operands
    if kind[1:] == "16":
        dtype = dtype_of(kind)
        e.apply(_shift16(ufunc, dtype), (d, dtype), (a, dtype), (count, "u4"))
        return
    dtype = dtype_of(kind)
    literal = e.constant(count)
    if literal is not None:
        amount = e.hoist(
            f"k_shift{literal & 0xFFFFFFFF}_{dtype}",
            lambda machine: np.dtype(dtype).type(min(literal & 0xFFFFFFFF, 64)),
        )
        e.line(f"{ufunc.__name__}({e.read(a, dtype)}, {amount}, out={e.write(d, dtype)})")
        return
    e.apply(ufunc, (d, dtype), (a, dtype), (count, "i4" if dtype[0] == "i" else "u4"))


def _shift16(ufunc: Callable, dtype: str) -> Callable:
    wide = dtype[0] + "8"
    return lambda a, count: ufunc(np.asarray(a).astype(wide), np.minimum(count, 32).astype(wide)).astype(
        dtype
    )


# ---- comparison and selection ------------------------------------------------------------------------------
_RELATIONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_BOOLEANS = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(e: Emitter, i: Instruction, kind: str) -> Callable:
    relation = i.parts[1]
    if kind[0] in "usb" and kind[1:].isdigit():
        if relation not in _RELATIONS:
            raise e.error(f"no integer comparison .{relation}")
        return _RELATIONS[relation]
    try:
        return numerics.compare(relation, kind, i.has("ftz"))
    except numerics.UnknownOperation as error:
        raise e.error(str(error)) from error


def _compare(e: Emitter, i: Instruction, kind: str, out: str) -> None:
    a, b = i.operands[1:3]
    dtype = dtype_of(kind) if i.parts[1] not in ("lo", "ls", "hi", "hs") else unsigned(kind)
    function = _comparison(e, i, kind)
    e.line(f"{e.constant_object(function)}({e.read(a, dtype)}, {e.read(b, dtype)}, out={out})")


@instruction("setp", defines=1)
def emit_setp(e: Emitter, i: Instruction) -> None:
    """setp.cmp{.boolop}{.ftz}.type p{|q}, a, b{, {!}c}; q gets the negated comparison, then the same
    boolop.
    """
    kind = i.parts[-1]
    boolean = next((_BOOLEANS[part] for part in i.parts[2:-1] if part in _BOOLEANS), None)
    targets = i.operands[0]
    first, second = (targets.first, targets.second) if isinstance(targets, Pair) else (targets, Sink())
    if kind in ("f16x2", "bf16x2"):
        _emit_setp_packed(e, i, first, second, boolean)
        return
    if boolean is None and isinstance(second, Sink):
        _compare(e, i, kind, e.write(first, "?"))
        return
    result = e.temp("?")
    _compare(e, i, kind, result)
    other = e.read(i.operands[3], "?") if boolean is not None else None
    values = [result, f"~{result}"]
    for target, value in zip((first, second), values):
        if isinstance(target, Sink):
            continue
        made = e.temp("?")
        combined = (
            f"copyto({made}, {value})"
            if other is None
            else f"{boolean.__name__}({value}, {other}, out={made})"
        )
        e.line(combined)
        e.line(f"copyto({e.write(target, '?')}, {made})")


def _emit_setp_packed(
    e: Emitter, i: Instruction, first: object, second: object, boolean: Callable | None
) -> None:
    """f16x2: the first predicate is the low half's comparison, the second the high half's."""
    kind = i.parts[-1][:-2]
    dtype = dtype_of(kind)
    function = e.constant_object(_comparison(e, i, kind))
    other = e.read(i.operands[3], "?") if boolean is not None else None
    for half, target in enumerate((first, second)):
        a, b = (e.part(operand, dtype, half) for operand in i.operands[1:3])
        made = e.temp("?")
        e.line(f"{function}({a}, {b}, out={made})")
        if other is not None:
            e.line(f"{boolean.__name__}({made}, {other}, out={made})")
        if not isinstance(target, Sink):
            e.line(f"copyto({e.write(target, '?')}, {made})")


@instruction("set")
def emit_set(e: Emitter, i: Instruction) -> None:
    """set.cmp{.boolop}{.ftz}.dtype.stype: all ones or 1.0 where true."""
    target, kind = i.types[-2:]
    boolean = next((_BOOLEANS[part] for part in i.parts[2:-2] if part in _BOOLEANS), None)
    true = {"f32": np.uint32(0x3F800000), "f16": np.uint16(0x3C00), "bf16": np.uint16(0x3F80)}
    dtype = (
        unsigned(target) if target[0] in "us" else {"f32": "u4", "f16": "u2", "bf16": "u2"}.get(target, "u4")
    )
    if kind in ("f16x2", "bf16x2"):
        _emit_set_packed(e, i, target, kind, boolean)
        return
    result = e.temp("?")
    _compare(e, i, kind, result)
    if boolean is not None:
        e.line(f"{boolean.__name__}({result}, {e.read(i.operands[3], '?')}, out={result})")
    value = true.get(target, np.array(-1).astype(dtype)[()])
    zero = np.dtype(dtype).type(0)
    e.line(
        f"copyto({e.write(i.operands[0], dtype)}, where({result}, {e.constant_object(value)}, "
        f"{e.constant_object(zero)}))"
    )


def _emit_set_packed(e: Emitter, i: Instruction, target: str, kind: str, boolean: Callable | None) -> None:
    true = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(target, 0xFFFF)
    dtype = dtype_of(kind[:-2])
    function = e.constant_object(_comparison(e, i, kind[:-2]))
    made = e.temp("u4")
    e.line(f"{made}[...] = 0")
    for half in range(2):
        a, b = (e.part(operand, dtype, half) for operand in i.operands[1:3])
        flag = e.temp("?")
        e.line(f"{function}({a}, {b}, out={flag})")
        if boolean is not None:
            e.line(f"{boolean.__name__}({flag}, {e.read(i.operands[3], '?')}, out={flag})")
        e.line(f"{made}.view('u2')[{half}::2] = {flag} * {true}")
    e.line(f"copyto({e.write(i.operands[0], 'u4')}, {made})")


@instruction("selp")
def emit_selp(e: Emitter, i: Instruction) -> None:
    dtype = unsigned(i.parts[-1]) if i.parts[-1] not in ("f16x2",) else "u4"
    d, a, b, p = i.operands
    first, second, choose = e.read(a, dtype), e.read(b, dtype), e.read(p, "?")
    e.line(f"copyto({e.write(d, dtype)}, where({choose}, {first}, {second}))")


@instruction("slct")
def emit_slct(e: Emitter, i: Instruction) -> None:
    """d = c >= 0 ? a : b; a NaN selects b, -0 counts as zero."""
    target, kind = i.types[-2:]
    dtype = unsigned(target)
    d, a, b, c = i.operands
    condition = f"greater_equal({e.read(c, dtype_of(kind))}, 0)"
    e.line(f"copyto({e.write(d, dtype)}, where({condition}, {e.read(a, dtype)}, {e.read(b, dtype)}))")


# ---- moves -------------------------------------------------------------------------------------------------
@instruction("mov")
def emit_mov(e: Emitter, i: Instruction) -> None:
    target, source = i.operands
    kind = i.parts[-1]
    if isinstance(target, Vector):
        _unpack(e, kind, target, source)
    elif isinstance(source, Vector):
        _pack(e, kind, target, source)
    elif kind == "pred":
        e.line(f"copyto({e.write(target, '?')}, {e.read(source, '?')})")
    else:
        dtype = "c16" if kind == "b128" else unsigned(kind)
        e.line(f"copyto({e.write(target, dtype)}, {e.read(source, dtype)})")


def _piece(e: Emitter, kind: str, count: int) -> str:
    size = int(kind.lstrip("busf")) // 8 // count
    if size not in (1, 2, 4, 8):
        raise e.error("cannot split the register like this")
    return f"u{size}"


def _unpack(e: Emitter, kind: str, target: Vector, source: object) -> None:
    dtype = _piece(e, kind, len(target.elements))
    for index, element in enumerate(target.elements):
        if not isinstance(element, Sink):
            e.line(f"copyto({e.write(element, dtype)}, {e.part(source, dtype, index)}, casting='unsafe')")


def _pack(e: Emitter, kind: str, target: object, source: Vector) -> None:
    dtype = _piece(e, kind, len(source.elements))
    for index, element in enumerate(source.elements):
        e.copy(e.part(target, dtype, index), e.read(element, dtype))


@instruction("cvta")
def emit_cvta(e: Emitter, i: Instruction) -> None:
    """cvta.space: state space -> generic; cvta.to.space: back. Global and const addresses are generic."""
    space = next(part.partition("::")[0] for part in i.parts[1:] if part != "to")
    dtype = unsigned(i.parts[-1])
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space)
    target, source = i.operands[0], e.read(i.operands[1], dtype)
    if space == "param" and dtype == "u8":
        base = e.bind(lambda machine: np.uint64(address_of(machine.params) - PARAM_BASE))
        change = "subtract" if i.has("to") else "add"
        e.line(f"{change}({source}, {base}, out={e.write(target, dtype)})")
    elif window is None or dtype == "u4":
        e.line(f"copyto({e.write(target, dtype)}, {source})")
    elif i.has("to"):
        mask = e.constant_object(np.uint64(WINDOW_MASK))
        e.line(f"bitwise_and({source}, {mask}, out={e.write(target, dtype)})")
    else:
        e.line(f"bitwise_or({source}, {e.constant_object(np.uint64(window))}, out={e.write(target, dtype)})")


@instruction("createpolicy")
def emit_policy(e: Emitter, i: Instruction) -> None:
    """Cache policies have no effect; the register gets 0."""
    e.line(f"copyto({e.write(i.operands[0], 'u8')}, 0)")
