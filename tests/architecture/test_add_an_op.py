"""``docs/add-an-op.md``, followed literally: its blocks go into the modules that they name, and a kernel
calls the new functions. All of it is taken out again."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.codegen_ptx.lowering import LOWERINGS
from ptxforge.compiler import build_ir
from ptxforge.frontend.semantics.registry import SEMANTICS
from ptxforge.interpreter import HANDLERS
from ptxforge.ir.definition import REGISTRY

PAGE = Path(__file__).parents[2] / "docs" / "add-an-op.md"
BLOCK = re.compile(r"```python\n# ptxforge/([\w/]+)\.py\n(.*?)```", re.DOTALL)
KERNEL = """
import ptxforge.language as tl

def reverse(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.prefetch(x + i, mask=i < n)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.store(out + i, tl.reverse_bits(value) + tl.reverse_bits(value), mask=i < n)
"""


def blocks() -> list[tuple[str, str]]:
    """(module, text) of the page's blocks that name a file."""
    return [(f"ptxforge.{path.replace('/', '.')}", text) for path, text in BLOCK.findall(PAGE.read_text())]


@pytest.fixture
def page_followed():
    tables = [REGISTRY, LOWERINGS, HANDLERS, SEMANTICS]
    before = [set(table) for table in tables]
    added: list[tuple[object, str]] = []
    for name, text in blocks():
        module = importlib.import_module(name)
        known = set(vars(module))
        exec(compile(text, str(PAGE), "exec"), dict(vars(module)), new := {})
        for key, value in new.items():
            assert key not in known or key in ("reverse_bits", "prefetch"), key
            setattr(module, key, value)
            added.append((module, key))
            if module.__name__.startswith("ptxforge.language."):
                setattr(tl, key, value)
                added.append((tl, key))
    yield
    for holder, key in added:
        delattr(holder, key)
    for table, keys in zip(tables, before):
        for key in set(table) - keys:
            del table[key]


def test_the_page_names_as_many_files_as_it_says():
    files = [name for name, _ in blocks()]
    elementwise, memory = (
        [name for name, text in blocks() if word in text] for word in ("everse", "refetch")
    )
    assert len(elementwise) == len(set(elementwise)) == 4 and len(memory) == len(set(memory)) == 5
    assert len(files) == 9


def test_following_the_page_is_enough(page_followed, tmp_path, monkeypatch):
    path = tmp_path / "reverse.py"
    path.write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("reverse", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("PTXFORGE_DEVICE", "emulator")
    kernel = ptxforge.compile(module.reverse)
    x = np.random.default_rng(0).integers(-(2**31), 2**31, 1000).astype(np.int32)
    out = np.zeros_like(x)
    kernel[(1,)](x, out, 1000, BLOCK=1024)
    once = np.array([int(f"{n & 0xFFFFFFFF:032b}"[::-1], 2) for n in x.tolist()], np.uint32)
    np.testing.assert_array_equal(out, (once + once).view(np.int32))
    signature = {"x": "*i32:16", "out": "*i32:16", "n": "i32"}
    interpreted = np.zeros_like(x)
    tile = build_ir(module.reverse, signature, {"BLOCK": 1024}, "sm_80", num_warps=4, num_stages=3)
    interpreter.run(tile, 1, [x, interpreted, 1000])
    np.testing.assert_array_equal(interpreted, out)
    ptx = kernel.asm["ptx"]
    assert ptx.count("brev.b32") == 8 and "prefetch.global.L2" in ptx, "equal ones are computed once"


def test_it_is_gone_afterwards():
    assert not {"reverse_bits", "prefetch"} & REGISTRY.keys() and not hasattr(tl, "reverse_bits")
