"""What the benchmarks compile, as signatures and constants: every configuration of every case, without a GPU.

The cases of :mod:`benchmarks.spine` and :mod:`benchmarks.tensor` bind these kernels to data; here stands what
the binder makes of it, so that tests and ``benchmarks.same_ptx`` can compile all of it on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from benchmarks import tiles

STRIDES = ("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn")
OPTIONS = ("num_warps", "num_stages")


@attrs.frozen
class Configuration:
    """One compilation: a kernel of ``benchmarks/kernels.py`` by name, its signature and constants, and the
    options ``num_warps`` and ``num_stages`` where they are not the defaults."""

    case: str
    kernel: str
    signature: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, int]

    @property
    def name(self) -> str:
        """The case, its blocks, and its options: ``f16-NN-128-256-64-w8-s3``."""
        sizes = ("BLOCK", "ROWS", "SPLIT", "STEP")
        blocks = [str(size) for name, size in self.constants.items() if name.startswith(sizes)]
        options = [f"{name[4]}{value}" for name, value in self.options.items()]
        return "-".join([self.case, *blocks, *options])


def _configuration(case: str, kernel: str, signature: dict, constants: dict, tile: dict) -> Configuration:
    constants = constants | {name: value for name, value in tile.items() if name not in OPTIONS}
    constants.pop("persistent", None)
    return Configuration(case, kernel, signature, constants, {n: tile[n] for n in OPTIONS if n in tile})


def matmul(
    case: str, element: str, layout: str, tiles_: list[dict], divisible: bool = True, precision: str = "tf32",
    kernel: str = "matmul", out: str | None = None, padded: bool = False,
) -> list[Configuration]:  # fmt: skip
    """Products of matrices in ``layout`` (which of A and B are transposed) with results in ``out``; sizes and
    rows are divisible by 16 or not, rows of ``padded`` matrices are."""
    integer = "i32:16" if divisible else "i32"
    pointer = f"*{element}:16"
    one = {"stride_cn", "stride_ak" if layout[0] == "N" else "stride_am"}
    one.add("stride_bn" if layout[1] == "N" else "stride_bk")
    signature = {"a": pointer, "b": pointer, "c": f"*{out or element}:16"}
    signature |= dict.fromkeys(("M", "N", "K"), integer)
    signature |= dict.fromkeys((s for s in STRIDES if s not in one), "i32:16" if padded else integer)
    fixed = dict.fromkeys(one, 1)
    if kernel != "matmul_split_k":
        fixed["GROUP_M"] = 8
        fixed |= {} if element == "i8" else {"PRECISION": precision, "EVEN_K": divisible}
    return [_configuration(case, kernel, signature, fixed, tile) for tile in tiles_]


def by_descriptors(case: str) -> list[Configuration]:
    """Products by descriptors whose boxes are the tiles, B transposed."""
    found = []
    for tile in tiles.DESCRIPTOR_TILES:
        m, n, k = (tile[f"BLOCK_{name}"] for name in "MNK")
        boxes = {"a_desc": (m, k), "b_desc": (n, k), "c_desc": (m, n)}
        signature = {name: f"tensordesc<fp16[{box[0]},{box[1]}]>:16" for name, box in boxes.items()}
        signature |= dict.fromkeys("MNK", "i32:16")
        found.append(_configuration(case, "matmul_descriptors", signature, {"GROUP_M": 8}, tile))
    return found


def weights(case: str, element: str, tiles_: list[dict] = tiles.WEIGHT_TILES) -> list[Configuration]:
    """bf16 times 8-bit weights that lie along k."""
    signature = {"a": "*bf16:16", "w": f"*{element}:16", "scales": "*fp32:16"}
    strides = dict.fromkeys(("M", "N", "K", "stride_am", "stride_wn", "stride_cm"), "i32:16")
    fixed = dict.fromkeys(("stride_ak", "stride_wk", "stride_cn"), 1) | {"GROUP_M": 8}
    return [
        _configuration(case, "matmul_weights", signature | _sums(tile) | strides, fixed, tile)
        for tile in tiles_
    ]


def int4(case: str, tiles_: list[dict] = tiles.INT4_TILES) -> list[Configuration]:
    """bf16 times 4-bit weights that lie along k, two in a byte."""
    signature = {"a": "*bf16:16", "w": "*u8:16", "scales": "*bf16:16"}
    strides = dict.fromkeys(("M", "N", "K", "stride_am", "stride_wn", "stride_sg", "stride_cm"), "i32:16")
    fixed = {"GROUP_M": 8, "GROUP_K": 128}
    return [
        _configuration(case, "matmul_int4", signature | _sums(tile) | strides, fixed, tile) for tile in tiles_
    ]


def scaled(case: str) -> list[Configuration]:
    """8-bit floats with scales for both operands, B transposed."""
    signature = dict.fromkeys(("a", "w"), "*fp8e4nv:16") | dict.fromkeys(("a_scales", "w_scales"), "*u8:16")
    strides = ("stride_am", "stride_wn", "stride_as", "stride_ws", "stride_cm")
    signature |= {"c": "*bf16:16"} | dict.fromkeys(("M", "N", "K", *strides), "i32:16")
    fixed = {"GROUP_M": 8}
    return [_configuration(case, "matmul_scaled", signature, fixed, tile) for tile in tiles.SCALED_TILES]


def kept(case: str) -> list[Configuration]:
    """f16, columns of A masked by a byte for each."""
    signature = dict.fromkeys(("a", "b", "c"), "*fp16:16") | {"kept": "*u8:16"}
    signature |= dict.fromkeys(("M", "N", "K", "stride_am", "stride_bk", "stride_cm"), "i32:16")
    return [
        _configuration(case, "matmul_kept", signature, {"GROUP_M": 8}, tile) for tile in tiles.KEPT_TILES
    ]


def _sums(tile: dict) -> dict[str, str]:
    """The result's type: programs that share a tile add to f32."""
    return {"c": "*fp32:16" if tile.get("SPLIT_K", 1) > 1 else "*bf16:16"}


def grouped(case: str) -> list[Configuration]:
    """Products whose operands' addresses lie in memory."""
    signature = dict.fromkeys(("a_pointers", "b_pointers", "c_pointers"), "*i64:16")
    signature |= {"sizes": "*i32:16", "strides": "*i32:16", "groups": "i32"}
    return [
        _configuration(case, "grouped_matmul", signature, {"PROGRAMS": 132}, tile)
        for tile in tiles.GROUPED_TILES
    ]


def paged_decode(case: str) -> list[Configuration]:
    """Attention with one query over pages, in f16."""
    signature = dict.fromkeys(("q", "k", "v"), "*fp16:16") | {"table": "*i32:16"}
    signature |= dict.fromkeys(("partial", "sums"), "*fp32:16") | {"scale": "fp32"}
    integers = ("length", "table_stride", "stride_page", "stride_token", "stride_head")
    signature |= dict.fromkeys(integers, "i32:16") | {"heads": "i32"}
    fixed = {"GROUP": 8, "BLOCK_G": 16, "D": 128, "PAGE": 16}
    return [_configuration(case, "paged_decode", signature, fixed, tile) for tile in tiles.DECODE_TILES]


def attention(case: str, depth: int, causal: bool, in_one_loop: bool = False) -> list[Configuration]:
    """Attention in f16 with heads of ``depth`` elements, causal by two loops or by a mask ``in_one_loop``."""
    integers = ("heads", "length", "stride_b", "stride_h", "stride_l")
    signature = dict.fromkeys(("q", "k", "v", "out"), "*fp16:16") | {"scale": "fp32"}
    signature |= dict.fromkeys(integers, "i32:16")
    fixed = {"D": depth} | ({} if in_one_loop else {"CAUSAL": causal})
    fitting = tiles.attention_tiles(depth, causal)
    kernel = "attention_one_loop" if in_one_loop else "attention"
    return [_configuration(case, kernel, signature, fixed, tile) for tile in fitting]


def attention_gradients(case: str, depth: int, causal: bool) -> list[Configuration]:
    """The gradients of attention in f16: those of keys and values, and those of queries."""
    signature = dict.fromkeys(("q", "k", "v", "d_out"), "*fp16:16")
    signature |= dict.fromkeys(("lse", "delta"), "*fp32:16")
    last = {"scale": "fp32", "log2_scale": "fp32"}
    last |= dict.fromkeys(("heads", "length", "stride_b", "stride_h", "stride_l"), "i32:16")
    kernels = {"columns": (("d_k", "d_v"), ("BLOCK_N", "STEP_M")), "rows": (("d_q",), ("BLOCK_M", "STEP_N"))}
    found = []
    for name, (results, sizes) in kernels.items():
        types = signature | dict.fromkeys(results, "*fp16:16") | last
        seen = {}
        for tile in tiles.BACKWARD_TILES[depth]:
            kept = {key: value for key, value in tile.items() if key in (*sizes, *OPTIONS)}
            one = _configuration(
                f"{case}-{name}", f"attention_{name}", types, {"D": depth, "CAUSAL": causal}, kept
            )
            seen[one.name] = one
        found += seen.values()
    return found


def gradients_in_one(case: str, depth: int, causal: bool) -> list[Configuration]:
    """All three gradients of attention in f16, to which the kernel adds by a descriptor."""
    signature = dict.fromkeys(("q", "k", "v", "d_out", "d_k", "d_v"), "*fp16:16")
    signature |= dict.fromkeys(("lse", "delta"), "*fp32:16") | {"scale": "fp32", "log2_scale": "fp32"}
    signature |= dict.fromkeys(("heads", "length", "stride_b", "stride_h", "stride_l"), "i32:16")
    found = []
    for tile in tiles.backward_in_one_tiles(causal):
        box = {"d_q": f"tensordesc<fp32[{tile['STEP_M']},{depth}]>:16"}
        stages = f"{case}-{'copying' if tile['SPECIALIZED'] else 'plain'}-{tile['STAGES']}"
        fixed = {"D": depth, "CAUSAL": causal}
        found.append(_configuration(stages, "attention_gradients", signature | box, fixed, tile))
    return found


def _softmax(case: str, columns: int, element: str, rows_too: bool = True) -> list[Configuration]:
    integer = "i32:16" if columns % 16 == 0 else "i32"
    signature = {"out": f"*{element}:16", "x": f"*{element}:16", "stride": integer, "columns": integer}
    block = {"BLOCK": 1 << (columns - 1).bit_length()}
    single = [_configuration(case, "softmax", signature, block, {"num_warps": w}) for w in (1, 2, 4, 8, 16)]
    several = [{"ROWS": r, "num_warps": w} for r, w in ((2, 4), (2, 8), (4, 8), (4, 16)) if rows_too]
    return single + [_configuration(case, "softmax_rows", signature, block, tile) for tile in several]


def _layer_norm(case: str, columns: int, element: str) -> list[Configuration]:
    signature = dict.fromkeys(("out", "x", "weight", "bias"), f"*{element}:16")
    signature |= {"stride": "i32:16", "columns": "i32:16", "eps": "fp32"}
    block = {"BLOCK": columns}
    return [_configuration(case, "layer_norm", signature, block, {"num_warps": w}) for w in (1, 2, 4, 8, 16)]


def _two_sizes(case: str, kernel: str, out: str, element: str, rows: tuple) -> list[Configuration]:
    signature = {"out": f"*{out}:16", "x": f"*{element}:16", "rows": "i32:16", "columns": "i32:16"}
    names = ("BLOCK_M", "BLOCK_N", "num_warps")
    return [_configuration(case, kernel, signature, {}, dict(zip(names, row, strict=True))) for row in rows]


def _streams() -> Iterator[Configuration]:
    """The cases without tensor cores."""
    vectors = dict.fromkeys(("x", "y", "out"), "*fp32:16") | {"n": "i32:16"}
    for block, warps in ((1024, 4), (1024, 8), (2048, 8), (4096, 8)):
        yield _configuration("add", "add", vectors, {"BLOCK": block}, {"num_warps": warps})
    yield from _softmax("softmax-f32-1024", 1024, "fp32")
    yield from _softmax("softmax-f32-16384", 16384, "fp32")
    yield from _softmax("softmax-f16-4096", 4096, "fp16")
    yield from _softmax("softmax-bf16-781", 781, "bf16", rows_too=False)
    yield from _layer_norm("layer-norm-bf16-4096", 4096, "bf16")
    yield from _layer_norm("layer-norm-f16-1024", 1024, "fp16")
    yield from _layer_norm("layer-norm-f32-8192", 8192, "fp32")
    squares = ((32, 32, 4), (64, 64, 4), (64, 64, 8), (128, 64, 8), (64, 128, 8), (128, 128, 8))
    yield from _two_sizes("transpose-f32", "transpose", "fp32", "fp32", squares)
    yield from _two_sizes("transpose-f16", "transpose", "fp16", "fp16", squares)
    columns = ((128, 32, 8), (256, 32, 8), (512, 32, 16), (512, 32, 32), (256, 32, 32), (64, 64, 8),
               (256, 64, 16), (128, 32, 4))  # fmt: skip
    yield from _two_sizes("column-sum", "column_sum", "fp32", "fp16", columns)
    rows = {"out": "*fp32:16", "x": "*fp32:16", "columns": "i32:16"}
    for warps in (1, 2, 4, 8):
        yield _configuration("cumsum", "cumsum", rows, {"BLOCK": 2048}, {"num_warps": warps})
    counts = {"out": "*i32:16", "x": "*i32:16", "n": "i32:16"}
    yield _configuration("histogram", "histogram", counts, {"BLOCK": 1024}, {"num_warps": 4})


def products() -> list[Configuration]:
    """The cases of matrix products and attention."""
    persistent = "matmul_persistent"
    return [
        *matmul("f16-NN", "fp16", "NN", tiles.F16_TILES),
        *matmul("f16-NT", "fp16", "NT", tiles.F16_TILES),
        *matmul("f16-NN-odd", "fp16", "NN", tiles.ODD_TILES, divisible=False),
        *matmul("bf16-NN", "bf16", "NN", tiles.F16_TILES),
        *matmul("persistent-NN", "fp16", "NN", tiles.PERSISTENT_TILES, kernel=persistent),
        *matmul("persistent-NT", "fp16", "NT", tiles.PERSISTENT_TILES, kernel=persistent),
        *by_descriptors("descriptors-NT"),
        *matmul("small-NN", "fp16", "NN", tiles.SMALL_TILES),
        *matmul("small-NT", "fp16", "NT", tiles.SMALL_TILES),
        *matmul("padded-NN", "fp16", "NN", tiles.PADDED_TILES[:-1], divisible=False, padded=True),
        *matmul("padded-persistent-NN", "fp16", "NN", tiles.PADDED_TILES[-1:], divisible=False, padded=True,
                kernel=persistent),
        *matmul("fp8-NT", "fp8e4nv", "NT", tiles.FP8_TILES, out="fp16"),
        *matmul("tf32-NT", "fp32", "NT", tiles.TF32_TILES),
        *matmul("tf32-NN", "fp32", "NN", tiles.TF32_TILES),
        *matmul("tf32x3-NT", "fp32", "NT", tiles.TF32X3_TILES, precision="tf32x3"),
        *matmul("tf32x3-NN", "fp32", "NN", tiles.TF32X3_TILES, precision="tf32x3"),
        *scaled("scaled-NT"),
        *matmul("i8-NT", "i8", "NT", tiles.INT8_TILES, kernel="matmul_int8", out="i32"),
        *matmul("skinny-NN", "fp16", "NN", tiles.SKINNY_TILES),
        *matmul("split-NN", "fp16", "NN", tiles.SPLIT_K_TILES, kernel="matmul_split_k", out="fp32"),
        *grouped("grouped-NN"),
        *kept("kept-NN"),
        *weights("bf16-i8-NT", "i8"),
        *weights("bf16-fp8-NT", "fp8e4nv"),
        *int4("bf16-i4-NT"),
        *weights("few-i8-NT", "i8", tiles.FEW_ROWS),
        *weights("few-fp8-NT", "fp8e4nv", tiles.FEW_ROWS),
        *int4("few-i4-NT", tiles.FEW_ROWS),
        *matmul("ieee-NN", "fp32", "NN", tiles.SGEMM_TILES, precision="ieee"),
        *attention("attention-128", 128, False),
        *attention("attention-128-causal", 128, True),
        *attention("attention-128-one-loop", 128, True, in_one_loop=True),
        *attention("attention-64", 64, False),
        *attention("attention-64-causal", 64, True),
        *attention_gradients("gradients-128", 128, False),
        *attention_gradients("gradients-128-causal", 128, True),
        *attention_gradients("gradients-64", 64, False),
        *gradients_in_one("gradients-in-one-128", 128, False),
        *gradients_in_one("gradients-in-one-128-causal", 128, True),
        *gradients_in_one("gradients-in-one-64", 64, False),
        *paged_decode("decode-128"),
    ]  # fmt: skip


def configurations() -> list[Configuration]:
    """Every configuration, those without tensor cores first."""
    return [*_streams(), *products()]
