"""The programming model: programs, creation of blocks, casts, promises to the compiler, loops; printing and
assertions, while compiling and while running.

A launch runs one program for each point of its grid. Values in a program are scalars and blocks; every
dimension of a block is a power of two, and a block has at most 2**20 elements. Arguments that are wrong are
compile-time errors (``TypeMismatchError``) with the kernel's line.
A kernel's own classes are several values under one name, with methods and operators.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ptxforge.language.constexpr import constexpr
from ptxforge.language.registry import builtin
from ptxforge.language.types import dtype, tensor
from ptxforge.support.errors import PtxforgeError

CONSTEXPR_0 = constexpr(0)
"""Zero, as some kernels written for Triton import it."""


@builtin
def program_id(axis: int) -> tensor:
    """This program's index along grid ``axis`` (a compile-time 0, 1 or 2), an int32 scalar from 0 to the
    grid's size - 1.

    row = tl.program_id(0)
    """


@builtin
def num_programs(axis: int) -> tensor:
    """The grid's size along ``axis`` (a compile-time 0, 1 or 2), an int32 scalar.

    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)): ...
    """


@builtin
def arange(start: int, end: int) -> tensor:
    """The int32 block ``start, start + 1, …, end - 1``.

    ``start`` and ``end`` are compile-time integers; ``end - start`` is a power of two up to 2**20. Anything
    else is a compile-time error.

        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    """


@builtin
def full(shape: Any, value: Any, dtype: dtype) -> tensor:
    """A block of ``shape`` with ``value`` everywhere.

    ``value`` is a number or scalar and is cast to ``dtype``. A dimension that is no power of two, a runtime
    ``shape`` and a number that does not fit in an integer ``dtype`` are compile-time errors.

        best = tl.full([BLOCK_M], -float("inf"), tl.float32)
    """


@builtin
def zeros(shape: Any, dtype: dtype) -> tensor:
    """A block of ``shape`` with zeros of ``dtype``.

    A dimension that is no power of two and a runtime ``shape`` are compile-time errors.

        acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    """


@builtin
def zeros_like(input: tensor) -> tensor:
    """Zeros of ``input``'s shape and element type."""


@builtin
def to_tensor(x: Any) -> tensor:
    """The number ``x`` as a runtime scalar; a scalar or block stays itself.

    A bool becomes int1; an integer int32, or the first of uint32, int64, uint64 that holds it; a float
    float32, or float64 when it is too large or small for that. A larger integer is a compile-time error.
    """


@builtin(member=True)
def cast(input: Any, dtype: dtype, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
    """``input`` converted to ``dtype``; with ``bitcast`` the same bits under a type of the same width.

    ``input`` is a block, scalar or number. Conversions:

    * float to a narrower float: to nearest even; with ``fp_downcast_rounding="rtz"`` towards zero (``"rtne"``
      is the default). What is too large becomes infinite, in an 8-bit float its largest number.
    * float to integer: towards zero; what does not fit becomes the nearest limit, a NaN 0.
    * integer to float: to nearest even.
    * integer to a narrower integer: the low bits; to a wider one: by its sign.
    * anything to int1: whether it is not 0. Pointers: to other pointers, and to and from int64.

    ``fp_downcast_rounding`` elsewhere, a ``bitcast`` between widths and floats to pointers are compile-time
    errors.

        half = tl.cast(x, tl.float16, fp_downcast_rounding="rtz")
    """


@builtin(member=True)
def to(input: Any, dtype: dtype, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
    """``input.to(dtype)``: see :func:`cast`, also for ``fp_downcast_rounding`` and ``bitcast``.

    half = x.to(tl.float16)
    """


@builtin(member=True)
def item(input: tensor) -> tensor:
    """The only element of ``input`` as a scalar. A block of more elements is a compile-time error."""


@builtin
def multiple_of(input: tensor, values: Any) -> tensor:
    """A promise about ``input``: the first of each run of consecutive values is a multiple of ``values``.

    ``input`` is an integer or pointer (then bytes are meant), scalar or block; ``values`` is one compile-time
    integer per dimension. It lets accesses be wider; a wrong promise is undefined behaviour. Returns
    ``input``.

        offsets = tl.multiple_of(offsets, 8)
    """


@builtin
def max_contiguous(input: tensor, values: Any) -> tensor:
    """A promise about ``input``: every ``values`` elements (aligned to their number) are consecutive
    integers.

    ``values`` is one compile-time integer per dimension of ``input``. It lets accesses be wider; a wrong
    promise is undefined behaviour. Returns ``input``.

        offsets = tl.max_contiguous(tl.multiple_of(offsets % N, BLOCK), BLOCK)
    """


@builtin
def max_constancy(input: tensor, values: Any) -> tensor:
    """A promise about ``input``: every ``values`` elements (aligned to their number) are equal.

    ``values`` is one compile-time integer per dimension of ``input``. It lets masks cover wide accesses; a
    wrong promise is undefined behaviour. Returns ``input``.

        mask = tl.max_constancy(mask, 8)
    """


@builtin
def assume(cond: Any) -> None:
    """A promise that the boolean ``cond`` holds, which analyses may use. One that is false at compile time is
    an error.

    tl.assume(stride > 0)
    """


@builtin
def debug_barrier() -> None:
    """All threads of the program meet here, and writes to memory before it are seen after it.

    It must be reached by every thread: not under an ``if`` on what differs within a program.
    """


@builtin
def expect_zero(x: tensor, mask: tensor) -> tensor:
    """``x`` where ``mask`` holds and zero elsewhere; the author promises that ``x`` is zero there anyhow.

    ``mask`` (boolean) broadcasts with ``x``.
    """


class range:
    """A counted loop in the ``for`` statement of a kernel, as Python's ``range``, with advice for the
    compiler.

    ``arg1``, ``arg2`` and ``step`` are start, end and step as for ``range`` (one argument is the end):
    integers, where a negative step must be a compile-time value. Advice, all compile-time:

    * ``num_stages``: depth of the software pipeline of this loop's loads (unless given, the kernel's, and
      then only loads that feed a ``dot`` run ahead). It promises that what an iteration stores
      through one argument is not loaded through another, by it or by a later one.
    * ``loop_unroll_factor``: copies of the body.
    * ``flatten``, of a loop over tiles around a pipelined loop: the first loads of a tile start before the
      one before it is stored. It promises that no tile is stored where another one is loaded from. (Where
      TMA loads the tiles that happens unasked.)
    * ``warp_specialize``, of a loop whose tiles TMA loads (on ``sm_90a``), or of one over tiles around it: a
      warp of its own loads them. The block has one warp more than ``num_warps``, or four. Where that cannot
      be, a remark says why. (Large attention has it unasked.)
    * ``disallow_acc_multi_buffer``: a product by ``wgmma`` is waited for in its iteration and does not run on
      into the next one. (Where others make the products there is nothing to forbid.)
    * ``disable_licm``: what an iteration computes anew although it changes with none stays in the loop.

    Made outside a kernel it raises ``TypeError``.

        for k in tl.range(0, K, BLOCK_K, num_stages=4): ...
    """

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: int | None = None,
        loop_unroll_factor: int | None = None,
        disallow_acc_multi_buffer: bool = False,
        flatten: bool = False,
        warp_specialize: bool = False,
        disable_licm: bool = False,
    ):
        raise TypeError("tl.range stands only in the 'for' statement of a kernel")

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Any]: ...


class static_range:
    """A loop that the compiler unrolls completely: bounds and the index are compile-time values.

    ``arg1``, ``arg2`` and ``step`` are start, end and step as for ``range``; runtime values are a
    compile-time error. Made outside a kernel it raises ``TypeError``.

        for i in tl.static_range(4): ...
    """

    def __init__(self, arg1: int, arg2: int | None = None, step: int | None = None):
        raise TypeError("tl.static_range stands only in the 'for' statement of a kernel")

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Any]: ...


class condition:
    """The condition ``arg1`` of a ``while`` with advice for the compiler; ``disable_licm`` as in Triton.

    Made outside a kernel it raises ``TypeError``.

        while tl.condition(x > 0, disable_licm=True): ...
    """

    def __init__(self, arg1: Any, disable_licm: bool = False):
        raise TypeError("tl.condition stands only in the 'while' statement of a kernel")


class Aggregate(tuple):
    """Base of what :func:`aggregate` makes: a tuple of the fields' values, in order.

    ``__fields__`` maps each field's name to its annotation, ``__field_defaults__`` to its default if it has
    one, ``__methods__`` those that the class defines itself. Operators are not members of the class: to
    Python, and to the compiler, an object is a tuple.
    """

    __fields__: dict[str, Any] = {}
    __field_defaults__: dict[str, Any] = {}
    __methods__: dict[str, Any] = {}

    def __new__(cls, *args: Any, **kwargs: Any) -> Aggregate:
        """Only kernels make them: raises ``PtxforgeError``."""
        raise PtxforgeError(f"a '{cls.__name__}' is made inside a kernel only")

    @classmethod
    def _of(cls, values: Any) -> Aggregate:
        return tuple.__new__(cls, values)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self.__fields__, self))
        return f"{type(self).__name__}({fields})"


def aggregate(cls: type) -> type:
    """Make a class one whose objects kernels make, pass, return, and carry through loops and branches.

        @tl.aggregate
        class Range:
            low: tl.tensor
            high: tl.tensor
            WIDTH: tl.constexpr

            @ptxforge.jit
            def __init__(self, low, high, WIDTH: tl.constexpr):
                self.low, self.high, self.WIDTH = low, high, WIDTH

            @ptxforge.jit
            def __add__(self, offset):
                return Range(self.low + offset, self.high + offset, self.WIDTH)

    Fields are the annotated names: ``tl.constexpr`` of what is known while compiling, ``tl.tensor``, an
    element type, ``tl.tuple`` or another aggregate; the value given must be of that kind. Methods are jitted
    functions (or ``constexpr_function``, called while compiling); ``@staticmethod`` above one is allowed, and
    so are Python's operator methods. Without ``__init__`` the fields are the parameters. Objects are values:
    ``self.x = …`` stands in ``__init__`` only; :func:`aggregate_replace` gives a changed copy. A class may
    inherit from another aggregate.
    """
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        fields |= getattr(base, "__annotations__", {}) if base not in (object, tuple, Aggregate) else {}
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    inherited = getattr(cls, "__field_defaults__", {})
    body["__fields__"] = {name: _resolved(kind, cls) for name, kind in fields.items() if name[:2] != "__"}
    body["__field_defaults__"] = inherited | {n: body.pop(n) for n in fields if n in body and n[:2] != "__"}
    body["__methods__"] = {name: value for name, value in body.items() if _is_method(value)}
    for name in [name for name in body if name in body["__methods__"] and name[:2] == "__"]:
        del body[name]
    body.pop("__hash__", None)
    for index, name in enumerate(body["__fields__"]):
        body[name] = property(lambda self, index=index: self[index], doc="A field.")
    bases = tuple(base for base in cls.__bases__ if base is not object)
    if not any(issubclass(base, Aggregate) for base in bases):
        bases = (*bases, Aggregate)
    return type(cls.__name__, bases, body)


def _is_method(value: Any) -> bool:
    return isinstance(value, staticmethod) or callable(value)


def _resolved(annotation: Any, cls: type) -> Any:
    """An annotation as an object; ``from __future__ import annotations`` leaves its text."""
    if not isinstance(annotation, str):
        return annotation
    scope = vars(inspect.getmodule(cls) or object)
    try:
        return eval(annotation, dict(scope))
    except Exception:  # a local name, or one for type checkers: then anything is allowed
        return constexpr if annotation.rpartition(".")[2] == "constexpr" else Any


def is_aggregate(value: Any) -> bool:
    """Whether ``value`` is a class that :func:`aggregate` made."""
    return isinstance(value, type) and issubclass(value, Aggregate)


@builtin
def aggregate_replace(instance: Any, **changes: Any) -> Any:
    """A copy of the object ``instance`` of an aggregate class with ``changes``: other values of some fields.

    A field that the class does not have, or a value of another kind than the field's, is a compile-time
    error.

        wider = tl.aggregate_replace(box, high=box.high + 1)
    """


@builtin
def static_print(
    *values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False
) -> None:
    """Print ``values`` when the kernel is compiled: compile-time values, and of runtime ones their types.

    ``sep``, ``end``, ``file`` and ``flush`` are those of ``print``.

        tl.static_print("x:", x)            # x: fp32[constexpr[128]]
    """


@builtin
def static_assert(cond: bool, msg: str = "") -> None:
    """Refuse to compile unless the compile-time ``cond`` holds.

    The error is a ``CompileTimeAssertionError`` with ``msg`` and the kernel's line; a runtime ``cond`` is an
    error, too.

        tl.static_assert(BLOCK % 16 == 0, "BLOCK must be a multiple of 16")
    """


@builtin
def device_print(prefix: str, *args: Any, hex: bool = False) -> None:
    """Print each element of ``args`` while running, with ``prefix``, its program and its index.

    ``prefix`` is a compile-time string, and ends in a colon before values (one is added); ``args`` are
    blocks, scalars and numbers; ``hex`` prints their bits. Of several ``args`` each line says which one
    (``(operand 1)``). Every thread prints a scalar, and a ``prefix`` without ``args``.
    Lines of different threads come in any order. ``print`` in a kernel is this.

        tl.device_print("offset", offsets)  # pid (0, 0, 0) idx ( 17) offset: 17
    """


@builtin
def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """Stop the kernel unless ``cond`` holds (for a block: everywhere) where ``mask`` does.

    ``msg`` is a compile-time string; it is reported with the kernel's line, and the launch fails with an
    error of the device. Compiled in only with ``debug=True``. ``assert`` in a kernel is this.

        tl.device_assert(index < n, "index out of range", mask=inside)
    """
