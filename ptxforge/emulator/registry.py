"""The table of instruction families: opcode -> the function that emits its code.

``@instruction("ld", "ldu")`` registers a handler for every opcode that begins with that dotted name; the
longest registered prefix wins, so that ``cp.async.bulk`` and ``cp.async`` can live in different files. The
essay at the head of :mod:`ptxforge.emulator.translate` says how a handler is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Family:
    """One registered handler.

    ``defines`` is how many leading operands the instruction writes (a function of the instruction where that
    varies). ``role`` is ``"plain"``; ``"branch"`` (ends its block and emits its own ``return``);
    ``"barrier"`` (likewise, then falls through); or ``"blocking"`` (stands alone in its block and may make
    lanes wait). ``grouped`` handlers take a list of independent instructions of the same opcode at once.
    """

    name: str
    emit: Callable
    defines: int | Callable = 1
    role: str = "plain"
    grouped: bool = False
    polls: bool = False

    def definitions(self, instruction: object) -> tuple:
        """The operands that the instruction writes."""
        count = self.defines(instruction) if callable(self.defines) else self.defines
        return instruction.operands[:count]


_FAMILIES: dict[str, Family] = {}


def instruction(
    *names: str, defines: int | Callable = 1, role: str = "plain", grouped: bool = False, polls: bool = False
) -> Callable:
    """Register the decorated ``emit(e, instruction)`` for the opcode prefixes ``names``."""

    def register(emit: Callable) -> Callable:
        for name in names:
            if name in _FAMILIES:
                raise ValueError(f"{name} is registered twice")
            _FAMILIES[name] = Family(name, emit, defines, role, grouped, polls)
        lookup.cache_clear()
        return emit

    return register


@cache
def lookup(opcode: str) -> Family | None:
    """The family of a full opcode: the longest registered dotted prefix."""
    name = opcode
    while name:
        if name in _FAMILIES:
            return _FAMILIES[name]
        name = name.rpartition(".")[0]
    return None


def names() -> list[str]:
    """All registered opcode prefixes."""
    return sorted(_FAMILIES)
