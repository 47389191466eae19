"""What each function of the language means: files as in ``ptxforge.language``.

Importing this package fills :data:`ptxforge.frontend.semantics.registry.SEMANTICS`.
"""

from ptxforge.frontend.semantics import (
    arith,
    atomic,
    core,
    cuda,
    descriptor,
    dot,
    instructions,
    math,
    memory,
    reduce,
    shape,
)

__all__ = [
    "arith", "atomic", "core", "cuda", "descriptor", "dot",
    "instructions", "math", "memory", "reduce", "shape",
]  # fmt: skip
