"""The table of instruction families: opcode -> the function that emits its code.

``@instruction("ld", "ldu")`` registers a handler for every opcode that begins with that dotted name; the
longest registered prefix wins, so that ``cp.async.bulk`` and ``cp.async`` can live in different files. The
page ``docs/emulator.md`` says how a handler is written.

A second table says which modifiers every opcode takes: a word that is not there makes an instruction unknown
when it is loaded. The families look for the modifiers that they act on and would overlook others. The table
follows the syntax lines of the PTX ISA; types are left to the families.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ptxforge.emulator.parser import TYPE_BITS


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


_TYPES = frozenset(TYPE_BITS) | frozenset(
    "b1 b2 b4 u2 s2 u4 s4 e4m3 e5m2 e3m2 e2m3 e2m1 ue8m0 e4m3x2 e5m2x2 e4m3x4 e5m2x4 e3m2x2 e2m3x2 e2m1x2 "
    "ue8m0x2 s2f6x2 u8x4 s8x4 u16x2 s16x2".split()
)
_SHAPE = re.compile(r"m\d+n\d+(k\d+)?")

_ROUNDING = "rn rz rm rp "
_SPACES = "global shared shared::cta shared::cluster local param param::entry const "
_SCOPES = "cta cluster gpu sys "
_ORDER = "weak volatile relaxed acquire release acq_rel mmio " + _SCOPES
_CACHE = (
    "ca cg cs cv lu wb wt nc L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last "
    "L1::no_allocate L2::evict_normal L2::evict_first L2::evict_last L2::cache_hint "
    "L2::64B L2::128B L2::256B "
)
_MEMORY = _SPACES + _ORDER + _CACHE + "v2 v4 v8 "
_REDUCE = "add min max inc dec and or xor "
_COMPARE = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz "
_ALIGNED = "sync aligned "
_ONE_OF = {
    "add sub": _ROUNDING + "ftz sat cc",
    "addc subc": "cc",
    "mul": _ROUNDING + "ftz sat hi lo wide",
    "mad": _ROUNDING + "ftz sat hi lo wide cc",
    "madc": "hi lo cc",
    "mul24 mad24": "hi lo sat",
    "fma": _ROUNDING + "ftz sat relu",
    "div": _ROUNDING + "ftz approx full",
    "rem sad popc clz brev bfe bfi fns dp4a shl shr selp cnot not and or xor mov copysign": "",
    "activemask exit trap brkpt nanosleep": "",
    "abs neg slct": "ftz",
    "min max": "ftz NaN xorsign abs relu",
    "bfind": "shiftamt",
    "bmsk szext": "clamp wrap",
    "dp2a": "lo hi",
    "prmt": "f4e b4e rc8 ecl ecr rc16",
    "lop3": "and or",
    "shf": "l r clamp wrap",
    "cvt": _ROUNDING + "rna rni rzi rmi rpi ftz sat satfinite relu pack",
    "cvta": "to " + _SPACES,
    "isspacep mapa getctarank": _SPACES,
    "set setp": _COMPARE,
    "rcp sqrt": _ROUNDING + "approx ftz",
    "rsqrt sin cos lg2 ex2 tanh": "approx ftz",
    "testp": "finite infinite number notanumber normal subnormal",
    "ld ldu": _MEMORY,
    "st": _MEMORY + "bulk async mbarrier::complete_tx::bytes",
    "atom red": _MEMORY + _REDUCE + "cas exch noftz async mbarrier::complete_tx::bytes",
    "shfl": "sync up down bfly idx",
    "vote": "sync all any uni ballot",
    "match": "sync any all",
    "redux": "sync abs NaN " + _REDUCE,
    "elect": "sync",
    "bar barrier": _ALIGNED + "cta warp cluster arrive red wait popc and or acquire release relaxed",
    "ldmatrix stmatrix movmatrix": _ALIGNED + "x1 x2 x4 trans shared shared::cta",
    "mma": _ALIGNED + "row col satfinite xor and popc",
    "wgmma": _ALIGNED + "mma_async fence commit_group wait_group satfinite and popc",
    "mbarrier": _SPACES + _SCOPES + "init inval arrive arrive_drop complete_tx expect_tx pending_count "
    "test_wait try_wait noComplete parity release acquire relaxed",
    "cp": _SPACES + _CACHE + _REDUCE + "async bulk tensor reduce prefetch commit_group wait_group wait_all "
    "read mbarrier arrive noinc noftz bulk_group tile 1d 2d 3d 4d 5d mbarrier::complete_tx::bytes "
    "multicast::cluster L2",
    "tensormap": _ALIGNED + _SPACES + _SCOPES + "cp_fenceproxy tensormap::generic release replace tile b1024 "
    "global_address rank box_dim global_dim global_stride element_stride elemtype interleave_layout "
    "swizzle_mode fill_mode",
    "fence": "sc acq_rel acquire release proxy async alias async::generic async.global mbarrier_init "
    "tensormap::generic sync_restrict::shared::cta sync_restrict::shared::cluster " + _SPACES + _SCOPES,
    "membar": "gl proxy alias async " + _SPACES + _SCOPES,
    "bra call ret": "uni",
    "brx": "idx uni",
    "pmevent": "mask",
    "griddepcontrol": "launch_dependents wait",
    "setmaxnreg": _ALIGNED + "inc dec",
    "discard applypriority": "global L2 L2::evict_normal",
    "prefetch prefetchu": _SPACES + "tensormap L1 L2 L2::evict_last L2::evict_normal",
    "createpolicy": "fractional range global cvt L2 L2::evict_last L2::evict_normal L2::evict_first "
    "L2::evict_unchanged",
}
KNOWN = {name: frozenset(words.split()) for names, words in _ONE_OF.items() for name in names.split()}
"""Opcode -> the modifiers that it takes."""


@cache
def unknown_modifier(opcode: str) -> str | None:
    """The first modifier of a full opcode that its instruction does not have, or None."""
    name, *modifiers = opcode.split(".")
    known = KNOWN[name]
    for word in modifiers:
        if word not in known and word not in _TYPES and not _SHAPE.fullmatch(word):
            return word
    return None
