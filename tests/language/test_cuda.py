"""``tl.extra.cuda``: clocks, multiprocessors, launches that overlap."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.frontend import build
from ptxforge.language.extra import cuda
from ptxforge.support.errors import CompilationError


@ptxforge.jit
def where_and_when(out):
    start = tl.extra.cuda.globaltimer()
    place = cuda.smid()
    end = cuda.globaltimer()
    pid = tl.program_id(0)
    tl.store(out + pid * 4, start)
    tl.store(out + pid * 4 + 1, end)
    tl.store(out + pid * 4 + 2, place)
    tl.store(out + pid * 4 + 3, cuda.num_threads() + cuda.num_warps())


def test_clock_and_multiprocessor(devices):
    for device in devices:
        out = ptxforge.to_device(np.zeros((3, 4), np.int64), device)
        where_and_when[3, 1, 1](out, num_warps=2)
        start, end, place, threads = out.numpy().T
        assert (start > 0).all() and (end >= start).all()
        assert (place >= 0).all() and (place < 200).all()
        assert (threads == 66).all()


def test_clock_in_the_interpreter():
    out = np.zeros(4, np.int64)
    interpreter.run(build(where_and_when.fn, {"out": "*i64"}, {}, target="sm_90a"), 1, {"out": out})
    assert out[1] >= out[0] and out[3] == 132


def test_the_clock_is_read_each_time():
    text = where_and_when.compile({"out": "*i64"}, {}, target="sm_90a").asm["ptx"]
    assert text.count("%globaltimer") == 2 and text.count("%smid") == 1


def test_numbers_of_threads_are_known_while_compiling():
    def kernel():
        tl.static_assert(cuda.num_warps() == 8)
        tl.static_assert(tl.arange(0, cuda.num_threads()).shape[0] == 256)

    build(kernel, {}, {}, target="sm_80", num_warps=8)


@ptxforge.jit
def dependent(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    cuda.gdc_wait()
    value = tl.load(x + i)
    cuda.gdc_launch_dependents()
    tl.store(out + i, value + 1)


def test_dependent_launches(devices):
    x = np.arange(64, dtype=np.int32)
    held = {"x": x, "out": np.zeros_like(x)}
    signature = {"x": "*i32", "out": "*i32"}
    interpreter.run(build(dependent.fn, signature, {"SIZE": 64}, target="sm_90a"), 1, held)
    np.testing.assert_array_equal(held["out"], x + 1)
    for device in devices:
        placed = [ptxforge.to_device(a, device) for a in (x, np.zeros_like(x))]
        dependent[1, 1, 1](*placed, SIZE=64)
        np.testing.assert_array_equal(placed[1].numpy(), x + 1)


def test_dependent_launches_stand_where_they_are_written():
    signature = {"x": "*i32", "out": "*i32"}
    text = dependent.compile(signature, {"SIZE": 64}, target="sm_90").asm["ptx"]
    words = ("griddepcontrol.wait", "ld.global", "griddepcontrol.launch", "st.")
    places = [text.index(word) for word in words]
    assert places == sorted(places) and text.startswith(".version 7.8")
    with pytest.raises(CompilationError, match="sm_80 has no dependent launches"):
        dependent.compile(signature, {"SIZE": 64}, target="sm_80")
