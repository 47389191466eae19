"""``triton.compile`` and what Inductor does with the kernel that it gives."""

from __future__ import annotations

import base64
import collections
import copy
import pickle

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import triton_compat
from ptxforge.driver import nvjitlink
from ptxforge.runtime import tools
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.runtime.variants import GPUTarget
from ptxforge.support.errors import ArgumentError
from ptxforge.triton_compat.compiler import ASTSource, base32, compile, triton_key
from ptxforge.triton_compat.drivers import Backends, EmulatorDriver, driver, make_backend

CPU = GPUTarget("cpu", 90, 32)
needs_assembler = pytest.mark.skipif(
    tools.find("ptxas") is None and nvjitlink.library() is None, reason="no assembler"
)


@ptxforge.jit
def scaled(x, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def source(**changes):
    given = {
        "signature": {"x": "*fp32", "y": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"},
        "constexprs": {"BLOCK": 128},
        "attrs": {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]},
    }
    return ASTSource(scaled, **given | changes)


@pytest.fixture(autouse=True)
def outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return tmp_path


def run(kernel):
    x, y = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
    kernel.run(3, 1, 1, 0, kernel.function, kernel.packed_metadata, None, None, None, x, y, 300, 2.0, 128)
    np.testing.assert_array_equal(y, 2 * x)


def test_a_kernel_runs_by_triton_s_launch_function():
    kernel = compile(source(), target=CPU, options={"num_warps": 2, "debug": True})
    assert isinstance(kernel, CompiledKernel) and kernel.metadata.num_warps == 2
    assert kernel.metadata.target == CPU and kernel.src.fn is scaled
    assert kernel.packed_metadata == (2, 1, 0) and kernel.n_regs > 0
    run(kernel)


def test_the_driver_makes_launch_functions():
    kernel = compile(source(), target=CPU)
    launches = driver.active.launcher_cls(kernel.src, kernel.metadata)
    warm = scaled.warmup(np.float32, np.float32, 300, 2.0, 128)
    for launch in (launches, driver.active.launcher_cls(scaled, warm.metadata._asdict())):
        x, y = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
        launch(3, 1, 1, 0, kernel.function, kernel.packed_metadata, None, None, None, x, y, 300, 2.0, 128)
        np.testing.assert_array_equal(y, 2 * x)
    assert launches.num_ctas == 1
    with pytest.raises(ArgumentError, match="no kernel of .* has the hash"):
        driver.active.launcher_cls(scaled, kernel.metadata._replace(hash="0"))


def test_compiled_kernel_launches_with_and_without_its_constants():
    kernel = compile(source(), target=CPU)
    for constants in ((), (128,)):
        x, y = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
        kernel[(3,)](x, y, 300, 2.0, *constants)
        np.testing.assert_array_equal(y, 2 * x)


def test_constants_and_attributes_by_position():
    given = source(constexprs={(4,): 128}, attrs={(0,): [["tt.divisibility", 16]]})
    assert given.constants == {(4,): 128}
    kernel, signature, constants = given.specialization()
    assert kernel is scaled
    assert signature == {"x": "*fp32:16", "y": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
    assert constants == {"BLOCK": 128}


def test_hashes_tell_specialisations_apart():
    found = {source(constexprs={"BLOCK": block}).hash() for block in (64, 128, 128)}
    found.add(source(attrs={}).hash())
    assert len(found) == 3
    kernels = {compile(source(), target=CPU, options={"num_warps": n}).hash for n in (1, 2, 2)}
    assert len(kernels) == 2 and len(triton_key()) == 64


@needs_assembler
def test_outputs_lie_where_triton_s_cache_would_be(outputs):
    kernel = compile(source(), target=GPUTarget("cuda", 90, 32))
    folder = outputs / base64.b32encode(bytes.fromhex(kernel.hash)).decode().rstrip("=")
    assert folder.name == base32(kernel.hash)
    assert (folder / "scaled.cubin").read_bytes() == kernel.asm["cubin"]
    assert (folder / "scaled.ptx").read_text() == kernel.asm["ptx"] and ".target sm_90a" in kernel.asm["ptx"]
    (folder / "scaled.cubin").write_bytes(b"damaged")
    assert compile(source(), target=GPUTarget("cuda", 90, 32)).asm["cubin"] == kernel.asm["cubin"]


def test_texts_of_ir():
    """Here, and not where the kernel is sent to."""
    kernel = compile(source(), target=CPU)
    assert kernel.asm["ttir"] == kernel.asm["tile"] and "scaled" in kernel.asm["ttir"]
    assert kernel.asm["ttgir"] == kernel.asm["gpu"] and kernel.asm["gpu"] != kernel.asm["tile"]
    run(kernel)
    arrived = pickle.loads(pickle.dumps(kernel))
    assert arrived.asm["ptx"] == kernel.asm["ptx"] and "ttir" not in arrived.asm
    assert len(pickle.dumps(arrived)) == len(pickle.dumps(pickle.loads(pickle.dumps(arrived))))
    run(arrived)


@needs_assembler
def test_texts_are_listed_under_triton_s_names():
    made = compile(source(), target=GPUTarget("cuda", 90, 32)), scaled.warmup(*[np.float32] * 2, 3, 2.0, 128)
    names = [["tile", "gpu", "ptx", "cubin", "sass"], ["ttir", "ttgir", "ptx", "cubin"]]
    assert [list(each.asm) for each in made] == [names[0]] * 2
    triton_compat.install()
    try:
        assert [list(each.asm) for each in made] == [names[1]] * 2 and len(made[0].asm) == 4
        assert all(made[0].asm.values()) and "sass" in made[0].asm and "tile" in made[0].asm
        assert list(pickle.loads(pickle.dumps(made[1])).asm) == names[1][:3]
    finally:
        triton_compat.uninstall()


@pytest.mark.parametrize("arch", [80, 90])
@needs_assembler
def test_a_pickled_kernel_without_its_function(arch):
    """What a worker sends: Inductor takes the Python function away and copies the kernel's ``__dict__``."""
    kernel = compile(source(), target=GPUTarget("cuda", arch, 32))
    fn = kernel.src.fn
    kept = fn.fn, fn.__globals__, fn.used_global_vals, fn.repr, fn._hash_lock
    try:
        name = fn.repr(fn)
        fn.fn = fn.__globals__ = fn.used_global_vals = fn._hash_lock = None
        assert copy.deepcopy(fn) is not fn
        state = kernel.__dict__ | {"metadata": kernel.metadata._asdict(), "run": None, "function": None}
        arrived = pickle.loads(pickle.dumps(state))
    finally:
        fn.fn, fn.__globals__, fn.used_global_vals, fn.repr, fn._hash_lock = kept
    rebuilt = CompiledKernel.__new__(CompiledKernel)
    rebuilt.__dict__.update(arrived)
    assert rebuilt.asm["cubin"] == kernel.asm["cubin"] and rebuilt.hash == kernel.hash
    bare = rebuilt.src.fn
    assert (bare.arg_names, bare.constexprs, bare.fn, name) == (scaled.arg_names, [4], None, "scaled")
    assert [p.is_constexpr for p in bare.params] == [False] * 4 + [True]
    assert bare.cache_key == scaled.cache_key and bare.src == scaled.src
    assert copy.deepcopy(scaled) is scaled


def test_a_rebuilt_kernel_runs():
    state = pickle.loads(
        pickle.dumps(compile(source(), target=CPU).__dict__ | {"run": None, "function": None})
    )
    rebuilt = CompiledKernel.__new__(CompiledKernel)
    rebuilt.__dict__.update(state)
    rebuilt._init_handles()
    run(rebuilt)
    run(pickle.loads(pickle.dumps(rebuilt)))


def test_other_backends_are_refused():
    with pytest.raises(ArgumentError, match="'hip' is not a backend of ptxforge"):
        compile(source(), target=GPUTarget("hip", 942, 64))


def test_backends(monkeypatch):
    backend = make_backend(GPUTarget("cuda", 80, 32))
    options = backend.parse_options({"num_warps": 8, "waves_per_eu": 2})
    assert (options.num_warps, options.arch, backend.binary_ext) == (8, "sm_80", "cubin")
    assert not hasattr(options, "waves_per_eu")
    assert backend.hash() != make_backend(GPUTarget("cuda", 90, 32)).hash()
    backends = Backends()
    assert set(backends) == {"nvidia", "cpu"} and backends["cpu"].driver is EmulatorDriver
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    assert set(backends) == {"nvidia"} and "cpu" not in backends and backends.get("cpu") is None


def test_the_active_driver_can_be_replaced():
    assert driver.active.get_current_target().backend == "cuda"
    driver.set_active(EmulatorDriver())
    try:
        assert driver.active.get_current_target() == CPU
    finally:
        driver.reset_active()
    assert driver.active is driver.default


@pytest.mark.parametrize("stage", ["ttir", "ttgir"])
def test_files_of_ir(tmp_path, stage):
    """The IR that a kernel became makes the same kernel again."""
    made = scaled.compile({"x": "*fp32:16", "y": "*fp32", "n": "i32", "factor": "fp32"}, {"BLOCK": 128})
    path = tmp_path / f"kernel.{stage}"
    path.write_text(made.asm[stage])
    kernel = compile(str(path), target=CPU)
    assert kernel.artifact.signature == {"x": "*fp32:16", "y": "*fp32", "n": "i32", "factor": "fp32"}
    assert kernel.artifact.written == made.written and kernel.metadata.num_warps == 4
    x, y = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
    kernel[(3,)](x, y, 300, 2.0)
    np.testing.assert_array_equal(y, 2 * x)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="compile.. takes .ttir and .ttgir files"):
        compile(tmp_path / "kernel.llir", target=CPU)
    (tmp_path / "kernel.ttir").write_text("module { tt.func public @kernel() }")
    with pytest.raises(ptxforge.errors.ParseError):
        compile(tmp_path / "kernel.ttir", target=CPU)


Pair = collections.namedtuple("Pair", "scale shift")


@ptxforge.jit
def of_tuples(y, inputs, pair, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.static_assert(isinstance(pair, Pair))
    x, (n, _) = inputs
    tl.static_assert(inputs[1][1][1] is None)
    value = tl.load(x + i, mask=i < n)
    for _ in tl.static_range(inputs[1][1][0]):  # a constant inside of two tuples
        value *= pair.scale
    tl.store(y + i, value + pair.shift, mask=i < n)


def source_of_tuples(**changes):
    given = {
        "signature": {
            "y": "*fp32", "BLOCK": "constexpr",
            "inputs": ("*fp32", ("i32", ("constexpr", "constexpr"))), "pair": Pair("fp32", "constexpr"),
        },
        "constexprs": {"BLOCK": 128, (1, 1, 1, 0): 3, (2, 1): 0.5},
        "attrs": {(0,): [["tt.divisibility", 16]], (1, 0): [["tt.divisibility", 16]]},
    }  # fmt: skip
    return ASTSource(of_tuples, **given | changes)


def test_tuples_in_signatures():
    kernel = compile(source_of_tuples(), target=CPU)
    assert [name for name, _ in kernel.artifact.parameters] == ["y", "inputs_0", "inputs_1_0", "pair_0"]
    assert kernel.artifact.signature["inputs_0"] == "*fp32:16"
    expected = np.arange(300, dtype=np.float32) * 8 + 0.5

    def check(launch):
        x, y = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
        launch(y, (x, (300, (3, None))), Pair(2.0, 0.5))
        np.testing.assert_array_equal(y, expected)

    check(lambda *args: kernel[(3,)](*args))
    check(lambda *args: kernel[(3,)](*args, 128))
    arrived = pickle.loads(pickle.dumps(kernel))
    for each in (kernel, arrived):
        head = 3, 1, 1, 0, each.function, each.packed_metadata, None, None, None
        check(lambda *args: each.run(*head, *args, 128))  # noqa: B023 - called at once


def test_a_launch_with_other_tuples_is_refused():
    kernel, x = compile(source_of_tuples(), target=CPU), np.zeros(8, np.float32)
    with pytest.raises(ArgumentError, match=r"nested as \(_, \(_, \(_, \(_, _\)\)\), \(_, _\), _\)"):
        kernel[(1,)](x, (x, 8), Pair(2.0, 0.5))


def test_a_tuple_as_one_constant():
    @ptxforge.jit
    def sizes(y, shape):
        tl.store(y, shape[0] * shape[1][0])

    for kinds in ("constexpr", ("constexpr", ("constexpr",))):
        given = ASTSource(sizes, {"y": "*i32", "shape": kinds}, {(1,): (5, (7,))})
        y = np.zeros(1, np.int32)
        compile(given, target=CPU)[(1,)](y, (5, (7,)))
        assert y[0] == 35


def test_hashes_tell_tuples_apart():
    changes = [
        {}, {"constexprs": {"BLOCK": 128, (1, 1, 1, 0): 2, (2, 1): 0.5}},
        {"attrs": {}},
        {"signature": source_of_tuples().signature | {"pair": Pair("fp64", "constexpr")}},
    ]  # fmt: skip
    assert len({source_of_tuples(**change).hash() for change in changes}) == len(changes)


def test_constants_of_what_a_signature_does_not_have():
    with pytest.raises(ArgumentError, match=r"a value for \(1, 4\)"):
        compile(source_of_tuples(constexprs={"BLOCK": 128, (1, 4): 3}), target=CPU)


@needs_assembler
def test_tuples_have_machine_code_for_gpus_too():
    assert compile(source_of_tuples(), target=GPUTarget("cuda", 90, 32)).asm["cubin"]


def test_machine_code_is_assembled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path / "cache"))
    asked = []
    monkeypatch.setattr(tools, "assembler_version", lambda assembler: f"{assembler} 1")
    monkeypatch.setattr(tools, "assemble_with", lambda *given: asked.append(given) or b"machine code")
    for arch, times in ((90, 1), (90, 1), (80, 2)):
        assert compile(source(), target=GPUTarget("cuda", arch, 32)).asm["cubin"] == b"machine code"
        assert scaled.compile(*source().specialization()[1:], target="sm_90a").asm["cubin"] == b"machine code"
        assert len(asked) == times
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", "off")
    compile(source(), target=GPUTarget("cuda", 90, 32))
    assert len(asked) == 3


@ptxforge.jit
def product(a, b, c, k, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        left = tl.load(a + i[:, None] * k + (start + i)[None, :])
        total = tl.dot(left, tl.load(b + (start + i)[:, None] * BLOCK + i[None, :]), total)
    tl.store(c + i[:, None] * BLOCK + i[None, :], total)


def test_who_launches_by_himself_gets_no_parameters_that_only_we_make():
    """No tensor maps, no number of programs: the products by ``wgmma`` are fed by what threads copy."""
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "k": "i32", "BLOCK": "constexpr"}
    aligned = {(index,): [["tt.divisibility", 16]] for index in range(4)}
    made = compile(ASTSource(product, signature=types, constexprs={"BLOCK": 64}, attrs=aligned), CPU)
    ptx = made.asm["ptx"]
    assert "wgmma.mma_async" in ptx and "cp.async.cg" in ptx and "cp.async.bulk" not in ptx
    assert ptx[: ptx.index("{")].count(".param") == 4
