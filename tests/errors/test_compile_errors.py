"""The text of every compile-time error: message, source line, caret, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxforge.frontend import build
from ptxforge.support.errors import CompilationError
from tests.errors import wrong_language  # noqa: F401 - adds to the kernels
from tests.errors.wrong_kernels import WRONG

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", WRONG)
def test_error_text(golden, name):
    kernel, signature, constants = WRONG[name]
    with pytest.raises(CompilationError) as caught:
        build(kernel, signature, constants, target="sm_90a")
    text = f"{type(caught.value).__name__}: {caught.value}\n".replace(f"{HERE}/", "")
    golden(HERE / "golden" / f"{name}.txt", text)


def test_every_golden_text_has_its_kernel():
    assert {path.stem for path in (HERE / "golden").glob("*.txt")} == set(WRONG)
