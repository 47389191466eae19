"""From a parsed entry to a control-flow graph whose block numbers are the scheduling order.

Three steps: calls of device functions are inlined (registers, labels and parameters renamed per call), the
flat list is cut into basic blocks, and the blocks are numbered so that the scheduler's rule "run the lowest
program counter" makes diverged lanes meet again as early as structured code allows. That needs two properties
of the numbering:

* reverse post order: a block stands after all blocks that lead to it, back edges aside;
* a loop is contiguous and stands before what follows it: a lane that leaves the loop waits for those still
  inside.

A loop with several back edges (``continue``) gets one extra empty latch block to which all of them go;
without it a lane that continues early would run ahead of the lanes that are still in the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ptxforge.emulator import parser, registry
from ptxforge.support.errors import EmulatorError

SHARED_BASE = 1024
"""First shared-memory address of a CTA, as on sm_90: the 1 KiB below belongs to the system; address 0 is
never valid.
"""

LOCAL_BASE = 4096
"""First address of a thread's local memory."""

BUILTINS = ("vprintf", "__assertfail", "malloc", "free")
_MAX_INLINED = 200_000


@dataclass(eq=False)
class Block:
    """A basic block. ``next`` is the block after it in the text (None at the end of the function)."""

    instructions: list[parser.Instruction]
    index: int = -1
    next: Block | None = None
    targets: dict[str, Block] = field(default_factory=dict)
    loop_depth: int = 0
    polls: bool = False

    @property
    def successors(self) -> list[Block]:
        last = self.instructions[-1] if self.instructions else None
        found = [] if last is not None and _always_leaves(last) else [self.next] if self.next else []
        return found + [block for block in self.targets.values() if block not in found]


def _always_leaves(last: parser.Instruction) -> bool:
    return last.family.role == "branch" and last.predicate is None


@dataclass(eq=False)
class Program:
    """An entry function ready for translation: ``blocks[0]`` is where threads start."""

    name: str
    module: parser.Module
    entry: parser.Function
    blocks: list[Block]
    registers: dict[str, str]
    locations: dict[str, tuple[str, int]]
    """Symbol -> (space, address): shared and local variables; ``("frame", size)`` for call parameters."""
    params: dict[str, tuple[int, parser.Variable]]
    static_shared: int
    local_bytes: int
    constants: dict[str, int]
    instruction_count: int
    unreachable: list[Block]
    """Blocks that no thread can come to: they are looked at for errors only."""
    kept: dict[tuple, Any] = field(default_factory=dict, repr=False)
    """What analyses have found; see ``registers.kept_with_program``."""

    @property
    def param_bytes(self) -> int:
        return max([offset + variable.nbytes for offset, variable in self.params.values()], default=0)

    @cached_property
    def has_warpgroups(self) -> bool:
        """Whether four warps do something together."""
        return any(item.opcode.startswith("wgmma") for block in self.blocks for item in block.instructions)

    @cached_property
    def read_counts(self) -> dict[str, int]:
        """Register -> how many operands of the whole program read it."""
        counts: dict[str, int] = {}
        for block in self.blocks:
            for item in block.instructions:
                sources = item.operands[len(item.family.definitions(item)) :]
                guard = (item.predicate,) if item.predicate is not None else ()
                for register in registers_of(sources + guard):
                    counts[register.name] = counts.get(register.name, 0) + 1
        return counts


def build(module: parser.Module, name: str) -> Program:
    """Lower one entry of ``module``. Raises :class:`EmulatorError` with the PTX line for what cannot
    be run.
    """
    entry = module.functions[name]
    if entry.body is None:
        raise EmulatorError(f"PTX line {entry.line}: {name} has no body")
    inliner = _Inliner(module)
    body = inliner.entry(entry)
    _resolve(body)
    layout = _Layout(module, inliner.variables)
    start = _cut(body, inliner.branch_targets)
    blocks = _number(start)
    unreachable = _others(start, blocks)
    _mark_polls(blocks)
    return Program(
        name,
        module,
        entry,
        blocks,
        inliner.registers,
        layout.locations,
        _parameter_offsets(entry),
        layout.shared,
        layout.local,
        _constants(blocks + unreachable),
        sum(isinstance(item, parser.Instruction) for item in body),
        unreachable,
    )


def _others(start: Block, reachable: list[Block]) -> list[Block]:
    """The blocks of the text, which ``start`` begins, that are not among those."""
    known, found, block = set(reachable), [], start
    while block is not None:
        if block not in known:
            found.append(block)
        block = block.next
    return found


def _parameter_offsets(entry: parser.Function) -> dict[str, tuple[int, parser.Variable]]:
    offset, found = 0, {}
    for variable in entry.params:
        align = max(variable.align, 1)
        offset = (offset + align - 1) // align * align
        found[variable.name] = (offset, variable)
        offset += variable.nbytes
    return found


def _resolve(body: list) -> None:
    for item in body:
        if isinstance(item, parser.Instruction) and item.family is None:
            item.family = registry.lookup(item.opcode)
            if item.family is None:
                raise EmulatorError(f"PTX line {item.line}: unknown instruction {item.opcode}")


# ---- inlining ----------------------------------------------------------------------------------------------
class _Inliner:
    """Copies bodies of called functions into the caller; every call gets names of its own."""

    def __init__(self, module: parser.Module):
        self.module = module
        self.registers: dict[str, str] = {}
        self.variables: dict[str, parser.Variable] = {}
        self.branch_targets: dict[str, list[str]] = {}
        self.serial = 0
        self.size = 0

    def entry(self, function: parser.Function) -> list:
        self.registers.update(function.registers)
        self.variables.update(function.variables)
        self.branch_targets.update(function.branch_targets)
        return self.expand(function.body, (function.name,))

    def expand(self, body: list, stack: tuple[str, ...]) -> list:
        out = []
        for item in body:
            called = self.called(item)
            if called is None:
                out.append(item)
            else:
                out.extend(self.inline(item, called, stack))
        if len(stack) == 1:
            return out  # as long as the kernel's text is
        self.size += len(out)
        if self.size > _MAX_INLINED:
            raise EmulatorError(f"{stack[0]} is too large after its device functions are inlined")
        return out

    def called(self, item: object) -> parser.Function | None:
        if not isinstance(item, parser.Instruction) or item.parts[0] != "call":
            return None
        name = next((operand.name for operand in item.operands if isinstance(operand, parser.Symbol)), None)
        if name is None:
            raise EmulatorError(f"PTX line {item.line}: indirect calls are not supported")
        if name in BUILTINS:
            return None
        function = self.module.functions.get(name)
        if function is None or function.body is None:
            raise EmulatorError(f"PTX line {item.line}: call of the undefined function {name}")
        return function

    def inline(self, call: parser.Instruction, function: parser.Function, stack: tuple[str, ...]) -> list:
        if function.name in stack:
            raise EmulatorError(f"PTX line {call.line}: recursive call of {function.name} is not supported")
        self.serial += 1
        suffix = f"@{self.serial}"
        names, before, behind = self.pass_parameters(call, function, suffix)
        for name, kind in function.registers.items():
            self.registers[name + suffix] = kind
        for name, variable in function.variables.items():
            shared = variable.space in ("shared", "global", "const")
            names[name] = f"{function.name}::{name}" if shared else name + suffix
            self.variables[names[name]] = replace(variable, name=names[name])
        for label, targets in function.branch_targets.items():
            self.branch_targets[label + suffix] = [target + suffix for target in targets]
        labels = {item.name for item in function.body if isinstance(item, parser.Label)} | set(
            function.branch_targets
        )
        names.update({label: label + suffix for label in labels})
        rename = _Renamer(names, suffix)
        after, end = f"return{suffix}", f"end{suffix}"
        body = [rename.item(item, after) for item in function.body]
        return [
            *self.skip_when_predicated_off(call, end),
            *before,
            *self.expand(body, stack + (function.name,)),
            parser.Label(after, call.line),
            *behind,
            parser.Label(end, call.line),
        ]

    @staticmethod
    def skip_when_predicated_off(call: parser.Instruction, end: str) -> list:
        if call.predicate is None:
            return []
        inverse = replace(call.predicate, negated=not call.predicate.negated)
        return [parser.Instruction("bra", ("bra",), (parser.Symbol(end),), inverse, call.line, call.source)]

    def pass_parameters(
        self, call: parser.Instruction, function: parser.Function, suffix: str
    ) -> tuple[dict[str, str], list[parser.Instruction], list[parser.Instruction]]:
        """How a call binds a function's parameters: new names of those in ``.param`` variables of the caller,
        and instructions before and behind the body that move the others.
        """
        lists = [operand.elements for operand in call.operands if isinstance(operand, parser.Vector)]
        results = lists.pop(0) if isinstance(call.operands[0], parser.Vector) else ()
        arguments = lists[0] if lists else ()
        if len(results) != len(function.returns) or len(arguments) != len(function.params):
            raise EmulatorError(
                f"PTX line {call.line}: {function.name} is called with other parameters than it has"
            )
        names: dict[str, str] = {}
        before = [
            self.move(call, formal, place, actual)
            for formal, actual in zip(function.params, arguments)
            if (place := self.place(formal, actual, names, suffix)) is not None
        ]
        behind = [
            self.move(call, formal, actual, place)
            for formal, actual in zip(function.returns, results)
            if (place := self.place(formal, actual, names, suffix)) is not None
            and not isinstance(actual, parser.Sink)
        ]
        return names, before, behind

    def place(self, formal: parser.Variable, actual: object, names: dict[str, str], suffix: str) -> object:
        """The operand that holds a parameter inside the body; None when it is the caller's own variable."""
        if formal.space == "reg":
            self.registers[formal.name + suffix] = formal.type
            return parser.Register(formal.name + suffix, parser.TYPE_BITS[formal.type])
        if isinstance(actual, parser.Symbol):
            names[formal.name] = actual.name
            return None
        names[formal.name] = formal.name + suffix
        self.variables[names[formal.name]] = replace(formal, name=names[formal.name])
        return parser.Symbol(names[formal.name])

    def move(
        self, call: parser.Instruction, formal: parser.Variable, target: object, source: object
    ) -> parser.Instruction:
        """``target = source`` between registers, literals and ``.param`` variables, of a parameter's type."""
        for one in (target, source):
            is_symbol = isinstance(one, parser.Symbol)
            if is_symbol and getattr(self.variables.get(one.name), "space", "") != "param":
                raise EmulatorError(f"PTX line {call.line}: {one.name} is no .param variable")
        kind = "pred" if formal.type == "pred" else f"b{parser.TYPE_BITS[formal.type]}"
        if isinstance(target, parser.Symbol):
            opcode, operands = f"st.param.{kind}", (parser.Memory(target), source)
        elif isinstance(source, parser.Symbol):
            opcode, operands = f"ld.param.{kind}", (target, parser.Memory(source))
        else:
            opcode, operands = f"mov.{kind}", (target, source)
        return parser.Instruction(opcode, tuple(opcode.split(".")), operands, None, call.line, call.source)


class _Renamer:
    def __init__(self, names: dict[str, str], suffix: str):
        self.names = names
        self.suffix = suffix
        self.cache: dict[object, object] = {}

    def item(self, item: object, after: str) -> object:
        if isinstance(item, parser.Label):
            return parser.Label(self.names[item.name], item.line)
        operands = tuple([self.operand(operand) for operand in item.operands])
        predicate = self.operand(item.predicate) if item.predicate else None
        if item.parts[0] == "ret":
            end = parser.Symbol(after)
            return parser.Instruction("bra", ("bra",), (end,), predicate, item.line, item.source)
        return parser.Instruction(item.opcode, item.parts, operands, predicate, item.line, item.source)

    def operand(self, operand: object) -> object:
        found = self.cache.get(operand)
        if found is None:
            found = self.cache[operand] = self.renamed(operand)
        return found

    def renamed(self, operand: object) -> object:
        if isinstance(operand, parser.Register):
            return replace(operand, name=operand.name + self.suffix) if operand.bits else operand
        if isinstance(operand, parser.Symbol):
            return parser.Symbol(self.names.get(operand.name, operand.name), operand.offset)
        if isinstance(operand, parser.Vector):
            return parser.Vector(tuple(self.operand(element) for element in operand.elements))
        if isinstance(operand, parser.Pair):
            return parser.Pair(self.operand(operand.first), self.operand(operand.second))
        if isinstance(operand, parser.Memory):
            return parser.Memory(
                self.operand(operand.base), operand.offset, tuple(self.operand(e) for e in operand.extra)
            )
        return operand


# ---- variables ---------------------------------------------------------------------------------------------
class _Layout:
    """Gives addresses to shared and local variables. Extern shared arrays start where the static ones end."""

    def __init__(self, module: parser.Module, variables: dict[str, parser.Variable]):
        self.locations: dict[str, tuple[str, int]] = {}
        self.shared, self.local = 0, 0
        everything = list(variables.values()) + [
            v for v in module.variables.values() if v.name not in variables
        ]
        dynamic = []
        for variable in everything:
            if variable.space == "shared" and (variable.extern or not variable.nbytes):
                dynamic.append(variable)
            elif variable.space == "shared":
                self.shared = _align(self.shared, variable.align)
                self.locations[variable.name] = ("shared", SHARED_BASE + self.shared)
                self.shared += variable.nbytes
            elif variable.space == "local":
                self.local = _align(self.local, variable.align)
                self.locations[variable.name] = ("local", LOCAL_BASE + self.local)
                self.local += variable.nbytes
            elif variable.space == "param":
                self.locations[variable.name] = ("frame", max(_align(variable.nbytes, 16), 16))
        if dynamic:
            self.shared = _align(self.shared, max(variable.align for variable in dynamic))
        for variable in dynamic:
            self.locations[variable.name] = ("shared", SHARED_BASE + self.shared)


def _align(value: int, alignment: int) -> int:
    alignment = max(alignment, 1)
    return (value + alignment - 1) // alignment * alignment


# ---- blocks ------------------------------------------------------------------------------------------------
def _cut(body: list, tables: dict[str, list[str]]) -> Block:
    """Cut the flat list into linked blocks; returns the first."""
    referenced = _referenced_labels(body, tables)
    blocks, labelled, pending = [Block([])], {}, []
    for item in body:
        current = blocks[-1]
        if isinstance(item, parser.Label):
            if item.name in referenced:
                if current.instructions:
                    blocks.append(current := Block([]))
                labelled[item.name] = current
            continue
        if item.family.role == "blocking" and current.instructions:
            blocks.append(current := Block([]))
        current.instructions.append(item)
        if item.family.role != "plain":
            pending.append((current, item))
            blocks.append(Block([]))
    for before, after in zip(blocks, blocks[1:]):
        before.next = after
    for block, item in pending:
        block.targets = {name: _target(labelled, name, item) for name in _branch_labels(item, tables)}
    return blocks[0]


def _target(labelled: dict[str, Block], name: str, item: parser.Instruction) -> Block:
    if name not in labelled:
        raise EmulatorError(f"PTX line {item.line}: no label {name}")
    return labelled[name]


def _branch_labels(item: parser.Instruction, tables: dict[str, list[str]]) -> list[str]:
    if item.parts[0] == "bra":
        return [_label_of(item)]
    if item.parts[0] == "brx":
        if len(item.operands) != 2 or not isinstance(item.operands[1], (parser.Symbol, parser.Vector)):
            raise EmulatorError(f"PTX line {item.line}: {item.opcode} needs an index and a list of labels")
        table = item.operands[1]
        if isinstance(table, parser.Vector):
            return [element.name for element in table.elements]
        if table.name not in tables:
            raise EmulatorError(f"PTX line {item.line}: no .branchtargets {table.name}")
        labels = tuple(map(parser.Symbol, tables[table.name]))
        item.operands = (item.operands[0], parser.Vector(labels))
        return tables[table.name]
    return []


def _label_of(item: parser.Instruction) -> str:
    if len(item.operands) != 1 or not isinstance(item.operands[0], parser.Symbol):
        raise EmulatorError(f"PTX line {item.line}: {item.opcode} needs a label")
    return item.operands[0].name


def _referenced_labels(body: list, tables: dict[str, list[str]]) -> set[str]:
    found = {name for names in tables.values() for name in names}
    for item in body:
        if isinstance(item, parser.Instruction) and item.parts[0] == "bra":
            found.add(_label_of(item))
    return found


def _reachable_postorder(start: Block, successors) -> list[Block]:
    """Blocks in post order, without recursion."""
    order, seen, stack = [], {start}, [(start, iter(successors(start)))]
    while stack:
        block, remaining = stack[-1]
        for successor in remaining:
            if successor not in seen:
                seen.add(successor)
                stack.append((successor, iter(successors(successor))))
                break
        else:
            order.append(block)
            stack.pop()
    return order


def _number(start: Block) -> list[Block]:
    """Normalise latches, order the blocks (see the module's essay) and set ``index`` and ``loop_depth``."""
    loops = _natural_loops(start)
    if _merge_latches(loops):
        loops = _natural_loops(start)
    for body in loops.values():
        for block in body:
            block.loop_depth += 1
    by_size = sorted(loops.values(), key=len)
    innermost: dict[Block, set[Block]] = {}
    for body in by_size:
        for block in body:
            innermost.setdefault(block, body)
    parents = {
        id(body): [other for other in by_size if len(other) > len(body) and body <= other] for body in by_size
    }

    def leaving_first(block: Block) -> list[Block]:
        """Visit successors outside the block's loops first: they then finish first and are numbered last."""
        body = innermost.get(block)
        around = [body] + parents[id(body)] if body is not None else []
        return sorted(block.successors, key=lambda succ: -sum(succ not in one for one in around))

    blocks = _reachable_postorder(start, leaving_first)[::-1]
    for index, block in enumerate(blocks):
        block.index = index
    return blocks


def _natural_loops(start: Block) -> dict[Block, set[Block]]:
    """Header -> blocks of its natural loop (back edges: the target dominates the source)."""
    order = _reachable_postorder(start, lambda block: block.successors)
    position = {block: index for index, block in enumerate(order)}
    predecessors: dict[Block, list[Block]] = {block: [] for block in order}
    for block in order:
        for successor in block.successors:
            predecessors[successor].append(block)
    dominator = _dominators(order, position, predecessors)
    loops: dict[Block, set[Block]] = {}
    for block in order:
        for header in block.successors:
            if _dominates(header, block, dominator):
                body = loops.setdefault(header, {header})
                _grow(body, block, predecessors)
    return loops


def _dominators(order: list[Block], position: dict[Block, int], predecessors: dict) -> dict[Block, Block]:
    """Immediate dominators (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm, 2001)."""
    start = order[-1]
    dominator = {start: start}
    changed = True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            found = None
            for predecessor in predecessors[block]:
                if predecessor not in dominator:
                    continue
                found = predecessor if found is None else _meet(found, predecessor, dominator, position)
            if dominator.get(block) is not found:
                dominator[block] = found
                changed = True
    return dominator


def _meet(one: Block, other: Block, dominator: dict, position: dict) -> Block:
    while one is not other:
        while position[one] < position[other]:
            one = dominator[one]
        while position[other] < position[one]:
            other = dominator[other]
    return one


def _dominates(header: Block, block: Block, dominator: dict[Block, Block]) -> bool:
    while block is not header:
        above = dominator[block]
        if above is block:
            return False
        block = above
    return True


def _grow(body: set[Block], block: Block, predecessors: dict[Block, list[Block]]) -> None:
    work = [block]
    while work:
        block = work.pop()
        if block not in body:
            body.add(block)
            work.extend(predecessors[block])


def _merge_latches(loops: dict[Block, set[Block]]) -> bool:
    """Give each loop with several back edges one empty latch block. True when anything changed."""
    changed = False
    for header, body in loops.items():
        latches = [block for block in body if header in block.successors]
        if len(latches) < 2:
            continue
        latch = Block([], next=header)
        for block in latches:
            block.targets = {
                name: latch if target is header else target for name, target in block.targets.items()
            }
            if block.next is header and not (block.instructions and _always_leaves(block.instructions[-1])):
                block.next = latch
        changed = True
    return changed


def _mark_polls(blocks: list[Block]) -> None:
    """A block polls when it lies in a loop and looks at memory that others change."""
    for block in blocks:
        block.polls = block.loop_depth > 0 and any(_polls(item) for item in block.instructions)


def _polls(item: parser.Instruction) -> bool:
    return item.family.polls or item.parts[0] == "ld" and item.has("volatile", "acquire", "relaxed", "mmio")


def _constants(blocks: list[Block]) -> dict[str, int]:
    """Registers with one definition in the whole program, an unpredicated ``mov`` of an integer literal."""
    found: dict[str, int] = {}
    dropped: set[str] = set()
    for block in blocks:
        for item in block.instructions:
            literal = item.operands[1] if item.parts[0] == "mov" and len(item.operands) == 2 else None
            for register in registers_of(item.family.definitions(item)):
                if (
                    register.name in found
                    or not isinstance(literal, parser.Immediate)
                    or literal.kind != "i"
                    or item.predicate is not None
                ):
                    dropped.add(register.name)
                else:
                    found[register.name] = literal.value
    return {name: value for name, value in found.items() if name not in dropped}


def registers_of(operands: Sequence[object]) -> list[parser.Register]:
    """All registers inside operands, addresses included."""
    found: list[parser.Register] = []
    for operand in reversed(operands):
        kind = type(operand)
        if kind is parser.Register:
            found.append(operand)
        elif kind is parser.Memory:
            found += registers_of((operand.base, *operand.extra))
        elif kind is parser.Vector:
            found += registers_of(operand.elements)
        elif kind is parser.Pair:
            found += registers_of((operand.first, operand.second))
    return found
