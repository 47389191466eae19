"""What Triton's kernels lean on at the launch, and is easy to miss."""

from __future__ import annotations

import copy
import inspect
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
import ptxforge.runtime.jit
from ptxforge.runtime.autotune import Autotuner
from ptxforge.triton_compat import testing


@ptxforge.jit
def helpers(x, n, BLOCK: tl.constexpr):
    steps = ptxforge.cdiv(n, BLOCK)
    size: tl.constexpr = ptxforge.next_power_of_2(BLOCK + 1)
    tl.store(x + tl.arange(0, BLOCK), steps * 1000 + size)


@ptxforge.jit
def warps(x, num_warps: tl.constexpr):
    tl.store(x + tl.arange(0, 16), num_warps)


@ptxforge.jit
def optional(x, bias, SCALE: tl.constexpr = 3):
    value = tl.load(x + tl.arange(0, 128)) * SCALE
    if bias is not None:
        value += tl.load(bias + tl.arange(0, 128))
    tl.store(x + tl.arange(0, 128), value)


@ptxforge.jit
def twice(v):
    return v * 2


@ptxforge.jit
def apply(x, FN: tl.constexpr, KIND: tl.constexpr):
    value = tl.load(x + tl.arange(0, 128))
    tl.store(x + tl.arange(0, 128), FN(value).to(KIND))


@pytest.fixture
def placed(devices):
    """``placed(array)``: for each executor the array in its memory."""
    return lambda array: [ptxforge.to_device(array, device) for device in devices]


def test_host_helpers_inside_a_kernel(placed):
    for x in placed(np.zeros(16, np.int32)):
        helpers[(1,)](x, 100, BLOCK=16)
        assert (x.numpy() == 7032).all()


def test_a_kernel_that_is_called_and_not_launched():
    with pytest.raises(RuntimeError, match="can be called inside a kernel only"):
        helpers(np.zeros(16, np.int32), 100, 16)


def test_a_parameter_named_as_an_option(placed):
    """By keyword it is both; by position it is the parameter, and the option keeps its default."""
    for x in placed(np.zeros(16, np.int32)):
        launched = warps[(1,)](x, num_warps=8)
        assert (x.numpy() == 8).all() and launched.metadata.num_warps == 8
        launched = warps[(1,)](x, 2)
        assert (x.numpy() == 2).all() and launched.metadata.num_warps == 4


def test_none_for_a_pointer_and_defaults(placed):
    for x, bias in zip(placed(np.arange(128)), placed(np.full(128, 100)), strict=True):
        optional[(1,)](x, None)
        np.testing.assert_array_equal(x.numpy(), 3 * np.arange(128))
        optional[(1,)](x, bias, SCALE=1)
        np.testing.assert_array_equal(x.numpy(), 3 * np.arange(128) + 100)


def test_functions_and_types_as_constants(placed):
    for x in placed(np.arange(128, dtype=np.float32)):
        launched = apply[(1,)](x=x, FN=twice, KIND=tl.float32)
        np.testing.assert_array_equal(x.numpy(), 2 * np.arange(128))
        assert apply[(1,)](x, twice, tl.float32) is launched


class Counted(ptxforge.runtime.jit.KernelInterface):
    """What users derive from Triton's interface: Triton calls ``run`` with the grid by name."""

    def __init__(self, fn):
        self.fn, self.arg_names, self.launches = fn, fn.arg_names, 0

    def run(self, *args, grid, warmup, **kwargs):
        self.launches += not warmup
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)


def test_run_takes_the_grid_by_name(placed):
    counted = Counted(apply)
    tuned = ptxforge.autotune([ptxforge.Config({"KIND": tl.float32})], key=[])(counted)
    tuned.__name__ = "apply"
    for x in placed(np.arange(128, dtype=np.float32)):
        apply.run(x, twice, tl.float32, grid=(1,), warmup=False)
        compiled = apply.run(x, twice, tl.float32, grid=(1,), warmup=True, num_warps=2)
        assert compiled.metadata.num_warps == 2
        counted[(1,)](x, twice, tl.float32)
        tuned[(1,)](x, twice)
        np.testing.assert_array_equal(x.numpy(), 8 * np.arange(128))
    assert counted.launches == 2 * len(placed(np.zeros(1)))


def test_an_interface_of_a_user_pickles_as_any_object():
    counted = pickle.loads(pickle.dumps(Counted(twice)))
    assert counted.fn is twice and copy.copy(counted) is not counted


class Entry(ptxforge.runtime.jit.KernelInterface):
    """Launches the compiled kernel again, as packages do that save the time of choosing it: what a launch
    leaves out is a parameter's default, or what the heuristics below decided."""

    def __init__(self, tuned):
        self.tuned, self.kernel = tuned, tuned.fn

    def run(self, *args, grid, **kwargs):
        compiled = self.tuned.run(*args, grid=grid, **kwargs)
        missing = self.kernel.params[len(args) :]
        found = {p.name: p.default for p in missing if p.default is not inspect.Parameter.empty}
        decided = {name: decide({}) for name, decide in self.tuned.values.items()}
        compiled[grid](*args, *({**decided, **kwargs, **found}[p.name] for p in missing))


def test_parameters_without_a_default_say_so(placed):
    assert [p.default for p in optional.params] == [inspect.Parameter.empty] * 2 + [3]
    assert pickle.loads(pickle.dumps(optional)).params == optional.params
    entry = Entry(ptxforge.heuristics({"BLOCK": lambda named: 32})(helpers))
    for x in placed(np.zeros(32, np.int32)):
        entry[(1,)](x, 70)
        assert (x.numpy() == 3064).all()


def test_another_text_for_a_kernel(placed):
    """Triton's tests put variants of a kernel together from text."""
    kernel = ptxforge.jit(optional.fn)
    text = kernel.src.replace("* SCALE", "* SCALE + 1")
    for x in placed(np.arange(128)):
        kernel[(1,)](x, None)
        before = kernel.cache_key
        kernel._unsafe_update_src(text)
        kernel[(1,)](x, None, SCALE=2)
        np.testing.assert_array_equal(x.numpy(), 2 * (3 * np.arange(128)) + 1)
        assert kernel.cache_key != before and "SCALE + 1" in kernel.src
        kernel._unsafe_update_src(optional.src)
    with pytest.raises(ptxforge.errors.CompilationError, match="does not define 'optional'"):
        kernel._unsafe_update_src("def other(): pass")


@ptxforge.jit(repr=lambda spec: f"{spec.name}_{spec.constants['SCALE']}_{spec.signature['x'][1:5]}")
def named(x, SCALE: tl.constexpr):
    tl.store(x, tl.load(x) * SCALE)


def test_names_of_variants(placed, tmp_path, monkeypatch):
    for x in placed(np.ones(1, np.float32)):
        made = named[(1,)](x, SCALE=3)
        assert (made.name, made.metadata.name, x.numpy()[0]) == ("named_3_fp32",) * 2 + (3.0,)
        assert ".entry named_3_fp32(" in made.asm["ptx"]
        assert named[(1,)](x, SCALE=4).name == "named_4_fp32"


def test_the_disk_cache_knows_names(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    for name in ("one", "other", "one"):
        kernel = ptxforge.jit(repr=lambda spec, name=name: name)(named.fn)
        assert kernel.compile({"x": "*fp32"}, {"SCALE": 3}).name == name


def test_a_name_that_ptx_does_not_have():
    kernel = ptxforge.jit(repr=lambda spec: f"{spec.name}<{spec.signature['x']}>")(named.fn)
    assert ".entry named__fp32_(" in kernel.compile({"x": "*fp32:16"}, {"SCALE": 2}).asm["ptx"]
    kernel = ptxforge.jit(repr=lambda spec: "2 words")(named.fn)
    with pytest.raises(ptxforge.errors.ArgumentError, match="'repr': gives '2 words', which cannot be"):
        kernel.compile({"x": "*fp32"}, {"SCALE": 3})


def test_classes_derived_from_the_autotuner():
    """Packages derive from Triton's class: its constructor's names, and what it tells of hooks."""

    class Derived(Autotuner):
        def __init__(self, fn, **options):
            super().__init__(fn, fn.arg_names, [ptxforge.Config({})], [], None, None, **options)

    kernel = ptxforge.jit(_nothing)
    tuner = Derived(kernel, use_cuda_graph=False, do_bench=None, cache_results=False)
    assert (tuner.user_defined_pre_hook, tuner.user_defined_post_hook) == (False, False)
    assert Derived(kernel, pre_hook=lambda arguments: None).user_defined_pre_hook


def _nothing(x):
    pass


@pytest.mark.parametrize("target, multiprocessors, megahertz, f16, f32", [
    ("sm_90a", 132, 1830, 989, 62), ("sm_80", 108, 1410, 312, 19.5), ("sm_86", 72, 1695, 125, 31.2)
])  # fmt: skip
def test_peaks_of_a_gpu(monkeypatch, target, multiprocessors, megahertz, f16, f32):
    """TFLOP/s as the data sheets have them."""
    gpu = SimpleNamespace(target=target, multiprocessors=multiprocessors)
    monkeypatch.setattr(testing, "_device", lambda device: gpu)
    kilohertz = megahertz * 1000
    for size, factor in ((np.float16, 1), (np.float32, 0.5), (np.int8, 2)):
        found = testing.get_max_tensorcore_tflops(np.dtype(size), kilohertz)
        assert found == pytest.approx(factor * f16, rel=0.01)
    assert testing.get_max_simd_tflops(np.dtype(np.float32), kilohertz) == pytest.approx(f32, rel=0.01)
    assert testing.get_max_simd_tflops(np.dtype(np.float16), kilohertz) == pytest.approx(2 * f32, rel=0.01)
