"""What classes derived from Triton's autotuner call and replace, under Triton's names.

Packages derive from it to keep their choices in files of their own: they override ``run``, ask for the pruned
configurations and have each measured by ``_bench``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ptxforge.runtime import timing
from ptxforge.runtime.config import Config
from ptxforge.runtime.search import cannot_work


class DerivedTuning:
    """The part of :class:`Autotuner` that this file is about. ``nargs`` are the arguments by position of the
    launch that is under way, by name; ``bench_time`` is the time of the last search in seconds."""

    arg_names: list[str]
    user_hooks: tuple[Callable | None, Callable | None]
    nargs: dict[str, Any] | None = None
    bench_time = 0.0

    @property
    def pre_hook(self) -> Callable[..., Any]:
        """Called before each run of a search, and with ``reset_only=True`` after the last one; without a
        function of the user's, it clears the arrays of ``reset_to_zero``. It can be replaced."""
        return self.user_hooks[0] or self._clear

    @pre_hook.setter
    def pre_hook(self, hook: Callable | None) -> None:
        self.user_hooks = (hook, self.user_hooks[1])

    @property
    def post_hook(self) -> Callable[..., Any]:
        """Called after each run of a search. It can be replaced."""
        return self.user_hooks[1] or (lambda named, exception=None: None)

    @post_hook.setter
    def post_hook(self, hook: Callable | None) -> None:
        self.user_hooks = (self.user_hooks[0], hook)

    def _clear(self, named: dict[str, Any], reset_only: bool = False) -> None:
        self._clean_up(named)  # type: ignore[attr-defined] - the autotuner's

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Config]:
        """The configurations that are worth a try for ``nargs`` and the arguments given by name. Raises
        :class:`AutotunerError` when there are none."""
        args = tuple((self.nargs or {}).values())
        return self._pruned(args, kwargs)  # type: ignore[attr-defined] - the autotuner's

    def _bench(self, *args: Any, config: Config, **kwargs: Any) -> list[float]:
        """Milliseconds (median, 20 %, 80 %) of a launch with ``config``; infinity when that cannot work.
        ``kwargs`` holds the grid, too."""
        named = dict(zip(self.arg_names, args, strict=False)) | kwargs | config.all_kwargs()
        launch = lambda: self._launch_once(named, args, config, kwargs)  # noqa: E731 - what is measured
        bench = self.bench or timing.do_bench  # type: ignore[attr-defined] - the autotuner's
        try:
            return list(bench(launch, quantiles=(0.5, 0.2, 0.8)))
        except Exception as error:
            if not cannot_work(error):
                raise
            return [math.inf] * 3

    def _launch_once(
        self, named: dict[str, Any], args: tuple, config: Config, kwargs: dict[str, Any]
    ) -> None:
        if config.pre_hook is not None:
            config.pre_hook(named)
        saved = self._before(named)  # type: ignore[attr-defined] - the autotuner's
        failure: Exception | None = None
        try:
            self.fn.run(*args, **kwargs | config.all_kwargs())  # type: ignore[attr-defined]
        except Exception as error:
            failure = error
            raise
        finally:
            self._after(named, saved, failure)  # type: ignore[attr-defined] - the autotuner's
