"""What Inductor generates, compiled by ptxforge and run in the emulator, agrees with eager mode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

MIXED = {
    "pointwise": (lambda x, y: torch.relu(x * 2 + y) * torch.sigmoid(x), (64, 100), (64, 100)),
    "broadcast": (lambda x, y: (x[:, None] + y[None]) / (1 + y.abs()), (33,), (65,)),
    "transcendental": (
        lambda x: (torch.erf(x), torch.tanh(x), torch.exp(x), torch.log1p(x.abs()), torch.sin(x)), (1000,)),
    "casts": (lambda x: (x.half(), x.bfloat16(), x.double(), x.int(), (x.abs() * 9).to(torch.uint8)), (300,)),
    "reductions": (lambda x: (x.sum(-1), x.mean(0), x.amax(1), x.argmax(1), x.var(1), x.prod(1)), (64, 100)),
    "long rows": (lambda x: torch.softmax(x, -1), (8, 5000)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (100,), w, b), (64, 100), (100,), (100,)),
    "group norm": (lambda x: F.group_norm(x, 4), (2, 16, 30)),
    "scans": (lambda x: (x.cumsum(-1), x.cumprod(-1), x.logcumsumexp(-1)), (16, 100)),
    "sort": (lambda x: torch.sort(x, -1), (16, 64)),
    "concatenation": (lambda x, y: torch.cat([x, y], 1) * 2, (20, 30), (20, 10)),
    "pooling": (lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3)), (2, 3, 16, 16)),
    "upsampling": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), (2, 3, 8, 8)),
    "transposed": (lambda x: x.t().contiguous() + 1, (40, 70)),
    "foreach": (lambda x, y: torch._foreach_mul(torch._foreach_add([x, y], 1.0), 2.0), (30,), (50,)),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_floats(agrees, name):
    function, *shapes = MIXED[name]
    agrees(function, *(torch.randn(shape) for shape in shapes))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats(agrees, dtype):
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}[dtype]
    agrees(lambda x: (F.silu(x) * x).sum(-1), torch.randn(50, 70).to(dtype), tolerance=tolerance)


SPECIAL = {
    "erfinv": (torch.erfinv, -0.9), "erfcx": (torch.special.erfcx, 0.1), "lgamma": (torch.lgamma, 0.1),
    "i0": (torch.special.i0, 0.1), "i1": (torch.special.i1, 0.1), "j0": (torch.special.bessel_j0, 0.1),
    "j1": (torch.special.bessel_j1, 0.1), "y0": (torch.special.bessel_y0, 0.1), "sinc": (torch.sinc, 0.1),
    "y1": (torch.special.bessel_y1, 0.1), "log_ndtr": (torch.special.log_ndtr, -0.9),
    "frexp": (lambda x: torch.frexp(x), 0.1), "ldexp": (lambda x: torch.ldexp(x, torch.tensor(3)), 0.1),
    "nextafter": (lambda x: torch.nextafter(x, x + 1), 0.1), "power": (lambda x: x**x, 0.1),
    "fmod": (lambda x: torch.fmod(x, 0.7), -0.9), "atan2": (lambda x: torch.atan2(x, x + 1), -0.9),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(agrees, name):
    """Of the device library; each with an addition, so that there is a kernel to generate."""
    function, low = SPECIAL[name]

    def shifted(x):
        found = function(x + 0)
        return tuple(part + 0 for part in found) if isinstance(found, tuple) else found + 0

    agrees(shifted, low + torch.rand(200) * (3 if low > 0 else 1.8), tolerance=1e-6)


def test_integers(agrees):
    x, y = torch.randint(-100, 100, (300,)), torch.randint(1, 9, (300,))
    agrees(lambda x, y: (x // y, x % y, x & y, x << 2, x ^ y, x.cumsum(0), x > y), x, y)


def test_indices(agrees):
    rows = torch.randint(0, 50, (20,))
    agrees(lambda table, rows: table[rows] + F.embedding(rows, table), torch.randn(50, 16), rows)
    agrees(
        lambda table, rows, new: table.index_add(0, rows, new), torch.randn(50, 16), rows, torch.randn(20, 16)
    )


def test_cross_entropy_and_its_gradient(agrees):
    def loss(x, target):
        x = x.detach().requires_grad_()
        value = F.cross_entropy(x, target)
        return value, torch.autograd.grad(value, x)[0]

    agrees(loss, torch.randn(32, 100), torch.randint(0, 100, (32,)))


def test_random_numbers_are_reproducible(agrees, launched):
    dropped = torch.compile(lambda x: F.dropout(x, 0.5, True))
    torch.manual_seed(7)
    first = dropped(torch.ones(1000))
    torch.manual_seed(7)
    assert torch.equal(first, dropped(torch.ones(1000))) and launched
    assert set(first.unique().tolist()) == {0.0, 2.0} and 400 < int((first == 0).sum()) < 600


def test_dynamic_shapes(launched):
    compiled = torch.compile(lambda x: (x * 2).sum(-1), dynamic=True)
    for rows, columns in ((4, 100), (5, 77), (9, 1030)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x), (x * 2).sum(-1))
    assert launched
