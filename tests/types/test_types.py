"""Type checkers are content with users' code: mypy with ``--strict`` where it has annotations, and where it
has none; pyright in its ``basic`` mode, as basedpyright, whose wheel brings node."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = ("annotated.py", "unannotated.py")

WRONG = '''
import ptxforge
import ptxforge.language as tl
from annotated import add

add[(1,)](num_warps="four")
tl.lode
ptxforge.jitt
artifact: int = ptxforge.compile(add.fn, signature={"n": "i32"})
reveal_type(add)
reveal_type(tl.load)
'''


def mypy(folder: Path, name: str, *options: str) -> str:
    """What mypy says of a file of ``folder``."""
    settings = ["--config-file=", "--follow-imports=silent", "--cache-dir", str(folder / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *settings, *options, name],
        cwd=folder, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_mypy_is_silent_on_right_code_and_sees_mistakes(tmp_path):
    """One test, because the first run of mypy reads all of numpy and the others find that in its cache."""
    for name in EXAMPLES:
        shutil.copy(HERE / name, tmp_path / name)
    (tmp_path / "wrong.py").write_text(WRONG)
    silence = "Success: no issues found in 1 source file\n"
    assert mypy(tmp_path, "annotated.py", "--strict") == silence
    assert mypy(tmp_path, "unannotated.py", "--check-untyped-defs") == silence
    found = mypy(tmp_path, "wrong.py", "--strict")
    assert 'Argument "num_warps" to "__call__" of "Launch" has incompatible type "str"' in found
    assert 'Module has no attribute "lode"' in found and 'Module has no attribute "jitt"' in found
    assert 'has type "Artifact", variable has type "int"' in found
    assert "JITFunction[def (x: " in found and "eviction_policy: str =" in found


def test_pyright_is_silent(tmp_path):
    beside = Path(sys.executable).with_name("basedpyright")
    pyright = str(beside) if beside.exists() else shutil.which("basedpyright") or shutil.which("pyright")
    if pyright is None:
        pytest.skip("neither basedpyright nor pyright is installed")
    for name in EXAMPLES:
        shutil.copy(HERE / name, tmp_path / name)
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "basic", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [pyright, "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_examples_run():
    for name in EXAMPLES:
        assert runpy.run_path(str(HERE / name))["main"]() > 0


def test_the_package_says_that_it_has_types():
    assert (ROOT / "ptxforge/py.typed").is_file()
