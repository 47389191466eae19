"""``triton._internal_testing``: what Triton's own tests, and tests written like them, lean on.

Arrays are made with numpy; ``to_triton`` needs torch, as everything there that takes a tensor.

``triton.tools.mxfp``: the numbers of microscaling formats as torch tensors of their codes.

Formats: Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, sections 5.3.3
(E2M1) and 5.4.1 (E8M0).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from ptxforge import language
from ptxforge.support.errors import PtxforgeError
from ptxforge.support.settings import DEVICE
from ptxforge.triton_compat.drivers import driver
from ptxforge.triton_compat.host import TensorWrapper, reinterpret

int_dtypes = ["int8", "int16", "int32", "int64"]
uint_dtypes = ["uint8", "uint16", "uint32", "uint64"]
integral_dtypes = int_dtypes + uint_dtypes
float_dtypes = ["float16", "float32", "float64"]
float_dtypes_with_bfloat16 = [*float_dtypes, "bfloat16"]
dtypes = integral_dtypes + float_dtypes
dtypes_with_bfloat16 = [*dtypes, "bfloat16"]
_OF_TORCH = {"bool": "int1", "float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}
torch_float8_dtypes = ["float8_e4m3fn", "float8_e5m2"]
torch_dtypes = ["bool", *int_dtypes, "uint8", *float_dtypes, "bfloat16"]
tma_dtypes = sorted({*dtypes_with_bfloat16} - {"int64", "uint64", "float64"})
tma_skip_msg = "needs a GPU of compute capability 9.0 or newer"


def is_interpreter() -> bool:
    """Whether the interpreter runs the kernels."""
    return DEVICE.get() == "interpreter"


def get_current_target() -> Any:
    """What kernels are compiled for."""
    return driver.active.get_current_target()


def is_cuda() -> bool:
    """Whether the target is NVIDIA's, which the emulator's is as well."""
    return get_current_target().backend in ("cuda", "cpu")


def _at_least(capability: int) -> bool:
    return get_current_target().arch >= capability


def is_ampere_or_newer() -> bool:
    return _at_least(80)


def is_hopper() -> bool:
    return get_current_target().arch // 10 == 9


def is_hopper_or_newer() -> bool:
    return _at_least(90)


def is_blackwell() -> bool:
    return get_current_target().arch // 10 in (10, 11)


def is_blackwell_ultra() -> bool:
    return get_current_target().arch == 103


def is_sm12x() -> bool:
    return get_current_target().arch // 10 == 12


def never() -> bool:
    """The answer to questions after GPUs of other vendors."""
    return False


OTHER_VENDORS = {
    f"is_{name}": never
    for name in (
        "hip", "hip_cdna", "hip_cdna2", "hip_cdna3", "hip_cdna4", "hip_gfx11", "hip_gfx12", "hip_gfx1250",
        "hip_rdna3", "hip_rdna4", "xpu",
    )
}  # fmt: skip


def get_arch() -> str:
    """The architecture, such as ``90``."""
    return str(get_current_target().arch)


def numpy_random(
    shape: Any, dtype_str: str, rs: np.random.RandomState | None = None, low: Any = None, high: Any = None
) -> np.ndarray:
    """Random numbers of an element type; small floats for the types that numpy lacks, never a zero among
    integers, so that division is defined. Raises ``RuntimeError`` for an unknown type."""
    shape = (shape,) if isinstance(shape, int) else shape
    rs = rs or np.random.RandomState(seed=17)
    if dtype_str in integral_dtypes:
        info = np.iinfo(getattr(np, dtype_str))
        low = info.min if low is None else max(low, info.min)
        high = info.max if high is None else min(high, info.max)
        x = rs.randint(low, high, shape, dtype=getattr(np, dtype_str))
        x[x == 0] = 1
        return x
    if dtype_str and "float8" in dtype_str:
        return rs.randint(20, 40, shape, dtype=np.int8)
    if dtype_str in float_dtypes:
        return rs.normal(0, 1, shape).astype(dtype_str)
    if dtype_str == "bfloat16":
        bits = rs.normal(0, 1, shape).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return bits.view(np.float32)
    if dtype_str in ("bool", "int1", "bool_"):
        return rs.normal(0, 1, shape) > 0.0
    raise RuntimeError(f"Unknown dtype {dtype_str}")


def to_triton(x: np.ndarray, device: Any, dst_type: str | None = None) -> Any:
    """A tensor of an array, as elements of ``dst_type``."""
    name = x.dtype.name
    if name in uint_dtypes:
        signed = x.view(name.lstrip("u"))
        return reinterpret(torch().tensor(signed, device=device), getattr(language, name))
    if dst_type and "float8" in dst_type:
        return reinterpret(torch().tensor(x, device=device), getattr(language, dst_type))
    if name == "float32" and dst_type == "bfloat16":
        return torch().tensor(x, device=device).bfloat16()
    return torch().tensor(x, device=device)


def str_to_triton_dtype(x: str) -> Any:
    """The element type of that name, in the language, in signatures or in torch."""
    x = _OF_TORCH.get(x, x)
    return language.dtype(getattr(language, x).name) if hasattr(language, x) else language.str_to_ty(x, None)


def torch_dtype_name(dtype: Any) -> str:
    """The name of an element type of torch or of the language. Raises ``TypeError`` for anything else."""
    if isinstance(dtype, language.dtype):
        return dtype.name
    if type(dtype).__name__ == "dtype":
        return str(dtype).removeprefix("torch.")
    raise TypeError(f"not a triton or torch dtype: {type(dtype)}")


def to_numpy(x: Any) -> np.ndarray:
    """The numbers of a tensor. Raises ``ValueError`` for anything else."""
    if isinstance(x, TensorWrapper):
        return x.base.cpu().numpy().astype(getattr(np, torch_dtype_name(x.dtype)))
    if not isinstance(x, torch().Tensor):
        raise ValueError(f"Not a triton-compatible tensor: {x}")
    return x.cpu().float().numpy() if x.dtype is torch().bfloat16 else x.cpu().numpy()


def unwrap_tensor(t: Any) -> Any:
    """The tensor below :func:`reinterpret`."""
    return t.base if isinstance(t, TensorWrapper) else t


def supports_tma(byval_only: bool = False) -> bool:
    """Whether descriptors work: on every target, as pointers below Hopper."""
    return True


def supports_ws() -> bool:
    """Whether warps can be specialised."""
    return _at_least(90)


def requires_tma(function: Any) -> Any:
    """A decorator for tests of descriptors, which run everywhere here."""
    return function


def default_alloc_fn(size: int, align: int, _: Any) -> Any:
    """Memory for kernels that need scratch space."""
    where = "cpu" if DEVICE.get() == "emulator" else "cuda"
    return torch().empty(size, dtype=torch().int8, device=where)


def fresh_knobs_impl(skipped_attr: set[str] | None = None) -> Any:
    """``(fresh, undo)``: knobs as a new process has them, and the way back."""
    knobs = sys.modules["triton.knobs"]
    names = (
        "build", "redis", "cache", "compilation", "autotuning", "runtime", "language", "nvidia", "amd",
        "proton",
    )  # fmt: skip
    groups = [getattr(knobs, name) for name in names if name not in (skipped_attr or ())]
    scopes = [group.scope() for group in groups]
    propagates = knobs.propagate_env

    def fresh() -> Any:
        knobs.propagate_env = True
        for scope, group in zip(scopes, groups, strict=True):
            scope.__enter__()
            group.reset()
            for held in group.knob_descriptors.values():
                os.environ.pop(held.key, None)
        return knobs

    def undo() -> None:
        for scope in reversed(scopes):
            scope.__exit__(None, None, None)
        knobs.propagate_env = propagates

    return fresh, undo


_fresh_knobs_impl = fresh_knobs_impl


def fresh_knobs() -> Iterator[Any]:
    """A generator for a fixture of pytest."""
    fresh, undo = fresh_knobs_impl()
    try:
        yield fresh()
    finally:
        undo()


_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of the eight E2M1 codes without a sign
_HALFWAY = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
_BIAS, _NAN = 127, 255  # of E8M0


class _Codes:
    """Codes, one a byte, in ``data``; made from numbers, or of a ``size`` for :meth:`random`."""

    def __init__(self, data: Any = None, size: Any = None, device: Any = None):
        if data is None and size is None:
            raise ValueError("Either parameter data or size must be provided")
        self.device = device if data is None else data.device
        if data is None:
            self.size = size if isinstance(size, tuple) else (size,)
        else:
            self.size = tuple(data.shape)
            self.data = self._encode(data)

    def _encode(self, numbers: Any) -> Any:
        raise NotImplementedError

    def _decode(self) -> Any:
        raise NotImplementedError

    def _draw(self, low: int, high: int) -> Any:
        self.data = torch().randint(low, high, size=self.size, dtype=torch().uint8, device=self.device)
        return self

    def to(self, dtype: Any) -> Any:
        """The numbers as a float32 tensor. Raises ``AssertionError`` for another ``dtype``."""
        assert dtype == torch().float32, f"{type(self).__name__} converts to torch.float32 only, not {dtype}"
        return self._decode()


class MXFP4Tensor(_Codes):
    """Floats of four bits (E2M1: a sign, two bits of exponent, one of mantissa), rounded to nearest, ties to
    even; what is too large, infinite or no number becomes 6."""

    def random(self) -> MXFP4Tensor:
        """Draw all sixteen codes with equal probability."""
        return self._draw(0, 16)

    def _encode(self, numbers: Any) -> Any:
        magnitude = numbers.abs().nan_to_num(nan=_VALUES[-1])
        halfway = torch().tensor(_HALFWAY, dtype=magnitude.dtype, device=self.device)
        below = torch().bucketize(magnitude, halfway)  # a number halfway between two codes gets the lower
        above = torch().bucketize(magnitude, halfway, right=True)
        code = torch().where(below % 2 == 0, below, above)
        return (code | (torch().signbit(numbers).long() << 3)).to(torch().uint8)

    def _decode(self) -> Any:
        values = torch().tensor([*_VALUES, *(-value for value in _VALUES)], device=self.device)
        return values[self.data.long()]

    def to_packed_tensor(self, dim: int) -> Any:
        """Two codes a byte along ``dim``, the first in the low bits; an odd length is filled with zero.
        Raises ``AssertionError`` when there is no such axis."""
        data = self.data
        assert 0 <= dim < data.ndim, f"dim must be one of the {data.ndim} axes, not {dim}"
        if data.shape[dim] % 2:
            data = torch().cat([data, torch().zeros_like(data.narrow(dim, 0, 1))], dim)
        low, high = data.unflatten(dim, (-1, 2)).unbind(dim + 1)
        return low | (high << 4)

    def unpack_packed_tensor(self, packed_tensor: Any, dim: int, original_shape: Any) -> Any:
        """The codes, one a byte, that :meth:`to_packed_tensor` packed along ``dim`` of a tensor of
        ``original_shape``."""
        pairs = torch().stack((packed_tensor & 15, packed_tensor >> 4), dim + 1)
        return pairs.flatten(dim, dim + 1).narrow(dim, 0, original_shape[dim])


class MXScaleTensor(_Codes):
    """Powers of two of eight bits (E8M0), rounded down; what is not positive and finite becomes NaN."""

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Draw exponents between those of ``low`` and ``high``, both included; never NaN. Raises
        ``AssertionError`` when ``low`` is above ``high``."""
        first = 0 if low is None else self._exponent(low)
        last = _NAN - 1 if high is None else self._exponent(high)
        assert first <= last, f"low, {low}, is above high, {high}"
        return self._draw(first, last + 1)

    @staticmethod
    def _exponent(number: float) -> int:
        return int(MXScaleTensor(torch().tensor([float(number)])).data)

    def _encode(self, numbers: Any) -> Any:
        valid = numbers.isfinite() & (numbers > 0)
        exponent = torch().frexp(numbers.float())[1] - 1  # its mantissa lies in [1/2, 1)
        code = (exponent + _BIAS).clamp(0, _NAN - 1)
        return torch().where(valid, code, _NAN).to(torch().uint8)

    def _decode(self) -> Any:
        return fp8e8m0_to_float32(self.data)


def fp8e8m0_to_float32(scale: Any) -> Any:
    """The powers of two whose codes are the bytes of a tensor."""
    codes = scale.view(torch().uint8)
    return torch().exp2(codes.double() - _BIAS).float().masked_fill(codes == _NAN, float("nan"))


def torch() -> ModuleType:
    """The module. Raises :class:`PtxforgeError` where torch is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise PtxforgeError(f"this needs torch, which cannot be imported: {error}") from error
