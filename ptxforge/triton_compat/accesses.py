"""Which arguments a kernel reads and writes, told in the form of Triton's IR bindings.

torch.compile must know what a user's kernel changes. It asks Triton for the kernel's IR and walks it; of all
operations it looks for loads and stores, and from which parameters their addresses come. ptxforge knows the
answer (:attr:`Artifact.written`), so the module given here is a summary: one function, in which every
parameter that is an array is loaded from, and every one that the kernel may write is stored to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

_numbers = itertools.count(1)


class Numbered:
    """Anything with an identity: a value, a block, a region."""

    def __init__(self) -> None:
        self._id = next(_numbers)

    def id(self) -> int:
        """A number that nothing else has."""
        return self._id


class Block(Numbered):
    """A block with ``count`` arguments, the only one of its region."""

    def __init__(self, count: int):
        super().__init__()
        self._arguments = [Numbered() for _ in range(count)]
        self._region = Numbered()

    def get_num_arguments(self) -> int:
        return len(self._arguments)

    def get_argument(self, index: int) -> Numbered:
        return self._arguments[index]

    def get_parent(self) -> Numbered:
        return self._region


class Operation:
    """An operation of a block, by Triton's name for it."""

    def __init__(
        self,
        name: str,
        block: Block | None,
        operands: Sequence[Numbered] = (),
        results: Sequence[Numbered] = (),
        regions: Sequence[Numbered] = (),
        symbol: str = "",
    ):
        self._name, self._block, self._symbol = name, block, symbol
        self._operands, self._results, self._regions = operands, results, regions

    def get_name(self) -> str:
        return self._name

    def get_block(self) -> Block | None:
        return self._block

    def get_num_operands(self) -> int:
        return len(self._operands)

    def get_operand(self, index: int) -> Numbered:
        return self._operands[index]

    def get_num_results(self) -> int:
        return len(self._results)

    def get_result(self, index: int) -> Numbered:
        return self._results[index]

    def get_num_regions(self) -> int:
        return len(self._regions)

    def get_region(self, index: int) -> Numbered:
        return self._regions[index]

    def get_str_attr(self, name: str) -> str:
        """``sym_name``: the function's name."""
        return self._symbol


class Module:
    """The summary of a kernel called ``name`` whose parameters are ``parameters``: reads through ``read``,
    writes through ``written``."""

    def __init__(self, name: str, parameters: Sequence[str], read: Sequence[str], written: Sequence[str]):
        body = Block(len(parameters))
        places = {parameter: body.get_argument(index) for index, parameter in enumerate(parameters)}
        loads = [Operation("tt.load", body, [places[name]], [Numbered()]) for name in read]
        stores = [Operation("tt.store", body, [places[name]]) for name in written]
        function = Operation("tt.func", None, regions=[body.get_parent()], symbol=name)
        self._operations = [*loads, *stores, Operation("tt.return", body), function]

    def verify(self) -> bool:
        """It is well formed."""
        return True

    def walk(self, visit: Callable[[Operation], None]) -> None:
        """Call ``visit`` with each operation, what is inside first."""
        for operation in self._operations:
            visit(operation)


class Context:
    """What Triton keeps types in. There is nothing to keep."""


def load_dialects(context: Context) -> None:
    """Nothing to load."""


def find_paths_if(values: Sequence[Any], accepts: Callable[[tuple, Any], bool]) -> list[tuple[int, ...]]:
    """The paths of the leaves of nested tuples and lists that ``accepts(path, leaf)``."""
    found: list[tuple[int, ...]] = []

    def look(path: tuple[int, ...], value: Any) -> None:
        if isinstance(value, (tuple, list)):
            for index, part in enumerate(value):
                look((*path, index), part)
        elif accepts(path, value):
            found.append(path)

    look((), list(values))
    return found


def get_iterable_path(values: Any, path: tuple[int, ...]) -> Any:
    """What lies at a path."""
    for index in path:
        values = values[index]
    return values
