"""What kernels take for granted of arguments of which they make tensor descriptors is checked by launches."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.driver.protocol import Checked
from ptxforge.runtime import cache, slots
from ptxforge.runtime.devices import device
from ptxforge.runtime.loaded import c_header
from ptxforge.support.errors import ArgumentError

ODD = "argument 'stride': the strides of make_tensor_descriptor.* that of dimension 0 is 72"
BEHIND = "argument 'x': the base of make_tensor_descriptor.* lies 4 bytes behind such a place"


@ptxforge.jit
def rows(x, out, n, stride):
    matrix = tl.make_tensor_descriptor(x, [n, 8], [stride, 1], [4, 8])
    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out + at, matrix.load([0, 0]))


@ptxforge.jit
def sums(x, out, n, stride, more):
    matrix = tl.make_tensor_descriptor(x, [n, 8], [4 * n * stride + (more + 2).to(tl.int64), 1], [4, 8])
    tl.store(out, tl.sum(matrix.load([0, 0])))


@ptxforge.jit
def twice(x, out, n, stride):
    one = tl.make_tensor_descriptor(x, [n, 8], [stride, 1], [4, 8])
    other = tl.make_tensor_descriptor(x, [n, n, 8], [stride * 3, stride, 1], [1, 4, 8])
    tl.store(out, tl.sum(one.load([0, 0])) + tl.sum(other.load([0, 0, 0])))


@ptxforge.jit
def perhaps(x, out, n, stride):
    if n > 4:
        matrix = tl.make_tensor_descriptor(x, [n, 8], [stride, 1], [4, 8])
        tl.store(out, tl.sum(matrix.load([0, 0])))


@ptxforge.jit
def moved(x, out, n, stride):
    matrix = tl.make_tensor_descriptor(
        x + tl.program_id(0) * stride, [n, 8], [stride * tl.num_programs(0), 1], [4, 8])
    tl.store(out, tl.sum(matrix.load([0, 0])))


UNKNOWN = {"x": "*fp16", "out": "*fp16", "n": "i32", "stride": "i32"}


@pytest.mark.parametrize(
    "kernel, changed, promises",
    [
        (rows, {}, ["x: a multiple of 16", "stride: a multiple of 8"]),
        (rows, {"x": "*fp32"}, ["x: a multiple of 16", "stride: a multiple of 4"]),
        (rows, {"x": "*i64:16"}, ["stride: a multiple of 2"]),
        (rows, {"x": "*fp16:16", "stride": "i32:16"}, []),
        (rows, {"x": "*fp16:16", "stride": "i64:8"}, []),
        (twice, {}, ["x: a multiple of 16", "stride: a multiple of 8"]),
        (twice, {"stride": "i32:16"}, ["x: a multiple of 16"]),
        (sums, {"more": "i32"}, ["x: a multiple of 16", "4*n*stride + more + 2: a multiple of 8"]),
        (sums, {"more": "i32:16"}, ["x: a multiple of 16", "4*n*stride + more + 2: a multiple of 8"]),
        (perhaps, {}, []),
        (moved, {}, []),
    ],
)
def test_what_is_taken_for_granted(kernel, changed, promises):
    made = kernel.compile(UNKNOWN | changed, target="sm_90a")
    assert list(map(str, made.promises)) == promises


def _data(rows: int, stride: int, beyond: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that begin ``beyond`` elements behind a multiple of 16 bytes."""
    room = np.arange(rows * stride + 12, dtype=np.float32)
    first = -room.ctypes.data % 16 // 4 + beyond
    return room[first : first + rows * stride], np.zeros((4, 8), np.float32)


@pytest.mark.parametrize("where", ["emulator", "interpreter"])
def test_launches(where):
    with ptxforge.use_device(device(where)):
        for stride in (12, 20, 16, 12):
            x, out = _data(6, stride)
            rows[(1,)](x, out, 6, stride)
            np.testing.assert_array_equal(out, x.reshape(6, stride)[:4, :8])
        for _ in range(2):
            with pytest.raises(ArgumentError, match=ODD):
                rows[(1,)](*_data(6, 18), 6, 18)
            with pytest.raises(ArgumentError, match=BEHIND):
                rows[(1,)](*_data(6, 12, beyond=1), 6, 12)


def test_numbers_that_are_computed(emulator):
    with ptxforge.use_device(emulator):
        out = np.zeros(1, np.float32)
        sums[(1,)](_data(1, 600)[0], out, 2, 9, 2)
        with pytest.raises(ArgumentError, match=r"'n': .* 4 \* n \* stride \+ more \+ 2, is 292$"):
            sums[(1,)](_data(1, 600)[0], out, 2, 7, 15)


def test_alignment_that_no_variant_depends_on(emulator):
    kernel = ptxforge.jit(rows.fn, do_not_specialize_on_alignment=["x", "stride"])
    with ptxforge.use_device(emulator):
        kernel[(1,)](*_data(6, 16), 6, 16)
        with pytest.raises(ArgumentError, match=BEHIND):
            kernel[(1,)](*_data(6, 16, beyond=1), 6, 16)
    assert len(kernel.variants) == 1


def test_launches_on_a_gpu(arrays):
    """The first launch, the second, those that are many, the same again, with arguments fixed, Triton's."""
    x, out, _ = arrays
    kernel = ptxforge.jit(rows.fn)
    for stride in (4, 12, 12, 12, 20, 12):
        variant = kernel[(1,)](x, out, 6, stride)
        with pytest.raises(ArgumentError, match=ODD):
            kernel[(1,)](x, out, 6, 18)
    bound = kernel.bind((1,), x, out, 6, 12)
    bound()
    with pytest.raises(ArgumentError, match=ODD):
        bound.update(stride=18)()
    bound.update(stride=20)()
    call = 1, 1, 1, 0, variant.function, variant.packed_metadata, None, None, None
    variant.run(*call, x, out, 6, 12)
    with pytest.raises(ArgumentError, match=ODD):
        variant.run(*call, x, out, 6, 18)


def test_the_raw_launch_on_the_emulator(emulator):
    x, out = (ptxforge.to_device(array, emulator) for array in _data(6, 12))
    variant = ptxforge.jit(rows.fn)[(1,)](x, out, 6, 12)
    call = 1, 1, 1, 0, variant.function, variant.packed_metadata, None, None, None
    variant.run(*call, x, out, 6, 12)
    with pytest.raises(ArgumentError, match=ODD):
        variant.run(*call, x, out, 6, 18)


def test_a_signature_that_says_it_costs_nothing(emulator):
    """The launch takes the arguments as they are; one that cannot know is one expression longer."""
    parameters = rows.params
    known = rows.compile({"x": "*fp32:16", "out": "*fp32:16", "n": "i32", "stride": "i32:16"})
    assert slots.sources(parameters, known, emulator) == [0, 1, 2, 3]
    unknown = rows.compile({"x": "*fp32:16", "out": "*fp32:16", "n": "i32", "stride": "i32"})
    *first, last = slots.sources(parameters, unknown, emulator)
    assert first == [0, 1, 2] and isinstance(last, Checked)
    assert last.text("wrong") == "v[3] if not v[3] & 3 else wrong(v)"


def test_kernels_on_disk(tmp_path, monkeypatch, emulator):
    made = rows.compile({"x": "*fp32", "out": "*fp32:16", "n": "i32", "stride": "i32"}, target="sm_80")
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    cache.store_artifact("entry", made)
    assert cache.load("entry", lambda: made).promises == made.promises
    made.save(tmp_path / "rows.ptxf")
    kernel = ptxforge.load(tmp_path / "rows.ptxf")
    with ptxforge.use_device(emulator):
        kernel[(1,)](*_data(6, 12), 6, 12)
        with pytest.raises(ArgumentError, match=BEHIND):
            kernel[(1,)](*_data(6, 12, beyond=1), 6, 12)
    header = c_header(made, b"PTX\0")
    assert " *   x: a multiple of 16\n *   stride: a multiple of 4\n" in header
