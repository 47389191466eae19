"""A wrong kernel on the emulator: the error, or the warning, shows the line of the kernel's source."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from ptxforge.emulator.findings import Finding
from ptxforge.emulator.parser import SourceLine
from ptxforge.runtime import findings
from ptxforge.runtime.findings import EmulatorWarning
from ptxforge.support.errors import EmulatorError


@ptxforge.jit
def unmasked(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) * 2)


def test_an_access_out_of_bounds_names_the_line():
    x = np.ones(64, np.float32)
    with ptxforge.use_device(EmulatorDevice()), pytest.raises(EmulatorError) as error:
        unmasked[(1,)](x, BLOCK=128)
    text = str(error.value)
    line = unmasked.fn.__code__.co_firstlineno + 3
    assert f"test_findings.py:{line}: out-of-bounds" in text
    assert f"{line} |     tl.store(x + i, tl.load(x + i) * 2)" in text and "^" in text


def test_nothing_found_nothing_said(emulator):
    x = np.ones(128, np.float32)
    with ptxforge.use_device(emulator), warnings.catch_warnings():
        warnings.simplefilter("error")
        unmasked[(1,)](x, BLOCK=128)
    assert (x == 2).all()


RACE = Finding(
    kind="race", message="written by two threads", line=12, source=SourceLine(__file__, 22, 5),
    instruction="st.shared.b32", cta=(0, 0, 0), thread=(3, 0, 0), address=16,
)  # fmt: skip


class RacyDevice(EmulatorDevice):
    """An emulator that finds a race in whatever it runs."""

    def load_module(self, ptx):
        module = super().load_module(ptx)
        launch = module.function("unmasked").launch

        def race(*arguments):
            launch(*arguments)
            self.findings = [RACE]

        module.function("unmasked").launch = race
        return module


def test_what_may_have_gone_well_is_a_warning_at_the_launch():
    with (
        ptxforge.use_device(RacyDevice()),
        pytest.warns(EmulatorWarning, match="race: written by two threads") as caught,
    ):
        unmasked[(1,)](np.ones(128, np.float32), BLOCK=128)
    assert caught[0].filename == __file__


def test_a_finding_without_a_source_line():
    bare = Finding("race", "words", 3, None, "st.shared.b32", (0, 0, 0), (0, 0, 0), None)
    assert findings.describe(bare) == str(bare)
    assert "22 | " in findings.describe(RACE)
