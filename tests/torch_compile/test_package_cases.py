"""The cases of packages: there are enough, and what compares results finds those that differ."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from benchmarks.packages import flag_gems, inductor, networks  # noqa: E402 - only where torch is
from benchmarks.packages.__main__ import summary  # noqa: E402
from benchmarks.packages.case import Case, Data, distance, step, widened  # noqa: E402
from benchmarks.packages.worker import PACKAGES, TABLES, table  # noqa: E402


def test_there_are_200_cases_of_six_packages():
    names = [(package, case.name) for package in TABLES for case in table(package)]
    assert len(PACKAGES) == 6 and len([name for name in names if name[0] in PACKAGES]) >= 200
    assert not [name for name, count in Counter(names).items() if count > 1]


@pytest.mark.parametrize("case", flag_gems._of_lines(flag_gems.LINES, False), ids=lambda case: case.name)
def test_torch_has_what_a_line_names(case):
    own, _, of_torch = case.name.split()[0].partition("=")
    assert callable(flag_gems._torch_function(of_torch or own))


def _case(run, reference, **how) -> Case:
    return Case("none", "none", lambda data: (torch.randn(8, 16),), run, reference, **how)


@pytest.mark.parametrize(
    ("run", "agrees"),
    [
        (lambda x: x.exp(), True),
        (lambda x: x.exp() * (1 + 1e-2), False),
        (lambda x: x.exp().log().fill_(float("nan")), False),
        (lambda x: x.exp()[:4], False),
        (lambda x: (x.exp(), x), False),
    ],
)
def test_results_are_compared(run, agrees):
    case = _case(run, lambda x: x.exp())
    inputs = case.make(None)
    results, _ = step(case, case.run, inputs)
    wanted, _ = step(case, case.reference, widened(case, inputs))
    assert wanted[0].dtype == torch.float64
    assert distance(case, results, wanted)[1] == agrees


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.5, False)])
def test_gradients_are_compared(factor, agrees):
    """The result alone is right."""
    case = _case(
        lambda x: x.square() * factor - (x.square() * (factor - 1)).detach(), torch.square, gradients=(0,)
    )
    inputs = case.inputs(None)
    copies = widened(case, inputs)
    results, upstream = step(case, case.run, inputs)
    wanted, _ = step(case, case.reference, copies, upstream)
    assert len(results) == len(wanted) == 2
    assert distance(case, results, wanted)[1] == agrees


def test_what_is_told_of_ratios():
    def row(package, ratio, products=False):
        told = {"agrees": True}
        return {
            "package": package,
            "case": f"of {ratio}",
            "ptxforge": told,
            "triton": told,
            "ratio": ratio,
            "products": products,
        }

    text = summary([row("a", 0.5), row("a", 2.0), row("b", 4.0, True)])
    assert "a: 2 cases, ptxforge 2 of 2 agree, triton 2 of 2 agree, 1.000 (2 without products)" in text
    assert "4.000 (1 with products)" in text and "1.587 (3 Triton's time by ours)" in text
    assert text.splitlines()[-3].split() == ["0.500", "a", "of", "0.5"]


@pytest.mark.parametrize(
    "name", ["rows and columns, f32", "layer_norm, bf16", "a tuned kernel of the user's, f32"]
)
def test_functions_that_torch_compiles(launched, name):
    case = next(case for case in inductor.cases() if case.name == name)
    inputs = case.inputs(Data("cpu", True))
    results, upstream = step(case, case.run, inputs)
    wanted, _ = step(case, case.reference, widened(case, inputs), upstream)
    assert distance(case, results, wanted)[1] and launched


def test_compilations_are_timed(monkeypatch):
    import triton

    monkeypatch.setattr(triton, "compile", lambda source, **options: source)
    spent = inductor.CompileTime(emulated=True)
    assert [triton.compile(source) for source in ("one", "two")] == ["one", "two"]
    assert spent.take()["compiled"] == 2 and spent.take() == {"compiling": 0.0, "compiled": 0}


@pytest.mark.parametrize("name, network, tolerance", networks.all_of_them())
def test_networks_take_their_parameters_as_inputs(name, network, tolerance):
    """All of them have gradients, which are compared."""
    case = Case("none", name, network.inputs, network, network, network.gradients)
    results, _ = step(case, case.run, case.inputs(Data("cpu", True)))
    assert len(results) == 2 + len(list(network.module.parameters()))
    assert all(result.isfinite().all() and result.any() for result in results)


def test_what_is_told_of_compiling():
    def row(own, other):
        told = {
            "ptxforge": {"agrees": True, "compiling": 1.0, "compiled": own},
            "triton": {"agrees": True, "compiling": 4.0, "compiled": other},
        }
        return {"package": "a", "case": "", "products": False} | told

    text = summary([row(2, 2), row(3, 3), row(1, 2)])
    assert "compiling 5 kernels of 2 cases: 2.0 s, Triton 8.0 s: 0.250" in text
    assert "compiling" not in summary([row(1, 2)])
