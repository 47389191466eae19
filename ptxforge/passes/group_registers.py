"""How many registers a thread has where some warps compute and others only copy.

Four warps have room for one more. A multiprocessor has 168 registers for a thread of 9 warps as of 12, as it
deals them out to four warps at a time: so eight get four more, of which three are idle, and ``setmaxnreg``
gives their registers to those who compute: 240 for each of their threads, 112 where there are 16 warps. These
must suffice for the products of a loop, their left operands and ``machine.REGISTERS_BESIDE_FLIGHTS``.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Function
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin
from ptxforge.ir.pressure import registers_of, room
from ptxforge.support import machine


def has_registers(block: Block, warps: int, kept: int = 0) -> bool:
    """Whether as many warps that compute leave room for others, and have then the registers for all products
    of ``block`` at once, and ``kept`` others."""
    if warps == machine.WARPS_SET_TOGETHER:
        return True
    begun = [op.result for op in block.of(DotBegin)] + block.arguments
    types = [value.type.tensor for value in begun if isinstance(value.type, T.FlightType)]
    types += [op.a.type for op in block.of(DotAsync) if isinstance(op.a.type, T.TensorType)]
    return suffice(sum(map(registers_of, types)) + kept, warps)


def suffice(taken: int, warps: int) -> bool:
    """Whether so many warps leave room for others, and have then the registers ``taken`` by products."""
    has_room = warps + machine.WARPS_SET_TOGETHER <= machine.MAX_WARPS
    return has_room and taken + machine.REGISTERS_BESIDE_FLIGHTS <= consumer_registers(warps)


def launched_registers(warps: int) -> int:
    """Registers of a thread with which so many warps, and four more, fill a multiprocessor."""
    return room(machine.WARP_SIZE * (warps + machine.WARPS_SET_TOGETHER)) // 8 * 8


def consumer_registers(warps: int) -> int:
    """Registers of a thread when the four have given theirs away."""
    low, high = machine.SETTABLE_REGISTERS
    given = (launched_registers(warps) - low) * machine.WARPS_SET_TOGETHER
    return min(high, launched_registers(warps) + given // warps // 8 * 8)


def set_registers(function: Function, groups: int = 1) -> None:
    """Give the function warps for a producer and for as many ``groups`` of consumers."""
    attributes = function.attributes
    others = attributes["num_warps"] * (groups - 1)
    warps = attributes["num_warps"] + others
    is_alone = warps == machine.WARPS_SET_TOGETHER
    attributes["extra_warps"] = others + (1 if is_alone else machine.WARPS_SET_TOGETHER)
    if groups > 1:
        attributes["consumer_groups"] = groups
    if not is_alone:
        attributes["maxnreg"] = launched_registers(warps)
        attributes["warp_registers"] = (consumer_registers(warps), machine.SETTABLE_REGISTERS[0])
