"""Integer, logic, comparison and move instructions against Python's integers, one row per form."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import diverging, lanes

COUNT = 256
DTYPES = {
    "u8": "u1",
    "s8": "i1",
    "u16": "u2",
    "s16": "i2",
    "b16": "u2",
    "u32": "u4",
    "s32": "i4",
    "b32": "u4",
    "u64": "u8",
    "s64": "i8",
    "b64": "u8",
}


def wrap(value: int, kind: str) -> int:
    """A Python integer as the PTX type holds it."""
    bits = int(kind[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def samples(kind: str, seed: int) -> np.ndarray:
    """Random bits with the corners in front, in another order for every operand."""
    bits = int(kind[1:])
    rng = np.random.default_rng([seed, bits])
    corners = [
        0,
        1,
        2,
        31,
        32,
        33,
        (1 << bits) - 1,
        1 << (bits - 1),
        (1 << (bits - 1)) - 1,
        (1 << (bits - 1)) + 1,
    ]
    values = [corners[n] for n in rng.integers(0, len(corners), 100)]
    values += [
        int.from_bytes(rng.bytes(bits // 8), "little") >> int(rng.integers(0, bits))
        for _ in range(COUNT - 100)
    ]
    return np.array([wrap(value, kind) for value in values], DTYPES[kind])


def truncating(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def clamp(value: int, kind: str) -> int:
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def shift(a: int, count: int, left: bool, kind: str) -> int:
    bits = int(kind[1:])
    if left:
        return a << count if count < bits else 0
    return a >> min(count, bits if kind[0] != "s" else bits - 1) if count < bits or kind[0] == "s" else 0


def bit_field(a: int, b: int, c: int, kind: str) -> int:
    """The PTX ISA's pseudo-code of bfe, bit by bit."""
    bits = int(kind[1:])
    position, length, a = b & 0xFF, c & 0xFF, a & ((1 << bits) - 1)
    if kind[0] == "u" or length == 0:
        sign = 0
    else:
        sign = a >> min(position + length - 1, bits - 1) & 1
    result = 0
    for i in range(bits):
        bit = a >> (position + i) & 1 if i < length and position + i <= bits - 1 else sign
        result |= bit << i
    return result


def insert(a: int, b: int, c: int, d: int, bits: int) -> int:
    position, length = c & 0xFF, d & 0xFF
    for i in range(length):
        if position + i < bits:
            b = (
                b & ~(1 << position + i) | (a >> i & 1) << position + i
                if i < bits
                else b & ~(1 << position + i)
            )
    return b


def permute(a: int, b: int, c: int, mode: str = "") -> int:
    pool = [a >> 8 * i & 255 for i in range(4)] + [b >> 8 * i & 255 for i in range(4)]
    low = c & 3
    picks = {
        "f4e": [low, low + 1, low + 2, low + 3],
        "b4e": [low, low + 7 & 7, low + 6 & 7, low + 5 & 7],
        "rc8": [low] * 4,
        "ecl": [max(low, i) for i in range(4)],
        "ecr": [min(low, i) for i in range(4)],
        "rc16": [(low & 1) * 2 + i % 2 for i in range(4)],
    }.get(mode)
    result = 0
    for i in range(4):
        if picks is not None:
            byte = pool[picks[i]]
        else:
            selector = c >> 4 * i & 15
            byte = pool[selector & 7]
            if selector & 8:
                byte = 255 if byte & 128 else 0
        result |= byte << 8 * i
    return result


def bytes_of(value: int, signed: bool, width: int = 8) -> list[int]:
    kind = f"{'s' if signed else 'u'}{width}"
    return [wrap(value >> width * i, kind) for i in range(32 // width)]


def lut3(table: int):
    return lambda a, b, c: sum(
        (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32)
    )


def find_high(a: int, kind: str) -> int:
    bits = int(kind[1:])
    a = a & ((1 << bits) - 1)
    if kind[0] == "s" and a >> (bits - 1):
        a ^= (1 << bits) - 1
    return a.bit_length() - 1


ROWS = []


def row(opcode: str, reference, sources: str, result: str = "") -> None:
    """``sources`` and ``result`` are PTX types; ``reference`` takes Python integers."""
    kinds = sources.split()
    ROWS.append(pytest.param(opcode, reference, kinds, result or kinds[0], id=opcode))


for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
    bits = int(kind[1:])
    row(f"add.{kind}", lambda a, b: a + b, f"{kind} {kind}")
    row(f"sub.{kind}", lambda a, b: a - b, f"{kind} {kind}")
    row(f"mul.lo.{kind}", lambda a, b: a * b, f"{kind} {kind}")
    row(f"mul.hi.{kind}", lambda a, b, n=bits: a * b >> n, f"{kind} {kind}")
    row(f"mad.lo.{kind}", lambda a, b, c: a * b + c, f"{kind} {kind} {kind}")
    row(f"mad.hi.{kind}", lambda a, b, c, n=bits: (a * b >> n) + c, f"{kind} {kind} {kind}")
    row(f"div.{kind}", truncating, f"{kind} {kind}")
    row(f"rem.{kind}", lambda a, b: a - truncating(a, b) * b, f"{kind} {kind}")
    row(f"min.{kind}", min, f"{kind} {kind}")
    row(f"max.{kind}", max, f"{kind} {kind}")
    row(f"sad.{kind}", lambda a, b, c: c + abs(a - b), f"{kind} {kind} {kind}")
    row(f"shr.{kind}", lambda a, n, k=kind: shift(a, n, False, k), f"{kind} u32")
    row(f"setp.lt.{kind}", lambda a, b: int(a < b), f"{kind} {kind}", "pred")
    row(f"setp.ge.{kind}", lambda a, b: int(a >= b), f"{kind} {kind}", "pred")
    if kind[0] == "s":
        row(f"abs.{kind}", abs, kind)
        row(f"neg.{kind}", lambda a: -a, kind)
for kind in ("u16", "s16", "u32", "s32"):
    wide = kind[0] + str(2 * int(kind[1:]))
    row(f"mul.wide.{kind}", lambda a, b: a * b, f"{kind} {kind}", wide)
    row(f"mad.wide.{kind}", lambda a, b, c: a * b + c, f"{kind} {kind} {wide}", wide)
for kind in ("u32", "s32"):
    for half, down in (("lo", 0), ("hi", 16)):
        mul24 = lambda a, b, d=down, k=kind[0]: wrap(a, k + "24") * wrap(b, k + "24") >> d  # noqa: E731
        row(f"mul24.{half}.{kind}", mul24, f"{kind} {kind}")
        row(f"mad24.{half}.{kind}", lambda a, b, c, f=mul24: f(a, b) + c, f"{kind} {kind} {kind}")
row(
    "mad24.hi.sat.s32",
    lambda a, b, c: clamp(wrap(wrap(a, "s24") * wrap(b, "s24") >> 16, "s32") + c, "s32"),
    "s32 s32 s32",
)
row("add.sat.s32", lambda a, b: clamp(a + b, "s32"), "s32 s32")
row("sub.sat.s32", lambda a, b: clamp(a - b, "s32"), "s32 s32")
row("mad.hi.sat.s32", lambda a, b, c: clamp((a * b >> 32) + c, "s32"), "s32 s32 s32")
for kind in ("b16", "b32", "b64"):
    row(f"and.{kind}", lambda a, b: a & b, f"{kind} {kind}")
    row(f"or.{kind}", lambda a, b: a | b, f"{kind} {kind}")
    row(f"xor.{kind}", lambda a, b: a ^ b, f"{kind} {kind}")
    row(f"not.{kind}", lambda a: ~a, kind)
    row(f"cnot.{kind}", lambda a: int(a == 0), kind)
    row(f"shl.{kind}", lambda a, n, k=kind: shift(a, n, True, k), f"{kind} u32")
for kind in ("u32", "s32", "u64", "s64"):
    row(f"bfe.{kind}", lambda a, b, c, k=kind: bit_field(a, b, c, k), f"{kind} u32 u32")
    row(f"bfind.{kind}", lambda a, k=kind: find_high(a, k), kind, "u32")
    row(
        f"bfind.shiftamt.{kind}",
        lambda a, k=kind: -1 if find_high(a, k) < 0 else int(k[1:]) - 1 - find_high(a, k),
        kind,
        "u32",
    )
for kind in ("b32", "b64"):
    n = int(kind[1:])
    row(f"popc.{kind}", lambda a: a.bit_count(), kind, "u32")
    row(f"clz.{kind}", lambda a, n=n: n - a.bit_length(), kind, "u32")
    row(f"brev.{kind}", lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2), kind)
    row(f"bfi.{kind}", lambda a, b, c, d, n=n: insert(a, b, c, d, n), f"{kind} {kind} u32 u32", kind)
for mode in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
    row(f"prmt.b32{'.' + mode if mode else ''}", lambda a, b, c, m=mode: permute(a, b, c, m), "b32 b32 b32")
for side in ("l", "r"):
    for clip in ("wrap", "clamp"):

        def funnel(a, b, c, left=side == "l", wraps=clip == "wrap"):
            count, pair = c & 31 if wraps else min(c, 32), b << 32 | a
            return (pair << count) >> 32 if left else pair >> count

        row(f"shf.{side}.{clip}.b32", funnel, "b32 b32 u32")
for first in ("u32", "s32"):
    for second in ("u32", "s32"):
        signs = (first[0] == "s", second[0] == "s")
        row(
            f"dp4a.{first}.{second}",
            lambda a, b, c, s=signs: c + sum(x * y for x, y in zip(bytes_of(a, s[0]), bytes_of(b, s[1]))),
            "b32 b32 b32",
        )
        for half in ("lo", "hi"):
            row(
                f"dp2a.{half}.{first}.{second}",
                lambda a, b, c, s=signs, h=half == "hi": (
                    c + sum(x * y for x, y in zip(bytes_of(a, s[0], 16), bytes_of(b, s[1])[2 * h :]))
                ),
                "b32 b32 b32",
            )
row("bmsk.clamp.b32", lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32), "b32 b32")
row("bmsk.wrap.b32", lambda a, b: ((1 << (b & 31)) - 1) << (a & 31), "b32 b32")
row("szext.clamp.u32", lambda a, b: a & ((1 << min(b, 32)) - 1), "u32 u32")
row("szext.clamp.s32", lambda a, b: wrap(a, f"s{min(b, 32)}") if b else 0, "s32 u32")
row("szext.wrap.s32", lambda a, b: wrap(a, f"s{b & 31}") if b & 31 else 0, "s32 u32")
row("add.u16x2", lambda a, b: (a + b & 0xFFFF) | (a >> 16) + (b >> 16) << 16, "b32 b32")
row(
    "max.s16x2",
    lambda a, b: sum(
        (max(x, y) & 0xFFFF) << 16 * i
        for i, (x, y) in enumerate(zip(bytes_of(a, True, 16), bytes_of(b, True, 16)))
    ),
    "b32 b32",
)
row("setp.hi.u32", lambda a, b: int(a > b), "u32 u32", "pred")
row("setp.hs.u32", lambda a, b: int(a >= b), "u32 u32", "pred")
row("setp.lo.u64", lambda a, b: int(a < b), "u64 u64", "pred")
row("setp.ls.u16", lambda a, b: int(a <= b), "u16 u16", "pred")
row("setp.eq.b64", lambda a, b: int(a == b), "b64 b64", "pred")
row("setp.ne.b16", lambda a, b: int(a != b), "b16 b16", "pred")
row("set.lt.u32.s32", lambda a, b: -int(a < b), "s32 s32", "u32")
row("slct.u32.s32", lambda a, b, c: a if c >= 0 else b, "u32 u32 s32")
for source in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
    for target in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        row(f"cvt.{target}.{source}", lambda a: a, source, target)
        corner = (
            0 if source[0] == "u" else -(1 << int(source[1:]) - 1),
            (1 << int(source[1:])) - 1 >> (source[0] == "s"),
        )
        if any(clamp(value, target) != value for value in corner):
            row(f"cvt.sat.{target}.{source}", lambda a, k=target: clamp(a, k), source, target)


def register(kind: str) -> str:
    """Eight-bit values live in 16-bit registers."""
    return {"pred": "pred", "u8": "b16", "s8": "b16"}.get(kind, "b" + kind.lstrip("usb"))


@pytest.mark.parametrize("diverged", [False, True], ids=["together", "diverged"])
@pytest.mark.parametrize("opcode, reference, kinds, result", ROWS)
def test_instruction(machine, opcode, reference, kinds, result, diverged):
    inputs = [samples(kind, seed) for seed, kind in enumerate(kinds)]
    if opcode in ("bfe.u64", "bfe.s64", "bfi.b64"):
        # The PTX ISA restricts positions and lengths to 0..255. Its pseudo-code drops higher bits, and so do
        # the 32-bit forms on an H200; the 64-bit forms there take the whole register.
        for array in inputs[-2:]:
            array &= np.uint32(0xFF)
    if opcode.startswith(("div", "rem")):
        inputs[1][inputs[1] == 0] = 3  # division by zero is unspecified
    widened = [
        array.astype("i2" if kind == "s8" else "u2") if kind[1:] == "8" else array
        for kind, array in zip(kinds, inputs)
    ]
    operands = ", ".join(["%o0"] + [f"%i{n}" for n in range(len(kinds))])
    dtype = {"pred": "u1", "u8": "u2", "s8": "i2"}.get(result) or DTYPES[result]
    text = f"{opcode} {operands};"
    (found,) = lanes(
        machine,
        diverging(text) if diverged else text,
        widened,
        [register(kind) for kind in kinds],
        [(register(result), dtype)],
    )
    expected = [reference(*values) for values in zip(*[array.tolist() for array in inputs])]
    expected = [value if result == "pred" else wrap(value, result) for value in expected]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    "target, third", [("s16", False), ("u16", False), ("s8", True), ("u8", True), ("s4", True), ("u2", True)]
)
def test_cvt_pack(machine, target, third):
    a, b, c = samples("s32", 1), samples("s32", 2), samples("b32", 3)
    bits = int(target[1:])
    text = f"cvt.pack.sat.{target}.s32{'.b32' if third else ''} %o0, %i0, %i1{', %i2' if third else ''};"
    (found,) = lanes(machine, text, [a, b, c], ["b32"] * 3, [("b32", "u4")])
    ones = (1 << bits) - 1
    for x, y, z, value in zip(a.tolist(), b.tolist(), c.tolist(), found.tolist()):
        expected = (clamp(x, target) & ones) << bits | clamp(y, target) & ones
        assert value == (expected | (z << 2 * bits if third else 0)) & 0xFFFFFFFF


def test_lop3_with_a_predicate(machine):
    a, b = samples("b32", 1), samples("b32", 2)
    text = """setp.lt.s32 %q, %i0, 0; lop3.or.b32 %o0|%o1, %i0, %i1, 0, 0xC0, %q;
    lop3.and.b32 _|%o2, %i0, %i1, 0, 0xC0, %q;"""
    value, either, both = lanes(
        machine, text, [a, b], ["b32"] * 2, [("b32", "u4"), ("pred", "u1"), ("pred", "u1")], ".reg .pred %q;"
    )
    np.testing.assert_array_equal(value, a & b)
    np.testing.assert_array_equal(either, (a & b != 0) | (a.view("i4") < 0))
    np.testing.assert_array_equal(both, (a & b != 0) & (a.view("i4") < 0))


def test_lop3_tables(machine):
    a, b, c = (samples("b32", seed) for seed in range(3))
    for table in (
        0x80,
        0xFE,
        0x96,
        0xEA,
        0xE2,
        0xCA,
        0xC8,
        0xF8,
        0x6A,
        0x78,
        0xC0,
        0xFC,
        0x3C,
        0x17,
        0x01,
        0xA5,
        0x00,
        0xFF,
    ):
        (found,) = lanes(
            machine, f"lop3.b32 %o0, %i0, %i1, %i2, {table};", [a, b, c], ["b32"] * 3, [("b32", "u4")]
        )
        expected = [lut3(table)(*values) for values in zip(a.tolist(), b.tolist(), c.tolist())]
        assert found.tolist() == expected, hex(table)


@pytest.mark.parametrize("kind", ["u32", "u64"])
def test_carry_chains(machine, kind):
    values = [samples(kind, seed) for seed in range(4)]
    bits, size = int(kind[1:]), DTYPES[kind]
    text = (
        f"add.cc.{kind} %o0, %i0, %i2; addc.{kind} %o1, %i1, %i3; sub.cc.{kind} %o2, %i0, %i2; "
        f"subc.{kind} %o3, %i1, %i3;"
    )
    low, high, borrow_low, borrow_high = lanes(
        machine, text, values, [f"b{bits}"] * 4, [(f"b{bits}", size)] * 4
    )
    for index in range(COUNT):
        a0, a1, b0, b1 = (int(array[index]) for array in values)
        one, other = a1 << bits | a0, b1 << bits | b0
        assert int(high[index]) << bits | int(low[index]) == one + other & (1 << 2 * bits) - 1
        assert int(borrow_high[index]) << bits | int(borrow_low[index]) == one - other & (1 << 2 * bits) - 1


def test_wide_product_by_carry(machine):
    """64 x 64 -> 128 bits, as compilers spell it: mad.lo.cc / madc.hi."""
    a, b = (samples("u32", seed) for seed in range(2))
    text = "mul.lo.u32 %o0, %i0, %i1; mad.lo.cc.u32 %t0, %i0, %i1, -1; madc.hi.u32 %o1, %i0, %i1, 0;"
    low, high = lanes(machine, text, [a, b], ["b32"] * 2, [("b32", "u4")] * 2, ".reg .b32 %t0;")
    for x, y, p, q in zip(a.tolist(), b.tolist(), low.tolist(), high.tolist()):
        carry = (x * y & 0xFFFFFFFF) + 0xFFFFFFFF >> 32
        assert p == x * y & 0xFFFFFFFF and q == (x * y >> 32) + carry & 0xFFFFFFFF


def test_setp_with_second_operand_and_both_targets(machine):
    a, b = samples("s32", 0), samples("s32", 1)
    text = (
        "setp.gt.s32 %c, %i0, 0; setp.lt.and.s32 %o0|%o1, %i0, %i1, !%c; setp.eq.xor.s32 %o2, %i0, %i1, %c;"
    )
    both, neither, odd = lanes(machine, text, [a, b], ["b32"] * 2, [("pred", "u1")] * 3, ".reg .pred %c;")
    positive = a > 0
    np.testing.assert_array_equal(both, (a < b) & ~positive)
    np.testing.assert_array_equal(neither, (a >= b) & ~positive)
    np.testing.assert_array_equal(odd, (a == b) ^ positive)


def test_predicate_logic_selection_and_guards(machine):
    a, b = samples("s32", 3), samples("s32", 4)
    text = """setp.lt.s32 %p, %i0, 0; setp.lt.s32 %q, %i1, 0; and.pred %r, %p, !%q;
    xor.pred %s, %p, %q; not.pred %s, %s;
    selp.b32 %o0, %i0, %i1, %r; mov.u32 %o1, 7; @%p mov.u32 %o1, 8; @!%q add.u32 %o1, %o1, 16;
    selp.b32 %o2, 1, 2, %s;"""
    chosen, guarded, same = lanes(
        machine, text, [a, b], ["b32"] * 2, [("b32", "i4")] * 3, ".reg .pred %p, %q, %r, %s;"
    )
    p, q = a < 0, b < 0
    np.testing.assert_array_equal(chosen, np.where(p & ~q, a, b))
    np.testing.assert_array_equal(guarded, np.where(p, 8, 7) + np.where(~q, 16, 0))
    np.testing.assert_array_equal(same, np.where(p == q, 1, 2))


def test_packing_moves(machine):
    a, b = samples("u32", 5), samples("u64", 6)
    text = """mov.b64 %o0, {%i0, %i0}; mov.b64 {%t0, %t1}, %i1; mov.b64 %o1, {%t1, %t0};
    mov.b32 {%h0, %h1}, %i0;
    mov.b32 %o2, {%h1, %h0}; mov.b64 {_, %o3}, %i1;"""
    double, swapped, halves, top = lanes(
        machine,
        text,
        [a, b],
        ["b32", "b64"],
        [("b64", "u8"), ("b64", "u8"), ("b32", "u4"), ("b32", "u4")],
        ".reg .b32 %t<2>; .reg .b16 %h<2>;",
    )
    wide = a.astype(np.uint64)
    np.testing.assert_array_equal(double, wide | wide << np.uint64(32))
    np.testing.assert_array_equal(swapped, b >> np.uint64(32) | b << np.uint64(32))
    np.testing.assert_array_equal(halves, a >> 16 | a << 16)
    np.testing.assert_array_equal(top, (b >> np.uint64(32)).astype(np.uint32))


def test_fns(machine):
    """Find the n-th set bit: the PTX ISA's own example and its mirror image."""
    mask = np.full(32, 0x0F0F0F0F, np.uint32)
    base = np.arange(32, dtype=np.uint32)
    up, down, here = lanes(
        machine,
        "fns.b32 %o0, %i0, %i1, 2; fns.b32 %o1, %i0, %i1, -1; fns.b32 %o2, %i0, %i1, 0;",
        [mask, base],
        ["b32"] * 2,
        [("b32", "u4")] * 3,
    )
    bits = [n for n in range(32) if 0x0F0F0F0F >> n & 1]
    none = 0xFFFFFFFF
    assert up.tolist() == [([n for n in bits if n >= start] + [none] * 2)[1] for start in range(32)]
    assert down.tolist() == [([n for n in reversed(bits) if n <= start] + [none])[0] for start in range(32)]
    assert here.tolist() == [start if start in bits else none for start in range(32)]
