"""What the benchmarks say of figures that scatter."""

from __future__ import annotations

import random

import pytest

from benchmarks.harness import median_interval


@pytest.mark.parametrize(
    "count, low, high", [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (15, 4, 12), (25, 8, 18), (50, 18, 33)]
)
def test_the_ends_are_those_of_the_tables(count, low, high):
    """The order statistics of the sign test at .95, as tables of nonparametric statistics give them."""
    values = random.Random(0).sample(range(1, count + 1), count)
    assert median_interval(values) == ((count + 1) / 2, low, high)


def test_it_holds_the_median_as_often_as_it_says():
    draw = random.Random(1)
    held = 0
    for _ in range(2000):
        _, low, high = median_interval([draw.gauss(1, 0.1) for _ in range(15)])
        held += low <= 1 <= high
    assert 0.95 <= held / 2000 <= 0.985
