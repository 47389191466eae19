"""What a kernel was compiled for, how its variants differ, and whether a new one is allowed.

A server that compiles in the middle of a request stalls. So the variants of a kernel can be listed, each with
what tells it from the nearest other one; a declared set can be compiled beforehand
(:meth:`JITFunction.precompile`); and compiling at a launch can be forbidden, after which a launch that would
need it is an error that names the argument.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from ptxforge.compiler import Artifact
from ptxforge.runtime.specialize import constexpr_key
from ptxforge.support import settings
from ptxforge.support.errors import JITForbiddenError
from ptxforge.support.target import parse_target

if TYPE_CHECKING:
    from ptxforge.runtime.variant import CompiledKernel


log = logging.getLogger("ptxforge.compile")

_forbidden: ContextVar[bool | None] = ContextVar("ptxforge_forbidden", default=None)


@attrs.frozen(slots=True)
class Key:
    """What decides a variant: ``target``, the type of each parameter by name (``signature``), the values that
    are compiled in (``constants``) and the compile ``options``."""

    target: str
    signature: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, Any]

    def identity(self) -> tuple:
        """What tells variants of one kernel apart, as something to look up."""
        constants = tuple(constexpr_key(value) for value in self.constants.values())
        return self.target, tuple(self.signature.values()), constants, tuple(self.options.items())

    def facts(self) -> dict[str, str]:
        """All of it as texts by name."""
        types = {
            name: f"constant {self.constants[name]!r}" if name in self.constants else kind
            for name, kind in self.signature.items()
        }
        options = {f"option {name}": repr(value) for name, value in self.options.items()}
        return {f"argument {name}": text for name, text in types.items()} | options | {"target": self.target}

    def differences(self, other: Key) -> list[str]:
        """``argument 'n': i32:16 instead of i32`` for each fact in which this key is not as the other."""
        mine, theirs = self.facts(), other.facts()
        return [
            f"{_quoted(name)}: {text} instead of {theirs.get(name, 'nothing')}"
            for name, text in mine.items()
            if theirs.get(name) != text
        ]

    def __str__(self) -> str:
        facts = self.facts()
        return ", ".join(f"{name.partition(' ')[2] or name}={text}" for name, text in facts.items())


def _quoted(name: str) -> str:
    kind, _, rest = name.partition(" ")
    return f"{kind} '{rest}'" if rest else kind


def nearest(key: Key, others: list[CompiledKernel]) -> tuple[int, list[str]] | None:
    """The place of the variant that differs least from a key, the newest of several, and the differences;
    ``None`` without others."""
    if not others:
        return None
    found = [(len(key.differences(other.key)), -place) for place, other in enumerate(others)]
    place = -min(found)[1]
    return place, key.differences(others[place].key)


class Variants(list):
    """What was compiled of one kernel, oldest first. Printed, it is a table: of the first its whole key, of
    each later one what tells it from the nearest before it."""

    def why(self, index: int) -> str:
        """What tells the variant at ``index`` from the nearest of those before it."""
        variant = self[index]
        found = nearest(variant.key, self[: index % len(self)])
        if found is None:
            return str(variant.key)
        place, differences = found
        return f"as {place}, but {'; '.join(differences) or 'compiled for another device'}"

    def __repr__(self) -> str:
        if not self:
            return "[]"
        return "\n".join(f"{index}: {self.why(index)}" for index in range(len(self)))


# Forbidding


def is_forbidden() -> bool:
    """Whether a launch may not compile now: inside :func:`forbid_jit`, or with ``PTXFORGE_JIT=forbid``."""
    here = _forbidden.get()
    return settings.JIT.get() == "forbid" if here is None else here


@contextlib.contextmanager
def forbid_jit(forbidden: bool = True) -> Iterator[None]:
    """Inside, a launch that would have to compile or assemble raises :class:`JITForbiddenError`, which says
    what is new about it. ``forbid_jit(False)`` allows it again, whatever ``PTXFORGE_JIT`` says. Compiling on
    purpose (``precompile``, ``warmup``, ``compile``) is always allowed."""
    token = _forbidden.set(forbidden)
    try:
        yield
    finally:
        _forbidden.reset(token)


def check_assembling(name: str) -> None:
    """Raise :class:`JITForbiddenError` when a launch may not wait for the assembler."""
    if is_forbidden():
        raise JITForbiddenError(
            f"'{name}' would have to be assembled for this launch, which is forbidden: its machine code for "
            "this GPU and driver is not in the disk cache\nhint: add it to the set that precompile() gets"
        )


def check_allowed(name: str, key: Key, known: list[CompiledKernel]) -> None:
    """Raise :class:`JITForbiddenError` when a launch may not compile."""
    if not is_forbidden():
        return
    found = nearest(key, known)
    if found is None:
        why = "nothing was compiled of it yet"
    elif found[1]:
        why = f"the nearest of its {len(known)} variants differs in {'; '.join(found[1])}"
    else:
        why = "its variant is for another device"
    raise JITForbiddenError(
        f"'{name}' would have to be compiled for this launch, which is forbidden: {why}\n"
        f"wanted: {key}\nhint: add it to the set that precompile() gets"
    )


def note(name: str, key: Key, known: list[CompiledKernel], seconds: float, source: str) -> None:
    """Tell the log of a new variant: what, why, how long it took, and from where it came."""
    if not log.isEnabledFor(logging.INFO):
        return
    found = nearest(key, known)
    why = "the first variant"
    if found is not None:
        why = f"differs from variant {found[0]} in {'; '.join(found[1]) or 'nothing'}"
    log.info("%s '%s' in %.1f ms: %s (%s)", source, name, seconds * 1e3, why, key)


class GPUTarget(NamedTuple):
    """``backend`` is ``"cuda"``; ``arch`` the compute capability times ten, such as 90."""

    backend: str
    arch: int
    warp_size: int

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"


class Metadata(NamedTuple):
    """``shared`` is bytes of dynamic shared memory per block, ``hash`` hexadecimal digits; ``constants`` are
    the values compiled in by parameter."""

    name: str
    shared: int
    num_warps: int
    num_stages: int
    num_ctas: int
    cluster_dims: tuple[int, int, int]
    target: GPUTarget
    arch: str
    maxnreg: int | None
    debug: bool
    launch_cooperative_grid: bool
    launch_pdl: bool
    hash: str
    signature: dict[str, str]
    constants: dict[str, Any]


def metadata_of(made: Artifact, digest: str, target: GPUTarget | None = None) -> Metadata:
    """The metadata of an artifact whose kernel has that hash; ``target`` says what it was compiled for where
    the artifact's own target does not."""
    return Metadata(
        name=made.name,
        shared=made.shared_bytes,
        num_warps=made.num_warps,
        num_stages=made.num_stages,
        num_ctas=made.num_ctas,
        cluster_dims=(made.num_ctas, 1, 1),
        target=target or GPUTarget("cuda", parse_target(made.target).sm, 32),
        arch=made.target,
        maxnreg=made.options.get("maxnreg"),
        debug=bool(made.options.get("debug")),
        launch_cooperative_grid=bool(made.options.get("launch_cooperative_grid")),
        launch_pdl=bool(made.options.get("launch_pdl")),
        hash=digest,
        signature=made.signature,
        constants=made.constants,
    )
