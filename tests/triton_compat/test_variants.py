"""What programs see of compiled kernels under Triton's names: caches, hooks, files."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime.variants import GPUTarget
from ptxforge.support.errors import ArgumentError, DeviceError
from ptxforge.triton_compat import compiler, cublas, host, knobs, testing
from ptxforge.triton_compat.drivers import make_backend


def made():
    """A kernel that nobody has compiled yet."""

    @ptxforge.jit
    def scaled(x, N: tl.constexpr, kind: tl.constexpr = tl.float32):
        at = tl.arange(0, N)
        tl.store(x + at, tl.load(x + at).to(kind) * 2)

    return scaled


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Files of this test's own, and no hooks left over."""
    monkeypatch.delenv("PTXFORGE_CACHE_DIR", raising=False)
    with knobs.cache.scope(), knobs.runtime.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path)
        yield tmp_path


def test_device_caches_hold_what_was_compiled():
    kernel, x = made(), np.ones(32, np.float32)
    caches = kernel.device_caches
    assert len(caches[0][0]) == 0 and list(caches) == [0] and len(caches) == 1
    kernel[(1,)](x, 32)
    kernel.warmup(np.float32, 32)
    assert list(caches[0][0].values()) == kernel.variants and len(kernel.variants) == 1
    caches.clear()
    assert len(caches[0][0]) == 0
    kernel[(1,)](x, 32)
    assert len(caches[0][0]) == 1 and x[0] == 4


def test_device_caches_of_a_kernel_that_takes_tuples():
    @ptxforge.jit
    def store(x, pair):
        tl.store(x, pair[0] + pair[1])

    x = np.zeros(1, np.int32)
    for pair in ((1, 2), (3, 4, 5)):
        store[(1,)](x, pair)
    assert len(store.device_caches[0][0]) == 2


def test_hooks_of_compilation(fresh):
    kernel, x, seen = made(), np.ones(32, np.float32), []
    knobs.runtime.jit_cache_hook = lambda **facts: seen.append(("before", facts))
    knobs.runtime.jit_post_compile_hook = lambda **facts: seen.append(("after", facts))
    kernel.warmup(np.float32, 32)
    kernel[(1,)](x, 32)
    assert [when for when, _ in seen] == ["before", "after"]
    facts = seen[0][1]
    assert facts["fn"].name.endswith("made.<locals>.scaled") and facts["fn"].jit_function is kernel
    assert facts["is_manual_warmup"] and facts["compile"]["is_warmup"] and facts["compile"]["num_warps"] == 4
    assert facts["compile"]["key"] in kernel.device_caches[0][0]
    kernel[(1,)](x, 16)
    assert len(seen) == 4 and not seen[2][1]["is_manual_warmup"]


def test_a_hook_that_declines(fresh):
    """Whatever way the launch takes: the first of its kind, one with a plan, with a hook, with tuples."""
    kernel, x, told, allowed = made(), np.ones(32, np.float32), [], False

    def ask(**facts):
        told.append(facts)
        return [] if allowed else "no"

    knobs.runtime.jit_cache_hook = ask
    for times in range(1, 5):
        assert kernel[(1,)](x, 32) is None and len(told) == times and (x == 1).all()
    assert kernel.run(x, 32, grid=(1,)) is kernel.warmup(np.float32, 32) is None
    data = told[-1]["compile"]["specialization_data"]
    assert made().preload(data) is None and not kernel.device_caches[0][0] and not kernel.variants
    with pytest.raises(ptxforge.errors.LaunchError, match="a hook keeps 'scaled' from being compiled for"):
        kernel.bind((1,), x, 32)
    seen = len(told)
    allowed = True
    assert kernel[(1,)](x, 32) is not None and (x == 2).all() and len(told) == seen + 1
    assert kernel.warmup(np.float32, 32) is kernel.newest and made().preload(data) is not None


def test_a_variant_from_its_specialization_data(fresh):
    seen = []
    knobs.runtime.jit_cache_hook = lambda **facts: seen.append(facts["compile"]["specialization_data"])
    first = made().warmup(np.float32, 32, tl.float16)
    other = made()
    assert other.preload(seen[0]).hash == first.hash
    seen.clear()
    assert other.warmup(np.float32, 32, tl.float16).hash == first.hash and not seen
    with pytest.raises(RuntimeError, match="Specialization data is for"):
        ptxforge.jit(test_hooks_of_compilation).preload(json.dumps({"name": "another"}))


def test_specialization_data_that_cannot_be_read_back(fresh):
    seen = []
    knobs.runtime.jit_cache_hook = lambda **facts: seen.append(facts["compile"]["specialization_data"])

    @ptxforge.jit
    def called(x, function: tl.constexpr, pair: tl.constexpr):
        tl.store(x, pair[1])

    called.warmup(np.float32, called, (1, 2.5))
    constants = json.loads(seen[0])["constants"]
    assert constants["pair"] == {"tuple": [1, 2.5]}
    with pytest.raises(ArgumentError, match="specialization data cannot hold"):
        called.preload(seen[0])


def test_a_listener_hears_how_long_compiling_took(fresh):
    kernel, x, seen = made(), np.ones(32, np.float32), []
    knobs.compilation.listener = lambda **facts: seen.append(facts)
    kernel[(1,)](x, 32)
    kernel.device_caches.clear()
    kernel[(1,)](x, 32)
    compiled, found = seen
    assert not compiled["cache_hit"] and found["cache_hit"] and compiled["metadata"]["hash"]
    took = compiled["times"]
    assert took.ir_initialization > 0 and took.total_lowering > 0 and took.store_results > 0
    assert took.total == took.ir_initialization + took.total_lowering + took.store_results
    assert found["times"].total_lowering == 0 == found["times"].store_results and found["times"].total > 0


def test_hooks_of_loading():
    kernel, x, seen = made(), np.ones(32, np.float32), []

    def start(module, function, name, metadata_group, hash):
        seen.append(("start", function is None, name, hash))

    def end(module, function, name, metadata_group, hash):
        seen.append(("end", function is None, name, hash))

    knobs.runtime.kernel_load_start_hook.add(start)
    knobs.runtime.kernel_load_end_hook.add(end)
    try:
        kernel[(1,)](x, 32)
        kernel[(1,)](x, 32)
    finally:
        knobs.runtime.kernel_load_start_hook.remove(start)
        knobs.runtime.kernel_load_end_hook.remove(end)
    digest = kernel.newest.hash
    assert seen == [("start", True, "scaled", digest), ("end", False, "scaled", digest)]
    kernel[(1,)](x, 16)
    assert len(seen) == 2


def test_files_by_key(fresh):
    manager = host.get_cache_manager("key")
    assert manager.get_file("a") is None and manager.get_group("g") is None and not manager.has_file("a")
    path = manager.put(b"content", "a")
    assert path.startswith(str(fresh)) and manager.get_file("a") == path
    manager.put_group("g", {"a": path, "lost": "/no/such/file"})
    assert manager.get_group("g") == {"a": path}
    assert host.get_dump_manager("key").put("text", "b") != manager.put("text", "b", binary=False)
    knobs.cache.manager_class = type("Own", (host.FileCacheManager,), {})
    assert type(host.get_override_manager("key")).__name__ == "Own"


SOURCE = """
#include <Python.h>
static PyObject* answer(PyObject* self, PyObject* none) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "answering", NULL, -1, methods};
PyMODINIT_FUNC PyInit_answering(void) { return PyModule_Create(&module); }
"""


@pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("clang")), reason="needs a C compiler")
def test_a_module_of_c(fresh, monkeypatch):
    module = compiler.compile_module_from_src(SOURCE, "answering")
    assert module.answer() == 42
    monkeypatch.setenv("CC", "/no/such/compiler")
    assert compiler.compile_module_from_src(SOURCE, "answering").__file__ == module.__file__
    with pytest.raises((OSError, subprocess.CalledProcessError)):
        compiler.compile_module_from_src(SOURCE + " ", "answering")


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("g++"), reason="needs a C++ compiler")
def test_a_module_of_cpp(fresh):
    source = "#include <string>\n#include <Python.h>\n" + SOURCE.replace("42", 'std::string("a\\nb").size()')
    source = source.replace("PyMODINIT_FUNC", "__attribute__((visibility(\"default\"))) PyMODINIT_FUNC")
    assert compiler.compile_module_from_src(source, "answering", language="c++").answer() == 3


def test_a_module_of_c_without_a_compiler(fresh, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match="no C compiler"):
        compiler.compile_module_from_src(SOURCE, "answering")


def test_parsing_a_kernel():
    written = testing.run_parser(made(), args=(np.ones(4, np.float32), 4))
    assert written is not None
    with pytest.raises(ptxforge.errors.CompilationError):
        testing.run_parser(ptxforge.jit(_adds_a_text))
    with pytest.raises(ptxforge.errors.PtxforgeError, match="text of Triton's IR"):
        testing.filecheck_test(made())()


def _adds_a_text():
    tl.arange(0, 4) + "text"  # noqa: B018


def test_cublas_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(cublas, "_LIBRARIES", ("no-such-library.so",))
    cublas._library.cache_clear()
    for kind in (DeviceError, RuntimeError):  # ours, and what callers of Triton's catch
        with pytest.raises(kind, match="cublasLt was not found"):
            cublas.CublasLt(None)
    cublas._library.cache_clear()


class Matrix:
    """As much of a tensor as the checks look at."""

    def __init__(self, rows, columns, dtype="torch.float16", contiguous=True):
        self.shape, self.dtype, self._contiguous = (rows, columns), dtype, contiguous

    def dim(self):
        return 2

    def is_contiguous(self):
        return self._contiguous

    def numel(self):
        return self.shape[0] * self.shape[1]

    def element_size(self):
        return 1

    def data_ptr(self):
        return 4096


@pytest.mark.parametrize(
    "a, b, c, complaint",
    [
        (Matrix(4, 8), Matrix(8, 16), Matrix(4, 16), "the shapes must be"),
        (Matrix(4, 8), Matrix(16, 8), Matrix(16, 4), "the shapes must be"),
        (Matrix(4, 8), Matrix(16, 8, "torch.float32"), Matrix(4, 16), "must hold torch.float16"),
        (Matrix(4, 8, "torch.int8"), Matrix(16, 8), Matrix(4, 16), "must be a contiguous matrix"),
        (Matrix(4, 8), Matrix(16, 8, contiguous=False), Matrix(4, 16), "must be a contiguous matrix"),
    ],
)
def test_matrices_that_cublas_cannot_take(a, b, c, complaint):
    with pytest.raises(ArgumentError, match=complaint):
        cublas.CublasLt._check(a, b, c, c)
    assert cublas.CublasLt._check(Matrix(4, 8), Matrix(16, 8), Matrix(4, 16), Matrix(4, 16)) == 2


@pytest.mark.parametrize(
    "kinds, described",
    [
        (("float16", "float16", "float16"), [2, 2, 2, 2]),
        (("float8_e4m3fn", "float8_e4m3fn", "float8_e4m3fn"), [28, 28, 2, 28]),
        (("float8_e4m3fn", "float8_e4m3fn", "bfloat16"), [28, 28, 14, 14]),
    ],
)
def test_types_that_cublas_is_told(monkeypatch, kinds, described):
    layouts, library = [], FakeLibrary()
    monkeypatch.setattr(cublas, "_library", lambda: library)
    monkeypatch.setattr(cublas, "_layout", lambda kind, *shape: layouts.append(kind) or cublas._Owned(""))
    a, b, c = (f"torch.{kind}" for kind in kinds)
    handle = cublas.CublasLt(Matrix(1, 64))
    handle.matmul(Matrix(4, 8, a), Matrix(16, 8, b), Matrix(4, 16, c))
    assert layouts == described
    addend = 8
    assert library.given["cublasLtMatmul"][addend] is None  # else its layout must be d's


def test_cublas_adds_no_8_bit_floats(monkeypatch):
    monkeypatch.setattr(cublas, "_library", lambda library=FakeLibrary(): library)
    matrices = [Matrix(4, 4, "torch.float8_e4m3fn") for _ in range(4)]
    with pytest.raises(ArgumentError, match="to be added"):
        cublas.CublasLt(Matrix(1, 64)).gemm(*matrices, 1.0, 1.0)


class FakeLibrary:
    """Finds one algorithm for every product."""

    def __init__(self):
        self.given = {}

    def __getattr__(self, name):
        def call(*args):
            self.given[name] = args
            if name.endswith("Heuristic"):
                args[-1]._obj.value = 1
            return 0

        return call


def test_variants_of_a_kernel_that_takes_tuples(fresh):
    @ptxforge.jit
    def store(x, pair):
        tl.store(x, pair[0][0] + pair[1])

    seen = []
    knobs.runtime.jit_cache_hook = lambda **facts: seen.append(facts["compile"]["specialization_data"])
    pair = ((2,), tl.constexpr(3))
    first = store.warmup(np.int32, pair)
    known = store.device_caches[0][0]
    assert len(known) == 1 and store.preload(seen[0]).hash == first.hash
    known.clear()
    assert len(store.device_caches[0][0]) == 0
    assert store.preload(seen[0]).hash == first.hash and len(seen) == 2


@pytest.mark.parametrize("disabled", [False, True])
def test_lines_of_the_source_in_ptx(disabled):
    @ptxforge.jit
    def copy(x, y):
        tl.store(y, tl.load(x))

    with knobs.compilation.scope():
        knobs.compilation.disable_line_info = disabled
        ptx = copy.warmup(np.float32, np.float32).asm["ptx"]
    assert (".loc" in ptx) == (".file" in ptx) == (not disabled)


@pytest.mark.parametrize("fused", [False, True])
def test_whether_products_and_sums_are_fused_by_default(monkeypatch, fused):
    @ptxforge.jit
    def multiply_add(x):
        at = x + tl.arange(0, 128)
        tl.store(at, tl.load(at) * 1.5 + 1.0)

    with knobs.language.scope():
        knobs.language.default_fp_fusion = fused
        ptx = multiply_add.warmup(np.float32).asm["ptx"]
        assert ("fma.rn" in ptx) == fused
        assert "fma.rn" in multiply_add.warmup(np.float32, enable_fp_fusion=True).asm["ptx"]
        options = make_backend(GPUTarget("cuda", 90, 32)).parse_options({})
        assert options.enable_fp_fusion == fused


@pytest.mark.parametrize("kept", [False, True])
def test_choices_are_kept_and_told_when_triton_s_variables_ask_for_it(kept, fresh, monkeypatch, capsys):
    """Read when a kernel is decorated, as there."""
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", str(int(kept)))
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", str(int(kept)))

    def measured():
        runs = []
        configs = [ptxforge.Config({"N": 16}), ptxforge.Config({"N": 32})]
        tuned = ptxforge.autotune(configs, key=[], pre_hook=lambda named: runs.append(named["N"]))(kernel)
        tuned[(1,)](np.ones(32, np.float32))
        return len(runs)

    kernel = made()
    assert measured() > 0 and (measured() > 0) == (not kept)
    assert ("'scaled'" in capsys.readouterr().err) == kept
