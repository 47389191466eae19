from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime import search
from ptxforge.runtime.autotune import Autotuner, Config, autotune
from ptxforge.runtime.heuristics import Heuristics, heuristics
from ptxforge.runtime.jit import KernelInterface, jit
from ptxforge.support.errors import (
    ArgumentError,
    AutotunerError,
    CompileTimeAssertionError,
    DeviceError,
    OutOfResourcesError,
)


class Recorder(KernelInterface):
    """A kernel that notes its launches; ``cost`` maps BLOCK to milliseconds, or to an error to raise."""

    def __init__(self, **cost):
        self.__name__, self.arg_names = "recorder", ["x", "out", "n", "BLOCK", "EVEN"]
        self.cost = {int(name[1:]): value for name, value in cost.items()}
        self.launches = []
        self.cache_key = "recorder"

    def run(self, *args, grid, warmup=False, **kwargs):
        named = dict(zip(self.arg_names, args, strict=False)) | kwargs
        self.launches.append(named)
        cost = self.cost.get(named.get("BLOCK"), 1.0)
        if isinstance(cost, Exception):
            raise cost
        if isinstance(named.get("out"), np.ndarray):
            named["out"] += 1

    def warmup(self, *args, grid=None, **kwargs):
        return kwargs


def bench_by_cost(kernel):
    """A measurement that runs once and answers with the kernel's cost."""

    def bench(fn, quantiles):
        fn()
        return [kernel.cost.get(kernel.launches[-1].get("BLOCK"), 1.0)] * len(quantiles)

    return bench


def configs(*blocks):
    return [Config({"BLOCK": block}, num_warps=2) for block in blocks]


def tuned(kernel, blocks, **options):
    options = {"key": ["n"], "do_bench": bench_by_cost(kernel)} | options
    return autotune(configs(*blocks), **options)(kernel)


def test_the_fastest_is_chosen_and_kept():
    kernel = Recorder(b1=3.0, b2=1.0, b3=2.0)
    tuner = tuned(kernel, (1, 2, 3))
    tuner[(1,)](None, None, 5)
    assert tuner.best_config.kwargs == {"BLOCK": 2}
    assert [timing[0] for timing in tuner.configs_timings.values()] == [3.0, 1.0, 2.0]
    assert kernel.launches[-1] == {
        "x": None,
        "out": None,
        "n": 5,
        "BLOCK": 2,
        "num_warps": 2,
        "num_stages": 3,
        "num_ctas": 1,
    }
    kernel.launches.clear()
    tuner[(1,)](None, None, 5)
    assert len(kernel.launches) == 1
    tuner[(1,)](None, None, 6)  # another key
    assert len(kernel.launches) == 1 + 3 + 1


def test_element_types_are_part_of_the_key():
    kernel = Recorder()
    tuner = tuned(kernel, (1, 2))
    for dtype in (np.float32, np.float32, np.float16):
        tuner[(1,)](np.zeros(3, dtype), None, 5)
    assert len(tuner.cache) == 2


def test_one_configuration_is_not_measured():
    kernel = Recorder()
    tuned(kernel, (4,))[(1,)](None, None, 5)
    assert len(kernel.launches) == 1


@pytest.mark.parametrize(
    "error",
    [
        OutOfResourcesError("shared memory", 2, 1),
        CompileTimeAssertionError("no"),
        DeviceError("refused", log="ptxas says no"),
    ],
)
def test_a_configuration_that_cannot_work_is_skipped(error):
    kernel = Recorder(b1=error, b2=5.0)
    tuner = tuned(kernel, (1, 2))
    tuner[(1,)](None, None, 5)
    assert tuner.best_config.kwargs == {"BLOCK": 2}


def test_other_errors_are_the_users_to_see():
    with pytest.raises(DeviceError, match="illegal address"):
        tuned(Recorder(b1=DeviceError("illegal address")), (1, 2))[(1,)](None, None, 5)


def test_none_works():
    kernel = Recorder(b1=CompileTimeAssertionError("too small"), b2=CompileTimeAssertionError("too small"))
    message = "none of the 2 configurations of 'recorder' works:\nConfig.*too small"
    with pytest.raises(AutotunerError, match=message):
        tuned(kernel, (1, 2))[(1,)](None, None, 5)


def test_reset_and_restore():
    kernel = Recorder()
    out = np.full(3, 7)
    tuned(kernel, (1, 2), restore_value=["out"])[(1,)](None, out, 5)
    assert (out == 8).all()  # only the launch that was asked for is seen
    tuned(kernel, (1, 2), reset_to_zero=["out"])[(1,)](None, out, 5)
    assert (out == 1).all()  # cleared before each trial, and before the launch


@ptxforge.jit
def add_up(x, total, BLOCK: tl.constexpr):
    tl.atomic_add(total, tl.sum(tl.load(x + tl.arange(0, BLOCK))))


def test_the_first_call_of_a_tuned_kernel_that_adds(emulator):
    """Tuning runs add too; what they added must be gone when the launch that was asked for begins."""
    x, total = (ptxforge.to_device(np.ones(n, np.float32), emulator) for n in (64, 1))
    tuned = [Config({"BLOCK": 64}, num_warps=warps) for warps in (1, 2)]
    kernel = autotune(tuned, key=[], reset_to_zero=["total"], warmup=0, rep=0)(add_up)
    kernel[(1,)](x, total)
    assert total.numpy() == [64]


def test_restore_device_arrays(emulator):
    class Clear(Recorder):
        def run(self, *args, grid, **kwargs):
            super().run(*args, grid=grid, **kwargs)
            args[1].copy_from(np.zeros(3))

    out = ptxforge.to_device(np.ones(3), emulator)
    tuner = tuned(Clear(), (1, 2), restore_value=["out"])
    tuner._tune((1,), (None, out, 5), {}, {"x": None, "out": out, "n": 5}, ())
    assert (out.numpy() == 1).all()


def test_hooks():
    kernel = Recorder()
    calls = []
    listed = [
        Config({"BLOCK": 1}, pre_hook=lambda args: calls.append(("config", args["BLOCK"]))),
        Config({"BLOCK": 2}),
    ]
    tuner = autotune(
        listed,
        key=[],
        pre_hook=lambda args: calls.append(("pre", args["BLOCK"])),
        post_hook=lambda args, exception: calls.append(("post", exception)),
        do_bench=bench_by_cost(kernel),
    )(kernel)
    tuner[(1,)](None, None, 5)
    assert calls == [("config", 1), ("pre", 1), ("post", None), ("pre", 2), ("post", None), ("config", 1)]


def test_the_time_of_a_search():
    tuner = tuned(Recorder(), (1, 2))
    assert tuner.bench_time == 0
    tuner[(1,)](None, None, 5)
    assert tuner.bench_time > 0


def test_pruning():
    kernel = Recorder()
    by_hand = {"early_config_prune": lambda configs, args, **kwargs: configs[:1] if args["n"] < 10 else []}
    tuner = tuned(kernel, (1, 2, 3), prune_configs_by=by_hand)
    tuner[(1,)](None, None, 5)
    assert [config.kwargs["BLOCK"] for config in tuner.configs_timings] == [1]
    with pytest.raises(AutotunerError, match="early_config_prune left no configuration"):
        tuner[(1,)](None, None, 50)
    model = {"perf_model": lambda BLOCK, **rest: -BLOCK, "top_k": 2}
    tuner = tuned(kernel, (1, 2, 3), prune_configs_by=model)
    tuner[(1,)](None, None, 5)
    assert [config.kwargs["BLOCK"] for config in tuner.configs_timings] == [3, 2]


def test_a_tuned_argument_must_not_be_given():
    with pytest.raises(AutotunerError, match="tuned over BLOCK"):
        tuned(Recorder(), (1, 2))[(1,)](None, None, 5, BLOCK=4)


def test_names_are_checked():
    with pytest.raises(AutotunerError, match="'m' is not a parameter of 'recorder'"):
        tuned(Recorder(), (1, 2), reset_to_zero=["m"])


def test_an_unknown_name_in_the_key_chooses_nothing():
    kernel = Recorder(b1=3.0, b2=1.0)
    with pytest.warns(UserWarning, match="'m' in the key of 'recorder' is not its parameter"):
        tuner = tuned(kernel, (1, 2), key=["n", "m"])
    tuner[(1,)](None, None, 5)
    assert tuner.best_config.kwargs == {"BLOCK": 2} and len(tuner.cache) == 1


def test_pruning_by_hand_gets_positional_arguments_and_keywords_apart():
    seen = []

    def prune(configs, named, **kwargs):
        seen.append((named, kwargs))
        return configs[:1]

    tuner = tuned(Recorder(), (1, 2), prune_configs_by={"early_config_prune": prune})
    tuner[(1,)](None, None, n=5)
    assert seen == [({"x": None, "out": None}, {"n": 5})]


def test_results_on_disk_are_kept_per_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    kernel = Recorder(b1=2.0, b2=1.0, b3=0.5)
    tuned(kernel, (1, 2), cache_results=True)[(1,)](None, None, 5)
    kernel.launches.clear()
    again = tuned(kernel, (1, 2, 3), cache_results=True)
    again[(1,)](None, None, 5)
    assert [launch["BLOCK"] for launch in kernel.launches] == [
        3,
        3,
    ]  # only the new one is measured; then the launch
    assert again.best_config.kwargs == {"BLOCK": 3}


def test_heuristics_see_the_arguments_and_each_other():
    kernel = Recorder()
    wrapped = heuristics({"BLOCK": lambda args: args["n"] * 2, "EVEN": lambda args: args["BLOCK"] % 4 == 0})(
        kernel
    )
    wrapped[(1,)](None, None, n=6)
    assert kernel.launches == [{"x": None, "out": None, "n": 6, "BLOCK": 12, "EVEN": True}]
    assert isinstance(wrapped, Heuristics) and wrapped.warmup(None, None, n=2) == {
        "n": 2,
        "BLOCK": 4,
        "EVEN": True,
    }


def test_stacks_in_either_order():
    even = {"EVEN": lambda args: args["n"] % 2 == 0}
    for outer_is_tuner in (True, False):
        kernel = Recorder(b1=2.0, b2=1.0)
        tune = autotune(configs(1, 2), key=["n"], do_bench=bench_by_cost(kernel))
        wrapped = tune(heuristics(even)(kernel)) if outer_is_tuner else heuristics(even)(tune(kernel))
        assert isinstance(wrapped, Autotuner if outer_is_tuner else Heuristics)
        wrapped[(1,)](None, None, 5)
        assert kernel.launches[-1]["BLOCK"] == 2 and kernel.launches[-1]["EVEN"] is False
        assert wrapped.base_fn is kernel


def test_config_text():
    config = Config({"BLOCK": 64}, num_warps=8, maxnreg=128)
    assert repr(config) == "Config({'BLOCK': 64}, num_warps=8, num_stages=3, num_ctas=1, maxnreg=128)"
    assert eval(repr(config), {"Config": Config}) == config
    with pytest.raises(AutotunerError, match="ir_override"):
        Config({}, ir_override="file.ttgir")


@pytest.mark.parametrize("kwargs", ["x", ["BLOCK"], {64: "BLOCK"}, None])
def test_a_config_of_something_else(kwargs):
    with pytest.raises(AutotunerError, match="a configuration is a dictionary of parameter names"):
        Config(kwargs)


def test_configs_of_something_else():
    with pytest.raises(AutotunerError, match="a configuration is a ptxforge.Config, not {'BLOCK': 64}"):
        autotune(configs=[Config({"BLOCK": 32}), {"BLOCK": 64}], key=[])(jit(lambda x: None))


@pytest.mark.parametrize("decorator", [autotune(configs=[Config({})], key=[]), heuristics({})])
def test_a_decorator_below_jit(decorator):
    with pytest.raises(ArgumentError, match="'f' is no kernel: @ptxforge.* stands above @"):

        @jit
        @decorator
        def f(x):
            pass


class Derived(Autotuner):
    """As a package may extend Triton's own: by its parameters in order, and with hooks that it sets."""

    def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs):
        super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs)
        self.calls = []
        if not self.user_defined_pre_hook:
            self.pre_hook = lambda named, reset_only=False: self.calls.append("before")
        if not self.user_defined_post_hook:
            self.post_hook = lambda named, exception: self.calls.append("after")


@pytest.mark.parametrize("ours", [None, lambda *args, **kwargs: None])
def test_a_class_derived_from_the_autotuner(ours):
    kernel = Recorder(B32=2, B64=1)
    derived = Derived(
        kernel, kernel.arg_names, configs(32, 64), ["n"], ["x"], ["out"], pre_hook=ours, post_hook=ours,
        prune_configs_by=None, warmup=None, rep=None, use_cuda_graph=False, do_bench=bench_by_cost(kernel),
        cache_results=False,
    )  # fmt: skip
    x, out = np.ones(4), np.ones(4)
    derived[(1,)](x, out, 4)
    assert derived.best_config.kwargs == {"BLOCK": 64} and (x == 0).all() and (out == 2).all()
    assert derived.calls == ([] if ours else ["before", "after"] * 2)


def test_arrays_that_are_not_given_are_neither_cleared_nor_restored():
    kernel = Recorder(B32=2, B64=1)
    launcher = tuned(kernel, [32, 64], reset_to_zero=["x"], restore_value=["out"])
    launcher[(1,)](None, None, 4)
    assert launcher.best_config.kwargs == {"BLOCK": 64}


class Keeping(Autotuner):
    """As a package that keeps its choices elsewhere: it searches by itself, with the parts of Triton's."""

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        pruned = self.prune_configs(kwargs)
        timings = {config: self._bench(*args, config=config, **kwargs) for config in pruned}
        self.best_config = min(timings, key=timings.get)
        self.pre_hook({**self.nargs, **kwargs, **self.best_config.all_kwargs()}, reset_only=True)
        self.found = timings
        self.nargs = None
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


def test_a_derived_class_that_searches_by_itself():
    kernel, hooked = Recorder(B16=OutOfResourcesError("x", 2, 1), B32=2, B64=1, B128=0), []
    listed = configs(16, 32, 64, 128)
    listed[2].pre_hook = lambda named: hooked.append(named["BLOCK"])
    keeping = Keeping(
        kernel, kernel.arg_names, listed, ["n"], ["x"], ["out"], do_bench=bench_by_cost(kernel),
        prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: configs[: named["n"]]},
    )  # fmt: skip
    x, out = np.ones(4), np.ones(4)
    keeping[(1,)](x, out, 3)
    assert [keeping.found[config][0] for config in listed[:3]] == [np.inf, 2, 1] and len(keeping.found) == 3
    assert keeping.best_config is listed[2] and hooked == [64] and (x == 0).all() and (out == 2).all()
    wrong = Keeping(Recorder(B32=ValueError("wrong")), kernel.arg_names, configs(32), [], None, None)
    with pytest.raises(ValueError, match="wrong"):
        wrong[(1,)](x, out, 3)


@ptxforge.jit
def boxed(x_desc, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), x_desc.load([0]))


def _wide_box(named):
    named["x_desc"].block_shape = [named["N"]]


def test_hooks_of_configurations_give_descriptors_their_boxes():
    """As in Triton's tutorials: a descriptor is made with a box that could not be, and a hook sets it."""
    kernel = autotune([Config({"N": n}, pre_hook=_wide_box) for n in (16, 32)], key=[])(boxed)
    x, out = np.arange(64, dtype=np.float32), np.zeros(32, np.float32)
    kernel[(1,)](ptxforge.TensorDescriptor.from_tensor(x, [1]), out)
    chosen = kernel.best_config.kwargs["N"]
    np.testing.assert_array_equal(out[:chosen], x[:chosen])
    assert kernel.use_cuda_graph is False


def test_configurations_whose_hooks_change_arguments_are_not_compiled_ahead(monkeypatch):
    """On a GPU others are compiled by threads; these hooks change what all of them share."""
    kernel = autotune([Config({"N": 16}, pre_hook=_wide_box), Config({"N": 32})], key=[])(boxed)
    searched = search.Search(kernel, (1,), (), {})
    monkeypatch.setattr(search, "default_device", lambda: object.__new__(search.CudaDevice))
    monkeypatch.setattr(searched, "_load", lambda config: pytest.fail("compiled ahead"))
    candidates = [searched._candidate(config) for config in kernel.configs]
    with searched._loaded(candidates) as found:
        assert found == candidates


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"configs": 5}, "configs is a list, not 5"),
        ({"configs": Config({})}, "configs is a list, not Config"),
        ({"key": 5}, "key is a list, not 5"),
        ({"reset_to_zero": 5}, "reset_to_zero is a list, not 5"),
        ({"reset_to_zero": "nothing"}, "'nothing' is not a parameter"),
        ({"prune_configs_by": 5}, "prune_configs_by is a dictionary, not 5"),
        ({"prune_configs_by": {"perf_model": 5}}, "perf_model is a function, not 5"),
        ({"prune_configs_by": {"early_config_prune": 5}}, "early_config_prune is a function, not 5"),
        ({"prune_configs_by": {"top_k": "a"}}, "top_k is a number, not 'a'"),
        ({"pre_hook": 5}, "pre_hook is a function, not 5"),
        ({"post_hook": 5}, "post_hook is a function, not 5"),
        ({"do_bench": 5}, "do_bench is a function, not 5"),
        ({"warmup": "a"}, "warmup is a number, not 'a'"),
        ({"space": 5}, "space is a dictionary, not 5"),
        ({"space": {"BLOCK": 5}}, "the space of 'BLOCK' is a list, not 5"),
        ({"budget": "long"}, "budget is a number, not 'long'"),
    ],
    ids=str,
)
def test_arguments_of_another_kind(kernel, given, message):
    with pytest.raises(AutotunerError, match=re.escape(message)):
        autotune(**given)(kernel)


def test_functions_that_are_none(kernel):
    with pytest.raises(AutotunerError, match="pre_hook is a function, not 5"):
        Config({}, pre_hook=5)
    with pytest.raises(AutotunerError, match="heuristics is a dictionary, not 5"):
        heuristics(5)(kernel)
    with pytest.raises(AutotunerError, match="the heuristic of 'B' is a function, not 5"):
        heuristics({"B": 5})(kernel)


def test_a_name_alone_is_a_list_of_it(kernel):
    tuned = autotune([Config({})], key="out", restore_value="x")(kernel)
    assert (tuned.keys, tuned.restore_value) == (["out"], ["x"])
