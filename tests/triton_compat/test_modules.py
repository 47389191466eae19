"""``import triton`` gives ptxforge, answers probes as Triton does, and refuses to stand beside the real
one."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import triton_compat
from ptxforge.support import errors
from ptxforge.triton_compat.modules import MODULES

HERE = Path(__file__).parent


@pytest.fixture
def triton():
    if "triton" in sys.modules and not triton_compat.is_installed():
        pytest.skip("the real triton is imported in this process")
    triton_compat.install()
    yield importlib.import_module("triton")
    triton_compat.uninstall()


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported_and_found(triton, name):
    module = importlib.import_module(name)
    assert module.__name__ == name and importlib.util.find_spec(name) is module.__spec__
    assert [entry for entry in dir(module) if not hasattr(module, entry)] == []


def test_names_are_ptxforges_own(triton):
    scope = {}
    exec(
        "import triton.language as tl\n"
        "from triton import jit, cdiv, Config, autotune, heuristics, next_power_of_2\n"
        "from triton.runtime.jit import JITFunction\n"
        "from triton.runtime import driver\n"
        "from triton.compiler import CompiledKernel, CompilationError\n"
        "from triton.runtime.errors import OutOfResources\n",
        scope,
    )
    assert scope["jit"] is ptxforge.jit and scope["Config"] is ptxforge.Config
    assert scope["tl"].load is ptxforge.language.load and scope["tl"].float16 is ptxforge.language.float16
    assert scope["OutOfResources"] is errors.OutOfResourcesError
    assert scope["CompilationError"] is errors.CompilationError
    assert scope["cdiv"](1000, 256) == 4 and scope["next_power_of_2"](1000) == 1024


def test_a_module_has_no_names_of_another(triton):
    """One file of ptxforge stands for several modules of Triton's."""
    names = {
        "language.target_info": "TensorWrapper", "runtime.cache": "TensorWrapper",
        "runtime.build": "ASTSource", "tools.disasm": "ASTSource",
        "testing": "run_filecheck", "_filecheck": "do_bench",
        "_internal_testing": "MXFP4Tensor", "tools.mxfp": "is_cuda",
        "profiler": "print_tree", "profiler.viewer": "scope", "profiler.data": "start",
    }  # fmt: skip
    for module, name in names.items():
        found = importlib.import_module(f"triton.{module}")
        assert name not in dir(found) and not hasattr(found, name), module
        assert dir(found)


def test_probes(triton):
    assert triton.__version__ >= "3.0.0" and triton.language.__version__ == triton.__version__
    assert "cache_results" in inspect.signature(triton.autotune).parameters
    assert hasattr(triton, "set_allocator") and not hasattr(triton.language, "no_such_thing")
    assert not hasattr(triton, "__wrapped__")
    with pytest.raises(ModuleNotFoundError, match="triton.no_such_module"):
        importlib.import_module("triton.no_such_module")
    with pytest.raises(AttributeError, match="ptxforge does not cover 'triton.language.no_such_thing'"):
        triton.language.no_such_thing  # noqa: B018


def test_facts_about_the_device(triton):
    active = triton.runtime.driver.active
    assert active.get_current_target() == ("cuda", 90, 32) and active.get_current_target().arch == 90
    properties = active.utils.get_device_properties(active.get_current_device())
    assert properties["multiprocessor_count"] == 132 and properties["max_shared_mem"] == 232448
    assert active.get_current_stream() == 0


@pytest.mark.parametrize("name", ["triton", "triton.language", "triton.language.extra.libdevice"])
def test_a_module_made_of_its_description_has_its_names(triton, name):
    """Packages find a library in the releases that have it at several places so."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module is sys.modules[name]
    function = {"triton": "cdiv"}.get(name, "rsqrt")
    assert getattr(module, function) is getattr(importlib.import_module(name), function)


def test_reloading_makes_the_drivers_anew(triton):
    driver = triton.runtime.driver
    before = driver.active
    importlib.reload(sys.modules["triton.runtime.driver"])
    importlib.reload(sys.modules["triton.runtime"])
    assert driver._active is None and driver._default is None and triton.runtime.driver is driver
    assert isinstance(driver.active, triton.backends.driver.DriverBase) and driver.active is not before
    driver.set_active(before)
    assert driver.active is before is not driver.default
    driver.reset_active()
    assert driver.active is driver.default
    assert triton.runtime.jit.JITFunction is ptxforge.JITFunction


def test_element_types_spell_themselves_as_triton_does(triton):
    assert repr(triton.language.int8) == "triton.language.int8"
    scope = {"triton": triton}
    assert eval(repr(triton.language.bfloat16), scope) is triton.language.bfloat16
    triton_compat.uninstall()
    assert repr(ptxforge.language.float32) == "tl.float32"


def test_classes_that_packages_ask_for(triton):
    """Those that have no class here are several."""
    jit, core = importlib.import_module("triton.runtime.jit"), triton.language.core
    called = ptxforge.jit(_kind), ptxforge.language.softmax, triton.constexpr_function(len)
    assert all(isinstance(function, jit.JITCallable) for function in called)
    assert not isinstance(len, jit.JITCallable) and not isinstance(core.load, jit.JITCallable)
    types = core.int32, core.pointer_type(core.int8), core.block_type(core.int8, [4])
    assert all(isinstance(kind, core.base_type) for kind in types) and not isinstance(4, core.base_type)
    assert isinstance(core.constexpr(4), core.base_value) and not isinstance(4, core.base_value)
    assert issubclass(core.tensor, core.base_value)

    def annotated(x: core.base_value, t: core.base_type | None) -> jit.JITCallable: ...


def _kind(x, out, VALUE: tl.constexpr, TENSOR: tl.constexpr, CONSTEXPR: tl.constexpr):
    tl.store(out, isinstance(tl.load(x), VALUE))
    tl.store(out + 1, isinstance(4, CONSTEXPR | TENSOR))
    tl.store(out + 2, isinstance(x, CONSTEXPR))


def test_classes_in_kernels(triton, emulator):
    core = triton.language.core
    out = ptxforge.to_device(np.full(3, 7, np.int32), emulator)
    with ptxforge.use_device(emulator):
        ptxforge.jit(_kind)[(1,)](out, out, core.base_value, core.tensor, core.constexpr)
    assert out.numpy().tolist() == [1, 1, 0]


def test_install_twice_is_install_once(triton):
    triton_compat.install()
    assert sys.modules["triton"] is triton


def test_the_real_package_is_not_replaced(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", types.ModuleType("triton"))
    with pytest.raises(errors.PtxforgeError, match="the real triton package is imported already"):
        triton_compat.install()


def test_reinterpret(triton):
    class Tensor:
        dtype, shape, device = "torch.int8", (4,), "cpu"

        def data_ptr(self):
            return 0x100

    tensor = Tensor()
    seen = triton.reinterpret(tensor, triton.language.float8e5)
    assert (seen.data_ptr(), seen.dtype, seen.shape) == (0x100, triton.language.float8e5, (4,))
    assert triton.reinterpret(seen, triton.language.int8) is tensor


def test_a_script_runs_unmodified():
    command = [sys.executable, "-m", "ptxforge", "run", str(HERE / "script.py"), "--its", "own"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[1])
    assert done.stdout == "passed ['--its', 'own']\n", done.stderr


# triton.testing


PLOTS = """
class Figure:
    lines = []
    def add_subplot(self): return self
    def plot(self, x, y, label, marker): self.lines.append((x, y, label))
    def set(self, **texts): self.texts = texts
    def set_xscale(self, scale): self.scale = scale
    def set_yscale(self, scale): pass
    def legend(self): pass
    def savefig(self, path): path.write_text(f"{self.lines} {self.scale} {self.texts['title']}")
"""


def test_perf_report_draws_where_matplotlib_is(triton, tmp_path, monkeypatch):
    """By a stand-in with the few names of matplotlib's that are used."""
    package = tmp_path / "path" / "matplotlib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "figure.py").write_text(PLOTS)
    report = triton.testing.Benchmark(["n"], [1, 2], "p", ["a"], ["A"], "plot", x_log=True)
    with monkeypatch.context() as here:  # gives the path back before the alias leaves it
        for name in ("matplotlib", "matplotlib.figure"):
            here.delitem(sys.modules, name, raising=False)
        here.syspath_prepend(package.parent)
        triton.testing.perf_report(report)(lambda n, p: n * 10).run(save_path=str(tmp_path / "out"))
        for name in ("matplotlib", "matplotlib.figure"):
            sys.modules.pop(name, None)
    assert (tmp_path / "out" / "plot.png").read_text() == "[([1, 2], [10, 20], 'A')] log plot"


def test_perf_report(triton, tmp_path, capsys):
    testing = triton.testing
    report = testing.Benchmark(
        x_names=["m", "n"], x_vals=[(1, 2), 3], line_arg="provider", line_vals=["a", "b"],
        line_names=["A", "B"], plot_name="products", args={"k": 10},
    )  # fmt: skip

    @testing.perf_report(report)
    def measured(m, n, k, provider):
        return m * n * k if provider == "a" else (0.5, 0.1, 0.9)

    rows = measured.run(print_data=True, save_path=str(tmp_path))
    assert rows == [{"m": 1, "n": 2, "A": 20, "B": 0.5}, {"m": 3, "n": 3, "A": 90, "B": 0.5}]
    assert (tmp_path / "products.csv").read_text() == "m,n,A,B\n1,2,20,0.5\n3,3,90,0.5\n"
    stored = json.loads((tmp_path / "products.json").read_text())
    assert stored == {"name": "products", "x": ["m", "n"], "lines": ["A", "B"], "rows": rows}
    assert "products" in capsys.readouterr().out


def test_assert_close(triton):
    triton.testing.assert_close(np.ones(3), np.ones(3) + 0.009)
    with pytest.raises(AssertionError):
        triton.testing.assert_close(np.ones(3), np.ones(3) + 0.02)
    with pytest.raises(AssertionError):
        triton.testing.assert_close(np.ones(3), np.ones(3) + 0.009, atol=1e-3)


def test_do_bench(triton):
    calls = []
    low, high = triton.testing.do_bench(lambda: calls.append(1), warmup=1, rep=1, quantiles=[0.0, 1.0])
    assert 0 <= low <= high and len(calls) >= 2
    assert len(triton.testing.do_bench(lambda: None, warmup=0, rep=0, return_mode="all")) == 1
    with pytest.raises(errors.PtxforgeError, match="return_mode is one of mean, median, min, max and all"):
        triton.testing.do_bench(lambda: None, return_mode="mode")


def test_aggregates_have_the_names_of_several_versions(triton):
    core = importlib.import_module("triton.language.core")
    assert triton.aggregate is core._aggregate is ptxforge.language.aggregate
    assert triton.aggregate_replace is ptxforge.language.aggregate_replace
