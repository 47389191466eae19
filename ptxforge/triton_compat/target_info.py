"""``triton.language.target_info``: questions about the target; kernels ask them while they are compiled."""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import constexpr_function
from ptxforge.triton_compat.drivers import driver


def current_target() -> Any:
    """What kernels are compiled for on the default device."""
    return driver.active.get_current_target()


current_target.__triton_builtin__ = True  # type: ignore[attr-defined] - kernels may call it as it is


@constexpr_function
def is_cuda() -> bool:
    """Whether the target is NVIDIA's, which the emulator's is as well."""
    return current_target().backend in ("cuda", "cpu")


@constexpr_function
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Whether the compute capability is at least that."""
    return current_target().arch >= 10 * major + minor


@constexpr_function
def is_hip() -> bool:
    """Whether the target is AMD's: never."""
    return False


is_hip_cdna3 = is_hip_cdna4 = is_hip
