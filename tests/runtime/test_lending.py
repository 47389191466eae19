"""Host arrays on the emulator: each argument is bounded by itself, whatever memory it is a view of."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime.lending import Argument, Loan
from ptxforge.support.errors import EmulatorError


@ptxforge.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@ptxforge.jit
def add_rows(x, out, stride_x, stride_out, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    tl.store(out + i * stride_out + j, tl.load(x + i * stride_x + j) + 1)


HALVES = {
    "one after the other": lambda base: (base[:32], base[32:]),
    "the other way round": lambda base: (base[32:], base[:32]),
    "with an element between": lambda base: (base[:31], base[32:64]),
    "of separate arrays": lambda base: (base[:32].copy(), base[32:].copy()),
}


@pytest.mark.parametrize("halves", HALVES.values(), ids=HALVES)
def test_an_access_beyond_a_view_is_found_though_the_next_one_begins_there(emulator, halves):
    x, out = halves(np.arange(64, dtype=np.float32))
    with ptxforge.use_device(emulator), pytest.raises(EmulatorError) as error:
        copy[(1,)](x, out, x.size + 1, BLOCK=64)
    text = str(error.value)
    assert "out-of-bounds: global read" in text and f"x[{x.size}], past the end of 'x'" in text
    assert f"float32[{x.size}]" in text


@pytest.mark.parametrize("halves", HALVES.values(), ids=HALVES)
def test_views_of_one_array_are_written_where_they_are(emulator, halves):
    base = np.arange(64, dtype=np.float32)
    x, out = halves(base)
    wanted = x.copy()
    with ptxforge.use_device(emulator):
        copy[(1,)](x, out, 31, BLOCK=64)
    np.testing.assert_array_equal(out[:31], wanted[:31])
    np.testing.assert_array_equal(x, wanted)


def test_two_dimensional_views_name_their_element(emulator):
    base = np.zeros((8, 16), np.float32)
    x, out = base[:4], base[4:]
    with ptxforge.use_device(emulator):
        add_rows[(1,)](x, out, 16, 16, M=4, N=16)
        assert (out == 1).all() and not x.any()
        with pytest.raises(EmulatorError, match=r"x\[4, 0\], past the end of 'x', float32\[4, 16\]"):
            add_rows[(1,)](x, out, 16, 16, M=8, N=16)


def test_interleaved_views_are_one_piece(emulator):
    base = np.zeros((16, 8), np.float32)
    x, out = base[:, :4], base[:, 4:]
    with ptxforge.use_device(emulator):
        add_rows[(1,)](x, out, 8, 8, M=16, N=4)
    assert (out == 1).all() and not x.any()


def test_overlapping_views_share_memory(emulator):
    base = np.arange(40, dtype=np.float32)
    with ptxforge.use_device(emulator):
        copy[(1,)](base[:32], base[8:], 4, BLOCK=64)
    np.testing.assert_array_equal(base[8:12], [0, 1, 2, 3])


def test_a_failed_launch_writes_back_as_well(emulator):
    base = np.arange(64, dtype=np.float32)
    with ptxforge.use_device(emulator), pytest.raises(EmulatorError):
        copy[(1,)](base[:32], base[32:], 33, BLOCK=64)
    np.testing.assert_array_equal(base[32:], np.arange(32))


def test_a_readonly_neighbour_is_not_written_back(emulator):
    base = np.frombuffer(np.arange(64, dtype=np.float32).tobytes(), np.float32)
    out = np.zeros(32, np.float32)
    with ptxforge.use_device(emulator):
        copy[(1,)](base[:32], out, 32, BLOCK=64)
    loan = Loan(emulator, [base[:32], base[32:]])
    loan.end()
    np.testing.assert_array_equal(out, base[:32])


def test_large_separate_arrays_are_used_in_place(emulator):
    arrays = [np.zeros(1 << 19, np.float32) for _ in range(3)]
    loan = Loan(emulator, arrays)
    assert loan.addresses == [array.ctypes.data for array in arrays]
    loan.end()
    assert not any(emulator.memory.contains(a.ctypes.data, a.ctypes.data + 4) for a in arrays)


def test_copies_keep_the_alignment(emulator):
    base = np.zeros(256, np.uint8)
    parts = [base[:64], base[64:72], base[72:100]]
    loan = Loan(emulator, parts)
    for part, address in zip(parts, loan.addresses, strict=True):
        assert address % 4096 == part.ctypes.data % 4096
    loan.end()


def test_arguments_without_elements(emulator):
    empty, out = np.zeros(0, np.float32), np.ones(32, np.float32)
    with ptxforge.use_device(emulator):
        copy[(1,)](empty, out, 0, BLOCK=64)
    assert (out == 1).all()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (1000, "x[0, 0]"),
        (1000 + 4 * 17, "x[1, 1]"),
        (1000 + 4 * 64, "x[4, 0], past the end of 'x'"),
        (1000 - 4, "1 element before the start of 'x'"),
    ],
)
def test_how_an_element_is_named(address, words):
    x = Argument("x", 1000, 256, "float32", 4, (4, 16), (16, 1))
    assert x.element_at(address) == words and str(x) == "float32[4, 16]"


def test_how_an_element_of_a_strided_view_is_named():
    x = Argument("x", 1000, 2 * (3 * 64 + 15 * 2 + 1), "float16", 2, (4, 16), (64, 2))
    assert x.element_at(1004) == "x[0, 1]" and x.element_at(1000 + 2 * 196) == "x[3, 2]"
    assert x.element_at(1000 + 2 * (3 * 64 + 32)) == "x[3, 16], past the end of 'x'"
    assert x.element_at(1002) == "1 element after the first of 'x'"
    turned = Argument("x", 1000, 64, "float32", 4, (2, 8), (1, 2))
    assert turned.element_at(1000 + 4 * 5) == "x[1, 2]"
    assert turned.element_at(1064) == "x[0, 8], past the end of 'x'"
    assert Argument("x", 1000, 4, "float32", 4, (), ()).element_at(1000) == "x"
    broadcast = Argument("x", 1000, 32, "float32", 4, (3, 8), (0, 1))
    assert broadcast.element_at(1000 + 4 * 8) == "x[0, 8], past the end of 'x'"
    backwards = Argument("x", 1000, 32, "float32", 4, (8,), (-1,))
    assert backwards.element_at(1000 + 4 * 3) == "3 elements after the first of 'x'"
