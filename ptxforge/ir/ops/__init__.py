"""All operations, by family. Importing this package fills the registry."""

from ptxforge.ir.ops import (
    arith,
    atomic,
    cast,
    control,
    convert_layout,
    debug,
    descriptor,
    dot,
    inline_asm,
    math,
    mbarrier,
    memory,
    partition,
    reduce,
    shape,
    shared,
    tensor_map,
    tensor_store,
    warpgroup,
)

__all__ = [
    "arith", "atomic", "cast", "control", "convert_layout", "debug", "descriptor", "dot", "inline_asm",
    "math", "mbarrier", "memory", "partition", "reduce", "shape", "shared", "tensor_map", "tensor_store",
    "warpgroup",
]  # fmt: skip
