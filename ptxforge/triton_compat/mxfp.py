"""``triton.tools.mxfp``: the numbers of microscaling formats as torch tensors of their codes.

Formats: Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, sections 5.3.3
(E2M1) and 5.4.1 (E8M0).
"""

from __future__ import annotations

from typing import Any

from ptxforge.triton_compat.optional import torch

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
        values = torch().exp2(self.data.double() - _BIAS).float()
        return values.masked_fill(self.data == _NAN, float("nan"))
