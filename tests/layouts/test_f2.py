from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ptxforge.layouts import f2

vectors = st.integers(0, 255)
column_lists = st.lists(vectors, max_size=8)


def span_of(columns):
    """All sums, by brute force."""
    sums = {0}
    for column in columns:
        sums |= {s ^ column for s in sums}
    return sums


@given(column_lists)
def test_rank_and_kernel(columns):
    assert 1 << f2.rank(columns) == len(span_of(columns))
    kernel = f2.kernel(columns)
    assert len(kernel) == len(columns) - f2.rank(columns)
    assert all(f2.multiply(columns, x) == 0 for x in kernel)
    assert f2.rank(kernel) == len(kernel)


@given(column_lists, vectors)
def test_express(columns, target):
    x = f2.Span(columns).express(target)
    assert (x is not None) == (target in span_of(columns)) == f2.Span(columns).contains(target)
    if x is not None:
        assert f2.multiply(columns, x) == target


@given(column_lists)
def test_only_the_earliest_columns_are_used(columns):
    span, free = f2.Span(), 0
    for i, column in enumerate(columns):
        if span.add(column):
            free |= 1 << i
    assert all(span.express(c) & free == 0 for c in columns)


@given(column_lists, column_lists)
def test_intersection(a, b):
    found = f2.intersection(a, b)
    assert span_of(found) == span_of(a) & span_of(b)
    assert f2.rank(found) == len(found)


@given(column_lists)
def test_complete(columns):
    extra = f2.complete(columns, 8)
    assert len(span_of([*columns, *extra])) == 256
    assert len(extra) == 8 - f2.rank(columns)


def test_invert():
    assert f2.invert([0b01, 0b11], 2) == [0b01, 0b11]
    assert f2.invert([0b01, 0b01], 2) is None
    assert f2.invert([0b01], 2) is None
    assert f2.solve([0b01], [0b10]) is None


def test_set_bits():
    assert f2.set_bits(0b10110) == [1, 2, 4]
