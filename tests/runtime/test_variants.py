"""Which variants there are and why, compiling them beforehand, and forbidding what was not declared."""

from __future__ import annotations

import concurrent.futures
import importlib
import logging
import sys
from pathlib import Path

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime import cache, precompile
from ptxforge.support.errors import ArgumentError, JITForbiddenError
from tests.driver.fake_driver import FakeDriver, install

from .conftest import add as host_add

SUM = {"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i32"}


@pytest.fixture
def add():
    @ptxforge.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

    return add


def launch(kernel, n=7, block=16, **options):
    x = np.arange(16, dtype=np.float32)
    out = np.zeros_like(x)
    kernel[(1,)](x, x, out, n, BLOCK=block, **options)
    return out


# Listing


def test_each_variant_tells_why_it_is_there(add):
    launch(add)
    launch(add, n=16)
    launch(add, n=16, num_warps=8)
    launch(add, block=32)
    first, second, third, fourth = repr(add.variants).splitlines()
    assert first.startswith("0: x=*fp32:16, y=*fp32:16, out=*fp32:16, n=i32, BLOCK=constant 16, ")
    assert "num_warps=4" in first and first.endswith("target=sm_90a")
    assert second == "1: as 0, but argument 'n': i32:16 instead of i32"
    assert third == "2: as 1, but option 'num_warps': 8 instead of 4"
    assert fourth == "3: as 0, but argument 'BLOCK': constant 32 instead of constant 16"
    assert add.variants.why(-1) == fourth[3:] and repr(type(add.variants)()) == "[]"
    assert add.variants[1].key.differences(add.variants[0].key) == ["argument 'n': i32:16 instead of i32"]


def test_the_log_tells_of_each_compilation(add, caplog, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    with caplog.at_level(logging.INFO, "ptxforge.compile"):
        launch(add)
        launch(add, n=16)
        launch(add, n=16)
        launch(ptxforge.jit(add.fn))
    first, second, third = (record.message for record in caplog.records if record.name == "ptxforge.compile")
    assert first.startswith("compiled 'add' in ") and "the first variant (x=*fp32:16, " in first
    assert "differs from variant 0 in argument 'n': i32:16 instead of i32" in second
    assert third.startswith("found on disk 'add' in ")


# Forbidding


def test_a_forbidden_compilation_names_the_argument(add, monkeypatch):
    launch(add)
    monkeypatch.setenv("PTXFORGE_JIT", "forbid")
    launch(add, n=9)
    message = (
        "'add' would have to be compiled for this launch, which is forbidden: the nearest of its 1 variants "
        "differs in argument 'n': i32:16 instead of i32\nwanted: x=.*hint: add it to the set"
    )
    with pytest.raises(JITForbiddenError, match="(?s)" + message):
        launch(add, n=16)
    with ptxforge.forbid_jit(False):
        launch(add, n=16)
    launch(add, n=32)
    add.warmup(np.float32, np.float32, np.float32, 7, BLOCK=32)  # on purpose
    launch(add, block=32)


def test_the_context_manager(add):
    with ptxforge.forbid_jit(), pytest.raises(JITForbiddenError, match="nothing was compiled of it yet"):
        launch(add)
    launch(add)


def test_what_is_on_disk_is_allowed(add, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    launch(add)
    with ptxforge.forbid_jit():
        launch(ptxforge.jit(add.fn))


def test_assembling_is_forbidden_too(compiled, monkeypatch, tmp_path):
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    for folder in ("off", str(tmp_path)):
        monkeypatch.setenv("PTXFORGE_CACHE_DIR", folder)
        install(monkeypatch, FakeDriver())
        kernel = ptxforge.jit(host_add, do_not_specialize=["n"])
        kernel.compile(SUM)
        x = ptxforge.to_device(np.zeros(8, np.float32))
        with ptxforge.forbid_jit(), pytest.raises(JITForbiddenError):
            kernel[(1,)](x, x, x, 8)
        kernel.precompile([SUM])
        with ptxforge.forbid_jit():
            kernel[(1,)](x, x, x, 8)
    monkeypatch.setattr(cache, "load_machine_code", lambda name: None)
    with (
        ptxforge.forbid_jit(),
        pytest.raises(JITForbiddenError, match="machine code for this GPU and driver"),
    ):
        ptxforge.jit(host_add, do_not_specialize=["n"])[(1,)](x, x, x, 8)


# Compiling beforehand


def test_a_declared_set_is_closed(add):
    declared = [SUM | {"BLOCK": block, "num_warps": warps} for block in (16, 32) for warps in (1, 4)]
    made = add.precompile([*declared, declared[0]])
    assert len(made) == len(add.variants) == 4 and made[1].metadata.num_warps == 4
    with ptxforge.forbid_jit():
        np.testing.assert_array_equal(launch(add)[:7], 2 * np.arange(7))
        launch(add, block=32, num_warps=1)
        with pytest.raises(JITForbiddenError, match="argument 'n': i32:16 instead of i32"):
            launch(add, n=16)
    assert add.precompile(declared) == made  # nothing new


def test_spellings_of_a_declaration(add):
    arrays = {"x": np.float32, "y": tl.float32, "out": np.zeros(16, np.float32)}
    (made,) = add.precompile([arrays | {"n": 16, "BLOCK": 16}])
    assert made.key.signature == SUM | {"n": "i32:16", "BLOCK": "constexpr"}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("x", "a variant is declared by a dictionary"),
        (SUM, "argument 'BLOCK': has neither a type nor a value"),
        (SUM | {"BLOCK": 16, "n": "int"}, "argument 'n': 'int' is not a type"),
        (SUM | {"BLOCK": 16, "x": "*float"}, r"argument 'x': '\*float' is not a type"),
        (SUM | {"BLOCK": 16, "num_warp": 4}, "argument 'num_warp': .*did you mean 'num_warps'"),
    ],
)
def test_declarations_that_cannot_be(add, item, message):
    with pytest.raises(ArgumentError, match=message):
        add.precompile([item])


def test_one_declaration_that_is_none(add):
    with pytest.raises(ArgumentError, match="a variant is declared by a dictionary .* not by 5"):
        add.precompile(5)


@pytest.fixture
def doubles(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    yield importlib.import_module("kernels").double
    sys.modules.pop("kernels", None)


def test_by_an_executor(doubles):
    declared = [{"x": "*fp32:16", "out": "*fp32:16", "BLOCK": block} for block in (16, 32, 64)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        made = doubles.precompile(declared, executor=pool)
    assert [variant.key.constants["BLOCK"] for variant in made] == [16, 32, 64]
    x, out = np.ones(16, np.float32), np.zeros(16, np.float32)
    with ptxforge.forbid_jit():
        doubles[(1,)](x, out, BLOCK=16)
    assert (out == 2).all()


def test_by_new_processes(doubles, monkeypatch):
    monkeypatch.setattr(precompile, "_WORTH_PROCESSES", 2)
    monkeypatch.setattr(precompile.os, "cpu_count", lambda: 2)
    before = cache.counters.compiled
    declared = [{"x": "*fp32:16", "out": "*fp32:16", "BLOCK": block} for block in (16, 32)]
    assert len(doubles.precompile(declared)) == 2 and cache.counters.compiled == before


def test_progress_is_for_people(monkeypatch):
    for terminal, ci, shown in [(True, "", True), (True, "1", False), (False, "", False)]:
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal, raising=False)
        monkeypatch.setenv("CI", ci)
        assert precompile.shows_progress() is shown
