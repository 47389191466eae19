"""What tells a compiler that is as it should be from one that is not: each check takes a second or two."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import ptxforge
import ptxforge.language as tl
from ptxforge.cli.demo_kernels import matmul, softmax
from ptxforge.emulator import EmulatorDevice

FACTS = Path(__file__).parents[1] / "kernels" / "facts"


@ptxforge.jit
def spread(x, out, SIZE: tl.constexpr):
    """A number is counted up where it lies, after every element of out, which other threads write, got it."""
    i = tl.arange(0, SIZE)
    number = tl.load(x)
    tl.store(x, number + 1)
    tl.store(out + i, number + i)


@ptxforge.jit
def running(x, out, total, SIZE: tl.constexpr):
    """Sums up to each element, their order turned round, and all of it added to a number."""
    i = tl.arange(0, SIZE)
    sums = tl.cumsum(tl.load(x + i), 0)
    tl.store(out + i, tl.flip(sums))
    tl.atomic_add(total + tl.arange(0, 4), tl.sum(tl.reshape(sums, (4, SIZE // 4)), 1))


@ptxforge.jit
def boxes(x, out, rows, columns):
    """Boxes that reach beyond the tensor, on both sides."""
    source = tl.make_tensor_descriptor(x, (rows, columns), (columns, 1), (16, 16))
    target = tl.make_tensor_descriptor(out, (rows, columns), (columns, 1), (16, 16))
    row = tl.program_id(0) * 16
    target.store([row, 16], source.load([row, 16]) + source.load([row, -8]) + 1)


@ptxforge.jit
def mixed(x, out):
    i = tl.arange(0, 64)
    wide, narrow = tl.load(x + i), tl.load(x + i).to(tl.uint8)
    tl.store(out + i, (wide // 3) % 7 + (narrow >> 1) + tl.where(wide < 5, 1, wide))


def _launched(kernel, grid, target, arrays, *scalars, **options) -> list[np.ndarray]:
    device = EmulatorDevice(check="all", target=target)
    placed = [ptxforge.to_device(array, device) for array in arrays]
    kernel[grid](*placed, *scalars, **options)
    assert not device.findings, "\n".join(map(str, device.findings))
    return [array.numpy() for array in placed]


def _integers(*shape: int, seed: int = 0, dtype=np.int32) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


def product(target: str) -> None:
    """A pipelined product whose last block along k is cut off."""
    a, b = _integers(128, 152, dtype=np.float16), _integers(152, 64, seed=1, dtype=np.float16)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    out = np.zeros((128, 64), np.float32)
    *_, found = _launched(matmul, (2, 1), target, [a, b, out], 128, 64, 152, **blocks, num_stages=3)
    np.testing.assert_array_equal(found, a.astype(np.float32) @ b.astype(np.float32))


def rows(target: str) -> None:
    x = _integers(3, 200, dtype=np.float32)
    _, found = _launched(softmax, (3,), target, [x, np.zeros_like(x)], 200, BLOCK=256)
    expected = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, expected / expected.sum(1, keepdims=True), rtol=1e-5)


def in_place(target: str) -> None:
    x, out = _launched(spread, (1,), target, [np.array([5], np.int32), np.zeros(256, np.int32)], SIZE=256)
    assert x == 6
    np.testing.assert_array_equal(out, 5 + np.arange(256))


def scan(target: str) -> None:
    x = _integers(512)
    _, out, total = _launched(running, (1,), target, [x, np.zeros_like(x), np.ones(4, np.int32)], SIZE=512)
    np.testing.assert_array_equal(out, np.cumsum(x)[::-1])
    np.testing.assert_array_equal(total, 1 + np.cumsum(x).reshape(4, 128).sum(1))


def bounds(target: str) -> None:
    x = _integers(20, 24)
    _, out = _launched(boxes, (2,), target, [x, np.zeros_like(x)], 20, 24)
    np.testing.assert_array_equal(out[:, 16:], x[:, 16:] + 1)
    assert not out[:, :16].any()


def arithmetic(target: str) -> None:
    x = np.arange(64, dtype=np.int32) * 7
    _, out = _launched(mixed, (1,), target, [x, np.zeros_like(x)])
    expected = x // 3 % 7 + (x.astype(np.uint8) >> 1) + np.where(x < 5, 1, x)
    np.testing.assert_array_equal(out, expected)


def facts(name: str, target: str) -> None:
    """What a benchmark's kernel consists of is what its table says."""
    from tests.kernels.configured import compiled
    from tests.kernels.static_facts import facts_of

    expected = json.loads((FACTS / f"{target}.json").read_text())[name]
    assert facts_of(compiled(name, target).ptx) == expected


def run(check: str) -> None:
    """``product sm_80``: a check and its arguments."""
    name, *arguments = check.split()
    globals()[name](*arguments)
