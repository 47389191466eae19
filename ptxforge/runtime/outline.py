"""What a function's text says to the disk cache: the text itself and the names that it reads from outside.

Finding the names means parsing the text and walking over its tree, which takes some milliseconds for a long
kernel: half of a warm start. So they are kept on disk, under a hash of the text.
"""

from __future__ import annotations

import ast
import functools
import json
import sys
import textwrap
from collections.abc import Callable, Iterator

import attrs

from ptxforge.runtime import compiler_state, store
from ptxforge.support.source_text import SourceText, source_text

Chain = tuple[str, ...]
"""A name, or a dotted name: ``("tl", "load")``."""


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
    tree, shift, text = found.parse()
    lines = text.splitlines()[tree.lineno - 1 : tree.end_lineno]
    source = textwrap.dedent("\n".join(lines)) if shift else "\n".join(lines)
    tree.decorator_list = []  # what stands there is used when the function is defined, not in it
    return Outline(source, tuple(sorted(chains_of(tree))))


def chains_of(tree: ast.AST) -> set[Chain]:
    """Every name and dotted name that the body reads from outside: ``{("tl", "load"), ("EPS",)}``. Parameters
    and what the function assigns are its own, whatever the module calls by the same name."""
    own = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    values = [value for node in ast.walk(tree) if isinstance(node, ast.arguments) for value in _values(node)]
    defaults = {id(part) for value in values for part in ast.walk(value)}
    chains = (tuple(_chain(node)) for node in ast.walk(tree) if id(node) not in defaults)
    return {chain for chain in chains if chain and chain[0] not in own}


def _values(arguments: ast.arguments) -> list[ast.expr]:
    """The expressions of default values."""
    return [*arguments.defaults, *(value for value in arguments.kw_defaults if value is not None)]


def _chain(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Attribute):
        inner = tuple(_chain(node.value))
        if inner:
            yield from (*inner, node.attr)
