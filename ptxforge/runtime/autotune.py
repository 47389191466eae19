"""Choosing among configurations of a kernel by running them.

The first launch with new values of the key arguments compiles all configurations, loads them side by side,
and finds the fastest in short runs in turn (:mod:`ptxforge.runtime.search`). A configuration that cannot
work (too much shared memory, a static assertion, PTX that the assembler refuses) is left out, with its reason
in ``failures``; any other error is the user's to see. docs/tuning.md tells users about it.

With ``cache_results`` the timings are kept on disk *per configuration*: adding one measures that one.
"""

from __future__ import annotations

import importlib
import logging
import math
import numbers
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from ptxforge.driver.cuda import CudaDevice
from ptxforge.runtime import array_state, cache, compiler_state, hooks, options, timing, variants
from ptxforge.runtime import timings as timings_file
from ptxforge.runtime.config import Config, check_kinds, expand, names_in, pow2
from ptxforge.runtime.derived_tuning import DerivedTuning
from ptxforge.runtime.devices import default_device
from ptxforge.runtime.heuristics import Wrapper, names_of
from ptxforge.runtime.jit import KernelInterface
from ptxforge.runtime.search import STRATEGIES, Search, cannot_work, first_of_ties
from ptxforge.support import settings
from ptxforge.support.errors import ArgumentError, AutotunerError, PtxforgeError


def keeps_results() -> bool:
    """Whether timings are kept on disk where the decorator does not say. Triton's knobs put a function of
    theirs in its place."""
    return False


def prints_results() -> bool:
    """Whether each choice is printed, as for :func:`keeps_results`."""
    return settings.PRINT_AUTOTUNING.flag()


__all__ = ["Autotuner", "Config", "autotune", "pow2"]

log = logging.getLogger("ptxforge.tune")


def _bench_for(warmup: float | None, rep: float | None) -> Callable | None:
    """The measurement of each configuration by itself, where its length was asked for."""
    if warmup is None and rep is None:
        return None
    times = {"warmup": 25 if warmup is None else warmup, "rep": 100 if rep is None else rep}
    return lambda fn, quantiles: timing.do_bench(fn, **times, quantiles=quantiles)


def _cannot_tune_now(kwargs: dict[str, Any]) -> str:
    """Why nothing may be run or compiled at this moment; empty when it may."""
    if variants.is_forbidden():
        return "while compiling is forbidden"
    device = default_device()
    if isinstance(device, CudaDevice):
        stream = options.stream_handle(kwargs.get("stream"))
        if device.is_capturing(timing.current_stream(device) if stream is None else stream):
            return "while a CUDA graph is captured"
    return ""


class Autotuner(DerivedTuning, Wrapper):
    """A kernel that chooses its configuration; made by :func:`autotune`.

    ``best_config`` is that of the last launch, ``configs_timings`` the milliseconds (median, 20 %, 80 %) of
    each configuration the last time that they were run, ``cache`` the choice for each key seen.
    """

    def __init__(
        self,
        fn: KernelInterface,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable | None = None,
        post_hook: Callable | None = None,
        prune_configs_by: dict[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable | None = None,
        cache_results: bool = False,
        space: Mapping[str, Iterable[Any]] | None = None,
        strategy: str = "halving",
        budget: float | None = None,
        deterministic: str | None = None,
        executor: Executor | None = None,
    ):
        super().__init__(fn)
        pruning = prune_configs_by or {}
        check_kinds(Mapping, prune_configs_by=pruning)
        check_kinds(Iterable, configs=configs)
        self.arg_names = list(arg_names)
        self.configs = [*(configs or ()), *(expand(space) if space is not None else ())] or [Config({})]
        wrong = [config for config in self.configs if not hasattr(config, "all_kwargs")]
        if wrong:
            raise AutotunerError(f"a configuration is a ptxforge.Config, not {wrong[0]!r}")
        self.strategy, self.budget, self.deterministic = strategy, budget, deterministic
        self.executor = executor
        self._check_choices()
        self.keys = names_in(key, "key")
        self.reset_to_zero = names_in(reset_to_zero, "reset_to_zero")
        self.restore_value = names_in(restore_value, "restore_value")
        self.user_hooks = (pre_hook, post_hook)
        self.user_defined_pre_hook = pre_hook is not None  # names that classes derived from Triton's ask for
        self.user_defined_post_hook = post_hook is not None
        self.early_config_prune = pruning.get("early_config_prune")
        self.perf_model, self.configs_top_k = pruning.get("perf_model"), pruning.get("top_k", 1.0)
        check_kinds(
            Callable, pre_hook=pre_hook, post_hook=post_hook, do_bench=do_bench, perf_model=self.perf_model,
            early_config_prune=self.early_config_prune,
        )  # fmt: skip
        check_kinds(numbers.Real, top_k=self.configs_top_k, warmup=warmup, rep=rep)
        self.num_warmups, self.num_reps = warmup, rep
        self.bench = self.do_bench = do_bench or _bench_for(warmup, rep)
        self.use_cuda_graph, self.cache_results = use_cuda_graph, cache_results or keeps_results()
        self.cache: dict[tuple, Config] = {}
        self.configs_timings: dict[Config, list[float]] = {}
        self.best_config: Config | None = None
        self.failures: dict[Config, Exception] = {}
        self._imported: list[timings_file.Row] = []
        self._measured: list[timings_file.Row] = []
        self._said: set[tuple] = set()  # keys of which it was said that they are not tuned
        self._check_names()

    def _check_choices(self) -> None:
        if self.strategy not in STRATEGIES:
            raise AutotunerError(f"strategy is one of {', '.join(STRATEGIES)}, not '{self.strategy}'")
        if self.deterministic not in (None, "bitwise"):
            raise AutotunerError(f"deterministic is None or 'bitwise', not {self.deterministic!r}")
        check_kinds(numbers.Real, budget=self.budget)
        if self.budget is not None and self.budget <= 0:
            raise AutotunerError(f"the budget is a time in seconds, not {self.budget!r}")

    def _check_names(self) -> None:
        for name in (*self.reset_to_zero, *self.restore_value):
            if name not in self.arg_names:
                raise AutotunerError(f"'{name}' is not a parameter of '{self.__name__}'")
        for name in self.keys:
            if name not in self.arg_names:
                text = f"'{name}' in the key of '{self.__name__}' is not its parameter and chooses nothing"
                warnings.warn(text, stacklevel=4)  # the frames of autotune lie below the decorator's line

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the best configuration for these arguments, finding it first where it is not known.
        With ``warmup``, compile every configuration instead."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        config = self._config_for(grid, args, kwargs)
        self.best_config = config
        chosen = kwargs | config.all_kwargs()
        if config.pre_hook is not None:
            config.pre_hook(self.named(args, chosen))
        return self.fn.run(*args, grid=grid, warmup=False, **chosen)

    def bind(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        """A launch with its arguments fixed, with the best configuration for them. Raises
        :class:`AutotunerError` when that has a ``pre_hook``, which only a whole launch calls."""
        config = self._config_for(grid, args, kwargs)
        if config.pre_hook is not None:
            raise AutotunerError(f"{config!r} has a pre_hook: launch '{self.__name__}' without binding it")
        return self.fn.bind(grid, *args, **kwargs | config.all_kwargs())

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> list[Any]:
        """Compile every configuration without launching."""
        configs = self._pruned(args, kwargs)
        return [self.fn.warmup(*args, grid=grid, **kwargs | config.all_kwargs()) for config in configs]

    def _config_for(self, grid: Any, args: tuple, kwargs: dict[str, Any]) -> Config:
        if len(self.configs) == 1:
            return self.configs[0]
        named = self.named(args, kwargs)
        key = self._key(named)
        if key not in self.cache:
            why = _cannot_tune_now(kwargs)
            if why:
                return self._untuned(key, why)
            self.cache[key] = self._tune(grid, args, kwargs, named, key)
        return self.cache[key]

    def _untuned(self, key: tuple, why: str) -> Config:
        """The best that is known without running anything, else the first configuration; said once."""
        known = self._known_timings(key)
        stored = {config: known[repr(config)] for config in self.configs if repr(config) in known}
        chosen = first_of_ties(stored) if stored else self.configs[0]
        if key not in self._said:
            self._said.add(key)
            origin = "the stored" if stored else "the first"
            log.warning("'%s' is not tuned for %s %s: %s configuration, %r", self.__name__, key, why, origin,
                        chosen)  # fmt: skip
        return chosen

    def _key(self, named: dict[str, Any]) -> tuple:
        """The key arguments' values and the element types of all arrays."""
        values = tuple(named[name] for name in self.keys if name in named)
        return values + tuple(str(value.dtype) for value in named.values() if hasattr(value, "dtype"))

    # Tuning

    def _tune(
        self, grid: Any, args: tuple, kwargs: dict[str, Any], named: dict[str, Any], key: tuple
    ) -> Config:
        self._check_writable(named)
        search, began = Search(self, grid, args, kwargs), time.perf_counter()
        configs = self._comparable(self._pruned(args, kwargs), args, kwargs)
        known = self._known_timings(key)
        for config in configs:
            self._check_conflicts(config, args, kwargs)
        try:
            new = [config for config in configs if repr(config) not in known]
            timings, complete = search.run(new, is_alone=len(new) == len(configs))
        finally:
            if search.has_run:
                self._clean_up(named)
        timings = {c: known.get(repr(c)) or timings.get(c, [math.inf] * 3) for c in configs}
        self.configs_timings, self.failures = timings, search.failures
        best = search.best or first_of_ties(timings)
        if math.isinf(timings[best][0]):
            reasons = "\n".join(f"{config!r}: {error}" for config, error in self.failures.items())
            raise AutotunerError(
                f"none of the {len(configs)} configurations of '{self.__name__}' works:\n{reasons}"
            )
        self._keep(key, known | {repr(c): t for c, t in timings.items() if not math.isinf(t[0])})
        took = time.perf_counter() - began if new else None
        self.bench_time = took or self.bench_time
        told = {"fn": self.base_fn, "key": key, "best_config": best, "configs_timings": timings}
        for tell in hooks.TUNE:
            tell(**told, duration=took, cache_hit=not new)
        if prints_results() or not complete:
            how = "" if complete else "interrupted; the best so far: "
            print(
                f"ptxforge: '{self.__name__}' {key}: {how}{best!r} takes {timings[best][0]:.4g} ms",
                file=sys.stderr,
            )
        return best

    def _comparable(self, configs: list[Config], args: tuple, kwargs: dict[str, Any]) -> list[Config]:
        """With ``deterministic="bitwise"`` those that add in the same order as the first that works."""
        if self.deterministic is None:
            return configs
        order_of = importlib.import_module("ptxforge.runtime.reduction_order").reduction_order
        kept, wanted = [], None
        for config in configs:
            try:
                variant = self.fn.warmup(*args, **kwargs | config.all_kwargs())
            except PtxforgeError as error:
                if not cannot_work(error):
                    raise
                continue
            order = order_of(variant.artifact)
            wanted = order if wanted is None else wanted
            if order == wanted:
                kept.append(config)
        return kept or configs

    def _check_conflicts(self, config: Config, args: tuple, kwargs: dict[str, Any]) -> None:
        given = {*self.arg_names[: len(args)], *kwargs}
        clashing = sorted(given & config.kwargs.keys())
        if clashing:
            raise AutotunerError(
                f"'{self.__name__}' is tuned over {', '.join(clashing)}; the launch must not set that too"
            )

    def _check_writable(self, everything: dict[str, Any]) -> None:
        for name in self._present((*self.reset_to_zero, *self.restore_value), everything):
            if isinstance(everything[name], numbers.Number):
                raise ArgumentError("is no array: it cannot be cleared or restored", name)
            if array_state.is_readonly(everything[name]):
                raise ArgumentError("is a read-only array: it cannot be cleared or restored", name)

    def _clean_up(self, everything: dict[str, Any]) -> None:
        """Undo what the tuning runs did to the arguments, before the launch that was asked for. (Arrays of
        ``restore_value`` are restored after each run.)"""
        for name in self._present(self.reset_to_zero, everything):
            if not array_state.is_readonly(everything[name]):  # which is an error already
                array_state.clear(everything[name])

    def _before(self, everything: dict[str, Any]) -> dict[str, Any]:
        """Bring the arguments to the state that a run expects; what must be restored afterwards."""
        for name in self._present(self.reset_to_zero, everything):
            array_state.clear(everything[name])
        if self.user_hooks[0] is not None:
            self.user_hooks[0](everything)
        saved = self._present(self.restore_value, everything)
        return {name: array_state.copy_of(everything[name]) for name in saved}

    @staticmethod
    def _present(names: Iterable[str], everything: dict[str, Any]) -> list[str]:
        """Those of ``names`` that this launch gives: a pointer can be ``None``."""
        return [name for name in names if everything[name] is not None]

    def _after(self, everything: dict[str, Any], saved: dict[str, Any], error: Exception | None) -> None:
        for name, copy in saved.items():
            array_state.restore(everything[name], copy)
        if self.user_hooks[1] is not None:
            self.user_hooks[1](everything, exception=error)

    def _pruned(self, args: tuple, kwargs: dict[str, Any]) -> list[Config]:
        configs, named = self.configs, self.named(args, kwargs)
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, self.named(args, {}), **kwargs) or ())
            if not configs:
                raise AutotunerError(f"early_config_prune left no configuration of '{self.__name__}'")
        if self.perf_model is None:
            return configs
        count = self.configs_top_k
        if isinstance(count, float) and count <= 1.0:
            count = int(len(self.configs) * count)
        if len(configs) <= count:
            return configs
        return sorted(configs, key=lambda c: self.perf_model(**named | c.all_kwargs()))[: max(1, count)]

    # Results

    def _subject(self, key: tuple) -> dict[str, str]:
        """What a timing is about, without the configuration."""
        device = default_device()
        kernel = self.base_fn
        return {
            "kernel": f"{getattr(kernel, '__module__', '')}.{self.__name__}",
            "source": kernel.cache_key,
            "gpu": getattr(device, "product", device.name),
            "key": repr(key),
        }

    def _entry_name(self, key: tuple) -> str:
        """The disk cache's entry for this kernel, key and device; empty when results are not kept there."""
        if not self.cache_results or any(config.pre_hook for config in self.configs):
            return ""
        return cache.hashed("timings", compiler_state.digest(), *self._subject(key).values())

    def _known_timings(self, key: tuple) -> dict[str, list[float]]:
        entry = self._entry_name(key)
        subject = self._subject(key)
        imported = {
            row["config"]: row["ms"]
            for row in self._imported
            if all(row[name] == value for name, value in subject.items())
        }
        return (cache.read_timings(entry) if entry else {}) | imported

    def _keep(self, key: tuple, measured: dict[str, list[float]]) -> None:
        subject = self._subject(key)
        rows = [subject | {"config": config, "ms": figures} for config, figures in measured.items()]
        self._measured = timings_file.merge(rows, self._measured)
        entry = self._entry_name(key)
        if entry:
            cache.write_timings(entry, subject, measured)

    def export_results(self, path: Any) -> int:
        """Write all that was measured or imported to a JSON file; the number of rows. See
        :mod:`ptxforge.runtime.timings`, whose ``merge`` puts files together."""
        rows = timings_file.merge(self._measured, self._imported)
        timings_file.write(path, rows)
        return len(rows)

    def import_results(self, path: Any) -> int:
        """Take timings from a file: what it has of this kernel's present source, on this GPU, is not measured
        again. The number of rows. Raises :class:`AutotunerError` for a file that holds none."""
        self._imported = timings_file.merge(self._imported, timings_file.read(path))
        self.cache.clear()
        return len(self._imported)


def autotune(
    configs: Sequence[Config] | None = None,
    key: Sequence[str] = (),
    prune_configs_by: dict[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
    *,
    space: Mapping[str, Iterable[Any]] | None = None,
    strategy: str = "halving",
    budget: float | None = None,
    deterministic: str | None = None,
    executor: Executor | None = None,
) -> Callable[[KernelInterface], Autotuner]:
    """Choose the fastest of ``configs`` for each set of values of the arguments named by ``key``.

    A name in ``key`` that is no parameter is ignored, with a warning. ``prune_configs_by`` may hold
    ``early_config_prune(configs, named_args, **kwargs) -> configs`` (``named_args`` are the arguments given
    by position, ``kwargs`` those given by name), and ``perf_model(**arguments) -> time`` with ``top_k`` (a
    count, or a fraction of all). Arrays named in ``reset_to_zero`` are cleared before each run, and before
    the launch that follows the search; those in ``restore_value`` are restored after each run.
    ``pre_hook(args)`` and ``post_hook(args, exception=...)`` are called around each run. Configurations run
    in turn and in short rounds; ``warmup`` and ``rep`` (milliseconds) or ``do_bench(fn, quantiles=...)``
    measure each by itself instead. With ``cache_results`` the timings are kept on disk. ``use_cuda_graph`` is
    accepted: launches are timed by device events either way.

    ``space`` gives values by name (``{"BLOCK": pow2(32, 256), "num_warps": [4, 8]}``) whose combinations
    are configurations too. ``strategy``: ``halving`` (the slower half leaves after each round),
    ``exhaustive`` (nobody leaves), ``random`` (as halving, in an order that is random and always the same,
    for a ``budget``). ``budget`` is in seconds. ``deterministic="bitwise"`` chooses only among configurations
    that add in the same order, read from their IR. ``executor``, any of ``concurrent.futures``, compiles and
    measures in its workers.

    Raises :class:`AutotunerError` when no configuration works, and for values that cannot be.
    """

    def decorate(fn: KernelInterface) -> Autotuner:
        return Autotuner(
            fn, names_of(fn, "autotune"), configs, key, reset_to_zero, restore_value, pre_hook, post_hook,
            prune_configs_by, warmup, rep, use_cuda_graph, do_bench, cache_results, space, strategy, budget,
            deterministic, executor,
        )  # fmt: skip

    return decorate
