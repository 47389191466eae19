"""Classes of kernels' own: several values under one name, with methods and operators."""

from __future__ import annotations

import inspect
from typing import Any

from ptxforge.language.constexpr import constexpr
from ptxforge.language.registry import builtin
from ptxforge.support.errors import PtxforgeError


class Aggregate(tuple):
    """Base of what :func:`aggregate` makes: a tuple of the fields' values, in order.

    ``__fields__`` maps each field's name to its annotation, ``__field_defaults__`` to its default if it has
    one, ``__methods__`` those that the class defines itself. Operators are not members of the class: to
    Python, and to the compiler, an object is a tuple.
    """

    __fields__: dict[str, Any] = {}
    __field_defaults__: dict[str, Any] = {}
    __methods__: dict[str, Any] = {}

    def __new__(cls, *args: Any, **kwargs: Any) -> Aggregate:
        """Only kernels make them: raises ``PtxforgeError``."""
        raise PtxforgeError(f"a '{cls.__name__}' is made inside a kernel only")

    @classmethod
    def _of(cls, values: Any) -> Aggregate:
        return tuple.__new__(cls, values)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self.__fields__, self))
        return f"{type(self).__name__}({fields})"


def aggregate(cls: type) -> type:
    """Make a class one whose objects kernels make, pass, return, and carry through loops and branches.

        @tl.aggregate
        class Range:
            low: tl.tensor
            high: tl.tensor
            WIDTH: tl.constexpr

            @ptxforge.jit
            def __init__(self, low, high, WIDTH: tl.constexpr):
                self.low, self.high, self.WIDTH = low, high, WIDTH

            @ptxforge.jit
            def __add__(self, offset):
                return Range(self.low + offset, self.high + offset, self.WIDTH)

    Fields are the annotated names: ``tl.constexpr`` of what is known while compiling, ``tl.tensor``, an
    element type, ``tl.tuple`` or another aggregate; the value given must be of that kind. Methods are jitted
    functions (or ``constexpr_function``, called while compiling); ``@staticmethod`` above one is allowed, and
    so are Python's operator methods. Without ``__init__`` the fields are the parameters. Objects are values:
    ``self.x = …`` stands in ``__init__`` only; :func:`aggregate_replace` gives a changed copy. A class may
    inherit from another aggregate.
    """
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        fields |= getattr(base, "__annotations__", {}) if base not in (object, tuple, Aggregate) else {}
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    inherited = getattr(cls, "__field_defaults__", {})
    body["__fields__"] = {name: _resolved(kind, cls) for name, kind in fields.items() if name[:2] != "__"}
    body["__field_defaults__"] = inherited | {n: body.pop(n) for n in fields if n in body and n[:2] != "__"}
    body["__methods__"] = {name: value for name, value in body.items() if _is_method(value)}
    for name in [name for name in body if name in body["__methods__"] and name[:2] == "__"]:
        del body[name]
    body.pop("__hash__", None)
    for index, name in enumerate(body["__fields__"]):
        body[name] = property(lambda self, index=index: self[index], doc="A field.")
    bases = tuple(base for base in cls.__bases__ if base is not object)
    if not any(issubclass(base, Aggregate) for base in bases):
        bases = (*bases, Aggregate)
    return type(cls.__name__, bases, body)


def _is_method(value: Any) -> bool:
    return isinstance(value, staticmethod) or callable(value)


def _resolved(annotation: Any, cls: type) -> Any:
    """An annotation as an object; ``from __future__ import annotations`` leaves its text."""
    if not isinstance(annotation, str):
        return annotation
    scope = vars(inspect.getmodule(cls) or object)
    try:
        return eval(annotation, dict(scope))
    except Exception:  # a local name, or one for type checkers: then anything is allowed
        return constexpr if annotation.rpartition(".")[2] == "constexpr" else Any


def is_aggregate(value: Any) -> bool:
    """Whether ``value`` is a class that :func:`aggregate` made."""
    return isinstance(value, type) and issubclass(value, Aggregate)


@builtin
def aggregate_replace(value: Any, **fields: Any) -> Any:
    """A copy of the object ``value`` of an aggregate class with other values in some ``fields``.

    A field that the class does not have, or a value of another kind than the field's, is a compile-time
    error.

        wider = tl.aggregate_replace(box, high=box.high + 1)
    """
