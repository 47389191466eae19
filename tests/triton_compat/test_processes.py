"""Child processes get the alias, and their parent's ptxforge, whichever copy their own path would find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ptxforge
from ptxforge import triton_compat

ROOT = Path(ptxforge.__file__).parents[1]
REPORT = "import triton, ptxforge; print(triton.__file__, ptxforge.__file__)"
OURS = f"{ROOT / 'ptxforge/triton_compat/modules.py'} {ptxforge.__file__}\n"
SPAWN = """
import multiprocessing, sys

def report(queue):
    import triton, ptxforge
    queue.put((triton.__file__, ptxforge.__file__))

if __name__ == "__main__":
    {install}
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    child = context.Process(target=report, args=(queue,))
    child.start()
    print(*queue.get(timeout=120))
    child.join()
"""


@pytest.fixture
def other_copy(tmp_path):
    """A folder with something else called ptxforge and triton: what a stale path would find."""
    for name in ("ptxforge", "triton"):
        (tmp_path / "other" / name).mkdir(parents=True)
        (tmp_path / "other" / name / "__init__.py").write_text("")
    return str(tmp_path / "other")


@pytest.fixture
def installed():
    before = list(sys.path), os.environ.get("PYTHONPATH")
    triton_compat.install()
    yield
    triton_compat.uninstall()
    assert (sys.path, os.environ.get("PYTHONPATH")) == before


def python(*arguments, cwd, **variables):
    """The output of a Python process; ``None`` removes a variable."""
    environment = {k: v for k, v in (os.environ | variables).items() if v is not None}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_that_cannot_be_touched(tmp_path, other_copy):
    folder = python("-m", "ptxforge", "triton-path", cwd=ROOT, PYTHONPATH=None).strip()
    assert folder == triton_compat.SHADOW
    path = os.pathsep.join([folder, other_copy])
    assert python("-c", REPORT, cwd=tmp_path, PYTHONPATH=path) == OURS


def test_a_child_of_a_process_that_installed(tmp_path, other_copy, installed):
    assert python("-c", REPORT, cwd=tmp_path) == OURS
    path = os.pathsep.join([os.environ["PYTHONPATH"], other_copy])
    assert python("-c", REPORT, cwd=tmp_path, PYTHONPATH=path) == OURS
    starts = f"import triton, subprocess, sys; subprocess.run([sys.executable, '-c', {REPORT!r}], check=True)"
    assert python("-c", starts, cwd=tmp_path) == OURS


def test_the_release_that_the_alias_calls_itself(tmp_path):
    shows = "import triton, triton.language; print(triton.__version__, triton.language.__version__)"
    for given, shown in ((None, "3.6.0 3.6.0\n"), ("3.7.1", "3.7.1 3.7.1\n")):
        path = {"PYTHONPATH": triton_compat.SHADOW, "PTXFORGE_TRITON_VERSION": given}
        assert python("-c", shows, cwd=tmp_path, **path) == shown


def test_an_imported_ptxforge_stays(tmp_path):
    """Two copies in one process would not know each other's kernels."""
    stays = "import ptxforge; before = ptxforge; import triton, ptxforge; assert ptxforge is before"
    python("-c", stays, cwd=ROOT, PYTHONPATH=triton_compat.SHADOW)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_multiprocessing(tmp_path, method):
    script = tmp_path / "script.py"
    script.write_text(SPAWN.format(install="", method=method))
    assert python("-m", "ptxforge", "run", str(script), cwd=ROOT, PYTHONPATH=None) == OURS
    script.write_text(SPAWN.format(install="import ptxforge.triton_compat as c; c.install()", method=method))
    assert python(str(script), cwd=tmp_path, PYTHONPATH=str(ROOT)) == OURS


def test_a_module_runs(tmp_path):
    (tmp_path / "its_own.py").write_text(f"{REPORT}\nimport sys; print(sys.argv[1:], __name__)\n")
    shown = python("-m", "ptxforge", "run", "-m", "its_own", "-x", "1", cwd=ROOT, PYTHONPATH=str(tmp_path))
    assert shown == f"{OURS}['-x', '1'] __main__\n"


def test_uninstall_leaves_children_alone(tmp_path, installed):
    triton_compat.uninstall()
    assert triton_compat.SHADOW not in sys.path
    assert triton_compat.SHADOW not in os.environ.get("PYTHONPATH", "")
    triton_compat.install()
