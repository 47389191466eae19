"""flag_gems 5.0.2: operators of torch. A case is a line: the function's name (of flag_gems, and behind
``=`` torch's where it has another one), and its arguments: names of tensors, numbers, lists,
``name=value``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.packages.case import Case, Data, Lazy

gems = Lazy("flag_gems")
functional = torch.nn.functional

TENSORS: dict[str, Callable[[Data], Any]] = {
    "x": lambda d: d.normal(),
    "y": lambda d: d.normal(),
    "z": lambda d: d.normal(),
    "h": lambda d: d.normal(dtype=torch.bfloat16),
    "h2": lambda d: d.normal(dtype=torch.bfloat16),
    "g": lambda d: d.normal(dtype=torch.float16),
    "p": lambda d: d.uniform(0.1, 2),
    "ph": lambda d: d.uniform(0.1, 2, dtype=torch.bfloat16),
    "u": lambda d: d.uniform(-0.9, 0.9),
    "s": lambda d: d.uniform(0.05, 0.95),
    "i": lambda d: d.integers(-1000, 1000, dtype=torch.int32),
    "j": lambda d: d.integers(1, 1000, dtype=torch.int32),
    "k": lambda d: d.integers(0, 8, dtype=torch.int32),
    "b": lambda d: d.integers(0, 2).bool(),
    "c": lambda d: d.integers(0, 2).bool(),
    "signs": lambda d: d.integers(0, 2).float() * 2 - 1,
    "row": lambda d: d.normal(d.columns),
    "row2": lambda d: d.normal(d.columns),
    "column": lambda d: d.normal(d.rows),
    "flat": lambda d: d.normal(d.rows * d.columns // 4),
    "flat2": lambda d: d.normal(d.rows * d.columns // 4),
    "sparse": lambda d: (d.uniform(0, 1, d.rows * d.columns // 4) < 0.1).float(),
    "short": lambda d: d.normal(d.rows // 8, d.columns // 8),
    "shorth": lambda d: d.normal(d.rows // 8, d.columns // 8, dtype=torch.bfloat16),
    "few": lambda d: d.normal(d.size(64, 3), d.size(48, 4)),
    "few2": lambda d: d.normal(d.size(32, 2), d.size(64, 5)),
    "images": lambda d: d.normal(d.size(8, 1), d.size(64, 2), d.size(128, 8), d.size(128, 8)),
    "waves": lambda d: d.normal(d.size(64, 2), d.size(128, 3), d.size(2048, 16)),
    "volumes": lambda d: d.normal(2, d.size(32, 2), d.size(32, 4), d.size(64, 4), d.size(64, 4)),
    "positions": lambda d: d.integers(0, d.rows, d.rows),
    "places": lambda d: d.integers(0, d.columns),
    "classes": lambda d: d.integers(0, d.columns, d.rows),
    "few_classes": lambda d: d.integers(0, d.size(512, 8), d.rows),
    "counts": lambda d: d.integers(0, 4, d.rows),
    "sorted": lambda d: d.integers(0, 50, d.rows * 64).sort()[0],
    "table": lambda d: d.normal(d.size(32000, 40), d.size(1024, 32)),
    "tokens": lambda d: d.integers(0, d.size(32000, 40), d.size(8, 2), d.size(1024, 4)),
    "a16": lambda d: d.normal(d.size(2048, 16), d.size(2048, 32), dtype=torch.float16),
    "b16": lambda d: d.normal(d.size(2048, 32), d.size(2048, 16), dtype=torch.float16),
    "c16": lambda d: d.normal(d.size(2048, 16), d.size(2048, 16), dtype=torch.float16),
    "v16": lambda d: d.normal(d.size(2048, 32), dtype=torch.float16),
    "w16": lambda d: d.normal(d.size(2048, 16), dtype=torch.float16),
    "batch16": lambda d: d.normal(d.size(16, 2), d.size(512, 16), d.size(512, 32), dtype=torch.bfloat16),
    "batch16b": lambda d: d.normal(d.size(16, 2), d.size(512, 32), d.size(512, 16), dtype=torch.bfloat16),
    "square16": lambda d: d.normal(d.size(16, 2), d.size(512, 16), d.size(512, 16), dtype=torch.bfloat16),
    "q16": lambda d: d.normal(d.size(4, 1), d.size(16, 2), d.size(1024, 32), 64, dtype=torch.bfloat16),
    "k16": lambda d: d.normal(d.size(4, 1), d.size(16, 2), d.size(1024, 32), 64, dtype=torch.bfloat16),
    "v16h": lambda d: d.normal(d.size(4, 1), d.size(16, 2), d.size(1024, 32), 64, dtype=torch.bfloat16),
    "kernels": lambda d: d.normal(d.size(64, 4), d.size(64, 2), 3, 3, scale=0.05),
    "side": lambda d: d.uniform(0.5, 2, d.rows, 1),
    "one": lambda d: d.uniform(0.1, 0.3, 1),
    "half": lambda d: d.normal(d.rows, d.columns // 2),
    "places2": lambda d: d.integers(0, d.columns, d.rows),
    "row16": lambda d: d.normal(d.columns, dtype=torch.bfloat16),
    "row16b": lambda d: d.normal(d.columns, dtype=torch.bfloat16),
    "channels": lambda d: d.normal(d.size(64, 2)),
    "channels2": lambda d: d.normal(d.size(64, 2)),
    "near": lambda d: d.uniform(0.9, 1.1),
    "order": lambda d: d.uniform(0, 1).argsort(1),
    "once": lambda d: torch.randperm(d.rows, device=d.device),
    "several": lambda d: [d.normal(d.rows // 4, d.columns // 4) for _ in range(4)],
    "severalh": lambda d: [d.normal(d.rows // 4, d.columns // 4, dtype=torch.bfloat16) for _ in range(4)],
}

LINES = """
abs x | abs h | acos u | angle x | arcsinh=asinh x | atan x | atan2 x y | ceil x | celu x | conj_physical x
cos x | cos h | cosh u | erf x | erf h | exp x | exp h | exp2 x | expm1 x | i0 x | isfinite x | isinf x
isnan x | isneginf x | log p | log10 p | log_sigmoid=logsigmoid x | logit s | nan_to_num x | neg x
reciprocal p | relu x | relu h | relu6 x | round x | rsqrt p | rsqrt ph | selu x | sigmoid x | sigmoid h
signbit x | silu x | silu h | sin x | sin h | softplus x | softshrink x | special_i0e=i0e x
special_i1=i1 x | sqrt p | square x | tan u | tanh x | tanh h | gelu x | gelu h | gelu h approximate="tanh"
glu x | hardsigmoid x | elu x | threshold x 0.1 0.5 | add x y | add h h2 | sub x y | mul x y | mul h h2
mul x row | true_divide x p | div_mode=div x p rounding_mode="floor" | floor_divide x p | remainder x p
floor_divide i j | remainder i j | pow_tensor_tensor=pow p x | pow_tensor_scalar=pow p 2.5
pow_scalar=pow 2.5 x | pow_tensor_tensor=pow ph h | maximum x y | minimum x y | fmin x y | hypot x y
copysign x y | logaddexp x y | lerp_scalar=lerp x y 0.3 | lerp_tensor=lerp x y z | addcmul x y z value=0.5
addcdiv x y p value=0.5 | polar p x | clamp x -0.5 0.5 | clamp_tensor=clamp x y z | clamp_min x 0.1 | eq i j
eq_scalar=eq i 3 | ne i j | lt x y | le x y | gt x y | ge_scalar=ge x 0.1 | equal x x | isclose x y
logical_and b c | logical_or b c | logical_xor b c | logical_not b | bitwise_and_tensor=bitwise_and i j
bitwise_or_tensor=bitwise_or i j | bitwise_not i | masked_fill x b 0.5 | where_self=where b x y
where_self=where b h h2 | tril x | triu x | tril h | sigmoid_backward x s | tanh_backward x u
threshold_backward x y 0.1 | gelu_backward x y | silu_backward x y | silu_backward h h2 | sum x
sum_dim=sum x [1] | sum_dim=sum h [1] | sum_dim=sum x [0] | mean x | mean_dim=mean x [1]
mean_dim=mean h [0] | amax x [1] | amax h [1] | aminmax x dim=1 | max x | max_dim=max x 1 | min_dim=min x 1
argmax x 1 | argmax x 0 | argmin x 1 | all b | all_dim=all b 1 | any b | any_dim=any b 1 | count_nonzero i 1
prod_dim=prod near 1 | std x [1] | var x [1] | var_mean x [1] | vector_norm x | vector_norm x 2 [1]
dot flat flat2 | trace x | cumsum x 1 | cumsum x 0 | cumsum h 1 | cummax x 1 | cummin x 1 | softmax x 1
softmax h 1 | softmax x 0 | log_softmax x 1 | log_softmax h 1 | sort short 1 | topk short 5 | topk x 8
quantile short 0.3 1 | masked_select x b | nonzero sparse | nonzero b | isin positions classes
mse_loss x y | soft_margin_loss x signs | margin_ranking_loss x y signs 0.0 1 | cat several 0
cat several 1 | cat severalh 1 | stack several 0 | stack several 1 | stack severalh 0 | hstack several
vstack several | flip x [0] | flip x [1] | flip h [0,1] | roll x 3 1 | tile short [2,3] | pad x [3,5]
pad h [3,5] | constant_pad_nd x [1,1,2,2] | reflection_pad1d waves [2,3] | reflection_pad2d images [1,2,3,1]
replication_pad1d waves [2,3] | replication_pad3d volumes [1,1,1,1,1,1] | pixel_unshuffle images 2
repeat_interleave_self_int=repeat_interleave short 3 1
repeat_interleave_self_tensor=repeat_interleave x counts 0 | gather x 1 places | gather h 1 places
index_select x 0 positions | index_select h 0 positions | embedding table tokens | diag row | diag_embed few
t_copy x | select_scatter x row 0 3 | kron few few2 | index_add x 0 positions y | scatter x 1 order y
masked_scatter x b y | upsample_nearest1d waves [4096] | upsample_nearest2d images [200,200]
upsample_nearest3d volumes [40,80,80] | upsample_linear1d waves [4096] False
upsample_bicubic2d images [100,90] False | max_pool2d_with_indices images 3 2 1
avg_pool2d images [3,3] [2,2] [1,1]
"""
PRODUCTS = """
mm a16 b16 | addmm c16 a16 b16 | bmm batch16 batch16b | mv a16 v16 | addmv w16 a16 v16 | vdot flat flat2
"""
LOOSE = {
    "tan": 1e-3,
    "atan2": 1e-3,
    "acos": 1e-3,
    "mm": 1e-2,
    "addmm": 1e-2,
    "conv2d": 1e-2,
    "prod_dim": 2e-3,
}
"""Tolerances of functions that lose digits where their argument is near a pole, a zero or many."""


def _torch_function(name: str) -> Callable[..., Any]:
    places = (torch, functional, torch.special, torch.linalg, torch.ops.aten)
    return next(getattr(place, name) for place in places if hasattr(place, name))


def _case(line: str, products: bool) -> Case:
    head, *words = line.split()
    own, _, of_torch = head.partition("=")
    names = [word for word in words if word in TENSORS]
    keywords = {w.partition("=")[0]: ast.literal_eval(w.partition("=")[2]) for w in words if "=" in w}
    values = [None if word in TENSORS else ast.literal_eval(word) for word in words if "=" not in word]

    def call(function: Callable[..., Any], given: tuple) -> Any:
        rest = iter(given)
        return function(*(next(rest) if value is None else value for value in values), **keywords)

    return Case(
        "flag_gems",
        line,
        lambda data: tuple(TENSORS[name](data) for name in names),
        lambda *given: call(getattr(gems, own), given),
        lambda *given: call(_torch_function(of_torch or own), given),
        products=products,
        tolerance=LOOSE.get(own),
    )


def _of_lines(text: str, products: bool) -> list[Case]:
    return [_case(part.strip(), products) for line in text.strip().splitlines() for part in line.split("|")]


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.chunk(2, -1)  # type: ignore[return-value] - two of them


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight


def _batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, None, None, weight, bias, training=True)


def _weight_norm(v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return v * (g / v.square().sum(1, keepdim=True).sqrt())


SPECIAL: list[tuple[str, str, Callable[..., Any], Callable[..., Any]]] = [
    ("silu_and_mul", "x y", lambda x, y: gems.silu_and_mul(x, y), lambda x, y: functional.silu(x) * y),
    ("silu_and_mul", "h h2", lambda x, y: gems.silu_and_mul(x, y), lambda x, y: functional.silu(x) * y),
    ("gelu_and_mul", "x y", lambda x, y: gems.gelu_and_mul(x, y), lambda x, y: functional.gelu(x) * y),
    ("gelu_and_mul", "h h2", lambda x, y: gems.gelu_and_mul(x, y), lambda x, y: functional.gelu(x) * y),
    ("reglu", "x", lambda x: gems.reglu(x), lambda x: functional.relu(_halves(x)[0]) * _halves(x)[1]),
    ("swiglu", "h", lambda x: gems.swiglu(x), lambda x: functional.silu(_halves(x)[0]) * _halves(x)[1]),
    (
        "geglu",
        "h",
        lambda x: gems.geglu(x),
        lambda x: functional.gelu(_halves(x)[0], approximate="tanh") * _halves(x)[1],
    ),
    ("outer", "column row", lambda x, y: gems.outer(x, y), lambda x, y: torch.outer(x, y)),
    ("one_hot", "few_classes", lambda x: gems.one_hot(x, 512), lambda x: functional.one_hot(x, 512)),
    ("weight_norm_interface", "x side", lambda v, g: gems.weight_norm_interface(v, g, 0)[0], _weight_norm),
    ("prelu", "x one", lambda x, w: gems.prelu(x, w), lambda x, w: functional.prelu(x, w)),
    ("repeat", "short", lambda x: gems.repeat(x, (2, 3)), lambda x: x.repeat(2, 3)),
    ("contiguous", "x", lambda x: gems.contiguous(x.t()), lambda x: x.t()),
    ("bincount", "positions", lambda x: gems.bincount(x), lambda x: torch.bincount(x)),
    (
        "unique_consecutive",
        "sorted",
        lambda x: gems.unique_consecutive(x)[0],
        lambda x: x.unique_consecutive(),
    ),
    (
        "slice_scatter",
        "x half",
        lambda x, y: gems.slice_scatter(x, y, 1, 0, x.shape[1], 2),
        lambda x, y: torch.slice_scatter(x, y, 1, 0, x.shape[1], 2),
    ),
    (
        "index_put",
        "x once places2 column",
        lambda x, i, j, y: gems.index_put(x, (i, j), y),
        lambda x, i, j, y: x.index_put((i, j), y),
    ),
    ("index", "x positions places2", lambda x, i, j: gems.index(x, [i, j]), lambda x, i, j: x[i, j]),
    (
        "layer_norm",
        "x row row2",
        lambda x, w, b: gems.layer_norm(x, x.shape[1:], w, b)[0],
        lambda x, w, b: functional.layer_norm(x, x.shape[1:], w, b),
    ),
    (
        "layer_norm",
        "h row16 row16b",
        lambda x, w, b: gems.layer_norm(x, x.shape[1:], w, b)[0],
        lambda x, w, b: functional.layer_norm(x, x.shape[1:], w, b),
    ),
    ("rms_norm", "x row", lambda x, w: gems.rms_norm(x, x.shape[1:], w), _rms_norm),
    ("rms_norm", "h row16", lambda x, w: gems.rms_norm(x, x.shape[1:], w), _rms_norm),
    (
        "skip_layer_norm",
        "x y row row2",
        lambda x, r, w, b: gems.skip_layer_norm(x, r, x.shape[1:], w, b),
        lambda x, r, w, b: functional.layer_norm(x + r, x.shape[1:], w, b),
    ),
    (
        "fused_add_rms_norm",
        "h h2 row16",
        lambda x, r, w: gems.fused_add_rms_norm(x.clone(), r.clone(), x.shape[1:], w)[0],
        lambda x, r, w: _rms_norm(x + r, w),
    ),
    (
        "group_norm",
        "images channels channels2",
        lambda x, w, b: gems.group_norm(x, w, b, *x.shape[:2], x[0, 0].numel(), 2)[0],
        lambda x, w, b: functional.group_norm(x, 2, w, b),
    ),
    (
        "batch_norm",
        "images channels channels2",
        lambda x, w, b: gems.batch_norm(x, w, b, torch.zeros_like(w), torch.ones_like(w), training=True)[0],
        _batch_norm,
    ),
    (
        "cross_entropy_loss",
        "x classes",
        lambda x, c: gems.cross_entropy_loss(x, c),
        lambda x, c: functional.cross_entropy(x, c),
    ),
    (
        "softmax_backward",
        "x s",
        lambda g, o: gems.softmax_backward(g, o, 1, g.dtype),
        lambda g, o: o * (g - (g * o).sum(1, keepdim=True)),
    ),
    (
        "nll_loss_forward",
        "x classes",
        lambda x, c: gems.nll_loss_forward(x, c)[0],
        lambda x, c: functional.nll_loss(x, c),
    ),
]
SPECIAL_PRODUCTS: list[tuple[str, str, Callable[..., Any], Callable[..., Any]]] = [
    (
        "baddbmm",
        "square16 batch16 batch16b",
        lambda c, a, b: gems.baddbmm(c, a, b),
        lambda c, a, b: torch.baddbmm(c, a, b),
    ),
    (
        "conv2d",
        "images kernels",
        lambda x, w: gems.conv2d(x, w, padding=1),
        lambda x, w: functional.conv2d(x, w, padding=1),
    ),
    (
        "scaled_dot_product_attention",
        "q16 k16 v16h",
        lambda q, k, v: gems.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
]


def cases() -> list[Case]:
    """All cases, those without products first."""

    def special(rows: list, products: bool) -> list[Case]:
        return [
            Case(
                "flag_gems",
                f"{name} {words}",
                lambda d, words=words: tuple(TENSORS[w](d) for w in words.split()),
                run,
                reference,
                products=products,
                tolerance=LOOSE.get(name),
            )
            for name, words, run, reference in rows
        ]

    return [
        *_of_lines(LINES, False),
        *special(SPECIAL, False),
        *_of_lines(PRODUCTS, True),
        *special(SPECIAL_PRODUCTS, True),
    ]
