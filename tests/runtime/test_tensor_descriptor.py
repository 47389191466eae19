"""Tensor descriptors as arguments: what they are specialised for, what may change between launches."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import triton_compat
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from ptxforge.support import descriptor
from ptxforge.support.errors import ArgumentError


@pytest.fixture
def double():
    @ptxforge.jit
    def double(x_desc, out_desc):
        out_desc.store([0, 0], x_desc.load([0, 0]) * 2)

    return double


def _pair(rows=8, columns=16, dtype=np.float32, box=(8, 16), seen=None, **options):
    """Descriptors of two matrices, of which ``seen`` columns are told."""
    x = np.arange(rows * columns).reshape(rows, columns).astype(dtype)
    shape, strides = (rows, seen or columns), (columns, 1)
    return [TensorDescriptor(array, shape, strides, box, **options) for array in (x, np.zeros_like(x))]


def test_one_variant_for_all_tensors_of_a_type(double, emulator):
    """Other sizes, strides and addresses are told at the launch."""
    with ptxforge.use_device(emulator):
        for rows in (8, 9, 20):
            x, out = _pair(rows, 32)
            double[(1,)](x, out)
            np.testing.assert_array_equal(out.base[:8, :16], 2 * x.base[:8, :16])
            assert not out.base[8:].any() and not out.base[:, 16:].any()
        assert len(double.variants) == 1


@pytest.mark.parametrize("change", [
    {"dtype": np.float16}, {"box": (4, 16)}, {"padding": "nan"}, {"seen": 15},
], ids=lambda change: next(iter(change)))  # fmt: skip
def test_other_types_are_other_variants(double, emulator, change):
    with ptxforge.use_device(emulator):
        double[(1,)](*_pair())
        double[(1,)](*_pair(**change))
        double[(1,)](*_pair())
    assert len(double.variants) == 2


def test_a_descriptor_that_changes_between_launches(double, emulator):
    x, out = _pair(16, 32)
    with ptxforge.use_device(emulator):
        for box in ([4, 16], [16, 32], [8, 8]):
            x.block_shape = out.block_shape = box
            out.base = np.zeros_like(out.base)
            double[(1,)](x, out)
            expected = np.zeros_like(x.base)
            expected[: box[0], : box[1]] = 2 * x.base[: box[0], : box[1]]
            np.testing.assert_array_equal(out.base, expected)


def test_an_autotuner_chooses_the_box(emulator):
    """As the usual tutorial does: a hook writes the configuration's sizes into the descriptors."""

    def sizes(arguments):
        arguments["x_desc"].block_shape = arguments["out_desc"].block_shape = [arguments["ROWS"], 16]

    @ptxforge.autotune([ptxforge.Config({"ROWS": n}, pre_hook=sizes) for n in (4, 8)], key=["M"])
    @ptxforge.jit
    def copy(x_desc, out_desc, M, ROWS: tl.constexpr):
        i = tl.program_id(0) * ROWS
        out_desc.store([i, 0], x_desc.load([i, 0]))

    with ptxforge.use_device(emulator):
        x, out = (ptxforge.to_device(np.full((24, 16), value, np.float32), emulator) for value in (3, 0))
        descriptors = [TensorDescriptor.from_tensor(array, [1, 1]) for array in (x, out)]
        copy[lambda meta: (-(-24 // meta["ROWS"]),)](*descriptors, 24)
        assert (out.numpy() == 3).all()


def test_an_autotuner_restores_what_a_kernel_changes(emulator):
    @ptxforge.autotune(
        [ptxforge.Config({}, num_warps=n) for n in (1, 2, 4)], key=["M"], restore_value=["x_desc"],
        reset_to_zero=["out_desc"],
    )  # fmt: skip
    @ptxforge.jit
    def double_in_place(x_desc, out_desc, M):
        x_desc.store([0, 0], x_desc.load([0, 0]) * 2)
        out_desc.atomic_add([0, 0], x_desc.load([0, 0]))

    with ptxforge.use_device(emulator):
        x, out = (ptxforge.to_device(np.full((8, 16), 3, np.float32), emulator) for _ in range(2))
        double_in_place[(1,)](*(TensorDescriptor.from_tensor(array, [8, 16]) for array in (x, out)), 8)
        assert (x.numpy() == 6).all() and (out.numpy() == 6).all()


def test_a_bound_launch(double, emulator):
    x, out = (TensorDescriptor.from_tensor(ptxforge.to_device(d.base, emulator), [8, 16]) for d in _pair())
    with ptxforge.use_device(emulator):
        bound = double.bind((1,), x, out)
        bound()
        np.testing.assert_array_equal(out.base.numpy(), 2 * x.base.numpy())
        bound.update(x_desc=out)()
        np.testing.assert_array_equal(out.base.numpy(), 4 * x.base.numpy())


def test_a_base_that_is_replaced_is_checked(double, emulator):
    x, out = _pair()
    with ptxforge.use_device(emulator):
        double[(1,)](x, out)
        x.base = np.zeros(200, np.float32)[1:]
        with pytest.raises(ArgumentError, match="'base': must be aligned to 16 bytes"):
            double[(1,)](x, out)


def test_descriptors_in_tuples_and_warmup(double, emulator):
    @ptxforge.jit
    def double_pair(pair):
        pair[1].store([0, 0], pair[0].load([0, 0]) * 2)

    with ptxforge.use_device(emulator):
        x, out = _pair()
        double_pair[(1,)]((x, out))
        np.testing.assert_array_equal(out.base, 2 * x.base)
        double.warmup(x, out, grid=(1,))
        assert len(double.variants) == 1


def test_the_launch_of_a_compiled_kernel(double, emulator):
    """Triton's own launch function takes the descriptors too."""
    with ptxforge.use_device(emulator):
        x, out = _pair()
        compiled = double.warmup(x, out, grid=(1,))
        compiled.run(1, 1, 1, 0, compiled.function, compiled.packed_metadata, None, None, None, x, out)
        np.testing.assert_array_equal(out.base, 2 * x.base)


def test_ahead_of_time(double, assemble):
    signature = {"x_desc": "tensordesc<fp16[128, 64]>", "out_desc": "tensordesc<fp16[128,64],nan>:16"}
    artifact = double.compile(signature, target="sm_80")
    assemble(artifact.ptx)
    assert dict(artifact.parameters)["out_desc.shape.1"] == "i32:8"
    assert dict(artifact.parameters)["x_desc.stride.0"] == "i64:8"


@pytest.mark.parametrize(
    "text", ["tensordesc<fp32[8,16]>", "tensordesc<bf16[64],nan>:16", "tensordesc<i8[1,1,2,4,16]>"]
)
def test_the_text_of_a_type(text):
    assert str(descriptor.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["tensordesc<fp32>", "tensordesc<fp32[]>", "tensordesc<fp32[8],inf>", "tensordesc<x[8]>"]
)
def test_texts_that_are_no_types(text):
    with pytest.raises(ValueError, match="is not the type of a tensor descriptor"):
        descriptor.parse(text)


def test_strides_of_other_arrays(emulator):
    x = np.zeros((4, 8, 16), np.float16)
    assert TensorDescriptor.from_tensor(x[::2], [1, 8, 16]).strides == [256, 16, 1]
    assert TensorDescriptor.from_tensor(ptxforge.to_device(x, emulator), [1, 8, 16]).strides == [128, 16, 1]


def test_the_names_that_triton_gives_them():
    if "triton" in sys.modules and not triton_compat.is_installed():
        pytest.skip("the real triton is imported in this process")
    triton_compat.install()
    try:
        named = importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor
        helpers = importlib.import_module("triton.tools.ragged_tma")
        assert named is TensorDescriptor
        for name in ("create_ragged_descriptor", "load_ragged", "store_ragged", "atomic_add_ragged"):
            assert hasattr(helpers, name)
    finally:
        triton_compat.uninstall()
