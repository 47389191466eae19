"""Elements narrower than 32 bits in 32-bit words, as vector memory accesses and packed instructions want
them.

Splitting a word and putting the same elements together again costs nothing: each remembers the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import wrap
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T


def unpack(b: Builder, word: Register, element: T.Type) -> tuple[Register, ...]:
    """The elements in a 32-bit ``word``, lowest first."""
    if element.bits == 32:
        return (word,)
    if register_class(element) == "h":
        parts = b.halves(word)
        if element is T.BF16:  # an f32 is its word, shifted or masked
            for place, part in enumerate(parts):
                b.remember(("half", part), (word, place))
        return parts
    if element.bits == 16:
        parts = word, b.pure("shr.u32 %s, %s, %s;", "r", word, 16)
    else:
        parts = word, *[b.pure("shr.u32 %s, %s, %s;", "r", word, 8 * i) for i in (1, 2, 3)]
        for index, part in enumerate(parts[1:], 1):
            b.remember(("byte of", part), (word, index))
    b.remember(parts, word)
    return parts


def two_bytes(b: Builder, word: Register) -> tuple[Register, Register]:
    """The elements of 8 bits in the lower half of a word: the second has its place there noted, as those of
    :func:`unpack` have."""
    high = b.pure("shr.u32 %s, %s, 8;", "r", word)
    b.remember(("byte of", high), (word, 1))
    return word, high


def pack(b: Builder, elements: Sequence, element: T.Type):
    """The 32-bit word of 32/bits elements, lowest first: a register or a constant."""
    if element.bits == 32:
        return b.plain(elements[0])
    if (known := b.known((*elements,))) is not None:
        return known
    if isinstance(elements[0], int) and all(isinstance(x, int) for x in elements):
        mask = (1 << element.bits) - 1
        word = sum((x & mask) << element.bits * i for i, x in enumerate(elements))
        return word - (1 << 32) if word >> 31 else word
    kind = register_class(element)
    parts = tuple([b.register(x, kind) for x in elements])
    known = b.known(parts)
    if known is not None:
        return known
    if kind == "h":
        word = b.pure("mov.b32 %s, {%s, %s};", "r", *parts)
        b.remember(word, parts)
    elif element.bits == 16:
        word = b.pure("prmt.b32 %s, %s, %s, 0x5410;", "r", *parts)
    else:
        word = _four_bytes(b, parts)
    b.remember(parts, word)
    return word


def _four_bytes(b: Builder, parts: Sequence[Register]) -> Register:
    """The word of the low bytes of four registers. Those that were cut out of words are taken from there: a
    ``prmt`` selects among the bytes of two words."""
    low, high = (_places_of_bytes(b, parts[i : i + 2]) for i in (0, 2))
    words = list(dict.fromkeys(word for word, _ in (*low, *high)))
    if len(words) <= 2:
        return _permuted(b, words, (*low, *high))
    low, high = _permuted(b, *_sources(low)), _permuted(b, *_sources(high))
    return b.pure("prmt.b32 %s, %s, %s, 0x5410;", "r", low, high)


def _places_of_bytes(b: Builder, parts: Sequence[Register]) -> list[tuple[Register, int]]:
    """Where the low bytes of registers come from: (word, which of its bytes)."""
    return [b.known(("byte of", part)) or (part, 0) for part in parts]


def byte_in_its_word(b: Builder, x) -> Register | None:
    """The word that the low byte of ``x`` was cut out of, without its other bytes: zero when the byte is."""
    place = b.known(("byte of", x))
    if place is None:
        return None
    word, index = place
    return b.pure("and.b32 %s, %s, %s;", "r", word, wrap(0xFF << 8 * index, 32))


def are_bytes_of_words(b: Builder, parts: Sequence) -> bool:
    """Whether four entries are bytes of one or two words: packing them takes an instruction at most."""
    if any(not isinstance(x, Register) for x in parts):
        return False
    return b.known(tuple(parts)) is not None or len(_sources(_places_of_bytes(b, parts))[0]) <= 2


def _sources(places: Sequence[tuple[Register, int]]) -> tuple[list[Register], Sequence[tuple[Register, int]]]:
    return list(dict.fromkeys(word for word, _ in places)), places


def _permuted(b: Builder, words: Sequence[Register], places: Sequence[tuple[Register, int]]) -> Register:
    """The bytes at ``places`` of one or two words, lowest first."""
    selector = sum(4 * words.index(word) + index << 4 * i for i, (word, index) in enumerate(places))
    return b.pure(f"prmt.b32 %s, %s, %s, 0x{selector:04x};", "r", words[0], words[-1])


def words_of(b: Builder, elements: Sequence, element: T.Type) -> tuple[list, Register]:
    """A vector access's operands and their PTX type: elements in order, packed into words where they are
    narrow.

    Returns (operands, ``b8``/``b16``/``b32``/``b64``). Operands may be constants.
    """
    bits = element.bits
    if bits >= 32 or len(elements) * bits < 32:
        return [plain_operand(b, x, element) for x in elements], f"b{max(bits, 8)}"
    per_word = 32 // bits
    return [pack(b, elements[i : i + per_word], element) for i in range(0, len(elements), per_word)], "b32"


def plain_operand(b: Builder, x, element: T.Type):
    """One element as an operand of a store or move."""
    if element is T.I1:
        return b.pure("selp.b32 %s, 1, 0, %s;", "r", x) if isinstance(x, Register) else int(x)
    return b.plain(x)


def fresh_words(b: Builder, count: int, element: T.Type) -> tuple[list[Register], Register]:
    """Destination registers of a vector access of ``count`` elements, and their PTX type."""
    bits = element.bits
    if bits < 32 <= count * bits:
        return b.several("r" * (count * bits // 32)), "b32"
    kind = "r" if element is T.I1 else register_class(element)
    return b.several(kind * count), f"b{max(bits, 8)}"


def elements_of(b: Builder, words: Sequence[Register], count: int, element: T.Type) -> list:
    """The elements in the registers that :func:`fresh_words` gave."""
    if element is T.I1:
        return [b.pure("setp.ne.b32 %s, %s, 0;", "p", masked_byte(b, word)) for word in words]
    if element.bits < 32 <= count * element.bits:
        return [x for word in words for x in unpack(b, word, element)]
    return list(words)


def masked_byte(b: Builder, word: Register) -> Register:
    """The low byte, zero-extended."""
    return b.pure("and.b32 %s, %s, 255;", "r", word)
