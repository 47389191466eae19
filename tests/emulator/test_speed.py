"""Speed as ratios, which hold on slow machines too: what batching, fusing and the checkers must gain or may
cost.
"""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice, launch, registers
from ptxforge.emulator.parser import Module

from .harness import HEADER, fixture, pack


def best(run, repeat: int = 5) -> float:
    """Seconds of the fastest of several runs: others may use the machine too."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def softmax(device: EmulatorDevice, rows: int):
    """A launcher of Triton's softmax over rows of 1024."""
    text = fixture("triton_softmax_sm80")
    shared = int(text.split("// shared bytes: ")[1].split()[0])
    x = np.random.default_rng(0).standard_normal((rows, 1024)).astype(np.float32)
    y = np.zeros_like(x)
    function = device.load_module(text).function("softmax")
    addresses = [np.uint64(device.register_host_array(array)) for array in (x, y)]
    params = pack([*addresses, np.int32(1024), np.int32(1024), np.uint64(0), np.uint64(0)])
    arrays = (x, y)  # keeps them alive
    return lambda: (function.launch((rows, 1, 1), (128, 1, 1), shared, 0, params), arrays)[0]


def paired_ratio(one, other, repeat: int = 9) -> float:
    """How much slower ``one`` is than ``other``: they run in turn, so that both meet the same load; the lower
    of the median ratio and that of the fastest runs, because load makes either too high.
    """
    times = [(best(one, 1), best(other, 1)) for _ in range(repeat)]
    fastest = min(first for first, _ in times) / min(second for _, second in times)
    return min(fastest, float(np.median([first / second for first, second in times])))


def test_many_ctas_cost_much_less_than_their_number():
    one, many = softmax(EmulatorDevice(), 1), softmax(EmulatorDevice(), 64)
    one(), many()
    assert paired_ratio(many, one) < 12


@pytest.mark.parametrize("check, times", [("one", 2.5), ("all", 2.5)])
def test_checkers_cost_a_small_factor(check, times):
    """Softmax loads and stores much and computes little: the worst case."""
    plain, watched = softmax(EmulatorDevice(), 512), softmax(EmulatorDevice(check=check), 512)
    plain(), watched()
    assert paired_ratio(watched, plain) < times


def test_a_second_load_costs_nothing():
    text = fixture("triton_matmul_sm80")
    launch._TEXTS.clear()
    start = time.perf_counter()
    EmulatorDevice().load_module(text)
    first = time.perf_counter() - start
    assert best(lambda: EmulatorDevice().load_module(text)) < first / 10


def test_what_is_kept_of_texts_has_a_limit(monkeypatch):
    """And goes as a whole: what analyses found of a program goes with it."""
    texts = [fixture("triton_softmax_sm80") + f"// {number}\n" for number in range(5)]
    monkeypatch.setattr(launch, "_TEXTS", type(launch._TEXTS)())
    monkeypatch.setattr(launch, "_MOST_KEPT", 3 * len(texts[0]))
    (first,) = launch.load_text(texts[0]).translations.values()
    assert registers.pressure(first.program) == registers.pressure(first.program) > 0
    gone = weakref.ref(first.program)
    del first
    for text in texts[1:]:
        launch.load_text(text)
    gc.collect()
    assert list(launch._TEXTS) == texts[-3:] and gone() is None


def test_translation_does_not_grow_faster_than_the_text():
    """Ten times the instructions may take ten times as long to load, not a hundred."""

    def text(count: int) -> str:
        body = "\n".join(f"add.u32 %r{n % 50}, %r{n % 50}, {n};" for n in range(count))
        return HEADER.format(target="sm_80") + f".visible .entry k() {{ .reg .b32 %r<50>;\n{body}\nret; }}"

    def load(count: int) -> float:
        def run() -> None:
            launch._TEXTS.clear()
            launch.load_text(text(count))

        return best(run, 3)

    assert load(5000) < 25 * load(500)


def test_a_text_is_split_into_lines_once():
    """Every access to memory is told with its line when it is translated."""
    split = []

    class Text(str):
        def splitlines(self, keepends=False):
            split.append(1)
            return super().splitlines(keepends)

    module = Module("8.0", "sm_80", {}, {}, Text("first\n\tld.global.u32 %r1, [%rd1];\n"))
    assert module.line_text(2) == "ld.global.u32 %r1, [%rd1];" and module.line_text(1) == "first"
    assert module.line_text(0) == module.line_text(3) == "" and len(split) == 1
