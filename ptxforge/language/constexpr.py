"""Compile-time values."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # to a type checker a compile-time value may stand wherever a value of any type may
    _Anything = Any
else:
    _Anything = object

_BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "lshift": operator.lshift,
    "rshift": operator.rshift, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip
_COMPARISONS = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge,
}  # fmt: skip
_UNARY = {"neg": operator.neg, "pos": operator.pos, "invert": operator.invert}


def unwrap(value: Any) -> Any:
    """The value inside a :class:`constexpr`; anything else itself."""
    while isinstance(value, constexpr):
        value = value.value
    return value


class constexpr(_Anything):
    """A value known when the kernel is compiled.

    As an annotation of a parameter (``BLOCK: tl.constexpr``) it says that each value makes a kernel of its
    own. As a local annotation (``N: tl.constexpr = BLOCK * 2``) it keeps the value at compile time; without
    it a number becomes a runtime scalar. As an object it is how a kernel may read a global: ``EPS =
    tl.constexpr(1e-5)``.

    >>> constexpr(3) * 2 + 1
    constexpr[7]
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = unwrap(value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getitem__(self, key: Any) -> constexpr:
        return constexpr(self.value[unwrap(key)])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "value":
            raise AttributeError(name)
        return getattr(self.value, name)

    def logical_and(self, other: Any) -> constexpr:
        """``self and other``."""
        return constexpr(self.value and unwrap(other))

    def logical_or(self, other: Any) -> constexpr:
        """``self or other``."""
        return constexpr(self.value or unwrap(other))


def _binary(function: Any) -> tuple[Any, Any]:
    def forward(self: constexpr, other: Any) -> constexpr:
        return constexpr(function(self.value, unwrap(other)))

    def reflected(self: constexpr, other: Any) -> constexpr:
        return constexpr(function(unwrap(other), self.value))

    return forward, reflected


def _unary(function: Any) -> Any:
    def apply(self: constexpr) -> constexpr:
        return constexpr(function(self.value))

    return apply


for _name, _function in _BINARY.items():
    _forward, _reflected = _binary(_function)
    setattr(constexpr, f"__{_name}__", _forward)
    setattr(constexpr, f"__r{_name}__", _reflected)
for _name, _function in _COMPARISONS.items():
    setattr(constexpr, f"__{_name}__", _binary(_function)[0])
for _name, _function in _UNARY.items():
    setattr(constexpr, f"__{_name}__", _unary(_function))
