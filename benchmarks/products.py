"""Benchmarks of matrix products: row-major or transposed, small, padded, split, by descriptors.

:func:`matmul_case` is the plain product; what stands below it differs in the kernel, the data or the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.spine import Case, empty_tensor, random_tensor
from benchmarks.tiles import (
    DESCRIPTOR_TILES,
    FP8_TILES,
    GROUPED_TILES,
    INT8_TILES,
    KEPT_TILES,
    PADDED_TILES,
    SCALED_TILES,
    SMALL_TILES,
    SPLIT_K_TILES,
    WEIGHT_TILES,
)


def matmul_case(
    name: str, m: int, n: int, k: int, dtype: Any, precision: str, configurations: list[dict],
    tolerance: float,
    transposed_b: bool = False,
    *,
    out_dtype: Any = None,
    padding: int = 1,
    in_graph: bool = False,
    vendor: Callable[[dict], Any] | None = None,
) -> Case:  # fmt: skip
    """``c[m, n] = a[m, k] @ b[k, n]``; ``transposed_b`` stores b as [n, k] (NT). Rows take multiples of
    ``padding`` elements. ``vendor`` is torch's way, where that is not ``torch.mm``."""

    def rows(columns: int) -> int:
        return -(-columns // padding) * padding

    def make():
        x = random_tensor(m, rows(k), dtype=dtype)[:, :k]
        y = random_tensor(n, rows(k), dtype=dtype)[:, :k].t() if transposed_b else None
        y = random_tensor(k, rows(n), dtype=dtype)[:, :n] if y is None else y
        return {"a": x, "b": y, "c": empty_tensor(m, rows(n), dtype=out_dtype or dtype)[:, :n]}

    def launch(kernels, data, config):
        options = dict(config)
        tiles = -(-m // options["BLOCK_M"]) * -(-n // options["BLOCK_N"])
        kernel, programs = kernels.matmul, tiles
        if options.pop("persistent", False):
            kernel, programs = kernels.matmul_persistent, min(tiles, _multiprocessors())
        a, b, c = data["a"], data["b"], data["c"]
        kernel[(programs,)](
            a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), PRECISION=precision,
            GROUP_M=options.pop("GROUP_M", 8),
            EVEN_K=k % options["BLOCK_K"] == 0, **options,
        )  # fmt: skip

    return Case(
        name, "TFLOP/s", 2.0 * m * n * k, make, launch, configurations,
        vendor or (lambda d: _vendor_product(d, precision)), _against_f32(k), tolerance, in_graph,
    )  # fmt: skip


def _multiprocessors() -> int:
    return torch.cuda.get_device_properties("cuda").multi_processor_count


def _against_f32(k: int) -> Callable[[dict], tuple[Any, Any]]:
    """The check of a product against one of f32, both scaled so that elements are about 1."""

    def check(data):
        reference = torch.mm(data["a"].float(), data["b"].float())
        return data["c"].float() / k**0.5, reference / k**0.5

    return check


def _vendor_product(data: dict, precision: str) -> Any:
    """cuBLAS by torch; where our product may take tf32, so may this one."""
    flags = torch.backends.cuda.matmul
    before, flags.allow_tf32 = flags.allow_tf32, precision == "tf32"
    try:
        return torch.mm(data["a"], data["b"])
    finally:
        flags.allow_tf32 = before


def fp8(size: int) -> Case:
    """8-bit floats, B transposed, results in f16. Tensor cores add their products in about 14 bits: Triton
    and we are wrong by the same 1.5e-2 of a typical element at 8192."""

    def vendor(data):
        one = torch.ones((), device="cuda")
        return torch._scaled_mm(data["a"], data["b"], one, one, out_dtype=torch.float16, use_fast_accum=True)

    return matmul_case(
        f"gemm fp8 e4m3 NT {size}^3", size, size, size, torch.float8_e4m3fn, "tf32", FP8_TILES, 4e-2, True,
        out_dtype=torch.float16, vendor=vendor,
    )  # fmt: skip


def scaled(size: int) -> Case:
    """8-bit floats with a scale, a power of two, for 32 neighbours along k of both operands, B transposed,
    results in bf16. torch multiplies what was widened and scaled before."""

    def make() -> dict[str, Any]:
        data = {name: random_tensor(size, size, dtype=torch.float8_e4m3fn) for name in "aw"}
        for name in "aw":
            shape = size, size // 32
            scales = torch.randint(124, 130, shape, device="cuda", dtype=torch.uint8)
            powers = torch.exp2(scales.float() - 127).repeat_interleave(32, 1)
            data |= {name + "_scales": scales, "wide_" + name: (data[name].float() * powers).bfloat16()}
        return data | {"c": empty_tensor(size, size, dtype=torch.bfloat16)}

    def launch(kernels, data, config):
        grid = (-(-size // config["BLOCK_M"]) * -(-size // config["BLOCK_N"]),)
        operands = [data[name] for name in ("a", "w", "a_scales", "w_scales", "c")]
        rows = [x.stride(0) for x in operands]
        kernels.matmul_scaled[grid](*operands, size, size, size, *rows, GROUP_M=8, **config)

    def vendor(data):
        return torch.mm(data["wide_a"], data["wide_w"].t())

    def check(data):
        expected = torch.mm(data["wide_a"].float(), data["wide_w"].float().t())
        return data["c"].float() / size**0.5, expected / size**0.5

    return Case(
        f"gemm scaled e4m3 NT {size}^3", "TFLOP/s", 2.0 * size**3, make, launch, SCALED_TILES, vendor, check,
        2e-2,
    )  # fmt: skip


def int8(size: int) -> Case:
    """8-bit integers, B transposed, results in i32."""

    def make() -> dict[str, Any]:
        def draw():
            return torch.randint(-64, 64, (size, size), device="cuda", dtype=torch.int8)

        return {"a": draw(), "b": draw().t(), "c": empty_tensor(size, size, dtype=torch.int32)}

    def launch(kernels, data, config):
        a, b, c = data["a"], data["b"], data["c"]
        grid = (-(-size // config["BLOCK_M"]) * -(-size // config["BLOCK_N"]),)
        kernels.matmul_int8[grid](
            a, b, c, size, size, size, *a.stride(), *b.stride(), *c.stride(), GROUP_M=8, **config
        )

    return Case(
        f"gemm int8 NT {size}^3", "TFLOP/s", 2.0 * size**3, make, launch, INT8_TILES,
        lambda d: torch._int_mm(d["a"], d["b"]), lambda d: (d["c"], torch._int_mm(d["a"], d["b"])), 0.0,
    )  # fmt: skip


def small(size: int, layout: str) -> Case:
    """Products so short that launches would be seen: timed in a graph, the L2 cache warm."""
    return matmul_case(
        f"gemm f16 {layout} {size}^3 in a graph", size, size, size, torch.float16, "tf32", SMALL_TILES, 1e-3,
        layout == "NT", in_graph=True,
    )  # fmt: skip


def padded(m: int, n: int, k: int) -> Case:
    """Sizes that no tile divides, with rows of multiples of 16 bytes."""
    return matmul_case(
        f"gemm f16 NN {m}x{n}x{k} padded", m, n, k, torch.float16, "tf32", PADDED_TILES, 1e-3, padding=8
    )


def by_descriptors(size: int, layout: str, name: str = "f16") -> Case:
    """Tiles by tensor descriptors, a program for each multiprocessor."""
    dtype, tolerance = {"f16": (torch.float16, 1e-3), "bf16": (torch.bfloat16, 8e-3)}[name]
    in_rows = layout == "NN"
    plain = matmul_case("", size, size, size, dtype, "tf32", DESCRIPTOR_TILES, tolerance, not in_rows)

    def launch(kernels, data, config):
        options = dict(config)
        m, n, k = (options[f"BLOCK_{name}"] for name in "MNK")
        key = kernels.__name__, m, n, k
        if key not in data:
            of = kernels.TensorDescriptor.from_tensor
            b = of(data["b"], [k, n]) if in_rows else of(data["b"].t(), [n, k])
            data[key] = of(data["a"], [m, k]), b, of(data["c"], [m, n])
        programs = min(-(-size // m) * -(-size // n), _multiprocessors())
        kernels.matmul_descriptors[(programs,)](
            *data[key], size, size, size, GROUP_M=8, B_IN_ROWS=in_rows, **options
        )

    return Case(
        f"gemm {name} {layout} {size}^3 by descriptors", "TFLOP/s", plain.work, plain.make, launch,
        DESCRIPTOR_TILES, plain.torch, plain.check, plain.tolerance,
    )  # fmt: skip


def split_k(m: int, n: int, k: int, clean_cache: bool = False, ahead: bool = False) -> Case:
    """Few tiles, so programs share them along k and add their results to zeros by atomics. What a flush
    leaves in the L2 cache to be written is a part of the time unless the cache is clean. The product may
    start ``ahead``, beside the kernel that makes the zeros."""
    plain = matmul_case("", m, n, k, torch.float16, "tf32", SPLIT_K_TILES, 1e-3, out_dtype=torch.float32)

    def launch(kernels, data, config):
        a, b, c = data["a"], data["b"], data["c"]
        options = config
        if ahead:
            options = config | {"WAITS": True, "launch_pdl": True}
            kernels.zeros[(-(-m * n // 1024),)](c, m * n, BLOCK=1024, num_warps=4)
        else:
            c.zero_()
        grid = (-(-m // config["BLOCK_M"]) * -(-n // config["BLOCK_N"]), config["SPLIT_K"])
        kernels.matmul_split_k[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), **options)

    how = f"{', zeros beside it' if ahead else ''}{', clean cache' if clean_cache else ''}"
    return Case(
        f"gemm f16 NN {m}x{n}x{k} split{how}", "TFLOP/s", plain.work, plain.make, launch, SPLIT_K_TILES,
        plain.torch, plain.check, plain.tolerance, clean_cache=clean_cache,
    )  # fmt: skip


def kept(size: int) -> Case:
    """Some columns of the left operand do not count: a byte for each says which do."""
    plain = matmul_case("", size, size, size, torch.float16, "tf32", KEPT_TILES, 1e-3)

    def make() -> dict[str, Any]:
        data = plain.make()
        data["kept"] = torch.randint(0, 8, (size,), device="cuda", dtype=torch.uint8)
        return data | {"masked": data["a"] * (data["kept"] != 0)}

    def launch(kernels, data, config):
        grid = (-(-size // config["BLOCK_M"]) * -(-size // config["BLOCK_N"]),)
        tensors = [data[name] for name in ("a", "b", "kept", "c")]
        kernels.matmul_kept[grid](*tensors, size, size, size, size, size, size, GROUP_M=8, **config)

    return Case(
        f"gemm f16 NN {size}^3, columns masked", "TFLOP/s", plain.work, make, launch, KEPT_TILES,
        lambda data: torch.mm(data["masked"], data["b"]),
        lambda data: plain.check(data | {"a": data["masked"]}), plain.tolerance,
    )  # fmt: skip


def weights(element: str, m: int, n: int, k: int, tiles: list[dict] = WEIGHT_TILES) -> Case:
    """bf16 times narrow weights, stored as [n, k]: of 8 bits with a scale for each column, of 4 bits with one
    for 128 of a column. Where programs share tiles, zeroing the sums is part of the time."""
    bf16 = torch.bfloat16

    def make() -> dict[str, Any]:
        a = random_tensor(m, k, dtype=bf16)
        w, scales, wide = _narrow_weights(element, n, k)
        types = {False: bf16, True: torch.float32}
        out = {is_split: empty_tensor(m, n, dtype=dtype) for is_split, dtype in types.items()}
        return {"a": a, "w": w, "scales": scales, "wide": wide, "out": out}

    def launch(kernels, data, config):
        a, w, split = data["a"], data["w"], config.get("SPLIT_K", 1)
        c = data["c"] = data["out"][split > 1]
        grid = (-(-m // config["BLOCK_M"]) * -(-n // config["BLOCK_N"]), split)
        if split > 1:
            c.zero_()
        if element == "int4":
            kernels.matmul_int4[grid](
                a, w, data["scales"], c, m, n, k, k, k // 2, n, n, GROUP_M=8, GROUP_K=128, **config
            )
            return
        kernels.matmul_weights[grid](
            a, w, data["scales"], c, m, n, k, *a.stride(), *w.stride(), *c.stride(), GROUP_M=8, **config
        )

    def vendor(data):
        if element == "int4":  # widened before
            return torch.mm(data["a"], data["wide"])
        return torch.mm(data["a"], data["w"].to(bf16)) * data["scales"].to(bf16)

    def check(data):
        expected = torch.mm(data["a"].float(), data["wide"].float())
        return data["c"].float() / k**0.5, expected / k**0.5

    return Case(
        f"gemm bf16 x {element} NT {m}x{n}x{k}", "TFLOP/s", 2.0 * m * n * k, make, launch, tiles,
        vendor, check, 2e-2,
    )  # fmt: skip


def _narrow_weights(element: str, n: int, k: int) -> tuple[Any, Any, Any]:
    """Weights, their scales, and what they stand for in [k, n]."""
    if element == "int4":
        q = torch.randint(0, 16, (n, k), device="cuda", dtype=torch.uint8)
        scales = random_tensor(k // 128, n, dtype=torch.bfloat16) / 4
        wide = (q.to(torch.bfloat16) - 8) * scales.t().repeat_interleave(128, 1)
        return q[:, ::2] | q[:, 1::2] << 4, scales, wide.t()
    narrow = {"int8": torch.int8, "fp8 e4m3": torch.float8_e4m3fn}[element]
    w = (random_tensor(n, k, dtype=torch.float32) * 16).to(narrow).t()
    scales = random_tensor(n, dtype=torch.float32) / 16
    return w, scales, w.float() * scales


def grouped(groups: int, m: int, n: int, k: int) -> Case:
    """Products whose operands' addresses and sizes lie in memory, all in one launch."""

    def make() -> dict[str, Any]:
        f16 = torch.float16
        data: dict[str, Any] = {
            "a": [random_tensor(m, k, dtype=f16) for _ in range(groups)],
            "b": [random_tensor(k, n, dtype=f16) for _ in range(groups)],
            "c": [empty_tensor(m, n, dtype=f16) for _ in range(groups)],
        }
        for name in "abc":
            addresses = [tensor.data_ptr() for tensor in data[name]]
            data[f"{name}_pointers"] = torch.tensor(addresses, device="cuda", dtype=torch.int64)
        for name, row in (("sizes", (m, n, k)), ("strides", (k, n, n))):
            data[name] = torch.tensor([row] * groups, device="cuda", dtype=torch.int32)
        return data

    def launch(kernels, data, config):
        tables = [data[name] for name in ("a_pointers", "b_pointers", "c_pointers", "sizes", "strides")]
        programs = _multiprocessors()
        kernels.grouped_matmul[(programs,)](*tables, groups, PROGRAMS=programs, **config)

    def vendor(data):
        return [torch.mm(a, b) for a, b in zip(data["a"], data["b"])]

    def check(data):
        return torch.stack(data["c"]).float() / k**0.5, torch.stack(vendor(data)).float() / k**0.5

    return Case(
        f"grouped gemm f16 NN {groups}x{m}x{n}x{k}", "TFLOP/s", 2.0 * groups * m * n * k, make, launch,
        GROUPED_TILES, vendor, check, 2e-3,
    )  # fmt: skip
