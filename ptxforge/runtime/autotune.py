"""Choosing among configurations of a kernel by running them.

The first launch with new values of the key arguments runs every configuration and keeps the fastest. A
configuration that cannot work (too much shared memory, a static assertion, PTX that the assembler refuses) is
skipped; any other error is the user's to see.

With ``cache_results`` the timings are kept on disk *per configuration*: adding one measures that one.
"""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ptxforge.runtime import array_state, cache
from ptxforge.runtime.devices import default_device
from ptxforge.runtime.heuristics import Wrapper
from ptxforge.runtime.jit import KernelInterface
from ptxforge.runtime.timing import do_bench as default_bench
from ptxforge.support import settings
from ptxforge.support.errors import (
    ArgumentError,
    AutotunerError,
    CompileTimeAssertionError,
    DeviceError,
    OutOfResourcesError,
)

_QUANTILES = (0.5, 0.2, 0.8)


class Config:
    """One configuration: values of constexpr parameters (``kwargs``) and launch options.

    ``pre_hook`` is called with the dictionary of all arguments before each launch with this configuration.
    """

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict], Any] | None = None,
        ir_override: str | None = None,
    ):
        if ir_override is not None:
            raise AutotunerError("ir_override is another compiler's IR; ptxforge cannot read it")
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            raise AutotunerError(
                f"a configuration is a dictionary of parameter names and values, not {kwargs!r}"
            )
        self.kwargs = dict(kwargs)
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook

    def options(self) -> dict[str, Any]:
        """The launch options that are set."""
        named = {
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "num_ctas": self.num_ctas,
            "maxnreg": self.maxnreg,
        }
        return {name: value for name, value in named.items() if value is not None}

    def all_kwargs(self) -> dict[str, Any]:
        """Everything to pass to the launch; a parameter named as an option takes the parameter's value."""
        return self.options() | self.kwargs

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in (self.kwargs | self.options()).items())

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options().items())
        return f"Config({self.kwargs!r}{options})"

    def _identity(self) -> tuple:
        return tuple(self.all_kwargs().items()), self.pre_hook

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


class Autotuner(Wrapper):
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
        do_bench: Callable | None = None,
        cache_results: bool = False,
    ):
        super().__init__(fn)
        self.arg_names = list(arg_names)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.user_hooks = (pre_hook, post_hook)
        pruning = prune_configs_by or {}
        self.early_config_prune = pruning.get("early_config_prune")
        self.perf_model, self.top_k = pruning.get("perf_model"), pruning.get("top_k", 1.0)
        self._milliseconds = {"warmup": 25 if warmup is None else warmup, "rep": 100 if rep is None else rep}
        self._bench = do_bench
        self.cache_results = cache_results
        self.cache: dict[tuple, Config] = {}
        self.configs_timings: dict[Config, list[float]] = {}
        self.best_config: Config | None = None
        self._why: Exception | None = None  # the last configuration that did not work
        self._check_names()

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
            self.cache[key] = self._tune(grid, args, kwargs, named, key)
        return self.cache[key]

    def _key(self, named: dict[str, Any]) -> tuple:
        """The key arguments' values and the element types of all arrays."""
        values = tuple(named[name] for name in self.keys if name in named)
        return values + tuple(str(value.dtype) for value in named.values() if hasattr(value, "dtype"))

    # Tuning

    def _tune(
        self, grid: Any, args: tuple, kwargs: dict[str, Any], named: dict[str, Any], key: tuple
    ) -> Config:
        configs = self._pruned(args, kwargs)
        entry = self._entry_name(key)
        known = self._known_timings(entry)
        timings = {c: known.get(repr(c)) or self._time(c, grid, args, kwargs, named) for c in configs}
        if any(repr(config) not in known for config in configs):
            self._clean_up(named)
        self.configs_timings = timings
        best = min(timings, key=lambda config: timings[config][0])
        if math.isinf(timings[best][0]):
            raise AutotunerError(
                f"none of the {len(configs)} configurations of '{self.__name__}' works: {self._why}"
            )
        if entry:
            stored = known | {repr(c): t for c, t in timings.items() if not math.isinf(t[0])}
            cache.write_timings(entry, {"kernel": self.__name__, "key": repr(key)}, stored)
        if settings.PRINT_AUTOTUNING.flag():
            print(
                f"ptxforge: '{self.__name__}' {key}: {best!r} takes {timings[best][0]:.4g} ms",
                file=sys.stderr,
            )
        return best

    def _time(
        self, config: Config, grid: Any, args: tuple, kwargs: dict[str, Any], named: dict[str, Any]
    ) -> list[float]:
        """Milliseconds of a configuration; infinity when it cannot work."""
        self._check_conflicts(config, args, kwargs)
        chosen = kwargs | config.all_kwargs()
        everything = named | config.all_kwargs()

        def once() -> None:
            if config.pre_hook is not None:
                config.pre_hook(everything)
            saved = self._before(everything)
            try:
                self.fn.run(*args, grid=grid, warmup=False, **chosen)
            except Exception as error:
                self._after(everything, saved, error)
                raise
            self._after(everything, saved, None)

        try:
            return list((self._bench or self._default_bench)(once, quantiles=_QUANTILES))
        except (OutOfResourcesError, CompileTimeAssertionError) as error:
            self._why = error
        except DeviceError as error:
            if not error.log:  # the assembler did not speak: the kernel ran and failed
                raise
            self._why = error
        return [math.inf] * len(_QUANTILES)

    def _default_bench(self, fn: Callable[[], None], quantiles: Sequence[float]) -> list[float]:
        return default_bench(fn, **self._milliseconds, quantiles=quantiles)

    def _check_conflicts(self, config: Config, args: tuple, kwargs: dict[str, Any]) -> None:
        given = {*self.arg_names[: len(args)], *kwargs}
        clashing = sorted(given & config.kwargs.keys())
        if clashing:
            raise AutotunerError(
                f"'{self.__name__}' is tuned over {', '.join(clashing)}; the launch must not set that too"
            )

    def _clean_up(self, everything: dict[str, Any]) -> None:
        """Undo what the tuning runs did to the arguments, before the launch that was asked for. (Arrays of
        ``restore_value`` are restored after each run.)"""
        for name in self.reset_to_zero:
            array_state.clear(everything[name])

    def _before(self, everything: dict[str, Any]) -> dict[str, Any]:
        """Bring the arguments to the state that a run expects; what must be restored afterwards."""
        for name in (*self.reset_to_zero, *self.restore_value):
            if array_state.is_readonly(everything[name]):
                raise ArgumentError("is a read-only array: it cannot be cleared or restored", name)
        for name in self.reset_to_zero:
            array_state.clear(everything[name])
        if self.user_hooks[0] is not None:
            self.user_hooks[0](everything)
        return {name: array_state.copy_of(everything[name]) for name in self.restore_value}

    def _after(self, everything: dict[str, Any], saved: dict[str, Any], error: Exception | None) -> None:
        for name, copy in saved.items():
            array_state.restore(everything[name], copy)
        if self.user_hooks[1] is not None:
            self.user_hooks[1](everything, exception=error)

    def _pruned(self, args: tuple, kwargs: dict[str, Any]) -> list[Config]:
        configs, named = self.configs, self.named(args, kwargs)
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, self.named(args, {}), **kwargs))
            if not configs:
                raise AutotunerError(f"early_config_prune left no configuration of '{self.__name__}'")
        if self.perf_model is None:
            return configs
        count = self.top_k
        if isinstance(count, float) and count <= 1.0:
            count = int(len(self.configs) * count)
        if len(configs) <= count:
            return configs
        return sorted(configs, key=lambda c: self.perf_model(**named | c.all_kwargs()))[: max(1, count)]

    def _entry_name(self, key: tuple) -> str:
        """The disk cache's entry for this kernel, key and device; empty when results are not kept."""
        if not self.cache_results or any(config.pre_hook for config in self.configs):
            return ""
        device = default_device()
        parts = (
            "autotune",
            self.base_fn.cache_key,
            key,
            device.target,
            getattr(device, "product", device.name),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _known_timings(self, entry: str) -> dict[str, list[float]]:
        return cache.read_timings(entry) if entry else {}


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
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
) -> Callable[[KernelInterface], Autotuner]:
    """Choose the fastest of ``configs`` for each set of values of the arguments named by ``key``.

    A name in ``key`` that is no parameter is ignored, with a warning. ``prune_configs_by`` may hold
    ``early_config_prune(configs, named_args, **kwargs) -> configs`` (``named_args`` are the arguments given
    by position, ``kwargs`` those given by name), and ``perf_model(**arguments) -> time`` with ``top_k`` (a
    count, or a fraction of all). Arrays named in ``reset_to_zero`` are cleared before each run, those in
    ``restore_value`` restored after it. ``pre_hook(args)`` and ``post_hook(args, exception=...)`` are called
    around each run. ``warmup`` and
    ``rep`` are milliseconds; ``do_bench(fn, quantiles=...)`` replaces the measurement. With ``cache_results``
    the timings are kept on disk. ``use_cuda_graph`` is accepted: launches are timed by device events either
    way.

    Raises :class:`AutotunerError` when no configuration works.
    """

    def decorate(fn: KernelInterface) -> Autotuner:
        return Autotuner(
            fn, fn.arg_names, configs, key, reset_to_zero, restore_value, pre_hook, post_hook,
            prune_configs_by, warmup, rep, do_bench, cache_results,
        )  # fmt: skip

    return decorate
