"""Kernels go to other processes by name, and a copy of a kernel is the kernel."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import LaunchError

HERE = Path(__file__).parent


@pytest.fixture
def kernels(monkeypatch):
    """``kernels.py`` under a name that any process finds once this folder is on its path."""
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    yield importlib.import_module("kernels")
    sys.modules.pop("kernels", None)


def there_and_back(thing):
    return pickle.loads(pickle.dumps(thing))


def test_a_copy_is_the_kernel(kernels):
    kernels.run(kernels.double, BLOCK=16)
    for kernel in (kernels.double, kernels.tuned):
        assert copy.copy(kernel) is kernel and copy.deepcopy(kernel) is kernel
    assert kernels.run(copy.deepcopy({"kernel": kernels.double})["kernel"], BLOCK=16) == 32


def test_by_name(kernels):
    assert there_and_back(kernels.double) is kernels.double
    assert there_and_back(kernels.tuned) is kernels.tuned
    assert there_and_back(kernels.tuned.fn) is kernels.tuned.fn
    assert there_and_back(kernels.tuned.base_fn) is kernels.tuned.base_fn
    assert there_and_back(kernels.Kernels.member) is kernels.Kernels.member


def test_made_of_a_function(kernels):
    again = there_and_back(kernels.compiled)
    assert again.fn is kernels.plain and kernels.run(again, 16, BLOCK=16) == 32
    assert again is there_and_back(kernels.compiled)  # one kernel, compiled once
    options = there_and_back(kernels.not_specialized)
    assert options.do_not_specialize == ["n"] and options is not again


def test_what_cannot_be_found_is_refused_with_its_name():
    @ptxforge.jit
    def inner(x):
        tl.store(x, 1)

    name = r"the kernel '.*test_what_cannot_be_found_is_refused_with_its_name\.<locals>\.inner' cannot be"
    with pytest.raises(LaunchError, match=name):
        pickle.dumps(inner)
    with pytest.raises(LaunchError, match="define it at the top of a module"):
        pickle.dumps(ptxforge.autotune([ptxforge.Config({})], key=[])(inner))


def test_a_name_that_means_another_kernel(kernels, monkeypatch):
    first = kernels.double
    monkeypatch.setattr(kernels, "double", ptxforge.jit(kernels.plain))
    with pytest.raises(LaunchError, match=r"'kernels\.double' cannot be pickled"):
        pickle.dumps(first)


SCRIPT = """
import multiprocessing, pickle, sys
import numpy as np
import ptxforge
import ptxforge.language as tl

@ptxforge.jit
def double(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)

def work(kernel):
    x = np.ones(16, np.float32)
    out = np.zeros_like(x)
    kernel[(1,)](x, out, BLOCK=16)
    return float(out.sum())

if __name__ == "__main__":
"""


def script(tmp_path, main: str) -> subprocess.CompletedProcess:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + textwrap.indent(textwrap.dedent(main), "    "))
    paths = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))
    return subprocess.run(
        [sys.executable, str(path)], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )


def test_a_script_under_spawn(tmp_path):
    done = script(
        tmp_path,
        """
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(work, [double]))
        """,
    )
    assert done.stdout == "[32.0]\n", done.stderr


def test_a_script_in_the_worker_of_another_pool(tmp_path):
    """A worker whose ``__main__`` is its own program: it runs the script's file for the kernel."""
    done = script(
        tmp_path, "pickle.dump(double, open('kernel.pickle', 'wb'))".replace("'k", f"'{tmp_path}/k")
    )
    assert not done.stderr
    worker = (
        f"import pickle\nkernel = pickle.load(open('{tmp_path}/kernel.pickle', 'rb'))\n"
        "print(kernel.__name__, kernel.fn.__globals__['work'](kernel))"
    )
    paths = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))
    done = subprocess.run(
        [sys.executable, "-c", worker],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "double 32.0\n", done.stderr
