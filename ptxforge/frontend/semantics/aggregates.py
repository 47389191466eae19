"""Objects of aggregate classes."""

from __future__ import annotations

from ptxforge.frontend.aggregates import replaced
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import describe
from ptxforge.language import aggregates as language


@implements(language.aggregate_replace)
def aggregate_replace(ctx, value, **fields):
    if not isinstance(value, language.Aggregate):
        raise ArgumentProblem("value", f"must be an object of an aggregate class, is {describe(value)}")
    return replaced(ctx, value, fields)
