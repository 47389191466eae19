"""What a launch takes: the kernel's parameters (and what is wrong with a call that does not fit them), and
options beside them.

Options are of three kinds: what the compiler needs, what the launch itself needs, and what other Triton
compilers need and this one accepts because it asks for nothing else than what happens anyway.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from ptxforge import compiler
from ptxforge.language.constexpr import constexpr, unwrap
from ptxforge.language.types import const, dtype
from ptxforge.runtime.specialize import CONSTEXPR, Parameter
from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import ArgumentError, CompilationError, did_you_mean

SWITCHES = ("launch_cooperative_grid", "launch_pdl", "warmup", "allow_fp8e4nv")
"""Options of a launch that are on or off. The last one decides nothing: fp8 is converted in software where
the target lacks it."""

SHARED = (*(name for name in compiler.OPTIONS if name not in compiler.OWN_OPTIONS), *SWITCHES[:2])
"""Those that a parameter of a kernel may be called as and be both."""

REFUSED = {  # name -> why nothing but None is accepted
    "extern_libs": "math functions are ptxforge's own; no library but 'libdevice' is known",
    "arch": "kernels are compiled for the device that they run on; warmup() and compile() take a target",
    "ir_override": "triton.compile() takes files of ptxforge's IR",
    **dict.fromkeys(("ptx_version", "ptx_options"), "what the text says is the compiler's"),
}

_DOTS = "what a product may take is told at tl.dot"
FIXED = {  # name -> what is accepted, as it asks for what happens anyway, and why nothing else but None
    "warp_size": ((32,), "warps of NVIDIA's GPUs have 32 threads"),
    "backend_name": (("cuda",), "there is no other backend"),
    "instrumentation_mode": (("",), "python -m ptxforge check looks for errors in kernels"),
    "default_dot_input_precision": (("tf32",), "tl.dot takes input_precision"),
    "allowed_dot_input_precisions": ((("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),), _DOTS),
    "max_num_imprecise_acc_default": ((0, 2**30), "tl.dot takes max_num_imprecise_acc"),
    "supported_fp8_dtypes": ((("fp8e5", "fp8e4b15"), ("fp8e4b15", "fp8e4nv", "fp8e5")), _DOTS),
    "deprecated_fp8_dot_operand_dtypes": (((), ("fp8e4b15",)), _DOTS),
}
"""Options of Triton 3.6's compiler, with the values that it takes by itself."""


@attrs.frozen(slots=True)
class Options:
    """Options of one launch, split by who reads them: ``compile`` is complete and sorted by name;
    ``cooperative`` makes all blocks of the grid resident at once, ``programmatic`` lets the kernel start
    before the one ahead of it in the stream has ended."""

    compile: tuple[tuple[str, Any], ...]
    stream: int | None = None
    cooperative: bool = False
    programmatic: bool = False

    def __getitem__(self, name: str) -> Any:
        return dict(self.compile)[name]


def names() -> tuple[str, ...]:
    """Every option's name."""
    return (*compiler.OPTIONS, "stream", *SWITCHES, *REFUSED, *FIXED)


def shared(arguments: dict[str, Any], called: tuple[str, ...]) -> dict[str, Any]:
    """The options among arguments by name: a parameter that is ``called`` as one of Triton's is both, if its
    value is one that the option has."""
    found = {}
    for name in called:
        if name in arguments:
            with contextlib.suppress(ArgumentError):
                found[name] = compiler.plain_option(name, unwrap(arguments[name]))
    return found


def fuses(requested: bool | None) -> bool:
    """Whether products and sums become fused ones where a launch says this. Triton's knobs put a function of
    theirs in its place."""
    return requested is None or requested


def debugs() -> bool:
    """Whether every kernel is compiled with its assertions, as for :func:`fuses`."""
    return False


def tells_lines_by_default() -> bool:
    """Whether PTX has lines of the source where a launch does not say, as for :func:`fuses`."""
    return True


def parse(given: dict[str, Any], target: str = "") -> Options:
    """Check options and fill in the defaults. ``target`` is what is compiled for, if that is known.

    Raises :class:`ArgumentError` for an unknown name (with the nearest known one), for a value of another
    type, and for one of an option that is known for ``None`` only.
    """
    chosen = dict(compiler.OPTIONS) | {"line_info": tells_lines_by_default()}
    switches = dict.fromkeys(SWITCHES, False)
    for name, value in given.items():
        if name in chosen or name in SWITCHES:
            if value is not None:
                (chosen if name in chosen else switches)[name] = compiler.plain_option(name, value)
        elif name == "extern_libs":
            check_libraries(value)
        elif name in FIXED:
            _check_fixed(name, value)
        elif name == "arch" and target and isinstance(value, str) and value in _spellings(target):
            pass
        elif name in REFUSED and value is not None:
            raise ArgumentError(f"{value!r} is not supported: {REFUSED[name]}", name)
        elif name not in names():
            raise ArgumentError(f"is neither a parameter of the kernel nor an option{nearest(name)}", name)
    if switches["warmup"]:
        raise ArgumentError("a launch launches; kernel.warmup(...) compiles only", "warmup")
    chosen["debug"] = chosen["debug"] or debugs()
    fusion = given.get("enable_fp_fusion")
    chosen["enable_fp_fusion"] = fuses(fusion if fusion is None else chosen["enable_fp_fusion"])
    return Options(
        tuple(sorted(chosen.items())),
        stream_handle(given.get("stream")),
        switches["launch_cooperative_grid"],
        switches["launch_pdl"],
    )


def _check_fixed(name: str, value: Any) -> None:
    """Raise :class:`ArgumentError` for a value that asks for something."""
    accepted, why = FIXED[name]
    plain = tuple(value) if type(value) is list else value
    if plain is not None and not any(type(plain) is type(known) and plain == known for known in accepted):
        raise ArgumentError(f"{value!r} is not supported: {why}", name)


def architecture(given: dict[str, Any], target: str) -> str:
    """What is compiled for where ``given`` asks for an architecture of its own, which is taken out of it."""
    arch = str(given.pop("arch", None) or target)
    return target if arch in _spellings(target) else f"sm_{arch.lstrip('sm_')}"


def _spellings(target: str) -> list[str]:
    """How Triton and people call a target.

    >>> _spellings("sm_90a")
    ['sm90', 'sm_90', 'sm_90a']
    """
    digits = "".join(filter(str.isdigit, target))
    return [f"sm{digits}", f"sm_{digits}", target]


def check_libraries(value: Any) -> None:
    """Raise :class:`ArgumentError` for libraries to link other than ``libdevice``, which is ptxforge's own
    wherever CUDA's lies."""
    try:
        is_known = not {*dict(value or ())} - {"libdevice"}
    except (TypeError, ValueError):
        is_known = False
    if not is_known:
        raise ArgumentError(f"{value!r} is not supported: {REFUSED['extern_libs']}", "extern_libs")


def nearest(name: str, known: Sequence[str] = ()) -> str:
    """``; did you mean 'num_warps'?`` when a known name (an option, unless given) is close, else nothing."""
    hint = did_you_mean(name, known or names())
    return hint and f"; {hint}"


def stream_handle(stream: Any) -> int | None:
    """The handle of a stream given as an int, a torch or CuPy stream, or by ``__cuda_stream__``.

    Raises :class:`ArgumentError` for anything else.
    """
    if stream is None or type(stream) is int:
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return int(handle)
    try:
        return compiler.plain("stream", stream, int)
    except ArgumentError:
        raise ArgumentError(f"{stream!r} is not a stream", "stream") from None


class Launch(Protocol):
    """What ``kernel[grid]`` is: arguments as the kernel names them, options beside them."""

    def __call__(
        self,
        *args: Any,
        num_warps: int = ...,
        num_stages: int = ...,
        num_ctas: int = ...,
        maxnreg: int | None = ...,
        enable_fp_fusion: bool = ...,
        stream: Any = ...,
        **kwargs: Any,
    ) -> Any:
        """Launch; the variant that ran."""


class KernelInterface:
    """Anything that launches with ``kernel[grid](...)``: jitted functions, autotuners, heuristics, and what
    users derive from it."""

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch on ``grid``; with ``warmup``, compile only."""
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Launch:
        return functools.partial(self.run, grid=grid, warmup=False)


def parameters_of(
    fn: Callable,
    do_not_specialize: tuple = (),
    do_not_specialize_on_alignment: tuple = (),
    signature: inspect.Signature | None = None,
) -> tuple[Parameter, ...]:
    """The parameters of a kernel, whose ``signature`` may be known. The two lists hold names or positions, as
    in Triton.

    What is listed and no parameter is ignored, with a warning. Raises :class:`ArgumentError` for
    ``**kwargs``, and :class:`CompilationError` for a constant that is listed.
    """
    declared = (signature or inspect.signature(fn)).parameters.values()
    names = [parameter.name for parameter in declared]
    plain = _names(do_not_specialize, names)
    unaligned = _names(do_not_specialize_on_alignment, names)
    listed, result = plain | unaligned, []
    for index, parameter in enumerate(declared):
        if parameter.kind is parameter.VAR_KEYWORD:
            raise ArgumentError("a kernel's parameters have names; **kwargs has no meaning", parameter.name)
        annotation = _resolved(parameter.annotation, fn)
        if _is_constexpr(annotation) and parameter.name in listed:
            raise CompilationError(
                f"{parameter.name} marked as constexpr and listed in do_not_specialize",
                hint="a constant is compiled in, whatever that list says",
            )
        result.append(
            Parameter(
                name=parameter.name,
                index=index,
                constexpr=_is_constexpr(annotation),
                dtype=_element_type(annotation),
                const=annotation is const or annotation == "tl.const",
                alignment=parameter.name not in listed,
                ones=parameter.name not in plain,
                has_default=parameter.default is not parameter.empty,
                default=parameter.default,
                variadic=parameter.kind is parameter.VAR_POSITIONAL,
            )
        )
    return tuple(result)


def _names(listed: Any, names: list[str]) -> set[str]:
    """The parameter names in a list of names and positions."""
    known = {**{name: name for name in names}, **dict(enumerate(names))}
    for item in listed or ():
        if item not in known:
            warnings.warn(f"{item!r}, listed in do_not_specialize, is no parameter", stacklevel=2)
    return {known[item] for item in listed or () if item in known}


def _resolved(annotation: Any, fn: Callable) -> Any:
    """An annotation as an object. ``from __future__ import annotations`` leaves its text, in which a text may
    stand."""
    for _ in range(2):
        if not isinstance(annotation, str):
            break
        try:
            annotation = eval(annotation, fn.__globals__)
        except Exception:  # an element type's short name, or a name known to type checkers only
            break
    return annotation


def _is_constexpr(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == CONSTEXPR
    return annotation is constexpr or isinstance(annotation, constexpr)


def _element_type(annotation: Any) -> DType | None:
    """The element type that an annotation fixes: ``tl.int64`` or its name; others say nothing to the
    compiler."""
    if isinstance(annotation, dtype):
        return annotation.base
    return (
        dtypes.BY_NAME.get(annotation) or dtypes.BY_SHORT.get(annotation)
        if isinstance(annotation, str)
        else None
    )


def make_binder(parameters: tuple[Parameter, ...]) -> Callable[..., tuple[tuple, dict[str, Any]]]:
    """A function with the kernel's own parameters that returns the arguments in order and the options.

    ``inspect.signature(...).bind`` does that too, but not as fast as Python itself.
    """
    scope = {f"__default{p.index}": p.default for p in parameters}
    header = [_declared(p) for p in parameters]
    names = "".join(f"{p.name}, " for p in parameters)
    exec(f"def bind({', '.join([*header, '**__options'])}):\n    return ({names}), __options", scope)
    return scope["bind"]


def _declared(p: Parameter) -> str:
    if p.variadic:
        return f"*{p.name}"
    return f"{p.name}=__default{p.index}" if p.has_default else p.name


def explain_binding(
    parameters: tuple[Parameter, ...], name: str, args: tuple, kwargs: dict[str, Any]
) -> str | None:
    """What is wrong with a call that does not bind, in the kernel's terms; ``None`` when it binds."""
    if any(parameter.variadic for parameter in parameters):
        return None
    if len(args) > len(parameters):
        return f"'{name}' takes {len(parameters)} arguments, {len(args)} were given"
    for parameter in parameters[: len(args)]:
        if parameter.name in kwargs:
            return f"argument '{parameter.name}' of '{name}' is given twice"
    missing = [p.name for p in parameters[len(args) :] if p.name not in kwargs and not p.has_default]
    if not missing:
        return None
    known = {*names(), *(parameter.name for parameter in parameters)}
    strange = [given for given in kwargs if given not in known]
    return f"'{name}' is missing {_listed('argument', missing)}" + (
        f"; it has no {_listed('parameter', strange)}" if strange else ""
    )


def _listed(noun: str, names: list[str]) -> str:
    return f"{noun}{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
