"""Immediate operands: how a constant of each element type is written.

Integers, ``i1`` and the 8- and 16-bit floats are held as Python ints (their bits, integers signed); ``f32``
and ``f64`` as PTX literals ``0f3F800000`` and ``0d3FF0000000000000``, so that equal constants are equal
strings.
"""

from __future__ import annotations

import struct

import numpy as np

from ptxforge.ir import types as T


def f32(value: float) -> str:
    """The PTX literal of ``value`` rounded to f32 (infinity when it is too large)."""
    try:
        return "0f%08X" % struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return "0f7F800000" if value > 0 else "0fFF800000"


def f64(value: float) -> str:
    """The PTX literal of an f64."""
    return "0d%016X" % struct.unpack("<Q", struct.pack("<d", value))[0]


def wrap(value: int, bits: int) -> int:
    """``value`` reduced to a signed integer of ``bits`` bits."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def constant(value: int | float | bool, element: T.Type) -> int | str:
    """The operand for a constant of type ``element``."""
    if element is T.F32:
        return f32(value)
    if element is T.F64:
        return f64(value)
    if element is T.I1:
        return int(bool(value))
    if isinstance(element, T.PointerType) or element.is_int:
        return wrap(int(value), element.bits)
    return float_bits(value, element)


def float_bits(value: float, element: T.Type) -> int:
    """The bits of an 8- or 16-bit float."""
    with np.errstate(all="ignore"):
        array = np.asarray(value, np.float64).astype(element.numpy)
    return int(array.view(np.uint8 if element.bits == 8 else np.uint16))


def is_constant(operand: object) -> bool:
    """Whether an operand is an immediate, not a register."""
    return isinstance(operand, (int, str))


def float_value(operand: object, element: T.Type) -> float:
    """The number that a float immediate stands for."""
    if element is T.F32:
        return float(np.uint32(int(operand[2:], 16)).view(np.float32))
    if element is T.F64:
        return struct.unpack("<d", struct.pack("<Q", int(operand[2:], 16)))[0]
    raw = np.uint8(operand & 0xFF) if element.bits == 8 else np.uint16(operand & 0xFFFF)
    return float(raw.view(element.numpy))
