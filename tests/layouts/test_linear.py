from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given

from ptxforge.layouts.linear import LayoutError, LinearLayout

from .layout_strategies import invertible, matrices


def all_inputs(layout: LinearLayout):
    sizes = [layout.in_size(name) for name in layout.in_dims]
    return [dict(zip(layout.in_dims, index)) for index in np.ndindex(*sizes)]


@given(matrices())
def test_linear(layout):
    inputs = all_inputs(layout)
    for x in inputs:
        for y in inputs[::7]:
            both = {name: x[name] ^ y[name] for name in x}
            assert layout.apply(**both) == tuple(a ^ b for a, b in zip(layout.apply(**x), layout.apply(**y)))


@given(matrices())
def test_the_table_agrees_with_apply(layout):
    table = layout.table()
    for x in all_inputs(layout):
        assert table[tuple(x[name] for name in reversed(layout.in_dims))] == layout.apply_flat(**x)


@given(matrices(("a",), ("x", "y")), matrices(("x", "y"), ("z",)), matrices(("z",), ("u", "v")))
def test_compose(f, g, h):
    try:
        left = f.compose(g).compose(h)
        right = f.compose(g.compose(h))
    except LayoutError:
        assert any(inner.out_size(n) > outer.in_size(n)
                   for inner, outer in ((f, g), (g, h)) for n in inner.out_names)
        return
    assert left == right
    for x in all_inputs(f):
        y = dict(zip(f.out_names, f.apply(**x)))
        assert f.compose(g).apply(**x) == g.apply(**y)


@given(invertible(bits=6))
def test_inverse(layout):
    inverse = layout.invert()
    identity = LinearLayout.identity(64, "a", "a")
    assert layout.compose(inverse) == identity
    assert inverse.compose(layout) == identity.rename({"a": "x"})
    assert inverse.invert() == layout


@given(matrices())
def test_left_inverse(layout):
    if layout.is_injective:
        back = layout.compose(layout.left_inverse())
        assert all(back.apply(**x) == tuple(x[n] for n in back.out_names) for x in all_inputs(layout))
    elif layout.is_surjective:
        there = layout.left_inverse().compose(layout)
        assert all(there.apply(**y) == tuple(y.values()) for y in all_inputs(there))
        free = layout.free_variables()
        for y in all_inputs(there):
            x = dict(zip(layout.in_dims, layout.left_inverse().apply(**y)))
            assert all(x[name] & mask == 0 for name, mask in free.items())
    else:
        with pytest.raises(LayoutError):
            layout.left_inverse()
    if not (layout.is_injective and layout.is_surjective):
        with pytest.raises(LayoutError, match="not invertible"):
            layout.invert()


@given(matrices(), matrices(("b", "c"), ("y", "z")))
def test_product(f, g):
    product = f * g
    for x in all_inputs(f)[::3]:
        for y in all_inputs(g)[::3]:
            flat = {"a": x["a"], "b": x["b"] | y["b"] << f.in_bits("b"), "c": y["c"]}
            fx, gy = dict(zip(f.out_names, f.apply(**x))), dict(zip(g.out_names, g.apply(**y)))
            expected = (fx["x"], fx["y"] + gy["y"] * f.out_size("y"), gy["z"])
            assert product.apply(**flat) == expected


@given(matrices())
def test_free_variables_and_rank(layout):
    free = layout.free_variables()
    kept = [layout.apply(**x) for x in all_inputs(layout) if all(x[n] & free[n] == 0 for n in x)]
    assert len(set(kept)) == len(kept) == 1 << layout.rank
    assert set(kept) == {layout.apply(**x) for x in all_inputs(layout)}
    assert layout.is_injective == (len(kept) == len(all_inputs(layout)))
    assert layout.is_surjective == (len(kept) == np.prod(layout.out_shape))


@given(matrices(("register", "lane"), ("x", "y")))
def test_num_consecutive(layout):
    width = layout.num_consecutive_in_out()
    for lane in range(layout.in_size("lane")):
        for start in range(0, layout.in_size("register"), width):
            run = [layout.apply_flat(register=start + i, lane=lane) for i in range(width)]
            assert run == list(range(run[0], run[0] + width)) and run[0] % width == 0
    if 2 * width <= layout.in_size("register"):
        starts = range(0, layout.in_size("register"), 2 * width)
        runs = [[layout.apply_flat(register=s + i, lane=lane) for i in range(2 * width)]
                for lane in range(layout.in_size("lane")) for s in starts]
        assert any(run != list(range(run[0], run[0] + 2 * width)) or run[0] % (2 * width) for run in runs)


def test_num_consecutive_along_one_dimension():
    columns = LinearLayout({"register": [(1, 0), (2, 0)], "lane": [(0, 1)]}, {"dim0": 4, "dim1": 2})
    assert columns.num_consecutive_in_out() == 1
    assert columns.num_consecutive_in_out("dim0") == 4
    assert columns.num_consecutive_in_out("dim1") == 1
    rows = LinearLayout({"register": [(0, 1), (1, 0)]}, {"dim0": 2, "dim1": 2})
    assert rows.num_consecutive_in_out() == 4
    assert rows.num_consecutive_in_out("dim1") == 2


@given(matrices())
def test_views(layout):
    swapped = layout.transpose_outs(("y", "x"))
    for x in all_inputs(layout):
        assert swapped.apply(**x) == layout.apply(**x)[::-1]
        assert layout.transpose_ins(("b", "a")).apply(**x) == layout.apply(**x)
        assert layout.sublayout(("a", "b"), ("y",)).apply(**x) == layout.apply(**x)[1:]
    flat = layout.reshape_outs({"z": int(np.prod(layout.out_shape))})
    assert all(flat.apply(**x) == (layout.apply_flat(**x),) for x in all_inputs(layout))
    assert flat.reshape_outs(layout.out_dims) == layout


@given(matrices(), matrices())
def test_equality_is_structural(f, g):
    again = LinearLayout(f.bases, f.out_dims)
    assert again == f and hash(again) == hash(f)
    assert (f == g) == (f.bases == g.bases and f.out_dims == g.out_dims)
    assert pickle.loads(pickle.dumps(f)) == f
    assert eval(repr(f)) == f
    assert f != 3


def test_text():
    layout = LinearLayout({"register": [(0, 1)], "lane": []}, {"dim0": 1, "dim1": 2})
    assert str(layout) == "{register = [[0, 1]], lane = []} -> dim0 = 1, dim1 = 2"
    assert layout.in_size("lane") == layout.in_size("warp") == 1
    assert layout.bases == (("register", ((0, 1),)), ("lane", ()))


@pytest.mark.parametrize("bases, outs, message", [
    ({"a": [(4,)]}, {"x": 4}, "4 does not fit 'x' of size 4"),
    ({"a": [(1, 2)]}, {"x": 4}, "has 2 coordinates, expected 1"),
    ({"a": []}, {"x": 3}, "size of x must be a power of two, got 3"),
    ([("a", []), ("a", [])], {"x": 2}, "input dimension 'a' appears twice"),
    ({}, [("x", 2), ("x", 2)], "output dimension 'x' appears twice"),
])
def test_bad_layouts(bases, outs, message):
    with pytest.raises(LayoutError, match=message):
        LinearLayout(bases, outs)


def test_bad_operations():
    layout = LinearLayout.identity(4, "a", "x")
    for call, message in [
        (lambda: layout.apply(b=1), "no input dimension 'b'"),
        (lambda: layout.out_size("y"), "no output dimension 'y'"),
        (lambda: layout.num_consecutive_in_out("y"), "no output dimension 'y'"),
        (lambda: layout.compose(LinearLayout.identity(2, "x", "y")), "cannot compose"),
        (lambda: layout.transpose_outs(("y",)), "no permutation"),
        (lambda: layout.transpose_ins(("y",)), "no permutation"),
        (lambda: layout.reshape_outs({"y": 8}), "cannot reshape"),
    ]:
        with pytest.raises(LayoutError, match=message):
            call()


def test_makers():
    assert LinearLayout.zeros(4, "lane", "x", 2).apply(lane=3) == (0,)
    identity = LinearLayout.identity(4, "a", "x")
    assert LinearLayout.empty(["a"], ["x"]) * identity == identity == identity * LinearLayout.empty(["a"])
    swizzled = LinearLayout({"offset": [(1,), (3,)]}, {"x": 4})
    assert not swizzled.is_permutation and identity.is_permutation
    zeros = LinearLayout({"register": [(0,), (1,)], "lane": [(0,)]}, {"x": 2})
    kept = LinearLayout({"register": [(1,)], "lane": [(0,)]}, {"x": 2})
    assert zeros.without_zero_columns("register") == kept
