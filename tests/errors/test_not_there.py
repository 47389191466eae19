"""Names that are not there: the list is true, and errors read it."""

from __future__ import annotations

import doctest
import sys

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import triton_compat
from ptxforge.support import not_there
from ptxforge.support.errors import CompilationError

OF_THE_LANGUAGE = [name for name in not_there.NOT_THERE if name.startswith("tl.") and name.count(".") == 1]


@ptxforge.jit
def asking(x):
    tl.store(x, tl.target_info.is_cuda())


@pytest.mark.parametrize("name", OF_THE_LANGUAGE)
def test_the_language_says_why(name):
    with pytest.raises(AttributeError) as caught:
        getattr(tl, name.removeprefix("tl."))
    assert str(not_there.NOT_THERE[name]) in str(caught.value)


def test_other_missing_names_have_no_reason():
    with pytest.raises(AttributeError, match=r"^module 'ptxforge.language' has no attribute 'lode'$"):
        tl.lode
    assert not hasattr(tl, "__wrapped__")


def test_a_kernel_says_why():
    with pytest.raises(CompilationError) as caught:
        ptxforge.compile(asking, signature={"x": "*fp32"})
    assert "hint: not yet: a kernel does not ask what it is compiled for; instead: " in str(caught.value)
    assert "tl.target_info.is_cuda" in str(caught.value)


def test_a_kernel_that_imports_triton_says_why(tmp_path):
    path = tmp_path / "kernels_of_triton.py"
    head = "import triton\nimport triton.language as tl\n\n\n"
    path.write_text(f"{head}@triton.jit\ndef f(x):\n    tl.slice(tl.load(x), 0)\n")
    triton_compat.install()
    try:
        sys.path.insert(0, str(tmp_path))
        import kernels_of_triton

        with pytest.raises(CompilationError, match="never: slices are written as Python writes them"):
            kernels_of_triton.f.compile({"x": "*fp32"})
    finally:
        triton_compat.uninstall()
        sys.path.remove(str(tmp_path))
        sys.modules.pop("kernels_of_triton", None)


def test_every_reason_is_one():
    for name, entry in not_there.NOT_THERE.items():
        assert len(entry.why.split()) >= 3 and not entry.why.endswith("."), name
        if entry.instead.startswith("tl."):
            first = entry.instead.split("(")[0].split(",")[0].split(" ")[0]
            assert hasattr(tl, first.removeprefix("tl.")), f"{name}: {first}"
    assert doctest.testmod(not_there).failed == 0
