"""torch.compile: functions and networks as programs have them, with what torch computes without it. Inductor
writes the kernels; those of CUDA's libraries, which it calls for the products of networks, are not timed."""

from __future__ import annotations

import functools
import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.packages import networks
from benchmarks.packages.case import Case, Data, Lazy

attention = Lazy("torch.nn.attention.flex_attention")
users = Lazy("benchmarks.packages.inductor_kernels")
F = torch.nn.functional
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64}
SETTINGS = {"compile_threads": 1, "fx_graph_cache": False, "autotune_local_cache": False}
TUNED = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "TRITON",
    "max_autotune_conv_backends": "TRITON",
}
"""Triton's templates alone, the fastest by Inductor's own tuner."""
Make = Callable[[Data, torch.dtype], tuple]
Row = tuple[str, str, Make, Callable[..., Any], tuple[int, ...]]


class Compiled:
    """A function that torch compiles when it is called for the first time in a process."""

    def __init__(self, function: Callable[..., Any], tuned: bool):
        self.function, self.tuned = function, tuned

    @functools.cached_property
    def _compiled(self) -> Callable[..., Any]:
        return torch.compile(self.function, options=TUNED if self.tuned else None, dynamic=False)

    def __call__(self, *inputs: Any) -> Any:
        return self._compiled(*inputs)


class CompileTime:
    """What a process has spent in Triton's ``compile``, assembling included: seconds and kernels. Inductor's
    tuner calls it from several threads; one at a time may enter. It configures Inductor, too: no workers,
    none of its caches, and kernels for CPU tensors in the emulator."""

    def __init__(self, emulated: bool):
        self.seconds, self.kernels = 0.0, 0
        self.one_at_a_time = threading.Lock()
        config = importlib.import_module("torch._inductor.config")
        settings = SETTINGS | ({"cpu_backend": "triton"} if emulated else {})
        for name, value in settings.items():
            setattr(config, name, value)
        triton = importlib.import_module("triton")
        self.compile, triton.compile = triton.compile, self._timed

    def _timed(self, *arguments: Any, **options: Any) -> Any:
        with self.one_at_a_time:
            begun = time.perf_counter()
            try:
                return self.compile(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - begun
                self.kernels += 1

    def take(self) -> dict[str, Any]:
        """What was spent since the last call."""
        spent = {"compiling": round(self.seconds, 4), "compiled": self.kernels}
        self.seconds, self.kernels = 0.0, 0
        return spent


def _like(count: int = 1) -> Make:
    return lambda d, t: tuple(d.normal(dtype=t) for _ in range(count))


def _shape(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Make:
    """Tensors, each of one shape or, in the emulator, of another."""
    return lambda d, t: tuple(d.normal(*(small if d.small else full), dtype=t) for full, small in shapes)


def _integers(*bounds: tuple[int, int]) -> Make:
    return lambda d, t: tuple(d.integers(low, high, dtype=t) for low, high in bounds)


def _indexed(d: Data, t: torch.dtype) -> tuple:
    rows = d.size(8192, 16)
    width = d.columns // 4
    return d.normal(d.rows, width, dtype=t), d.integers(0, d.rows, rows), d.normal(rows, width, dtype=t)


def _images(width: int, small: int = 8) -> Make:
    return _shape(((32, width, 64, 64), (2, small, 8, 8)))


def _targets(d: Data, t: torch.dtype) -> tuple:
    return d.normal(d.rows, d.size(32000, 200), dtype=t), d.integers(0, d.size(32000, 200), d.rows)


def _wide(d: Data, t: torch.dtype) -> tuple:
    return d.normal(dtype=t), d.normal(d.columns, dtype=t), d.normal(d.columns, dtype=t)


def _heads(length: int, small: int, *, kv: int = 0, queries: int = 0) -> Make:
    """Queries, keys and values of 4 × 16 heads of 64, of ``kv`` for keys and values."""

    def make(d: Data, t: torch.dtype) -> tuple:
        heads, rows = d.size(16, 2), d.size(length, small)
        q = (d.size(4, 1), heads, min(queries or rows, rows), 64)
        k = (d.size(4, 1), d.size(kv or 16, 2 if not kv else 1), rows, 64)
        return d.normal(*q, dtype=t), d.normal(*k, dtype=t), d.normal(*k, dtype=t)

    return make


def _rotary(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = q.chunk(2, -1)
    return q * cos + torch.cat((-second, first), -1) * sin


def _adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple:
    m, v = m.lerp(g, 0.1), v.abs() * 0.999 + g * g * 0.001
    return p * 0.999 - 1e-3 * (m / 0.9) / ((v / 0.99).sqrt() + 1e-8), m, v


def _foreach(*x: torch.Tensor) -> list:
    return torch._foreach_mul(torch._foreach_add(list(x), 1.0), 2.0)


def _quantised(x: torch.Tensor) -> tuple:
    scale = x.float().abs().amax(-1, keepdim=True) / 127
    return torch.round(x.float() / scale).clamp(-128, 127) * scale, scale


def _flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attention.flex_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])


def _nearer(score: Any, b: Any, h: Any, row: Any, column: Any) -> Any:
    return score - 0.01 * (row - column).abs()


def _biased(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attention.flex_attention(q, k, v, score_mod=_nearer)


POINTWISE: list[Row] = [
    ("relu and sigmoid", "f32", _like(2), lambda x, y: torch.relu(x * 2 + y) * torch.sigmoid(x), ()),
    ("gelu by tanh", "bf16", _like(), lambda x: F.gelu(x, approximate="tanh"), (0,)),
    ("gelu by erf", "f16", _like(), F.gelu, (0,)),
    ("silu and product", "bf16", _like(2), lambda x, y: F.silu(x) * y, (0, 1)),
    ("rows and columns", "f32", _shape(((4096,), (40,)), ((4096,), (70,))),
     lambda x, y: (x[:, None] + y[None]) / (1 + y.abs()), ()),
    ("erf, tanh, exp, log1p, sin", "f32", _like(),
     lambda x: x.erf() + x.tanh() + x.exp() + x.abs().log1p() + x.sin(), ()),
    ("special functions", "f32", _like(),
     lambda x: torch.special.i0(x) + torch.special.bessel_j0(x) + torch.lgamma(x.abs() + 0.1), ()),
    ("casts", "f32", _like(), lambda x: (x.half() + 1, x.bfloat16() * 2, (x.abs() * 9).to(torch.uint8)), ()),
    ("integers", "i64", _integers((-1000, 1000), (1, 9)),
     lambda x, y: (x // y, x % y, (x & y) << 2, x > y), ()),
    ("transposed copy", "f32", _like(), lambda x: x.t().contiguous() + 1, ()),
    ("concatenation", "bf16", _like(2), lambda x, y: torch.cat([x, y], 1) * 2, ()),
    ("flip and roll", "f16", _like(), lambda x: x.flip(1) + x.roll(3, 0), ()),
    ("padding", "f32", _like(), lambda x: F.pad(x, (3, 5, 1, 2)) + 1, ()),
    ("split of a projection", "bf16", _shape(((8, 1024, 3072), (1, 4, 96))),
     lambda x: [p.unflatten(-1, (-1, 16)).transpose(1, 2).contiguous() for p in (x + 0).chunk(3, -1)], ()),
    ("rotary embedding", "bf16", _shape(((8, 16, 2048, 64), (1, 2, 8, 64)), *[((2048, 64), (8, 64))] * 2),
     _rotary, (0,)),
    ("nearest neighbours", "f32", _images(16), lambda x: F.interpolate(x, scale_factor=2.0), ()),
    ("bilinear", "f32", _images(16), lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), ()),
    ("pooling", "f32", _images(64), lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3)), ()),
    ("foreach", "f32", _shape(*[((1000 + 37 * i, 300), (10 + i, 30)) for i in range(20)]), _foreach, ()),
    ("adam", "f32", _like(4), _adam, ()),
    ("bucketize", "f32", _shape(((4096, 1024), (8, 64)), ((64,), (16,))),
     lambda x, y: torch.bucketize(x, y.sort()[0]) + 1, ()),
    ("embedding", "bf16", lambda d, t: _indexed(d, t)[:2], lambda x, i: F.embedding(i, x) * 2, (0,)),
    ("index_add", "f32", _indexed, lambda x, i, y: (x * 2).index_add(0, i, y), ()),
    ("scatter_add", "f32", lambda d, t: (d.normal(dtype=t), d.integers(0, d.columns)),
     lambda x, i: torch.zeros_like(x).scatter_add(1, i, x + 1), ()),
    ("gather", "f16", lambda d, t: (d.normal(dtype=t), d.integers(0, d.columns)),
     lambda x, i: x.gather(1, i) + 1, ()),
    ("a kernel of the user's", "f32", _like(2), lambda x, y: users.added(x, y) + 1, ()),
    ("a tuned kernel of the user's", "f32", _like(2), lambda x, y: users.added_and_tuned(x, y) + 1, ()),
]  # fmt: skip
REDUCTIONS: list[Row] = [
    ("sums of rows", "bf16", _like(), lambda x: x.float().sum(-1), ()),
    ("sums of columns", "f32", _like(), lambda x: x.sum(0), ()),
    ("sum of all", "f32", _like(), lambda x: (x * x).sum(), ()),
    ("mean and variance", "f32", _like(), lambda x: torch.var_mean(x, -1), ()),
    ("maximum and where", "f32", _like(), lambda x: (x.amax(1), x.argmax(1)), ()),
    ("any, all, product", "f32", _like(),
     lambda x: ((x > 3).any(1), (x > -4).all(1), (1 + x / 1e4).prod(1)), ()),
    ("softmax", "bf16", _like(), lambda x: F.softmax(x, -1), (0,)),
    ("softmax of long rows", "f32", _shape(((256, 50257), (2, 3000))), lambda x: F.softmax(x, -1), ()),
    ("log_softmax", "f32", _like(), lambda x: F.log_softmax(x, -1), (0,)),
    ("logsumexp", "f16", _like(), lambda x: torch.logsumexp(x, 1), ()),
    ("norms of vectors", "f32", _like(), lambda x: F.normalize(x, dim=-1), (0,)),
    ("quantisation by rows", "bf16", _like(), lambda x: _quantised(x)[1], ()),
    ("layer_norm", "f32", _wide, lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b), (0, 1, 2)),
    ("layer_norm", "bf16", _wide, lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b), (0, 1, 2)),
    ("rms_norm", "bf16", _wide, lambda x, w, b: F.rms_norm(x + b, x.shape[1:], w), (0, 1)),
    ("group_norm", "f16", _images(64), lambda x: F.group_norm(x, 4), (0,)),
    ("batch_norm", "f32", _images(64), lambda x: F.batch_norm(x, None, None, training=True), (0,)),
    ("cross_entropy", "bf16", _targets, lambda x, i: F.cross_entropy(x.float(), i), (0,)),
    ("huber loss", "f32", _like(2), F.huber_loss, (0, 1)),
    ("divergence", "f32", _like(2), lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1)), (0,)),
    ("cumsum", "f32", _like(), lambda x: x.cumsum(-1), ()),
    ("cumprod and logcumsumexp", "f32", _shape(((4096, 512), (4, 60))),
     lambda x: ((1 + x / 100).cumprod(-1), x.logcumsumexp(-1)), ()),
    ("sort of 64", "f32", _shape(((8192, 64), (8, 64))), lambda x: torch.sort(x, stable=True, dim=-1), ()),
    ("sort of 256", "f32", _shape(((4096, 256), (4, 128))), lambda x: torch.sort(x, stable=True, dim=-1), ()),
]  # fmt: skip
PRODUCTS: list[Row] = [
    ("product", "bf16", _shape(((8192, 1024), (32, 32)), ((1024, 3072), (32, 48))), lambda x, y: x @ y, ()),
    ("product and relu", "f16", _shape(*[((4096, 4096), (32, 32))] * 2), lambda x, y: torch.relu(x @ y), ()),
    ("product by a transposed matrix", "bf16", _shape(*[((2048, 2048), (32, 32))] * 2),
     lambda x, y: x @ y.t(), ()),
    ("product, bias and gelu", "bf16",
     _shape(((2048, 2048), (32, 32)), ((2048, 4096), (32, 48)), ((4096,), (48,))),
     lambda x, y, b: F.gelu(torch.addmm(b, x, y)), ()),
    ("product of odd sizes", "f16", _shape(((2000, 1999), (33, 35)), ((1999, 1001), (35, 37))),
     lambda x, y: x @ y, ()),
    ("product of 16 rows", "bf16", _shape(((16, 4096), (16, 64)), ((4096, 4096), (64, 32))),
     lambda x, y: x @ y, ()),
    ("products side by side", "f16", _shape(*[((16, 512, 512), (2, 32, 32))] * 2), torch.bmm, ()),
    ("flex_attention", "f16", _heads(2048, 128), _flex, (0, 1, 2)),
    ("flex_attention, scores changed", "bf16", _heads(2048, 128), _biased, ()),
    ("flex_attention, one query", "f16", _heads(4096, 128, kv=4, queries=1), _flex, ()),
]  # fmt: skip
PICTURES = ((32, 64, 56, 56), (1, 16, 8, 8))
CONVOLUTIONS: list[Row] = [
    ("convolution and relu", "f16", _shape(PICTURES, ((64, 64, 3, 3), (16, 16, 3, 3))),
     lambda x, w: torch.relu(F.conv2d(x, w, padding=1)), ()),
    ("convolution of points", "f16", _shape(PICTURES, ((128, 64, 1, 1), (16, 16, 1, 1))),
     lambda x, w: F.conv2d(x, w), ()),
]  # fmt: skip


def cases() -> list[Case]:
    """All cases: without products, with them, networks."""
    rows = [(row, False) for row in POINTWISE + REDUCTIONS] + [(row, True) for row in PRODUCTS + CONVOLUTIONS]
    made = [
        Case(
            "inductor",
            f"{name}, {kind}",
            lambda d, make=make, kind=kind: make(d, TYPES[kind]),
            Compiled(function, tuned and "flex" not in name),
            function,
            gradients,
            products=tuned,
            exact="casts" in name or "sort" in name,  # or other numbers would be equal
        )
        for (name, kind, make, function, gradients), tuned in rows
    ]
    return made + [
        Case("inductor", name, network.inputs, Compiled(network, False), network, network.gradients,
             tolerance, exact=True)  # fmt: skip
        for name, network, tolerance in networks.all_of_them()
    ]
