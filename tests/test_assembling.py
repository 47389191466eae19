"""Texts that are assembled together are looked at as if they were alone (``tests/assembling.py``)."""

from __future__ import annotations

import re

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime import tools
from tests import assembling
from tests.kernels.configured import compiled

pytestmark = pytest.mark.skipif(tools.find("ptxas") is None, reason="ptxas is not installed")


@ptxforge.jit
def prints(x):
    tl.device_print("it is ", tl.load(x))
    tl.device_assert(tl.load(x) > 0, "it is not")


def printing(target: str) -> str:
    """A kernel with variables of its own."""
    return ptxforge.compile(prints, signature={"x": "*i32"}, target=target).ptx


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch):
    """What other tests of this process made waits elsewhere."""
    assembling.assemble_all()
    monkeypatch.setattr(assembling, "_seen", set())


def test_kernels_of_one_name_are_accepted_together():
    names = ("f16-NN-128-128-64-w4-s3", "attention-128-64-64-w4-s2")
    texts = [compiled(name, "sm_90a").ptx for name in names]
    assert assembling.accepts([*texts, *texts], "sm_90a")


def test_kernels_with_variables_of_one_name_are_right_alone():
    ptx = printing("sm_90a")
    assert not assembling.accepts([ptx, ptx], "sm_90a")
    assert not assembling.complaints([ptx, ptx, ptx], "sm_90a")


def test_who_made_a_text_that_is_refused_is_named():
    right, other = printing("sm_90a"), printing("sm_80")
    for ptx in (right, other, right.replace("ret;", "banana;"), other.replace("ret;", "ret; // as it was")):
        assembling.assemble_later(ptx)
    with pytest.raises(AssertionError) as failure:
        assembling.assemble_all()
    message = str(failure.value)
    assert message.count("made by") == 1 and "banana" in message
    assert "made by tests/test_assembling.py::test_who_made_a_text_that_is_refused_is_named" in message
    assembling.assemble_all()  # it was said once


def test_products_that_wait_for_each_other_are_found():
    """The sums of a product that runs are read."""
    ptx = compiled("f16-NN-128-128-64-w4-s3", "sm_90a").ptx
    wrong = re.sub(r"wgmma\.wait_group\.sync\.aligned \d+;", "", ptx)
    assert assembling.accepts([ptx, ptx], "sm_90a") and not assembling.accepts([ptx, wrong], "sm_90a")
    assembling.assemble_later(ptx)
    assembling.assemble_later(wrong)
    with pytest.raises(AssertionError, match="ptxas serializes wgmma"):
        assembling.assemble_all()


def test_as_many_as_go_into_a_call(monkeypatch):
    monkeypatch.setattr(assembling, "MOST", 2)
    assembling.assemble_later(printing("sm_80"))
    assembling.assemble_later(printing("sm_80"))  # is not new
    with pytest.raises(AssertionError, match="banana"):
        assembling.assemble_later(printing("sm_80").replace("ret;", "banana;"))
