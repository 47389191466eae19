"""The callable kernel.

``kernel[grid](*args, **options)`` binds the arguments, looks their specialisation up and launches. What
happens the first time (compile, load) and what happens every time (pack, launch) are two roads:
:meth:`JITFunction.run` is the short one and everything it calls is meant to be fast.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from ptxforge import compiler
from ptxforge.compiler import Artifact
from ptxforge.driver.arrays import from_torch_dtype
from ptxforge.driver.device_array import element_type
from ptxforge.driver.protocol import Device
from ptxforge.language.constexpr import unwrap
from ptxforge.language.types import dtype
from ptxforge.runtime import cache, options, pickling, source, tools
from ptxforge.runtime.binder import explain_binding, make_binder, parameters_of
from ptxforge.runtime.function_state import FunctionState, default_repr, restored
from ptxforge.runtime.launcher import PreparedLaunch, normalize_grid, place, prepare
from ptxforge.runtime.specialize import Parameter, Specialization, constexpr_key, pointer_to, specialize
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.support import settings
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import ArgumentError, ChangedGlobalError, LaunchError
from ptxforge.support.source_text import remember
from ptxforge.support.target import parse_target

DEFAULT_TARGET = "sm_90a"

F = TypeVar("F", bound=Callable[..., Any])
"""The Python function of a kernel, with its own signature."""


class Launch(Protocol):
    """What ``kernel[grid]`` is: arguments as the kernel names them, options beside them."""

    def __call__(
        self,
        *args: Any,
        num_warps: int = ...,
        num_stages: int = ...,
        num_ctas: int = ...,
        maxnreg: int | None = ...,
        stream: Any = ...,
        **kwargs: Any,
    ) -> Any:
        """Launch; the variant that ran."""


class KernelInterface:
    """Anything that launches with ``kernel[grid](...)``: jitted functions, autotuners, heuristics."""

    def run(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        """Launch on ``grid``."""
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Launch:
        return functools.partial(self.run, grid)

    def __copy__(self) -> KernelInterface:
        return self

    def __deepcopy__(self, memo: dict) -> KernelInterface:
        return self

    def __reduce__(self) -> tuple:
        return pickling.reduced(self)


class JITFunction(FunctionState, KernelInterface, Generic[F]):
    """A kernel, or a function that kernels call.

    ``fn`` is the Python function, ``arg_names`` its parameters, ``variants`` what was compiled, oldest first.
    """

    __ptxforge_jit__ = True  # how the frontend knows a function that it can inline

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
        self.arg_names = list(inspect.signature(fn).parameters)
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
        self.variants: list[CompiledKernel] = []
        self.pre_run_hooks: list[Callable] = []
        self._prepared: dict[Any, PreparedLaunch] = {}
        self._compiled: dict[Any, CompiledKernel] = {}
        self._globals: tuple = ()  # (scope, name, value) of what compiled code read
        self._shared_names = tuple(name for name in options.names() if name in self.arg_names)

    def __repr__(self) -> str:
        return f"<JITFunction {self.__module__}.{self.__qualname__}>"

    def __deepcopy__(self, memo: dict) -> JITFunction:
        return restored(type(self), self.bare_state()) if self.is_bare() else self

    def __reduce__(self) -> tuple:
        if self.is_bare():
            return restored, (type(self), self.bare_state())
        return pickling.reduced(self, JITFunction, self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LaunchError(
            f"'{self.__name__}' can be called inside a kernel only; launch it as {self.__name__}[grid](...)"
        )

    @functools.cached_property
    def params(self) -> tuple[Parameter, ...]:
        """The parameters and how each is specialised."""
        return parameters_of(self.fn, self.do_not_specialize, self.do_not_specialize_on_alignment)

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
        """A hash of the kernel's source and of what it depends on."""
        if not self._cache_key:
            self._cache_key = self.dependencies.digest()
        return self._cache_key

    @functools.cached_property
    def _bind(self) -> Callable:
        return make_binder(self.params)

    # Every launch

    def run(self, grid: Any, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """Launch; ``None`` for a grid without blocks. Raises an error of :mod:`ptxforge.errors` for a bad
        call."""
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        if self._globals:
            self._check_globals()
        try:
            key, values, bound, given = self._bind(*args, **kwargs)
            if self._shared_names:
                given |= {name: kwargs[name] for name in self._shared_names if name in kwargs}
            stream = None
            if given:
                stream = options.stream_handle(given.pop("stream", None))
                key = (key, *given.items())
            prepared = self._prepared.get(key)
        except TypeError as error:
            raise self._explained(error, args, kwargs) from None
        if type(grid) is not tuple and callable(grid):
            grid = grid(dict(zip(self.arg_names, bound, strict=True)) | given)
        grid = normalize_grid(grid)
        if prepared is None or (prepared.volatile and prepared.is_stale()):
            prepared = self._prepared[key] = self._prepare(bound, given)
        if 0 in grid:
            return None
        try:
            prepared(grid, values, bound, stream)
        except OverflowError:
            raise self._overflow(prepared, values) from None
        return prepared.variant

    def _check_globals(self) -> None:
        """A number or text that was compiled in must not have changed. A name that means another element
        type now is compiled anew."""
        for scope, name, value in self._globals:
            now = scope.get(name)
            if now is value or unwrap(now) == unwrap(value):
                continue
            if isinstance(value, dtype):
                self._forget()
            else:
                raise ChangedGlobalError(
                    f"the global '{name}' was {unwrap(value)!r} when '{self.__name__}' was compiled and is "
                    f"{unwrap(now)!r} now; pass it as an argument"
                )

    def _forget(self) -> None:
        """Compile anew at the next launch."""
        self.__dict__.pop("dependencies", None)
        self._cache_key = ""
        self._prepared.clear()
        self._compiled.clear()
        self._globals = ()

    # The first launch of a specialisation

    def _prepare(self, bound: tuple, given: dict[str, Any]) -> PreparedLaunch:
        made = [specialize(parameter, value) for parameter, value in zip(self.params, bound, strict=True)]
        device = place(self.params, made)
        variant = self._variant(made, options.parse(self._with_defaults(given)), device.target, device)
        self._globals = self.dependencies.values
        _check_writable(self.params, made, variant)
        return prepare(self.params, made, variant, device, bound)

    def _with_defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        """The launch's options over those of the decorator."""
        return ({"debug": True} if self.debug else {}) | given

    def _variant(
        self, made: list[Specialization], chosen: options.Options, target: str, device: Device | None
    ) -> CompiledKernel:
        """The compiled kernel of a specialisation, compiled now if it is a new one."""
        signature = {p.name: s.type for p, s in zip(self.params, made, strict=True)}
        constants = {p.name: s.constant for p, s in zip(self.params, made, strict=True) if s.is_constant}
        key = (
            target,
            tuple(signature.values()),
            tuple(constexpr_key(value) for value in constants.values()),
            chosen.compile,
        )
        variant = self._compiled.get(key)
        if variant is None:
            artifact = self._artifact(signature, constants, target, dict(chosen.compile))
            variant = self._compiled[key] = CompiledKernel(artifact, device, src=self)
            variant.launcher = self._launch_variant
            self.variants.append(variant)
        return variant

    def _artifact(
        self, signature: dict[str, str], constants: dict[str, Any], target: str, chosen: dict[str, Any]
    ) -> Artifact:
        """From the disk cache, else compiled and put there."""
        settings.warn_of_unknown()

        def compile_now() -> Artifact:
            return compiler.compile_function(self, signature, constants, target, **chosen)

        if cache.folder() is None or settings.STOP_AFTER.get() or settings.DUMP.get():
            return compile_now()
        name = cache.key(self.dependencies.text, signature, constants, target, chosen)
        artifact = cache.load(name, compile_now)
        if artifact is None:
            artifact = compile_now()
            cache.store(name, artifact)
        else:
            artifact.constants.update(constants)
        return artifact

    def _launch_variant(
        self, variant: CompiledKernel, grid: Any, args: tuple, kwargs: dict[str, Any]
    ) -> None:
        """Launch exactly ``variant``; its constants may be left out when they are the last parameters.

        Its options hold whatever the arguments say: a parameter may be called ``num_stages``, too.
        """
        made = variant.artifact
        taken = {*self.arg_names[: len(args)], *kwargs}
        constants = {name: value for name, value in made.constants.items() if name not in taken}
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        self._check_globals()
        try:
            key, values, bound, given = self._bind(*args, **constants | kwargs)
        except TypeError as error:
            raise self._explained(error, args, constants | kwargs) from None
        stream = options.stream_handle(given.pop("stream", None))
        if callable(grid):
            grid = grid(dict(zip(self.arg_names, bound, strict=True)) | given)
        grid = normalize_grid(grid)
        key = (variant, key, *given.items())
        prepared = self._prepared.get(key)
        if prepared is None or (prepared.volatile and prepared.is_stale()):
            prepared = self._prepared[key] = self._prepare(bound, dict(made.options) | given)
        if 0 not in grid:
            prepared(grid, values, bound, stream)

    # Errors

    def _explained(self, error: TypeError, args: tuple, kwargs: dict[str, Any]) -> Exception:
        """The error of a call that does not bind, in the kernel's terms."""
        wrong = explain_binding(self.params, self.__name__, args, kwargs)
        if wrong is not None:
            return ArgumentError(wrong)
        given = dict(zip(self.arg_names, args, strict=False)) | kwargs
        for parameter in self.params:
            value = given.get(parameter.name, parameter.default)
            try:
                hash(constexpr_key(specialize(parameter, value).constant))
            except ArgumentError as found:
                return found
            except TypeError:
                return ArgumentError(
                    f"a '{type(value).__name__}' cannot be compiled in: it has no hash", parameter.name
                )
        return error

    def _overflow(self, prepared: PreparedLaunch, values: tuple) -> ArgumentError:
        """The argument that does not fit in its parameter's type."""
        types = dict(prepared.variant.artifact.parameters)
        for parameter in self.params:
            value = values[parameter.index]
            if types.get(parameter.name) == "fp32" and isinstance(value, float) and abs(value) > 3.4028235e38:
                return ArgumentError(f"{value!r} does not fit in fp32", parameter.name)
        return ArgumentError("an argument does not fit in its parameter's type")

    # Ahead of a launch

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> CompiledKernel:
        """Compile, and load where there is a device, without launching.

        For an array, its element type alone will do (a numpy or torch dtype, or one of the language): a
        pointer aligned to 16 bytes.

        Raises :class:`ArgumentError` and :class:`CompilationError` as a launch does.
        """
        try:
            given = {name: kwargs.pop(name) for name in list(kwargs) if name not in self.arg_names}
            given |= {name: kwargs[name] for name in self._shared_names if name in kwargs}
            bound = inspect.signature(self.fn).bind(*args, **kwargs)
        except TypeError as error:
            raise self._explained(error, args, kwargs) from None
        bound.apply_defaults()
        made = [_specialize_type(p, bound.arguments[p.name]) for p in self.params]
        device = place(self.params, made)
        variant = self._variant(made, options.parse(self._with_defaults(given)), device.target, device)
        variant.function_on(device)
        return variant

    def compile(
        self,
        signature: dict[str, str],
        constants: dict[str, Any] | None = None,
        target: str | None = None,
        **given: Any,
    ) -> Artifact:
        """Compile ahead of time, for a target instead of a device;
        ``asm`` also makes ``cubin`` and ``sass``."""
        constants = dict(constants or {})
        complete = self._complete_signature(signature, constants)
        chosen = options.parse(self._with_defaults(given))
        made = self._artifact(
            complete, constants, str(parse_target(target or DEFAULT_TARGET)), dict(chosen.compile)
        )
        made.asm = tools.with_machine_code(made.asm, lambda: tools.machine_code(made.ptx, made.target))
        return made

    def _complete_signature(self, signature: dict[str, str], constants: dict[str, Any]) -> dict[str, str]:
        """A type for every parameter, constants included. Raises :class:`ArgumentError` for one that has
        none."""
        for name in (*signature, *constants):
            if name not in self.arg_names:
                raise ArgumentError(
                    f"'{self.__name__}' has no such parameter{options.nearest(name, self.arg_names)}", name
                )
        complete = {}
        for parameter in self.params:
            name = parameter.name
            if name not in signature and name not in constants and parameter.has_default:
                constants[name] = parameter.default
            if name in constants or signature.get(name) == "constexpr":
                complete[name] = "constexpr"
            elif name in signature:
                complete[name] = signature[name]
            else:
                raise ArgumentError("has neither a type in the signature nor a constant", name)
            if complete[name] == "constexpr" and name not in constants:
                raise ArgumentError("is a constant without a value; give it in constants", name)
        return complete

    # What was compiled

    @property
    def newest(self) -> CompiledKernel:
        """The variant compiled last. Raises :class:`LaunchError` before the first one."""
        if not self.variants:
            raise LaunchError(f"'{self.__name__}' has not been compiled yet; launch it or call warmup")
        return self.variants[-1]

    @property
    def asm(self) -> Any:
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


def _check_writable(
    parameters: tuple[Parameter, ...], made: list[Specialization], variant: CompiledKernel
) -> None:
    """Raise :class:`ArgumentError` when the kernel may write to an array that is read-only."""
    for parameter, specialization in zip(parameters, made, strict=True):
        if specialization.readonly and parameter.name in variant.artifact.written:
            raise ArgumentError(
                "is a read-only array, and the kernel may store to it; pass a copy that can be written",
                parameter.name,
            )


def _specialize_type(parameter: Parameter, value: Any) -> Specialization:
    """As for a launch; an element type stands for an array of it."""
    short = _pointee(value)
    if parameter.constexpr or short is None:
        return specialize(parameter, value)
    return Specialization(pointer_to(parameter, short, is_aligned=True))


def _pointee(value: Any) -> str | None:
    """The short name of an element type given as a type, ``None`` for anything else."""
    if isinstance(value, (DType, dtype)):
        return element_type(value).short
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return from_torch_dtype(value).short
    return (
        element_type(value).short
        if isinstance(value, type) or type(value).__name__.endswith("DType")
        else None
    )


_JIT_OPTIONS = tuple(inspect.signature(JITFunction).parameters)[1:]


def _check_jit_options(given: dict[str, Any]) -> None:
    for name in given:
        if name not in _JIT_OPTIONS:
            near = options.nearest(name, _JIT_OPTIONS) or f"; there are {', '.join(_JIT_OPTIONS)}"
            raise ArgumentError(f"is no option of jit{near}", name)


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
    """
    kernel = jit(fn)
    if signature is None and constants is None and target is None and not options:
        return kernel
    return kernel.compile(signature or {}, constants, target, **options)
