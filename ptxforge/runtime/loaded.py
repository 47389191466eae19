"""Kernels that were saved to a file: launched without their source, without a compiler."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxforge.compiler import Artifact, Assembly
from ptxforge.driver import arrays
from ptxforge.driver.protocol import Device
from ptxforge.runtime import cache, hooks, options, tools
from ptxforge.runtime.binder import explain_binding, make_binder
from ptxforge.runtime.launcher import PreparedLaunch, normalize_grid, place, prepare
from ptxforge.runtime.refusals import of_launch
from ptxforge.runtime.specialize import Parameter, Specialization, packed, plain_scalar, specialize
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.support import container, dtypes
from ptxforge.support.errors import ArgumentError, DeviceError, PtxforgeError

KIND = "saved kernel"


class LoadedKernel:
    """What :func:`load` gives: ``kernel[grid](*args)`` with the parameters that are no constants, in order or
    by name. ``asm`` has ``ptx``, ``cubin`` and ``sass``; ``artifact`` the facts."""

    def __init__(self, artifact: Artifact, machine_code: bytes | None = None):
        self.artifact = artifact
        self._machine_code = machine_code
        self.__name__ = artifact.name
        self.asm = artifact.asm
        names = [name for name, kind in artifact.signature.items() if kind != "constexpr"]
        self.params = tuple(Parameter(name, index) for index, name in enumerate(names))
        self.arg_names = names
        self._bind = make_binder(self.params)
        self._variants: dict[int, CompiledKernel] = {}
        self._prepared: dict[tuple, PreparedLaunch] = {}

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {self.artifact.signature[name]}" for name in self.arg_names)
        return f"<LoadedKernel {self.__name__}({types}) for {self.artifact.target}>"

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return functools.partial(self.run, grid)

    def run(self, grid: Any, *args: Any, **kwargs: Any) -> None:
        """Launch. Raises :class:`ArgumentError` for an argument that is not of the saved type, and what a
        launch raises."""
        try:
            bound, given = self._bind(*args, **kwargs)
        except TypeError as error:
            wrong = explain_binding(self.params, self.__name__, args, kwargs)
            raise ArgumentError(wrong) if wrong else error from None
        stream = options.stream_handle(given.pop("stream", None))
        chosen = options.parse(given)
        if callable(grid):
            grid = grid(dict(zip(self.arg_names, bound, strict=True)))
        axes = normalize_grid(grid)
        made = [self._fitting(p, value) for p, value in zip(self.params, bound, strict=True)]
        device = place(self.params, made, bound)
        key = (
            id(device),
            tuple((s.device, type(v)) for s, v in zip(made, bound, strict=True)),
            *given.items(),
        )
        prepared = self._prepared.get(key)
        if prepared is None:
            variant = self._variant(device)
            prepared = prepare(self.params, made, variant, device, bound, chosen, self._no_substitute)
            self._prepared[key] = prepared
        if 0 in axes:
            return
        values = tuple(map(self._value, self.params, bound))
        try:
            prepared.fire(*axes, stream, values, bound)
        except (OverflowError, hooks.PackingError, DeviceError) as error:
            raise of_launch(self.params, error, prepared, values, axes) from None

    def _no_substitute(self) -> PreparedLaunch:
        raise ArgumentError(
            f"'{self.__name__}' was compiled to read by tensor maps, and these arguments make none; "
            "compile it with tensor_maps=False for arguments of any shape"
        )

    def _variant(self, device: Device) -> CompiledKernel:
        variant = self._variants.get(id(device))
        if variant is None:
            variant = self._variants[id(device)] = CompiledKernel(self.artifact, device, src=self)
            variant.machine_code = self._machine_code
        return variant

    def _fitting(self, parameter: Parameter, value: Any) -> Specialization:
        """What an argument is, if it is what the kernel was compiled for. Raises :class:`ArgumentError`."""
        wanted = self.artifact.signature[parameter.name]
        made = specialize(parameter, value)
        if wanted.startswith("*"):
            kind, _, alignment = wanted.partition(":")
            found, _, aligned = made.type.partition(":")
            if found != kind.replace("*k", "*") or (alignment and not aligned):
                raise ArgumentError(
                    f"the kernel was compiled for {wanted}, and this is {made.type}", parameter.name
                )
            return made
        if made.device is not None or not isinstance(plain_scalar(value), (bool, int, float)):
            raise ArgumentError(
                f"the kernel was compiled for {wanted}, and this is {made.type}", parameter.name
            )
        short, _, alignment = wanted.partition(":")
        typed = Parameter(parameter.name, parameter.index, dtype=dtypes.parse(short))
        exact = specialize(typed, value)
        if alignment and not exact.type.endswith(f":{alignment}"):
            raise ArgumentError(
                f"the kernel was compiled for multiples of {alignment}, not {value}", parameter.name
            )
        return exact

    def _value(self, parameter: Parameter, value: Any) -> Any:
        """What is packed for an argument."""
        wanted = self.artifact.signature[parameter.name]
        if wanted.startswith("*"):
            return arrays.view(value).address
        return packed(dtypes.parse(wanted.partition(":")[0]), plain_scalar(value))


def load(path: str | os.PathLike) -> LoadedKernel:
    """The kernel that :meth:`Artifact.save` wrote to a file.

    Raises :class:`PtxforgeError` for a file that is damaged, or holds something else; ``OSError`` for one
    that cannot be read. Nothing in the file is executed but the kernel itself.
    """
    try:
        facts, sections = container.unpack(Path(path).read_bytes(), KIND)
        artifact = cache.restore(facts, sections, lambda: _without_source(str(path)))
        artifact.constants.update(facts.get("constants", {}))
    except (container.DamagedFileError, ValueError, KeyError, TypeError) as error:
        raise PtxforgeError(f"{path} holds no saved kernel: {error}") from None
    known = {name: data for name, data in sections.items() if name == "cubin"}
    texts = Assembly({"ptx": artifact.ptx, **known})
    artifact.asm = tools.with_machine_code(texts, lambda: tools.machine_code(artifact.ptx, artifact.target))
    return LoadedKernel(artifact, sections.get("cubin"))


def _without_source(path: str) -> Artifact:
    raise PtxforgeError(f"{path} holds a kernel's PTX, and not the IR that it was made of")
