"""Where the parameters of the PTX kernel come from at a launch.

Most are arguments of the call as they are; a tensor descriptor is several parameters. Tensor maps are encoded
from the values of other parameters; the last ones that were made are kept, by those values, so that a launch
pays for a look-up only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from ptxforge.compiler import Artifact
from ptxforge.driver.protocol import Device
from ptxforge.runtime.specialize import Parameter
from ptxforge.support import descriptor, tensor_map
from ptxforge.support.tensor_map import TensorMapRecipe

Reader = Callable[[Sequence[Any]], Any]
"""Takes a parameter's value out of the values of a call, which has one for every argument."""

_KEPT = 1024


def sources(parameters: tuple[Parameter, ...], artifact: Artifact, device: Device) -> list[int | Reader]:
    """Where each parameter of the PTX kernel comes from, in order: the place of a value among those of a call
    (constants are compiled in), or what makes it of them."""
    index = _places(parameters, artifact)
    return sources_in(index, artifact, device)


def sources_in(index: dict[str, int | Reader], artifact: Artifact, device: Device) -> list[int | Reader]:
    """As :func:`sources`, where ``index`` says of each parameter that is no tensor map where it comes
    from."""
    recipes = {recipe.name: recipe for recipe in artifact.tensor_maps}
    return [
        _tensor_map(recipes[name], index, device) if kind == tensor_map.TYPE else index[name]
        for name, kind in artifact.parameters
    ]


def _places(parameters: tuple[Parameter, ...], artifact: Artifact) -> dict[str, int | Reader]:
    """Where each parameter is among the values of a call. Those behind a tensor descriptor are the parts of
    one value."""
    places: dict[str, int | Reader] = {}
    for parameter in parameters:
        kind = artifact.signature.get(parameter.name, "")
        if not descriptor.is_descriptor(kind):
            places[parameter.name] = parameter.index
            continue
        for position, (name, _) in enumerate(descriptor.parse(kind).parameters(parameter.name)):
            places[name] = _part(parameter.index, position)
    return places


def _part(index: int, position: int) -> Reader:
    return lambda values: values[index][position]


def selector(sources: list[int | Reader]) -> Reader:
    """What takes all parameters, in order, out of the values of a call."""
    if all(isinstance(source, int) for source in sources):
        return _items(sources)
    readers = [itemgetter(source) if isinstance(source, int) else source for source in sources]
    return lambda values: tuple([read(values) for read in readers])


def _items(indices: list[int]) -> Reader:
    if len(indices) == 1:
        (only,) = indices
        return lambda values: (values[only],)
    return itemgetter(*indices) if indices else lambda values: ()


def _tensor_map(recipe: TensorMapRecipe, index: dict[str, int | Reader], device: Device) -> Reader:
    names = recipe.parameters
    read = selector([index[name] for name in names])
    made: dict[tuple, bytes] = {}

    def encoded(values: Sequence[Any]) -> bytes:
        key = read(values)
        found = made.get(key)
        if found is None:
            if len(made) >= _KEPT:
                made.clear()
            found = made[key] = recipe.encode(device, dict(zip(names, key)).__getitem__)
        return found

    return encoded
