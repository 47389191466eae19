"""``triton.profiler`` and its viewer."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime import hooks
from ptxforge.support.errors import PtxforgeError
from ptxforge.triton_compat import profiler


def work(grid, metadata, arguments):
    return {"name": f"double_{metadata.num_warps}", "flops32": 128 * grid[0], "bytes": 1024 * grid[0]}


@ptxforge.jit(launch_metadata=work)
def double(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) * 2)


@pytest.fixture
def launch(emulator):
    x = ptxforge.to_device(np.zeros(128, np.float32), emulator)

    def run(**options):
        with ptxforge.use_device(emulator):
            double[(1,)](x, BLOCK=128, **options)

    return run


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = list(hooks.LAUNCH)
    yield
    profiler.finalize()
    assert hooks.LAUNCH == before


def test_scopes_and_launches_make_a_tree(launch, tmp_path, capsys):
    session = profiler.start("profile", hook="triton")
    with profiler.scope("outer", {"flops16": 1000}):
        launch()
        launch()
        with profiler.scope("inner"):
            launch(num_warps=2)
    profiler.deactivate(session)
    launch()
    profiler.activate(session)
    profiler.enter_scope("a library's call", metrics={"bytes": 3})
    profiler.exit_scope("a library's call", metrics={"bytes": 5})
    profiler.finalize()
    root, device = json.loads((tmp_path / "profile.hatchet").read_text())
    assert device["CUDA"]["0"]["arch"] == "90" and root["frame"]["name"] == "ROOT"
    outer, library = root["children"]
    assert outer["metrics"] == {"flops16": 1000}  # its time is its kernels'
    assert library["metrics"]["bytes"] == 8 and library["metrics"]["time (ns)"] > 0
    kernel, inner = outer["children"]
    assert kernel["frame"]["name"] == "double_4" and kernel["metrics"]["count"] == 2
    assert kernel["metrics"]["flops32"] == 256 and kernel["metrics"]["time (ns)"] > 0
    assert [child["frame"]["name"] for child in inner["children"]] == ["double_2"]

    tree, metrics = profiler.parse(["flop32/s", "time/ns", "count"], "profile.hatchet")
    assert metrics == ["flop32/s", "time/ns", "count"] and tree.values["count"] == 3
    times = [node["metrics"]["time (ns)"] for node in (kernel, inner["children"][0])]
    assert tree.children[0].values["time/ns"] == pytest.approx(sum(times))
    assert tree.children[0].values["flop32/s"] == pytest.approx(384 / sum(times) * 1e9)
    assert tree.children[1].values["flop32/s"] is None
    profiler.print_tree(tree, metrics, depth=2)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "flop32/s time/ns count" and shown[3].endswith(" 2.000 double_4")
    assert not any("double_2" in line for line in shown)


def test_what_was_recorded_so_far(launch):
    session = profiler.start("profile")
    with profiler.scope("inside"):
        launch()
    profiler.deactivate(session, flushing=True)
    root, device = profiler.get(session)
    (scope,) = root["children"]
    assert scope["frame"]["name"] == "inside" and scope["children"][0]["metrics"]["count"] == 1
    assert scope["children"][0]["metrics"]["time (ns)"] > 0 and "CUDA" in device
    assert profiler.get(session)[0] == root and profiler.get(None) == []


def test_without_metadata_kernels_have_their_own_names(launch, tmp_path):
    @profiler.scope("decorated")
    def inside():
        launch()

    @profiler.profile(name="called")
    def run():
        inside()

    run()
    profiler.finalize()
    root, _ = json.loads((tmp_path / "called.hatchet").read_text())
    (kernel,) = root["children"][0]["children"]
    assert kernel["frame"]["name"] == "double" and set(kernel["metrics"]) == {"count", "time (ns)"}


def test_what_is_shown(launch):
    profiler.start("shown")
    for name in ("first", "second"):
        with profiler.scope(name):
            launch()
    profiler.finalize()

    def names(**options):
        tree, _ = profiler.parse(["time/us"], "shown.hatchet", **options)
        return [child.name for child in tree.children]

    assert names() == ["first", "second"]
    assert names(include="first") == ["first"] and names(exclude="first") == ["second"]
    assert names(include="double") == ["first", "second"] and names(threshold=1.1) == []
    assert profiler.main(["-m", "avg_time/ms,count", "shown.hatchet"]) == 0


def test_what_there_is_not():
    profiler.start("empty")
    profiler.finalize()
    with pytest.raises(PtxforgeError, match="no metric 'banana/s'"):
        profiler.parse(["banana/s"], "empty.hatchet")
    with pytest.raises(PtxforgeError, match="no hook 'other'; there is 'triton'"):
        profiler.start("never", hook="other")
    with pytest.raises(PtxforgeError, match="no profiler session 3"):
        profiler.activate(3)
    with pytest.raises(PtxforgeError, match="no scope"):
        profiler.exit_scope()
    with pytest.raises(PtxforgeError, match="writes no 'chrome_trace'"):
        profiler.finalize(output_format="chrome_trace")
    profiler.enter_scope("outer")
    with pytest.raises(PtxforgeError, match="entered last is 'outer', not 'inner'"):
        profiler.exit_scope("inner")
    profiler.exit_scope()
