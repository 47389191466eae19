"""Compiled kernels without their source: those that were saved to a file, in Python, and a C header that
launches one through the CUDA driver's API.

The header holds the machine code (or the PTX, which the driver assembles) as bytes, so that a program needs
it and ``libcuda`` alone. For a kernel ``add`` it declares ``ptxforge_add_load``, ``ptxforge_add_launch`` and
what they are made of: the symbol, threads, shared bytes, parameters in order.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxforge import __version__
from ptxforge.compiler import Artifact, Assembly
from ptxforge.driver import arrays
from ptxforge.driver.protocol import Device
from ptxforge.runtime import cache, hooks, options, tools
from ptxforge.runtime.launcher import PreparedLaunch, normalize_grid, place, prepare
from ptxforge.runtime.options import explain_binding, make_binder
from ptxforge.runtime.refusals import of_launch
from ptxforge.runtime.specialize import Parameter, Specialization, packed, plain_scalar, specialize
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.support import container, dtypes, programs, tensor_map
from ptxforge.support.errors import ArgumentError, DeviceError, LaunchError, PtxforgeError

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

    def _no_substitute(self, bound: tuple, **other: bool) -> PreparedLaunch:
        most = self.artifact.most_programs
        if dict([programs.ANY]) == other:
            raise LaunchError(
                f"'{self.__name__}' was compiled for {most} programs along the first axis of the grid at "
                "most: with more, indices might wrap; compile it with any_grid=True"
            )
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
            what = "1" if alignment == "1" else f"multiples of {alignment}"
            raise ArgumentError(f"the kernel was compiled for {what}, not {value}", parameter.name)
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


_C_TYPES = {
    "i1": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t",
    "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "fp16": "uint16_t", "bf16": "uint16_t",
    "fp32": "float", "fp64": "double", "fp8e4nv": "uint8_t", "fp8e5": "uint8_t",
}  # fmt: skip
_PER_LINE = 16
_MORE_THAN_DEFAULT = 48 * 1024


def c_type(kind: str) -> str:
    """The C type of a parameter by its signature type; 16-bit and 8-bit floats go as their bits.

    Raises :class:`PtxforgeError` for a type that C has no parameter for.

    >>> c_type("*fp32:16"), c_type("i32"), c_type("bf16")
    ('CUdeviceptr', 'int32_t', 'uint16_t')
    """
    if kind.startswith("*"):
        return "CUdeviceptr"
    if kind == tensor_map.TYPE:
        return "CUtensorMap"
    if kind == programs.TYPE:
        return "int32_t"
    short = kind.partition(":")[0]
    if short not in _C_TYPES:
        raise PtxforgeError(f"a parameter of type '{kind}' has no type in C")
    return _C_TYPES[short]


def c_header(artifact: Artifact, image: bytes) -> str:
    """The text of the header. ``image`` is machine code, or PTX text with a zero byte at its end."""
    name = re.sub(r"\W", "_", artifact.name)
    parts = {
        "name": name, "upper": name.upper(), "symbol": artifact.name, "target": artifact.target,
        "version": __version__, "threads": artifact.threads, "shared": artifact.shared_bytes,
        "about": "\n".join(_about(artifact)), "image": _bytes(image), "size": len(image),
        "parameters": "".join(f", {_declared(kind, label)}" for label, kind in artifact.parameters),
        "addresses": ", ".join(_address(kind, label) for label, kind in artifact.parameters) or "0",
        "ctas": f"{artifact.num_ctas} * " if artifact.num_ctas > 1 else "",
        "opt_in": _OPT_IN if artifact.shared_bytes > _MORE_THAN_DEFAULT else "",
    }  # fmt: skip
    return _substituted(_HEADER, parts)


def _substituted(text: str, parts: dict[str, Any]) -> str:
    for _ in range(2):  # a part may contain others
        text = re.sub(r"@(\w+)@", lambda match: str(parts[match[1]]), text)
    return text


def _about(artifact: Artifact) -> list[str]:
    lines = []
    for name, kind in artifact.signature.items():
        if kind == "constexpr":
            lines.append(f" *   {name} = {_comment(repr(artifact.constants.get(name)))}, compiled in")
    for name, kind in artifact.parameters:
        if kind == tensor_map.TYPE:
            recipe = next(r for r in artifact.tensor_maps if r.name == name)
            lines.append(f" *   {name}: tensor map, {_comment(str(recipe))}")
        elif kind == programs.TYPE:
            lines.append(f" *   {name}: how many programs there are; the grid may have fewer blocks along x")
        else:
            lines.append(f" *   {name}: {_meaning(kind)}")
    if artifact.most_programs:
        lines.append(f" *   the grid has {artifact.most_programs} blocks along x at most")
    return lines + [f" *   {promise}" for promise in artifact.promises]


def _comment(text: str) -> str:
    return text.replace("*/", "* /")


def _meaning(kind: str) -> str:
    short, _, alignment = kind.partition(":")
    if short.startswith("*"):
        return f"pointer to {short.lstrip('*k')}" + (f", aligned to {alignment} bytes" if alignment else "")
    if alignment == "1":
        return f"{short}, always 1"
    return short + (f", a multiple of {alignment}" if alignment else "")


def _declared(kind: str, name: str) -> str:
    by_address = "const CUtensorMap *" if kind == tensor_map.TYPE else f"{c_type(kind)} "
    return f"{by_address}{name}"


def _address(kind: str, name: str) -> str:
    return f"(void *){name}" if kind == tensor_map.TYPE else f"&{name}"


def _bytes(image: bytes) -> str:
    rows = (image[start : start + _PER_LINE] for start in range(0, len(image), _PER_LINE))
    return "\n".join("    " + "".join(f"{value}," for value in row) for row in rows)


_OPT_IN = """
    if (result == CUDA_SUCCESS)
        result = cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    PTXFORGE_@upper@_SHARED_BYTES);"""

_HEADER = """\
/* Kernel '@symbol@' for @target@, made by ptxforge @version@.
 *
@about@
 *
 * A current context is needed:
 *   CUmodule module; CUfunction function;
 *   ptxforge_@name@_load(&module, &function);
 *   ptxforge_@name@_launch(function, grid_x, grid_y, grid_z, stream, ...);
 */
#ifndef PTXFORGE_@upper@_H
#define PTXFORGE_@upper@_H

#include <stdint.h>
#include <cuda.h>

#define PTXFORGE_@upper@_SYMBOL "@symbol@"
#define PTXFORGE_@upper@_TARGET "@target@"
#define PTXFORGE_@upper@_THREADS @threads@
#define PTXFORGE_@upper@_SHARED_BYTES @shared@
#define PTXFORGE_@upper@_IMAGE_BYTES @size@

static const unsigned char ptxforge_@name@_image[PTXFORGE_@upper@_IMAGE_BYTES] = {
@image@
};

static inline CUresult ptxforge_@name@_load(CUmodule *module, CUfunction *function)
{
    CUresult result = cuModuleLoadData(module, ptxforge_@name@_image);
    if (result == CUDA_SUCCESS)
        result = cuModuleGetFunction(function, *module, PTXFORGE_@upper@_SYMBOL);@opt_in@
    return result;
}

static inline CUresult ptxforge_@name@_launch(
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, CUstream stream@parameters@)
{
    void *arguments[] = {@addresses@};
    return cuLaunchKernel(function, @ctas@grid_x, grid_y, grid_z, PTXFORGE_@upper@_THREADS, 1, 1,
                          PTXFORGE_@upper@_SHARED_BYTES, stream, arguments, 0);
}

#endif
"""
