"""``docs/add-an-op.md``, followed literally: its blocks go into the modules that they name, and kernels
call the new functions and multiply by the new instructions. All of it is taken out again."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.codegen_ptx.lowering import LOWERINGS
from ptxforge.compiler import build_ir
from ptxforge.emulator import EmulatorDevice
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

def product(a, b, c):
    i = tl.arange(0, 64)
    x, y = tl.load(a + i[:, None] * 64 + i[None, :]), tl.load(b + i[None, :] * 64 + i[:, None])
    tl.store(c + i[:, None] * 64 + i[None, :], tl.dot(x, y, out_dtype=tl.float16))
"""
CHANGED = ("reverse_bits", "prefetch", "FAMILIES")
"""What the page gives another meaning to: functions of Python or of the IR that are called so, and a
table."""


def blocks() -> list[tuple[str, str]]:
    """(module, text) of the page's blocks that name a file."""
    return [(f"ptxforge.{path.replace('/', '.')}", text) for path, text in BLOCK.findall(PAGE.read_text())]


@pytest.fixture
def page_followed():
    tables = [REGISTRY, LOWERINGS, HANDLERS, SEMANTICS]
    before = [set(table) for table in tables]
    with pytest.MonkeyPatch.context() as patch:
        for name, text in blocks():
            module = importlib.import_module(name)
            known = set(vars(module))
            exec(compile(text, str(PAGE), "exec"), dict(vars(module)), new := {})
            for key, value in new.items():
                assert key not in known or key in CHANGED, key
                patch.setattr(module, key, value, raising=False)
                if module.__name__.startswith("ptxforge.language."):
                    patch.setattr(tl, key, value, raising=False)
        yield
    for table, keys in zip(tables, before):
        for key in set(table) - keys:
            del table[key]


def test_the_page_names_as_many_files_as_it_says():
    files = [name for name, _ in blocks()]
    elementwise, memory, products = (
        [name for name, text in blocks() if word in text] for word in ("everse", "refetch", "FAMILIES")
    )
    assert len(elementwise) == len(set(elementwise)) == 4 and len(memory) == len(set(memory)) == 5
    assert products == ["ptxforge.layouts.mma_families"]
    assert len(files) == 10


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "kernels_of_the_page.py"
    path.write_text(KERNEL)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_following_the_page_is_enough(page_followed, module, monkeypatch):
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


INSTRUCTIONS = {
    "sm_89": "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16",
    "sm_90a": "wgmma.mma_async.sync.aligned.m64n64k32.f16.e4m3.e5m2",
}


@pytest.mark.parametrize("target", INSTRUCTIONS)
def test_a_row_is_enough_for_an_instruction_of_tensor_cores(page_followed, module, target, assemble):
    """Layouts, feeds, code and emulator ask the table; halves of small numbers are summed exactly."""
    device, draw = EmulatorDevice(check="all", target=target), np.random.default_rng(1)
    a, b = (draw.integers(-4, 5, (64, 64)).astype(np.float32) / 2 for _ in range(2))
    left, right = a.astype(ml_dtypes.float8_e4m3fn), b.astype(ml_dtypes.float8_e5m2)
    out = ptxforge.to_device(np.zeros((64, 64), np.float16), device)
    kernel = ptxforge.compile(module.product)
    kernel[(1,)](ptxforge.to_device(left, device), ptxforge.to_device(right, device), out)
    np.testing.assert_array_equal(out.numpy(), a @ b.T)
    assert INSTRUCTIONS[target] in kernel.asm["ptx"]
    assemble(kernel.asm["ptx"])


def test_it_is_gone_afterwards():
    assert not {"reverse_bits", "prefetch"} & REGISTRY.keys() and not hasattr(tl, "reverse_bits")
