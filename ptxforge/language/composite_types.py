"""Types of what is no block, scalar or pointer: compile-time values and tuples; and types by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxforge.language.constexpr import unwrap
from ptxforge.language.descriptor import tensor_descriptor_type
from ptxforge.language.types import block_type, dtype, pointer_type
from ptxforge.support import descriptor


class constexpr_type:
    """The type of the compile-time ``value``: what ``BLOCK.type`` is in a kernel.

    >>> constexpr_type(3), constexpr_type(3) == constexpr_type(3), constexpr_type(1) == constexpr_type(True)
    (constexpr_type[3], True, False)
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = unwrap(value)

    def __repr__(self) -> str:
        return f"constexpr_type[{self.value!r}]"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, constexpr_type):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((constexpr_type, self.value))


class tuple_type:
    """The type of a tuple: ``types`` of its parts and, of a named tuple, its ``fields``. That of a plain
    tuple of compile-time values is equal to the type of the compile-time tuple.

    >>> tuple_type([dtype("int32"), constexpr_type(3)])
    tuple_type[int32, constexpr_type[3]]
    >>> tuple_type([constexpr_type(3), constexpr_type(4)]) == constexpr_type((3, 4))
    True
    """

    __slots__ = ("types", "fields")

    def __init__(self, types: Sequence[Any], fields: Sequence[str] | None = None):
        self.types, self.fields = list(types), fields

    def __repr__(self) -> str:
        return f"tuple_type[{', '.join(map(str, self.types))}]"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, constexpr_type):
            return self._is_constant() and self._constant() == other
        if not isinstance(other, tuple_type):
            return NotImplemented
        return self.types == other.types and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self._constant() if self._is_constant() else (tuple_type, *self.types))

    def _is_constant(self) -> bool:
        return self.fields is None and all(isinstance(part, constexpr_type) for part in self.types)

    def _constant(self) -> constexpr_type:
        return constexpr_type(tuple(part.value for part in self.types))

    def __len__(self) -> int:
        return len(self.types)

    def __getitem__(self, index: int) -> Any:
        return self.types[index]


def str_to_ty(name: Any, c: Any = None) -> Any:
    """The type that a signature's ``name`` means: ``"i32"``, ``"*fp16"``, ``"*kfp32"`` (constant),
    ``"tensordesc<fp16[32,32]>"``, or ``"constexpr"`` of the value ``c``; ``"B"`` means ``"i1"``.
    A tuple of names gives a :class:`tuple_type`.

    A name that is none raises ``TypeError``.

    >>> str_to_ty("*kfp16"), str_to_ty(("i32", "*fp32")), str_to_ty("constexpr", 4)
    (const_pointer<fp16>, tuple_type[int32, pointer<fp32>], constexpr_type[4])
    """
    if isinstance(name, tuple):
        values = c if isinstance(c, tuple) else (None,) * len(name)
        return tuple_type(map(str_to_ty, name, values), getattr(name, "_fields", None))
    if name == "constexpr":
        return constexpr_type(c)
    if name.startswith("*"):
        is_const = name.startswith("*k")
        return pointer_type(str_to_ty(name[1 + is_const :]), const=is_const)
    if descriptor.is_descriptor(name):
        try:
            kind = descriptor.parse(name)
        except ValueError as error:
            raise TypeError(str(error)) from None
        return tensor_descriptor_type(block_type(dtype(kind.dtype.short), kind.box), kind.padding)
    short = name.partition(":")[0]
    return dtype("i1" if short == "B" else short)
