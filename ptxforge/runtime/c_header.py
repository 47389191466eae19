"""A C header that launches one compiled kernel through the CUDA driver's API, for programs without Python.

The header holds the machine code (or the PTX, which the driver assembles) as bytes, so that a program needs
it and ``libcuda`` alone. For a kernel ``add`` it declares ``ptxforge_add_load``, ``ptxforge_add_launch`` and
what they are made of: the symbol, threads, shared bytes, parameters in order.
"""

from __future__ import annotations

import re
from typing import Any

from ptxforge import __version__
from ptxforge.compiler import Artifact
from ptxforge.support import tensor_map
from ptxforge.support.errors import PtxforgeError

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
    short = kind.partition(":")[0]
    if short not in _C_TYPES:
        raise PtxforgeError(f"a parameter of type '{kind}' has no type in C")
    return _C_TYPES[short]


def c_header(artifact: Artifact, image: bytes) -> str:
    """The text of the header. ``image`` is machine code, or PTX text with a zero byte at its end."""
    name = re.sub(r"\W", "_", artifact.name)
    parts = {
        "name": name, "upper": name.upper(), "symbol": artifact.name, "target": artifact.target,
        "version": __version__, "threads": 32 * artifact.num_warps, "shared": artifact.shared_bytes,
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
        else:
            lines.append(f" *   {name}: {_meaning(kind)}")
    return lines


def _comment(text: str) -> str:
    return text.replace("*/", "* /")


def _meaning(kind: str) -> str:
    short, _, alignment = kind.partition(":")
    if short.startswith("*"):
        return f"pointer to {short.lstrip('*k')}" + (f", aligned to {alignment} bytes" if alignment else "")
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
