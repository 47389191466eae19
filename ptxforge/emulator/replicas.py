"""Loads by threads that only repeat another thread's work.

Where a tile is smaller than the threads are many, compilers let several threads load, compute and keep the
same element, and one of them store it. When that one stores where the others have just loaded, in place, a
slower copy may load the new value instead of the old one. That is no race that matters as long as the copy
goes nowhere but into the store that the thread does not execute.
"""

from __future__ import annotations

from functools import lru_cache

from ptxforge.emulator.parser import Instruction, Memory
from ptxforge.emulator.program import Program, registers_of

_ARITHMETIC = frozenset(
    "abs add addc and bfe bfi bfind brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma fns lg2 lop3 "
    "mad mad24 max min mov mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin "
    "slct sqrt sub subc szext tanh testp xor".split()
)
"""Opcodes whose results depend on the thread's own registers alone."""

_STORES = ("st", "red", "atom")


@lru_cache(maxsize=4096)
def feeds_guarded_stores_only(program: Program, line: int) -> bool:
    """Whether what the load at a PTX line reads ends as the value of predicated stores, whatever computation
    lies between: no address, no branch, no other thread depends on it.
    """
    every = [item for block in program.blocks for item in block.instructions]
    loads = [item for item in every if item.line == line and item.parts[0] in ("ld", "ldu")]
    work = [register.name for item in loads for register in _defined(item)]
    seen: set[str] = set()
    while work:
        name = work.pop()
        if name in seen:
            continue
        seen.add(name)
        for item in every:
            if not _uses(item, name):
                continue
            if not _is_harmless(item, name):
                return False
            work += [register.name for register in _defined(item)]
    return bool(loads)


def _defined(item: Instruction) -> list:
    return registers_of(item.family.definitions(item))


def _uses(item: Instruction, name: str) -> bool:
    sources = registers_of(item.operands[len(item.family.definitions(item)) :])
    guard = [item.predicate] if item.predicate is not None else []
    return any(register.name == name for register in [*sources, *guard])


def _is_harmless(item: Instruction, name: str) -> bool:
    if item.predicate is not None and item.predicate.name == name:
        return False
    if item.parts[0] not in _STORES:
        return item.parts[0] in _ARITHMETIC
    addresses = [operand for operand in item.operands if isinstance(operand, Memory)]
    is_address = any(register.name == name for register in registers_of(tuple(addresses)))
    return item.predicate is not None and not is_address
