"""``triton.tools.mxfp``, against the values of the formats."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from triton.tools.mxfp import MXFP4Tensor, MXScaleTensor  # noqa: E402

VALUES = torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6])


def test_every_code_of_e2m1():
    made = MXFP4Tensor(size=16)
    made.data = torch.arange(16, dtype=torch.uint8)
    found = made.to(torch.float32)
    assert torch.equal(found, torch.cat([VALUES, -VALUES])) and math.copysign(1, found[8]) == -1
    assert torch.equal(MXFP4Tensor(found).data, made.data)
    with pytest.raises(AssertionError, match="torch.float32 only"):
        made.to(torch.float16)


def test_rounding_to_e2m1():
    numbers = torch.linspace(-8, 8, 1025)  # holds every number halfway between two values
    nearest = MXFP4Tensor(numbers).to(torch.float32)
    distance = (numbers[:, None].abs() - VALUES).abs()
    assert torch.equal((numbers.abs() - nearest.abs()).abs(), distance.min(1).values)
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    even = torch.tensor([0.0, 1, 1, 2, 2, 4, 4])
    assert torch.equal(MXFP4Tensor(-ties).to(torch.float32), -even)
    large = torch.tensor([7.0, -9.0, math.inf, -math.inf, math.nan])
    assert torch.equal(MXFP4Tensor(large).to(torch.float32).abs(), torch.full((5,), 6.0))


@pytest.mark.parametrize("shape, dim", [((64,), 0), ((7, 5), 1), ((7, 5), 0), ((4, 6, 3), 1), ((1,), 0)])
def test_packing(shape, dim):
    made = MXFP4Tensor(size=shape).random()
    packed = made.to_packed_tensor(dim)
    assert packed.shape[dim] == (shape[dim] + 1) // 2 and packed.dtype == torch.uint8
    first = packed.select(dim, 0)
    assert torch.equal(first & 15, made.data.select(dim, 0))
    assert torch.equal(made.unpack_packed_tensor(packed, dim, shape), made.data)
    with pytest.raises(AssertionError, match="axes"):
        made.to_packed_tensor(len(shape))


def test_powers_of_two():
    exponents = torch.arange(-126, 128, dtype=torch.float64)
    powers = torch.exp2(exponents).float()
    assert torch.equal(MXScaleTensor(powers).data, (exponents + 127).to(torch.uint8))
    assert torch.equal(MXScaleTensor(powers).to(torch.float32), powers)
    below = torch.nextafter(powers[1:], torch.zeros(()))
    assert torch.equal(MXScaleTensor(below).to(torch.float32), powers[:-1])
    assert MXScaleTensor(torch.tensor([2.0**-127, 1e-45])).data.tolist() == [0, 0]
    invalid = torch.tensor([0.0, -1.0, math.nan, math.inf, -math.inf])
    assert MXScaleTensor(invalid).data.tolist() == [255] * 5
    assert MXScaleTensor(invalid).to(torch.float32).isnan().all()


def test_drawing_scales():
    assert MXScaleTensor(size=(4000,)).random().data.max() <= 254
    found = MXScaleTensor(size=4000).random(low=0.25, high=8.0).to(torch.float32)
    assert set(found.tolist()) == {0.25, 0.5, 1.0, 2.0, 4.0, 8.0}
    with pytest.raises(AssertionError, match="above"):
        MXScaleTensor(size=4).random(low=4.0, high=1.0)
    with pytest.raises(ValueError, match="data or size"):
        MXFP4Tensor()
