"""Networks as libraries of vision and language have them, in small: steps of training against eager mode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402


class Residual(nn.Module):
    """Two convolutions beside a shortcut, which has one of its own where size or width change."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)
        )
        self.second = nn.Sequential(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        is_same = before == after and stride == 1
        self.short = nn.Identity() if is_same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.short(x))


def residual_network():
    stem = (nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks = (Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class Inverted(nn.Module):
    """A convolution of each channel by itself between two of single points, with squeeze and excitation."""

    def __init__(self, width, expanded):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(width, expanded, 1), nn.BatchNorm2d(expanded), nn.Hardswish())
        self.each = nn.Sequential(
            nn.Conv2d(expanded, expanded, 3, 1, 1, groups=expanded), nn.BatchNorm2d(expanded), nn.ReLU6()
        )
        self.squeeze, self.excite = nn.Conv2d(expanded, 4, 1), nn.Conv2d(4, expanded, 1)
        self.project = nn.Sequential(nn.Conv2d(expanded, width, 1), nn.BatchNorm2d(width))

    def forward(self, x):
        wide = self.each(self.expand(x))
        scale = torch.sigmoid(self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(wide, 1)))))
        return x + self.project(wide * scale)


def separable_network():
    stem = (nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish())
    head = (nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 10), nn.LogSoftmax(-1))
    return nn.Sequential(*stem, Inverted(8, 24), Inverted(8, 16), *head)


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, **options)


class Unrolled(nn.Module):
    """A cell over the steps of a sequence, in a loop of Python."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.head = cell, nn.Linear(cell.hidden_size, 5)

    def forward(self, x):
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.head(state[0] if isinstance(state, tuple) else state)


NETWORKS = {  # name -> (what makes it, the shape of its input, kernels at least)
    "residual": (residual_network, (2, 3, 32, 32), 10),
    "separable": (separable_network, (2, 3, 16, 16), 10),
    "encoder": (encoder_layer, (2, 12, 32), 5),
    "encoder, norms first, gelu": (lambda: encoder_layer(norm_first=True, activation="gelu"), (2, 12, 32), 5),
    "lstm": (lambda: Unrolled(nn.LSTMCell(12, 16)), (3, 3, 12), 3),
    "gru": (lambda: Unrolled(nn.GRUCell(12, 16)), (3, 3, 12), 3),
}


def step_of(model, forward, x):
    """The output, and the gradients of the input and of all parameters; buffers (running means) last."""
    model.zero_grad()
    given = x.clone().requires_grad_()
    out = forward(given)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    (out * weights).sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return [out.detach(), given.grad, *gradients, *(buffer.clone() for buffer in model.buffers())]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_of_training(launched, name):
    make, shape, kernels = NETWORKS[name]
    model, x = make().double(), torch.randn(shape, dtype=torch.float64)
    initial = {key: value.clone() for key, value in model.state_dict().items()}
    expected = step_of(model, model, x)
    model.load_state_dict(initial)
    found = step_of(model, torch.compile(model), x)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        ours, theirs = ours.double(), theirs.double()
        assert (ours - theirs).norm() <= 1e-9 * theirs.norm() + 1e-12
    assert len(launched) >= kernels
