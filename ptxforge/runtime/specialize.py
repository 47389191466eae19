"""What a kernel is compiled for, as far as an argument decides it.

==============================  ==========================  =================================
argument                        signature                   constant
==============================  ==========================  =================================
array                           ``*fp32``, ``*fp32:16``     (``:16`` when 16-byte aligned)
int                             ``i32``, ``i64``, ``u64``   ``:16`` when divisible by 16
the int 1                       ``constexpr``               1; ``i64:1`` of an annotated parameter, which
                                                            keeps its type
bool                            ``i1``
float                           ``fp32``
TensorDescriptor                ``tensordesc<fp16[64,32]>`` (``:16``: the last size is so many bytes)
``None``                        ``constexpr``               ``None``
function, element type          ``constexpr``               itself
``tl.constexpr(value)``         ``constexpr``               its value
``tl.constexpr`` parameter      ``constexpr``               its value
==============================  ==========================  =================================

The rules are Triton's: an int takes the narrowest of i32, i64 and u64 that holds it, ``do_not_specialize``
drops the alignment and the value 1, ``do_not_specialize_on_alignment`` only the alignment, and a parameter
annotated with an element type has that type.

Two functions per argument. :func:`specialize` tells all and is used once per variant. A :class:`Keys` table
gives for each Python type the short function that the warm launch calls: ``(key, value)``, where equal keys
mean equal specialisations and the value is what is packed for the GPU.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from ptxforge.driver import arrays
from ptxforge.driver.device_array import DeviceArray
from ptxforge.language.constexpr import constexpr, unwrap
from ptxforge.language.registry import ConstexprFunction
from ptxforge.language.types import dtype
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import ArgumentError, IntegerRangeError

CONSTEXPR = "constexpr"
_INTEGER_RANGES = (
    ("i32", -(1 << 31), (1 << 31) - 1),
    ("i64", -(1 << 63), (1 << 63) - 1),
    ("u64", 0, (1 << 64) - 1),
)
_HOST = "cpu"


@attrs.frozen(slots=True)
class Parameter:
    """A kernel's parameter and what its declaration says about specialising it.

    ``dtype`` is the element type that the annotation fixes, if any; ``const`` tells whether it is
    ``tl.const``: a pointer through which nothing is stored. ``alignment`` and ``ones`` tell whether
    divisibility by 16 and the value 1 are compiled in. ``default`` is ``inspect``'s ``Parameter.empty`` where
    there is none.
    """

    name: str
    index: int
    constexpr: bool = False
    dtype: DType | None = None
    const: bool = False
    alignment: bool = True
    ones: bool = True
    has_default: bool = False
    default: Any = inspect.Parameter.empty
    variadic: bool = False

    # The same under Triton's names

    @property
    def num(self) -> int:
        """The position."""
        return self.index

    @property
    def is_constexpr(self) -> bool:
        """Whether each value makes a kernel of its own."""
        return self.constexpr

    @property
    def is_const(self) -> bool:
        """Whether it is a pointer through which nothing is stored."""
        return self.const

    @property
    def do_not_specialize(self) -> bool:
        """Whether the value 1 is not compiled in."""
        return not self.ones

    @property
    def do_not_specialize_on_alignment(self) -> bool:
        """Whether divisibility by 16 is not compiled in."""
        return not self.alignment

    @property
    def annotation(self) -> str:
        """The annotation: ``constexpr``, an element type's short name, or nothing."""
        return "constexpr" if self.constexpr else self.dtype.short if self.dtype else ""

    @property
    def annotation_type(self) -> str:
        """The element type that the annotation fixes, if any."""
        return self.dtype.short if self.dtype else ""


@attrs.frozen(slots=True)
class Specialization:
    """An argument's part of a variant: its signature ``type``, its ``constant`` when that is ``constexpr``,
    and for an array where it lies (``device``: a name, or a DeviceArray's own device object)."""

    type: str
    constant: Any = None
    device: Any = None
    readonly: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether the value is compiled in."""
        return self.type == CONSTEXPR

    @property
    def on_host(self) -> bool:
        """Whether it is an array in host memory."""
        return self.device == _HOST


def specialize(parameter: Parameter, value: Any) -> Specialization:
    """What ``value`` means for ``parameter``. Raises :class:`ArgumentError`, with the parameter's name."""
    try:
        return _specialize(parameter, value)
    except ArgumentError as error:
        raise error if error.argument else type(error)(error.args[0], parameter.name) from None


def _specialize(parameter: Parameter, value: Any) -> Specialization:
    if parameter.constexpr or isinstance(value, constexpr):
        return Specialization(CONSTEXPR, plain_scalar(unwrap(value)))
    if value is None:
        return Specialization(CONSTEXPR, None)
    if isinstance(value, (bool, int, float, np.generic)):
        return _scalar(parameter, plain_scalar(value))
    if isinstance(value, DeviceArray):
        return Specialization(_pointer(parameter, value.dtype, value.data_ptr()), device=value.owner)
    if isinstance(value, TensorDescriptor):
        return _descriptor(parameter, value)
    if isinstance(value, dtype) or is_function(value) or isinstance(value, ConstexprFunction):
        return Specialization(CONSTEXPR, value)
    found = arrays.view(value)
    if found is None:
        raise ArgumentError(
            f"a kernel takes arrays, numbers, booleans and None, not a '{type(value).__name__}'; "
            "annotate the parameter with tl.constexpr to compile the value in"
        )
    kind = _pointer(parameter, found.dtype, found.address)
    return Specialization(kind, device=found.device, readonly=found.readonly)


def _descriptor(parameter: Parameter, value: TensorDescriptor) -> Specialization:
    base = _specialize(parameter, value.base)
    return attrs.evolve(base, type=str(value.type))


def is_function(value: Any) -> bool:
    """True of a function that a kernel can call and that the frontend inlines."""
    return getattr(value, "__ptxforge_jit__", False)


def plain_scalar(value: Any) -> bool | int | float:
    """A Python scalar of a Python, numpy or ml_dtypes one."""
    if not isinstance(value, np.generic):
        return value
    plain = value.item()
    return plain if isinstance(plain, (bool, int, float)) else float(value)


def _pointer(parameter: Parameter, element: DType, address: int) -> str:
    return pointer_to(parameter, element.short, is_aligned=address % 16 == 0)


def pointer_to(parameter: Parameter, short: str, is_aligned: bool) -> str:
    """The signature type of an array whose elements are of the type ``short``."""
    const = "k" if parameter.const else ""
    return f"*{const}{short}" + (":16" if parameter.alignment and is_aligned else "")


def _scalar(parameter: Parameter, value: bool | int | float) -> Specialization:
    if parameter.dtype is not None:
        return Specialization(_annotated(parameter, value))
    if isinstance(value, bool):
        return Specialization("i1")
    if isinstance(value, float):
        return Specialization("fp32")
    if parameter.ones and value == 1:
        return Specialization(CONSTEXPR, 1)
    return Specialization(integer_type(value) + (":16" if parameter.alignment and value % 16 == 0 else ""))


def _annotated(parameter: Parameter, value: bool | int | float) -> str:
    """The signature type of a scalar whose parameter is annotated with an element type."""
    kind = parameter.dtype
    if kind.is_float or kind.is_bool:
        return kind.short
    if isinstance(value, float):
        raise ArgumentError(f"{value!r} is not an integer, and the parameter is {kind}")
    low, high = _range_of(kind)
    if not low <= value <= high:
        raise ArgumentError(f"{value} does not fit in {kind}")
    if parameter.ones and value == 1:
        return f"{kind.short}:1"
    return kind.short + (":16" if parameter.alignment and value % 16 == 0 else "")


def _range_of(kind: DType) -> tuple[int, int]:
    if kind.is_signed:
        return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
    return 0, (1 << kind.bits) - 1


def integer_type(value: int) -> str:
    """The narrowest of i32, i64 and u64 that holds ``value``. Raises :class:`IntegerRangeError` beyond
    64 bits."""
    for name, low, high in _INTEGER_RANGES:
        if low <= value <= high:
            return name
    raise IntegerRangeError(f"{value} does not fit in 64 bits")


# The warm path. A key function is called with the argument and gives (key, packed value).

KeyFunction = Callable[[Any], tuple[Any, Any]]


class Keys(dict):
    """For one kind of parameter: Python type → key function, found when a type is first seen."""

    def __init__(self, parameter: Parameter):
        super().__init__()
        self._parameter = parameter

    def __missing__(self, kind: type) -> KeyFunction:
        function = self[kind] = self._choose(kind)
        return function

    def _choose(self, kind: type) -> KeyFunction:
        parameter = self._parameter
        if parameter.constexpr:
            return constexpr_key
        if issubclass(kind, (int, float, np.generic)) and parameter.dtype is not None:
            return _annotated_key(parameter)
        if kind is bool:
            return _bool_key
        if kind is int:
            return _int_key(parameter)
        if kind is float:
            return _float_key
        if is_torch(kind):
            return _torch_key(parameter)
        if kind is DeviceArray:
            return _device_array_key(parameter)
        if issubclass(kind, TensorDescriptor):
            return _descriptor_key(parameter)
        return _general_key(parameter)


@functools.cache
def is_torch(kind: type) -> bool:
    """Whether that is a class of torch's tensors."""
    return kind.__module__.partition(".")[0] == "torch" and hasattr(kind, "data_ptr")


def _bool_key(value: bool) -> tuple[Any, bool]:
    return "i1", value


def _float_key(value: float) -> tuple[Any, float]:
    return "fp32", value


def integer_key(value: int, alignment: bool, name: str) -> tuple[str, bool]:
    """What tells the specialisations of an int beyond 32 bits apart. Raises :class:`ArgumentError`, with the
    parameter's name, beyond 64."""
    try:
        return integer_type(value), alignment and value & 15 == 0
    except ArgumentError as error:
        raise type(error)(error.args[0], name) from None


def _int_key(parameter: Parameter) -> KeyFunction:
    alignment, ones = parameter.alignment, parameter.ones

    def key(value: int) -> tuple[Any, int]:
        if -0x80000000 <= value <= 0x7FFFFFFF:
            if alignment and not value & 15:
                return "i32:16", value
            return ("1" if ones and value == 1 else "i32"), value
        return integer_key(value, alignment, parameter.name), value

    return key


def _torch_key(parameter: Parameter) -> KeyFunction:
    mask = 15 if parameter.alignment else 0

    def key(tensor: Any) -> tuple[Any, int]:
        address = tensor.data_ptr()
        return (tensor.dtype, tensor.get_device(), not address & mask), address

    return key


def _device_array_key(parameter: Parameter) -> KeyFunction:
    mask = 15 if parameter.alignment else 0

    def key(array: DeviceArray) -> tuple[Any, int]:
        address = array.data_ptr()
        return (array.dtype.short, array.owner, not address & mask), address

    return key


def _descriptor_key(parameter: Parameter) -> KeyFunction:
    """A descriptor is packed as a tuple: its tensor's address, sizes and strides."""
    keys = Keys(parameter)

    def key(descriptor: TensorDescriptor) -> tuple[Any, tuple[int, ...]]:
        base = descriptor.base
        base_key, address = keys[type(base)](base)
        kind = (base_key, tuple(descriptor.block_shape), descriptor.padding, descriptor.shape[-1] & 15)
        return kind, descriptor.values(address)

    return key


def exactly(parameter: Parameter) -> Callable[[TensorDescriptor], tuple]:
    """What gives all of a descriptor that decides a launch: what :class:`Keys` tells of its tensor, the
    lists, and the stream that torch works on where it is torch's. Where streams are another library's, no two
    launches are the same."""
    keys = Keys(parameter)
    current: Callable[[int], int] | None = None  # torch may be imported later

    def exact(descriptor: TensorDescriptor) -> tuple:
        nonlocal current
        base = descriptor.base
        kind = type(base)
        found, address = keys[kind](base)
        stream = None
        if is_torch(kind):
            if found[1] >= 0:
                current = current or arrays.torch_stream_getter()
                stream = current(found[1])
        elif kind is not DeviceArray:
            stream = object()
        return (
            address, found, stream, *descriptor.shape, *descriptor.strides, *descriptor.block_shape,
            descriptor.padding,
        )  # fmt: skip

    return exact


def constexpr_key(value: Any) -> tuple[Any, None]:
    """1, 1.0 and True are equal in Python and different constants; so are 0.0 and -0.0. A numpy scalar is
    the same constant as Python's."""
    value = plain_scalar(value)
    if type(value) is float:
        return (float, value.hex()), None
    return (type(value), value), None


def _annotated_key(parameter: Parameter) -> KeyFunction:

    def key(value: Any) -> tuple[Any, Any]:
        plain = plain_scalar(value)
        return specialize(parameter, plain).type, packed(parameter.dtype, plain)

    return key


def _general_key(parameter: Parameter) -> KeyFunction:
    """Any other argument, by the long road."""

    def key(value: Any) -> tuple[Any, Any]:
        made = specialize(parameter, value)
        if made.is_constant:
            return (CONSTEXPR, *constexpr_key(made.constant)), None
        if made.device is None:
            return made.type, plain_scalar(unwrap(value))
        return (made.type, made.device, type(value), made.readonly), arrays.view(value).address

    return key


def packed(kind: DType, value: bool | int | float) -> Any:
    """What :mod:`struct` packs for a scalar of that type: bf16 and fp8 go as their bits."""
    if kind is dtypes.bfloat16 or kind.is_fp8:
        bits = np.array(value, kind.numpy)
        return int(bits.view(np.uint16 if kind is dtypes.bfloat16 else np.uint8))
    if kind.is_float:
        return float(value)
    return bool(value) if kind.is_bool else int(value)
