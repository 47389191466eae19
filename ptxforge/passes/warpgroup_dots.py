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
MEMORY      B is read from shared memory as it was loaded, transposed or not, if it comes from a load. Only
            16-bit types may lie along n (A: along m) there: other tiles go to ``mma.sync``, which turns them
            on the way to the registers.
STORED      A B that is computed is stored for the product, if EXCHANGED does not help: by threads that hold
            what lies side by side in memory, in any order that the type admits. Then A is stored, too, if it
            is computed: the product runs on while threads compute the next one's operands. Only from
            ``COLUMNS_WORTH_A_STORE`` columns on, and where there is room beside the stages of what the loop
            loads; where that is for B alone, A stays in registers.
SPLIT       What makes several products of one (``split_products.py``) adds them to one sum. Of f32 as tf32
            the largest parts are the tiles themselves, of which nothing but tf32 is read, if they were loaded
            as MEMORY wants it; all other parts are STORED (of A where that is in memory), each once.
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
            at most that many products are, before their sum is added to the others in f32. These slices
            along k are of tiles in memory: an A that is computed is STORED.
"""

from __future__ import annotations

from functools import partial

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Value
from ptxforge.ir.ops.arith import AddF
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotWait
from ptxforge.layouts import wgmma
from ptxforge.layouts.encodings import Mma
from ptxforge.layouts.linear import LayoutError
from ptxforge.layouts.mma_families import WGMMA, find_family
from ptxforge.passes.operand_tiles import in_memory, loaded_tile, order_in_memory
from ptxforge.passes.parts_of_operands import part_of_tile
from ptxforge.passes.split_products import is_zero, narrow_type, sum_of_terms, terms_of
from ptxforge.passes.stored_operands import (
    Operand,
    fits_registers,
    is_added_up,
    is_narrowed,
    left_operand,
    may_be_in_registers,
    pays,
    right_operand,
)
from ptxforge.support import machine


def use_warpgroups(dot: Dot, num_warps: int, in_chain: bool, room: int, stores: bool = False) -> bool:
    """Replace ``dot`` by an asynchronous product and its wait, if all of the rules admit it. ``room``: bytes
    of shared memory for what is STORED; ``stores``: also what no loaded operand helps."""
    if len(dot.result.type.shape) != 2 or not _has_type(dot):
        return False
    layout = wgmma.accumulators(dot.result.type.shape, num_warps, in_chain)
    if layout is None or depth_of(dot) < wgmma.K_BYTES:
        return False
    right = right_operand(dot, layout, num_warps, room, stores)
    if right is None:
        return False
    left = left_operand(dot, layout, num_warps, right, room)
    if left is None:
        return False
    if not left.is_in_memory and _lies_along_m(dot.a):
        layout = wgmma.with_rows_apart(layout)
    _replace(dot, layout, left, right)
    return True


def depth_of(dot: Dot) -> int:
    """Bytes along k of what is multiplied."""
    return dot.a.type.shape[1] * narrow_type(dot).bytes


def are_better_transposed(dot: Dot, num_warps: int, room: int) -> bool:
    """Whether the product of the transposed operands in exchanged roles is one for warpgroups, where that of
    ``dot`` is not; see EXCHANGED."""
    if len(dot.result.type.shape) != 2 or not _has_type(dot) or is_narrowed(dot):
        return False
    layout = wgmma.accumulators(dot.result.type.shape[::-1], num_warps, False)
    if layout is None or depth_of(dot) < wgmma.K_BYTES:
        return False
    if not may_be_in_registers(dot.b) or in_memory(dot.a, 0, layout, is_transposed=True) is None:
        return False
    rest = dot.a.type.bytes  # of the right operand, beside its largest part
    is_small = rest <= room and fits_registers(dot.b.type, dot, layout)
    return len(terms_of(dot)) == 1 or (is_small and pays(layout, dot.result.type.shape[0]))


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
    depth = depth_of(dot)
    if depth < wgmma.K_BYTES:
        return f"it has {depth} bytes along k, wgmma takes {wgmma.K_BYTES}; use a larger block along k"
    return _why_not_in_memory(dot, layout, in_chain)


def _why_not_types(dot: Dot) -> str:
    a, b, total = (v.type.element for v in dot.operands)
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
    """See MEMORY, LEFT, STORED and SPLIT."""
    is_split = len(terms_of(dot)) > 1
    across = [name for name, value, k_dim in (("left", dot.a, 1), ("right", dot.b, 0))
              if loaded_tile(value) is not None and in_memory(value, k_dim, layout) is None]  # fmt: skip
    if across and not is_split:
        bits = dot.a.type.element.bits
        names = " and ".join(across)
        return f"its {names} operand of {bits} bits lies across k in memory; transpose it there"
    what = "parts of its right operand are" if is_split else "its right operand is"
    why = f"{what} computed, and wgmma reads that from shared memory"
    if pays(layout, dot.result.type.shape[1]):
        return f"{why}, which has no room beside the loop's tiles; use smaller blocks or fewer num_stages"
    columns = f"{machine.COLUMNS_WORTH_A_STORE} columns and more"
    if is_split or loaded_tile(dot.a) is None:
        return f"{why}; with {columns} for each warpgroup threads store it there"
    if in_chain:
        return f"{why}; with {columns}, or as the left operand, it would come there, or to registers"
    return f"{why}; with {columns} it would become the left one"


def _lies_along_m(value: Value) -> bool:
    """Whether a left operand was loaded from where m is fastest; see LEFT."""
    found = loaded_tile(value)
    if found is None:
        return False
    return order_in_memory(*found)[0] == 0


def _has_type(dot: Dot) -> bool:
    """See TYPES."""
    factors = (narrow_type(dot),) * 2 if is_narrowed(dot) else (dot.a.type.element, dot.b.type.element)
    family = find_family(WGMMA, *map(str, (*factors, dot.c.type.element)))
    return family is not None and (dot.a.type.element is not T.F32 or dot.input_precision != "ieee")


# -- rewriting -------------------------------------------------------------------------------------------


def _replace(dot: Dot, layout: Mma, left: Operand, right: Operand) -> None:
    b = Builder.at(dot)
    type = dot.result.type.with_layout(layout)
    memory = right.place(b, dot, layout)
    first = left.place(b, dot, layout)
    total = b.value(ConvertLayout, dot.c, type=type)
    signs = {name: dot.attributes[name] for name in ("a_unsigned", "b_unsigned") if name in dot.attributes}
    if is_added_up(dot):
        for start, width in _parts(dot):
            total = b.value(AddF, total, _apart(b, first[0], memory[0], total.type, start, width, signs))
    elif len(terms_of(dot)) > 1:
        total = sum_of_terms(b, dot, total, partial(_product, b, first, memory, signs))
    else:
        total = _product(b, first, memory, signs, terms_of(dot), total)
    dot.replace_with([b.value(ConvertLayout, total, type=dot.result.type)])


def _product(
    b: Builder, left: list[Value], right: list[Value], signs: dict, terms: tuple[tuple[int, int], ...],
    total: Value,
) -> Value:  # fmt: skip
    """``total``, and the products of parts of both operands."""
    flight = b.value(DotBegin, total, is_zero=is_zero(total))
    for i, j in terms:
        flight = b.value(DotAsync, left[i], right[j], flight, **signs)
    return b.value(DotWait, flight)


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
