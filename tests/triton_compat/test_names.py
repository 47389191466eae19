"""Names of Triton that code reads beside its kernels."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import triton_compat
from ptxforge.runtime import hooks, tools
from ptxforge.runtime.precompile import AsyncCompileMode
from ptxforge.support.errors import ArgumentError, CompilationError, OutOfResourcesError, PtxforgeError
from ptxforge.support.not_there import INSIDES
from ptxforge.triton_compat import compiler, host, knobs
from ptxforge.triton_compat import hooks as hooks_of_triton
from ptxforge.triton_compat import internal_testing as testing
from ptxforge.triton_compat.modules import MODULES, REFUSED

DOCUMENT = Path(__file__).parents[2] / "docs/from-triton.md"


@pytest.fixture
def triton():
    if "triton" in sys.modules and not triton_compat.is_installed():
        pytest.skip("the real triton is imported in this process")
    triton_compat.install()
    yield importlib.import_module("triton")
    triton_compat.uninstall()
    assert not any(finder.__module__.startswith("ptxforge") for finder in map(type, sys.meta_path))


@ptxforge.jit(launch_metadata=lambda grid, metadata, arguments: {"bytes": 4 * grid[0]})
def double(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) * 2)


def launch(device, **options):
    x = ptxforge.to_device(np.arange(128, dtype=np.float32), device)
    double[(1,)](x, BLOCK=128, **options)
    np.testing.assert_array_equal(x.numpy(), 2 * np.arange(128))


# What there will not be


@pytest.mark.parametrize(
    "name",
    [*sorted({*REFUSED} - {*MODULES}), "triton.experimental.gluon.language", "triton._C.libtriton.llvm"],
)
def test_refused_modules_say_why(triton, name):
    for ask in (importlib.import_module, importlib.util.find_spec):
        with pytest.raises(ModuleNotFoundError, match="ptxforge has no 'triton.*: .{20}") as raised:
            ask(name)
        assert f"{name}.".startswith(f"{raised.value.name}.")  # packages compare it with what they asked for


@pytest.mark.parametrize("name", [*sorted(REFUSED), "triton.runtime.interpreter.GridExecutor"])
def test_importing_a_refused_name_from_its_module_says_why(triton, name):
    module, _, leaf = name.rpartition(".")
    if name in MODULES:
        name, module, leaf = f"{name}.no_such_thing", name, "no_such_thing"
    with pytest.raises(ModuleNotFoundError, match=f"^ptxforge has no '{re.escape(name)}': .{{20}}"):
        exec(f"from {module} import {leaf}")


def test_refused_attributes_say_why(triton):
    with pytest.raises(AttributeError, match="'triton.experimental': Gluon"):
        triton.experimental  # noqa: B018
    with pytest.raises(AttributeError, match="hip': ptxforge makes PTX, for NVIDIA's GPUs"):
        triton.language.extra.hip  # noqa: B018
    assert not hasattr(triton, "no_such_thing")
    with pytest.raises(ModuleNotFoundError, match="^No module named 'triton.no_such_module'"):
        importlib.import_module("triton.no_such_module")


def test_the_document_lists_what_is_refused():
    rows = dict(re.findall(r"^\| `(triton\.[\w.]+)` \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE))
    assert {name: why for name, why in rows.items() if name in REFUSED} == REFUSED
    inside = re.findall(r"^\| (`[\w.*]+`(?: `[\w.*]+`)*) \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    told = {why: [f"triton.{name}" for name in names.replace("`", "").split()] for names, why in inside}
    assert {why: {*names.split()} - {*told.get(why, ())} for why, names in INSIDES.items()} == {
        why: set() for why in INSIDES
    }


def test_refused_names_say_why(triton):
    jit = importlib.import_module("triton.runtime.jit")
    with pytest.raises(AttributeError, match="does not cover 'triton.runtime.jit.DependenciesFinder'$"):
        jit.DependenciesFinder  # noqa: B018
    with pytest.raises(AttributeError, match="'triton.language.slice': slices are written as Python"):
        triton.language.slice  # noqa: B018
    with pytest.raises(ImportError, match="has no 'triton.language.core.extern_elementwise': no library of"):
        exec("from triton.language.core import extern_elementwise")
    with pytest.raises(
        ImportError, match="has no 'triton.language._experimental_descriptor_load': Triton took"
    ):
        exec("from triton.language import _experimental_descriptor_load")


# Hooks of launches


def test_launch_hooks(devices):
    seen = []

    def enter(metadata):
        seen.append(("enter", metadata.get()["name"], metadata.get()["bytes"]))

    def leave(metadata):
        seen.append(("exit", metadata.data["name"]))

    before = list(hooks.LAUNCH)
    knobs.runtime.launch_enter_hook.add(enter)
    knobs.runtime.launch_exit_hook.add(leave)
    try:
        for device in devices:
            launch(device)
    finally:
        knobs.runtime.launch_enter_hook.remove(enter)
        knobs.runtime.launch_exit_hook = None
    assert seen == [("enter", "double", 4), ("exit", "double")] * len(devices)
    assert hooks.LAUNCH == before and not knobs.runtime.launch_exit_hook
    launch(devices[0])
    assert len(seen) == 2 * len(devices)


def test_a_hook_may_be_assigned(emulator):
    seen = []
    knobs.runtime.launch_enter_hook = lambda metadata: seen.append(metadata.get()["name"])
    launch(emulator)
    knobs.runtime.launch_enter_hook = None
    launch(emulator)
    assert seen == ["double"]


# Smaller names


def test_extern_libs(emulator):
    launch(emulator, extern_libs={"libdevice": "/usr/local/cuda/nvvm/libdevice/libdevice.10.bc"})
    with pytest.raises(ArgumentError, match="no library but 'libdevice' is known"):
        launch(emulator, extern_libs={"other": "/somewhere.bc"})


def test_warmup_with_mock_tensors_in_asynchronous_mode(emulator):
    with ptxforge.use_device(emulator), ThreadPoolExecutor() as pool, AsyncCompileMode(pool):
        made = double.run(host.MockTensor(tl.float32), grid=(1,), warmup=True, BLOCK=64)
    assert made.metadata.num_warps == 4 and made.result().name == "double"
    with pytest.raises(ValueError), AsyncCompileMode(None):
        raise ValueError("told")


@host.must_use_result
@ptxforge.jit
def halved(x):
    return x / 2


@ptxforge.jit
def drops(x):
    halved(tl.load(x))


@ptxforge.jit
def uses(x):
    tl.store(x, halved(tl.load(x)))


def test_must_use_result():
    uses.compile({"x": "*fp32"})
    with pytest.raises(CompilationError, match=r"the result of halved is not being used"):
        drops.compile({"x": "*fp32"})


@pytest.mark.skipif(not tools.can_disassemble(), reason="no disassembler")
def test_disassembly(tmp_path):
    cubin = tmp_path / "double.cubin"
    cubin.write_bytes(double.compile({"x": "*fp32"}, {"BLOCK": 128}).asm["cubin"])
    assert "EXIT" in compiler.get_sass(cubin.read_bytes()) and "EXIT" in compiler.extract(str(cubin))


@pytest.mark.parametrize("name", [*testing.dtypes_with_bfloat16, "float8_e5m2", "bool"])
def test_random_arrays(name):
    x = testing.numpy_random((3, 50), name)
    assert x.shape == (3, 50) and np.array_equal(x, testing.numpy_random((3, 50), name))
    assert len(np.unique(x)) > 1 and (name not in testing.integral_dtypes or (x != 0).all())
    few = testing.numpy_random(200, "uint8", low=3, high=6)
    assert set(few.tolist()) == {3, 4, 5}


def test_questions_after_the_target():
    assert testing.is_cuda() and testing.is_hopper() and testing.is_hopper_or_newer()
    assert not testing.is_interpreter() and not testing.is_blackwell() and testing.get_arch() == "90"
    assert not any(ask() for ask in testing.OTHER_VENDORS.values())


def test_fresh_knobs(triton, monkeypatch):
    monkeypatch.setenv("TRITON_DEBUG", "1")
    fresh, undo = testing.fresh_knobs_impl()
    found = fresh()
    found.runtime.debug = "changed"
    undo()
    assert found.runtime.debug is True


def test_fresh_knobs_set_variables(triton, monkeypatch):
    from triton import knobs

    monkeypatch.delenv("TRITON_HOME", raising=False)
    monkeypatch.setattr(knobs, "propagate_env", False)
    fresh, undo = testing.fresh_knobs_impl()
    fresh().cache.home_dir = "/there"
    assert os.environ["TRITON_HOME"] == "/there"
    undo()
    assert not knobs.propagate_env and "TRITON_HOME" not in os.environ


def test_names_of_element_types_in_tests():
    names = {"float8_e4m3fn": tl.float8e4nv, "bool": tl.int1, "fp16": tl.float16, "uint8": tl.uint8}
    assert {name: testing.str_to_triton_dtype(name) for name in names} == names


def test_reinterpret_takes_types_of_torch():
    class Tensor:
        dtype, shape, device = "torch.int8", (4,), "cpu"

    tensor = Tensor()
    assert host.reinterpret(tensor, tl.int8) is tensor and host.reinterpret(tensor, "torch.int8") is tensor
    wrapped = host.reinterpret(tensor, "torch.float8_e5m2")
    assert wrapped.dtype == "torch.float8_e5m2" and host.reinterpret(wrapped, tl.int8) is tensor


def test_there_is_no_allocator_at_first():
    with pytest.raises(PtxforgeError, match="no allocator was set"):
        host.NullAllocator()(16, 16, None)


@ptxforge.jit
def asks(out):
    if host.cuda_capability_geq(9, 0) and host.is_cuda() and not host.is_hip():
        tl.store(out, host.current_target().arch)


def test_types_of_arguments(emulator):
    kinds = [
        ((5,), ("i32", "")), ((16,), ("i32", "D")), ((16, False, True, False), ("i32", "")),
        ((1,), ("constexpr", 1)), ((1, False, False), ("i32", None)), ((True,), ("u1", None)),
        ((2.5,), ("fp32", None)), ((1 << 40,), ("i64", "D")), ((None,), ("constexpr", None)),
        ((double,), ("constexpr", double.cache_key)), (((),), ((), ())),
        (((1, 16, None),), (("constexpr", "i32", "constexpr"), (1, "D", None))),
    ]  # fmt: skip
    assert [host.native_specialize_impl(None, *given) for given, _ in kinds] == [kind for _, kind in kinds]
    constant = tl.constexpr(4)
    assert host.native_specialize_impl(None, constant) == ("constexpr", constant)
    aligned = ptxforge.to_device(np.zeros(8, np.float32), emulator)
    assert host.native_specialize_impl(None, aligned, True) == ("*kfp32", "D")
    assert [host.mangle_type(value) for value in (aligned, 1, True)] == ["*fp32", "i32", "u1"]


def test_small_classes():
    lazy = hooks_of_triton.LazyDict({"a": 1})
    lazy.add(lambda b: {"b": b}, (2,))
    assert lazy.get() == lazy.get() == {"a": 1, "b": 2} and lazy.extras == []
    assert host.MockTensor(tl.float32, [2, 3, 4]).stride() == (12, 4, 1)
    error = OutOfResourcesError("shared memory", 2, 1)
    assert (error.name, error.error_message) == ("shared memory", str(error))


def test_kernels_ask_about_the_target():
    out = np.zeros(1, np.int32)
    asks[(1,)](out)
    assert out[0] == 90 == host.current_target().arch
    assert not host.cuda_capability_geq(10) and not host.is_hip_cdna3()
