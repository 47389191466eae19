"""What a kernel was compiled from changes: its text, its callees', and what it read from outside."""

from __future__ import annotations

import gc
import inspect
import math
import types
import weakref
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime.precompile import AsyncCompileMode, FutureKernel
from ptxforge.support import source_text
from ptxforge.support.errors import ChangedGlobalError, CompilationError, ForeignFunctionError


@tl.constexpr_function
def answer():
    return 1


@ptxforge.jit
def added(x):
    return x + 1


@ptxforge.jit
def inner(x):
    return added(x)


@ptxforge.jit
def kernel(out):
    tl.store(out, inner(0) + answer())


def stored(kernel, *args):
    out = np.full(1, -1, np.int32)
    kernel[(1,)](out, *args)
    return out[0]


@pytest.mark.parametrize(
    "function, old, new", [(added, "x + 1", "x + 5"), (inner, "added(x)", "added(x) + 4"), (answer, "1", "5")]
)
def test_a_new_text_reaches_the_kernels_that_call_it(function, old, new):
    assert stored(kernel) == 2
    before, text = kernel.cache_key, function.src
    function._unsafe_update_src(text.replace(old, new))
    try:
        assert stored(kernel) == 6 and kernel.cache_key != before
    finally:
        function._unsafe_update_src(text)
    assert stored(kernel) == 2 and kernel.cache_key == before


def test_a_function_in_a_constant_gets_a_new_text():
    @ptxforge.jit
    def zero():
        return 0

    @ptxforge.jit
    def calls(out, function: tl.constexpr):
        tl.store(out, function())

    assert stored(calls, zero) == 0
    zero._unsafe_update_src(zero.src.replace("0", "7"))
    assert stored(calls, zero) == 7


def made_at(lines):
    """A kernel that begins some lines further down."""
    text = "import ptxforge\n" + "\n" * lines + "@ptxforge.jit\ndef kernel(x):\n    pass\n"
    scope = {"__source__": text, "__name__": __name__}
    exec(text, scope)
    return scope["kernel"]


def test_the_key_tells_where_a_kernel_stands():
    """Its machine code has line numbers in it."""
    assert made_at(0).cache_key != made_at(3).cache_key
    assert made_at(3).cache_key == made_at(3).cache_key


def test_what_a_compile_time_function_reads_is_part_of_the_key():
    def key(number):
        scope = {"tl": tl, "ptxforge": ptxforge, "NUMBER": number, "__name__": __name__}
        scope["__source__"] = (
            "@tl.constexpr_function\ndef read():\n    return NUMBER\n\n\n"
            "@ptxforge.jit\ndef kernel(out):\n    tl.store(out, read())\n"
        )
        exec(scope["__source__"], scope)
        return scope["kernel"].cache_key

    assert key(1) == key(1) != key(2)


def keyed(text, name="kernel", **names):
    """The key of a kernel defined by ``text``."""
    scope = {"tl": tl, "ptxforge": ptxforge, "__name__": __name__, "__source__": text} | names
    exec(text, scope)
    return scope[name].cache_key


def test_what_a_compile_time_function_calls_is_part_of_the_key():
    def key(number):
        return keyed(
            f"def helper():\n    return {number}\n\n\ndef between():\n    return helper()\n\n\n"
            "@tl.constexpr_function\ndef read():\n    return between()\n\n\n"
            "@ptxforge.jit\ndef kernel(out):\n    tl.store(out, read())\n"
        )

    assert key(1) == key(1) != key(2)


@pytest.mark.parametrize("body", ["np.sum(1)", "other.fold([1])"])
def test_compile_time_functions_with_calls_that_their_text_does_not_tell(body):
    other = types.ModuleType("other")
    exec("def fold(items):\n    return 1\n", vars(other))
    text = f"@tl.constexpr_function\ndef read():\n    return {body}\n"
    with pytest.raises(ForeignFunctionError, match="read calls <.*, which its source does not tell"):
        keyed(text, "read", np=np, other=other)
    assert issubclass(ForeignFunctionError, RuntimeError)


@pytest.mark.parametrize("body", ["math.sqrt(4)", "max(1, 2)", "answer()", "tl.int32", "stored(1)"])
def test_compile_time_functions_whose_text_tells_all(body):
    text = f"@tl.constexpr_function\ndef read(n=1):\n    return {body}\n"
    assert len(keyed(text, "read", math=math, answer=answer, stored=stored)) == 64


def test_a_global_that_is_read_before_the_kernel_assigns_its_name(monkeypatch):
    @ptxforge.jit
    def kernel(out):
        value = READ_FIRST  # noqa: F821
        READ_FIRST = 5  # noqa: F841
        tl.store(out, value)

    monkeypatch.setitem(kernel.fn.__globals__, "READ_FIRST", tl.constexpr(3))
    assert stored(kernel) == stored(kernel) == 3
    monkeypatch.setitem(kernel.fn.__globals__, "READ_FIRST", tl.constexpr(4))
    with pytest.raises(ChangedGlobalError, match="the global variable 'READ_FIRST' was 3"):
        stored(kernel)


def test_variables_of_functions_around_a_kernel():
    number = tl.constexpr(42)

    @ptxforge.jit
    def store(out):
        tl.store(out, number)

    assert stored(store) == 42
    number.value = 43
    with pytest.raises(RuntimeError, match="the global variable 'number' was 42 .* and is 43 now"):
        stored(store)
    number = tl.constexpr(44)
    with pytest.raises(RuntimeError, match="is 44 now"):
        stored(store)
    number = tl.constexpr(42)
    assert stored(store) == 42


# Compiling in the background


class Manual(Executor):
    """Runs what was submitted when it is told to."""

    def __init__(self):
        self.tasks = []

    def submit(self, function, *args):
        future = Future()
        self.tasks.append((future, function, args))
        return future

    def run_one(self):
        future, function, args = self.tasks.pop(0)
        try:
            future.set_result(function(*args))
        except CompilationError as error:
            future.set_exception(error)


def constant():
    @ptxforge.jit
    def store(out, value: tl.constexpr):
        tl.store(out, value)

    return store


def test_warmups_are_submitted_once_each():
    store, executor = constant(), Manual()
    with AsyncCompileMode(executor):
        for value in (1, 2, 1):
            made = store.warmup(np.int32, value)
            assert isinstance(made, FutureKernel)
        assert len(executor.tasks) == 2 and not store.variants
        executor.run_one()
        assert not store.variants  # until somebody asks
        assert stored(store, 1) == 1 and len(store.variants) == 1
        assert store.warmup(np.int32, 1) is store.variants[0]
        executor.run_one()
    assert made.result().name == made.name == "store" and stored(store, 2) == 2


def test_a_launch_waits_for_its_own_variant():
    store = constant()
    with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool):
        for value in range(3):
            store.warmup(np.int32, value)
        assert [stored(store, value) for value in (2, 0, 1, 3)] == [2, 0, 1, 3]
    assert len(store.variants) == 4


def test_errors_in_the_background():
    @ptxforge.jit
    def wrong(out):
        tl.store(out, unknown)  # noqa: F821

    with pytest.raises(CompilationError, match="unknown"), ThreadPoolExecutor(1) as pool:
        with AsyncCompileMode(pool):
            wrong.warmup(np.int32)
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool, ignore_errors=True):
        kernel = wrong.warmup(np.int32)
    assert kernel.result(ignore_errors=True) is None


def test_too_many_warps_are_passed_over_by_an_autotuner():
    @ptxforge.autotune([ptxforge.Config({}, num_warps=64), ptxforge.Config({}, num_warps=2)], key=[])
    @ptxforge.jit
    def store(out):
        tl.store(out, 3)

    assert stored(store) == 3 and store.best_config.num_warps == 2
    with pytest.raises(ptxforge.errors.OutOfResourcesError, match="2048 required, 1024 available"):
        store.fn.warmup(np.int32, num_warps=64)


def test_a_new_text_still_sees_the_variables_around_the_function():
    number = tl.constexpr(3)

    @ptxforge.jit
    def store(out):
        tl.store(out, number)

    assert store.get_capture_scope()["number"] is number and store.get_capture_scope()["tl"] is tl
    store._unsafe_update_src(store.src.replace("number", "number + 1"))
    assert stored(store) == 4


def test_a_kernel_put_together_from_text():
    """As packages do it: an empty function with a signature, its text, and then another place for it."""

    def described(x, N: tl.constexpr):
        pass

    empty = types.FunctionType((lambda: None).__code__, {"tl": tl}, "doubled")
    empty.__signature__, empty.__module__ = inspect.signature(described), __name__
    doubled = ptxforge.jit(empty)
    text = (
        "def doubled(x, N: tl.constexpr):\n"
        "    at = tl.arange(0, N)\n"
        "    tl.store(x + at, tl.load(x + at) * 2)\n"
    )
    doubled._unsafe_update_src(text)
    assert "".join(doubled.raw_src) == text and doubled.repr(None) == "" and doubled.starting_line_number == 1
    doubled.raw_src, doubled.starting_line_number = list(kernel.raw_src), 7
    code = kernel.fn.__code__
    doubled.fn.__code__ = doubled.fn.__code__.replace(
        co_filename=code.co_filename, co_firstlineno=code.co_firstlineno
    )
    x = np.ones(16, np.float32)
    doubled[(1,)](x, 16)
    assert (x == 2).all() and doubled.starting_line_number == 7


def test_a_new_text_may_come_before_the_names_around_have_values():
    @ptxforge.jit
    def kernel(x):
        tl.store(x, PLACE(later))  # noqa: F821

    kernel._unsafe_update_src(kernel.src.replace("PLACE(later)", "5"))
    x = np.zeros(1, np.int32)
    kernel[(1,)](x)
    assert x[0] == 5
    later = 3  # noqa: F841


@ptxforge.jit
def wrong(x):
    return x[5]


@ptxforge.jit
def template(out, function: tl.constexpr):
    number = function(1)
    tl.store(out, number)


def test_a_kernel_with_the_place_of_another_points_at_its_lines():
    """Its text lacks the decorator, and has a line more in front of the body; packages count the second."""
    empty = types.FunctionType((lambda: None).__code__, {"tl": tl, "wrong": wrong}, "made")
    empty.__signature__ = inspect.Signature([inspect.Parameter("out", inspect.Parameter.POSITIONAL_ONLY)])
    made, (_, *body) = ptxforge.jit(empty), template.src.splitlines()
    made._unsafe_update_src("\n".join(["def made(out):", "    function: tl.constexpr = wrong", *body]))
    place = template.fn.__code__
    made.fn.__code__ = made.fn.__code__.replace(
        co_filename=place.co_filename, co_firstlineno=place.co_firstlineno - 1
    )
    line = template.starting_line_number + 2
    for kernel, constants in ((made, {}), (template, {"function": wrong})):
        with pytest.raises(CompilationError) as caught:
            kernel.compile({"out": "*i32"}, constants)
        assert f"test_changes.py:{line} in {kernel.__name__}\n" in str(caught.value)
        assert f"\n{line} |     number = function(1)\n" in str(caught.value)


def test_a_kernel_may_be_given_another_name():
    """What a function is called is free to change, as packages do that make kernels; its text stays."""

    @ptxforge.jit
    def made(out):
        tl.store(out, 5)

    made.fn.__name__ = made.__name__ = "renamed"
    made.fn.__qualname__ = made.__qualname__ = "renamed"
    assert stored(made) == 5 and ".entry renamed(" in made.compile({"out": "*i32"}).asm["ptx"]


def test_the_lines_of_a_kernel():
    assert kernel.raw_src[0] == "@ptxforge.jit\n" and kernel.raw_src[1] == "def kernel(out):\n"


def test_options_of_triton_that_may_be_none():
    assert stored(kernel) == 2
    out = np.zeros(1, np.int32)
    kernel[(1,)](out, arch=None, ir_override=None)
    assert out[0] == 2
    with pytest.raises(ptxforge.errors.ArgumentError, match="'sm70' is not supported: kernels are"):
        kernel[(1,)](out, arch="sm70")


def test_a_name_made_of_the_default_one():
    added = ptxforge.jit(repr=lambda spec: kernel.repr(spec) + "_more")(kernel.fn)
    assert added.compile({"out": "*i32"}).name == "kernel_more"


def test_a_kernel_that_dies_is_forgotten_without_asking_the_others(monkeypatch):
    """However many kernels there are: none is compared with the one that died."""
    monkeypatch.setattr(source_text, "_after", {})
    kernels = [ptxforge.jit(added.fn) for _ in range(20)]
    compared = []

    def is_same(one, other):
        compared.append(other)
        return one is other

    monkeypatch.setattr(weakref.WeakMethod, "__eq__", is_same)
    del kernels[10]
    gc.collect()
    assert len(source_text._after) == 19 and not compared
