"""Kernels with annotations, as a user of ``mypy --strict`` writes them."""

from __future__ import annotations

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def add(x: tl.tensor, y: tl.tensor, out: tl.tensor, n: int, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@ptxforge.jit(do_not_specialize=["n"])
def scale(x: tl.tensor, n: int, factor: float, BLOCK: tl.constexpr = tl.constexpr(128)) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0.0)
    if factor > 1.0:
        value = value * factor
    tl.store(x + i, -value.to(tl.float32), mask=i < n)


@ptxforge.jit
def rectify(x: tl.tensor, SLOPE: tl.constexpr) -> tl.tensor:
    return tl.where(x >= 0, x, SLOPE * x)


@ptxforge.autotune(configs=[ptxforge.Config({"BLOCK_K": 32}, num_warps=4)], key=["K"])
@ptxforge.jit
def product(
    a: tl.tensor,
    b: tl.tensor,
    c: tl.tensor,
    N: int,
    K: int,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ACTIVATION: tl.constexpr,
) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, BLOCK_K)
    left, right = a + i[:, None] * K + k[None, :], b + k[:, None] * N + j[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in tl.range(0, K, BLOCK_K, num_stages=3):
        inside = step + k < K
        total = tl.dot(tl.load(left, mask=inside[None, :]), tl.load(right, mask=inside[:, None]), total)
        left += BLOCK_K
        right += BLOCK_K * N
    if ACTIVATION == "leaky":
        total = rectify(total, 0.01)
    for _ in tl.static_range(2):
        total *= 0.5
    largest = tl.max(total, axis=1)
    total = tl.exp(total - largest[:, None]) / tl.sum(total, 1)[:, None]
    tl.store(c + i[:, None] * N + j[None, :], total.to(c.dtype.element_ty))


def main() -> float:
    x = ptxforge.to_device(np.ones(1000, np.float32))
    out = ptxforge.empty(1000, tl.float32)
    grid = (ptxforge.cdiv(1000, 128),)
    add[grid](x, x, out, 1000, BLOCK=128, num_warps=4)
    scale[lambda meta: (ptxforge.cdiv(1000, meta["BLOCK"]),)](out, 1000, 2.0, BLOCK=128)
    artifact = ptxforge.compile(
        scale.fn, signature={"x": "*fp32:16", "n": "i32", "factor": "fp32"}, constants={"BLOCK": 128}
    )
    text: str = artifact.asm["ptx"]
    code: bytes = add.asm["cubin"] if "ptx" not in add.asm else text.encode()
    kernel = ptxforge.compile(scale.fn)
    names: list[str] = kernel.arg_names
    milliseconds: float = ptxforge.do_bench(lambda: add[grid](x, x, out, 1000, BLOCK=128))
    with ptxforge.check(fail_on="warning", non_finite=True) as report:
        add[grid](x, x, out, 1000, BLOCK=128)
    places = [issue.place for issue in report.issues if issue.severity == "error"]
    errors: int = report.count("error") + len(places)
    with ptxforge.use_device("emulator") as device:
        print(errors, device.name, code, names, ptxforge.next_power_of_2(3), ptxforge.__version__)
    return float(out.numpy().sum()) + milliseconds
