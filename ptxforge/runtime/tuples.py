"""Tuples, named tuples and ``*args`` as arguments of a launch.

A kernel that is launched with tuples is another kernel to the rest of the runtime: one with a parameter for
each element. For ``def f(x, pair)``, launched with ``f[grid](a, (b, (3, None)))``, that is a kernel with
the parameters ``x, pair_0, pair_1_0, pair_1_1``, each specialised as any argument is. The frontend puts the
tuples together again, as ``__ptxforge_structure__`` tells:

    {"pair": Nested(tuple, ("pair_0", Nested(tuple, ("pair_1_0", "pair_1_1"))))}

What such a call costs beyond another is the walk over its tuples.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from ptxforge.language.constexpr import constexpr
from ptxforge.runtime.specialize import Parameter

Shape = Any
"""What tells apart two launches that need other parameters: of a tuple ``(class, shapes)``, of any other
argument whether it is a ``tl.constexpr``."""


@attrs.frozen(slots=True)
class Nested:
    """A tuple of the class ``kind``: the names of its elements' parameters, or tuples again."""

    kind: type
    parts: tuple


def holds_tuples(parameters: tuple[Parameter, ...], kinds: tuple[type, ...]) -> bool:
    """Whether arguments of these types have tuples where a kernel takes them apart."""
    pairs = zip(parameters, kinds, strict=True)
    return any(issubclass(kind, tuple) and not p.constexpr or p.variadic for p, kind in pairs)


def shapes_of(parameters: tuple[Parameter, ...], bound: tuple) -> tuple[Shape, ...]:
    """The shape of each argument."""
    pairs = zip(parameters, bound, strict=True)
    return tuple(False if p.constexpr and not p.variadic else _shape(value) for p, value in pairs)


def _shape(value: Any) -> Shape:
    if isinstance(value, tuple):
        return type(value), tuple(map(_shape, value))
    return isinstance(value, constexpr)


def flat(shapes: tuple[Shape, ...], bound: tuple) -> list[Any]:
    """The elements of all tuples among the arguments, in order."""
    return [leaf for shape, value in zip(shapes, bound, strict=True) for leaf in _leaves(shape, value)]


def _leaves(shape: Shape, value: Any) -> Iterator[Any]:
    if not isinstance(shape, tuple):
        yield value
        return
    for part, item in zip(shape[1], value, strict=True):
        yield from _leaves(part, item)


def flattened(
    kernel: Any, shapes: tuple[Shape, ...], make: Callable[[], Any]
) -> Any:
    """The kernel that takes the elements: ``make()``, with parameters of its own."""
    taken = set(kernel.arg_names)
    structure: dict[str, Nested] = {}
    parameters: list[Parameter] = []
    for parameter, shape in zip(kernel.params, shapes, strict=True):
        built = _parameters(parameter, parameter.name, shape, parameters, taken)
        if isinstance(built, Nested):
            structure[parameter.name] = built
    inner = make()
    inner.params = tuple(attrs.evolve(p, index=index) for index, p in enumerate(parameters))
    inner.arg_names = [p.name for p in parameters]
    outer = kernel.dependencies
    inner.dependencies = attrs.evolve(outer, text=f"{outer.text}\n# {structure!r}")
    inner.__ptxforge_structure__ = structure
    return inner


def _parameters(
    parameter: Parameter, name: str, shape: Shape, made: list[Parameter], taken: set[str]
) -> Nested | str:
    """Append the parameters of one argument; their names, nested as its elements are."""
    if isinstance(shape, tuple):
        kind, parts = shape
        names = (f"{name}_{index}" for index in itertools.count())
        return Nested(kind, tuple(_parameters(parameter, n, s, made, taken) for n, s in zip(names, parts)))
    if name != parameter.name:
        name = next(n for n in (name + "_" * k for k in itertools.count()) if n not in taken)
        taken.add(name)
    is_constexpr = parameter.constexpr or shape
    made.append(attrs.evolve(parameter, name=name, constexpr=is_constexpr, variadic=False))
    return name


class TuplePlan:
    """What ``kernel`` does with arguments that hold tuples. ``make`` makes a plain kernel of its function."""

    def __init__(self, kernel: Any, make: Callable[[], Any]):
        self._kernel, self._make = kernel, make
        self._inner: dict[Any, Any] = {}

    def __call__(self, grid: Any, *bound_and_options: Any) -> Any:
        """Launch; as the plans of :mod:`ptxforge.runtime.plans`."""
        *bound, given = bound_and_options
        if type(grid) is not tuple and callable(grid):
            grid = grid(dict(zip(self._kernel.arg_names, bound, strict=True)) | given)
        inner, values = self.of(tuple(bound))
        return self._noted(inner, inner.run(*values, grid=grid, **given))

    def of(self, bound: tuple) -> tuple[Any, list[Any]]:
        """The kernel for these arguments, and its own arguments."""
        shapes = shapes_of(self._kernel.params, bound)
        inner = self._inner.get(shapes)
        if inner is None:
            inner = self._inner[shapes] = flattened(self._kernel, shapes, self._make)
        return inner, flat(shapes, bound)

    def warmup(self, bound: tuple, given: dict[str, Any]) -> Any:
        """Compile without launching."""
        inner, values = self.of(bound)
        return self._noted(inner, inner.warmup(*values, **given))

    def kernels(self) -> list[Any]:
        """The kernels without tuples that stand behind the calls so far."""
        return list(self._inner.values())

    def _noted(self, inner: Any, variant: Any) -> Any:
        known = self._kernel.variants
        known.extend(found for found in inner.variants if found not in known)
        return variant
