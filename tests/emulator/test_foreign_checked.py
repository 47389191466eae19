"""The fixtures' kernels run right under every check, without findings; on a GPU too when asked for."""

from __future__ import annotations

import pytest

from .foreign import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_and_clean(case, checked):
    case.check(checked, case.ptx)
    assert not checked.findings, "\n".join(map(str, checked.findings))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_on_every_device(case, machine):
    case.check(machine, case.ptx)
