"""Tensor maps that a kernel makes: written by one thread in shared memory, published by its warp to global
memory, where TMA reads them (PTX ISA, "Manipulating tensor-map objects"). Where each of them lies there
stands on the operations (``ir/ops/tensor_map.py``). A block takes the first record that is free from its own
number on, and gives it back in the end.
"""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.indices import first_thread, thread_id
from ptxforge.codegen_ptx.lower.mbarrier import address, is_in_first_warp, leader
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.pointers import whole
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir.ops import tensor_map as ops
from ptxforge.support import dtypes
from ptxforge.support.tensor_map import BYTES, ELEMENT_TYPES, PADDINGS, SWIZZLES, kind_of

NAME = "tensor_map_workspace"
_ZEROS = 16
"""Where in a record there are as many zeros as the widest element has bytes."""
_NANS = "tensor_map_nans"
"""As many bytes of a float whose bits are all 1: a NaN of every type."""


@lowers(ops.MapWorkspace)
def workspace(ctx: Lowering, op: ops.MapWorkspace) -> None:
    b, size, count = ctx.b, op.record_bytes, op.records
    b.require(8, 3)
    b.declarations[f".global .align {BYTES} .b8 {NAME}[{size * count}];"] = None
    start = b.pure("cvta.global.u64 %s, %s;", "q", b.pure(f"mov.b64 %s, {NAME};", "q"))
    number = b.new("r")
    b.copy(number, b.pure("rem.u32 %s, %s, %s;", "r", _block(b), count))
    place, found, done = b.new("q"), b.new("r"), b.new("p")
    again, end = b.label("take"), b.label("taken")
    b.place(again)  # one thread asks, and its warp learns of the answer; other warps find it free
    b.effect(f"mad.wide.u32 %s, %s, {size}, %s;", place, number, start)
    b.effect("mov.u32 %s, 0;", found)
    b.effect("atom.global.gpu.acquire.exch.b32 %s, [%s], 1;", found, place, guard=first_thread(b))
    b.effect("shfl.sync.idx.b32 %s, %s, 0, 31, -1;", found, found)
    b.effect("setp.eq.u32 %s, %s, 0;", done, found)
    b.effect(f"bra.uni {end};", guard=done)
    b.effect("add.u32 %s, %s, 1;", number, number)
    b.effect("setp.eq.u32 %s, %s, %s;", done, number, count)
    b.effect("mov.u32 %s, 0;", number, guard=done)
    b.effect(f"bra.uni {again};")
    b.place(end)
    taken = b.new("q")
    b.effect("mov.b64 %s, %s;", taken, place)
    ctx.set(op, [taken])


def _block(b: Builder) -> Register:
    """The block's number in the grid."""
    x, y, z = (b.pure(f"mov.u32 %s, %%ctaid.{axis};", "r") for axis in "xyz")
    wide, high = (b.pure(f"mov.u32 %s, %%nctaid.{axis};", "r") for axis in "xy")
    rows = b.pure("mad.lo.u32 %s, %s, %s, %s;", "r", z, high, y)
    return b.pure("mad.lo.u32 %s, %s, %s, %s;", "r", rows, wide, x)


@lowers(ops.ReleaseWorkspace)
def release(ctx: Lowering, op: ops.ReleaseWorkspace) -> None:
    b = ctx.b
    b.effect("bar.warp.sync -1;")
    b.effect("st.release.gpu.global.b32 [%s], 0;", ctx.scalar(op.workspace), guard=first_thread(b))


@lowers(ops.MakeTensorMap)
def make(ctx: Lowering, op: ops.MakeTensorMap) -> None:
    """The fields that are not written are zero: no interleaving, and unless that is asked for no NaN outside
    of the tensor."""
    b = ctx.b
    where = b.register(b.add(ctx.scalar(op.workspace), op.offset), "q")
    template = b.register(address(ctx, op.template))
    own = b.pure("mad.lo.u32 %s, %s, 4, %s;", "r", thread_id(b), template)
    b.effect("st.shared.b32 [%s], 0;", own, guard=is_in_first_warp(b))
    b.effect("bar.warp.sync -1;")
    for field, bits, value in _fields(ctx, op):
        syntax = f"tensormap.replace.tile.{field.replace('@', f'.shared::cta.b1024.b{bits} [%s], ', 1)}%s;"
        b.effect(syntax, template, value, guard=leader(b))
    b.effect("bar.warp.sync -1;")
    b.effect(f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
             f"[%s], [%s], {BYTES};", where, template, guard=is_in_first_warp(b))  # fmt: skip
    b.effect(f"fence.proxy.tensormap::generic.acquire.gpu [%s], {BYTES};", where, guard=leader(b))
    ctx.set(op, [where])


def _fields(ctx: Lowering, op: ops.MakeTensorMap) -> list[tuple[str, int, object]]:
    """Field and dimension (behind ``@``), the bits of its value, and this: innermost dimension first."""
    b, dtype = ctx.b, dtypes.BY_NAME[op.dtype]
    base, sizes = _not_empty(ctx, op)
    fields = [
        ("global_address@", 64, base), ("rank@", 32, len(op.box) - 1),
        ("elemtype@", 32, ELEMENT_TYPES.index(kind_of(dtype))),
        ("swizzle_mode@", 32, SWIZZLES.index(op.swizzle)),
    ]  # fmt: skip
    if op.padding != PADDINGS[0]:
        fields.append(("fill_mode@", 32, PADDINGS.index(op.padding)))
    for dim, (size, side) in enumerate(zip(reversed(sizes), reversed(op.box))):
        fields += [(f"global_dim@{dim}, ", 32, b.register(size, "r")),
                   (f"box_dim@{dim}, ", 32, b.register(side, "r")),
                   (f"element_stride@{dim}, ", 32, b.register(1, "r"))]  # fmt: skip
    for dim, stride in enumerate(reversed(op.strides)):
        distance = b.pure("mul.lo.s64 %s, %s, %s;", "q", b.register(ctx.scalar(stride), "q"), dtype.bytes)
        fields.append((f"global_stride@{dim}, ", 64, distance))
    return fields


def _not_empty(ctx: Lowering, op: ops.MakeTensorMap) -> tuple[Register, list]:
    """The address and the sizes; of a tensor without elements those of a single one that is as what lies
    outside, as no map has a size of 0."""
    b = ctx.b
    base = whole(b, ctx.scalar(op.base))
    sizes = [size if isinstance(size, int) else ctx.scalar(size) for size in op.given_sizes]
    there = None
    for given, size in zip(op.given_sizes, sizes):
        if not isinstance(given, int) and not (isinstance(size, int) and size > 0):
            there = b.both(there, b.pure("setp.gt.s32 %s, %s, 0;", "p", b.register(size, "r")))
    if there is None:
        return base, sizes
    base = b.pure("selp.b64 %s, %s, %s, %s;", "q", base, _outside(ctx, op), there)
    sizes = [b.pure("selp.b32 %s, %s, 1, %s;", "r", b.register(size, "r"), there) for size in sizes]
    return base, sizes


def _outside(ctx: Lowering, op: ops.MakeTensorMap) -> Register:
    """The address of an element as those outside of the tensor are."""
    b = ctx.b
    if op.padding == PADDINGS[0]:
        return b.pure("add.u64 %s, %s, %s;", "q", ctx.scalar(op.workspace), _ZEROS)
    b.declarations[f".global .align 16 .b32 {_NANS}[4] = {{-1, -1, -1, -1}};"] = None
    return b.pure("cvta.global.u64 %s, %s;", "q", b.pure(f"mov.b64 %s, {_NANS};", "q"))
