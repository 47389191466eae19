"""Loads and stores of vectors of words, in every space of memory."""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register


def vector_load(
    b: Builder, head: str, words: Sequence[Register], type: str, address, policy: tuple = (), guard=None
) -> None:
    """``head.v4.type {words}, [address], policy;``. The address is a register, or one and bytes; ``head`` is
    the instruction up to the vector; ``policy`` has what the cache is told, ``guard`` is as for an effect."""
    vector, slots = vector_syntax(len(words))
    _require(b, words, type)
    rest = ", %s;" if policy else ";"
    b.effect(f"{head}{vector}.{type} {slots}, [%s+%s]{rest}", *words, *b.split(address), *policy, guard=guard)


def vector_store(
    b: Builder, head: str, address, words: Sequence, type: str, policy: tuple = (), guard=None
) -> None:
    """:func:`vector_load` the other way."""
    vector, slots = vector_syntax(len(words))
    _require(b, words, type)
    rest = ", %s;" if policy else ";"
    b.effect(f"{head}{vector}.{type} [%s+%s], {slots}{rest}", *b.split(address), *words, *policy, guard=guard)


def vector_syntax(count: int) -> tuple[str, str]:
    """``.v4`` and ``{%s, %s, %s, %s}`` for a number of words."""
    if count == 1:
        return "", "%s"
    return f".v{count}", "{" + ", ".join(["%s"] * count) + "}"


def _require(b: Builder, words: Sequence, type: str) -> None:
    """256 bits need PTX 8.8."""
    if len(words) * int(type[1:]) > 128:
        b.require(8, 8)
