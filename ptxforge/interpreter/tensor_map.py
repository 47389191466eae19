"""Tensor maps that a kernel makes."""

from __future__ import annotations

import numpy as np

from ptxforge.interpreter.execute import TensorMap
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.tensor_map import MakeTensorMap, MapWorkspace, ReleaseWorkspace


@interprets(MapWorkspace)
def map_workspace(program, op):
    """Programs run one after the other, and maps are values here."""
    return np.int64(0)


@interprets(ReleaseWorkspace)
def release_workspace(program, op, workspace):
    pass


@interprets(MakeTensorMap)
def make_tensor_map(program, op, workspace, template, base, *numbers):
    given = iter(int(number) for number in numbers)
    shape = tuple(size or next(given) for size in op.sizes)
    if min(shape) < 1:
        shape = (0,) * len(shape)
    return TensorMap(int(base), shape, (*given, 1))
