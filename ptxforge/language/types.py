"""What kernel authors name when they speak of types: ``tl.float32``, ``tl.pointer_type``, ``tl.tensor``.

A :class:`dtype` is the language's view of a :class:`ptxforge.support.dtypes.DType`: the same element types,
with the questions as methods (``x.dtype.is_floating()``), as kernels written for Triton ask them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType

if TYPE_CHECKING:  # members of tensors are found by name, in the registry
    _Anything = Any
else:
    _Anything = object

_INTERNED: dict[str, dtype] = {}
_NAMES_ONLY = {text: base for base in dtypes.NAMES_ONLY for text in (base.name, base.short)}


def _names(bases: Iterable[DType]) -> list[str]:
    return [base.short if base.is_float else base.name for base in bases]


class Kind(enum.IntEnum):
    """The order of promotion: a scalar of a lower or equal kind takes its partner's type."""

    BOOLEAN = 0
    INTEGRAL = 1
    FLOATING = 2


class Signedness(enum.Enum):
    """Whether an integer has a sign."""

    SIGNED = 0
    UNSIGNED = 1


def _is(name: str) -> Callable[[dtype], bool]:
    """The method of an element type that asks whether it is the one of this name."""

    def is_it(self: dtype) -> bool:
        return self.name == name

    is_it.__doc__ = f"Whether it is {name}."
    return is_it


class dtype:
    """An element type, such as ``tl.float32``. There is one object for each, so ``is`` and ``==`` agree.

    ``dtype("fp32")`` finds one by its short name. ``base`` is the :class:`DType` that numpy and the IR know,
    ``namespace`` what stands before the name in ``repr``.

    >>> dtype("fp32"), float32.primitive_bitwidth, float32.is_floating(), uint8.is_int_signed()
    (tl.float32, 32, True, False)
    """

    __slots__ = ("base",)

    base: DType
    namespace, KIND, SIGNEDNESS = "tl", Kind, Signedness
    SINT_TYPES = _names(base for base in dtypes.ALL if base.is_signed)
    UINT_TYPES = _names(base for base in dtypes.ALL if base.is_unsigned)
    FP_TYPES = _names(b for b in (*dtypes.NAMES_ONLY, dtypes.float8e4b15, *dtypes.ALL) if b.is_float)
    STANDARD_FP_TYPES = _names(base for base in dtypes.ALL if base.is_float and base.bits >= 16)
    OTHER_TYPES = ["void"]

    def __new__(cls, name: str) -> dtype:
        try:
            base = _NAMES_ONLY.get(name) or dtypes.parse(name)
        except KeyError:
            raise TypeError(f"'{name}' is not the name of an element type") from None
        found = _INTERNED.get(base.name)
        if found is None:
            found = _INTERNED[base.name] = super().__new__(cls)
            found.base = base
        return found

    def __repr__(self) -> str:
        return f"{self.namespace}.{self.base.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple:
        return dtype, (self.base.short,)

    @property
    def name(self) -> str:
        """The name under which Triton knows it: ``fp32`` of a float, ``uint32`` of an integer (numpy's
        name)."""
        return self.base.short if self.base.is_float else self.base.name

    @property
    def scalar(self) -> dtype:
        """The element type of a scalar or block of this type: itself."""
        return self

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of an element."""
        return self.base.bits

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return self.base.bytes

    @property
    def int_bitwidth(self) -> int:
        """Bits of an integer."""
        return self.base.bits

    @property
    def fp_mantissa_width(self) -> int:
        """Explicit mantissa bits of a float."""
        return self.base.mantissa

    @staticmethod
    def is_dtype(type_str: str) -> bool:
        """Whether ``type_str`` is the :attr:`name` of an element type."""
        return type_str in (*dtype.SINT_TYPES, *dtype.UINT_TYPES, *dtype.FP_TYPES, *dtype.OTHER_TYPES)

    def kind(self) -> Kind:
        """``int1`` before integers before floats: a scalar of a lower or equal kind takes its partner's
        type."""
        if self.base.is_float:
            return Kind.FLOATING
        return Kind.BOOLEAN if self.base.is_bool else Kind.INTEGRAL

    @property
    def int_signedness(self) -> Signedness:
        """Whether an integer has a sign."""
        return Signedness.SIGNED if self.base.is_signed else Signedness.UNSIGNED

    @property
    def exponent_bias(self) -> int:
        """What is added to the exponent of a float as it is stored."""
        return _BIASES.get(self.base.name) or (1 << (self.base.bits - self.base.mantissa - 2)) - 1

    def codegen_name(self) -> str:
        """The name in the module: ``float16``."""
        return self.base.name

    def mangle(self) -> str:
        """The name in signatures: ``i32``."""
        return self.base.short

    @property
    def cache_key_part(self) -> str:
        """The :attr:`name`, as part of a key."""
        return self.name

    def is_void(self) -> bool:
        """Whether it is ``void``: the type of nothing."""
        return self.base.kind == "void"

    @property
    def shape(self) -> tuple[int, ...]:
        """``()``: a scalar's."""
        return ()

    def is_floating(self) -> bool:
        """Whether it is a float of any width."""
        return self.base.is_float

    def is_standard_floating(self) -> bool:
        """Whether it is float16, bfloat16, float32 or float64."""
        return self.base.is_float and self.base.bits >= 16

    def is_int(self) -> bool:
        """Whether it is an integer, ``int1`` included."""
        return self.base.is_int

    def is_int_signed(self) -> bool:
        """Whether it is a signed integer."""
        return self.base.is_signed

    def is_int_unsigned(self) -> bool:
        """Whether it is an unsigned integer; ``int1`` is one."""
        return self.base.is_unsigned

    def is_bool(self) -> bool:
        """Whether it is ``int1``."""
        return self.base.is_bool

    def is_fp8(self) -> bool:
        """Whether it is one of the 8-bit floats."""
        return self.base.is_fp8

    is_fp8e4nv = _is("fp8e4nv")
    is_fp8e5 = _is("fp8e5")
    is_fp8e4b8 = _is("fp8e4b8")
    is_fp8e4b15 = _is("fp8e4b15")
    is_fp8e5b16 = _is("fp8e5b16")
    is_fp16 = _is("fp16")
    is_bf16 = _is("bf16")
    is_fp32 = _is("fp32")
    is_fp64 = _is("fp64")
    is_int1 = _is("int1")
    is_int8 = _is("int8")
    is_int16 = _is("int16")
    is_int32 = _is("int32")
    is_int64 = _is("int64")
    is_uint8 = _is("uint8")
    is_uint16 = _is("uint16")
    is_uint32 = _is("uint32")
    is_uint64 = _is("uint64")

    def is_ptr(self) -> bool:
        """Whether it is a pointer."""
        return False

    def is_block(self) -> bool:
        """Whether it is the type of a block."""
        return False

    def is_const(self) -> bool:
        """Whether it is a pointer that must not be written through."""
        return False

    def get_int_max_value(self) -> int:
        """The largest integer of this type."""
        return (1 << (self.base.bits - self.base.is_signed)) - 1

    def get_int_min_value(self) -> int:
        """The smallest integer of this type."""
        return -(1 << (self.base.bits - 1)) if self.base.is_signed else 0

    def with_element_ty(self, element_ty: dtype) -> dtype:
        """``element_ty``: a scalar type with another element."""
        return element_ty

    to = with_element_ty


def _no(self: Any) -> bool:
    """False: it is no element type."""
    return False


class _Composite:
    """A type that is made of element types: to every question about these the answer is no. Its name is its
    text."""

    __slots__ = ()

    SINT_TYPES, UINT_TYPES, FP_TYPES = dtype.SINT_TYPES, dtype.UINT_TYPES, dtype.FP_TYPES
    STANDARD_FP_TYPES, OTHER_TYPES = dtype.STANDARD_FP_TYPES, dtype.OTHER_TYPES
    KIND, SIGNEDNESS, is_dtype = Kind, Signedness, dtype.is_dtype

    @property
    def name(self) -> str:
        """Text of the type."""
        return repr(self)

    cache_key_part = name

    def codegen_name(self) -> str:
        """The same text."""
        return repr(self)


for _question in (name for name in vars(dtype) if name.startswith("is_") and name != "is_dtype"):
    setattr(_Composite, _question, _no)
del _question


class pointer_type(_Composite):
    """A pointer to ``element_ty`` in global memory; ``const`` forbids stores. A pointer to a block type is
    the type of a block pointer (``tl.make_block_ptr``).

    ``x.to(tl.pointer_type(tl.float32))`` makes an integer address a pointer.
    """

    __slots__ = ("element_ty", "address_space", "const")
    base = None

    def __init__(
        self,
        element_ty: dtype | pointer_type | block_type,
        address_space: str | int = "global",
        const: bool = False,
    ):
        if not isinstance(element_ty, (dtype, pointer_type, block_type)):
            raise TypeError(f"a pointer points at an element type, not at '{type(element_ty).__name__}'")
        if address_space not in ("global", 1):
            raise TypeError(f"pointers are to global memory, not to '{address_space}'")
        self.element_ty, self.address_space, self.const = element_ty, "global", bool(const)

    def __repr__(self) -> str:
        return f"{'const_' if self.const else ''}pointer<{self.element_ty}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, pointer_type)
            and self.element_ty == other.element_ty
            and self.const == other.const
        )

    def __hash__(self) -> int:
        return hash((pointer_type, self.element_ty, self.const))

    @property
    def scalar(self) -> pointer_type:
        """The element type of a scalar or block of this type: itself."""
        return self

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of an address."""
        return 64

    @property
    def itemsize(self) -> int:
        """Bytes of an address."""
        return 8

    @property
    def shape(self) -> tuple[int, ...]:
        """``()``: a scalar's."""
        return ()

    def is_ptr(self) -> bool:
        """Whether it is a pointer."""
        return True

    def is_const(self) -> bool:
        """Whether it must not be written through."""
        return self.const

    def mangle(self) -> str:
        """The name in names of functions: ``Pfp16``."""
        return f"P{self.element_ty.mangle()}"

    def with_element_ty(self, element_ty: dtype) -> dtype:
        """``element_ty``: a scalar type with another element."""
        return element_ty


class block_type(_Composite):
    """The type of a block: ``element_ty`` and ``shape``. ``x.type`` of a block is one."""

    __slots__ = ("element_ty", "shape")

    def __init__(self, element_ty: dtype | pointer_type, shape: Any):
        self.element_ty, self.shape = element_ty, tuple(shape)

    def __repr__(self) -> str:
        return f"<{list(self.shape)}, {self.element_ty}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, block_type) and (self.element_ty, self.shape) == (
            other.element_ty,
            other.shape,
        )

    def __hash__(self) -> int:
        return hash((block_type, self.element_ty, self.shape))

    @property
    def scalar(self) -> dtype | pointer_type:
        """The element type."""
        return self.element_ty

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def get_block_shapes(self) -> tuple[int, ...]:
        """The shape."""
        return self.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the block in memory."""
        return self.numel * (self.element_ty.primitive_bitwidth // 8)

    def is_block(self) -> bool:
        """True. Questions about the element are :attr:`scalar`'s."""
        return True

    def with_element_ty(self, scalar_ty: dtype | pointer_type) -> block_type:
        """The type of a block of the same shape."""
        return block_type(scalar_ty, self.shape)

    def mangle(self) -> str:
        """The name in names of functions: ``fp16S16_2S``."""
        return f"{self.element_ty.mangle()}S{'_'.join(map(str, self.shape))}S"


int1 = dtype("int1")
int8 = dtype("int8")
int16 = dtype("int16")
int32 = dtype("int32")
int64 = dtype("int64")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
float8e5 = dtype("float8e5")
float8e4nv = dtype("float8e4nv")
float8e4b15 = dtype("float8e4b15")
float8e4b8 = dtype("float8e4b8")
float8e5b16 = dtype("float8e5b16")
float16 = dtype("float16")
bfloat16 = dtype("bfloat16")
float32 = dtype("float32")
float64 = dtype("float64")
void = dtype("void")
pi32_t = pointer_type(int32)
_BIASES = {"float8e4b15": 15, "float8e4b8": 8, "float8e5b16": 16}


def of(base: DType) -> dtype:
    """The language's object for a :class:`DType`."""
    return _INTERNED[base.name]


def get_int_dtype(bitwidth: int, signed: bool) -> dtype:
    """The integer type of that width and sign. Raises ``TypeError`` when there is none."""
    return dtype("int1") if bitwidth == 1 else dtype(f"{'int' if signed else 'uint'}{bitwidth}")


class const:
    """Annotation of a pointer parameter through which the kernel must not store: ``x: tl.const``."""


class tensor(_Anything):
    """A block or a scalar inside a kernel; used by authors as an annotation and in ``isinstance``.

    Its members are the functions of the language with the tensor as first argument (``x.sum(0)`` is
    ``tl.sum(x, 0)``), and the properties ``dtype`` (the element type), ``type``, ``shape``, ``numel`` and
    ``T``.
    """

    if TYPE_CHECKING:  # inside a kernel the frontend gives these their meaning; nobody calls them
        dtype: Any
        type: Any
        shape: Any
        numel: Any
        T: tensor

        def __add__(self, other: Any) -> tensor: ...
        def __radd__(self, other: Any) -> tensor: ...
        def __sub__(self, other: Any) -> tensor: ...
        def __rsub__(self, other: Any) -> tensor: ...
        def __mul__(self, other: Any) -> tensor: ...
        def __rmul__(self, other: Any) -> tensor: ...
        def __truediv__(self, other: Any) -> tensor: ...
        def __rtruediv__(self, other: Any) -> tensor: ...
        def __floordiv__(self, other: Any) -> tensor: ...
        def __rfloordiv__(self, other: Any) -> tensor: ...
        def __mod__(self, other: Any) -> tensor: ...
        def __rmod__(self, other: Any) -> tensor: ...
        def __and__(self, other: Any) -> tensor: ...
        def __rand__(self, other: Any) -> tensor: ...
        def __or__(self, other: Any) -> tensor: ...
        def __ror__(self, other: Any) -> tensor: ...
        def __xor__(self, other: Any) -> tensor: ...
        def __rxor__(self, other: Any) -> tensor: ...
        def __lshift__(self, other: Any) -> tensor: ...
        def __rshift__(self, other: Any) -> tensor: ...
        def __lt__(self, other: Any) -> tensor: ...
        def __le__(self, other: Any) -> tensor: ...
        def __gt__(self, other: Any) -> tensor: ...
        def __ge__(self, other: Any) -> tensor: ...
        def __eq__(self, other: Any) -> Any: ...
        def __ne__(self, other: Any) -> Any: ...
        def __neg__(self) -> tensor: ...
        def __invert__(self) -> tensor: ...
        def __getitem__(self, key: Any) -> tensor: ...
        def __index__(self) -> int: ...
        def __bool__(self) -> bool: ...


class PropagateNan:
    """What ``minimum``, ``maximum`` and ``clamp`` do with a NaN: ``NONE`` gives the other operand, ``ALL``
    the NaN."""

    NONE = "none"
    ALL = "all"
