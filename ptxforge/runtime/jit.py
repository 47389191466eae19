"""The callable kernel.

``kernel[grid](*args, **options)`` binds the arguments, looks their specialisation up and launches. What
happens the first time (compile, load) and what happens every time (pack, launch) are two roads:
:meth:`JITFunction.run` is the short one and everything it calls is meant to be fast.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, overload

from ptxforge.compiler import Artifact, Assembly, plain_option
from ptxforge.driver.protocol import Device
from ptxforge.language.constexpr import unwrap
from ptxforge.runtime import compiling, function_state, hooks, options, precompile, refusals, source, tools
from ptxforge.runtime.bound import BoundLaunch
from ptxforge.runtime.function_state import FunctionState, default_repr, restored
from ptxforge.runtime.launcher import PreparedLaunch, place, prepare
from ptxforge.runtime.options import KernelInterface, make_binder, parameters_of
from ptxforge.runtime.plans import MISSING, Entries, WithOptions, launch_once, make_entry, make_plan
from ptxforge.runtime.precompile import Compiled, Preloading, active
from ptxforge.runtime.resources import with_advice
from ptxforge.runtime.slots import TuplePlan, holds_tuples
from ptxforge.runtime.specialize import Parameter, Specialization, specialize
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.runtime.variants import Key, Variants, forbid_jit
from ptxforge.support import errors, markup
from ptxforge.support.errors import ArgumentError, LaunchError, NoLaunchError
from ptxforge.support.source_text import on_redefinition, remember
from ptxforge.support.target import DEFAULT_TARGET, parse_target
from ptxforge.support.tracebacks import SHORTENED, short

F = TypeVar("F", bound=Callable[..., Any])
"""The Python function of a kernel, with its own signature."""


class JITFunction(FunctionState, Preloading, function_state.TravelsByName, Entries, Generic[F]):
    """A kernel, or a function that kernels call.

    ``fn`` is the Python function, ``arg_names`` its parameters, ``variants`` what was compiled, oldest first.
    """

    __ptxforge_jit__ = True  # how the frontend knows a function that it can inline

    fn: F

    def __init__(
        self,
        fn: F,
        do_not_specialize: Any = (),
        do_not_specialize_on_alignment: Any = (),
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable | None = None,
        launch_metadata: Callable | None = None,
        version: Any = None,
    ):
        functools.update_wrapper(self, fn)
        self.fn = fn
        remember(fn)  # the file may be edited before the first launch
        self.signature = inspect.signature(fn)
        self.arg_names = list(self.signature.parameters)
        self.do_not_specialize = do_not_specialize
        self.do_not_specialize_on_alignment = do_not_specialize_on_alignment
        self._options = {
            "do_not_specialize": do_not_specialize,
            "do_not_specialize_on_alignment": do_not_specialize_on_alignment,
            "debug": debug, "noinline": noinline, "repr": repr, "launch_metadata": launch_metadata,
            "version": version,
        }  # fmt: skip
        self.debug, self.noinline = debug, noinline
        self.repr, self.launch_metadata, self.version = repr or default_repr, launch_metadata, version
        self._set_state(fn)
        self.variants: list[CompiledKernel] = Variants()
        self.pre_run_hooks: list[Callable] = []
        self._plans: dict[Any, Callable] = {}
        self._prepared: list[dict[Any, PreparedLaunch]] = []  # of each plan
        self._compiled = Compiled(self)
        self._globals: list = []  # (scope, name, value) of what compiled code read
        self._shared_names = tuple(name for name in options.SHARED if name in self.arg_names)
        self._is_odd = bool(self._shared_names or fn.__code__.co_flags & inspect.CO_VARARGS)
        self._launched: set[tuple[type, ...]] = set()  # types of arguments
        self._begin_entries()
        on_redefinition(self._forget)

    def __repr__(self) -> str:
        return f"<JITFunction {self.__module__}.{self.__qualname__}>"

    def _repr_html_(self) -> str:
        """For notebooks: the parameters, what was compiled, and the source folded away."""
        name = f"{self.__module__}.{self.__qualname__}"
        compiled = [(f"variant {number}", variant.artifact) for number, variant in enumerate(self.variants)]
        facts = [("kernel", name), ("parameters", ", ".join(self.arg_names)), *compiled]
        return markup.table(facts) + markup.folded("source", markup.code(self.src))

    def __deepcopy__(self, memo: dict) -> JITFunction:
        return restored(type(self), self.bare_state()) if self.is_bare() else self

    def __reduce__(self) -> tuple:
        if self.is_bare():
            return restored, (type(self), self.bare_state())
        return function_state.reduced(self, JITFunction, self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NoLaunchError(
            f"'{self.__name__}' can be called inside a kernel only; launch it as {self.__name__}[grid](...)"
        )

    @functools.cached_property
    def params(self) -> tuple[Parameter, ...]:
        """The parameters and how each is specialised."""
        listed = self.do_not_specialize, self.do_not_specialize_on_alignment
        return parameters_of(self.fn, *listed, self.signature)

    @functools.cached_property
    def src(self) -> str:
        """The source from ``def`` on."""
        return source.source_of(self.fn)

    @functools.cached_property
    def dependencies(self) -> source.Dependencies:
        """Source and globals that the compiled code depends on."""
        return source.dependencies(self.fn)

    @property
    def cache_key(self) -> str:
        """A hash of the kernel's source, its place in the file, and of what it depends on."""
        if not self._cache_key:
            line = self.starting_line_number if self.fn is not None else 0
            self._cache_key = source.hashed(f"{self.dependencies.digest()} {line}")
        return self._cache_key

    @functools.cached_property
    def _bind(self) -> Callable:
        return make_binder(self.params)

    # Every launch

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> CompiledKernel | None:
        """Launch; ``None`` for a grid without blocks, and where a hook declines to compile. With ``warmup``,
        compile only. Raises an error of :mod:`ptxforge.errors` for a bad call."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        try:
            bound, given = self._bound(args, kwargs)
            return self._first(bound, grid, (), given)
        except hooks.DeclinedError:
            return None
        except SHORTENED as error:
            raise short(error)  # noqa: B904 - `short` decides about the cause

    def bind(self, grid: Any, *args: Any, **kwargs: Any) -> BoundLaunch:
        """A launch with its arguments fixed: a callable that does nothing but launch.

        ``bound.update(x=other, n=5)`` changes arguments by name, ``bound.grid`` and ``bound.stream`` the
        rest. What it needs is compiled and loaded now: calling it neither allocates nor waits, as the capture
        of a CUDA graph asks. An element of a tuple is called ``pair_0``. Raises what a launch raises.
        """
        bound, given = self._bound(args, kwargs)
        if holds_tuples(self.params, tuple(map(type, bound))):
            inner, values = self._apart.of(bound)
            return inner.bind(grid, *values, **given)
        return BoundLaunch(self, grid, bound, given)

    def _bound(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments of a call in order, and its options."""
        try:
            bound, given = self._bind(*args, **kwargs)
        except TypeError as error:
            raise refusals.of_binding(self, error, args, kwargs) from None
        if self._shared_names:
            given |= options.shared(kwargs, self._shared_names)
        return bound, given

    def _first(
        self, bound: tuple, grid: Any, rest: tuple, given: dict[str, Any], makes_entry: bool = False
    ) -> CompiledKernel | None:
        """A launch with argument types that may have no plan yet, or one that does not bind."""
        if rest or any(value is MISSING for value in bound):
            raise refusals.of_arguments(self, bound, rest, given)
        kinds = tuple(map(type, bound))
        plan = self._plans.get(kinds)
        if plan is None:
            if holds_tuples(self.params, kinds):
                plan = self._plans[kinds] = self._apart
            elif kinds not in self._launched:
                self._launched.add(kinds)
                return launch_once(self, grid, bound, given)
            elif makes_entry:
                self._enter = make_entry(self, kinds)
                return self._enter(grid, *bound, **given)
            else:
                plan = self._plans[kinds] = make_plan(self.params, kinds, self)
        return plan(grid, *bound, given)

    @functools.cached_property
    def _apart(self) -> TuplePlan:
        """Launches with tuples among the arguments."""
        fixed = {name: value for name, value in self._options.items() if not name.startswith("do_not")}
        return TuplePlan(self, lambda: JITFunction(self.fn, **fixed))

    def _check_globals(self) -> None:
        """A number, a text or an element type that was compiled in must not have changed."""
        for scope, name, value in tuple(self._globals):
            now = scope.get(name)
            if now is not value and unwrap(now) != unwrap(value):
                raise refusals.of_global(self.__name__, name, value, now)

    def _forget(self) -> None:
        """Compile again at the next launch."""
        self.__dict__.pop("dependencies", None)
        self._cache_key = ""
        self._compiled.clear()
        self._globals.clear()

    # The first launch of a specialisation

    def _miss(self, bound: tuple, given: dict[str, Any]) -> PreparedLaunch:
        """What a launch with these arguments and options needs, compiled if need be."""
        made = [specialize(parameter, value) for parameter, value in zip(self.params, bound, strict=True)]
        device = place(self.params, made, bound)
        chosen = options.parse(self._with_defaults(given), device.target)
        refusals.check_hashes(self.params, made, given)
        try:
            variant = self._variant(made, chosen, device.target, device, at_launch=True)
            variant.function_on(device)
        except errors.OutOfResourcesError as error:
            raise with_advice(self, self._key(made, chosen, device.target), device, error) from None
        except errors.CompilationError as error:
            raise refusals.of_compilation(self, error)  # noqa: B904 - the error itself, or one instead
        self._globals[:] = self.dependencies.values
        refusals.note_globals(self)
        refusals.check_writable(self.params, made, variant)
        return prepare(
            self.params, made, variant, device, bound, chosen,
            lambda bound, **other: self._miss(bound, given | other),
        )  # fmt: skip

    def _refused(self, error: Exception, prepared: PreparedLaunch, values: tuple, grid: Any) -> Exception:
        return refusals.of_launch(self.params, error, prepared, values, grid)

    def _with_defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        """The launch's options over those of the decorator."""
        return ({"debug": True} if self.debug else {}) | given

    def _variant(
        self,
        made: list[Specialization],
        chosen: options.Options,
        target: str,
        device: Device | None,
        at_launch: bool = False,
    ) -> CompiledKernel:
        """The compiled kernel of a specialisation, compiled now if it is a new one."""
        key, mode = self._key(made, chosen, target), active()
        submitted = mode.wait(self, key) if mode is not None else None
        return submitted or self._variant_of(key, device, at_launch)

    def _variant_of(
        self, key: Key, device: Device | None, at_launch: bool = False, made: Artifact | None = None
    ) -> CompiledKernel:
        key = compiling.for_device(key, device)
        variant = self._compiled.get(key.identity())
        if variant is None:
            with hooks.compiling(self, key, at_launch) as told:
                artifact = made or compiling.artifact_of(self, key, at_launch, told)
                variant = told.variant = self._keep(key, artifact, device)
        return variant

    def _key(self, made: list[Specialization], chosen: options.Options, target: str) -> Key:
        signature = {p.name: s.type for p, s in zip(self.params, made, strict=True)}
        constants = {p.name: s.constant for p, s in zip(self.params, made, strict=True) if s.is_constant}
        return Key(target, signature, constants, dict(chosen.compile))

    def _keep(self, key: Key, artifact: Artifact, device: Device | None) -> CompiledKernel:
        variant = self._compiled[key.identity()] = CompiledKernel(artifact, device, src=self)
        variant.launcher = self._launch_variant
        self.variants.append(variant)
        return variant

    def _launch_variant(
        self, variant: CompiledKernel, grid: Any, args: tuple, kwargs: dict[str, Any]
    ) -> None:
        """Launch exactly ``variant``; its constants may be left out when they are the last parameters.

        Its options hold whatever the arguments say: a parameter may be called ``num_stages``, too.
        """
        taken, constants = {*self.arg_names[: len(args)], *kwargs}, variant.artifact.constants
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        bound, given = self._bound(args, {n: v for n, v in constants.items() if n not in taken} | kwargs)
        kinds = tuple(map(type, bound))
        plan = self._plans.get((variant, kinds))
        if plan is None:
            fixed = WithOptions(self, dict(variant.artifact.options))
            plan = self._plans[variant, kinds] = make_plan(self.params, kinds, fixed)
        plan(grid, *bound, given)

    # Ahead of a launch

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> CompiledKernel:
        """Compile, and load where there is a device, without launching. ``None`` where a hook declines.

        For an array, its element type alone will do (a numpy or torch dtype, or one of the language): a
        pointer aligned to 16 bytes. For another architecture (``arch="sm80"``) it only compiles.

        Raises :class:`ArgumentError` and :class:`CompilationError` as a launch does.
        """
        try:
            given = {name: kwargs.pop(name) for name in list(kwargs) if name not in self.arg_names}
            given |= options.shared(kwargs, self._shared_names)
            bound, _ = self._bind(*args, **kwargs)
        except TypeError as error:
            raise refusals.of_binding(self, error, args, kwargs) from None
        if holds_tuples(self.params, tuple(map(type, bound))):
            return self._apart.warmup(bound, given)
        made = [compiling.specialize_type(p, value) for p, value in zip(self.params, bound, strict=True)]
        device = place(self.params, made)
        target = options.architecture(given, device.target)
        key = self._key(made, options.parse(self._with_defaults(given), target), target)
        mode = active() if target == device.target else None
        if mode is not None and key.identity() not in self._compiled:
            return mode.submit(self, key, device)
        with contextlib.suppress(hooks.DeclinedError), forbid_jit(False):
            variant = self._variant_of(key, device)
            if target == device.target:
                variant.function_on(device)
            return variant
        return None  # type: ignore[return-value] - whoever sets such a hook knows

    def precompile(self, declared: Iterable[dict[str, Any]], executor: Any = None) -> list[CompiledKernel]:
        """Compile and load a set of variants, many at once, before the first launch needs one.

        Each item of ``declared`` is a dictionary by parameter and option: a signature type (``"*fp32:16"``,
        ``"i32"``), an element type or an array, a number as a launch would get it, a constant's value; such
        as ``{"x": "*fp32:16", "BLOCK": 128, "num_warps": 4}``, with its variant for arguments that make no
        tensor map. By processes or ``executor``, if many. With ``PTXFORGE_JIT=forbid`` the set is closed.

        Raises :class:`ArgumentError` and :class:`CompilationError` as a launch does.
        """
        return precompile.run(self, declared, executor)

    def compile(
        self,
        signature: dict[str, str],
        constants: dict[str, Any] | None = None,
        target: str | None = None,
        **given: Any,
    ) -> Artifact:
        """Compile ahead of time, for a target instead of a device;
        ``asm`` also makes ``cubin`` and ``sass``."""
        constants = dict(constants) if isinstance(constants, Mapping) else constants or {}
        complete = compiling.complete_signature(self, signature, constants)
        machine = str(parse_target(DEFAULT_TARGET if target is None else str(target)))
        chosen = options.parse(self._with_defaults(given), machine)
        made = compiling.artifact_of(self, Key(machine, complete, constants, dict(chosen.compile)))
        made.asm = tools.with_machine_code(
            made.asm, lambda: compiling.machine_code(made.ptx, made.name, made.target)
        )
        return made

    # What was compiled

    @property
    def newest(self) -> CompiledKernel:
        """The variant compiled last. Raises :class:`LaunchError` before the first one."""
        if not self.variants:
            raise LaunchError(f"'{self.__name__}' has not been compiled yet; launch it or call warmup")
        return self.variants[-1]

    @property
    def asm(self) -> Assembly:
        """The texts of the newest variant; see :class:`CompiledKernel`."""
        return self.newest.asm

    @property
    def metadata(self) -> Any:
        """What is known of the newest variant; see :class:`CompiledKernel`."""
        return self.newest.metadata

    @property
    def n_regs(self) -> int:
        """Registers that a thread of the newest variant takes."""
        return self.newest.n_regs

    @property
    def n_spills(self) -> int:
        """32-bit words of local memory that a thread of the newest variant takes."""
        return self.newest.n_spills

    def add_pre_run_hook(self, hook: Callable) -> None:
        """Call ``hook(*args, **kwargs)`` before every launch."""
        self.pre_run_hooks.append(hook)


_JIT_OPTIONS = tuple(inspect.signature(JITFunction).parameters)[1:]


def _check_jit_options(given: dict[str, Any]) -> None:
    for name in given:
        if name not in _JIT_OPTIONS:
            near = options.nearest(name, _JIT_OPTIONS) or f"; there are {', '.join(_JIT_OPTIONS)}"
            raise ArgumentError(f"is no option of jit{near}", name)
    for name in ("repr", "launch_metadata"):
        if given.get(name) is not None and not callable(given[name]):
            raise ArgumentError(f"is a function, not {given[name]!r}", name)
    for name in ("debug", "noinline"):
        if given.get(name) is not None:
            plain_option(name, given[name])
    for name in ("do_not_specialize", "do_not_specialize_on_alignment"):
        if isinstance(given.get(name, ()), str) or not isinstance(given.get(name) or (), Iterable):
            raise ArgumentError(f"is a list of parameters, not {given[name]!r}", name)


@overload
def jit(fn: F) -> JITFunction[F]: ...


@overload
def jit(**options: Any) -> Callable[[F], JITFunction[F]]: ...


def jit(fn: Callable | None = None, **options: Any) -> Any:
    """Make a Python function a kernel, or a function that kernels call.

    ``@ptxforge.jit`` or ``@ptxforge.jit(do_not_specialize=["n"])``. ``do_not_specialize`` lists parameters
    (names or positions) whose value 1 and divisibility are not compiled in;
    ``do_not_specialize_on_alignment`` those whose divisibility is not; ``debug=True`` keeps device
    assertions.

    Raises :class:`ArgumentError` for something that is no function, and for an unknown option.
    """
    _check_jit_options(options)
    if fn is None:
        return functools.partial(jit, **options)
    if isinstance(fn, KernelInterface):
        return fn
    if not inspect.isfunction(fn):
        raise ArgumentError(f"a kernel is a Python function, not {fn!r}")
    return JITFunction(fn, **options)


@overload
def compile(fn: F) -> JITFunction[F]: ...


@overload
def compile(
    fn: Callable[..., Any],
    signature: dict[str, str],
    constants: dict[str, Any] | None = None,
    target: str | None = None,
    **options: Any,
) -> Artifact: ...


@overload
def compile(
    fn: Callable[..., Any],
    signature: None = None,
    *,
    constants: dict[str, Any],
    target: str | None = None,
    **options: Any,
) -> Artifact: ...


def compile(
    fn: Callable,
    signature: dict[str, str] | None = None,
    constants: dict[str, Any] | None = None,
    target: str | None = None,
    **options: Any,
) -> Any:
    """A kernel ready to launch; with a ``signature``, one specialisation compiled ahead of time.

    ``compile(fn)`` gives a :class:`JITFunction`: ``kernel[grid](*args, **options)`` compiles what a call
    needs. ``compile(fn, signature={"x": "*fp32:16", "n": "i32"}, constants={"BLOCK": 1024},
    target="sm_90a")`` gives an :class:`~ptxforge.compiler.Artifact` and needs no device.

    Raises :class:`ArgumentError` for what cannot be, and :class:`CompilationError` for a wrong kernel.
    """
    if fn is None:
        raise ArgumentError("a kernel is a Python function, not None")
    kernel = jit(fn)
    if signature is None and constants is None and target is None and not options:
        return kernel
    return kernel.compile(signature or {}, constants, target, **options)
