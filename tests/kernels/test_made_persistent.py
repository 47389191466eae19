"""Products whose programs the compiler lets walk over tiles: what they compute, how they are launched, and
which kernels stay as they are. Multiprocessors are few here, so that programs have several tiles."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.compiler import compile_ir
from ptxforge.ir.ops.arith import DivSI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.mbarrier import TensorLoad
from ptxforge.ir.parser import parse_function
from ptxforge.runtime.loaded import c_header
from ptxforge.runtime.slots import layout
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from ptxforge.support import programs
from tests.driver.fake_driver import FakeDriver, install
from tests.kernels.persistent import SMALL, WIDE, compiled, problem, product
from tests.passes import gpu


def tiles(m: int, n: int) -> int:
    return -(-m // WIDE["BM"]) * -(-n // WIDE["BN"])


def is_persistent(artifact) -> bool:
    return programs.is_persistent(artifact.parameters)


# -- meaning ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("shape", [(304, 528, 176), (128, 256, 64), (256, 512, 16), (80, 1040, 96)], ids=str)
def test_product(few, execute, shape, persistent):
    """Tiles beyond the edges; one tile for several multiprocessors; fewer steps than stages."""
    arguments, expected = problem(*shape)
    constants = WIDE | {"GROUP": 2, "KIND": ""}
    for (out,) in execute(product, (tiles(*shape[:2]),), arguments, constants, outputs=[2], num_warps=8,
                          persistent=persistent):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


def test_a_product_without_steps(few, execute):
    arguments, _ = problem(256, 256, 16)
    arguments[6] = 0
    expected = np.broadcast_to(arguments[3].astype(np.float16), (1, 256, 256))
    constants = WIDE | {"GROUP": 2, "KIND": ""}
    for (out,) in execute(product, (2,), arguments, constants, outputs=[2], num_warps=8):
        np.testing.assert_array_equal(out, expected)


def test_several_rows_of_programs(few, execute):
    """They are as many blocks as programs: see ``programs.blocks``."""
    arguments, expected = problem(144, 272, 80, batches=2)
    constants = WIDE | {"GROUP": 1, "KIND": "rows"}
    for (out,) in execute(product, (4, 2), arguments, constants, outputs=[2], num_warps=8):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("seed", range(3))
def test_random_products(few, seed):
    """Sums that round: the same bits as without, whatever the shape, order, depth and types."""
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.integers(low, high)) * 16 for low, high in ((5, 30), (12, 50), (1, 14)))
    group, stages = int(rng.integers(1, 5)), seed + 2
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    arrays = [a.astype(np.float16), b.astype(np.float16), np.zeros((m, n), np.float16),
              rng.standard_normal(n, np.float32)]  # fmt: skip
    for device in few:
        outs = []
        for persistent in (True, False):
            kernel = ptxforge.compile(product.fn)  # whose newest variant is the one launched
            placed = [ptxforge.to_device(x.copy(), device) for x in arrays]
            kernel[(tiles(m, n),)](*placed, m, n, k, 16, **WIDE, GROUP=group, KIND="", num_warps=8,
                                   num_stages=stages, persistent=persistent)  # fmt: skip
            outs.append(placed[2].numpy())
            assert is_persistent(kernel.variants[-1].artifact) == (persistent and stages > 2)
        np.testing.assert_array_equal(*outs)
        reference = arrays[0].astype(np.float32) @ arrays[1] + arrays[3]
        np.testing.assert_allclose(outs[0], reference, rtol=4e-3, atol=4e-3 * k**0.5)


@pytest.mark.parametrize("text", ["tile", "gpu"])
def test_interpreter(text):
    """After the passes it finds copies without a place, waits that never end, tiles that are still read."""
    arguments, expected = problem(304, 528, 176)
    function = parse_function(compiled().asm[text])
    interpreter.run(function, tiles(304, 528), arguments)
    np.testing.assert_array_equal(arguments[2], expected)


@ptxforge.jit
def by_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a @ bᵀ."""
    tiles_n = tl.cdiv(N, BN)
    i, j = tl.program_id(0) // tiles_n * BM, tl.program_id(0) % tiles_n * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        acc = tl.dot(a.load([i, step * BK]), b.load([j, step * BK]).T, acc)
    c.store([i, j], acc.to(tl.float16))


def test_descriptors(few, execute):
    of = TensorDescriptor.from_tensor
    a, b, c, *_ = problem(304, 528, 176)[0]
    a, b, c = a[0], np.ascontiguousarray(b.T), c[0]
    described = of(a, [128, 64]), of(b, [256, 64]), of(c, [128, 256])
    for (out,) in execute(by_descriptors, (tiles(304, 528),), [*described, 304, 528, 176], WIDE, outputs=[2],
                          num_warps=8):  # fmt: skip
        np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.T).astype(np.float16))
    assert is_persistent(by_descriptors.variants[-1].artifact)


# -- launches ---------------------------------------------------------------------------------------------


def test_as_many_blocks_as_multiprocessors():
    assert programs.blocks((512, 1, 1), 132) == (132, 1, 1)
    assert programs.blocks((131, 1, 1), 132) == (131, 1, 1)
    assert programs.blocks((512, 1, 2), 132) == (512, 1, 2)
    assert programs.blocks((0, 1, 1), 132) == (0, 1, 1)


def test_every_way_to_launch(few, emulator, tmp_path):
    """Bound to its arguments and changed, a variant by itself, saved to a file, Triton's launch function."""
    shape = 304, 528, 176
    arguments, expected = problem(*shape)
    grid, constants = (tiles(*shape[:2]),), WIDE | {"GROUP": 2, "KIND": ""}
    arrays = [ptxforge.to_device(x, emulator) for x in arguments[:4]]
    kernel = ptxforge.jit(product.fn)

    def check(launch) -> None:
        arrays[2].copy_from(np.full_like(expected, np.nan))
        launch()
        np.testing.assert_array_equal(arrays[2].numpy(), expected)

    bound = kernel.bind((1,), *arrays, *shape, 304 * 176, **constants, num_warps=8)
    bound.grid = grid
    variant = bound.variant
    assert is_persistent(variant.artifact)
    check(bound)
    check(lambda: variant[grid](*arrays, *shape, 304 * 176))
    numbers = [*shape, 304 * 176, *constants.values()]
    check(lambda: variant.run(*grid, 1, 1, 0, None, None, None, None, None, *arrays, *numbers))
    variant.artifact.save(tmp_path / "kernel.ptxf")
    loaded = ptxforge.load(tmp_path / "kernel.ptxf")
    check(lambda: loaded[grid](*arrays, *shape, 304 * 176))


class Tensor:
    """As a torch tensor of f16 on the first GPU."""

    __module__ = "torch"
    dtype, device = "torch.float16", "cuda:0"

    def __init__(self, address: int):
        self._address = address

    def data_ptr(self) -> int:
        return self._address

    def get_device(self) -> int:
        return 0


def test_what_the_driver_is_told(monkeypatch):
    """In the first launch of a variant, in later ones, in those that repeat, and in bound ones."""
    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 5)
    monkeypatch.setitem(sys.modules, "torch", torch)
    driver = install(monkeypatch, FakeDriver())
    kernel = ptxforge.jit(product.fn)
    arguments = [*(Tensor(0x10000 * n) for n in (1, 2, 3, 4)), 1024, 1024, 1024, 16]
    constants = WIDE | {"GROUP": 2, "KIND": "", "num_warps": 8}
    grids = [(512,), (132,), (133,), (131,), (512,), (512,), (512,), (300, 2)]
    for grid in grids:
        kernel[grid](*arguments, **constants)
    bound = kernel.bind((700,), *arguments, **constants)
    bound()
    bound.grid = 9
    bound()
    (variant,) = kernel.variants
    unpack = layout([kind for _, kind in variant.artifact.parameters]).unpack
    place = [kind for _, kind in variant.artifact.parameters].index(programs.TYPE)
    assert [(launch.grid, unpack(launch.params)[place]) for launch in driver.launches] == [
        ((132, 1, 1), 512), ((132, 1, 1), 132), ((132, 1, 1), 133), ((131, 1, 1), 131), ((132, 1, 1), 512),
        ((132, 1, 1), 512), ((132, 1, 1), 512), ((300, 2, 1), 300), ((132, 1, 1), 700), ((9, 1, 1), 9),
    ]  # fmt: skip


def test_texts_say_what_the_parameter_is():
    artifact = compiled(line_info=False)
    assert ("programs", programs.TYPE) in artifact.parameters
    again = compile_ir(artifact.asm["gpu"], "sm_90a")
    assert again.parameters[-3:] == artifact.parameters[-3:] and again.ptx == artifact.ptx
    header = c_header(artifact, b"\0")
    assert "int32_t programs" in header and "programs: how many programs there are" in header


# -- which kernels ----------------------------------------------------------------------------------------


def test_the_next_tile_is_loaded_while_this_one_is_stored():
    artifact = compiled()
    outer, inner = gpu.operations(parse_function(artifact.asm["gpu"]), For)
    copies = [op for op in outer.body.operations if isinstance(op, TensorLoad)]
    assert copies and all(inner.is_before_in_block(op) for op in copies)
    divisions = [op for op in outer.body.operations if isinstance(op, DivSI)]
    assert len(divisions) == 2 and all(copies[-1].is_before_in_block(op) for op in divisions)
    (remark,) = [remark for remark in artifact.remarks if remark.kind == "persistent"]
    assert "persistent=False" in remark.message


def test_the_exchange_behind_four_stages_has_room_for_a_half(assemble):
    """Eight of the rows of a warp at a time, with no more instructions than for all of them at once."""
    three, four = (compiled(num_stages=stages) for stages in (3, 4))
    assert is_persistent(four) and four.shared_bytes <= 227 << 10
    for artifact in (three, four):
        assert artifact.ptx.count("stmatrix.sync.aligned.m8n8.x4") == 16
        assert artifact.ptx.count("st.global.v4") == 16
        assemble(artifact.ptx)


@pytest.mark.parametrize("options", [
    {"persistent": False}, {"tensor_maps": False}, {"blocks": SMALL, "num_warps": 4},
    {"blocks": WIDE | {"BK": 32}, "num_stages": 9}, {"num_stages": 2}, {"out": "fp32"},
    {"num_ctas": 2}, {"target": "sm_90"}, {"target": "sm_100a"},
    {"kind": "count"}, {"kind": "prints"}, {"kind": "barrier"}, {"kind": "read"}, {"kind": "atomic"},
    {"kind": "twice"}, {"kind": "second loop"},
], ids=str)  # fmt: skip
def test_others_stay(options):
    """Two blocks in a multiprocessor, no room for the epilogue beside the tiles, programs that others see."""
    artifact = compiled(**options)
    assert not is_persistent(artifact)
    assert not [remark for remark in artifact.remarks if remark.kind == "persistent"]


def test_a_parameter_of_the_same_name():
    @ptxforge.jit
    def named(a, b, c, programs, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        i, j, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
        x, y = a + i[:, None] * programs + k[None, :], b + k[:, None] * BN + j[None, :]
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, programs, BK):
            acc = tl.dot(tl.load(x + start), tl.load(y + start * BN), acc)
        tl.store(c + i[:, None] * BN + j[None, :], acc.to(tl.float16))

    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp16:16", "programs": "i32:16"}
    artifact = named.compile(signature, WIDE, target="sm_90a", num_warps=8)
    assert [name for name, kind in artifact.parameters if kind == programs.TYPE] == ["programs_"]
