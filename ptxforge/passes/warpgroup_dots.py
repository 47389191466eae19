"""Dots become asynchronous products of warpgroups (``wgmma``) where the target has them and they pay.

    %x = load %p : tensor<128x64xf16, #blocked>                                              (before)
    %a = convert_layout %x : … -> tensor<128x64xf16, #dot_op<{opIdx = 0, parent = #blocked1}>>
    %d = dot %a, %b, %c

    %x = load %p : tensor<128x64xf16, #blocked>                                              (after)
    %a = local_alloc %x : … -> memdesc<128x64xf16, #panels<{swizzle = 128, …}>, mutable>
    %f = dot_begin (convert_layout %c : #mma)
    %g = dot_async %a, %b, %f
    %d = convert_layout (dot_wait %g) : … -> tensor<128x128xf32, #blocked1>

The wait stands right behind the product; ``pipeline_loops`` moves it.

Rules
-----
TYPES       f16 and bf16 (sums in f32, of f16 also in f16), 8-bit floats, 8-bit integers, f32 as tf32.
SHAPE       64 rows and at least 16 columns for each warpgroup, 32 bytes along k. Smaller tiles leave a part
            of the instruction unused: ``mma.sync`` does them.
MEMORY      B is read from shared memory as it was loaded, transposed or not; so it must come from a load.
            Only 16-bit types may lie along n (A: along m) there: other tiles go to ``mma.sync``, which turns
            them on the way to the registers.
LEFT        A comes from shared memory if it was loaded like B; what was computed stays in registers, and f32
            that lie along m go there on their way.
KEPT        Where a loop has two products or more, an A that is the same in all iterations goes to shared
            memory, too: in such a loop ptxas 13.0 gives registers that ``wgmma`` only reads to the next
            product's A (seen in the machine code of attention whose queries are scaled before the loop, and
            of its gradients, and in their results).
TRANSPOSED  An A that is the transpose of what another product gave is stored as it was computed, and read
            transposed: rows would leave their warps through shared memory in any case.
EXCHANGED   c = a b is also cᵀ = bᵀ aᵀ: where B can come through registers only (weights that are widened, f32
            along n), it becomes the left operand.
PLACE       A tile that was loaded outside of the dot's loop is put into shared memory there, once; dots that
            take it in the same layout share it.
CHAINS      A dot whose result feeds another dot, or that is fed by one, keeps whole rows in a warp: the
            result then is the next one's operand without leaving its registers.
IMPRECISE   8-bit floats are summed in about 14 bits inside the tensor core. With ``max_num_imprecise_acc``
            at most that many products are, before their sum is added to the others in f32.
"""

from __future__ import annotations

from itertools import takewhile

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import ALLOCATES, REARRANGING
from ptxforge.ir.ops.arith import AddF
from ptxforge.ir.ops.control import Loop, ancestors, loops_around
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot, Product
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Trans
from ptxforge.ir.ops.shared import LocalAlloc, MemDescTrans
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotWait
from ptxforge.ir.rewriter import constant_of
from ptxforge.layouts import wgmma
from ptxforge.layouts.cta import permuted_order
from ptxforge.layouts.encodings import DotOperand, Mma
from ptxforge.layouts.linear import LayoutError
from ptxforge.layouts.mma_families import WGMMA, find_family
from ptxforge.passes.parts_of_operands import part_of_tile
from ptxforge.support import machine
from ptxforge.support.worklist import each_once

_FLOATS_8 = (T.F8E4M3, T.F8E5M2)


def use_warpgroups(dot: Dot, num_warps: int, in_chain: bool) -> bool:
    """Replace ``dot`` by an asynchronous product and its wait, if all of the rules admit it."""
    if len(dot.result.type.shape) != 2 or not _has_type(dot):
        return False
    layout = wgmma.accumulators(dot.result.type.shape, num_warps, in_chain)
    if layout is None:
        return False
    right = _in_memory(dot.b, 0, layout)
    left = _in_memory(dot.a, 1, layout) or _kept_in_memory(dot) or _transposed_in_memory(dot)
    if right is None or (left is None and not _may_be_in_registers(dot.a)):
        return False
    if dot.a.type.shape[1] * dot.a.type.element.bits < 8 * wgmma.K_BYTES:
        return False
    if left is None and _lies_along_m(dot.a):
        layout = wgmma.with_rows_apart(layout)
    _replace(dot, layout, left, right)
    return True


def are_better_transposed(dot: Dot, num_warps: int) -> bool:
    """Whether the product of the transposed operands in exchanged roles is one for warpgroups, where that of
    ``dot`` is not; see EXCHANGED."""
    if len(dot.result.type.shape) != 2 or not _has_type(dot):
        return False
    layout = wgmma.accumulators(dot.result.type.shape[::-1], num_warps, False)
    if layout is None or dot.a.type.shape[1] * dot.a.type.element.bits < 8 * wgmma.K_BYTES:
        return False
    return _may_be_in_registers(dot.b) and _in_memory(dot.a, 0, layout, is_transposed=True) is not None


def why_not(dot: Dot, num_warps: int, in_chain: bool) -> str:
    """Which rule keeps ``dot`` from being a product of warpgroups, in whichever order of its operands, and
    what helps."""
    shape = dot.result.type.shape
    if len(shape) != 2:
        return "it multiplies several matrices at once; let each tl.dot multiply one"
    if not _has_type(dot):
        return _why_not_types(dot)
    layout = wgmma.accumulators(shape, num_warps, in_chain)
    if layout is None:
        return _why_not_shape(shape, num_warps, in_chain)
    depth = dot.a.type.shape[1] * dot.a.type.element.bits // 8
    if depth < wgmma.K_BYTES:
        return f"it has {depth} bytes along k, wgmma takes {wgmma.K_BYTES}; use a larger block along k"
    return _why_not_in_memory(dot, layout, in_chain)


def _why_not_types(dot: Dot) -> str:
    a, b, total = (v.type.element for v in dot.operands)
    if find_family(WGMMA, str(a), str(b), str(total)) is not None:
        several = f"input_precision '{dot.input_precision}' makes several products of one"
        return f"{several}; 'tf32' is one, where that is exact enough"
    known = "f16, bf16, 8-bit floats and integers, and f32 as tf32"
    return f"wgmma does not multiply {a} by {b} with sums of {total}; it multiplies {known}"


def _why_not_shape(shape: tuple[int, ...], num_warps: int, in_chain: bool) -> str:
    if num_warps % wgmma.WARPS:
        return f"num_warps is {num_warps}, and wgmma takes {wgmma.WARPS} warps together; use num_warps=4 or 8"
    groups = num_warps // wgmma.WARPS
    size, least = "x".join(map(str, shape)), f"{wgmma.ROWS} rows and {2 * wgmma.ATOM_ROWS} columns"
    if groups == 1:
        return f"a result of {size} is smaller than {least}; use larger blocks"
    rows = ", which share the rows as products follow each other" if in_chain else ""
    few = f"a result of {size} has less than {least} for each of {groups} warpgroups{rows}"
    return f"{few}; use larger blocks or fewer num_warps"


def _why_not_in_memory(dot: Dot, layout: Mma, in_chain: bool) -> str:
    """See MEMORY and LEFT."""
    across = [name for name, value, k_dim in (("left", dot.a, 1), ("right", dot.b, 0))
              if _loaded(value) is not None and _in_memory(value, k_dim, layout) is None]  # fmt: skip
    if across:
        bits = dot.a.type.element.bits
        names = " and ".join(across)
        return f"its {names} operand of {bits} bits lies across k in memory; transpose it there"
    why = "its right operand is computed, and wgmma reads that from shared memory as it was loaded"
    if _loaded(dot.a) is None:
        return f"{why}; load one of the operands, and let it be the right one"
    if in_chain:
        return f"{why}; let the operand that is computed be the left one"
    return f"{why}; with {wgmma.ROWS} columns and more it would become the left one"


def _may_be_in_registers(value: Value) -> bool:
    """See LEFT."""
    return _loaded(value) is None or value.type.element.bits == 32


def _lies_along_m(value: Value) -> bool:
    """Whether a left operand was loaded from where m is fastest; see LEFT."""
    found = _loaded(value)
    if found is None:
        return False
    return _order_in_memory(*found)[0] == 0


def _has_type(dot: Dot) -> bool:
    """See TYPES."""
    family = find_family(WGMMA, *(str(v.type.element) for v in dot.operands))
    return family is not None and (dot.a.type.element is not T.F32 or dot.input_precision == "tf32")


# -- operands in shared memory ---------------------------------------------------------------------------


def _loaded(value: Value) -> tuple[Load, list[Trans]] | None:
    """The load whose elements ``value`` has, and the transposes on the way, the load's user first."""
    op, transposes = _origin(value)
    return (op, transposes) if isinstance(op, Load) else None


def _order_in_memory(load: Load, transposes: list[Trans]) -> tuple[int, ...]:
    """The dimensions of what the ``transposes`` make of a tile, fastest in memory first."""
    order = load.result.type.layout.order
    for transpose in transposes:
        order = permuted_order(order, transpose.order)
    return order


def _origin(value: Value) -> tuple[Operation | None, list[Trans]]:
    """What makes the elements of ``value``, and the transposes on the way, the first one first."""
    transposes: list[Trans] = []
    op = value.defining_op
    while op is not None and (op.is_transpose or op.changes_layout):
        if op.is_transpose:
            transposes.insert(0, op)
        op = op.operands[0].defining_op
    return op, transposes


class _Tile:
    """An operand that may lie in shared memory: what was loaded, or computed, the transposes behind that, and
    its layout there (that of ``value``)."""

    def __init__(self, value: Value, transposes: list[Trans], layout):
        self.value, self.transposes, self.layout = value, transposes, layout

    def allocate(self) -> Value:
        """Put the tile into shared memory as soon as it is there, unless an earlier dot has done so; the view
        that the dot takes."""
        type, op = self.value.type, self.value.defining_op
        described = T.MemDescType(type.shape, type.element, self.layout, mutable=True)
        users = self.value.users
        there = next((u for u in users if ALLOCATES in u.traits and u.result.type is described), op)
        b = Builder.at(self.value.owner_block.first) if there is None else Builder.after(there)
        view = b.value(LocalAlloc, self.value, type=described) if there is op else there.result
        for transpose in self.transposes:
            view = b.value(MemDescTrans, view, order=transpose.order)
        return view


def _in_memory(value: Value, k_dim: int, layout: Mma, is_transposed: bool = False) -> _Tile | None:
    """See MEMORY. ``is_transposed``: of the transpose of ``value``, whether there is one."""
    found = _loaded(value)
    if found is None:
        return None
    load, transposes = found
    order = _order_in_memory(load, transposes)
    columns = wgmma.ROWS if k_dim == 1 else wgmma.columns_of_instruction(layout)
    shape = value.type.shape
    if is_transposed:
        order, shape = tuple(1 - d for d in order), shape[::-1]
    shared = wgmma.panels_for_operand(shape, order, value.type.element.bits, k_dim, columns)
    if shared is None or is_transposed:
        return None if shared is None else _Tile(load.result, transposes, shared)
    for transpose in reversed(transposes):
        back = tuple(transpose.order.index(d) for d in range(len(transpose.order)))
        shared = shared.permuted(back)
    return _Tile(load.result, transposes, shared)


def _kept_in_memory(dot: Dot) -> _Tile | None:
    """See KEPT."""
    value = dot.a
    while value.defining_op is not None and value.defining_op.changes_layout:
        value = value.defining_op.operands[0]
    loops = [loop for loop in loops_around(dot) if len(loop.walk(Product)) >= machine.PRODUCTS_THAT_KEEP]
    if not any(_is_invariant(value, dot, loop) for loop in loops):
        return None
    bits = dot.a.type.element.bits
    layout = wgmma.panels_for_operand(dot.a.type.shape, (1, 0), bits, 1, wgmma.ROWS)
    return None if layout is None else _Tile(value, [], layout)


def _is_invariant(value: Value, dot: Dot, loop: Loop) -> bool:
    """Whether ``value``, an operand of ``dot`` in ``loop``, is the same in all of its iterations. It may be
    computed there: the assembler moves that in front of the loop."""
    inside = {dot.parent} | {around.parent for around in takewhile(lambda op: op is not loop, ancestors(dot))}
    work = [value]
    for each in each_once(work):
        if each.owner_block in inside:
            if each.defining_op is None or not each.defining_op.is_pure:
                return False
            work += each.defining_op.operands
    return True


def has_transposed_left(dot: Dot) -> bool:
    """Whether A is the transpose of what a product gave, of elements that may lie along m; see TRANSPOSED."""
    is_transposed = [transpose.order for transpose in _origin(dot.a)[1]] == [(1, 0)]
    return is_transposed and dot.a.type.element.bits == 16 and comes_from_dot(dot)


def comes_from_dot(dot: Dot) -> bool:
    """Whether operand A is computed from another product of the same block."""
    work = [dot.a]
    for value in each_once(work):
        op = value.defining_op
        if op is None or op.parent is not dot.parent:
            continue
        if isinstance(op, Product):
            return True
        work += op.operands
    return False


def _transposed_in_memory(dot: Dot) -> _Tile | None:
    """See TRANSPOSED."""
    if not has_transposed_left(dot):
        return None
    op, transposes = _origin(dot.a)
    shape, bits = dot.a.type.shape, dot.a.type.element.bits
    layout = wgmma.panels_for_operand(shape, (0, 1), bits, 1, wgmma.ROWS)
    return None if layout is None else _Tile(op.result, transposes, layout.permuted((1, 0)))


# -- rewriting -------------------------------------------------------------------------------------------


def _replace(dot: Dot, layout: Mma, left: _Tile | None, right: _Tile) -> None:
    b = Builder.at(dot)
    type = dot.result.type.with_layout(layout)
    memory = right.allocate()
    if left is not None:
        first = left.allocate()
    else:
        operand = DotOperand(0, layout, 32 // dot.a.type.element.bits)
        first = b.value(ConvertLayout, dot.a, type=dot.a.type.with_layout(operand))
    total = b.value(ConvertLayout, dot.c, type=type)
    signs = {name: dot.attributes[name] for name in ("a_unsigned", "b_unsigned") if name in dot.attributes}
    if _is_added_up(dot):
        for start, width in _parts(dot):
            total = b.value(AddF, total, _apart(b, first, memory, total.type, start, width, signs))
    else:
        begun = b.value(DotBegin, total, is_zero=_is_zero(dot.c))
        total = b.value(DotWait, b.value(DotAsync, first, memory, begun, **signs))
    dot.replace_with([b.value(ConvertLayout, total, type=dot.result.type)])


def _is_added_up(dot: Dot) -> bool:
    """Whether sums are taken out of the tensor core: see IMPRECISE. (Not the only one.)"""
    k, most = dot.a.type.shape[1], dot.max_num_imprecise_acc
    return dot.a.type.element in _FLOATS_8 and 0 < most <= k and not (most == k and _is_zero(dot.c))


def _parts(dot: Dot) -> list[tuple[int, int]]:
    """(first k, how many) of each product."""
    k, most = dot.a.type.shape[1], dot.max_num_imprecise_acc
    width = max(wgmma.K_BYTES, 1 << most.bit_length() - 1)
    return [(start, width) for start in range(0, k, width)]


def _apart(
    b: Builder, left: Value, right: Value, type: T.TensorType, start: int, width: int, signs: dict
) -> Value:
    """The product of ``width`` indices along k from ``start`` on, by itself."""
    begun = b.value(DotBegin, b.constant(0.0, type), is_zero=True)
    parts = (left, right)
    if width < left.type.shape[1]:
        parts = tuple(_slice(b, operand, 1 - index, start, width) for index, operand in enumerate(parts))
    return b.value(DotWait, b.value(DotAsync, *parts, begun, **signs))


def _slice(b: Builder, operand: Value, k_dim: int, start: int, width: int) -> Value:
    if not isinstance(operand.type, T.MemDescType):
        raise LayoutError("a part of an operand in registers")
    first = tuple(start if d == k_dim else 0 for d in range(2))
    size = tuple(width if d == k_dim else extent for d, extent in enumerate(operand.type.shape))
    return part_of_tile(b, operand, first, size)


def _is_zero(value: Value) -> bool:
    op: Operation | None = value.defining_op
    while op is not None and op.operands and REARRANGING in op.traits:
        value = op.operands[0]
        op = value.defining_op
    return constant_of(value) == 0
