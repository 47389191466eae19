"""Errors under the alias: ptxforge's own text, then the places and words that Triton's callers look for."""

from __future__ import annotations

import copyreg

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import triton_compat
from ptxforge.support import errors

CHANGING = tl.constexpr(3)
ELEMENT = tl.int16
ANNOTATED: tl.constexpr = 3


@pytest.fixture
def alias():
    triton_compat.install()
    yield
    triton_compat.uninstall()


@ptxforge.jit
def uneven():
    tl.arange(0, 5)


@ptxforge.jit
def inner(n):
    if n == 0:
        return tl.arange(0, 4)
    else:
        return tl.arange(0, 8)


@ptxforge.jit
def outer(n):
    # a comment
    inner(n)


@ptxforge.jit
def asserts():
    tl.static_assert(1 == 2)


@ptxforge.jit
def oblong():
    tl.full((4, 33), 0, tl.int32)


@ptxforge.jit
def short_product():
    a = tl.full((16, 8), 0.0, tl.float16)
    tl.dot(a, a.trans(1, 0))


@ptxforge.jit
def imprecise_product():
    a = tl.full((64, 64), 0.0, tl.float8e5)
    tl.dot(a, a, max_num_imprecise_acc=128)


@ptxforge.jit
def scaled_product():
    a = tl.full((32, 64), 0, tl.uint8)
    scale = tl.full((32, 4), 0, tl.uint8)
    tl.dot_scaled(a, scale, "e5m2", a.trans(1, 0), None, "e5m2")


@ptxforge.jit
def far_axis():
    tl.expand_dims(tl.arange(0, 4), 5)


@ptxforge.jit
def one_axis_twice():
    tl.expand_dims(tl.arange(0, 4), (0, 0))


@ptxforge.jit
def fourth_program():
    tl.program_id(20)


@ptxforge.jit
def mixed_signs():
    tl.full((4,), 1, tl.int32) % tl.full((4,), 1, tl.uint32)


@ptxforge.jit
def bits_of_floats():
    tl.full((4,), 1.0, tl.float32) ^ tl.full((4,), 1, tl.int32)


@ptxforge.jit
def annotated_global():
    a = ANNOTATED  # noqa: F841


@ptxforge.jit
def annotated(N: tl.constexpr = 3):
    tl.static_assert(N == 3)


@ptxforge.jit
def of_amd():
    tl.full((4,), 0.0, tl.float8e4b8)


WORDS = [
    (uneven, "arange's range must be a power of 2"),
    (oblong, "Shape element 1 must be a power of 2"),
    (short_product, "Input shapes should have M >= 1, N >= 1 and K >= 16"),
    (imprecise_product, "max_num_imprecise_acc (128) must be <= K (64)"),
    (scaled_product, "lhs_scale must be a tensor of shape [32, 2]. Got ['32', '4']"),
    (far_axis, "invalid axis 5"),
    (one_axis_twice, "duplicate axes, normalized axes = [0, 0]"),
    (fourth_program, "program_id axis must be 0, 1, or 2 but got 20"),
    (mixed_signs, "Cannot use / or % on int32 and uint32 because they have different signedness"),
    (bits_of_floats, "invalid operands of type float32[4] and int32[4]"),
    (annotated_global, "Cannot access global variable ANNOTATED from within a kernel"),
    (of_amd, "type float8e4b8 not supported in this architecture"),
]


def failure(kernel, *args, **options):
    with pytest.raises(ptxforge.PtxforgeError) as caught:
        kernel.warmup(*args, grid=(1,), **options)
    return caught.value


@pytest.mark.parametrize(("kernel", "words"), WORDS, ids=[kernel.__name__ for kernel, _ in WORDS])
def test_words_follow_the_text_and_are_the_cause(alias, kernel, words):
    error = failure(kernel)
    assert isinstance(error, errors.CompilationError)
    assert str(error).endswith(f"of {kernel.__name__}\n{words}")
    assert type(error.__cause__) is ValueError
    assert str(error.__cause__) == words
    assert error.error_message.split("\n") == [error.message, words]


@pytest.mark.parametrize("kernel", [kernel for kernel, _ in WORDS], ids=lambda kernel: kernel.__name__)
def test_nothing_of_it_without_the_alias(kernel):
    error = failure(kernel)
    assert error.__cause__ is None
    assert "of " + kernel.__name__ not in str(error)
    assert error.error_message == error.message


def test_places_count_from_the_function(alias):
    assert "\nat 2:17: of uneven\n" in str(failure(uneven))


def test_a_call_of_an_inner_function_is_raised_from_its_error(alias):
    error = failure(outer, 3)
    assert "\nat 5:8: of inner, called at 3:4: of outer\nInconsistent return types" in str(error)
    cause = error.__cause__
    assert isinstance(cause, errors.CompilationError)
    assert "\nat 5:8: of inner\n" in str(cause)
    assert "outer" not in str(cause)
    assert isinstance(cause.__cause__, ValueError)


def test_who_pickles_errors_does_not_change_them(alias, monkeypatch):
    """A package (tblib, which Dask imports) registers functions by which copies share what errors hold."""

    def remade(kind, attributes):
        made = kind.__new__(kind)
        made.__dict__ = attributes
        return made

    def reduced(error):
        return remade, (type(error), error.__dict__)

    monkeypatch.setitem(copyreg.dispatch_table, errors.TypeMismatchError, reduced)
    error = failure(outer, 3)
    assert "called at 3:4: of outer" in str(error)
    assert "outer" not in str(error.__cause__)


def test_an_assertion_has_no_cause(alias):
    error = failure(asserts)
    assert isinstance(error, errors.CompileTimeAssertionError)
    assert error.__cause__ is None
    assert str(error).endswith("\nat 2:4: of asserts")


def test_the_number_of_warps(alias):
    error = failure(uneven, num_warps=3)
    assert isinstance(error, AssertionError)
    assert str(error).endswith("\nnum_warps must be a power of 2")
    assert str(failure(uneven, num_warps=128)).endswith(
        "\nout of resource: threads, Required: 4096, Hardware limit: 1024"
    )


def test_clusters_where_there_are_none(alias):
    error = failure(of_amd, arch="sm80", num_ctas=2)
    assert isinstance(error, ValueError)
    assert str(error).endswith("\nnum_ctas > 1 requires NVIDIA SM90+ (Hopper)")


@pytest.mark.parametrize("arch", ["sm80", "sm_80", 80])
def test_a_warmup_for_another_architecture_compiles(arch):
    made = annotated.warmup(grid=(1,), arch=arch)
    assert ".target sm_80\n" in made.asm["ptx"]


def test_a_global_that_changed(alias, monkeypatch):
    @ptxforge.jit
    def reads(x):
        tl.store(x, CHANGING)

    x = ptxforge.to_device(np.zeros(1, np.int32), "emulator")
    reads[(1,)](x)
    monkeypatch.setitem(globals(), "CHANGING", tl.constexpr(4))
    words = "CHANGING has changed since we compiled this kernel, from constexpr[3] to constexpr[4]"
    with pytest.raises(errors.ChangedGlobalError) as caught:
        reads[(1,)](x)
    assert str(caught.value).endswith(words)


def test_a_global_that_names_another_element_type(alias, monkeypatch):
    @ptxforge.jit
    def casts(x):
        tl.store(x, tl.full((), 3, ELEMENT))

    monkeypatch.setitem(globals(), "ELEMENT", tl.int16)
    x = ptxforge.to_device(np.zeros(1, np.int32), "emulator")
    casts[(1,)](x)
    monkeypatch.setitem(globals(), "ELEMENT", tl.int8)
    with pytest.raises(RuntimeError, match="Global variable ELEMENT has changed since we compiled"):
        casts[(1,)](x)


def test_a_global_that_is_a_constant_no_more_tells_who_compiled_it_in(alias, monkeypatch):
    @ptxforge.jit
    def helper(x):
        tl.store(x, CHANGING)

    @ptxforge.jit
    def one(x):
        helper(x)

    @ptxforge.jit
    def other(x):
        helper(x)

    x = ptxforge.to_device(np.zeros(1, np.int32), "emulator")
    one[(1,)](x)
    monkeypatch.setitem(globals(), "CHANGING", tl.constexpr(4))
    other[(1,)](x)
    assert x.numpy() == [4]  # another constant is compiled in
    monkeypatch.setitem(globals(), "CHANGING", 5)
    anew = ptxforge.jit(other.fn)
    with pytest.raises(errors.ChangedGlobalError) as caught:
        anew[(1,)](x)
    text = str(caught.value)
    assert text.startswith("the global variable 'CHANGING' was 3 when '") and "in 'other' it is 5" in text
    assert "tl.store(x, CHANGING)" in text and "hint: make it one" in text
    assert "Global variable CHANGING has value 5 when compiling other, and had 3 in " in text


def test_a_global_that_never_was_a_constant(alias, monkeypatch):
    monkeypatch.setitem(globals(), "NEVER", 5)

    @ptxforge.jit
    def reads(x):
        tl.store(x, NEVER)  # noqa: F821

    with pytest.raises(errors.CompilationError, match="'NEVER' cannot be read in a kernel"):
        reads[(1,)](ptxforge.to_device(np.zeros(1, np.int32), "emulator"))


@pytest.mark.parametrize(
    ("shape", "box", "kind", "words"),
    [
        ((128, 128), [33, 32], ValueError, "Shape element 0 must be a power of 2"),
        ((128, 127), [32, 30], ValueError, "Shape element 1 must be a power of 2"),
        ((128, 127), [32, 32], AssertionError, "strides must be 16-byte aligned"),
        ((0, 128), [32, 32], AssertionError, "shape must be positive"),
    ],
)
def test_descriptors_of_the_host(alias, shape, box, kind, words):
    with pytest.raises(kind) as caught:
        ptxforge.TensorDescriptor.from_tensor(np.zeros(shape, np.float16), box)
    assert str(caught.value).endswith("\n" + words)


def test_an_autotuner_without_configurations(alias):
    tuned = ptxforge.autotune(
        [ptxforge.Config({}), ptxforge.Config({}, num_warps=8)],
        key=[],
        prune_configs_by={"early_config_prune": lambda configs, named: []},
    )(uneven)
    with pytest.raises(errors.AutotunerError, match="^Autotuner error: No valid autotuner configs"):
        tuned[(1,)]()


def test_an_element_type_that_kernels_lack(alias):
    @ptxforge.jit
    def takes(x):
        pass

    other = triton_compat.host.reinterpret(np.zeros(4, np.int8), tl.float8e4b8)
    with pytest.raises(errors.CompilationError, match="not supported in this architecture") as caught:
        takes.warmup(other, grid=(1,))
    assert isinstance(caught.value, errors.ArgumentError)


@pytest.mark.parametrize(("target", "warned"), [("sm_80", False), ("sm_90a", True)])
def test_products_of_a_type_that_newer_gpus_convert(target, warned, recwarn):
    @ptxforge.jit
    def product():
        a = tl.full((32, 32), 0.0, tl.float8e4b15)
        tl.dot(a, a)

    ptxforge.compile(product, {}, target=target)
    assert any("fp8e4b15 is deprecated on Hopper" in str(w.message) for w in recwarn) is warned
