"""What a function's text says to the disk cache: the text itself and the names that it reads from outside.

Finding the names means parsing the text and walking over its tree, which takes some milliseconds for a long
kernel: half of a warm start. So they are kept on disk, under a hash of the text.
"""

from __future__ import annotations

import functools
import json
import sys
import textwrap
from collections.abc import Callable

import attrs

from ptxforge.runtime import compiler_state, store
from ptxforge.support.outside import Chain, chains_of
from ptxforge.support.source_text import SourceText, source_text


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
