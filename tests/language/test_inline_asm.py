"""Inline assembly: the interpreter, which asks the emulator for its meaning, and the PTX agree with numpy.

Every register class × every element type × pack, several results, ties, constants, pointers, effects, errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.frontend import build
from ptxforge.interpreter.address_space import AddressSpace
from ptxforge.support import dtypes
from ptxforge.support.errors import CompilationError, InterpreterError

SIZE = 256
TYPES = {dtype.name: dtype for dtype in dtypes.ALL}
PER_WIDTH = {8: ("r", "h", "l"), 16: ("h", "r", "l"), 32: ("r", "f", "l"), 64: ("l", "d")}
WIDTHS = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}
MOVES = {"h": "mov.b16", "r": "mov.b32", "f": "mov.b32", "l": "mov.b64", "d": "mov.b64"}


@ptxforge.jit
def apply(x, out, ASM: tl.constexpr, LETTERS: tl.constexpr, TYPE: tl.constexpr, PACK: tl.constexpr,
          SIZE: tl.constexpr):  # fmt: skip
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.inline_asm_elementwise(ASM, LETTERS, [tl.load(x + i)], TYPE, True, PACK))


def everywhere(devices, kernel, arrays: dict[str, np.ndarray], outputs: tuple[str, ...], grid=1, **constants):
    """The outputs of every executor, the interpreter's first."""
    signature = {name: f"*{dtypes.from_numpy(array.dtype).short}" for name, array in arrays.items()}
    held = {name: array.copy() for name, array in arrays.items()}
    interpreter.run(build(kernel.fn, signature, constants, target="sm_90a"), grid, held)
    found = [tuple(held[name] for name in outputs)]
    for device in devices:
        placed = {name: ptxforge.to_device(array, device) for name, array in arrays.items()}
        kernel[(grid,)](*placed.values(), **constants)
        found.append(tuple(placed[name].numpy() for name in outputs))
    return found


def bits_of(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


def any_bits(dtype: dtypes.DType) -> np.ndarray:
    rng = np.random.default_rng(dtype.bits)
    raw = rng.integers(0, 256, SIZE * dtype.bytes).astype(np.uint8)
    return (raw & 1).view(dtype.numpy) if dtype.is_bool else raw.view(dtype.numpy)


def moves_of(dtype: dtypes.DType) -> list[tuple[str, str, int]]:
    """(text, constraints, pack) of moves through each class of register that elements fit in."""
    found = []
    for letter in PER_WIDTH[dtype.bits]:
        for pack in (1, 2, 4):
            share = min(max(1, 32 // dtype.bits), pack)
            if share * dtype.bits > WIDTHS[letter]:
                continue
            count = pack // share
            text = "".join(f"{MOVES[letter]} ${i}, ${count + i}; " for i in range(count))
            found.append((text, ",".join([f"={letter}"] * count + [letter] * count), pack))
    return found


@ptxforge.jit
def apply_all(x, out, TEXTS: tl.constexpr, TYPE: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    y = tl.load(x + i)
    for k in tl.static_range(len(TEXTS)):
        z = tl.inline_asm_elementwise(TEXTS[k][0], TEXTS[k][1], [y], TYPE, True, TEXTS[k][2])
        tl.store(out + k * SIZE + i, z)


@pytest.mark.parametrize("name", [name for name, dtype in TYPES.items() if not dtype.is_bool])
def test_moves_of_every_type_in_every_register(devices, name):
    """A move gives the element back, in each class of register that it fits in, with each pack."""
    x, texts = any_bits(TYPES[name]), tuple(moves_of(TYPES[name]))
    assert len(texts) >= 6
    arrays = {"x": x, "out": np.zeros(len(texts) * SIZE, x.dtype)}
    constants = dict(TEXTS=texts, TYPE=getattr(tl, name), SIZE=SIZE)
    for (out,) in everywhere(devices, apply_all, arrays, ("out",), **constants):
        for got, text in zip(out.reshape(-1, SIZE), texts):
            np.testing.assert_array_equal(bits_of(got), bits_of(x), str(text))


@pytest.mark.parametrize("letter, move", [("b", "mov.pred"), ("r", "mov.b32"), ("h", "mov.b16")])
def test_truth_values(devices, letter, move):
    x = any_bits(dtypes.int1)
    constants = dict(ASM=f"{move} $0, $1;", LETTERS=f"={letter},{letter}", TYPE=tl.int1, PACK=1, SIZE=SIZE)
    for (out,) in everywhere(devices, apply, {"x": x, "out": np.zeros_like(x)}, ("out",), **constants):
        np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "float16", "bfloat16", "float8e5"])
def test_bits_above_an_element_are_zeros(devices, name):
    dtype = TYPES[name]
    x = any_bits(dtype)
    for pack in (1, 2) if dtype.bits == 8 else (1,):
        share = min(pack, 32 // dtype.bits)
        constants = dict(ASM=("mov.b32 $0, $1;" if pack == 1 else "mov.b32 $0, $2; shr.u32 $1, $2, 16;"),
                         LETTERS="=r,r" if pack == 1 else "=r,=r,r", TYPE=tl.int32, PACK=pack, SIZE=SIZE)
        wanted = bits_of(x).astype(np.int32)
        if share == 2:
            wanted = np.stack([wanted[::2] | wanted[1::2] << 8, np.zeros_like(wanted[::2])], 1).ravel()
        arrays = {"x": x, "out": np.zeros(SIZE, np.int32)}
        for (out,) in everywhere(devices, apply, arrays, ("out",), **constants):
            if share == 2:  # which elements come together is not defined: their words are
                out, wanted = np.sort(out), np.sort(wanted)
                assert (out[: SIZE // 2] == 0).all()
            else:
                np.testing.assert_array_equal(out, wanted)


@ptxforge.jit
def halves(x, low, high, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.inline_asm_elementwise(
        """
        {
            .reg .b32 t;          // names of its own
            and.b32 $0, $2, 0x0F0F0F0F;
            shr.b32 t, $2, 4;
            and.b32 $1, t, 0x0F0F0F0F;
        }
        """, "=r,=r,r", [tl.load(x + i)], dtype=(tl.int8, tl.uint8), is_pure=True, pack=4,
    )  # fmt: skip
    tl.store(low + i, a)
    tl.store(high + i, b)


def test_several_results_of_packed_elements(devices):
    x = any_bits(dtypes.int8)
    arrays = {"x": x, "low": np.zeros(SIZE, np.int8), "high": np.zeros(SIZE, np.uint8)}
    for low, high in everywhere(devices, halves, arrays, ("low", "high"), SIZE=SIZE):
        np.testing.assert_array_equal(low, x & 15)
        np.testing.assert_array_equal(high, x.view(np.uint8) >> 4)


@ptxforge.jit
def widths(x, y, out, narrow, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.inline_asm_elementwise(
        "cvt.u32.u16 $0, $2; add.u32 $0, $0, $3; cvt.u16.u32 $1, $3;", "=r,=h,h,r",
        [tl.load(x + i), tl.load(y + i)], dtype=[tl.int32, tl.int16], is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(out + i, a)
    tl.store(narrow + i, b)


def test_operands_of_different_types(devices):
    x, y = any_bits(dtypes.uint16), any_bits(dtypes.int32)
    arrays = {"x": x, "y": y, "out": np.zeros(SIZE, np.int32), "narrow": np.zeros(SIZE, np.int16)}
    for out, narrow in everywhere(devices, widths, arrays, ("out", "narrow"), SIZE=SIZE):
        np.testing.assert_array_equal(out, x.astype(np.int32) + y)
        np.testing.assert_array_equal(narrow, y.astype(np.int16))


def test_numbers_scalars_and_shapes_are_broadcast(devices):
    @ptxforge.jit
    def kernel(x, s, out, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        args = [tl.load(x + i)[:, None], tl.load(s), tl.load(x + i)[None, :], 3]
        y = tl.inline_asm_elementwise("mad.lo.s32 $0, $1, $2, $3; sub.s32 $0, $0, $4;", 
                                      "=&r, r, r, r, r,~{memory}", args, tl.int32, True, 1)  # fmt: skip
        tl.store(out + i[:, None] * SIZE + i[None, :], y)

    x, s = np.arange(16, dtype=np.int32) - 5, np.array([7], np.int32)
    arrays = {"x": x, "s": s, "out": np.zeros((16, 16), np.int32)}
    for (out,) in everywhere(devices, kernel, arrays, ("out",), SIZE=16):
        np.testing.assert_array_equal(out, x[:, None] * 7 + x[None, :] - 3)


def test_a_group_that_is_not_full(devices):
    """Four elements at a time, where a thread has one."""
    constants = dict(ASM="add.u32 $0, $1, 0x01010101;", LETTERS="=r,r", TYPE=tl.uint8, PACK=4, SIZE=2)
    x = np.array([3, 250], np.uint8)
    for (out,) in everywhere(devices, apply, {"x": x, "out": np.zeros_like(x)}, ("out",), **constants):
        np.testing.assert_array_equal(out, x + 1)


def test_tied_operands_and_constants(devices):
    @ptxforge.jit
    def kernel(x, out, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        value = tl.load(x + i)
        y = tl.inline_asm_elementwise("add.s32 $0, $0, $2; add.s32 $0, $0, $1;", "=r,0,n", [value, 40],
                                      tl.int32, True, 1)  # fmt: skip
        tl.store(out + i, y + value)

    x = any_bits(dtypes.int32)
    for (out,) in everywhere(devices, kernel, {"x": x, "out": np.zeros_like(x)}, ("out",), SIZE=SIZE):
        np.testing.assert_array_equal(out, 3 * x + 80)


def test_dollars_and_percents_stand_for_themselves(devices):
    constants = dict(ASM="{ .reg .b32 %mine$$; mov.b32 %mine$$, ${1:r}; not.b32 ${0}, %mine$$; }",
                     LETTERS="=r,r", TYPE=tl.int32, PACK=1, SIZE=SIZE)  # fmt: skip
    x = any_bits(dtypes.int32)
    for (out,) in everywhere(devices, apply, {"x": x, "out": np.zeros_like(x)}, ("out",), **constants):
        np.testing.assert_array_equal(out, ~x)


def test_a_text_with_labels_may_come_many_times(devices):
    """Each thread has several elements, so the text comes several times."""
    text = ".reg .pred p; setp.lt.s32 p, $1, 0; mov.b32 $0, $1; @!p bra DONE; neg.s32 $0, $1;\nDONE:\n"
    constants = dict(ASM=text, LETTERS="=r,r", TYPE=tl.int32, PACK=1, SIZE=1024)
    x = np.arange(1024, dtype=np.int32) * 77 - 40000
    for (out,) in everywhere(devices, apply, {"x": x, "out": np.zeros_like(x)}, ("out",), **constants):
        np.testing.assert_array_equal(out, abs(x))


def test_results_written_before_inputs_are_read_in_a_loop(devices):
    """A carried value may be computed in place only by single instructions."""

    @ptxforge.jit
    def kernel(x, out, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        a = tl.load(x + i)
        for _ in range(5):
            a = tl.inline_asm_elementwise("mov.b32 $0, 3; mad.lo.s32 $0, $1, $0, $1;", "=r,r", [a], tl.int32,
                                          True, 1)  # fmt: skip
        tl.store(out + i, a)

    x = np.arange(SIZE, dtype=np.int32)
    for (out,) in everywhere(devices, kernel, {"x": x, "out": np.zeros_like(x)}, ("out",), SIZE=SIZE):
        np.testing.assert_array_equal(out, x * 4**5)


# -- memory, effects, the program ------------------------------------------------------------------------


def test_pointers_and_effects(devices):
    """Writes, and reads through pointers; nothing of it is dropped, though nobody uses the results."""

    @ptxforge.jit
    def kernel(x, out, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        y = tl.inline_asm_elementwise("ld.global.b32 $0, [$1];", "=r,l", [x + i], tl.int32, False, 1)
        tl.inline_asm_elementwise("mov.b32 $0, 0; st.global.b32 [$1], $2;", "=r,l,r", [out + i, y * 2],
                                  tl.int32, False, 1)  # fmt: skip

    x = any_bits(dtypes.int32)
    for (out,) in everywhere(devices, kernel, {"x": x, "out": np.zeros_like(x)}, ("out",), SIZE=SIZE):
        np.testing.assert_array_equal(out, x * 2)


def test_results_may_be_pointers(devices):
    @ptxforge.jit
    def kernel(x, out, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        p = tl.inline_asm_elementwise("add.s64 $0, $1, 8;", "=l,l", [x + i // 2],
                                      tl.pointer_type(tl.int32), True, 1)  # fmt: skip
        tl.store(out + i, tl.load(p))

    x = any_bits(dtypes.int32)
    for (out,) in everywhere(devices, kernel, {"x": x, "out": np.zeros_like(x)}, ("out",), SIZE=SIZE):
        np.testing.assert_array_equal(out, x[np.arange(SIZE) // 2 + 2])


def test_without_operands_the_result_is_a_scalar(devices):
    @ptxforge.jit
    def kernel(out):
        a, b = tl.inline_asm_elementwise("mov.u32 $0, %ctaid.x; mov.u32 $1, %nctaid.x;", "=r,=r", [],
                                         (tl.int32, tl.int32), True, 1)  # fmt: skip
        tl.store(out + tl.program_id(0), a * 10 + b)

    for (out,) in everywhere(devices, kernel, {"out": np.zeros(3, np.int32)}, ("out",), grid=3):
        np.testing.assert_array_equal(out, [3, 13, 23])


def test_constants_of_a_function_that_combines_many_pairs_at_once(devices):
    @ptxforge.jit
    def larger_beyond(a, b):
        return tl.inline_asm_elementwise("max.s32 $0, $1, $2; max.s32 $0, $0, $3;", "=r,r,r,r", [a, b, 7],
                                         tl.int32, True, 1)  # fmt: skip

    @ptxforge.jit
    def kernel(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
        block = tl.load(x + i[:, None] * COLUMNS + j)
        tl.store(out + i, tl.reduce(block, 1, larger_beyond))

    x = np.random.default_rng(3).integers(-9, 9, (16, 256)).astype(np.int32)
    arrays = {"x": x, "out": np.zeros(16, np.int32)}
    for (out,) in everywhere(devices, kernel, arrays, ("out",), ROWS=16, COLUMNS=256):
        np.testing.assert_array_equal(out, np.maximum(x.max(axis=1), 7))


def ptx_of(kernel, signature: dict[str, str], constants: dict[str, Any] | None = None) -> str:
    return kernel.compile(signature, constants or {}, target="sm_90a").asm["ptx"]


def test_pure_texts_are_shared_and_dropped_and_others_are_not():
    @ptxforge.jit
    def kernel(out, n, PURE: tl.constexpr):
        a = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [n], tl.int32, PURE, 1)
        b = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [n], tl.int32, PURE, 1)
        tl.inline_asm_elementwise("not.b32 $0, $1;", "=r,r", [n], tl.int32, PURE, 1)
        tl.store(out, a + b)

    signature = {"out": "*i32", "n": "i32"}
    counts = [ptx_of(kernel, signature, {"PURE": pure}).count("brev.b32 %") for pure in (True, False)]
    assert counts == [1, 2]
    assert "not.b32" not in ptx_of(kernel, signature, {"PURE": True})
    assert "not.b32" in ptx_of(kernel, signature, {"PURE": False})


def test_pure_texts_leave_loops():
    @ptxforge.jit
    def kernel(out, n):
        for k in range(n):
            a = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [n], tl.int32, True, 1)
            tl.store(out + k, a)

    text = ptx_of(kernel, {"out": "*i32", "n": "i32"})
    assert text.index("brev.b32") < text.index("\n$")


# -- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "constants, message",
    [
        (dict(LETTERS="=r"), "have 0 inputs, but the types .i32. take 1 registers"),
        (dict(LETTERS="r,r"), "have 0 results"),
        (dict(LETTERS="=r,x"), "'x' is none of"),
        (dict(LETTERS="=r,q"), "'q' is none of"),
        (dict(LETTERS="=r,3"), "'3' is not the number of a result"),
        (dict(LETTERS="r,=r"), "stands after an input"),
        (dict(LETTERS="=h,r"), r"1 × i32 \(32 bits\) does not fit in a register 'h'"),
        (dict(PACK=2), "take 2 registers with pack = 2"),
        (dict(PACK=3), "must be a power of two, is 3"),
        (dict(ASM="mov.b32 $0, $2;"), r"\$2 stands in the text, but there are 2 operands"),
        (dict(ASM=3), "'asm' of inline_asm_elementwise.*must be a string"),
        (dict(TYPE=3), "must be an element type"),
        (dict(ASM="{ .reg .b32 %r1; mov.b32 $0, $1; }"), "declares '%r1', a name of the compiler"),
        (dict(ASM="{ .reg .b32 a, %r<3>, c; mov.b32 $0, $1; }"), "declares '%r<', a name of the compiler"),
        (dict(ASM="{ .reg .f32 %f<3>; mov.b32 $0, $1; }"), "declares '%f<', a name of the compiler"),
    ],
)
def test_what_does_not_fit_is_refused(constants, message):
    usual = dict(ASM="mov.b32 $0, $1;", LETTERS="=r,r", TYPE=tl.int32, PACK=1, SIZE=SIZE)
    with pytest.raises(CompilationError, match=message):
        ptx_of(apply, {"x": "*i32", "out": "*i32"}, usual | constants)


def test_arguments_must_be_a_list():
    @ptxforge.jit
    def kernel(out):
        tl.store(out, tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", 3, tl.int32, True, 1))

    with pytest.raises(CompilationError, match="must be a list of blocks and scalars, is constexpr 3"):
        ptx_of(kernel, {"out": "*i32"})


@pytest.mark.parametrize(
    "text, message",
    [
        ("mov.u32 $0, %laneid;", "'%laneid' means nothing without threads"),
        ("shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "'shfl.sync.bfly.b32' means nothing without threads"),
        ("nonsense.b32 $0, $1;", "unknown instruction nonsense.b32"),
        ("{ .reg .b64 p; mov.b64 p, 8; ld.global.b32 $0, [p]; }", "out-of-bounds"),
    ],
)
def test_what_the_interpreter_cannot_do_it_says(text, message):
    constants = dict(ASM=text, LETTERS="=r,r", TYPE=tl.int32, PACK=1, SIZE=SIZE)
    function = build(apply.fn, {"x": "*i32", "out": "*i32"}, constants, target="sm_90a")
    arrays = {"x": np.zeros(SIZE, np.int32), "out": np.zeros(SIZE, np.int32)}
    with pytest.raises(InterpreterError, match=message):
        interpreter.run(function, 1, arrays)


def test_host_addresses():
    memory, array = AddressSpace(), np.zeros(64, np.int32)
    start = memory.register(array)
    addresses = np.array([start, start + 4, start + 256, 5], np.int64)
    host = memory.to_host(addresses)
    assert (host - array.ctypes.data).tolist()[:3] == [0, 4, 256] and host[3] == 5
    np.testing.assert_array_equal(memory.from_host(host), addresses)


@ptxforge.jit
def names_of_the_compiler(x, out, N: tl.constexpr):
    """Names that the compiler gives, too, to registers that no operand lies in."""
    i = tl.arange(0, N)
    text: tl.constexpr = """{
        .reg .pred %p<2>;
        .reg .b64 %t0, %q<1>;
        setp.gt.s32 %p1, $1, 3;
        selp.b32 $0, 10, 20, %p1;
    }"""
    kept = tl.load(x + i) > 5
    y = tl.inline_asm_elementwise(text, "=r,r", [tl.load(x + i)], tl.int32, is_pure=True, pack=1)
    tl.store(out + i, tl.where(kept, y, -y))


def test_assembly_may_hide_names_that_it_does_not_use(execute):
    x = np.arange(64, dtype=np.int32)
    expected = np.where(x > 3, 10, 20) * np.where(x > 5, 1, -1)
    for (found,) in execute(names_of_the_compiler, (1,), [x, np.zeros_like(x)], {"N": 64}, outputs=[1]):
        np.testing.assert_array_equal(found, expected)
