"""The tiles that the benchmarks of matrix products and attention try, as keywords of a launch."""

from __future__ import annotations


def _tiles(*rows: tuple[int, int, int, int, int]) -> list[dict[str, int]]:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return [dict(zip(names, row, strict=True)) for row in rows]


F16_TILES = _tiles(
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (128, 256, 32, 8, 4),
    (128, 128, 64, 4, 3), (128, 128, 32, 4, 4), (128, 128, 64, 8, 3), (128, 128, 64, 4, 6),
)  # fmt: skip
PERSISTENT_TILES = [
    tile | {"persistent": True}
    for tile in _tiles((256, 128, 64, 8, 3), (128, 256, 64, 8, 4), (128, 256, 64, 8, 3))
]
"""One program for each multiprocessor (``matmul_persistent``)."""
ODD_TILES = _tiles(
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 256, 32, 8, 4), (128, 128, 32, 4, 4),
    (128, 128, 64, 8, 3),
)  # fmt: skip
"""For rows that are not aligned: elements are loaded to registers on their way."""
TF32_TILES = _tiles(
    (128, 256, 32, 8, 3), (128, 128, 32, 4, 3), (128, 256, 32, 8, 4), (128, 128, 32, 8, 3),
    (256, 128, 32, 8, 3), (256, 128, 32, 8, 4),
)  # fmt: skip
TF32X3_TILES = _tiles((128, 128, 32, 8, 3), (128, 128, 32, 8, 2), (64, 128, 32, 4, 3), (64, 64, 32, 4, 3))
"""Of products whose sums threads hold twice: those of a step, and of all steps."""
SCALED_TILES = _tiles((128, 128, 64, 8, 3), (128, 256, 64, 8, 3), (128, 128, 128, 8, 3), (64, 128, 64, 4, 4))
"""Of products of 8-bit floats with scales for both operands, which become bf16 on their way."""
INT8_TILES = _tiles((128, 256, 128, 8, 3), (128, 128, 128, 4, 3), (128, 256, 64, 8, 4), (128, 128, 128, 8, 3))
SKINNY_TILES = _tiles(
    (16, 64, 128, 4, 4), (16, 32, 256, 4, 4), (16, 64, 64, 4, 5), (16, 128, 64, 4, 5), (16, 64, 256, 4, 3),
    (16, 32, 128, 4, 6),
)  # fmt: skip
FP8_TILES = _tiles(
    (128, 256, 128, 8, 3), (128, 256, 128, 8, 4), (256, 128, 128, 8, 3), (128, 128, 128, 4, 3),
    (128, 128, 128, 8, 4),
)  # fmt: skip
SMALL_TILES = _tiles(
    (128, 256, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 64, 4, 3), (64, 256, 64, 4, 4),
    (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 128, 64, 4, 8), (64, 64, 64, 4, 6),
)  # fmt: skip
"""For products that have few tiles for each multiprocessor, or not one."""
PADDED_TILES = [
    *_tiles((128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 8, 3), (128, 128, 64, 4, 3)),
    PERSISTENT_TILES[-1],
]
DESCRIPTOR_TILES = _tiles(
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 8, 4), (128, 128, 64, 4, 3)
)
KEPT_TILES = _tiles(
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 8, 3), (128, 128, 64, 4, 3),
    (64, 256, 64, 4, 3),
)  # fmt: skip
"""Of products whose left operand is masked along k."""
WEIGHT_TILES = _tiles(
    (128, 128, 64, 8, 3), (128, 128, 64, 4, 3), (128, 256, 64, 8, 3), (128, 256, 64, 8, 4),
    (128, 128, 128, 8, 3), (256, 128, 64, 8, 3), (256, 128, 64, 8, 4),
)  # fmt: skip
"""Of products whose right operand is widened in registers; on sm_90a roles are exchanged, and 256 rows are
the most that an instruction takes."""
INT4_TILES = _tiles(
    (128, 128, 64, 8, 4), (256, 128, 64, 8, 4), (128, 128, 128, 8, 3), (256, 128, 128, 8, 2),
    (128, 64, 128, 4, 3),
)  # fmt: skip
"""The same with two weights in a byte, and a scale for 128 of them along k."""
FEW_ROWS = [
    tile | {"SPLIT_K": split}
    for split, rows in (
        (1, ((16, 64, 128, 4, 6), (16, 64, 128, 4, 8))),
        (2, ((16, 64, 128, 4, 4), (16, 64, 128, 4, 6))),
        (4, ((16, 64, 128, 4, 4), (16, 128, 128, 4, 3), (16, 128, 128, 8, 4))),
    )
    for tile in _tiles(*rows)
]
"""Of products of few rows with narrow weights, which take as long as the weights' way from memory."""
GROUPED_TILES = _tiles(
    (128, 128, 64, 8, 3), (128, 128, 64, 4, 3), (128, 256, 64, 8, 3), (128, 256, 64, 8, 4),
    (64, 128, 64, 4, 4),
)  # fmt: skip
SPLIT_K_TILES = [
    tile | {"SPLIT_K": split}
    for split, rows in (
        (2, ((16, 64, 128, 4, 4), (16, 64, 256, 4, 3))),
        (4, ((16, 64, 128, 4, 4), (16, 128, 128, 4, 3), (16, 128, 64, 4, 5), (16, 256, 64, 8, 4))),
        (8, ((16, 128, 128, 4, 3), (16, 256, 64, 8, 4), (16, 256, 128, 8, 3))),
    )
    for tile in _tiles(*rows)
]
"""``SPLIT_K`` programs share a tile of the result; with 8192 along k each has a whole number of steps."""
BACKWARD_TILES = {
    depth: [
        dict(BLOCK_N=n, STEP_M=m, BLOCK_M=rows, STEP_N=columns, num_warps=w, num_stages=s)
        for n, m, rows, columns, w, s in found
    ]
    for depth, found in {
        128: ((128, 64, 128, 64, 8, 2), (128, 64, 128, 64, 8, 3), (128, 64, 128, 128, 8, 2),
              (64, 64, 64, 64, 4, 2), (128, 32, 128, 64, 8, 3)),
        64: ((128, 64, 128, 64, 8, 3), (128, 64, 128, 128, 8, 2), (64, 64, 64, 64, 4, 3),
             (64, 64, 64, 128, 4, 2)),
    }.items()
}  # fmt: skip
"""Of attention's gradients, by the extent of a head: the block of keys and values that a program holds, and
the rows of a step; the block of rows, and the keys of a step."""
DECODE_TILES = [
    dict(BLOCK_N=n, SPLITS=splits, num_warps=w, num_stages=s)
    for n, splits, w, s in ((64, 8, 4, 3), (64, 16, 4, 3), (128, 8, 4, 2), (128, 16, 4, 3), (32, 16, 2, 4),
                            (128, 16, 8, 3))
]  # fmt: skip
"""Of attention with one query: the keys of a step, and the programs that share a head's keys."""
SGEMM_TILES = _tiles(
    (128, 256, 16, 8, 3), (128, 256, 32, 8, 2), (128, 128, 8, 8, 2), (128, 128, 16, 8, 2),
    (128, 128, 16, 8, 3), (64, 128, 16, 4, 3), (128, 64, 32, 4, 2), (128, 128, 32, 8, 2), (64, 64, 16, 4, 3),
)  # fmt: skip
_ATTENTION = [
    (128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2), (128, 128, 8, 2), (128, 128, 8, 3), (64, 64, 4, 3),
]  # fmt: skip
_NARROW_HEADS = [
    (128, 64, 8, 4), (128, 64, 4, 2), (128, 128, 8, 4), (256, 64, 16, 3), (256, 64, 16, 4), (256, 64, 16, 5),
    (64, 128, 4, 2),
]  # fmt: skip
"""What heads of 64 elements leave room for: four stages, 32 rows a warp (with D = 128 sums and scores alone
are 192 registers, and others spill), 4 warps on each scheduler."""


def attention_tiles(depth: int, causal: bool) -> list[dict[str, int]]:
    """For heads of ``depth`` elements. The causal kernel wants blocks of keys that a block of rows is a
    multiple of."""
    rows = _ATTENTION + (_NARROW_HEADS if depth == 64 else [])
    names = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages")
    return [dict(zip(names, row, strict=True)) for row in rows if not causal or row[0] % row[1] == 0]


def backward_in_one_tiles(causal: bool) -> list[dict]:
    """Of all three gradients in one kernel: the block of keys and values that a program holds, the rows of a
    step, and whether a warp of its own copies. Causal attention has two loops, for which there are too few
    registers beside such warps."""
    rows = [(128, 64, 2, False, 8), (64, 64, 2, False, 4)]
    if not causal:
        rows += [(128, 64, 3, True, 8), (128, 64, 2, True, 8)]
    names = ("BLOCK_N", "STEP_M", "STAGES", "SPECIALIZED", "num_warps")
    return [dict(zip(names, row, strict=True)) for row in rows]
