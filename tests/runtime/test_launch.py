"""Launching a hand-written kernel on every executor."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime.jit import JITFunction, jit
from ptxforge.runtime.launcher import normalize_grid
from ptxforge.support.errors import (
    ArgumentError,
    CompilationError,
    LaunchError,
    OutOfResourcesError,
    PlacementError,
)

from .conftest import ADD_PTX


def _data(n=1000):
    x = np.arange(n, dtype=np.float32)
    return x, 2 * x, np.zeros_like(x)


def test_arrays_of_the_device(kernel, devices):
    for device in devices:
        x, y, out = (ptxforge.to_device(array, device) for array in _data())
        kernel[(8,)](x, y, out, 1000)
        np.testing.assert_array_equal(out.numpy(), 3 * np.arange(1000))


@pytest.mark.parametrize("grid", [8, (8,), (8, 1), [8, 1, 1], np.int64(8), lambda meta: (meta["n"] // 125,)])
def test_spellings_of_a_grid(kernel, emulator, grid):
    x, y, out = _data()
    with ptxforge.use_device(emulator):
        kernel[grid](x, y, out, 1000)
    np.testing.assert_array_equal(out, x + y)


def test_the_grid_function_sees_arguments_and_options(kernel, emulator):
    seen = {}
    x, y, out = _data()
    with ptxforge.use_device(emulator):
        kernel[lambda meta: seen.update(meta) or (1,)](x, y, n=1000, out=out, num_warps=4)
    assert seen.keys() == {"x", "y", "out", "n", "num_warps"} and seen["x"] is x and seen["num_warps"] == 4


@pytest.mark.parametrize("grid", [(0,), (4, 0), (1, 1, 0)])
def test_a_grid_of_zero_launches_nothing(kernel, emulator, grid):
    x, y, out = _data()
    with ptxforge.use_device(emulator):
        assert kernel[grid](x, y, out, 1000) is None
    assert not out.any()


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((-1,), "axis 0 of the grid is -1; it can be from 0 to 2147483647"),
        ((1, 65536), "axis 1 of the grid is 65536; it can be from 0 to 65535"),
        ((1, 2, 3, 4), "one to three axes, not 4"),
        ((), "one to three axes, not 0"),
        ((1.5,), "the axes of a grid are integers"),
        ("8", "the axes of a grid are integers"),
    ],
)
def test_grids_that_cannot_be(grid, message):
    with pytest.raises(LaunchError, match=message):
        normalize_grid(grid)


def test_numpy_arrays_are_used_in_place_and_forgotten(kernel, emulator):
    x, y, out = _data()
    with ptxforge.use_device(emulator):
        kernel[(8,)](x, y, out, 1000)
        assert not emulator.memory.contains(x.ctypes.data, x.ctypes.data + x.nbytes)


def test_two_views_of_one_array(kernel, emulator):
    """Lending one view must not take the other's memory away."""
    memory = np.zeros((3, 1000), np.float32)
    memory[0], memory[1] = 1, 2
    with ptxforge.use_device(emulator):
        kernel[(8,)](memory[0], memory[1], memory[2], 1000)
    assert (memory[2] == 3).all()


def test_one_array_twice(kernel, emulator):
    x, _, out = _data()
    with ptxforge.use_device(emulator):
        kernel[(8,)](x, x, out, 1000)
    np.testing.assert_array_equal(out, 2 * x)


def test_fortran_order(kernel, emulator):
    x, y, out = (np.asfortranarray(array.reshape(20, 50)) for array in _data())
    with ptxforge.use_device(emulator):
        kernel[(8,)](x, y, out, 1000)
    np.testing.assert_array_equal(out, x + y)


def test_device_arrays_and_numpy_together(kernel, emulator):
    x, y, out = _data()
    there = ptxforge.to_device(x, emulator)
    kernel[(8,)](there, y, out, 1000)  # the DeviceArray says where
    np.testing.assert_array_equal(out, x + y)


def test_one_compilation_per_specialisation(kernel, compiled, emulator):
    x, y, out = _data(1025)
    with ptxforge.use_device(emulator):
        for n in (1000, 999, 16, 1):  # n is not specialised
            kernel[(8,)](x[:-1], y[:-1], out[:-1], n)
        assert len(compiled) == 1
        kernel[(8,)](x[1:], y[:-1], out[:-1], 1000)  # not aligned any more
        kernel[(8,)](x[:-1], y[:-1], out[:-1], 1000, num_warps=4)  # the default, spelled out
        assert len(compiled) == 2
        kernel[(8,)](x[:-1], y[:-1], out[:-1], 1000, num_stages=2)
    assert [request["signature"]["x"] for request in compiled] == ["*fp32:16", "*fp32", "*fp32:16"]
    assert compiled[0]["signature"]["n"] == "i32" and len(kernel.variants) == 3


def test_the_default_device_may_change_between_launches(kernel, emulator):
    other = type(emulator)()
    x, y, out = _data()
    for device in (emulator, other, emulator):
        out[:] = 0
        with ptxforge.use_device(device):
            kernel[(8,)](x, y, out, 1000)
        np.testing.assert_array_equal(out, x + y)


def test_what_the_newest_variant_tells(kernel, emulator):
    with pytest.raises(LaunchError, match="'add' has not been compiled yet"):
        kernel.asm  # noqa: B018
    with ptxforge.use_device(emulator):
        launched = kernel[(8,)](*_data(), 1000, num_stages=2)
    assert kernel.variants == [launched] and kernel.asm["ptx"] == ADD_PTX
    assert set(kernel.asm) == {"tile", "gpu", "ptx", "cubin", "sass"}
    metadata = launched.metadata
    assert (metadata.name, metadata.num_warps, metadata.num_stages, metadata.shared) == ("add", 4, 2, 0)
    assert (launched.n_spills, launched.n_max_threads) == (0, 128)


def test_machine_code(kernel, emulator, assemble):
    with ptxforge.use_device(emulator):
        kernel[(8,)](*_data(), 1000)
    assert kernel.asm["cubin"].startswith(b"\x7fELF")


def test_a_variant_launches_itself(kernel, compiled, emulator):
    x, y, out = _data()
    with ptxforge.use_device(emulator):
        variant = kernel.warmup(x, y, out, 1000, num_stages=2)
        assert not out.any()
        variant[(8,)](x, y, out, 1000)
    np.testing.assert_array_equal(out, x + y)
    assert len(compiled) == 1


def test_a_parameter_may_be_called_as_an_option(emulator, monkeypatch):
    """As in a softmax whose loop takes ``num_stages`` as its own constant."""

    @jit
    def staged(out, n, BLOCK: ptxforge.language.constexpr, num_stages: ptxforge.language.constexpr):
        i = ptxforge.language.arange(0, BLOCK)
        ptxforge.language.store(out + i, num_stages, mask=i < n)

    out = np.zeros(16, np.int32)
    with ptxforge.use_device(emulator):
        variant = staged.warmup(out, 5, BLOCK=16, num_stages=2, num_warps=8, grid=(1,))
        assert (variant.metadata.num_stages, variant.metadata.num_warps) == (2, 8)
        variant[(1,)](out, 5, 16, 2)
        assert out.tolist() == [2] * 5 + [0] * 11
        variant[(1,)](out, 7)
        assert out.tolist() == [2] * 7 + [0] * 9
        variant[lambda meta: (meta["BLOCK"] // 16,)](out, 9, num_stages=2)
        assert out.tolist() == [2] * 9 + [0] * 7
    assert staged.variants == [variant]


def test_nothing_is_stored_through_a_const_pointer(emulator):
    @jit
    def writes(x: ptxforge.language.const, out):
        ptxforge.language.store(out, ptxforge.language.load(x))
        ptxforge.language.store(x, 0)

    with ptxforge.use_device(emulator), pytest.raises(CompilationError, match="const"):
        writes[(1,)](np.zeros(4, np.int32), np.zeros(4, np.int32))


def test_errors_have_the_bases_that_callers_catch(emulator):
    assert issubclass(PlacementError, ValueError)

    @jit
    def count(n):
        pass

    with ptxforge.use_device(emulator), pytest.raises(OverflowError, match="argument 'n'"):
        count[(1,)](1 << 64)


def test_warmup_takes_element_types_for_arrays(kernel, compiled, emulator):
    with ptxforge.use_device(emulator):
        kernel.warmup(np.float32, ptxforge.language.float32, np.dtype(np.float32), 1000, grid=(1,))
        kernel[(8,)](*(ptxforge.to_device(array, emulator) for array in _data()), 1000)
    assert len(compiled) == 1


def test_pre_run_hooks(kernel, emulator):
    calls = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: calls.append((len(args), kwargs)))
    with ptxforge.use_device(emulator):
        kernel[(8,)](*_data(), 1000, num_warps=4)
    assert calls == [(4, {"num_warps": 4})]


def test_threads_launch_at_once(kernel, emulator):
    results = {}

    def work(number):
        x, y, out = _data()
        x += number
        kernel[(8,)](
            *(ptxforge.to_device(a, emulator) for a in (x, y)),
            results.setdefault(number, ptxforge.empty(1000, device=emulator)),
            1000,
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, out in results.items():
        np.testing.assert_array_equal(out.numpy(), 3 * np.arange(1000) + number)


def test_jit_is_idempotent_and_keeps_the_functions_face():
    def original(x):
        """Words."""

    kernel = jit(original)
    assert jit(kernel) is kernel and ptxforge.compile(kernel) is kernel
    assert (kernel.__name__, kernel.__doc__, kernel.arg_names) == ("original", "Words.", ["x"])
    assert isinstance(jit(do_not_specialize=[0])(original), JITFunction)


# What cannot be


def _refused(kernel, emulator, message, *args, error=ArgumentError, **kwargs):
    with ptxforge.use_device(emulator), pytest.raises(error, match=message):
        kernel[(8,)](*args, **kwargs)


def test_missing_and_superfluous_arguments(kernel, emulator):
    x, y, out = _data()
    _refused(kernel, emulator, "'add' is missing argument 'n'", x, y, out)
    _refused(kernel, emulator, "'add' is missing arguments 'out', 'n'", x, y)
    _refused(kernel, emulator, "'add' takes 4 arguments, 5 were given", x, y, out, 1, 2)
    _refused(kernel, emulator, "argument 'x' of 'add' is given twice", x, y, out, x=x)
    with pytest.raises(ArgumentError, match="argument 'x' of 'add' is given twice"):
        kernel.run(x, y, out, grid=(8,), x=x)


def test_unknown_options_name_the_nearest(kernel, emulator):
    args = (*_data(), 1000)
    _refused(
        kernel, emulator, "argument 'num_warp': is neither .* did you mean 'num_warps'", *args, num_warp=4
    )
    _refused(
        kernel,
        emulator,
        "argument 'banana': is neither a parameter of the kernel nor an option$",
        *args,
        banana=4,
    )


def test_options_that_would_change_what_happens(kernel, emulator):
    _refused(kernel, emulator, "extern_libs.*not supported", *_data(), 1000, extern_libs="lib.bc")
    with ptxforge.use_device(emulator):
        kernel[(8,)](*_data(), 1000, extern_libs=None, enable_fp_fusion=True)


@pytest.mark.parametrize("value", ["text", object(), [1], {}])
def test_what_is_no_argument(kernel, emulator, value):
    x, y, out = _data()
    _refused(
        kernel,
        emulator,
        "argument 'y': a kernel takes arrays, numbers, booleans and None",
        x,
        value,
        out,
        1000,
    )


def test_an_integer_beyond_64_bits(kernel, emulator):
    _refused(kernel, emulator, r"argument 'n': \d+ does not fit in 64 bits", *_data(), 1 << 64)


def test_arrays_on_two_devices(kernel, emulator):
    x, y, out = _data()
    other = type(emulator)()
    other.name = "emulator of another kind"
    _refused(
        kernel, emulator, "argument 'y': is on emulator of another kind, but 'x' is on emulator",
        ptxforge.to_device(x, emulator), ptxforge.to_device(y, other), out, 1000,
    )  # fmt: skip


def test_a_host_array_given_to_cuda(kernel, emulator):
    emulator.name = "cuda:0"  # what decides is where the other arrays lie
    x, y, out = _data()
    _refused(
        kernel, emulator, r"argument 'y': is a CPU array, and the kernel runs on cuda:0.*to_device",
        ptxforge.to_device(x, emulator), y, ptxforge.to_device(out, emulator), 1000,
    )  # fmt: skip


def test_more_shared_memory_than_there_is(kernel, emulator, monkeypatch):
    emulator.max_shared_bytes = -1
    _refused(
        kernel, emulator, "shared memory: 0 required, -1 available", *_data(), 1000, error=OutOfResourcesError
    )


def test_more_threads_than_a_block_can_have(kernel, emulator):
    emulator.max_threads_per_block = 64
    _refused(
        kernel, emulator, "threads: 128 required, 64 available", *_data(), 1000, error=OutOfResourcesError
    )


def test_more_registers_than_there_are(kernel, emulator):
    _refused(
        kernel,
        emulator,
        "registers .*: 512 required, 128 available",
        *_data(),
        1000,
        num_warps=16,
        error=OutOfResourcesError,
    )


def test_a_kernel_is_not_called(kernel):
    with pytest.raises(LaunchError, match=r"launch it as add\[grid\]\(...\)"):
        kernel(1, 2, 3, 4)


def test_what_is_no_kernel():
    with pytest.raises(ArgumentError, match="a kernel is a Python function"):
        jit(len)
    with pytest.warns(UserWarning, match="'m', listed in do_not_specialize, is no parameter"):
        (n,) = jit(lambda n: None, do_not_specialize=["m", "n"]).params
    assert not n.ones and not n.alignment
    with pytest.warns(UserWarning, match="7, listed in do_not_specialize"):
        (n,) = jit(lambda n: None, do_not_specialize=[7]).params
    assert n.ones and n.alignment


@jit
def of_length(out, LENGTH, function):
    tl.store(out + tl.arange(0, LENGTH), function(LENGTH))


@tl.constexpr_function
def squared(value):
    return value * value


def test_constants_for_ordinary_parameters(emulator):
    """As in Triton: a ``tl.constexpr`` object and a function are compiled in, without an annotation."""
    for length in (8, 16, 8):
        out = np.zeros(16, np.int32)
        with ptxforge.use_device(emulator):
            of_length[(1,)](out, tl.constexpr(length), squared)
        assert out.tolist() == [length**2] * length + [0] * (16 - length)
    assert len(of_length.variants) == 2
