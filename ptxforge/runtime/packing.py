"""The parameter buffer of a kernel: PTX's ABI puts each parameter at its natural alignment, in order."""

from __future__ import annotations

import struct

from ptxforge.support import dtypes, tensor_map
from ptxforge.support.errors import ArgumentError

_CODES = {  # signature type -> struct's code
    "i1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp16": "e", "fp32": "f", "fp64": "d", "bf16": "H", "fp8e4nv": "B", "fp8e5": "B",
}  # fmt: skip
_POINTER, _TENSOR_MAP = "Q", f"{tensor_map.BYTES}s"


def code_of(type_text: str) -> str:
    """``struct``'s code for a signature type. Raises :class:`ArgumentError` for text that is none.

    >>> code_of("*fp32:16"), code_of("i32:16"), code_of("bf16")
    ('Q', 'i', 'H')
    """
    if type_text.startswith("*"):
        return _POINTER
    if type_text == tensor_map.TYPE:
        return _TENSOR_MAP
    short = type_text.split(":")[0]
    try:
        return _CODES[dtypes.parse(short).short]
    except KeyError:
        raise ArgumentError(f"'{type_text}' is not a type of a kernel's parameter") from None


def layout(types: list[str]) -> struct.Struct:
    """The packer of a whole buffer, padding included.

    >>> layout(["i32", "*fp32", "i1", "fp16"]).format
    '<i4xQ?xe'
    >>> layout(["i32", "tensormap", "i32"]).format
    '<i60x128si'
    """
    text, offset = "<", 0
    for code in map(code_of, types):
        size = struct.calcsize(f"<{code}")
        padding = -offset % (tensor_map.ALIGNMENT if code == _TENSOR_MAP else size)
        text += (f"{padding}x" if padding > 1 else "x" * padding) + code
        offset += padding + size
    return struct.Struct(text)
