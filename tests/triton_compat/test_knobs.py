"""``triton.knobs``."""

from __future__ import annotations

import os
import shutil
import sys
import types

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import triton_compat
from ptxforge.runtime import options
from ptxforge.triton_compat import compiler, drivers, internal_testing, knobs


def test_a_knob_reads_its_variable_until_it_is_assigned(monkeypatch):
    monkeypatch.delenv("TRITON_DEBUG", raising=False)
    assert knobs.runtime.debug is False
    for value, expected in (("1", True), ("0", False), ("off", False), ("yes", True)):
        monkeypatch.setenv("TRITON_DEBUG", value)
        assert knobs.runtime.debug is expected
    knobs.runtime.debug = False
    assert knobs.runtime.debug is False and os.environ["TRITON_DEBUG"] == "0"
    monkeypatch.setenv("TRITON_DEBUG", "1")
    assert knobs.runtime.debug is False
    del knobs.runtime.debug
    assert knobs.runtime.debug is True
    knobs.runtime.debug = False
    monkeypatch.setenv("TRITON_DEBUG", "1")
    knobs.runtime.debug = knobs.env
    assert knobs.runtime.debug is True
    assert knobs.runtime.knobs["debug"] is True and "launch_enter_hook" not in knobs.runtime.knobs


def test_a_scope_undoes(monkeypatch):
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    before = knobs.cache.dir
    with knobs.cache.scope():
        knobs.cache.dir = "/elsewhere"
        os.environ["TRITON_CACHE_DIR"] = "/there"
        assert knobs.cache.dir == "/elsewhere" and knobs.cache.copy().dir == "/elsewhere"
    assert knobs.cache.dir == before and "TRITON_CACHE_DIR" not in os.environ
    with knobs.cache.scope():
        knobs.cache.dir = "/elsewhere"
        monkeypatch.delenv("TRITON_CACHE_DIR")
        assert knobs.cache.reset().dir == before


def test_a_chain_of_hooks():
    seen = []

    def first(value):
        seen.append(("first", value))

    def second(value):
        seen.append(("second", value))

    chain = knobs.HookChain()
    assert not chain
    for hook in (first, second, first):
        chain.add(hook)
    chain(1)
    assert chain and seen == [("first", 1), ("second", 1)]
    chain.reversed = True
    chain.remove(first)
    chain.remove(first)
    chain.add(first)
    chain(2)
    assert seen[2:] == [("first", 2), ("second", 2)]


@pytest.mark.parametrize(
    "group",
    ["build", "redis", "cache", "compilation", "autotuning", "runtime", "language", "nvidia", "amd"],
)
def test_every_group_tells_its_values(group):
    assert getattr(knobs, group).knobs


class Group(knobs.base_knobs):
    text = knobs.env_str("OUR_TEXT", "plain")
    flag = knobs.env_opt_bool("OUR_FLAG")
    number = knobs.env_int("OUR_NUMBER", 3)
    kind = knobs.env_class("OUR_CLASS", "base_knobs")
    tool = knobs.env_nvidia_tool("no-such-tool")


def test_groups_of_a_programs_own(monkeypatch, tmp_path):
    group = Group()
    assert group.knobs == {"text": "plain", "flag": None, "number": 3, "kind": None, "tool": None}
    monkeypatch.setenv("OUR_TEXT", "other")
    monkeypatch.setenv("OUR_FLAG", "no")
    monkeypatch.setenv("OUR_NUMBER", "7")
    monkeypatch.setenv("OUR_CLASS", f"{__name__}:Group")
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho Cuda compilation tools, release 12.9, V12\n")
    tool.chmod(0o755)
    monkeypatch.setenv("TRITON_NO_SUCH_TOOL_PATH", str(tool))
    found = group.knobs
    assert (found["text"], found["flag"], found["number"], found["kind"]) == ("other", False, 7, Group)
    assert found["tool"] == knobs.NvidiaTool(str(tool), "12.9")
    monkeypatch.setenv("OUR_NUMBER", "many")
    with pytest.raises(RuntimeError, match="OUR_NUMBER=many"):
        group.number  # noqa: B018
    for text, complaint in (("nothing", "MODULE:CLASS"), ("builtins:int", "is no base_knobs")):
        monkeypatch.setenv("OUR_CLASS", text)
        with pytest.raises(RuntimeError, match=complaint):
            group.kind  # noqa: B018


def test_assigning_can_leave_the_environment_alone(monkeypatch):
    triton_knobs = types.SimpleNamespace(propagate_env=False)
    monkeypatch.setitem(sys.modules, "triton.knobs", triton_knobs)
    monkeypatch.delenv("OUR_TEXT", raising=False)
    group = Group()
    group.text = "mine"
    assert group.text == "mine" and "OUR_TEXT" not in os.environ
    assert group.copy().reset().text == "plain"


def test_the_folders_are_below_home(monkeypatch):
    for name in ("TRITON_CACHE_DIR", "TRITON_DUMP_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITON_HOME", "/there")
    assert knobs.cache.dir == "/there/.triton/cache" and knobs.cache.dump_dir == "/there/.triton/dump"


def test_a_knob_by_itself(monkeypatch):
    """Triton's names for what a knob does without its group."""
    made = []
    text = knobs.env_str_callable_default("PTXFORGE_TEST_KNOB", lambda: made.append(1) or "made")
    assert text.get() == "made" and text.default_factory() == "made" and len(made) == 2
    monkeypatch.setenv("PTXFORGE_TEST_KNOB", "0")
    assert text.get() == "0" and knobs.env_bool("PTXFORGE_TEST_KNOB").get() is False
    assert knobs.env_int("PTXFORGE_TEST_KNOB").transform("12") == 12
    assert [knobs.toenv(value) for value in (None, True, 3, "x", [])] == [
        (None,),
        ("1",),
        ("3",),
        ("x",),
        None,
    ]


def test_fusion_can_be_forbidden(monkeypatch):
    """Whatever a launch asks for."""
    for name in ("TRITON_DEFAULT_FP_FUSION", "TRITON_FORCE_DISABLE_FP_FUSION"):
        monkeypatch.delenv(name, raising=False)

    def fuses(**given):
        return options.parse(given)["enable_fp_fusion"]

    assert fuses() and fuses(enable_fp_fusion=True) and not fuses(enable_fp_fusion=False)
    with knobs.language.scope():
        knobs.language.default_fp_fusion = False
        assert not fuses() and fuses(enable_fp_fusion=True) and knobs.language.fp_fusion_enabled(True)
    with knobs.language.scope():
        knobs.language.force_disable_fp_fusion = True
        assert not fuses() and not fuses(enable_fp_fusion=True) and not knobs.language.fp_fusion_enabled(True)
        backend = drivers.make_backend(drivers.GPUTarget("cuda", 90, 32))
        assert not backend.parse_options({"enable_fp_fusion": True}).enable_fp_fusion
    assert fuses()


def made():
    """A kernel that nobody has compiled yet."""

    @ptxforge.jit
    def scaled(x, N: tl.constexpr):
        at = tl.arange(0, N)
        tl.device_assert(at < N)
        tl.store(x + at, tl.load(x + at) * 2)

    return scaled


def test_new_kernels_are_dumped(monkeypatch, tmp_path, emulator):
    """Those that launches compile, those that are found on disk, and those of triton.compile."""
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "outputs"))
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path / "dump"))
    x = ptxforge.to_device(np.ones(32, np.float32), emulator)
    made()[(1,)](x, 32)
    assert not (tmp_path / "dump").exists()
    monkeypatch.setenv("TRITON_KERNEL_DUMP", "1")
    texts = []
    for kernel in (made(), made()):
        kernel[(1,)](x, 32)
        (folder,) = (tmp_path / "dump").iterdir()
        assert folder.name == compiler.base32(kernel.newest.hash)
        texts.append({file.suffix: file.read_bytes() for file in folder.iterdir()})
        shutil.rmtree(tmp_path / "dump")
    assert texts[0] == texts[1] and {".ttir", ".ttgir", ".ptx"} <= {*texts[0]}
    assert texts[0][".ptx"].decode() == kernel.asm["ptx"] and texts[0][".ttir"].decode() == kernel.asm["tile"]
    given = compiler.ASTSource(made(), {"x": "*fp32", "N": "constexpr"}, {"N": 32})
    kernel = compiler.compile(given, target=drivers.GPUTarget("cpu", 90, 32))
    folder = tmp_path / "dump" / compiler.base32(kernel.hash)
    assert (folder / "scaled.ttgir").read_text() == kernel.asm["gpu"]


def test_what_has_no_effect_is_told_once(monkeypatch):
    monkeypatch.setattr(knobs, "_told", set())
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "0")
    monkeypatch.setenv("PTXAS_OPTIONS", "-O0")
    with knobs.compilation.scope(), pytest.warns(UserWarning, match="no effect in ptxforge") as told:
        knobs.compilation.override = True
        for _ in range(2):
            made().warmup(np.float32, 32)
    names = [str(warning.message).partition(" ")[0] for warning in told]
    assert names == ["TRITON_KERNEL_OVERRIDE", "PTXAS_OPTIONS"]
    for group, idle in knobs.IDLE.items():
        assert {*idle} <= {*group.knob_descriptors}


def test_debugging_is_for_every_kernel(monkeypatch):
    monkeypatch.delenv("TRITON_DEBUG", raising=False)
    assert not options.parse({})["debug"]
    monkeypatch.setenv("TRITON_DEBUG", "1")
    assert options.parse({})["debug"] and options.parse({"debug": False})["debug"]
    monkeypatch.setenv("TRITON_DEBUG", "0")
    assert options.parse({"debug": True})["debug"] and not options.parse({})["debug"]


def test_the_interpreter_runs_kernels_where_triton_s_would(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for chosen, expected in ((None, "interpreter"), ("emulator", "emulator")):
        monkeypatch.delenv("PTXFORGE_DEVICE", raising=False)
        if chosen is not None:
            monkeypatch.setenv("PTXFORGE_DEVICE", chosen)
        triton_compat.install()
        try:
            assert os.environ["PTXFORGE_DEVICE"] == expected
            assert internal_testing.is_interpreter() == (expected == "interpreter")
            x = np.ones(32, np.float32)
            made()[(1,)](x, 32)
            assert x.tolist() == [2] * 32
        finally:
            triton_compat.uninstall()
        assert os.environ.get("PTXFORGE_DEVICE") == chosen


@ptxforge.autotune([ptxforge.Config({"BLOCK": block}) for block in (32, 64)], key=["n"])
@ptxforge.jit
def doubled(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) * 2, i < n)


def test_a_listener_is_told_of_choices(emulator):
    told = []
    x = ptxforge.to_device(np.ones(64, np.float32), emulator)
    with knobs.autotuning.scope(), ptxforge.use_device(emulator):
        knobs.autotuning.listener = lambda **facts: told.append(facts)
        for _ in range(2):
            doubled[lambda chosen: (ptxforge.cdiv(64, chosen["BLOCK"]),)](x, 64)
    (facts,) = told
    assert facts["fn"] is doubled.base_fn and facts["best_config"] is doubled.best_config
    assert facts["key"] == (64, "float32") and facts["configs_timings"] == doubled.configs_timings
    assert facts["duration"] > 0 and facts["cache_hit"] is False
