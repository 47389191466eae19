"""Operands and instructions that must not change a result: cache operators, eviction priorities, policies,
prefetches and hints; and the queries of address spaces.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice, registry

from .harness import FIXTURES, HEADER, run

KERNEL = """
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) {{
.reg .b64 %x, %y, %policy, %g, %g2; .reg .b32 %t, %v<8>, %s; .reg .b16 %h; .reg .pred %p;
.shared .align 16 .b8 buffer[2048];
mov.u32 %t, %tid.x; ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; cvta.to.global.u64 %x, %x;
cvta.to.global.u64 %y, %y; mad.wide.u32 %x, %t, 32, %x; mad.wide.u32 %y, %t, 32, %y;
mov.u32 %s, buffer; mad.lo.u32 %s, %t, 32, %s; createpolicy.fractional.L2::evict_last.b64 %policy, 1.0;
{body}
ret; }}
"""
PRIORITIES = (
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
)
LOADS = [
    *[f"ld.global.{cache}.b32 %v0, [%x];" for cache in ("ca", "cg", "cs", "cv", "lu")],
    "ld.weak.global.b32 %v0, [%x];", "ld.volatile.global.b32 %v0, [%x];",
    *[f"ld.{order}.{scope}.global.b32 %v0, [%x];" for order in ("relaxed", "acquire")
      for scope in ("cta", "cluster", "gpu", "sys")],
    "ld.mmio.relaxed.sys.global.b32 %v0, [%x];",
    *[f"ld.global.{priority}.b32 %v0, [%x];" for priority in PRIORITIES],
    *[f"ld.global.{size}.b32 %v0, [%x];" for size in ("L2::64B", "L2::128B", "L2::256B")],
    "ld.global.nc.b32 %v0, [%x];",
    "ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.b32 %v0, [%x], %policy;",
    "ld.global.L2::cache_hint.b32 %v0, [%x], %policy;", "ld.global.ca.L2::128B.b32 %v0, [%x];",
    "ldu.global.b32 %v0, [%x];",
    "ld.global.L1::evict_last.L2::cache_hint.v4.b32 {%v0, %v1, %v2, %v3}, [%x], %policy;",
    "{ .reg .b64 %q; ld.param::entry.u64 %q, [x]; mad.wide.u32 %q, %t, 32, %q; ld.global.b32 %v0, [%q]; }",
]  # fmt: skip
STORES = [
    *[f"st.global.{cache}.b32 [%y], %v0;" for cache in ("wb", "cg", "cs", "wt")],
    "st.weak.global.b32 [%y], %v0;", "st.volatile.global.b32 [%y], %v0;",
    *[f"st.{order}.{scope}.global.b32 [%y], %v0;" for order in ("relaxed", "release")
      for scope in ("cta", "cluster", "gpu", "sys")],
    "st.mmio.relaxed.sys.global.b32 [%y], %v0;",
    *[f"st.global.{priority}.b32 [%y], %v0;" for priority in PRIORITIES],
    "st.global.L2::cache_hint.b32 [%y], %v0, %policy;",
    "red.global.L2::cache_hint.add.u32 [%y], %v0, %policy;",
    "atom.global.L2::cache_hint.exch.b32 %v1, [%y], %v0, %policy;",
]  # fmt: skip
HINTS = [
    "prefetch.global.L1 [%x];", "prefetch.global.L2 [%x];", "prefetch.global.L2::evict_last [%x];",
    "prefetch.global.L2::evict_normal [%x];", "prefetchu.L1 [%x];",
    "{ .reg .b64 %q; and.b64 %q, %x, -128; applypriority.global.L2::evict_normal [%q], 128; }",
    "cp.async.bulk.prefetch.L2.global [%x], 32;",
    "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %policy, 0.5;",
    "createpolicy.fractional.L2::evict_normal.b64 %policy;", "createpolicy.cvt.L2.b64 %policy, 0;",
    "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %policy, [%x], 16, 32;",
    "nanosleep.u32 20;", "pmevent 3;", "pmevent.mask 5;", "griddepcontrol.launch_dependents;",
    "griddepcontrol.wait;",
    "fence.sc.gpu;", "fence.acq_rel.cluster;", "fence.acquire.sync_restrict::shared::cluster.cluster;",
    "fence.release.sync_restrict::shared::cta.cluster;", "fence.proxy.alias;", "fence.proxy.async;",
    "fence.proxy.async.global;", "fence.proxy.async.shared::cta;",
    "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;",
    "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;",
    "fence.proxy.tensormap::generic.release.gpu;", 
    "{ .reg .b64 %q; and.b64 %q, %x, -128; fence.proxy.tensormap::generic.acquire.cta [%q], 128; }",
    "fence.mbarrier_init.release.cluster;", "membar.cta;", "membar.gl;", "membar.sys;", "membar.proxy.alias;",
    "bar.warp.sync -1;",
]  # fmt: skip
NEWER = ["ld.global.v8.b32 {%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}, [%x];"]
"""256-bit accesses are for sm_100 and later."""


def text_of(load: str, store: str, hint: str = "", target: str = "sm_90a") -> str:
    return HEADER.format(target=target) + KERNEL.format(body=f"{hint}\n{load}\n{store}")


def copies(machine, load: str, store: str, hint: str = "", target: str = "sm_90a") -> None:
    """Every thread copies the first word of its 32 bytes."""
    x = np.arange(64 * 8, dtype=np.uint32) + 1
    y = np.zeros_like(x)
    run(machine, text_of(load, store, hint, target), "k", 1, 64, x, y, np.uint32(0))
    np.testing.assert_array_equal(y[::8], x[::8])
    assert not y.reshape(64, 8)[:, 1:].any()


@pytest.mark.parametrize("load", LOADS)
def test_loads(machine, load):
    copies(machine, load, "st.global.b32 [%y], %v0;")


@pytest.mark.parametrize("store", STORES)
def test_stores(machine, store):
    copies(machine, "ld.global.b32 %v0, [%x];", store)


@pytest.mark.parametrize("hint", HINTS)
def test_hints(machine, hint):
    copies(machine, "ld.global.b32 %v0, [%x];", "st.global.b32 [%y], %v0;", hint)


@pytest.mark.parametrize("load", NEWER)
def test_loads_of_newer_devices(load):
    copies(EmulatorDevice(), load, "st.global.b32 [%y], %v0;", target="sm_100")


def test_wide_vectors_there_and_back():
    registers = "{%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}"
    x = np.arange(64 * 8, dtype=np.uint32)
    y = np.zeros_like(x)
    load, store = f"ld.global.v8.b32 {registers}, [%x];", f"st.global.v8.b32 [%y], {registers};"
    text = text_of(load, store, "", "sm_100")
    run(EmulatorDevice(), text, "k", 1, 64, x, y, np.uint32(0))
    np.testing.assert_array_equal(y, x)


def test_discarded_lines_may_be_written_again(machine):
    discard = "{ .reg .b64 %q; and.b64 %q, %y, -128; discard.global.L2 [%q], 128; } bar.sync 0;"
    copies_nothing_else = text_of("ld.global.b32 %v0, [%x];", "st.global.b32 [%y], %v0;", discard)
    x, y = np.arange(64 * 8, dtype=np.uint32), np.zeros(64 * 8, np.uint32)
    run(machine, copies_nothing_else, "k", 1, 64, x, y, np.uint32(0))
    np.testing.assert_array_equal(y[::8], x[::8])


@pytest.mark.parametrize(
    "hint", ["brkpt;", "setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.inc.sync.aligned.u32 64;"]
)
def test_hints_of_the_emulator_alone(hint):
    """A GPU would stop at a breakpoint; registers are not counted in a kernel without ``.maxnreg``."""
    copies(EmulatorDevice(), "ld.global.b32 %v0, [%x];", "st.global.b32 [%y], %v0;", hint)


SPACES = [
    ("cvta.global.u64 %g, %x;", {"global"}),
    ("{ .reg .b64 %q; cvt.u64.u32 %q, %s; cvta.shared.u64 %g, %q; }",
     {"shared", "shared::cta", "shared::cluster"}),
    ("{ .local .b32 w; .reg .b64 %q; mov.u64 %q, w; cvta.local.u64 %g, %q; }", {"local"}),
    ("{ .reg .b64 %q; mov.b64 %q, n; cvta.param.u64 %g, %q; }", {"param", "param::entry", "const"}),
]  # fmt: skip


@pytest.mark.parametrize("make, spaces", SPACES)
@pytest.mark.parametrize("space", ["global", "shared", "shared::cta", "shared::cluster", "local"])
def test_isspacep(machine, make, spaces, space):
    query = f"{make} isspacep.{space} %p, %g; selp.b32 %v0, 1, 0, %p;"
    text = text_of(query, "st.global.b32 [%y], %v0;")
    y = np.full(64 * 8, 7, np.uint32)
    run(machine, text, "k", 1, 64, np.zeros(64 * 8, np.uint32), y, np.uint32(0))
    if "param" in spaces and space == "global":
        return  # parameters may lie in global memory
    assert (y[::8] == (space in spaces)).all()


@pytest.mark.parametrize(
    "query",
    [
        "mapa.shared::cluster.u32 %v1, %s, 0; ld.shared::cluster.b32 %v0, [%v1];",
        "mapa.shared::cluster.u32 %v1, %s, 0; getctarank.shared::cluster.u32 %v2, %v1;"
        " ld.shared.b32 %v0, [%s]; add.u32 %v0, %v0, %v2;",
        "{ .reg .b64 %q; cvt.u64.u32 %q, %s; cvta.shared.u64 %q, %q; mapa.u64 %q, %q, 0; ld.b32 %v0, [%q]; "
        "getctarank.u64 %v2, %q; add.u32 %v0, %v0, %v2; }",
    ],
)
def test_the_only_cta_of_a_cluster(machine, query):
    load = f"ld.global.b32 %v3, [%x]; st.shared.b32 [%s], %v3; bar.sync 0; {query}"
    copies(machine, load, "st.global.b32 [%y], %v0;")


def _tests() -> str:
    """The texts of all tests and fixtures."""
    paths = [*Path(__file__).parent.glob("*.py"), *FIXTURES.glob("*.ptx")]
    return "\n".join(path.read_text() for path in paths)


WRITTEN_BY_RANK = {"1d", "3d", "4d", "5d"}
"""Modifiers that `test_async_copy` makes from numbers."""


def test_every_instruction_and_modifier_occurs_in_a_test():
    tests = _tests()
    patterns = {name: r"[\w.:{},]*?".join(map(re.escape, name.split("."))) for name in registry.names()}
    words = set().union(*registry.KNOWN.values()) - WRITTEN_BY_RANK
    patterns.update({word: rf"(?<![\w:]){re.escape(word)}(?![\w:])" for word in words})
    assert [name for name, pattern in patterns.items() if not re.search(pattern, tests)] == []
