"""Basic blocks -> Python functions over numpy arrays, and the emitter that families use.

How a kernel runs
-----------------
Every PTX register is one contiguous array ``(lanes,)`` per batch (:mod:`state`). A basic block becomes one
Python function whose lines are numpy calls with ``out=``: ``add(r5_u4, r6_u4, out=r7_u4)``. There are two
variants:

* *full*: every lane of the batch is at this block. ``b7()`` returns the next block's number, or ``DIVERGED``
  after it has written each lane's next block to ``machine.pc``.
* *masked*: ``b7(m)``, with ``m`` a bool array ``(lanes,)``: only those lanes may change. Compiled on first
  need.

The text of the full variant is made when the module is loaded (so that unknown instructions and forms are
errors then), compiled to byte code on first use, and executed once per machine in that machine's
``namespace``, which holds the register views. The scheduler (:mod:`scheduler`) calls the functions.

How to write an instruction family, the emitter's manual: ``docs/emulator.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType

import numpy as np

from ptxforge.emulator import access
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import SHARED_WINDOW
from ptxforge.emulator.parser import Immediate, Instruction, Memory, Register, Sink, Symbol, Vector
from ptxforge.emulator.program import Block, Program, registers_of
from ptxforge.emulator.state import DIVERGED, EXIT, WAITING, Machine
from ptxforge.support.errors import EmulatorError

_NUMPY = {
    name: getattr(np, name)
    for name in (
        "add subtract multiply divide negative absolute bitwise_and bitwise_or bitwise_xor invert left_shift "
        "right_shift equal not_equal less less_equal greater greater_equal logical_and logical_or "
        "logical_xor logical_not minimum maximum where count_nonzero flatnonzero rint floor ceil trunc sqrt "
        "fmod remainder floor_divide clip putmask copyto".split()
    )
}

_VOLATILE = {"clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi"}


class _Argument:
    """Something that becomes a value at bind time: ``make(machine)``."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[Machine], object]):
        self.make = make


def merge(target: np.ndarray, value: np.ndarray, mask: np.ndarray | None) -> None:
    """``target[mask] = value[mask]``, all lanes when ``mask`` is None. Leading axis: lanes (or both
    flattened).
    """
    if mask is None:
        np.copyto(target, value, casting="unsafe")
    elif target.ndim == 1:
        np.copyto(target, value, where=mask, casting="unsafe")
    else:
        np.copyto(target, value, where=mask.reshape(mask.shape + (1,) * (target.ndim - 1)), casting="unsafe")


class Code:
    """The generated text of one block variant with what its names stand for."""

    def __init__(self, name: str, lines: list[str], names: dict[str, Callable[[Machine], object]]):
        self.name, self.lines, self.names = name, lines, names
        self._compiled: CodeType | None = None

    @property
    def text(self) -> str:
        return "\n    ".join(self.lines) + "\n"

    def bind(self, machine: Machine) -> Callable:
        """The function for one machine."""
        if self._compiled is None:
            self._compiled = compile(self.text, f"<{self.name}>", "exec", dont_inherit=True, optimize=0)
        namespace = machine.namespace
        if not namespace:
            namespace.update(_NUMPY)
            namespace.update(N=machine.lanes, machine=machine, pc=machine.pc)
            namespace.update(diverge=_diverger(machine), split=_splitter(machine), wait=_waiter(machine))
        for name, make in self.names.items():
            if name not in namespace:
                namespace[name] = make(machine)
        exec(self._compiled, namespace)
        return namespace[self.name]


def _diverger(machine: Machine) -> Callable:
    pc = machine.pc

    def diverge(predicate: np.ndarray, taken: int, other: int) -> int:
        pc.fill(other)
        np.copyto(pc, taken, where=predicate)
        return DIVERGED

    return diverge


def _splitter(machine: Machine) -> Callable:
    pc = machine.pc

    def split(predicate: np.ndarray, taken: int, other: int, mask: np.ndarray) -> int:
        go = np.logical_and(predicate, mask)
        count = np.count_nonzero(go)
        if count == 0:
            return other
        np.copyto(pc, other, where=mask)
        np.copyto(pc, taken, where=go)
        return DIVERGED

    return split


def _waiter(machine: Machine) -> Callable:
    pc = machine.pc

    def wait(waiting: np.ndarray | None, here: int, then: int, mask: np.ndarray | None) -> int:
        """Lanes in ``waiting`` stay at block ``here``; the others go on."""
        if waiting is None or not waiting.any():
            machine.progressed = True
            return then
        blocked = waiting if mask is None else waiting & mask
        machine.progressed |= bool(
            np.count_nonzero(blocked) < (machine.lanes if mask is None else np.count_nonzero(mask))
        )
        machine.goto(mask, then)
        np.copyto(pc, here + WAITING, where=blocked)
        return DIVERGED

    return wait


class Emitter:
    """Collects the code of one block in one variant; ``docs/emulator.md`` is its manual."""

    def __init__(self, program: Program, block: Block, masked: bool):
        self.program, self.block, self.masked = program, block, masked
        self.lines: list[str] = []
        self.names: dict[str, Callable[[Machine], object]] = {}
        self.prefix = f"{'m' if masked else 'b'}{block.index}"
        self.serial = 0
        self.mask: str | None = None
        self.instruction: Instruction | None = None
        self._temps: dict[str, int] = {}
        self._commits: list[str] = []

    # ---- for families --------------------------------------------------------------------------------------
    @property
    def site(self) -> Site:
        i = self.instruction
        return Site(i.line, i.source, self.program.module.line_text(i.line))

    def error(self, message: str) -> EmulatorError:
        i = self.instruction
        return EmulatorError(f"PTX line {i.line}: {i.opcode}: {message}")

    def line(self, text: str) -> None:
        """Append one statement."""
        self.lines.append(text)

    def read(self, operand: object, dtype: str) -> str:
        """An expression for the operand as ``dtype`` over all lanes."""
        if isinstance(operand, Register):
            return self._read_register(operand, dtype)
        if isinstance(operand, Immediate):
            return self.hoist(_scalar_name(operand, dtype), lambda machine: scalar(operand, dtype))
        if isinstance(operand, Symbol):
            name, offset = operand.name, operand.offset
            self._require_symbol(name)
            return self.hoist(
                f"a_{_clean(name)}_{offset}_{dtype}",
                lambda machine: machine.symbol_value(name, offset, dtype),
            )
        raise self.error("a register or a number is expected")

    def write(self, operand: object, dtype: str) -> str:
        """The array to write the operand's new value of ``dtype`` to (as ``out=``)."""
        if isinstance(operand, Sink):
            return self.temp(dtype)
        if not isinstance(operand, Register) or not operand.bits:
            raise self.error("a destination register is expected")
        bits = _bits(dtype)
        if operand.bits == bits and self.mask is None:
            return self.register_view(operand, dtype)
        if operand.bits < bits:
            raise self.error(f"the destination {operand.name} is narrower than {bits} bits")
        made = self.temp(dtype)
        wide = dtype if operand.bits == bits else f"{'i' if dtype[0] == 'i' else 'u'}{operand.bits // 8}"
        if dtype[0] == "f" and operand.bits != bits:
            narrow = f"u{bits // 8}"
            self._commit(self.register_view(operand, wide), f"{made}.view('{narrow}')")
        else:
            self._commit(self.register_view(operand, wide), made)
        return made

    def part(self, register: Register, dtype: str, index: int) -> str:
        """Piece ``index`` (0: lowest) of a register cut into pieces of ``dtype``, to read or, masked, to
        write.
        """
        if not isinstance(register, Register) or not register.bits:
            raise self.error("a register is expected")
        name = register.name
        return self.hoist(
            f"{_clean(name)}_{_clean(dtype)}_part{index}", lambda machine: machine.part(name, dtype, index)
        )

    def copy(self, target: str, value: str) -> None:
        """Emit a copy under the current mask."""
        where = f", where={self.mask}" if self.mask else ""
        self.line(f"copyto({target}, {value}, casting='unsafe'{where})")

    def apply(
        self,
        function: Callable,
        target: tuple[object, str],
        *sources: tuple[object, str],
        takes_out: bool = False,
    ) -> None:
        """Emit ``target = function(*sources)``; operands come as (operand, dtype). ``takes_out``: it has
        ``out=``.
        """
        expected = _arity(function)
        if expected is not None and expected != len(sources):
            raise self.error(f"{expected} source operands are expected")
        values = ", ".join([self.read(operand, dtype) for operand, dtype in sources])
        name = (
            function.__name__
            if _NUMPY.get(getattr(function, "__name__", "")) is function
            else self.constant_object(function)
        )
        made = self.write(*target)
        if takes_out or isinstance(function, np.ufunc):
            self.line(f"{name}({values}, out={made})")
        else:
            self.line(f"copyto({made}, {name}({values}), casting='unsafe')")

    def temp(self, dtype: str) -> str:
        """Scratch ``(lanes,)`` for the duration of this instruction."""
        slot = self._temps.get(dtype, 0)
        self._temps[dtype] = slot + 1
        return self.hoist(f"t{slot}_{_clean(dtype)}", lambda machine: machine.scratch(dtype, 10 + slot))

    def constant(self, operand: object) -> int | None:
        """The operand's value when it is an integer known at load time."""
        if isinstance(operand, Immediate) and operand.kind == "i":
            return operand.value
        if isinstance(operand, Register) and not operand.negated:
            return self.program.constants.get(operand.name)
        return None

    def constant_object(self, thing: object) -> str:
        """A name in the generated code for any Python object."""
        label = getattr(thing, "__name__", type(thing).__name__).strip("<>")
        return self.hoist(f"o_{_clean(label)}_{id(thing):x}", lambda machine: thing)

    def view(self, operand: object, dtype: str) -> _Argument:
        """For :meth:`call`: the operand's array ``(lanes,)`` of ``dtype``; None for a sink; a list for a
        vector.
        """
        if isinstance(operand, Vector):
            views = [self.view(element, dtype) for element in operand.elements]
            return _Argument(lambda machine: [view.make(machine) for view in views])
        if isinstance(operand, Sink):
            return _Argument(lambda machine: None)
        if isinstance(operand, Register) and operand.bits:
            return _Argument(lambda machine: machine.view(operand.name, dtype))
        if isinstance(operand, Register):
            name = operand.name.lstrip("%")
            self._check_special(name)
            return _Argument(lambda machine: special_array(machine, name).astype(dtype))
        if isinstance(operand, Immediate):
            return _Argument(lambda machine: np.full(machine.lanes, scalar(operand, dtype)))
        if isinstance(operand, Symbol):
            self._require_symbol(operand.name)
            return _Argument(
                lambda machine: np.full(
                    machine.lanes, machine.symbol_value(operand.name, operand.offset, dtype), dtype
                )
            )
        raise self.error("a register is expected")

    def locator(
        self, operand: Memory, space: str, nbytes: int, kind: str, alignment: int | None = None
    ) -> _Argument:
        """For :meth:`call`: an :class:`access.Locator`. ``space``: global, shared, local, const, param or
        generic.
        """
        if not isinstance(operand, Memory):
            raise self.error("an address is expected")
        site = self.site
        semantics = self.instruction.parts
        base = operand.base
        if isinstance(base, Symbol):
            self._require_symbol(base.name)
            generic = space == "generic"
            resolve = lambda machine: machine.symbol_address(base.name, generic)  # noqa: E731
        elif isinstance(base, Immediate):
            resolve = lambda machine: base.value  # noqa: E731
        else:
            resolve = lambda machine: machine.view(base.name, f"u{base.bits // 8}")  # noqa: E731
        return _Argument(
            lambda machine: access.Locator(
                machine, site, space, resolve(machine), operand.offset, nbytes, kind, alignment, semantics
            )
        )

    def address(self, operand: object) -> tuple[_Argument, int]:
        """For :meth:`call`: the base of an address, per lane, and its offset."""
        if not isinstance(operand, Memory):
            raise self.error("an address is expected")
        bits = operand.base.bits if isinstance(operand.base, Register) else 64
        return self.view(operand.base, f"u{bits // 8}"), operand.offset

    def bind(self, bind: Callable, *args: object) -> str:
        """A name for ``bind(machine, *args)``, evaluated once per machine."""
        name = f"f_{self.prefix}_{self.serial}"
        self.serial += 1
        self.names[name] = lambda machine: bind(machine, *[_at_bind(arg, machine) for arg in args])
        return name

    def call(self, bind: Callable, *args: object) -> None:
        """Bind a function and call it with the mask."""
        self.line(f"{self.bind(bind, *args)}({self.mask})")

    def block_on(self, bind: Callable, *args: object) -> None:
        """For blocking families: call the bound function; lanes that it returns stay and try again."""
        name = self.bind(bind, *args)
        guarded = "m" if self.masked else None
        self.line(f"return wait({name}({self.mask}), {self.block.index}, {self.next_index}, {guarded})")

    def hoist(self, name: str, make: Callable[[Machine], object]) -> str:
        """Make ``name`` stand for ``make(machine)`` in the generated code."""
        self.names.setdefault(name, make)
        return name

    def register_view(self, register: Register, dtype: str) -> str:
        """The name of a register's array as it is: no mask, no negation."""
        name = register.name
        return self.hoist(f"{_clean(name)}_{_clean(dtype)}", lambda machine: machine.view(name, dtype))

    @property
    def next_index(self) -> int:
        """The number of the block that follows in the text."""
        return self.block.next.index if self.block.next is not None else EXIT

    # ---- inside --------------------------------------------------------------------------------------------
    def begin(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self._temps.clear()
        self._commits.clear()
        self.mask = "m" if self.masked else None
        guard = instruction.predicate
        if guard is None or instruction.family.role == "branch":
            return
        predicate = self.register_view(guard, "?")
        slot = self.hoist("guard", lambda machine: np.zeros(machine.lanes, bool))
        if guard.negated:
            self.line(f"logical_not({predicate}, out={slot})")
            predicate = slot
        if self.masked:
            self.line(f"logical_and({predicate}, m, out={slot})")
            predicate = slot
        self.mask = predicate

    def finish(self) -> None:
        self.lines.extend(self._commits)

    def _commit(self, target: str, value: str) -> None:
        where = f", where={self.mask}" if self.mask else ""
        self._commits.append(f"copyto({target}, {value}, casting='unsafe'{where})")

    def _read_register(self, register: Register, dtype: str) -> str:
        if not register.bits:
            return self._read_special(register.name.lstrip("%"), dtype)
        if register.bits < _bits(dtype):
            raise self.error(f"{register.name} is narrower than {_bits(dtype)} bits")
        view = self.register_view(register, dtype)
        if not register.negated:
            return view
        made = self.temp("?")
        self.line(f"logical_not({view}, out={made})")
        return made

    def _read_special(self, name: str, dtype: str) -> str:
        self._check_special(name)
        if name in _VOLATILE:
            return f"{self.constant_object(special_array)}(machine, '{name}').astype('{dtype}')"
        return self.hoist(f"s_{_clean(name)}_{_clean(dtype)}", _special_view(name, dtype))

    def _check_special(self, name: str) -> None:
        if (
            name not in SPECIALS
            and name not in _UNIFORM
            and name not in _VOLATILE
            and not name.startswith(("envreg", "pm"))
        ):
            raise self.error(f"unknown special register %{name}")
        if self.instruction.opcode.split(".")[0] not in ("mov", "cvt"):
            raise self.error(f"only mov and cvt read special registers such as %{name}, as ptxas has it")

    def _require_symbol(self, name: str) -> None:
        known = (
            name in self.program.locations
            or name in self.program.params
            or name in self.program.module.variables
            or name in self.program.module.functions
        )
        if not known:
            raise self.error(f"unknown symbol {name}")


# ---- special registers -------------------------------------------------------------------------------------
SPECIALS = frozenset(
    "tid.x tid.y tid.z laneid warpid lanemask_eq lanemask_lt lanemask_le lanemask_gt lanemask_ge "
    "ctaid.x ctaid.y ctaid.z clusterid.x clusterid.y clusterid.z smid "
    "cluster_ctaid.x cluster_ctaid.y cluster_ctaid.z cluster_ctarank".split()
)

_UNIFORM: dict[str, Callable[[Machine], int]] = {
    "nwarpid": lambda m: 64,
    "nsmid": lambda m: 132,
    "gridid": lambda m: 1,
    "dynamic_smem_size": lambda m: m.dynamic_shared,
    "total_smem_size": lambda m: m.shared_bytes,
    "aggr_smem_size": lambda m: m.shared_bytes,
    "cluster_nctarank": lambda m: m.cluster_size,
    "is_explicit_cluster": lambda m: int(m.cluster_size > 1),
    "current_graph_exec": lambda m: 0,
    "reserved_smem_offset_begin": lambda m: 0,
    "reserved_smem_offset_end": lambda m: 1024,
    "reserved_smem_offset_cap": lambda m: 1024,
}
for _axis, _letter in enumerate("xyz"):
    _UNIFORM[f"ntid.{_letter}"] = lambda m, axis=_axis: m.block[axis]
    _UNIFORM[f"nctaid.{_letter}"] = lambda m, axis=_axis: m.grid[axis]
    _UNIFORM[f"cluster_nctaid.{_letter}"] = lambda m, axis=_axis: m.cluster[axis]
    _UNIFORM[f"nclusterid.{_letter}"] = lambda m, axis=_axis: m.grid_of_clusters[axis]


def special_array(machine: Machine, name: str) -> np.ndarray:
    """A special register over the lanes: an array ``(lanes,)`` of u4, or u8 for the 64-bit ones."""
    if name in SPECIALS:
        return machine.special(name)
    if name in _VOLATILE:
        return np.full(machine.lanes, machine.read_clock(name), np.uint64)
    return np.full(machine.lanes, _UNIFORM[name](machine) if name in _UNIFORM else 0, np.uint32)


def _special_view(name: str, dtype: str) -> Callable[[Machine], np.ndarray]:
    def make(machine: Machine) -> np.ndarray:
        found = special_array(machine, name)
        size = np.dtype(dtype).itemsize
        if size == found.itemsize:
            return found.view(dtype)
        if size < found.itemsize:
            return found.view(dtype)[:: found.itemsize // size]
        if name.startswith(("ctaid", "clusterid", "smid")):
            raise EmulatorError(f"%{name} is read as {8 * size} bits; cvt it instead")
        return found.astype(dtype)

    return make


# ---- constants ---------------------------------------------------------------------------------------------
def scalar(operand: Immediate, dtype: str) -> np.generic:
    """A literal as a numpy scalar of ``dtype``: bit patterns for 0f/0d, wrapped integers."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.bool_(operand.value != 0)
    if operand.kind == "i" and kind.kind == "f":
        bits = operand.value & ((1 << 8 * kind.itemsize) - 1)
        return np.frombuffer(bits.to_bytes(kind.itemsize, "little"), kind)[0]
    if kind.kind == "f":
        return kind.type(operand.as_float())
    value = operand.value
    if operand.kind == "d" and kind.itemsize == 4:
        value = int(np.float32(operand.as_float()).view(np.uint32))
    return np.frombuffer((value & ((1 << 8 * kind.itemsize) - 1)).to_bytes(kind.itemsize, "little"), kind)[0]


def _scalar_name(operand: Immediate, dtype: str) -> str:
    return f"k_{operand.kind}{operand.value}_{_clean(dtype)}".replace("-", "n")


def _bits(dtype: str) -> int:
    return 1 if dtype == "?" else 8 * np.dtype(dtype).itemsize


_CLEANED: dict[str, str] = {}


def _clean(name: str) -> str:
    """A PTX name as a Python identifier."""
    found = _CLEANED.get(name)
    if found is None:
        text = name.replace("%", "").replace("?", "p")
        made = "".join(char if char.isalnum() else f"_{ord(char):x}_" for char in text)
        found = _CLEANED[name] = made if name[:1] in "%?" or made in _DTYPES else f"v_{made}"
    return found


_DTYPES = {"u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", "c16"}


def _arity(function: Callable) -> int | None:
    """How many operands an operation takes; None when it takes any number."""
    if isinstance(function, np.ufunc):
        return function.nin
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & 4 or function.__defaults__:
        return None
    return code.co_argcount


def _at_bind(arg: object, machine: Machine) -> object:
    if isinstance(arg, _Argument):
        return arg.make(machine)
    if isinstance(arg, (list, tuple)):
        return type(arg)(_at_bind(item, machine) for item in arg)
    return arg


# ---- blocks ------------------------------------------------------------------------------------------------
def translate(program: Program, block: Block, masked: bool) -> Code:
    """The code of one block. Raises :class:`EmulatorError` with the PTX line for what a family does
    not know.
    """
    e = Emitter(program, block, masked)
    e.lines.append(f"def {e.prefix}({'m' if masked else ''}):")
    if block.polls:
        e.line("machine.polls += 1")
    groups = _Grouping(e)
    for item in block.instructions:
        if item.family.grouped and item.predicate is None:
            groups.take(item)
            continue
        groups.before(item)
        _emit(e, item)
    groups.flush()
    last = block.instructions[-1] if block.instructions else None
    if last is None or last.family.role == "plain":
        e.line(f"return {e.next_index}")
    return Code(e.prefix, e.lines, e.names)


def _emit(e: Emitter, item: Instruction) -> None:
    e.begin(item)
    try:
        item.family.emit(e, [item] if item.family.grouped else item)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise e.error(f"cannot read its modifiers and operands ({error})") from error
    e.finish()


class _Grouping:
    """Delays grouped instructions while nothing in between depends on them."""

    def __init__(self, e: Emitter):
        self.e = e
        self.items: list[Instruction] = []
        self.written: set[str] = set()
        self.read: set[str] = set()

    def take(self, item: Instruction) -> None:
        if self.items and item.opcode != self.items[0].opcode:
            self.flush()
        defined = [register.name for register in registers_of(item.family.definitions(item))]
        used = [register.name for register in registers_of(item.operands[1:])]
        factors = {register.name for register in registers_of(item.operands[1:3])}
        if factors & self.written or any(name in self.read - self.written for name in defined):
            self.flush()
        self.items.append(item)
        self.written.update(defined)
        self.read.update(used)

    def before(self, item: Instruction) -> None:
        """Flush when ``item`` reads or writes what a delayed instruction writes, or writes what one reads."""
        if not self.items:
            return
        if item.family.role != "plain":
            self.flush()
            return
        touched = {register.name for register in registers_of(item.operands)}
        if item.predicate is not None:
            touched.add(item.predicate.name)
        defined = {register.name for register in registers_of(item.family.definitions(item))}
        if touched & self.written or defined & self.read:
            self.flush()

    def flush(self) -> None:
        if not self.items:
            return
        self.e.begin(self.items[0])
        self.items[0].family.emit(self.e, self.items)
        self.e.finish()
        self.items = []
        self.written, self.read = set(), set()


__all__ = ["Code", "Emitter", "merge", "scalar", "translate", "SHARED_WINDOW"]
