"""Inline assembly: the text as it stands, with registers for its operands.

    shf.l.wrap.b32 $0, $1, $1, 8;    →    shf.l.wrap.b32 %r7, %r3, %r3, 8;

Every result has a register of its own. Above its width an operand is filled up with zeros; of a result only
the low bits count. A text that declares names stands in braces, so that it may come several times.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from ptxforge.codegen_ptx.lower.elementwise import zero_extended
from ptxforge.codegen_ptx.lower.packing import pack, unpack
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import EFFECT, PURE, Instruction
from ptxforge.codegen_ptx.ptx.pointers import Pointer, whole
from ptxforge.codegen_ptx.ptx.registers import DECLARED, MOVES, Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.ops.inline_asm import WIDTHS, InlineAsm, parse_constraints, parse_text, words_of
from ptxforge.support.errors import CompilationError

_CLASSES = {1: "p", 16: "h", 32: "r", 64: "q"}
"""A constraint's bits → our class of registers that wide."""

_DECLARED = re.compile(r"\.reg\s+[.\w]+\s+([^;]*)")
_OURS = re.compile(r"%([phrfqd])(?:\d+|<)")
_BITS = {"p": 1, "h": 16, "r": 32, "f": 32, "q": 64, "d": 64}
"""Our classes of registers → bits."""
_DECLARES = re.compile(r"^\s*\.\w|\.reg\b|^\s*\$?\w+\s*:(?!:)", re.MULTILINE)


@lowers(InlineAsm)
def lower_inline_asm(ctx: Lowering, op: InlineAsm) -> None:
    b = ctx.b
    b.require(*op.ptx_version)
    _check_names(op)
    operands = [ctx.get(v) for v in op.operands]
    count = max(map(len, operands), default=1)
    # A reduction combines many pairs at once, for which its constants have one entry.
    operands = [entries * count if len(entries) == 1 else entries for entries in operands]
    results: list[list] = [[] for _ in op.results]
    for start in range(0, count, op.pack):
        group = [_group(entries, start, op.pack) for entries in operands]
        for entries, more in zip(results, _execute(b, op, group)):
            entries += more
    ctx.set(op, *[entries[:count] for entries in results])


def _check_names(op: InlineAsm) -> None:
    """A name that the text declares hides ours between its braces: none that an operand may have."""
    constraints = parse_constraints(op.constraints)
    operands = {WIDTHS[letter] for letter in (*constraints.results, *constraints.inputs) if letter in WIDTHS}
    for declared in _OURS.finditer(" ".join(_DECLARED.findall(op.text))):
        if _BITS[declared[1]] in operands:
            raise CompilationError(
                f"inline assembly declares '{declared[0]}', a name of the compiler's own registers that its "
                "operands may have",
                op.location,
                hint="give its registers other names",
            )


def _group(entries: list, start: int, size: int) -> list:
    """``size`` entries; the last one again where there are not as many."""
    group = entries[start : start + size]
    return group + group[-1:] * (size - len(group))


def _execute(b: Builder, op: InlineAsm, group: list[list]) -> list[list]:
    """The text once: ``pack`` entries of each result."""
    constraints = parse_constraints(op.constraints)
    inputs = _inputs(b, op, group, constraints.inputs)
    template, order = _template(op, inputs, constraints.tied)
    elements = [T.element_type(v.type) for v in op.results]
    words = words_of(elements, op.pack)
    kinds = [
        _result_class(letter, elements[index], share)
        for letter, (index, share) in zip(constraints.results, words, strict=True)
    ]
    key = (template, tuple(inputs), *kinds)
    outputs = b.known(key) if op.pure else None
    if outputs is None:
        outputs = b.several(kinds)
        every = (*outputs, *inputs)
        operands = (*outputs, *[every[index] for index in order])
        kind = PURE if op.pure and outputs else EFFECT
        b.code.append(Instruction(template, operands, kind, b.location, b.why))
        if op.pure:
            b.remember(key, outputs)
    found: list[list] = [[] for _ in elements]
    for register, (index, share) in zip(outputs, words, strict=True):
        found[index] += _elements(b, register, elements[index], share)
    return found


def _template(op: InlineAsm, inputs: list, tied: Sequence[int | None]) -> tuple[str, list[int]]:
    """The instruction's template, and which operand stands at each of its places.

    It begins with the results, printed as nothing: the builder wants them first."""
    results = len(parse_constraints(op.constraints).results)
    parts, order = [], []
    for index, result in enumerate(tied):
        if result is not None:
            parts.append(MOVES[inputs[index].kind] + "\n")
            order += [result, results + index]
    for piece in parse_text(textwrap.dedent(op.text).strip()):
        if isinstance(piece, int):
            is_tied = piece >= results and tied[piece - results] is not None
            order.append(tied[piece - results] if is_tied else piece)
        parts.append("%s" if isinstance(piece, int) else piece.replace("%", "%%"))
    text = "".join(parts)
    if _DECLARES.search(op.text) and not text.startswith("{"):
        text = f"{{\n{text}\n}}"
    return "%.0s" * results + "\n\t".join(text.splitlines()), order


# -- operands in registers -------------------------------------------------------------------------------


def _inputs(b: Builder, op: InlineAsm, group: list[list], letters: Sequence[str]) -> list:
    """The operand of each constraint: a register, or a constant for ``n``."""
    elements = [T.element_type(v.type) for v in op.operands]
    taken = [0] * len(elements)
    found = []
    for letter, (index, share) in zip(letters, words_of(elements, op.pack), strict=True):
        entries = group[index][taken[index] : taken[index] + share]
        taken[index] += share
        if letter in WIDTHS:
            found.append(_in_register(b, entries, elements[index], _CLASSES[WIDTHS[letter]]))
        elif isinstance(entries[0], int):
            found.append(entries[0])
        else:
            raise CompilationError(
                f"inline assembly: the operand of constraint '{letter}' is no constant", op.location
            )
    return found


def _in_register(b: Builder, entries: list, element: T.Type, kind: str) -> Register:
    """Elements, lowest first, in one register as wide as those of class ``kind``, with zeros above them."""
    own = register_class(element)
    if len(entries) == 1 and DECLARED[own] == DECLARED[kind] and element.bits != 8 and own != "r":
        (entry,) = entries
        return whole(b, entry) if isinstance(entry, Pointer) else b.register(entry, own)
    word = b.register(_word(b, entries, element), "f" if own == "f" else "r")
    if kind == "h":
        return b.pure("cvt.u16.u32 %s, %s;", "h", word)
    return b.pure("cvt.u64.u32 %s, %s;", "q", word) if kind == "q" else word


def _word(b: Builder, entries: list, element: T.Type):
    """Elements, lowest first, in 32 bits, with zeros above them."""
    if len(entries) * element.bits == 32:
        return pack(b, entries, element)
    if len(entries) == 2:
        low, high = (b.register(zero_extended(b, x, 8)) for x in entries)
        return b.pure("prmt.b32 %s, %s, %s, 0x1140;", "r", low, high)
    (entry,) = entries
    if element is T.I1:
        return b.pure("selp.b32 %s, 1, 0, %s;", "r", b.register(entry, "p"))
    if register_class(element) == "h":
        return b.pure("cvt.u32.u16 %s, %s;", "r", b.register(entry, "h"))
    return zero_extended(b, entry, element.bits)


def _result_class(letter: str, element: T.Type, share: int) -> str:
    """The class of a result's register: the element's own where that is as wide as the constraint says."""
    own, kind = register_class(element), _CLASSES[WIDTHS[letter]]
    return own if share == 1 and DECLARED[own] == DECLARED[kind] else kind


def _elements(b: Builder, register: Register, element: T.Type, share: int) -> Sequence:
    """The elements, lowest first, in a result's register."""
    own, held = register_class(element), register.kind
    if own == held and share == 1:
        return [register]
    if held in "hq":
        register = b.pure(
            f"cvt.u32.u{16 if held == 'h' else 64} %s, %s;", "f" if own == "f" else "r", register
        )
    if share * element.bits == 32:
        return unpack(b, register, element)
    if share == 2:
        return [register, b.pure("shr.u32 %s, %s, %s;", "r", register, 8)]
    if element is T.I1:
        return [b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 1;", "r", register))]
    return [b.pure("cvt.u16.u32 %s, %s;", "h", register) if own == "h" else register]
