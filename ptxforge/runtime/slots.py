"""From the arguments of a call to the parameters of the PTX kernel.

*Where each comes from.* Most are arguments of the call as they are; a tensor descriptor is several
parameters. Tensor maps are encoded from the values of other parameters; the last ones that were made are
kept, by those values, so that a launch pays for a look-up only.

*The parameter buffer.* PTX's ABI puts each parameter at its natural alignment, in order.

*Tuples, named tuples and* ``*args``. A kernel that is launched with them is another kernel to the rest of the
runtime: one with a parameter for each element. For ``def f(x, pair)``, launched with
``f[grid](a, (b, (3, None)))``, that is a kernel with the parameters ``x, pair_0, pair_1_0, pair_1_1``, each
specialised as any argument is. The frontend puts the tuples together again, as ``__ptxforge_structure__``
tells:

    {"pair": Nested(tuple, ("pair_0", Nested(tuple, ("pair_1_0", "pair_1_1"))))}

What such a call costs beyond another is the walk over its tuples.

*Triton's own launch function* of a compiled kernel, which generated code and profilers call.

    kernel.run(grid_x, grid_y, grid_z, stream, kernel.function, kernel.packed_metadata,
               launch_metadata, enter_hook, exit_hook, *arguments)

Every parameter of the kernel has its argument, constants too. Nothing is specialised or checked: the caller
knows that this variant fits.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import attrs

from ptxforge.compiler import Artifact
from ptxforge.driver import arrays
from ptxforge.driver.protocol import Checked, Device, natural_places, parameter_format
from ptxforge.language.constexpr import constexpr
from ptxforge.runtime import findings
from ptxforge.runtime.lending import Loan, describe_arguments
from ptxforge.runtime.specialize import Parameter
from ptxforge.runtime.tensor_descriptor import parts_of
from ptxforge.support import descriptor, dtypes, programs, tensor_map
from ptxforge.support.errors import ArgumentError, DeviceError
from ptxforge.support.promises import Promise
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
    made: list[int | Reader] = []
    for name, kind in artifact.parameters:
        if kind == tensor_map.TYPE:
            made.append(_tensor_map(recipes[name], index, device))
        else:
            made.append(programs.PLACE if kind == programs.TYPE else _checked(name, index, artifact))
    return made


def _checked(name: str, index: dict[str, int | Reader], artifact: Artifact) -> int | Reader:
    """Where a parameter comes from; it is checked on its way if the kernel takes something for granted of
    it, and is the first of those that this is about."""
    source = index[name]
    for promise in artifact.promises:
        if promise.entry == name and isinstance(source, int):
            source = Checked(source, promise.divisor - 1, promise.broken)
        elif promise.parameters[0] == name:
            source = _checking(promise, source, index)
    return source


def _checking(promise: Promise, source: int | Reader, index: dict[str, int | Reader]) -> Reader:
    names = promise.parameters
    read, taken = selector([index[name] for name in names]), selector([source])

    def checking(values: Sequence[Any]) -> Any:
        promise.check(dict(zip(names, read(values))).__getitem__)
        return taken(values)[0]

    return checking


def _place(source: int | Reader) -> int | Reader:
    return source.place if isinstance(source, Checked) else source


def blocks_of(artifact: Artifact, device: Device, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """The grid that is launched for one that a caller asked for."""
    if not programs.is_persistent(artifact.parameters):
        return grid
    return programs.blocks(grid, device.multiprocessors)


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


_CODES = {  # signature type -> struct's code
    "i1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp16": "e", "fp32": "f", "fp64": "d", "bf16": "H", "fp8e4nv": "B", "fp8e5": "B",
}  # fmt: skip
_POINTER, _TENSOR_MAP = "Q", f"{tensor_map.BYTES}s"
_HIDDEN = {tensor_map.TYPE: _TENSOR_MAP, programs.TYPE: "i"}


def code_of(type_text: str) -> str:
    """``struct``'s code for a signature type. Raises :class:`ArgumentError` for text that is none.

    >>> code_of("*fp32:16"), code_of("i32:16"), code_of("bf16")
    ('Q', 'i', 'H')
    """
    if type_text.startswith("*"):
        return _POINTER
    if type_text in _HIDDEN:
        return _HIDDEN[type_text]
    short = type_text.split(":")[0]
    try:
        return _CODES[dtypes.parse(short).short]
    except KeyError:
        raise ArgumentError(f"'{type_text}' is not a type of a kernel's parameter") from None


def layout(types: list[str]) -> struct.Struct:
    """The packer of a whole buffer, padding included.

    >>> layout(["i32", "*fp32", "i1", "fp16"]).format
    '<i4xQ?1xe'
    >>> layout(["i32", "tensormap", "i32"]).format
    '<i60x128si'
    """
    codes = list(map(code_of, types))
    return struct.Struct("<" + parameter_format(codes, natural_places(map(struct.calcsize, codes)))[0])


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
        return self.kernel(shapes), flat(shapes, bound)

    def kernel(self, shapes: tuple[Shape, ...]) -> Any:
        """The kernel that takes the elements of tuples of these shapes."""
        inner = self._inner.get(shapes)
        if inner is None:
            inner = self._inner[shapes] = flattened(self._kernel, shapes, self._make)
        return inner

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


Launcher = Callable[..., None]


def raw_launcher(variant: Any, device: Device) -> Launcher:
    """The launch function of a :class:`~ptxforge.runtime.variant.CompiledKernel` on ``device``. It takes
    tuples where ``variant.src.shapes`` tells of some, and raises :class:`ArgumentError` for others."""
    made = variant.artifact
    elements = _elements_of(getattr(variant.src, "shapes", ()), variant.name)
    names = [name for item in made.signature.items() for name in descriptor.parameter_names(*item)]
    sources = sources_in({name: place for place, name in enumerate(names)}, made, device)
    read = selector(sources)
    packer = layout([kind for _, kind in made.parameters])
    if findings.observes(device):
        return _Emulated(variant, device, names, sources, packer, elements)
    launch, block, shared = variant.function_on(device).launch, variant.block, made.shared_bytes
    pack = packer.pack
    blocks = functools.partial(blocks_of, made, device)

    def run(x, y, z, stream, handle, packed_metadata, launch_metadata, enter, leave, *arguments) -> None:
        if enter:
            enter(launch_metadata)
        if x > 0 and y > 0 and z > 0:
            values = [_plain(value) for value in _parts(elements(arguments))]
            launch(blocks((x, y, z)), block, shared, stream, pack(*read([*values, x])))
        if leave:
            leave(launch_metadata)

    return run


class _Emulated:
    """The launch function on the emulator, which borrows the memory of CPU arrays, is done when it returns,
    and has findings."""

    def __init__(
        self,
        variant: Any,
        device: Device,
        names: list[str],
        sources: list[int | Reader],
        packer: struct.Struct,
        elements: Callable[[tuple], Sequence[Any]],
    ):
        self._variant, self._device, self._packer, self._elements = variant, device, packer, elements
        self._read = selector(sources)
        places = [place for place in map(_place, sources) if isinstance(place, int)]
        self._kept = [place for place in places if place != programs.PLACE]
        self._names = [names[place] for place in self._kept]
        self._function = variant.function_on(device)

    def __call__(self, x, y, z, stream, handle, packed_metadata, launch_metadata, enter, leave, *arguments):
        if enter:
            enter(launch_metadata)
        if x > 0 and y > 0 and z > 0:
            self._launch((x, y, z), _parts(self._elements(arguments)))
        if leave:
            leave(launch_metadata)

    def _launch(self, grid: tuple[int, int, int], given: Sequence[Any]) -> None:
        device, variant = self._device, self._variant
        on_host = [place for place, value in enumerate(given) if _is_on_host(value)]
        values = [_plain(value) for value in given]
        loan = Loan(device, [given[place] for place in on_host])
        for place, address in zip(on_host, loan.addresses, strict=True):
            values[place] = address
        kept, bound = ([of[place] for place in self._kept] for of in (values, given))
        launched = findings.Launch(variant, device, grid, describe_arguments(self._names, kept, bound))
        try:
            packed = self._packer.pack(*self._read([*values, grid[0]]))
            x, y, z = blocks_of(variant.artifact, device, grid)
            ctas = x * variant.artifact.num_ctas, y, z
            self._function.launch(ctas, variant.block, variant.artifact.shared_bytes, 0, packed)
        except DeviceError as error:
            raise findings.explained(launched, error) from None
        finally:
            loan.end()
        if device.findings or findings.listeners:
            findings.tell(launched)


def _elements_of(shapes: tuple[Shape, ...], kernel: str) -> Callable[[tuple], Sequence[Any]]:
    """What takes the elements out of the tuples of a launch, where a kernel takes any."""
    if not any(isinstance(shape, tuple) for shape in shapes):
        return lambda arguments: arguments

    def elements(arguments: tuple) -> list[Any]:
        try:
            return flat(shapes, arguments)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"'{kernel}' was compiled for arguments nested as {_spelled(shapes)}, not as {arguments!r}"
            ) from None

    return elements


def _spelled(shapes: tuple[Shape, ...]) -> str:
    """The nesting of arguments as text.

    >>> _spelled((False, (tuple, (False, (tuple, (True,))))))
    '(_, (_, (_,)))'
    """
    parts = [_spelled(shape[1]) if isinstance(shape, tuple) else "_" for shape in shapes]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _parts(arguments: Sequence[Any]) -> list[Any]:
    return [part for argument in arguments for part in parts_of(argument)]


def _is_on_host(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return False
    found = arrays.view(value)
    return found is not None and found.device == "cpu"


def _plain(value: Any) -> Any:
    """What is packed for an argument: an array's address, a number."""
    if isinstance(value, (int, float)):
        return value
    found = arrays.view(value)
    return value if found is None else found.address
