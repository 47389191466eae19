"""Types of IR values. ``str(type)`` is the text syntax.

========================================  ===========================================================
``i1 i8 i16 i32 i64``                     signless integers (operations carry the sign)
``f8e4m3 f8e5m2 f16 bf16 f32 f64``        floats
``ptr<f32>``                              a pointer to global memory (``ptr<f32, shared>`` elsewhere)
``tensor<128x64xf16>``                    a tile; in the gpu stage ``tensor<128x64xf16, #blocked<{…}>>``
``memdesc<3x128x64xf16, #shared<{…}>, mutable>``   a tile in shared memory
``memdesc<3x1xmbarrier, #shared<{…}>, mutable>``   mbarriers, which have a place there and nowhere else
``memdesc<1xtensormap, #shared<{…}>, mutable>``    where a kernel makes tensor maps
``flight<tensor<64x64xf32, #mma<{…}>>>``  accumulators under way, which no thread may touch before a wait
``token<cp.async>``                       stands for work in that queue; ``token<tma>``: an mbarrier's phase;
                                          ``token<bulk>``: a tile that is stored
``descriptor<128x64xf16>``                a tensor in memory, of which boxes of that shape are loaded and
                                          stored (``descriptor<128x64xf16, nan>``: NaN outside, not 0)
``tensormap``                             the address of a tensor map, a kernel's parameter of 128 bytes
========================================  ===========================================================

Types are interned: equal types are the same object, so ``==`` and ``hash`` cost nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ptxforge.support import dtypes, tensor_map


class Type:
    """Base of all types. Interned; compared by identity."""

    __slots__ = ("_text",)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def __reduce__(self):
        raise TypeError("IR types are interned and are not pickled; pass IR text instead")


class ScalarType(Type):
    """An element type. ``kind`` is ``int`` or ``float``; ``bits`` its width."""

    __slots__ = ("name", "kind", "bits")

    def __init__(self, name: str, kind: str, bits: int):
        self.name, self.kind, self.bits = name, kind, bits
        self._text = name

    @property
    def is_int(self) -> bool:
        return self.kind == "int"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def bytes(self) -> int:
        """Bytes in memory (``i1`` takes one)."""
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype:
        """The numpy type that the interpreter holds it in (integers signed, ``i1`` as bool)."""
        return _NUMPY[self.name]


I1 = ScalarType("i1", "int", 1)
I8 = ScalarType("i8", "int", 8)
I16 = ScalarType("i16", "int", 16)
I32 = ScalarType("i32", "int", 32)
I64 = ScalarType("i64", "int", 64)
F8E4M3 = ScalarType("f8e4m3", "float", 8)
F8E5M2 = ScalarType("f8e5m2", "float", 8)
F16 = ScalarType("f16", "float", 16)
BF16 = ScalarType("bf16", "float", 16)
F32 = ScalarType("f32", "float", 32)
F64 = ScalarType("f64", "float", 64)

MBARRIER = ScalarType("mbarrier", "barrier", 64)
"""An element of shared memory alone."""

SCALARS: dict[str, ScalarType] = {
    t.name: t for t in (I1, I8, I16, I32, I64, F8E4M3, F8E5M2, F16, BF16, F32, F64)
}
_NUMPY = {d.ir: d.numpy for d in dtypes.ALL if not (d.kind == "uint")} | {"mbarrier": np.dtype(np.int64)}


def scalar(dtype: dtypes.DType) -> ScalarType:
    """The IR's type of a language dtype (``uint32`` and ``int32`` are both ``i32``)."""
    return SCALARS[dtype.ir]


class PointerType(Type):
    """A pointer to one ``pointee`` in ``address_space`` (``global`` unless said otherwise). 64 bits wide."""

    __slots__ = ("pointee", "address_space")
    _interned: dict[tuple, PointerType] = {}
    bits = 64
    bytes = 8

    def __new__(cls, pointee: Type, address_space: str = "global") -> PointerType:
        key = (pointee, address_space)
        found = cls._interned.get(key)
        if found is None:
            found = super().__new__(cls)
            found.pointee, found.address_space = pointee, address_space
            found._text = (
                f"ptr<{pointee}>" if address_space == "global" else f"ptr<{pointee}, {address_space}>"
            )
            cls._interned[key] = found
        return found

    is_int = False
    is_float = False
    numpy = np.dtype(np.int64)


class TileType(Type):
    """What tiles in registers and in shared memory have in common."""

    __slots__ = ("shape", "element", "layout")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return self.numel * self.element.bytes


class TensorType(TileType):
    """A tile: ``shape`` (powers of two), ``element`` (scalar or pointer), ``layout``
    (an encoding, or ``None``)."""

    __slots__ = ()
    _interned: dict[tuple, TensorType] = {}

    def __new__(cls, shape: tuple[int, ...], element: Type, layout: Any = None) -> TensorType:
        key = (tuple(shape), element, layout)
        found = cls._interned.get(key)
        if found is None:
            found = super().__new__(cls)
            found.shape, found.element, found.layout = key
            dims = "".join(f"{size}x" for size in found.shape)
            suffix = "" if layout is None else f", {layout}"
            found._text = f"tensor<{dims}{element}{suffix}>"
            cls._interned[key] = found
        return found

    def with_layout(self, layout: Any) -> TensorType:
        return TensorType(self.shape, self.element, layout)

    def with_element(self, element: Type) -> TensorType:
        return TensorType(self.shape, element, self.layout)

    def with_shape(self, shape: tuple[int, ...], layout: Any = None) -> TensorType:
        return TensorType(shape, self.element, layout)


class MemDescType(TileType):
    """A tile in shared memory with a ``shared`` encoding. ``mutable``: may be written after its allocation.

    A multi-buffered allocation has one more leading dimension than its encoding has; ``memdesc_index``
    picks a buffer.
    """

    __slots__ = ("mutable",)
    _interned: dict[tuple, MemDescType] = {}

    def __new__(
        cls, shape: tuple[int, ...], element: Type, layout: Any, mutable: bool = False
    ) -> MemDescType:
        key = (tuple(shape), element, layout, bool(mutable))
        found = cls._interned.get(key)
        if found is None:
            found = super().__new__(cls)
            found.shape, found.element, found.layout, found.mutable = key
            dims = "".join(f"{size}x" for size in found.shape)
            found._text = f"memdesc<{dims}{element}, {layout}{', mutable' if mutable else ''}>"
            cls._interned[key] = found
        return found


class FlightType(Type):
    """Accumulators of asynchronous matrix products that become a ``tensor`` when these were waited for.

    The registers belong to the tensor cores: only further products, a wait and the edges of loops may take
    such a value, and each is taken once (a product adds to the very registers).
    """

    __slots__ = ("tensor",)
    _interned: dict[TensorType, FlightType] = {}

    def __new__(cls, tensor: TensorType) -> FlightType:
        found = cls._interned.get(tensor)
        if found is None:
            found = cls._interned[tensor] = super().__new__(cls)
            found.tensor = tensor
            found._text = f"flight<{tensor}>"
        return found


QUEUES = ("cp.async", "wgmma", "tma", "bulk")
"""Queues of asynchronous work: copies of 4 to 16 bytes by each thread, products of warpgroups, copies of
boxes to shared memory (which complete on mbarriers), and from there (in bulk groups)."""


class TokenType(Type):
    """Stands for work in a ``queue``, or for having waited for it; carries no data. For copies of boxes it is
    the phase of an mbarrier in which they complete. (Products have a ``FlightType`` instead, which is their
    accumulators.)"""

    __slots__ = ("queue",)
    _interned: dict[str, TokenType] = {}

    def __new__(cls, queue: str) -> TokenType:
        found = cls._interned.get(queue)
        if found is None:
            found = cls._interned[queue] = super().__new__(cls)
            found.queue, found._text = queue, f"token<{queue}>"
        return found


class DescriptorType(Type):
    """A descriptor of a tensor of ``element``; ``shape`` is that of a box of it. ``padding`` (``zero`` or
    ``nan``) is what a load gives for elements outside of the tensor."""

    __slots__ = ("shape", "element", "padding")
    _interned: dict[tuple, DescriptorType] = {}

    def __new__(cls, shape: tuple[int, ...], element: ScalarType, padding: str = "zero") -> DescriptorType:
        key = (tuple(shape), element, padding)
        found = cls._interned.get(key)
        if found is None:
            found = super().__new__(cls)
            found.shape, found.element, found.padding = key
            dims = "".join(f"{size}x" for size in found.shape)
            found._text = f"descriptor<{dims}{element}{'' if padding == 'zero' else f', {padding}'}>"
            cls._interned[key] = found
        return found

    @property
    def box(self) -> TensorType:
        """The type of a box's elements, without a layout."""
        return TensorType(self.shape, self.element)

    @property
    def fill(self) -> int | float:
        """What a load gives outside of the tensor."""
        if self.padding == "nan":
            return math.nan
        return 0.0 if self.element.is_float else 0


class TensorMapType(Type):
    """The generic address of a tensor map, which is a kernel's parameter. How to make it from other
    parameters say the parameter's attributes: see :class:`ptxforge.support.tensor_map.TensorMapRecipe`.
    As an element of shared memory, a map that a kernel makes."""

    __slots__ = ()
    bits = 8 * tensor_map.BYTES
    bytes = tensor_map.BYTES
    numpy = np.dtype(f"V{tensor_map.BYTES}")

    def __init__(self):
        self._text = "tensormap"


TENSOR_MAP = TensorMapType()

OPAQUE = (MBARRIER, TENSOR_MAP)
"""What lies in shared memory and is touched there by operations of its own, and no others."""


def element_type(type: Type) -> Type:
    """The element of a tensor or memdesc; any other type itself."""
    return type.element if isinstance(type, (TensorType, MemDescType)) else type


def shape_of(type: Type) -> tuple[int, ...]:
    """A tensor's or memdesc's shape; ``()`` for a scalar."""
    return type.shape if isinstance(type, (TensorType, MemDescType)) else ()


def like(type: Type, element: Type) -> Type:
    """``type`` with another element: a tensor keeps shape and layout, a scalar becomes ``element``."""
    return type.with_element(element) if isinstance(type, TensorType) else element


def layout_of(type: Type) -> Any:
    """A tensor's, memdesc's or flight's encoding, else ``None``."""
    if isinstance(type, FlightType):
        return type.tensor.layout
    return type.layout if isinstance(type, (TensorType, MemDescType)) else None
