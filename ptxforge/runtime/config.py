"""Configurations of a kernel, and spaces of them."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ptxforge.support.errors import AutotunerError

_KINDS = {Callable: "a function", Iterable: "a list", Mapping: "a dictionary", numbers.Real: "a number"}


def check_kinds(kind: type, **given: Any) -> None:
    """Raise :class:`AutotunerError` for an argument that is neither of this kind nor ``None``, with its
    name."""
    for name, value in given.items():
        if value is not None and not isinstance(value, kind):
            raise AutotunerError(f"{name} is {_KINDS[kind]}, not {value!r}")


def names_in(given: Iterable[str] | None, option: str) -> list[str]:
    """The names that an argument lists; a text is one of them."""
    check_kinds(Iterable, **{option: given})
    return [given] if isinstance(given, str) else list(given or ())


_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class Config:
    """One configuration: values of constexpr parameters (``kwargs``) and launch options.

    ``pre_hook`` is called with the dictionary of all arguments before each launch with this configuration.
    """

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict], Any] | None = None,
        ir_override: str | None = None,
    ):
        if ir_override is not None:
            raise AutotunerError("ir_override is another compiler's IR; ptxforge cannot read it")
        self.ir_override = ir_override
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            raise AutotunerError(
                f"a configuration is a dictionary of parameter names and values, not {kwargs!r}"
            )
        self.kwargs = dict(kwargs)
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        check_kinds(Callable, pre_hook=pre_hook)

    def options(self) -> dict[str, Any]:
        """The launch options that are set."""
        named = {
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "num_ctas": self.num_ctas,
            "maxnreg": self.maxnreg,
        }
        return {name: value for name, value in named.items() if value is not None}

    def all_kwargs(self) -> dict[str, Any]:
        """Everything to pass to the launch; a parameter named as an option takes the parameter's value."""
        return self.options() | self.kwargs

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in (self.kwargs | self.options()).items())

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options().items())
        return f"Config({self.kwargs!r}{options})"

    def _identity(self) -> tuple:
        return tuple(self.all_kwargs().items()), self.pre_hook

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


def pow2(low: int, high: int) -> list[int]:
    """The powers of two from ``low`` to ``high``, for a space of configurations.

    >>> pow2(32, 256)
    [32, 64, 128, 256]
    """
    return [1 << bits for bits in range(max(0, (low - 1).bit_length()), high.bit_length())]


def expand(space: Mapping[str, Iterable[Any]]) -> list[Config]:
    """All configurations of a space: values for each constexpr parameter and launch option by name. The first
    name changes slowest. Raises :class:`AutotunerError` for a name without values.

    >>> expand({"BLOCK": pow2(32, 64), "num_warps": [4, 8]})[1]
    Config({'BLOCK': 32}, num_warps=8, num_stages=3, num_ctas=1)
    """
    check_kinds(Mapping, space=space)
    check_kinds(Iterable, **{f"the space of '{name}'": given for name, given in space.items()})
    values = {name: list(given) for name, given in space.items()}
    for name, given in values.items():
        if not given:
            raise AutotunerError(f"the space has no values for '{name}'")
    made = []
    for chosen in itertools.product(*values.values()):
        named = dict(zip(values, chosen, strict=True))
        options = {name: named.pop(name) for name in _OPTIONS if name in named}
        made.append(Config(named, **options))
    return made
