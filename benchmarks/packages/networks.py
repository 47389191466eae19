"""Networks as libraries of vision and language have them: functions of an input and their parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.packages.case import Data

F = nn.functional


def _convolution(before: int, after: int, side: int, stride: int = 1, **options: int) -> nn.Module:
    """Without a bias, which the norm behind it would take away: its gradient is nothing but rounding."""
    return nn.Conv2d(before, after, side, stride, side // 2, bias=False, **options)


class Residual(nn.Module):
    """Two convolutions beside a shortcut, which has one of its own where size or width change."""

    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.first, self.second = _convolution(before, after, 3, stride), _convolution(after, after, 3)
        self.one, self.two = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        plain = before == after and stride == 1
        self.short = nn.Identity() if plain else nn.Conv2d(before, after, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.two(self.second(F.relu(self.one(self.first(x))))) + self.short(x))


class Inverted(nn.Module):
    """A convolution of each channel by itself between two of points, with squeeze and excitation."""

    def __init__(self, width: int, expanded: int):
        super().__init__()
        self.expand = _convolution(width, expanded, 1)
        self.each = _convolution(expanded, expanded, 3, groups=expanded)
        self.one, self.two = nn.BatchNorm2d(expanded), nn.BatchNorm2d(expanded)
        self.squeeze, self.excite = nn.Conv2d(expanded, 8, 1), nn.Conv2d(8, expanded, 1)
        self.project = nn.Conv2d(expanded, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = F.relu6(self.two(self.each(F.hardswish(self.one(self.expand(x))))))
        scale = torch.sigmoid(self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(wide, 1)))))
        return x + self.project(wide * scale)


class Decoder(nn.Module):
    """A block of a language model: norms of root mean squares, a gated perceptron, attention under a mask."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.project, self.gather = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.gate, self.up, self.down = (
            nn.Linear(a, b) for a, b in ((width, 2 * width), (width, 2 * width), (2 * width, width))
        )

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Attention that is written out."""
        batch, length, width = x.shape
        parts = self.project(x).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(hidden, float("-inf"))
        return self.gather((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.before(x))
        inner = self.between(x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Unrolled(nn.Module):
    """A cell over the steps of a sequence, in a loop of Python."""

    def __init__(self, width: int):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return state[0]


class Network:
    """A module as a function of its input and its parameters, which all get gradients."""

    def __init__(self, make: Callable[[], nn.Module], shape: tuple, small: tuple, dtype: torch.dtype):
        self.make, self.shape, self.small, self.dtype = make, shape, small, dtype
        self.gradients = tuple(range(1 + len(self.names)))

    @functools.cached_property
    def module(self) -> nn.Module:
        """The module without numbers."""
        with torch.device("meta"):
            return self.make().train()

    @property
    def names(self) -> list[str]:
        """The parameters' names, in order."""
        return [name for name, _ in self.module.named_parameters()]

    def inputs(self, data: Data) -> tuple:
        """An input and parameters, as small as they are at the start of a training."""
        x = data.normal(*(self.small if data.small else self.shape), dtype=self.dtype)
        return x, *(self._parameter(data, p.shape) for p in self.module.parameters())

    def _parameter(self, data: Data, shape: torch.Size) -> torch.Tensor:
        if len(shape) < 2:
            return data.uniform(0.5, 1.5, *shape, dtype=self.dtype)
        return data.normal(*shape, dtype=self.dtype, scale=shape[1:].numel() ** -0.5)

    def __call__(self, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        buffers = {
            name: torch.zeros(b.shape, dtype=x.dtype if b.is_floating_point() else b.dtype, device=x.device)
            for name, b in self.module.named_buffers()
        }
        named = dict(zip(self.names, parameters, strict=True)) | buffers
        return torch.func.functional_call(self.module, named, (x,))


def all_of_them() -> list[tuple[str, Network, float]]:
    """Name, network, and how far results may lie from eager mode's."""
    f32, bf16 = torch.float32, torch.bfloat16

    def encoder(**options: object) -> nn.Module:
        return nn.TransformerEncoderLayer(512, 8, 1024, dropout=0.0, batch_first=True, **options)

    def residual() -> nn.Module:
        stem = (_convolution(3, 32, 7, 2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks = (Residual(32, 32, 1), Residual(32, 64, 2))
        return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def separable() -> nn.Module:
        stem = (_convolution(3, 32, 3, 2), nn.BatchNorm2d(32), nn.Hardswish())
        blocks = (Inverted(32, 96), Inverted(32, 64))
        return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    language, vision = ((8, 512, 512), (1, 6, 512)), ((32, 3, 128, 128), (1, 3, 24, 24))
    return [
        ("encoder layer", Network(encoder, *language, f32), 1e-2),
        (
            "encoder layer, norms first, gelu",
            Network(lambda: encoder(norm_first=True, activation="gelu"), *language, bf16),
            0.1,
        ),
        ("decoder block", Network(lambda: Decoder(512, 8), *language, bf16), 0.1),
        ("residual network", Network(residual, *vision, f32), 2e-2),
        ("separable network", Network(separable, *vision, f32), 2e-2),
        ("lstm", Network(lambda: Unrolled(256), (64, 8, 256), (2, 2, 256), f32), 1e-3),
    ]
