"""The page: that it is complete and needs nothing else, and what a browser makes of it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ptxforge import triton_compat
from ptxforge.cli import main
from ptxforge.cli.source import load_kernel
from ptxforge.explain import resources
from ptxforge.explain.page import page
from ptxforge.explain.report import explain
from ptxforge.explain.roofline import run_counted
from ptxforge.explain.trace import Line, trace

KERNELS = Path(__file__).parent / "kernels.py"
SIGNATURE = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "N": "i32:16", "K": "i32:16"}
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def row(text):
    lines = KERNELS.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.fixture(scope="module")
def report():
    path = list(sys.path)
    found = trace(load_kernel(f"{KERNELS}:product"), SIGNATURE, {"BLOCK": 64}, "sm_80")
    sys.path[:] = path
    triton_compat.uninstall()
    sys.modules.pop("kernels", None)
    a, b, c = np.ones((64, 128), np.float16), np.ones((128, 64), np.float16), np.zeros((64, 64), np.float32)
    return explain(found, run_counted(found.artifact, [a, b, c, np.int32(64), np.int32(128)], (1, 1, 1)))


@pytest.fixture(scope="module")
def data(report):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page(report), re.DOTALL)[1]
    return json.loads(text)


def test_it_needs_nothing_else(report):
    text = page(report)
    outside = re.sub(r"http://www\.w3\.org/2000/svg", "", text)  # the name of SVG, which nobody fetches
    assert not re.search(r"https?://|src=|<link|@import|url\(", outside)


def test_texts_of_a_kernel_do_not_end_the_script(report, monkeypatch):
    evil = "x = '</script><b>'"
    monkeypatch.setattr("ptxforge.explain.page._sources", lambda numbers, main: [{"file": evil, "lines": []}])
    assert page(report).count("</script>") == 2
    assert "\\u003c/script>" in page(report)


def test_every_stage_is_there(report, data):
    assert [stage["name"] for stage in data["stages"]] == [stage.name for stage in report.trace.stages]
    shown = None
    for stage, found in zip(report.trace.stages, data["stages"], strict=True):
        shown = found["lines"] if found["lines"] is not None else shown
        assert [text for text, _ in shown] == [line.text for line in stage.lines]
    assert [text for text, _ in data["ptx"]] == report.trace.artifact.ptx.splitlines()


def test_source_and_ptx_have_keys_in_common(data):
    key = data["line_keys"][str(row("total = tl.dot"))]
    assert any(key in keys for text, keys in data["ptx"] if "mma.sync" in text)
    source = [
        (text, number) for file in data["sources"] for text, keys, number in file["lines"] if key in keys
    ]
    assert source == [(KERNELS.read_text().splitlines()[row("total = tl.dot") - 1], row("total = tl.dot"))]
    shown = "\n".join(text for file in data["sources"] for text, _, _ in file["lines"])
    assert "def product(" in shown and "def halved(x):" in shown and "def softmax" not in shown


def test_the_pictures(data):
    shapes = {(tuple(layout["shape"]), layout["kind"]) for layout in data["layouts"]}
    assert {((64, 64), "threads"), ((64, 32), "memory")} <= shapes
    (loop,) = data["schedules"]
    rows = {(found["label"], found["ahead"]) for found in loop["rows"]}
    assert rows == {("copy a", 2), ("copy b", 2), ("dot", 0)} and loop["line"] == row(
        "for step in range(0, K"
    )
    areas = data["shared"]["areas"]
    assert max(area["offset"] + area["size"] for area in areas) == data["shared"]["bytes"]
    together = [(x, y) for i, x in enumerate(areas) for y in areas[:i]
                if x["first"] <= y["last"] and y["first"] <= x["last"]]  # fmt: skip
    assert together
    for x, y in together:
        assert x["offset"] + x["size"] <= y["offset"] or y["offset"] + y["size"] <= x["offset"]


def test_bases_of_a_layout_reach_every_element(data):
    for layout in data["layouts"]:
        names = ("register", "lane", "warp") if layout["kind"] == "threads" else ("offset",)
        reached = {0}
        for base in (base for name in names for base in layout[name]):
            reached |= {flat ^ base for flat in reached}
        assert reached == set(range(int(np.prod(layout["shape"]))))


def test_counters_stand_beside_their_lines(data):
    key = str(data["line_keys"][str(row("right = tl.load"))])
    assert data["counters"][key]["sectors"] > 0 and data["counters"][key]["bytes"] == 128 * 64 * 2


# -- in a browser ----------------------------------------------------------------------------------------


def browse(path: Path, folder: Path, fragment: str) -> str:
    """What the page consists of when its script has run."""
    if BROWSER is None:
        pytest.skip("no chromium is installed")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command = [BROWSER, *options, "--virtual-time-budget=5000", "--dump-dom", f"file://{path}#{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition('id="data">')[0] + done.stdout.partition("</script>")[2]


def pinned(text: str) -> list[str]:
    return [
        html.unescape(line)
        for line in re.findall(r'class="[^"]*\bpin\b[^"]*"[^>]*>.*?<span>([^<]*)</span></div>', text)
    ]


def test_a_line_lights_up_its_counterparts(report, tmp_path, monkeypatch):
    sass = (Line("    HMMA.16816.F32 R4, R8, R12, R4 ;", ((str(KERNELS), row("total = tl.dot")),)),)
    monkeypatch.setattr("ptxforge.explain.page.machine_code", lambda artifact: sass)
    path = tmp_path / "page.html"
    path.write_text(page(report), encoding="utf-8")
    for tab, sign in (("ir", " dot %"), ("ptx", "mma.sync"), ("sass", "HMMA")):
        shown = browse(path, tmp_path, f"L{row('total = tl.dot')}-{tab}")
        lines = pinned(shown)
        assert any("total = tl.dot(left, right" in line for line in lines), tab
        assert any(sign in line for line in lines), tab
        assert not any("tl.store" in line for line in lines)
        if tab == "ir":  # the last pass says that the loop of products stays as it is
            line = r'class="line added[^"]*"[^>]*><span class="number">\d+</span><span>[^<]* = for '
            assert re.search(line, shown)


def test_the_browser_draws(report, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page(report), encoding="utf-8")
    layouts = browse(path, tmp_path, "L-layouts")
    assert layouts.count("<canvas") == len(re.findall('"kind":"(?:threads|memory)"', path.read_text()))
    shown = browse(path, tmp_path, "L-shared")
    assert "64x32 f16, buffer 2" in shown and shown.count('class="bar') > 20


def test_the_command_writes_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(resources.tools, "find", lambda name: None)  # no SASS without tools
    path = tmp_path / "softmax.html"
    arguments = ["explain", f"{KERNELS}:softmax", "--constants", "BLOCK=256", "--html", str(path)]
    assert main([*arguments, "--signature", "*fp32:16,*fp32:16,i32"]) == 0
    sys.modules.pop("kernels", None)
    assert capsys.readouterr().out == f"wrote {path}\n"
    assert path.read_text().startswith("<!doctype html>") and '"sass":null' in path.read_text()
