"""Decide how many elements one instruction of each memory access moves.

    %v = load %p, %m : …                                                    (before)
    %v = load %p, %m {vector = 4} : …                                       (after)

``vector`` elements lie in consecutive registers of a thread (the lowest register bits of the access's
layout), at consecutive addresses, the first of which is aligned to the whole; the mask is the same for all
of them. At most 16 bytes, or 32 where the target has 256-bit accesses; atomics as the target has them.

    %v = load %p, %m {guarded = 8, vector = 1} : …

``guarded`` elements may turn out to be one vector when the kernel runs: where the mask holds for all of them
and, without ``aligned``, where the first address is a multiple of the vector's size (``rotate_ranges`` sees
to that). The code tests it and else moves single elements. So are bounds handled that nothing is known to
divide.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation
from ptxforge.ir.ops.arith import CmpI, DivSI, DivUI, RemSI, RemUI, ShrSI, ShrUI
from ptxforge.layouts.banks import register_run
from ptxforge.layouts.encodings import elements_per_thread
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis, FactsWithinVectors, is_prefix, vector_width
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.analysis.reasons import why_narrow
from ptxforge.passes.properties import memory_accesses
from ptxforge.support import machine
from ptxforge.support.target import Target


def vectorize_memory(function: Function, target: Target) -> bool:
    """Set ``vector`` on every load, store and atomic_rmw of a tensor of pointers."""
    accesses = [op for op in memory_accesses(function) if op.takes_vectors]
    if not accesses:
        return False
    facts = kept(AxisInfoAnalysis, function)
    within = functools.partial(kept, FactsWithinVectors, function)
    for op in accesses:
        op.vector = vector_width(op, op.pointer.type.layout, facts, op.most_bytes(target))
        _guard(op, within)
        if op.guarded <= op.vector:
            why, cure = why_narrow(op, facts, T.element_type(op.elements).bytes, op.vector)
            if why:
                function.remarks.add("narrow-access", f"{why}; {cure}", op.location)
    _mark_runs(function, facts)
    return True


def _mark_runs(function: Function, facts: AxisInfoAnalysis) -> None:
    """Say of every comparison, quotient and shift to the right over how many elements it does not change, and
    of every remainder over how many it counts up: it is made once for them.

    What the user promised of a remainder has widened the accesses by now, and goes: kernels promise that rows
    modulo their number are contiguous, which is false in the last block, and rely on it that no more than one
    vector is read beyond them.
    """
    for op in function.walk(CmpI):
        if isinstance(op.result.type, T.TensorType):
            _mark(op, "constancy", facts[op.result].constancy)
    for op in function.walk((DivSI, DivUI, ShrSI, ShrUI)):
        if isinstance(op.result.type, T.TensorType):
            _mark(op, "constancy", facts.derived(op).constancy)
    for op in function.walk((RemSI, RemUI)):
        if isinstance(op.result.type, T.TensorType):
            _mark(op, "contiguity", facts.derived(op).contiguity)


def _mark(op: Operation, name: str, lengths: tuple[int, ...]) -> None:
    if max(lengths) > 1:
        op.attributes[name] = lengths
    else:
        op.attributes.pop(name, None)


def _guard(op: Operation, within: Callable[[], FactsWithinVectors]) -> None:
    """Set ``guarded`` and ``aligned``, or remove what an earlier pass hoped for."""
    hoped = op.guarded
    op.guarded, op.aligned = 1, False
    if not may_be_guarded(op):
        return
    type = op.pointer.type
    size = type.element.pointee.bytes
    dim, run = register_run(type.layout, type.shape)
    most = min(run, max(1, machine.VECTOR_BYTES // size))
    if most <= op.vector:
        return
    facts = within()
    info = facts[op.pointer]
    aligned = max(1, info.divisibility[dim] // size)
    width = min(most, info.contiguity[dim], max(aligned, hoped))
    vectors = elements_per_thread(type.layout, type.shape) // width
    if width <= op.vector or vectors > machine.GUARDED_VECTORS:
        return
    if op.mask is not None and not is_prefix(op.mask, dim, width, facts):
        return
    op.guarded, op.aligned = width, aligned >= width


def may_be_guarded(op: Operation) -> bool:
    """Whether an access is a load or store of elements that are moved as they are (unlike bits and pointers),
    in as many instructions as we like."""
    pointee, effects = op.pointer.type.element.pointee, op.get_effects()
    is_plain = not effects.is_atomic and not effects.other
    return is_plain and pointee is not T.I1 and not isinstance(pointee, T.PointerType)
