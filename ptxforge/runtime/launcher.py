"""A launch with everything decided that does not change from one call to the next.

:func:`prepare` makes, for one specialisation on one device, a :class:`PreparedLaunch`. What is left for each
call: the grid, the current stream, and one ``struct.pack`` of the values. On CUDA that is a function made for
the variant (:mod:`ptxforge.driver.cuda_launch`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import attrs

from ptxforge.driver import arrays
from ptxforge.driver.cuda_launch import CurrentStream, LaunchAttributes, Launcher
from ptxforge.driver.protocol import Device
from ptxforge.runtime import findings, slots
from ptxforge.runtime.devices import default_device, device
from ptxforge.runtime.lending import Loan, describe_arguments
from ptxforge.runtime.options import Options
from ptxforge.runtime.specialize import Parameter, Specialization
from ptxforge.runtime.tensor_descriptor import array_of, readdressed
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.support import programs
from ptxforge.support.errors import DeviceError, LaunchError, OtherVariantError, PlacementError
from ptxforge.support.machine import MAX_GRID

_MISSING_AXES = {1: (1, 1), 2: (1,)}
Substitute = Callable[..., "PreparedLaunch"]
"""Prepares, for the arguments of a launch, the one with other options: that takes no tensor maps
(``tensor_maps=False``), or a grid of any size (``any_grid=True``). (It must hold none of the arguments: it is
kept as long as the kernel.)"""


def normalize_grid(grid: Any) -> tuple[int, int, int]:
    """A grid of one to three integers, or an integer, as three. Raises :class:`LaunchError` for anything
    else."""
    axes = grid if type(grid) is tuple else _axes(grid)
    count = len(axes)
    if not 1 <= count <= 3:
        raise LaunchError(f"a grid has one to three axes, not {count}: {grid!r}")
    x, y, z = axes if count == 3 else axes + _MISSING_AXES[count]
    if (
        type(x) is type(y) is type(z) is int
        and 0 <= x <= MAX_GRID[0]
        and 0 <= y <= MAX_GRID[1]
        and 0 <= z <= MAX_GRID[2]
    ):
        return x, y, z
    return _checked_grid((x, y, z), grid)


def _axes(grid: Any) -> tuple:
    try:
        return tuple(grid)
    except TypeError:
        return (grid,)


def _checked_grid(axes: tuple, grid: Any) -> tuple[int, int, int]:
    """Axes that are integers of another kind (numpy's) as Python's; the error of those that cannot be."""
    plain = tuple(_as_integer(extent, grid) for extent in axes)
    for axis, (extent, limit) in enumerate(zip(plain, MAX_GRID, strict=True)):
        if not 0 <= extent <= limit:
            raise LaunchError(f"axis {axis} of the grid is {extent}; it can be from 0 to {limit}")
    return plain


def _as_integer(extent: Any, grid: Any) -> int:
    try:
        return extent.__index__()
    except (AttributeError, TypeError):
        raise LaunchError(f"the axes of a grid are integers: {grid!r}") from None


class PreparedLaunch:
    """One variant on one device, ready to be called with values.

    ``fire(x, y, z, stream, values, bound)`` launches: ``values`` and ``bound`` (the arguments as they were
    given) have an entry for every parameter of the kernel. ``follows_default``: no argument named a device.
    ``volatile``: ask :meth:`is_stale` before firing. ``launcher``: what launches on CUDA, else ``None``.
    """

    __slots__ = (
        "variant", "device", "follows_default", "volatile", "fire", "launcher",
        "_launch", "_pack", "_select", "_stream", "_host", "_names", "_substitute", "_others",
    )  # fmt: skip

    def __init__(
        self,
        variant: CompiledKernel,
        device: Device,
        follows_default: bool,
        types: list[str],
        sources: list[int | slots.Reader],
        stream: int | Callable[[tuple], int],
        host: list[int],
        names: list[str],
        attributes: LaunchAttributes,
        substitute: Substitute,
    ):
        self.variant = variant
        self.device = device
        self.follows_default = follows_default
        self.volatile = follows_default or findings.observes(device)
        self._host, self._names = host, names
        self._substitute, self._others = substitute, {}
        function = variant.function_on(device)
        shared = variant.artifact.shared_bytes
        self.launcher: Launcher | None = None
        if hasattr(function, "launcher"):
            codes = [slots.code_of(kind) for kind in types]
            made = function.launcher(codes, sources, variant.block, shared, stream, attributes)
            if host:
                self.fire = functools.partial(self._fire_pinned, made.once)
            else:
                self.launcher, self.fire = made, self._fire_first
            return
        ctas = variant.artifact.num_ctas
        self._launch = functools.partial(_launch, function.launch, variant.block, shared, ctas)
        if attributes.cooperative and hasattr(function, "resident_ctas"):
            most = function.resident_ctas(variant.block, shared) // ctas
            self._launch = functools.partial(_launch_together, self._launch, most)
        self._pack = slots.layout(types).pack
        self._select = slots.selector(sources)
        self._stream = stream
        in_place = bool(host) or findings.observes(device)
        self.fire = self._with_substitute(self._fire_in_place if in_place else self._fire)

    def _fire_first(self, *call: Any) -> None:
        """The first launch of a variant is often the only one of its process: nothing is made for others."""
        self.fire = self._fire_second
        self._with_substitute(self.launcher.once)(*call)

    def _fire_second(self, *call: Any) -> None:
        fire = self.launcher.fire(self._fire_on_any_grid)
        self.fire = self._with_substitute(fire) if self._may_make_no_maps else fire
        self.fire(*call)

    def _fire_pinned(self, fire: Callable, *call: Any) -> None:
        """Launch on a GPU with arrays that lie in host memory. Whether they may is asked each time: equal
        keys do not tell."""
        bound = call[-1]
        for index in self._host:
            if not arrays.is_pinned(array_of(bound[index])):
                raise _out_of_reach(self._names[index], self.device)
        self._with_substitute(fire)(*call)

    @property
    def _may_make_no_maps(self) -> bool:
        artifact = self.variant.artifact
        return bool(artifact.tensor_maps and artifact.options.get("tensor_maps"))

    def _with_substitute(self, fire: Callable) -> Callable:
        """``fire``; if the compiler chose to read by tensor maps and the arguments make none, the kernel that
        reads by pointers instead, and for a larger grid than the kernel is for, that for any: made when they
        are first needed."""
        if not self._may_make_no_maps and not self.variant.artifact.most_programs:
            return fire

        def fire_either(*call: Any) -> None:
            try:
                return fire(*call)
            except OtherVariantError as error:
                other = self._other(call[-1], error.option)
            return other.fire(*call)

        return fire_either

    def _fire_on_any_grid(self, *call: Any) -> None:
        """Launch the variant for grids of any size."""
        self._other(call[-1], programs.ANY).fire(*call)

    def _other(self, bound: tuple, option: tuple[str, bool]) -> PreparedLaunch:
        if option not in self._others:
            self._others[option] = self._substitute(bound, **dict([option]))
        return self._others[option]

    def is_stale(self) -> bool:
        """Whether the default device or the emulator's target has become another since this was prepared;
        asked only when :attr:`volatile`."""
        if self.launcher is None and self.device.target != self.variant.artifact.target:
            return True  # the emulator's is a setting; a GPU's stays
        return self.follows_default and self.device is not default_device()

    def _fire(self, x: int, y: int, z: int, stream: int | None, values: tuple, bound: tuple) -> None:
        if stream is None:
            stream = self._stream(bound) if callable(self._stream) else self._stream
        grid = normalize_grid((x, y, z))
        programs.check_count(grid[0], self.variant.artifact.most_programs)
        packed = self._pack(*self._select((*values, grid[0])))
        self._launch(slots.blocks_of(self.variant.artifact, self.device, grid), stream, packed)

    def _fire_in_place(self, x: int, y: int, z: int, stream: int | None, values: tuple, bound: tuple) -> None:
        """Launch where a launch is done when it returns: on the emulator, which has findings and borrows host
        arrays."""
        values = list(values)
        loan = Loan(self.device, [array_of(bound[index]) for index in self._host])
        for index, address in zip(self._host, loan.addresses, strict=True):
            values[index] = readdressed(values[index], address)
        try:
            fire = functools.partial(self._fire, x, y, z, stream, values, bound)
            for listener in findings.before:
                listener(attrs.evolve(self._launched((x, y, z), values, bound), again=fire))
            fire()
        except OtherVariantError:
            raise
        except DeviceError as error:
            raise findings.explained(self._launched((x, y, z), values, bound), error) from None
        finally:
            loan.end()
        if self.device.findings or findings.listeners:
            findings.tell(self._launched((x, y, z), values, bound))

    def _launched(self, grid: tuple, values: list, bound: tuple) -> findings.Launch:
        arguments = describe_arguments(self._names, values, bound)
        by_name = dict(zip(self._names, values, strict=True))
        return findings.Launch(self.variant, self.device, grid, arguments, by_name)


def _launch_together(launch: Callable, most: int, grid: tuple, stream: int, params: bytes) -> None:
    """Launch a cooperative grid where no driver decides whether it can be."""
    blocks = math.prod(grid)
    if blocks > most:
        raise LaunchError(
            f"a cooperative grid has all its blocks on the machine at once: {most} fit, and {grid} are "
            f"{blocks}"
        )
    launch(grid, stream, params)


def _launch(
    launch: Callable, block: tuple, shared: int, ctas: int, grid: tuple, stream: int, params: bytes
) -> None:
    x, y, z = grid
    launch((x * ctas, y, z), block, shared, stream, params)


def prepare(
    parameters: tuple[Parameter, ...],
    specializations: list[Specialization],
    variant: CompiledKernel,
    where: Device,
    bound: tuple,
    chosen: Options,
    substitute: Substitute,
) -> PreparedLaunch:
    """Decide what can be decided for a variant on the device ``where``, once for all launches that are
    alike."""
    key = where, chosen, tuple(map(type, bound)), tuple(s.device for s in specializations)
    known = variant.prepared.get(key)
    if known is None:
        known = variant.prepared[key] = PreparedLaunch(
            variant,
            where,
            follows_default=all(s.device is None or s.on_host for s in specializations),
            types=[kind for _, kind in variant.artifact.parameters],
            sources=slots.sources(parameters, variant.artifact, where),
            stream=_stream_source(specializations, bound, where),
            host=[index for index, s in enumerate(specializations) if s.on_host],
            names=[parameter.name for parameter in parameters],
            attributes=LaunchAttributes(
                chosen.cooperative, chosen.programmatic, (variant.artifact.num_ctas, 1, 1),
                variant.artifact.most_programs,
            ),  # fmt: skip
            substitute=substitute,
        )
    return known


def place(
    parameters: tuple[Parameter, ...], specializations: list[Specialization], bound: tuple | None = None
) -> Device:
    """The device that the arguments lie on; without arrays, or with host arrays only, the default device.
    ``bound`` are the arguments themselves, for a launch.

    Raises :class:`PlacementError`, with the argument's name, for arrays on two devices and for a host array
    that a GPU would have to read and cannot, because it is not pinned.
    """
    chosen, chooser = None, ""
    for parameter, made in zip(parameters, specializations, strict=True):
        if made.device is None or made.on_host:
            continue
        here = device(made.device) if isinstance(made.device, str) else made.device
        if chosen is None:
            chosen, chooser = here, parameter.name
        elif here is not chosen:
            raise PlacementError(f"is on {here.name}, but '{chooser}' is on {chosen.name}", parameter.name)
    chosen = chosen or default_device()
    if chosen.name.startswith("cuda"):
        _refuse_host_arrays(parameters, specializations, chosen, bound or (None,) * len(parameters))
    return chosen


def _refuse_host_arrays(parameters, specializations, chosen: Device, bound: tuple) -> None:
    for parameter, made, value in zip(parameters, specializations, bound, strict=True):
        if made.on_host and not arrays.is_pinned(array_of(value)):
            raise _out_of_reach(parameter.name, chosen)


def _out_of_reach(name: str, chosen: Device) -> PlacementError:
    return PlacementError(
        f"is a CPU array, and the kernel runs on {chosen.name}; copy it there with "
        "ptxforge.to_device(array), or set PTXFORGE_DEVICE=emulator to run on the CPU",
        name,
    )


def _stream_source(
    specializations: list[Specialization], bound: tuple, where: Device
) -> int | Callable[[tuple], int]:
    """How a call finds its stream: the one that the first GPU array's owner works on, or torch where a GPU
    gets pinned tensors only, else the default stream."""
    for index, made in enumerate(specializations):
        if not isinstance(made.device, str) or made.on_host:
            continue
        value = array_of(bound[index])
        if type(value).__module__.partition(".")[0] == "torch":
            return _torch_stream(int(made.device.partition(":")[2] or 0))
        if hasattr(value, "__cuda_array_interface__"):
            return lambda bound: _stream_of(array_of(bound[index]))
    if where.name.startswith("cuda") and any(made.on_host for made in specializations):
        return _torch_stream(where.ordinal)
    return arrays.LEGACY_STREAM


def _stream_of(array: Any) -> int:
    return array.__cuda_array_interface__.get("stream") or arrays.LEGACY_STREAM


def _torch_stream(ordinal: int) -> CurrentStream:
    return CurrentStream(arrays.torch_stream_getter(), ordinal)
