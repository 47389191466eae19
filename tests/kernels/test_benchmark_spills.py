"""No benchmark configuration of matrix products and attention spills registers to local memory."""

from __future__ import annotations

import pytest

from benchmarks import tiles
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from tests.kernels.assembly import spilled_bytes

kernels = load("ptxforge")
TARGET = "sm_90a"
STRIDES = ("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn")


def matmul(
    element: str, layout: str, divisible: bool = True, precision: str = "tf32", kernel=kernels.matmul
):
    """A compiler of products of matrices in ``layout`` (which of A and B are transposed) for a
    configuration; sizes and rows are divisible by 16 or not."""
    integer = "i32:16" if divisible else "i32"
    pointer = f"*{element}:16"
    kernel = kernels.matmul_int8 if element == "i8" else kernel
    one = {"stride_cn", "stride_ak" if layout[0] == "N" else "stride_am"}
    one.add("stride_bn" if layout[1] == "N" else "stride_bk")
    signature = {"a": pointer, "b": pointer, "c": "*i32:16" if element == "i8" else pointer}
    signature |= dict.fromkeys(("M", "N", "K", *(s for s in STRIDES if s not in one)), integer)
    fixed = dict.fromkeys(one, 1) | {"GROUP_M": 8}
    fixed |= {} if element == "i8" else {"PRECISION": precision, "EVEN_K": divisible}
    return lambda constants, **options: compile_function(
        kernel, signature, fixed | constants, TARGET, **options
    )


def attention(depth: int, causal: bool):
    integers = ("heads", "length", "stride_b", "stride_h", "stride_l")
    signature = dict.fromkeys(("q", "k", "v", "out"), "*fp16:16") | {"scale": "fp32"}
    signature |= dict.fromkeys(integers, "i32:16")
    fixed = {"D": depth, "CAUSAL": causal}
    return lambda constants, **options: compile_function(
        kernels.attention, signature, fixed | constants, TARGET, **options
    )


CASES = {
    "f16-NN": (matmul("fp16", "NN"), tiles.F16_TILES),
    "f16-NT": (matmul("fp16", "NT"), tiles.F16_TILES),
    "f16-NN-odd": (matmul("fp16", "NN", divisible=False), tiles.ODD_TILES),
    "bf16-NN": (matmul("bf16", "NN"), tiles.F16_TILES),
    "persistent-NN": (matmul("fp16", "NN", kernel=kernels.matmul_persistent), tiles.PERSISTENT_TILES),
    "persistent-NT": (matmul("fp16", "NT", kernel=kernels.matmul_persistent), tiles.PERSISTENT_TILES),
    "tf32-NN": (matmul("fp32", "NN"), tiles.TF32_TILES),
    "i8-NT": (matmul("i8", "NT"), tiles.INT8_TILES),
    "skinny-NN": (matmul("fp16", "NN"), tiles.SKINNY_TILES),
    "ieee-NN": (matmul("fp32", "NN", precision="ieee"), tiles.SGEMM_TILES),
    "attention-128": (attention(128, False), tiles.ATTENTION_TILES[128]),
    "attention-128-causal": (attention(128, True), tiles.ATTENTION_TILES[128]),
    "attention-64": (attention(64, False), tiles.ATTENTION_TILES[64]),
}
POINTS = [(name, index) for name, case in CASES.items() for index in range(len(case[1]))]


def identify(point: tuple[str, int]) -> str:
    name, index = point
    return f"{name}-{'-'.join(map(str, CASES[name][1][index].values()))}"


@pytest.mark.parametrize("point", POINTS, ids=identify)
def test_nothing_spills(point, tmp_path):
    name, index = point
    compile, configurations = CASES[name]
    constants = dict(configurations[index])
    constants.pop("persistent", None)
    options = {option: constants.pop(option) for option in ("num_warps", "num_stages")}
    assert spilled_bytes(compile(constants, **options).asm["ptx"], tmp_path, TARGET) == 0
