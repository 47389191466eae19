"""The warm road of a launch: text that is written for each kernel and compiled, as dataclasses do it for
``__init__``.

The first launch with arguments of some types goes by :func:`launch_once`, which makes nothing: many processes
launch a kernel once, and compiling text takes longer than all else that a warm start does. The second makes
the *entry* of the kernel. It has the kernel's own parameters, so that Python binds the arguments, and for
the types that it was made for all that a launch does, the *plan*; for other types that is another function:

    def add(__grid, /, x=__missing, n=__missing, BLOCK=__missing, *__rest, **__options):
        try:
            if __type(x) is __t0 and __type(n) is __type(BLOCK) is __t1 and not __rest:
                …the plan
            __plan = __plans.get((__type(x), __type(n), __type(BLOCK)))
            if __plan is None or __rest:
                return __first((x, n, BLOCK), __grid, __rest, __options)
            return __plan(__grid, x, n, BLOCK, __options)
        except __Declined:
            return None
        except __Error as __error:
            raise __short(__error)

The plan knows the types, so that what must be asked of each argument is a few inlined expressions: of a torch
tensor its address, element type and device, of an int whether 16 divides it. Together they are the key under
which everything else was decided by the first launch, a
:class:`~ptxforge.runtime.launcher.PreparedLaunch`:

    def plan(__grid, x, n, BLOCK, __options):
        __v0 = x.data_ptr(); __d0 = x.dtype; __p0 = x.get_device()
        …the grid as a tuple…
        __exact = (__v0, __d0, n, BLOCK, __current(__p0), __p0, __grid)
        …if that was launched before (:mod:`ptxforge.runtime.bound`): again, and return
        __key = (__d0, __p0, not __v0 & 15,
                 ("i32:16" if not n & 15 else "1" if n == 1 else "i32") if -2147483648 <= n <= … else …,
                 BLOCK,)
        …look up, or prepare…
        __prepared.fire(__gx, __gy, __gz, __stream, (__v0, n, None,), (x, n, BLOCK,))

Where the time goes is in docs/launching.md; ``tests/runtime/test_speed.py`` holds the sum.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from types import MethodType
from typing import Any

import attrs

from ptxforge.compiler import is_array_of_one
from ptxforge.driver import arrays
from ptxforge.driver.device_array import DeviceArray
from ptxforge.runtime import hooks, options
from ptxforge.runtime.bound import Repeats
from ptxforge.runtime.devices import FOLLOWS, FOLLOWS_SCOPE, has_one_gpu
from ptxforge.runtime.findings import GENERATED
from ptxforge.runtime.launcher import PreparedLaunch, normalize_grid
from ptxforge.runtime.options import KernelInterface, Launch, explain_binding
from ptxforge.runtime.specialize import Keys, Parameter, exactly, integer_key, is_torch
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from ptxforge.support.errors import ArgumentError, DeviceError
from ptxforge.support.tracebacks import SHORTENED, short

MISSING = type("missing", (), {"__repr__": lambda self: "<missing>"})()
"""Stands for an argument that was not given."""
MOST_ENTRIES = 256
"""Grids whose ``kernel[grid]`` a kernel keeps; then it begins again."""
_FAILURES = (OverflowError, hooks.PackingError, DeviceError)


def in_order(
    parameters: tuple[Parameter, ...], kernel: str, args: tuple, given: dict[str, Any]
) -> tuple[tuple, tuple]:
    """The arguments of a call in order, :data:`MISSING` for those that were not given, and those that are too
    many. Arguments by name are taken out of ``given``. Raises :class:`ArgumentError` for one that is given
    twice."""
    for parameter in parameters[: len(args)]:
        if parameter.name in given:
            raise ArgumentError(explain_binding(parameters, kernel, args, given))
    missing = parameters[len(args) :]
    named = (given.pop(p.name, p.default if p.has_default else MISSING) for p in missing)
    return (*args[: len(parameters)], *named), args[len(parameters) :]


class Entries(KernelInterface):
    """``kernel[grid]``, kept for tuples of integers: finding it is quicker than making it, and a launch can
    tell by identity that the grid is the same."""

    __slots__ = ("_enter", "_entries", "_entry_on")  # which every launch reads: quicker than a dictionary

    def _begin_entries(self) -> None:
        self._enter: Callable = self._first_entry
        self._entries: dict[tuple, Launch] = {}
        self._entry_on = self._entries.get

    def __getitem__(self, grid: Any) -> Launch:
        try:
            known = self._entry_on(grid)
        except TypeError:  # a list
            known = None
        if known is not None and not self.pre_run_hooks:
            return known
        if self.pre_run_hooks or self._is_odd or grid is None:
            return functools.partial(self.run, grid=grid)
        launch = MethodType(self._enter, grid)
        if type(grid) is tuple:
            self._keep_entry(grid, launch)
        return launch

    def _keep_entry(self, grid: tuple, launch: Launch) -> None:
        if isinstance(self._enter, MethodType) or not all(type(extent) is int for extent in grid):
            return
        if len(self._entries) >= MOST_ENTRIES:
            self._entries.clear()
        self._entries[grid] = launch

    def _first_entry(self, grid: Any, /, *args: Any, **given: Any) -> Any:
        """The way in until the kernel has one of its own, which takes its place (:func:`make_entry`)."""
        if not isinstance(self._enter, MethodType):  # made since ``kernel[grid]`` was evaluated
            return self._enter(grid, *args, **given)
        try:
            bound, rest = in_order(self.params, self.__name__, args, given)
            return self._first(bound, grid, rest, given, makes_entry=True)
        except hooks.DeclinedError:
            return None
        except SHORTENED as error:
            __tracebackhide__ = True
            raise short(error)  # noqa: B904 - `short` decides about the cause


def launch_once(kernel: Any, grid: Any, bound: tuple, given: dict[str, Any]) -> Any:
    """A launch as a plan does it, see :func:`make_plan`, for which nothing is made. Raises what a launch
    raises."""
    if kernel._globals:
        kernel._check_globals()
    _, stream = _with_options((), given)
    _take_numbers(given)
    prepared = kernel._miss(bound, given)
    if type(grid) is not tuple and callable(grid):
        grid = grid(dict(zip(kernel.arg_names, bound, strict=True)) | given)
    axes = normalize_grid(grid)
    if 0 in axes:
        return None
    values = tuple([Keys(p)[type(value)](value)[1] for p, value in zip(kernel.params, bound, strict=True)])
    try:
        if hooks.LAUNCH:
            hooks.fire(prepared, axes, stream, values, bound)
        else:
            prepared.fire(*axes, stream, values, bound)
    except _FAILURES as error:
        raise kernel._refused(error, prepared, values, grid) from None
    return prepared.variant


def make_entry(kernel: Any, kinds: tuple[type, ...]) -> Callable:
    """The function behind ``kernel[grid]``, with the plan for arguments of the types ``kinds`` in it.

    ``kernel`` has what :func:`make_plan` asks for and ``_first(bound, grid, rest, options)``, which is called
    for types without a plan and for wrong calls.
    """
    parameters, name = kernel.params, kernel.__name__
    scope: dict[str, Any] = {
        "__missing": MISSING, "__plans": kernel._plans, "__first": kernel._first, "__Error": SHORTENED,
        "__short": short, "__Declined": hooks.DeclinedError,
    }  # fmt: skip
    header = []
    for p in parameters:
        scope[f"__default{p.index}"] = p.default if p.has_default else MISSING
        header.append(f"{p.name}=__default{p.index}")
    names = [p.name for p in parameters]
    plan = "".join(f"            {line}\n" for line in _plan_lines(parameters, kinds, kernel, scope))
    text = (
        f"def {name}({', '.join(['__grid', '/', *header, '*__rest', '**__options'])}):\n"
        f"    try:\n"
        f"        if {_guard(names, kinds, scope)}not __rest:\n{plan}"
        f"        __plan = __plans.get({_tuple(f'__type({name})' for name in names)})\n"
        f"        if __plan is None or __rest:\n"
        f"            return __first({_tuple(names)}, __grid, __rest, __options)\n"
        f"        return __plan({', '.join(['__grid', *names, '__options'])})\n"
        f"    except __Declined:\n        return None\n"
        f"    except __Error as __error:\n"
        f"        __tracebackhide__ = True\n"
        f"        raise __short(__error)\n"
    )
    exec(compile(text, GENERATED, "exec"), scope)
    return scope[name]


def _guard(names: list[str], kinds: tuple[type, ...], scope: dict[str, Any]) -> str:
    """The condition that the arguments have these types, one comparison for neighbours of the same type."""
    text = ""
    for number, (kind, group) in enumerate(itertools.groupby(zip(names, kinds), key=lambda pair: pair[1])):
        scope[f"__t{number}"] = kind
        text += " is ".join(f"__type({name})" for name, _ in group) + f" is __t{number} and "
    return text


def make_plan(parameters: tuple[Parameter, ...], kinds: tuple[type, ...], kernel: Any) -> Callable:
    """The launch of ``kernel`` with arguments of these types.

    ``kernel`` has ``_miss(bound, options)``, which prepares a launch, ``_check_globals()``, ``_refused(error,
    prepared, values, grid)``, which explains a launch that failed, and the lists ``_globals`` (of what must
    not change between launches) and ``_prepared`` (of the tables to empty when it did).
    """
    scope: dict[str, Any] = {}
    body = _plan_lines(parameters, kinds, kernel, scope)
    header = ", ".join(["__grid", *(p.name for p in parameters), "__options"])
    exec(compile("\n    ".join([f"def plan({header}):", *body]), GENERATED, "exec"), scope)
    return scope["plan"]


def _plan_lines(
    parameters: tuple[Parameter, ...], kinds: tuple[type, ...], kernel: Any, scope: dict[str, Any]
) -> list[str]:
    """The lines of a plan; what they name goes into ``scope``."""
    prepared: dict[Any, PreparedLaunch] = {}
    kernel._prepared.append(prepared)
    scope |= {
        "__type": type, "__tuple": tuple, "__len": len, "__wide": integer_key, "__plain": normalize_grid,
        "__with_options": _with_options, "__take_numbers": _take_numbers, "__launch_once": launch_once,
        "__prepared_by_key": prepared, "__kernel": kernel,
        "__callable": callable, "__compiled_in": _compiled_in, "__globals": kernel._globals,
        "__hooks": hooks.LAUNCH, "__hooked": hooks.fire, "__Failure": _FAILURES,
    }  # fmt: skip
    parts = [_part(parameter, kind, scope) for parameter, kind in zip(parameters, kinds, strict=True)]
    one_gpu = any(part.is_torch for part in parts) and has_one_gpu()
    repetition = _repetition(parts, kernel, scope, one_gpu)
    places = [line for part in parts for line in part.place_lines]
    names = _tuple(p.name for p in parameters)
    by_name = "{" + ", ".join(f"'{p.name}': {p.name}" for p in parameters) + "}"
    return [
        *(_SAME_GRID if repetition and not parts else []),
        "if __globals:",
        "    __kernel._check_globals()",
        *(line for part in parts for line in part.lines),
        *([] if one_gpu else places),
        "if __type(__grid) is not __tuple:",
        "    if __callable(__grid):",
        f"        __grid = __grid({by_name} | (__compiled_in(__options) if __options else __options))",
        "    if __type(__grid) is not __tuple:",
        "        __grid = __plain(__grid)",
        *repetition,
        *(places if one_gpu else []),
        *(line for part in parts for line in part.late_lines),
        f"__key = {_tuple(item for part in parts for item in part.key)}",
        "__stream = None",
        "if __options:",
        "    __key, __stream = __with_options(__key, __options)",
        "try:",
        "    __prepared = __prepared_by_key[__key]",
        "except (KeyError, TypeError):",
        "    if __options and __take_numbers(__options):",
        f"        return __launch_once(__kernel, __grid, {names}, __options | {{'stream': __stream}})",
        f"    __prepared = __prepared_by_key[__key] = __kernel._miss({names}, __options)",
        "if __prepared.volatile and __prepared.is_stale():",
        f"    __prepared = __prepared_by_key[__key] = __kernel._miss({names}, __options)",
        *_AXES,
        f"__values = {_tuple(part.value for part in parts)}",
        "try:",
        "    if __hooks:",
        f"        __hooked(__prepared, (__gx, __gy, __gz), __stream, __values, {names})",
        "    else:",
        f"        __prepared.fire(__gx, __gy, __gz, __stream, __values, {names})",
        "except __Failure as __error:",
        "    raise __kernel._refused(__error, __prepared, __values, __grid) from None",
        *(_noting(names) if repetition else []),
        "return __prepared.variant",
    ]


_AXES = (
    "__n = __len(__grid)",
    "if __n == 1:",
    "    (__gx,) = __grid",
    "    __gy = __gz = 1",
    "elif __n == 2:",
    "    __gx, __gy = __grid",
    "    __gz = 1",
    "else:",
    "    __gx, __gy, __gz = __grid if __n == 3 else __plain(__grid)",
    "if not (__gx and __gy and __gz):",
    "    __plain(__grid)",
    "    return None",
)
"""The lines that take a grid apart."""


_AGAIN = (
    "    __code = __ready.launch(*__ready.arguments)",
    "    if __code:",
    "        __ready.fail(__code)",
    "    return __ready.variant",
)
"""The lines that launch ``__ready``."""
_SAME_GRID = (
    "__ready = __repeats.before",
    f"if __ready.exact is __grid and not (__options or __hooks or __globals) and {FOLLOWS}:",
    *_AGAIN,
)
"""The lines that launch a kernel without parameters again, on the same grid."""


def _repetition(parts: list[_Part], kernel: Any, scope: dict[str, Any], one_gpu: bool) -> list[str]:
    """The lines that make a launch again which was made before; none where an argument cannot be told, and
    none where torch knows of no GPU.

    With ``one_gpu`` nobody asks torch where its arrays are, which takes a tenth of a launch: they have the
    addresses of arrays that were launched on this GPU, and addresses are unique among all memory that a
    process has, its GPU's and its own (CUDA C++ Programming Guide, "Unified Virtual Address Space").
    """
    if any(part.exact is None for part in parts):
        return []
    exact = [item for part in parts for item in part.exact or ()]
    ordinal = next((part.place for part in parts if part.is_torch), None)
    if ordinal is not None:
        scope["__current"] = getattr(arrays.torch_bindings(), arrays.TORCH_STREAM, None)
        if scope["__current"] is None:
            return []
        exact += ["__current(0)"] if one_gpu else [f"__current({ordinal})"]
    if not one_gpu:
        exact += [part.place for part in parts if part.place]
    addresses = [index for index, part in enumerate(parts) if part.place]
    follows = "" if any(part.lies_somewhere for part in parts) else f" and {FOLLOWS}"
    repeats = Repeats(addresses)
    kernel._prepared.append(repeats)
    scope |= FOLLOWS_SCOPE | {
        "__repeats": repeats, "__repeated": repeats.get, "__copysign": math.copysign,
        "__by_address": repeats.by_address, "__last": repeats.by_address.get,
    }  # fmt: skip
    return [
        "__exact = None",
        "if __repeats.is_on and not __hooks:",
        f"    __exact = {_tuple([*exact, '__grid']) if exact else '__grid'}",
        "    try:",
        "        if __options:",
        "            __exact += __tuple(__options.items())",
        *(f"        {line}" for line in _search(parts[addresses[-1]].value if addresses else "", exact)),
        "    except (TypeError, ValueError):",
        "        __ready = __exact = None",
        f"    if __ready is not None{follows}:",
        *(f"    {line}" for line in _AGAIN),
    ]


def _search(address: str, exact: list[str]) -> list[str]:
    """The lines that find the launch ``__exact`` among the repetitions: the one before, else by an address,
    else by all of it. (A value that cannot be a key raises TypeError, one that cannot be compared,
    ValueError.) Nothing but a grid is mostly the very same, see :class:`Entries`."""
    is_another = "__ready.exact != __exact"
    found = ["__ready = __repeated(__exact)"]
    if address:
        found = [
            f"__ready = __last({address})",
            "if __ready is None or __ready.exact != __exact:",
            "    __ready = __repeated(__exact)",
            "    if __ready is not None:",
            f"        __by_address[{address}] = __ready",
        ]
    return [
        "__ready = __repeats.before",
        f"if {is_another if exact else f'__ready.exact is not __exact and {is_another}'}:",
        *(f"    {line}" for line in found),
        "    if __ready is not None:",
        "        __repeats.before = __ready",
    ]


def _noting(names: str) -> list[str]:
    """The lines that take notice of a launch, for the next of its kind."""
    return [
        "if __exact is not None:",
        f"    __repeats.note(__exact, __prepared, (__gx, __gy, __gz), __stream, __values, {names})",
        "else:",
        "    __repeats.pass_over(__prepared)",
    ]


def _compiled_in(given: dict[str, Any]) -> dict[str, Any]:
    """The options that a grid function is told of: not the stream, nor what decides nothing."""
    return {name: value for name, value in given.items() if name not in ("stream", "extern_libs")}


def _with_options(key: tuple, given: dict[str, Any]) -> tuple[tuple, int | None]:
    """The key with the options in it, and the stream, which is taken out of them; so are libraries, which
    decide nothing."""
    stream = options.stream_handle(given.pop("stream", None))
    if "extern_libs" in given:
        options.check_libraries(given.pop("extern_libs"))
    return (key, *given.items()), stream


def _take_numbers(given: dict[str, Any]) -> bool:
    """Replace options that are arrays without dimensions by what they hold; whether there are some. They may
    hold something else in the next launch, so that none is kept for it."""
    held = {name: value.item() for name, value in given.items() if is_array_of_one(value)}
    given |= held
    return bool(held)


class WithOptions:
    """A kernel, for :func:`make_plan`, whose launches have these options unless they give others."""

    def __init__(self, kernel: Any, fixed: dict[str, Any]):
        self._kernel, self._fixed = kernel, fixed
        self._globals, self._prepared = kernel._globals, kernel._prepared
        self._check_globals, self._refused = kernel._check_globals, kernel._refused
        self.params, self.arg_names = kernel.params, kernel.arg_names

    def _miss(self, bound: tuple, given: dict[str, Any]) -> PreparedLaunch:
        return self._kernel._miss(bound, self._fixed | given)


@attrs.frozen
class _Part:
    """What a plan does with one argument of a known type: ``lines`` to run, expressions of the ``key``, the
    expression to pack (``value``), and those that tell the argument exactly (``None``: there are none).
    ``late_lines`` are for a launch that is not made again. Of an array also ``place``, the expression of its
    device (a number, where it ``is_torch``), and the ``place_lines`` that make it."""

    value: str
    key: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    exact: tuple[str, ...] | None = ()
    place: str = ""
    place_lines: tuple[str, ...] = ()
    is_torch: bool = False
    late_lines: tuple[str, ...] = ()

    @property
    def lies_somewhere(self) -> bool:
        """Whether the argument is on a device, which is then that of the launch."""
        return bool(self.place or self.late_lines)


def _part(parameter: Parameter, kind: type, scope: dict[str, Any]) -> _Part:
    name, index = parameter.name, parameter.index
    if parameter.constexpr and kind in (int, bool, str, type(None)):
        return _Part("None", (name,), exact=(name,))
    if not parameter.constexpr and parameter.dtype is None:
        if kind is type(None):
            return _Part("None")
        if kind is bool:
            return _Part(name, exact=(name,))
        if kind is float:  # equal zeros have two signs
            return _Part(name, exact=(name, f"__copysign(1.0, {name})"))
        if kind is int:
            return _Part(name, (_integer_class(parameter),), exact=(name,))
        if is_torch(kind) or kind is DeviceArray:
            return _array_part(parameter, is_torch(kind))
    scope[f"__key{index}"] = Keys(parameter)[kind]
    line = f"__k{index}, __v{index} = __key{index}({name})"
    if issubclass(kind, TensorDescriptor) and not parameter.constexpr:
        scope[f"__exactly{index}"] = exactly(parameter)
        exact = f"__exactly{index}({name})"
        return _Part(f"__v{index}", (f"__k{index}",), exact=(exact,), late_lines=(line,))
    return _Part(f"__v{index}", (f"__k{index}",), (line,), exact=None)


def _array_part(parameter: Parameter, is_torch: bool) -> _Part:
    name, index = parameter.name, parameter.index
    address, dtype, place = f"__v{index}", f"__d{index}", f"__p{index}"
    lines = (
        f"{address} = {name}.data_ptr()" if is_torch else f"{address} = {name}._address",
        f"{dtype} = {name}.dtype" if is_torch else f"{dtype} = {name}.dtype.short",  # whose hash is quick
    )
    where = (f"{place} = {name}.get_device()" if is_torch else f"{place} = {name}.owner",)
    alignment = (f"not {address} & 15",) if parameter.alignment else ()
    key = (dtype, place, *alignment)
    return _Part(address, key, lines, (address, dtype), place, where, is_torch)


def _integer_class(parameter: Parameter) -> str:
    """The expression that tells the specialisations of an int apart."""
    name = parameter.name
    narrow = f"'1' if {name} == 1 else 'i32'" if parameter.ones else "'i32'"
    if parameter.alignment:
        narrow = f"'i32:16' if not {name} & 15 else {narrow}"
    wide = f"__wide({name}, {parameter.alignment}, '{name}')"
    return f"({narrow}) if -2147483648 <= {name} <= 2147483647 else {wide}"


def _tuple(items: Any) -> str:
    return "(" + "".join(f"{item}, " for item in items) + ")"
