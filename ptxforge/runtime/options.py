"""The options that a launch takes beside the kernel's own arguments.

Three kinds: what the compiler needs, what the launch itself needs, and what other Triton compilers need and
this one accepts because it asks for nothing else than what happens anyway.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ptxforge import compiler
from ptxforge.support.errors import ArgumentError

LAUNCH = ("stream", "warmup", "launch_cooperative_grid", "launch_pdl")

ACCEPTED: dict[str, tuple[tuple[Any, ...], str]] = {  # name -> (values accepted, what it means here)
    "extern_libs": ((None,), "math functions are ptxforge's own; no library but 'libdevice' is known"),
    "arch": ((None,), "kernels are compiled for the device that they run on; compile() takes a target"),
    "ir_override": ((None,), "triton.compile() takes files of ptxforge's IR"),
    "allow_fp8e4nv": ((True, False, None), "fp8 is converted in software where the target lacks it"),
}


@attrs.frozen(slots=True)
class Options:
    """Options of one launch, split by who reads them: ``compile`` is complete and sorted by name;
    ``cooperative`` makes all blocks of the grid resident at once, ``programmatic`` lets the kernel start
    before the one ahead of it in the stream has ended."""

    compile: tuple[tuple[str, Any], ...]
    stream: int | None = None
    cooperative: bool = False
    programmatic: bool = False

    def __getitem__(self, name: str) -> Any:
        return dict(self.compile)[name]


def names() -> tuple[str, ...]:
    """Every option's name."""
    return (*compiler.OPTIONS, *LAUNCH, *ACCEPTED)


def fuses_by_default() -> bool:
    """Whether products and sums become fused ones where a launch does not say. Triton's knobs put a function
    of theirs in its place."""
    return True


def tells_lines_by_default() -> bool:
    """Whether PTX has lines of the source where a launch does not say, as for :func:`fuses_by_default`."""
    return True


def parse(given: dict[str, Any]) -> Options:
    """Check options and fill in the defaults.

    Raises :class:`ArgumentError` for an unknown name (with the nearest known one) and for a value of an
    accepted option that would change what happens.
    """
    defaults = {"enable_fp_fusion": fuses_by_default(), "line_info": tells_lines_by_default()}
    chosen = dict(compiler.OPTIONS) | defaults
    for name, value in given.items():
        if name in chosen:
            chosen[name] = chosen[name] if value is None else value
        elif name in ACCEPTED:
            _check_accepted(name, value)
        elif name not in LAUNCH:
            raise ArgumentError(f"is neither a parameter of the kernel nor an option{nearest(name)}", name)
    return Options(
        tuple(sorted(chosen.items())),
        stream_handle(given.get("stream")),
        bool(given.get("launch_cooperative_grid")),
        bool(given.get("launch_pdl")),
    )


def _check_accepted(name: str, value: Any) -> None:
    values, meaning = ACCEPTED[name]
    if name == "extern_libs":
        check_libraries(value)
    elif value not in values and value != {}:
        raise ArgumentError(f"{value!r} is not supported: {meaning}", name)


def check_libraries(value: Any) -> None:
    """Raise :class:`ArgumentError` for libraries to link other than ``libdevice``, which is ptxforge's own
    wherever CUDA's lies."""
    named = value or {}
    if not isinstance(named, Mapping) or {*named} - {"libdevice"}:
        raise ArgumentError(f"{value!r} is not supported: {ACCEPTED['extern_libs'][1]}", "extern_libs")


def nearest(name: str, known: Sequence[str] = ()) -> str:
    """``; did you mean 'num_warps'?`` when a known name (an option, unless given) is close, else nothing."""
    close = difflib.get_close_matches(name, known or names(), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def stream_handle(stream: Any) -> int | None:
    """The handle of a stream given as an int, a torch or CuPy stream, or by ``__cuda_stream__``.

    Raises :class:`ArgumentError` for anything else.
    """
    if stream is None or isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return int(handle)
    raise ArgumentError(f"{stream!r} is not a stream", "stream")
