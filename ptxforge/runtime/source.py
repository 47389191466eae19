"""A kernel's source and everything it depends on, as one text: what the disk cache is keyed by.

A kernel means the same as long as its own source, the source of each function that it calls, jitted or at
compile time, and the value of each plain global that it reads are the same. Names are found in the AST
and looked up in the function's globals and closure; an attribute chain such
as ``helpers.gelu`` is followed through modules.

Finding the names means parsing the text and walking over its tree, which takes some milliseconds for a long
kernel: half of a warm start. So they are kept on disk, under a hash of the text.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from ptxforge.language.constexpr import unwrap
from ptxforge.language.core import is_aggregate
from ptxforge.language.types import dtype
from ptxforge.runtime import compiler_state, store
from ptxforge.runtime.cache import FunctionPlace, place_of
from ptxforge.runtime.specialize import is_function
from ptxforge.support.errors import CompilationError
from ptxforge.support.source_text import (
    Chain,
    SourceText,
    chains_of,
    helpers_of,
    is_filled,
    resolve,
    scope_of,
    source_of,
    source_text,
)

_PLAIN = (bool, int, float, str, bytes, tuple, type(None), enum.Enum, dtype)


@attrs.frozen(slots=True)
class Dependencies:
    """``text`` identifies the kernel's meaning; ``values`` are the globals, and the variables of functions
    around it, that it reads: (scope, name, value); ``places`` tells where the functions stand."""

    text: str
    values: tuple[tuple[dict | Cells, str, Any], ...]
    places: tuple[FunctionPlace, ...]

    def digest(self) -> str:
        """The SHA-256 of ``text``, in hexadecimal digits."""
        return hashed(self.text)


def hashed(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def dependencies(fn: Callable) -> Dependencies:
    """What ``fn`` and all the jitted functions below it depend on."""
    found = _Found()
    _collect(fn, found)
    return Dependencies("\n".join(found.parts), tuple(found.values), tuple(found.places))


@attrs.define(slots=True)
class _Found:
    """What was met so far; ``seen`` has the identities of functions and classes."""

    parts: list[str] = attrs.field(factory=list)
    values: list[tuple[dict | Cells, str, Any]] = attrs.field(factory=list)
    places: list[FunctionPlace] = attrs.field(factory=list)
    seen: set[int] = attrs.field(factory=set)


def _collect(fn: Callable, to: _Found, on_host: bool = False) -> None:
    """What ``fn`` depends on; with ``on_host`` it runs while kernels are compiled, and may call plain
    functions."""
    if id(fn) in to.seen:
        return
    to.seen.add(id(fn))
    found = outline(fn)
    to.places.append(place_of(fn))
    to.parts.append(f"# {fn.__module__}.{fn.__qualname__}\n{found.source}")
    scope = scope_of(fn)
    for value in _defaults(fn):
        if is_function(value):
            _collect(value.fn, to)
        else:
            to.parts.append(f"# default {unwrap(value)!r}")
    for helper in helpers_of(fn, found.chains) if on_host else ():
        with contextlib.suppress(CompilationError):  # its text is nowhere
            _collect(helper, to, on_host=True)
    for chain in found.chains:
        is_there, value = resolve(chain, scope)
        if not is_there:
            continue
        if is_function(value):
            _collect(value.fn, to)
        elif _is_compile_time(value):
            _collect(value.fn, to, on_host=True)
        elif is_aggregate(value):
            _collect_class(value, to)
        elif isinstance(unwrap(value), _PLAIN):
            to.parts.append(f"# {'.'.join(chain)} = {unwrap(value)!r}")
            if len(chain) == 1:
                owner = Cells(fn) if chain[0] in fn.__code__.co_freevars else fn.__globals__
                to.values.append((owner, chain[0], unwrap(value)))


def _is_compile_time(value: Any) -> bool:
    """True of a user's function that kernels call while they are compiled."""
    if not getattr(value, "__ptxforge_constexpr_function__", False):
        return False
    return not getattr(value, "__module__", "").startswith("ptxforge.")


class Cells:
    """The variables of the functions around ``fn``, to look up by name."""

    def __init__(self, fn: Callable):
        self._cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))

    def get(self, name: str) -> Any:
        """What the variable holds now."""
        cell = self._cells[name]
        return cell.cell_contents if is_filled(cell) else None


def _collect_class(kind: type, to: _Found) -> None:
    """The fields of an aggregate class, and its methods, inherited ones included."""
    if id(kind) in to.seen:
        return
    to.seen.add(id(kind))
    to.parts.append(f"# {kind.__qualname__}: {kind.__fields__!r} {kind.__field_defaults__!r}")
    for base in kind.__mro__:
        for name, member in vars(base).get("__methods__", {}).items():
            member = getattr(member, "__func__", member)
            if is_function(member):
                _collect(member.fn, to)
            else:
                fn = getattr(member, "fn", member)
                to.places.append(place_of(fn))
                to.parts.append(f"# {name}\n{source_of(fn)}")


def _defaults(fn: Callable) -> Iterator[Any]:
    """The default values of a function: Python computed them once, when it was defined."""
    values = (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
    return (value for value in values if is_function(value) or isinstance(unwrap(value), _PLAIN))


@attrs.frozen(slots=True)
class Outline:
    """``source``: the text without its indentation and decorators; ``chains``: what is read from outside."""

    source: str
    chains: tuple[Chain, ...]


@functools.cache
def outline(fn: Callable) -> Outline:
    """The outline of ``fn`` as it was when it became a kernel.

    Raises :class:`CompilationError` for a function whose text is nowhere.
    """
    text = source_text(fn)
    if store.folder() is None:
        return _made(text)
    name = store.hashed("outline", compiler_state.digest(), sys.version_info[:2], text.cut())
    found = store.read(name, "outline")
    if found is not None:
        kept = _understood(found[1])
        if kept is not None:
            return kept
    made = _made(text)
    sections = {"source": made.source.encode(), "chains": json.dumps(made.chains).encode()}
    store.write(name, "outline", {"function": fn.__qualname__}, sections)
    return made


def _understood(sections: dict[str, bytes]) -> Outline | None:
    try:
        chains = tuple(tuple(chain) for chain in json.loads(sections["chains"]))
        return Outline(sections["source"].decode(), chains)
    except (KeyError, ValueError, TypeError):
        return None


def _made(found: SourceText) -> Outline:
    tree, source = found.bare()
    tree.decorator_list = []  # what stands there is used when the function is defined, not in it
    return Outline(source, tuple(sorted(chains_of(tree))))
