"""Writes down the PTX of a source tree: what ``benchmarks.same_ptx`` runs, once in each of two trees.

    PYTHONPATH=TREE python record_ptx.py OUT.json [--targets …] [--only …]      every benchmark configuration
    PYTHONPATH=TREE:… python -m pytest -p record_ptx tests/kernels …            what tests compile

The second runs tests for what they compile alone: kernels are neither interpreted nor launched, the
assembler is not called, and whether a test then fails is of no interest. What goes through the whole pipeline
is compiled for every target. The file and its neighbour ``configurations.py`` are taken from the newer
checkout, so they use of ptxforge only what old revisions have.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path

RECORD, TARGETS, ONLY = "PTX_RECORD", "PTX_TARGETS", "PTX_ONLY"
"""Environment variables for the plugin: the file to write, targets separated by commas, a part of names."""
texts: dict[str, str] = {}
"""PTX by ``name @ target``; where the compiler refuses, its error."""
_state = {"test": "", "count": 0}


def without_locations(ptx: str) -> str:
    """The text without ``.loc`` and ``.file``: lines and folders of sources may differ."""
    return re.sub(r"^[ \t]*\.(loc|file)\b.*\n", "", ptx, flags=re.MULTILINE)


def record_benchmarks(targets: list[str], only: str) -> None:
    """Compile every configuration for every target."""
    from benchmarks.dialects import load
    from ptxforge.compiler import compile_function

    spec = importlib.util.spec_from_file_location(
        "configurations", Path(__file__).with_name("configurations.py")
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["configurations"] = module
    spec.loader.exec_module(module)
    kernels = load("ptxforge")
    for one in module.configurations():
        if only not in one.name:
            continue
        kernel = getattr(kernels, one.kernel, None)
        if kernel is None:  # a revision that does not have it yet
            continue
        for target in targets:
            try:
                ptx = compile_function(kernel, one.signature, one.constants, target, **one.options).ptx
            except Exception as error:  # a kernel that a revision refuses is an answer, too
                ptx = f"{type(error).__name__}: {error}".splitlines()[0]
            texts[f"{one.name} @ {target}"] = without_locations(ptx)


# -- the plugin --------------------------------------------------------------------------------------------


def pytest_configure(config) -> None:
    """Put recorders where texts are made, and nothing where kernels would run."""
    if RECORD not in os.environ:
        return
    import ptxforge.interpreter
    from ptxforge import codegen_ptx
    from ptxforge.emulator import device
    from ptxforge.passes import pipeline
    from ptxforge.runtime import tools
    from ptxforge.support.target import parse_target

    emit, run = codegen_ptx.emit, pipeline.run

    def note(function, target, kind: str) -> str:
        try:
            ptx = emit(function, target)
        except Exception as error:
            ptx = f"{type(error).__name__}: {error}".splitlines()[0]
        texts[f"{_state['test']} {kind} @ {target}"] = without_locations(ptx)
        return ptx

    def emit_and_note(function, target):
        _state["count"] += 1
        ptx = emit(function, target)
        texts[f"{_state['test']} #{_state['count']} @ {target}"] = without_locations(ptx)
        return ptx

    def run_for_all(function, target, **options):
        _state["count"] += 1
        for name in os.environ[TARGETS].split(","):
            if name == str(target):
                continue
            copy, other = function.clone(), parse_target(name)
            if "target" in copy.attributes:
                copy.attributes["target"] = name
            try:
                run(copy, other)
            except Exception as error:
                key = f"{_state['test']} #{_state['count']} for @ {name}"
                texts[key] = f"{type(error).__name__}: {error}".splitlines()[0]
                continue
            note(copy, other, f"#{_state['count']} for")
        return run(function, target, **options)

    codegen_ptx.emit, pipeline.run = emit_and_note, run_for_all
    ptxforge.interpreter.run = lambda *arguments, **options: None
    device.EmulatorFunction.launch = lambda *arguments, **options: None
    tools.find = shutil.which = lambda *arguments, **options: None


def pytest_runtest_setup(item) -> None:
    _state.update(test=item.nodeid, count=0)


def pytest_collection_modifyitems(config, items) -> None:
    only = os.environ.get(ONLY, "")
    items[:] = [item for item in items if only in item.nodeid]


def pytest_sessionfinish(session) -> None:
    if RECORD in os.environ:
        Path(os.environ[RECORD]).write_text(json.dumps(texts))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--targets", default="sm_90a")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    record_benchmarks(options.targets.split(","), options.only)
    options.out.write_text(json.dumps(texts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
