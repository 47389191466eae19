"""Builds a kernel, checks its IR and its text, and interprets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxforge import interpreter
from ptxforge.frontend import build
from ptxforge.frontend.source import source_function
from ptxforge.ir.core import Function
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.support import dtypes


def type_of(value: Any) -> str:
    """The signature type of a test's argument."""
    if isinstance(value, np.ndarray):
        return f"*{dtypes.from_numpy(value.dtype).short}"
    if isinstance(value, np.generic):
        return dtypes.from_numpy(value.dtype).short
    if isinstance(value, bool):
        return "i1"
    return "fp32" if isinstance(value, float) else "i32"


def built(kernel: Callable, signature: dict[str, str], constants: dict[str, Any], **options: Any) -> Function:
    """The kernel's IR, verified, and the same when it is printed and parsed."""
    function = build(kernel, signature, constants, target="sm_90a", **options)
    verify(function)
    text = print_function(function)
    assert print_function(parse_function(text)) == text
    return function


@pytest.fixture
def interpret() -> Callable[..., None]:
    """``interpret(kernel, *arguments, grid=1, **constants)`` runs a kernel; arrays are written in place."""

    def run(kernel: Callable, *arguments: Any, grid: Any = 1, debug: bool = False, **constants: Any) -> None:
        names = [
            p.name
            for p in source_function(getattr(kernel, "fn", kernel)).parameters
            if p.name not in constants
        ]
        signature = dict(zip(names, map(type_of, arguments)))
        function = built(kernel, signature, constants, debug=debug)
        interpreter.run(function, grid, dict(zip(names, arguments)))

    return run


@pytest.fixture
def ir() -> Callable[..., str]:
    """``ir(kernel, signature, **constants)``: the kernel's IR as text."""

    def text(kernel: Callable, signature: dict[str, str], **constants: Any) -> str:
        return print_function(built(kernel, signature, constants))

    return text
