"""Minima and maxima of floats in numpy, with -0.0 below 0.0, as PTX has it; numpy takes any of two zeros."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def extremum(plain: Callable) -> Callable:
    """``plain``, one of numpy's minima and maxima, that tells zeros of both signs apart."""
    negative = np.logical_or if plain in (np.fmin, np.minimum) else np.logical_and

    def apply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = plain(x, y)
        zeros = found == 0
        if not np.any(zeros):
            return found
        kind = found.dtype.type
        signed = np.where(negative(np.signbit(x), np.signbit(y)), kind(-0.0), kind(0.0))
        return np.where(zeros & (x == y), signed, found)

    return apply
