"""Assembly written by the user, element by element.

The text is PTX with ``$0``, ``$1``, … for its operands, results first; ``$$`` is a dollar sign. The
constraints say in which register each operand is: ``=`` marks a result, the letter the register.

======  =========  ==================================================
letter  register   holds
======  =========  ==================================================
``b``   ``.pred``  int1
``h``   ``.b16``   up to 16 bits (``c``, too)
``r``   ``.b32``   up to 32 bits
``f``   ``.f32``   up to 32 bits
``l``   ``.b64``   up to 64 bits, pointers
``d``   ``.f64``   up to 64 bits
``n``              an integer constant, written into the text (``i``, too)
======  =========  ==================================================

A number instead of a letter (``=r,0``) means the register of that result, which then starts with this
operand's value. ``&`` after ``=`` and clobbers (``~{memory}``) are read over: no two operands share a
register here.

With ``pack = n`` one execution works on ``n`` elements of each operand. Elements narrower than 32 bits share
registers, lowest first, up to 32 bits; so four int8 are one ``r``, four float32 four ``f``.
"""

from __future__ import annotations

import re
from functools import lru_cache

import attrs

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.support.errors import VerificationError

WIDTHS = {"b": 1, "h": 16, "c": 16, "r": 32, "f": 32, "l": 64, "d": 64}
"""Register letter → bits."""

_REFERENCE = re.compile(r"\$(?:(\$)|(\d+)|\{(\d+)(?::\w+)?\})")


@attrs.frozen(slots=True)
class Constraints:
    """Register letters of the results and of the inputs; ``tied[i]`` is the result in whose register input
    ``i`` is, or None."""

    results: tuple[str, ...]
    inputs: tuple[str, ...]
    tied: tuple[int | None, ...]


@lru_cache(maxsize=256)
def parse_constraints(text: str) -> Constraints:
    """The constraints in ``text``, such as ``=r,=r,r,f``. Raises ``ValueError`` saying what is wrong."""
    results, inputs, tied = [], [], []
    for part in (part.strip() for part in text.split(",")):
        if not part or part.startswith("~{"):
            continue
        if part.startswith("="):
            if inputs:
                raise ValueError(f"the result '{part}' stands after an input")
            results.append(_letter(part[1:].lstrip("&"), part, WIDTHS))
        elif part.isdigit():
            if int(part) >= len(results):
                raise ValueError(f"'{part}' is not the number of a result")
            inputs.append(results[int(part)])
            tied.append(int(part))
        else:
            inputs.append(_letter(part, part, (*WIDTHS, "n", "i")))
            tied.append(None)
    return Constraints(tuple(results), tuple(inputs), tuple(tied))


def _letter(letter: str, part: str, known) -> str:
    if letter not in known:
        raise ValueError(f"'{part}' is none of {', '.join(known)}")
    return letter


@lru_cache(maxsize=256)
def parse_text(text: str) -> tuple[str | int, ...]:
    """The assembly as pieces of text and numbers of operands."""
    pieces: list[str | int] = []
    end = 0
    for found in _REFERENCE.finditer(text):
        pieces.append(text[end : found.start()])
        dollar, *number = found.groups()
        pieces.append("$" if dollar else int(number[0] or number[1]))
        end = found.end()
    return (*pieces, text[end:])


def elements_per_word(element: T.Type, pack: int) -> int:
    """How many elements of an operand share one register."""
    return min(max(1, 32 // element.bits), pack) if element.bits > 1 else 1


def words_of(types: list[T.Type], pack: int) -> list[tuple[int, int]]:
    """(which of ``types``, elements in it) of each register that operands (or results) of these element types
    take, in the order of the constraints."""
    return [
        (index, share)
        for index, element in enumerate(types)
        for share in [elements_per_word(element, pack)]
        for _ in range(pack // share)
    ]


def problem_of(constraints: str, text: str, inputs: list[T.Type], results: list[T.Type], pack: int) -> str:
    """What is wrong with an inline assembly, in words; empty when nothing is."""
    try:
        parsed = parse_constraints(constraints)
    except ValueError as error:
        return f"constraints {constraints!r}: {error}"
    for what, letters, types in (("result", parsed.results, results), ("input", parsed.inputs, inputs)):
        words = words_of(types, pack)
        if len(words) != len(letters):
            return (
                f"constraints {constraints!r} have {len(letters)} {what}s, but the types"
                f" ({', '.join(map(str, types))}) take {len(words)} registers with pack = {pack}"
            )
        for letter, (index, share) in zip(letters, words):
            bits = types[index].bits * share
            if letter in WIDTHS and (bits > WIDTHS[letter] or (letter == "b" and bits != 1)):
                return f"{share} × {types[index]} ({bits} bits) does not fit in a register '{letter}'"
    count = len(parsed.results) + len(parsed.inputs)
    used = [piece for piece in parse_text(text) if isinstance(piece, int)]
    if used and max(used) >= count:
        return f"${max(used)} stands in the text, but there are {count} operands"
    return ""


@D.define(
    "inline_asm", effects=D.MAY_WAIT, traits=[D.ELEMENTWISE], shows_operand_types=True, cost=D.EXPENSIVE
)
class InlineAsm(Operation):
    """The results of the PTX ``text``, run for every ``pack`` elements of the operands: which of them come
    together is not defined, and a group that is not full is filled up with anything. ``elements`` are the
    results' element types (scalars without operands). Unless ``pure``, it acts on the world, once for each
    thread and register that holds the elements; it runs wherever the program does. ``ptx_version`` is the PTX
    ISA that the text needs; of a user's it is not known, and instructions up to CUDA 12.1's are let through.
    """

    inputs = D.operands(D.NUMBER_OR_POINTER)
    text = D.attribute(str)
    constraints = D.attribute(str)
    elements = D.attribute(tuple)
    pack = D.attribute(int, 1)
    pure = D.attribute(bool, True)
    ptx_version = D.attribute(tuple, (8, 1))

    @classmethod
    def infer(cls, operand_types, attributes):
        elements = [_element(name) for name in attributes["elements"]]
        return [T.like(operand_types[0], e) if operand_types else e for e in elements]

    def check(self):
        if self.pack < 1 or self.pack & (self.pack - 1):
            raise VerificationError(f"'inline_asm' works on a power of two of elements, not {self.pack}")
        inputs = [T.element_type(v.type) for v in self.operands]
        results = [T.element_type(v.type) for v in self.results]
        problem = problem_of(self.constraints, self.text, inputs, results, self.pack)
        if problem:
            raise VerificationError(f"'inline_asm': {problem}")

    def get_effects(self):
        return D.PURE if self.pure else D.MAY_WAIT

    @property
    def varies(self) -> bool:
        """Whether threads may get different results of equal operands: a special register's name has a %."""
        return not self.pure or "%" in self.text


def _element(name: str) -> T.Type:
    """An element type by its text; a pointer's is ``ptr<f32>``."""
    if name.startswith("ptr<"):
        return T.PointerType(_element(name[4:-1]))
    return T.SCALARS[name]
