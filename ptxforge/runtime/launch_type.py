"""What launches, and the type of ``kernel[grid]`` for type checkers and editors."""

from __future__ import annotations

import functools
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


class KernelInterface:
    """Anything that launches with ``kernel[grid](...)``: jitted functions, autotuners, heuristics, and what
    users derive from it."""

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch on ``grid``; with ``warmup``, compile only."""
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Launch:
        return functools.partial(self.run, grid=grid, warmup=False)
