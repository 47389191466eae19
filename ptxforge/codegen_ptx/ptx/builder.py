"""Builds the flat list of PTX instructions of one kernel.

Instructions are described in ``instruction.py``, what happens to their list afterwards in ``pipeline.py``.
Operands are registers or immediates: ints or literals of floats (``registers.py``).

*Value numbering.* :meth:`Builder.pure` gives the register of an equal instruction when one dominates this
place: scopes open and close with structured control flow, and closing one forgets what was computed in it.

*Affine integers.* A 32- or 64-bit integer is a register, an int, or a tuple ``(register, constant)``: their
sum. So a thread's elements ``base, base + 1, base + 2 …`` take one register, and the constants end up in the
immediates of memory instructions. :meth:`Builder.register` adds the constant where an instruction needs a
plain operand.

*Entry code.* What depends on the thread's number alone is computed once at the kernel's entry
(:meth:`Builder.at_entry`), even when a loop asks for it first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from ptxforge.codegen_ptx.ptx.constants import wrap
from ptxforge.codegen_ptx.ptx.instruction import (
    CARRY,
    EFFECT,
    LABEL,
    MERGE,
    PURE,
    RARE_BEGIN,
    RARE_END,
    Carry,
    Instruction,
    Location,
    Merge,
    copied,
)
from ptxforge.codegen_ptx.ptx.registers import MOVES, Register, resolve
from ptxforge.ir.warps import WarpGroup
from ptxforge.support.target import Target

Loop = tuple[Instruction, int]
"""The label of a loop, and how many registers were made before it."""

SPLIT = "mov.b32 {%s, %s}, %s;"

AT_ENTRY = "at_entry: it depends on the thread's number alone"


class _Forgetful(dict):
    """Values by number where none is remembered."""

    def __setitem__(self, key: tuple, value: object) -> None:
        pass

    def setdefault(self, key: tuple, value: object = None) -> object:
        return value


class _OpaqueThread:
    """Context of :meth:`Builder.opaque_thread`."""

    __slots__ = ("b", "saved")

    def __init__(self, b: Builder):
        self.b = b

    def __enter__(self) -> None:
        b = self.b
        old = b.thread_values["tid"]
        tid = b.pure("shfl.sync.bfly.b32 %s, %s, 0, 31, -1;", "r", old).within(*old.range)
        self.saved = b.thread_values, b._entry_code, b._entry_numbers
        # What is asked for at the entry now comes here.
        b.thread_values, b._entry_code, b._entry_numbers = {"tid": tid}, b.code, b._numbers

    def __exit__(self, *_) -> None:
        b = self.b
        b.thread_values, b._entry_code, b._entry_numbers = self.saved


class _AtEntry:
    """Context of :meth:`Builder.at_entry`."""

    __slots__ = ("b", "saved")

    def __init__(self, b: Builder):
        self.b = b

    def __enter__(self) -> None:
        b = self.b
        self.saved = b.code, b._numbers, b.location, b.why
        b.code, b._numbers, b.location = b._entry_code, b._entry_numbers, None
        b.why = b.why or AT_ENTRY

    def __exit__(self, *_) -> None:
        b = self.b
        b.code, b._numbers, b.location, b.why = self.saved


class _Rare:
    """Context of :meth:`Builder.rare`."""

    __slots__ = ("b", "end")

    def __init__(self, b: Builder, predicate: Register):
        self.b = b
        self.end = b.skip_unless(predicate, "common")

    def __enter__(self) -> None:
        b = self.b
        b.has_rare_code = True
        b.code.append(Instruction("", (), RARE_BEGIN))
        b.open_scope()

    def __exit__(self, *_) -> None:
        b = self.b
        b.close_scope()
        b.code.append(Instruction("", (), RARE_END))
        b.place(self.end)


class Builder:
    """Emits instructions for ``target`` and the threads of ``group``; ``version`` grows to the PTX
    version that the instructions need. ``without`` names rules and passes (``ptx/pipeline.py``) that are left
    out; ``aliases`` tells which registers have become others. ``location`` and ``why`` become those of the
    instructions that follow."""

    def __init__(self, target: Target, group: WarpGroup, without: Collection[str] = ()):
        self.target, self.group = target, group
        self.version = target.ptx_version
        self.without = frozenset(without)
        self.location: Location | None = None
        self._located = None
        self.why = ""
        self.code: list[Instruction] = []
        self._numbers: dict[tuple, object] = _Forgetful() if "number_values" in without else {}
        self._scopes: list[int] = []  # how many values were known where each began
        self._before: list[Instruction] = []
        self._earlier_entry: list[Instruction] = []
        self.aliases: dict[Register, Register] = {}
        self._entry_code: list[Instruction] = []
        self._entry_numbers: dict[tuple, object] = type(self._numbers)()
        self.count = 0
        self.branch = "bra.uni"  # where each thread decides for itself: "bra"
        self._labels = 0
        self.files: dict[str, int] = {}
        self.thread_values: dict[tuple, object] = {}
        self.declarations: dict[str, None] = {}
        self.strings: dict[str, str] = {}
        self.local_bytes = 0
        self.loops: list[Carry] = []  # in the order of their ends
        self.has_rare_code = self.branches_to_copies = self.computes_late = False
        self.has_lines = True

    # -- instructions ------------------------------------------------------------------------------------

    def require(self, major: int, minor: int) -> None:
        """An instruction needs PTX ISA ``major.minor``."""
        if (major, minor) > self.version:
            self.version = (major, minor)

    def new(self, kind: str) -> Register:
        """A fresh register of this kind."""
        self.count += 1
        return Register(kind, self.count)

    def several(self, kinds: Sequence[str]) -> list[Register]:
        """Fresh registers of these kinds."""
        first = self.count + 1
        self.count += len(kinds)
        return [*map(Register, kinds, range(first, self.count + 1))]

    def pure(self, syntax: str, kind: str, *operands) -> Register:
        """The result, a register of this kind, of an instruction without effects. The result is the first
        operand of the syntax."""
        key, numbers = (syntax, operands), self._numbers
        found = numbers.get(key) or self._entry_numbers.get(key)
        if found is None:
            self.count = number = self.count + 1
            found = numbers[key] = Register(kind, number)
            self.code.append(Instruction(syntax, (found, *operands), PURE, self.location, self.why))
        return found

    def pure_many(self, syntax: str, kinds: str, *operands) -> tuple[Register, ...]:
        """As :meth:`pure`, for an instruction with one result per letter of ``kinds``."""
        key = (syntax, operands)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = (*self.several(kinds),)
            self.code.append(Instruction(syntax, found + operands, PURE, self.location, self.why))
        return found

    def halves(self, word: Register) -> tuple[Register, Register]:
        """The 16-bit registers into which a word is split; :meth:`known` gives the word of the two."""
        numbers, number = self._numbers, self.count
        found = numbers.get(word)
        if found is None:
            self.count = number + 2
            found = numbers[word] = Register("h", number + 1), Register("h", number + 2)
            numbers[found] = word
            self.code.append(Instruction(SPLIT, (*found, word), PURE, self.location, self.why))
        return found

    def either_way(self, syntax: str, kind: str, x: Register, y: Register) -> Register:
        """:meth:`pure` of two operands of which the order does not matter."""
        return self.pure(syntax, kind, y, x) if y < x else self.pure(syntax, kind, x, y)

    def remember(self, key: tuple, value: object) -> None:
        """State that the instruction ``key = (syntax, operands)`` would give ``value``."""
        self._numbers.setdefault(key, value)

    def known(self, key: tuple) -> object:
        """What was remembered for ``key``, or None."""
        return self._numbers.get(key)

    def effect(self, syntax: str, *operands, guard=None) -> None:
        """An instruction that stays where it is, executed where the predicate ``guard`` holds (a register;
        None and 1: always; 0: never)."""
        if guard == 0:
            return
        if guard is not None and guard != 1:
            syntax, operands = "@%s " + syntax, (guard, *operands)
        self.code.append(Instruction(syntax, operands, EFFECT, self.location, self.why))

    def copy(self, destination: Register, source) -> None:
        """Assign a register that has several definitions (a loop-carried value, a predicated load's
        result)."""
        self.code.append(copied(destination, self.plain(source), self.location, self.why))

    def merge(self, destination: Register, source, born: int, results: set[Register]) -> None:
        """At the end of a side of a branch: what ``destination`` is behind it (see :class:`Merge`)."""
        syntax = copied(destination, source).syntax
        found = Merge(syntax, (destination, source), MERGE, self.location, self.why)
        found.born, found.results = born, results
        self.code.append(found)

    def carry(
        self, loop: Loop, copies: list[tuple[Register, object]], kept: Iterable[Register] = (),
        held: int | None = None,
    ) -> None:  # fmt: skip
        """At the end of a loop's body: destinations and sources of what it carries, and the rest of what
        :class:`Carry` tells."""
        found = Carry("", (), CARRY, self.location, self.why)
        found.set_pairs(copies)
        (found.top, found.born), found.kept, found.held = loop, frozenset(kept), held
        self.code.append(found)
        self.loops.append(found)

    def label(self, stem: str) -> str:
        """A fresh label name."""
        self._labels += 1
        return f"${stem}_{self._labels}"

    def place(self, label: str) -> Loop:
        """Put a label here. If it is the top of a loop, :meth:`carry` wants what is returned."""
        found = Instruction(label + ":", (), LABEL)
        self.code.append(found)
        return found, self.count

    def skip_unless(self, predicate: Register, stem: str) -> str:
        """Branch to the label that is returned where the predicate does not hold. The branch may diverge."""
        end = self.label(stem)
        self.effect(f"@!%s bra {end};", predicate)
        return end

    def rare(self, predicate: Register) -> _Rare:
        """Within ``with b.rare(p):`` stands what only threads with ``p`` do, which are few. Nothing that is
        computed there is known afterwards."""
        return _Rare(self, predicate)

    def at_entry(self) -> _AtEntry:
        """Within ``with b.at_entry():``, pure instructions go to the kernel's entry. Their operands must come
        from there."""
        return _AtEntry(self)

    def opaque_thread(self) -> _OpaqueThread:
        """Within ``with b.opaque_thread():``, the thread's number is a value that the assembler does not know
        to be the old one (it came through a shuffle), so that what is computed from it is not merged with
        what was computed before."""
        return _OpaqueThread(self)

    @contextmanager
    def because(self, why: str) -> Iterator[None]:
        """Within ``with b.because(why):``, instructions are there for this reason."""
        self.why, before = why, self.why
        yield
        self.why = before

    def recompute_thread_values(self) -> None:
        """What was built so far comes first; from here on the kernel's entry is here. So the registers of
        what depends on the thread alone are not live before. Only outside of all control flow."""
        self.forget()
        with self.opaque_thread():
            values = self.thread_values
        self._before += self._entry_code + self.code
        self._earlier_entry += self._entry_code
        self.code, self._entry_code = [], []
        self.thread_values, self._entry_numbers = values, type(self._numbers)()

    def for_others(self, group: WarpGroup) -> Builder:
        """A builder for what other warps run: see :meth:`end_with`. Only one of the two builds at a time."""
        other = Builder(self.target, group, self.without)
        for name in ("count", "_labels", "files", "declarations", "version", "has_lines", "aliases", "loops"):
            setattr(other, name, getattr(self, name))
        return other

    def end_with(self, other: Builder, own_first: str = "", others_first: str = "") -> None:
        """Threads behind those of this builder's group do what ``other`` built, and nothing else. Either may
        begin with an instruction before all others."""
        self.count, self._labels, self.version = other.count, other._labels, other.version
        start, end = self.label("extra_warps"), self.label("end")
        self.effect(f"bra.uni {end};")
        self.place(start)
        self.code += [Instruction(text, (), EFFECT) for text in (others_first,) if text]
        self.code += other.all_code()
        self.place(end)
        tid, leaves = self.new("r"), self.new("p")
        (self._before or self._entry_code)[0:0] = [
            Instruction("mov.u32 %s, %%tid.x;", (tid,), EFFECT),
            Instruction("setp.ge.u32 %s, %s, %s;", (leaves, tid, self.group.end_thread), EFFECT),
            Instruction(f"@%s bra.uni {start};", (leaves,), EFFECT),
            *(Instruction(text, (), EFFECT) for text in (own_first,) if text),
        ]

    # -- scopes ------------------------------------------------------------------------------------------

    def open_scope(self) -> None:
        """What is computed from here on is known until :meth:`close_scope`."""
        self._scopes.append(len(self._numbers))

    def close_scope(self) -> None:
        self._forget_but(self._scopes.pop())

    def forget(self) -> None:
        """Forget all values of the current scope (their registers are about to change)."""
        self._forget_but(self._scopes[-1] if self._scopes else 0)

    def _forget_but(self, count: int) -> None:
        """Forget all values but those that were known first."""
        numbers = self._numbers
        for _ in range(len(numbers) - count):
            numbers.popitem()

    # -- integers: constants and affine values -----------------------------------------------------------

    def register(self, x, kind: str = "r") -> Register:
        """``x`` in a register of this kind."""
        if isinstance(x, Register):
            return x
        if isinstance(x, tuple):
            return self.plain(x)
        if kind == "p":
            return self.pure("setp.ne.b32 %s, %s, 0;", "p", int(x))
        return self.pure(MOVES[kind], kind, x)

    def plain(self, x):
        """``x`` as an operand of any instruction that takes an immediate: a register or a constant."""
        if not isinstance(x, tuple):
            return x
        root, offset = x
        syntax = "add.s32 %s, %s, %s;" if root.kind == "r" else "add.s64 %s, %s, %s;"
        found = self.pure(syntax, root.kind, root, offset)
        if root.range is not None:
            found.within(root.range[0] + offset, root.range[1] + offset)
        return found

    @staticmethod
    def split(x) -> tuple[Register | None, int]:
        """An affine value's register (None for a constant) and constant."""
        if isinstance(x, tuple):
            return x
        return (None, x) if isinstance(x, int) else (x, 0)

    @staticmethod
    def affine(root: Register | None, offset: int, bits: int):
        """The value ``root + offset``, in its simplest form."""
        offset = wrap(offset, bits)
        if root is None:
            return offset
        return (root, offset) if offset else root

    def add(self, x, y, bits: int = 32):
        """x + y of 32- or 64-bit integers."""
        (a, m), (b, n) = self.split(x), self.split(y)
        if a is None or b is None:
            return self.affine(a or b, m + n, bits)
        root = self.either_way(f"add.s{bits} %s, %s, %s;", "r" if bits == 32 else "q", a, b)
        x, y = a.range, b.range
        if x is not None and y is not None and x[1] + y[1] < 1 << 31 and x[0] + y[0] >= -(1 << 31):
            root.within(x[0] + y[0], x[1] + y[1])
        return self.affine(root, m + n, bits)

    def sub(self, x, y, bits: int = 32):
        """x - y of 32- or 64-bit integers."""
        (a, m), (b, n) = self.split(x), self.split(y)
        if a == b:
            return wrap(m - n, bits)
        if b is None:
            return self.affine(a, m - n, bits)
        kind = "r" if bits == 32 else "q"
        if a is None:
            return self.pure(f"sub.s{bits} %s, %s, %s;", kind, wrap(m - n, bits), b)
        return self.affine(self.pure(f"sub.s{bits} %s, %s, %s;", kind, a, b), m - n, bits)

    def mul(self, x, y, bits: int = 32):
        """x · y of 32- or 64-bit integers, modulo 2**bits."""
        if isinstance(x, int):
            x, y = y, x
        if isinstance(y, int):
            return self._mul_constant(x, y, bits)
        kind = "r" if bits == 32 else "q"
        (a, m), (b, n) = self.split(x), self.split(y)
        if m and n:
            return self.pure(f"mul.lo.s{bits} %s, %s, %s;", kind, self.plain(x), self.plain(y))
        if n:
            a, m, b = b, n, a
        product = self.either_way(f"mul.lo.s{bits} %s, %s, %s;", kind, a, b)
        if not m:
            return product
        return self.pure(f"mad.lo.s{bits} %s, %s, %s, %s;", kind, b, m, product)

    def _mul_constant(self, x, factor: int, bits: int):
        root, offset = self.split(x)
        if root is None or factor == 0:
            return wrap(offset * factor, bits)
        kind = "r" if bits == 32 else "q"
        if factor == 1:
            scaled = root
        elif factor > 0 and factor & (factor - 1) == 0:
            scaled = self.pure(f"shl.b{bits} %s, %s, %s;", kind, root, factor.bit_length() - 1)
        else:
            scaled = self.pure(f"mul.lo.s{bits} %s, %s, %s;", kind, root, factor)
        if root.range is not None and factor > 0:
            least, greatest = root.range[0] * factor, root.range[1] * factor
            if -(1 << 31) <= least and greatest < 1 << 31:
                scaled.within(least, greatest)
        return self.affine(scaled, offset * factor, bits)

    def range_of(self, x) -> tuple[int, int] | None:
        """Known bounds (inclusive) of a 32-bit value as a signed number, or None."""
        root, offset = self.split(x)
        if root is None:
            return offset, offset
        known = root.range
        return None if known is None else (known[0] + offset, known[1] + offset)

    def fits(self, x) -> bool:
        """Whether the affine sum cannot leave the 32-bit range."""
        known = self.range_of(x)
        return known is not None and known[0] >= -(1 << 31) and known[1] < 1 << 31

    def widen(self, x):
        """A 32-bit value as a 64-bit one, sign-extended."""
        root, offset = self.split(x)
        if root is None:
            return offset
        if offset and not self.fits(x):
            root, offset = self.plain(x), 0
        wide = self.pure("cvt.s64.s32 %s, %s;", "q", root)
        return self.affine(wide, offset, 64)

    # -- predicates --------------------------------------------------------------------------------------

    def both(self, p, q):
        """The conjunction of two predicates, each a register, 0, 1 or None (always)."""
        if p is None or p == 1:
            return q
        if q is None or q == 1 or p == q:
            return p
        if p == 0 or q == 0:
            return 0
        return self.either_way("and.pred %s, %s, %s;", "p", p, q)

    def negate(self, p):
        """The negation of a predicate."""
        return 1 - p if isinstance(p, int) else self.pure("not.pred %s, %s;", "p", p)

    # -- the list --------------------------------------------------------------------------------------------

    def locate(self, location) -> None:
        """Instructions from here on come from ``location`` (of the source, or None: as before)."""
        if location is not self._located and location is not None and location.line > 0 and self.has_lines:
            self._located = location
            number = self.files.setdefault(location.file, len(self.files) + 1)
            self.location = (number, location.line, location.column + 1)

    def all_code(self) -> list[Instruction]:
        """What was built, in order."""
        return self._before + self._entry_code + self.code

    def entry_code(self) -> list[Instruction]:
        """What was computed at the entry, once for all of the code behind."""
        return self._earlier_entry + self._entry_code

    def resolved(self, operand):
        """The register whose name ``operand`` has: its own, unless a pass made it another one."""
        return resolve(self.aliases, operand) if operand in self.aliases else operand
