"""What a case is: a function of a package, its inputs, and what torch says about its result."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import torch

TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
"""How far a result may lie from torch's, as a share of its size plus the typical size (root of the mean
square) of all results, by the results' element type."""
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}
"""In what the reference computes."""


class Lazy:
    """A module of a package, imported when something of it is asked for: only in the process that calls
    it."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


class Data:
    """Makes inputs: ``rows`` × ``columns`` is the size of most of them, small in the emulator."""

    def __init__(self, device: str, small: bool):
        self.device, self.small = device, small
        self.rows, self.columns = (8, 128) if small else (4096, 4096)
        torch.manual_seed(7)

    def size(self, full: int, small: int) -> int:
        """The one or the other, as this run is."""
        return small if self.small else full

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        """Normally distributed numbers; ``rows`` × ``columns`` if no shape is given."""
        shape = shape or (self.rows, self.columns)
        return (torch.randn(shape, device=self.device) * scale).to(dtype)

    def uniform(
        self, low: float, high: float, *shape: int, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Numbers between ``low`` and ``high``."""
        shape = shape or (self.rows, self.columns)
        return (torch.rand(shape, device=self.device) * (high - low) + low).to(dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Integers from ``low`` to below ``high``."""
        shape = shape or (self.rows, self.columns)
        return torch.randint(low, high, shape, device=self.device, dtype=dtype)


@attrs.frozen
class Case:
    """One function at one element type. ``gradients`` are the places of the inputs whose gradients belong
    to the step. ``exact`` says that the reference takes the inputs' own types, not wider ones."""

    package: str
    name: str
    make: Callable[[Data], tuple]
    run: Callable[..., Any]
    reference: Callable[..., Any]
    gradients: tuple[int, ...] = ()
    tolerance: float | None = None
    products: bool = False
    exact: bool = False

    def inputs(self, data: Data) -> tuple:
        """New inputs; those with gradients require them."""
        made = self.make(data)
        for place in self.gradients:
            made[place].requires_grad_()
        return made


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors of what a function gives, in order; numbers and truth values as tensors."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, bool | int | float):
        return [torch.tensor(value)]
    if isinstance(value, Iterable):
        return [tensor for part in value for tensor in tensors(part)]
    return []


def step(
    case: Case, function: Callable[..., Any], inputs: tuple, upstream: list | None = None
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The results of ``function`` and behind them the gradients, for the gradients ``upstream`` of the
    results; and these, which are made where they are not given."""
    results = tensors(function(*inputs))
    if not case.gradients:
        return results, []
    ends = [result for result in results if result.requires_grad]
    if upstream is None:
        upstream = [_upstream(end) for end in ends]
    given = [gradient.to(end.dtype) for gradient, end in zip(upstream, ends, strict=True)]
    wanted = [inputs[place] for place in case.gradients]
    return [r.detach() for r in results] + list(torch.autograd.grad(ends, wanted, given)), upstream


def _upstream(end: torch.Tensor) -> torch.Tensor:
    """The same numbers at each call, which every type has."""
    return ((torch.arange(end.numel(), device=end.device) % 7 - 2) / 4).reshape(end.shape).to(end.dtype)


def widened(case: Case, inputs: Any) -> Any:
    """Copies of the inputs for the reference."""
    if isinstance(inputs, list | tuple):
        return type(inputs)(widened(case, part) for part in inputs)
    if not isinstance(inputs, torch.Tensor):
        return inputs
    copy = inputs.detach().clone()
    copy = copy.to(WIDER[copy.dtype]) if copy.dtype in WIDER and not case.exact else copy
    return copy.requires_grad_(inputs.requires_grad)


def distance(case: Case, actual: list[torch.Tensor], wanted: list[torch.Tensor]) -> tuple[float, bool]:
    """The largest distance of the results, and whether all are within their tolerance. Integers and truth
    values agree or do not."""
    if len(actual) != len(wanted):
        return float("inf"), False
    furthest, fits = 0.0, True
    for got, want in zip(actual, wanted, strict=True):
        if got.shape != want.shape:
            return float("inf"), False
        if not want.numel():
            continue
        far, limit = _distance(got, want.to(got.device))
        furthest, fits = max(furthest, far), fits and far <= (case.tolerance or limit)
    return furthest, fits


def _distance(got: torch.Tensor, want: torch.Tensor) -> tuple[float, float]:
    if not got.is_floating_point() and not got.is_complex():
        return (0.0 if torch.equal(got.to(want.dtype), want) else float("inf")), 0.0
    limit = TOLERANCES.get(got.dtype, TOLERANCES[torch.bfloat16])
    if got.is_complex():
        got, want, limit = torch.view_as_real(got), torch.view_as_real(want), TOLERANCES[torch.float32]
    got, want = got.double(), want.double()
    same = (got == want) | (got.isnan() & want.isnan())
    finite = want[want.isfinite()]
    typical = finite.square().mean().sqrt() if finite.numel() else 0.0
    far = torch.where(same, 0.0, (got - want).abs() / (want.abs() + typical))
    worst = float(far.max())
    return (float("inf") if worst != worst else worst), limit
