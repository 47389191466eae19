"""Analyses that outlive the pass that asked for them.

    facts = kept(AxisInfoAnalysis, function)

While the manager runs a pipeline, an analysis is made when the first pass asks for it and given to every
later one, until a pass changes the function (``Function.changes`` counts that) in a way that its row does not
declare harmless (``Pass.keeps``). A pass that is called by itself gets an analysis of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ptxforge.ir.core import Function

Analysis = TypeVar("Analysis")


def kept(kind: Callable[[Function], Analysis], function: Function) -> Analysis:
    """``kind(function)``, made again only if it may have changed."""
    if function.analyses is None:
        return kind(function)
    made_at, found = function.analyses.get(kind, (-1, None))
    if made_at != function.changes:
        found = kind(function)
        function.analyses[kind] = (function.changes, found)
    return found


def note_change(function: Function, keeps: tuple[Callable, ...]) -> None:
    """A pass changed the function; of what was analysed, ``keeps`` is as true as before."""
    before = function.changes
    function.changes += 1
    for kind in keeps:
        made_at, found = (function.analyses or {}).get(kind, (-1, None))
        if made_at == before:
            function.analyses[kind] = (function.changes, found)
