"""A kernel that may store to a read-only array is refused before it runs; reading one is allowed."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import ArgumentError


@ptxforge.jit
def double(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


@ptxforge.jit
def walk(x, out, flag, n, BLOCK: tl.constexpr):
    """Stores through a pointer that a loop carries and a branch chooses."""
    target = out
    if flag == 1:
        target = out + 1
    for _ in range(n):
        tl.atomic_add(target + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))
        target += BLOCK


@ptxforge.jit
def through_memory(table, x, BLOCK: tl.constexpr):
    """The address that is written is a value in memory: no parameter is."""
    target = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(target + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))


def _readonly(count: int = 64) -> np.ndarray:
    return np.frombuffer(np.arange(count, dtype=np.float32).tobytes(), np.float32)


def test_reading_is_allowed(emulator):
    x, out = _readonly(), np.zeros(64, np.float32)
    with ptxforge.use_device(emulator):
        double[(1,)](x, out, BLOCK=64)
    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.parametrize("array", [_readonly(), _readonly(68)[4:], _readonly().reshape(8, 8)])
def test_a_store_names_the_argument(emulator, array):
    before = array.copy()
    with ptxforge.use_device(emulator), pytest.raises(ArgumentError, match="'out'.*read-only") as error:
        double[(1,)](np.ones(64, np.float32), array, BLOCK=64)
    assert error.value.argument == "out"
    np.testing.assert_array_equal(array, before)


def test_the_same_array_may_become_readonly(emulator):
    """The launch was prepared for a writable array of the same kind."""
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    with ptxforge.use_device(emulator):
        double[(1,)](x, out, BLOCK=64)
        out.flags.writeable = False
        with pytest.raises(ArgumentError, match="read-only"):
            double[(1,)](x, out, BLOCK=64)


def test_a_memory_map_is_not_written(emulator, tmp_path):
    """This was a crash of the process."""
    file = tmp_path / "data.bin"
    file.write_bytes(bytes(256))
    out = np.memmap(file, np.float32, mode="r")
    with ptxforge.use_device(emulator), pytest.raises(ArgumentError, match="read-only"):
        double[(1,)](np.ones(64, np.float32), out, BLOCK=64)
    assert not np.fromfile(file, np.float32).any()


@pytest.mark.parametrize("versioned", [True, False])
def test_arrays_by_dlpack(emulator, versioned):
    class Exported:
        """What another library's array offers; an export of before version 1.0 tells no flags."""

        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, max_version=None, copy=None, dl_device=None, **options):
            if max_version is not None and not versioned:
                raise TypeError("unexpected keyword argument 'max_version'")
            return self.array.__dlpack__(max_version=max_version if versioned else None)

    with ptxforge.use_device(emulator):
        out = np.zeros(64, np.float32)
        double[(1,)](Exported(np.ones(64, np.float32)), Exported(out), BLOCK=64)
        assert (out == 2).all()
        if versioned:
            with pytest.raises(ArgumentError, match="'out'.*read-only"):
                double[(1,)](np.ones(64, np.float32), Exported(_readonly()), BLOCK=64)
        Exported.__module__ = "jaxlib.xla_extension"
        with pytest.raises(ArgumentError, match="'out'.*read-only"):
            double[(1,)](np.ones(64, np.float32), Exported(out), BLOCK=64)


def test_which_parameters_are_written():
    signature = {"x": "*fp32", "out": "*fp32", "flag": "i32", "n": "i32"}
    assert walk.compile(signature, {"BLOCK": 32}).written == ("out",)
    assert double.compile({"x": "*fp32", "out": "*fp32"}, {"BLOCK": 32}).written == ("out",)
    assert through_memory.compile({"table": "*i64", "x": "*fp32"}, {"BLOCK": 32}).written == ()


def test_the_disk_cache_keeps_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    signature = {"x": "*fp32", "out": "*fp32"}
    for _ in range(2):
        assert double.compile(signature, {"BLOCK": 32}).written == ("out",)


@pytest.mark.parametrize("option", ["restore_value", "reset_to_zero"])
def test_the_autotuner_restores_no_readonly_array(emulator, option):
    tuned = ptxforge.autotune(
        [ptxforge.Config({}, num_warps=1), ptxforge.Config({}, num_warps=2)], key=[], **{option: ["x"]}
    )(double)
    with ptxforge.use_device(emulator), pytest.raises(ArgumentError, match="'x'.*read-only"):
        tuned[(1,)](_readonly(), np.zeros(64, np.float32), BLOCK=64)
    with ptxforge.use_device(emulator), pytest.raises(ArgumentError, match="'x': is no array: it cannot be"):
        tuned[(1,)](5, np.zeros(64, np.float32), BLOCK=64)


def test_the_autotuner_says_which_array_cannot_be_written(emulator):
    configs = [ptxforge.Config({}, num_warps=1), ptxforge.Config({}, num_warps=2)]
    tuned = ptxforge.autotune(configs, key=[])(double)
    with ptxforge.use_device(emulator), pytest.raises(ArgumentError, match="'out'.*read-only"):
        tuned[(1,)](np.ones(64, np.float32), _readonly(), BLOCK=64)
