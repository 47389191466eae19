"""Functions that are single PTX instructions (or a few), chosen by the types of their arguments.

    add_rd = Instruction("add_rd", "x, y", FLOATS, "add.rm.{t} $0, $1, $2;", "``x + y``, rounded down.")

Arguments of types that none of the forms has take their common type; where that has no form either, it is an
error that lists the forms.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple

from ptxforge.language import types as L
from ptxforge.support.errors import PtxforgeError

_LETTERS = {"float": {32: "f", 64: "d"}, "int": {32: "r", 64: "l"}}


class Form(NamedTuple):
    """One way to call an instruction: the arguments' types, the result's, the PTX text with ``$0`` for the
    result."""

    arguments: tuple[L.dtype, ...]
    result: L.dtype
    text: str

    @property
    def constraints(self) -> str:
        """The registers, as inline assembly wants them."""
        return "=" + ",".join(map(_letter, (self.result, *self.arguments)))


def _letter(dtype: L.dtype) -> str:
    return _LETTERS["float" if dtype.is_floating() else "int"][dtype.primitive_bitwidth]


class Instruction:
    """A function of the language that is PTX text in one of several ``forms``; ``parameters`` are the names
    of its arguments, comma-separated."""

    __ptxforge_builtin__ = True

    def __init__(self, name: str, parameters: str, forms: Iterable[Form], doc: str):
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self.forms = tuple(forms)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [name.strip() for name in parameters.split(",")]
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise PtxforgeError(f"tl.{self.__name__}() has a meaning only inside a kernel")

    def __repr__(self) -> str:
        return f"<function tl.{self.__name__}>"
