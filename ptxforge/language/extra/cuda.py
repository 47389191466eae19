"""What is particular to NVIDIA's GPUs: clocks and multiprocessors, launches that overlap, the device library.

Wrong arguments are compile-time errors.
"""

from __future__ import annotations

from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra import libdevice
from ptxforge.language.instructions import inline_asm_elementwise
from ptxforge.language.registry import builtin, library
from ptxforge.language.types import int32, int64, tensor

__all__ = [
    "convert_custom_float8", "convert_custom_float8_sm70", "convert_custom_float8_sm80",
    "gdc_launch_dependents", "gdc_wait", "globaltimer", "libdevice", "num_threads", "num_warps", "smid",
]  # fmt: skip


@library
def globaltimer():
    """The GPU's clock in nanoseconds, as an int64: ``%globaltimer``, read here and each time.

    How often it advances depends on the GPU (every 32 ns to every microsecond).

        start = tl.extra.cuda.globaltimer()
    """
    return inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], int64, False, 1)


@library
def smid():
    """The number of the multiprocessor that the program runs on, as an int32: ``%smid``."""
    return inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], int32, True, 1)


@builtin
def num_warps() -> constexpr:
    """The number of warps that run the program, a compile-time integer."""


@builtin
def num_threads() -> constexpr:
    """The number of threads that run the program, a compile-time integer: 32 for each warp."""


@builtin
def gdc_wait() -> tensor:
    """Wait until the kernels before this one in the stream have ended or let it go on, and their writes are
    visible (``griddepcontrol.wait``; sm_90 and later, else an error). Without them it does nothing.

    In a launch with ``launch_pdl=True``, call it before the first access to what they write.
    """


@builtin
def gdc_launch_dependents() -> tensor:
    """Let the next kernel of the stream start, if it was launched with ``launch_pdl=True``, when all programs
    have come here or ended (``griddepcontrol.launch_dependents``; sm_90 and later, else an error).

    It sees the writes of this kernel only after its ``gdc_wait()``.
    """


@library
def convert_custom_float8(arg, dst_ty, fp_downcast_rounding=None):
    """``arg``, a float8e4b15, as ``dst_ty``, or to float8e4b15 as that is ``dst_ty``: what ``arg.to(dst_ty)``
    does. The rounding is this type's own: ``fp_downcast_rounding`` is ignored, as in Triton.
    """
    return arg.to(dst_ty)


convert_custom_float8_sm70 = convert_custom_float8_sm80 = convert_custom_float8
