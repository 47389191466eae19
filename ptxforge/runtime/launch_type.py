"""The type of ``kernel[grid]``, for type checkers and editors."""

from __future__ import annotations

from typing import Any, Protocol


class Launch(Protocol):
    """What ``kernel[grid]`` is: arguments as the kernel names them, options beside them."""

    def __call__(
        self,
        *args: Any,
        num_warps: int = ...,
        num_stages: int = ...,
        num_ctas: int = ...,
        maxnreg: int | None = ...,
        enable_fp_fusion: bool = ...,
        stream: Any = ...,
        **kwargs: Any,
    ) -> Any:
        """Launch; the variant that ran."""
