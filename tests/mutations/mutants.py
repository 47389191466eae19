"""Small faults of the compiler, each as a text that stands once in one module, what takes its place, and a
check that must find it: wrong code, or an optimization that is lost."""

from __future__ import annotations

import attrs

GEMM = "f16-NN-128-256-64-w8-s3"


@attrs.frozen
class Mutant:
    name: str
    module: str
    old: str
    new: str
    check: str


MUTANTS = [
    Mutant(
        "no barrier before a write behind reads", "ptxforge.passes.insert_barriers",
        "or _overlap(self.reads, writes) or", "or", "product sm_80",
    ),
    Mutant(
        "no barrier before a read behind a write", "ptxforge.passes.insert_barriers",
        "return _overlap(written, reads) or", "return", "product sm_80",
    ),
    Mutant(
        "no barrier where copies are overwritten in place", "ptxforge.passes.insert_barriers",
        "if root in (state.stored if is_load else state.loaded):", "if False:", "in_place sm_80",
    ),
    Mutant(
        "no fence between threads and tensor cores", "ptxforge.passes.insert_barriers",
        "        if state.unfenced:\n            b.create(FenceAsync)", "", "product sm_90a",
    ),
    Mutant(
        "a ring that is one slot longer", "ptxforge.codegen_ptx.lower.shared",
        "following = ctx.b.add(ctx.scalar(op.slot), op.step)",
        "following = ctx.b.add(ctx.scalar(op.slot), 2 * op.step)", "product sm_80",
    ),
    Mutant(
        "a phase that never changes", "ptxforge.codegen_ptx.lower.shared",
        'bitwise(b, "xor", phase, 1, 32)', "phase", "product sm_90a",
    ),
    Mutant(
        "copies are not waited for", "ptxforge.codegen_ptx.lower.shared",
        "cp.async.wait_group {op.num};", "cp.async.wait_group {op.num + 1};", "product sm_80",
    ),
    Mutant(
        "a step of a reduction in a warp is left out", "ptxforge.codegen_ptx.lower.reduce",
        "    for bit in bits:\n        others", "    for bit in [*bits][1:]:\n        others", "rows sm_80",
    ),
    Mutant(
        "every thread is an owner", "ptxforge.codegen_ptx.lower.indices",
        "    if not thread_mask:\n        return None", "    return None", "scan sm_80",
    ),
    Mutant(
        "a bound is one too large", "ptxforge.passes.lower_bounds",
        'index, "slt", bound(op.size)', 'index, "sle", bound(op.size)', "bounds sm_80",
    ),
    Mutant(
        "boxes have no first element", "ptxforge.passes.lower_bounds",
        "if is_nonnegative(op.offset):", "if True:", "bounds sm_80",
    ),
    Mutant(
        "accesses are half as wide", "ptxforge.support.machine",
        "VECTOR_BYTES = 16", "VECTOR_BYTES = 8", "facts add-1024-w4 sm_80",
    ),
    Mutant(
        "products and sums stay apart", "ptxforge.passes.contract_products",
        "return isinstance(value.defining_op, MulF) and", "return False and",
        "facts layer-norm-bf16-4096-4096-w2 sm_80",
    ),
    Mutant(
        "fragments are read before their tile is there", "ptxforge.ir.ages",
        "age + 1 for one", "age + 2 for one", f"facts {GEMM} sm_80",
    ),
    Mutant(
        "half of the bytes of a tile are waited for", "ptxforge.codegen_ptx.lower.mbarrier",
        "_, [%s+%s], {op.bytes};", "_, [%s+%s], {op.bytes // 2};", "product sm_90a",
    ),
    Mutant(
        "rows of a tile are not rotated", "ptxforge.layouts.shared",
        "phase = ((1 << i) // self.per_phase) % self.max_phase", "phase = 0", f"facts {GEMM} sm_80",
    ),
    Mutant(
        "chunks of a panel stay where they are", "ptxforge.layouts.boxes",
        "SWIZZLED_FROM % chunks", "SWIZZLED_FROM % 1", "product sm_90a",
    ),
    Mutant(
        "nothing is known of a sum of addresses", "ptxforge.ir.ops.arith",
        "return facts.sum_of(*operands)\n", "return facts.pointwise(operands)\n", "facts add-1024-w4 sm_80",
    ),
    Mutant(
        "copies are not dealt out among products", "ptxforge.passes.interleave_products",
        "op.order = tuple(order)", "op.order = (0,) * len(order)", f"facts {GEMM} sm_80",
    ),
    Mutant(
        "operations that differ by an attribute are one", "ptxforge.passes.cse",
        "        found.append((key, type(value), repr(value) if isinstance(value, float) else value))\n",
        "        pass\n", "arithmetic sm_80",
    ),
]
"""Of the wrong ones each is found by the emulator's checks or by a wrong result; of the lost optimizations by
the tables of ``tests/kernels/facts``."""
