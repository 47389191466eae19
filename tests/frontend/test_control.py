"""``if``, conditional expressions, loops and returns, interpreted and compared with Python."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge.language as tl
from ptxforge.language.registry import library as jit
from ptxforge.support.errors import CompilationError


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


# -- if ----------------------------------------------------------------------------------------------------


def if_else(out, n):
    if n > 3:
        a = n * 2
        b = 1
    else:
        a = n - 1
        b = n
    tl.store(out, a)
    tl.store(out + 1, b)


@pytest.mark.parametrize("n", [2, 5])
def test_names_of_both_branches_are_joined(interpret, n):
    out = ints(0, 0)
    interpret(if_else, out, n)
    assert out.tolist() == ([n * 2, 1] if n > 3 else [n - 1, n])


def if_alone(out, n):
    a = tl.full([4], 7, tl.int32)
    if n == 1:
        a += 1
        if n != 1:
            a = a * 100
    tl.store(out + tl.arange(0, 4), a)


@pytest.mark.parametrize("n", [np.int32(1), np.int32(2)])
def test_if_without_else_keeps_the_old_value(interpret, n):
    out = np.zeros(4, np.int32)
    interpret(if_alone, out, n)
    assert out.tolist() == [8 if n == 1 else 7] * 4


def static_if(out, x, FLAG: tl.constexpr):
    if FLAG:
        value = tl.load(x)
    else:
        value = None
    if value is not None:
        tl.store(out, value)


def test_only_the_taken_branch_of_a_static_if_exists(interpret, ir):
    out = ints(0)
    interpret(static_if, out, ints(9), FLAG=True)
    assert out[0] == 9
    assert "load" not in ir(static_if, {"out": "*i32", "x": "*i32"}, FLAG=False)


def one_branch_only(out, n):
    if n > 0:
        a = n
    tl.store(out, a)


def test_a_name_of_one_branch_has_no_value_after_it(ir):
    with pytest.raises(CompilationError, match="'a' has a value in only one branch of the 'if' at line"):
        ir(one_branch_only, {"out": "*i32", "n": "i32"})


def branch_locals(out, n):
    if n > 0:
        a = n * 2
        tl.store(out, a)
    else:
        a = tl.full([2], 1.0, tl.float32)
        tl.store(out, tl.sum(a).to(tl.int32))


@pytest.mark.parametrize("n", [-1, 4])
def test_a_name_that_nobody_reads_later_may_have_two_types(interpret, ir, n):
    out = ints(0)
    interpret(branch_locals, out, n)
    assert out[0] == (8 if n > 0 else 2)


def tuples_joined(out, n):
    pair = (n, n + 1)
    if n > 2:
        pair = (pair[1], pair[0])
    tl.store(out, pair[0])
    tl.store(out + 1, pair[1])


@pytest.mark.parametrize("n", [2, 3])
def test_tuples_are_joined_part_by_part(interpret, n):
    out = ints(0, 0)
    interpret(tuples_joined, out, n)
    assert out.tolist() == ([n + 1, n] if n > 2 else [n, n + 1])


# -- return ------------------------------------------------------------------------------------------------


def early_return(out, n):
    if n < 0:
        return
    tl.store(out, 1)
    if n < 10:
        return
    tl.store(out + 1, 1)
    if n < 20:
        tl.store(out + 2, 5)
    else:
        return
    tl.store(out + 3, 1)


@pytest.mark.parametrize(
    "n, expected", [(-1, [0, 0, 0, 0]), (5, [1, 0, 0, 0]), (15, [1, 1, 5, 1]), (25, [1, 1, 0, 0])]
)
def test_early_returns(interpret, n, expected):
    out = ints(0, 0, 0, 0)
    interpret(early_return, out, n)
    assert out.tolist() == expected


def return_on_some_paths(out, n):
    x = n
    if n > 10:
        x = n * 2
        if n > 20:
            return
        x += 1
    elif n < -10:
        if n < -20:
            tl.store(out + 1, 3)
            return
    tl.store(out, x)


@pytest.mark.parametrize("n", [-25, -15, 5, 15, 25])
def test_a_branch_may_return_on_some_of_its_paths(interpret, n):
    out = ints(0, 0)
    interpret(return_on_some_paths, out, n)
    x = 0 if abs(n) > 20 else n * 2 + 1 if n > 10 else n
    assert out.tolist() == [x, 3 if n < -20 else 0]


@jit
def bucket(x):
    if x < 0:
        return -1
    if x < 10:
        return 0
    if x < 100:
        if x % 2 == 0:
            return 2
        x = x + 1
    return x


def returned_values(out, n):
    tl.store(out, bucket(n))


@pytest.mark.parametrize("n, expected", [(-5, -1), (3, 0), (20, 2), (21, 22), (500, 500)])
def test_values_returned_under_runtime_ifs(interpret, n, expected):
    out = ints(0)
    interpret(returned_values, out, n)
    assert out[0] == expected


@jit
def sixteen(x):
    if x == 0:
        return 100
    if x == 1:
        return 101
    if x == 2:
        return 102
    if x == 3:
        return 103
    if x == 4:
        return 104
    if x == 5:
        return 105
    if x == 6:
        return 106
    if x == 7:
        return 107
    return 0


def many_returns(out):
    pid = tl.program_id(0)
    tl.store(out + pid, sixteen(pid))


def test_many_returns_in_a_row(interpret):
    out = np.ones(10, np.int32)
    interpret(many_returns, out, grid=10)
    assert out.tolist() == [100, 101, 102, 103, 104, 105, 106, 107, 0, 0]


@jit
def returns_pair(x, SWAP: tl.constexpr):
    if SWAP:
        return x + 1, x
    return x, x + 1


def tuple_return(out, n):
    a, b = returns_pair(n, True) if n > 5 else returns_pair(n, SWAP=False)
    tl.store(out, a)
    tl.store(out + 1, b)


@pytest.mark.parametrize("n", [5, 6])
def test_tuples_returned_through_a_conditional_expression(interpret, n):
    out = ints(0, 0)
    interpret(tuple_return, out, n)
    assert out.tolist() == ([n + 1, n] if n > 5 else [n, n + 1])


def return_in_static_loop(out, n):
    for i in tl.static_range(4):
        if n == i:
            return
        tl.store(out + i, 1)


def test_return_in_an_unrolled_loop(interpret):
    out = np.zeros(4, np.int32)
    interpret(return_in_static_loop, out, np.int32(2))
    assert out.tolist() == [1, 1, 0, 0]


# -- conditional expressions -------------------------------------------------------------------------------


def ternary(out, x, n):
    a = n if n > 3 else 3
    b = tl.load(x + n) if n < 2 else 0
    tl.store(out, a)
    tl.store(out + 1, b)


def test_conditional_expressions(interpret, ir):
    text = ir(ternary, {"out": "*i32", "x": "*i32", "n": "i32"})
    assert text.count("select") == 1  # arithmetic alone: both sides are computed
    assert text.count(" = if ") == 1  # a load must not run in vain
    out = ints(0, 0)
    interpret(ternary, out, ints(5, 6), 1)
    assert out.tolist() == [3, 6]
    interpret(ternary, out, ints(5, 6), 1000)
    assert out.tolist() == [1000, 0]


def blocks_by_condition(out, n):
    i = tl.arange(0, 4)
    x = i * 2 if n > 0 else i
    tl.store(out + i, x)


def test_a_scalar_condition_chooses_between_blocks(interpret):
    out = np.zeros(4, np.int32)
    interpret(blocks_by_condition, out, 5)
    assert out.tolist() == [0, 2, 4, 6]


def looked_up(out, x, n):
    i = tl.arange(0, 4)
    held = tl.load(x + i)
    place = tl.gather(held, i * 0 + n, 0) if n < 4 else i
    tl.store(out + i, place)


def test_a_look_up_that_is_not_chosen_does_not_run(interpret, ir):
    assert ir(looked_up, {"out": "*i32", "x": "*i32", "n": "i32"}).count(" = if ") == 1
    out = np.zeros(4, np.int32)
    interpret(looked_up, out, ints(5, 6, 7, 8), 2)
    assert out.tolist() == [7] * 4
    interpret(looked_up, out, ints(5, 6, 7, 8), 1000)
    assert out.tolist() == [0, 1, 2, 3]


# -- for ---------------------------------------------------------------------------------------------------


def count(out, lower, upper, STEP: tl.constexpr):
    n = 0
    last = -1
    for i in range(lower, upper, STEP):
        n += 1
        last = i
    tl.store(out, n)
    tl.store(out + 1, last)


@pytest.mark.parametrize(
    "bounds", [(0, 7, 1), (2, 11, 3), (5, 5, 1), (7, 2, 1), (10, 0, -3), (0, 10, -1), (9, -4, -2)]
)
def test_runtime_ranges(interpret, bounds):
    lower, upper, step = bounds
    out = ints(0, 0)
    interpret(count, out, np.int32(lower), np.int32(upper), STEP=step)
    expected = range(*bounds)
    assert out.tolist() == [len(expected), expected[-1] if expected else -1]


def static_bounds(out):
    for i in range(3, -1, -1):
        tl.store(out + i, i * i)
    for i in tl.range(4, 6, num_stages=2, loop_unroll_factor=2, flatten=True):
        tl.store(out + i, i)


def test_static_bounds_still_make_a_loop(interpret, ir):
    out = np.zeros(6, np.int32)
    interpret(static_bounds, out)
    assert out.tolist() == [0, 1, 4, 9, 4, 5]
    text = ir(static_bounds, {"out": "*i32"})
    assert "num_stages = 2" in text and "unroll = 2" in text and "flatten = true" in text


def fibonacci(out, n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    tl.store(out, a)


def test_carried_values_are_exchanged(interpret):
    out = ints(0)
    interpret(fibonacci, out, 10)
    assert out[0] == 55


def pointer_walk(out, x, stride, n):
    total = 0.0
    for _ in range(n):
        total += tl.load(x)
        x += stride
    tl.store(out, total)


def test_pointers_and_floats_are_carried(interpret):
    out, x = np.zeros(1, np.float32), np.arange(12, dtype=np.float32)
    interpret(pointer_walk, out, x, 3, 4)
    assert out[0] == x[::3].sum()


def nested(out, n, m):
    total = tl.zeros([4], tl.int32)
    for i in range(n):
        row = i * 10
        for j in range(i, m):
            if (i + j) % 2 == 0:
                total += row + j
            else:
                total -= 1
    tl.store(out + tl.arange(0, 4), total)


def test_nested_loops_with_branches(interpret):
    out = np.zeros(4, np.int32)
    interpret(nested, out, 3, 5)
    expected = sum(i * 10 + j if (i + j) % 2 == 0 else -1 for i in range(3) for j in range(i, 5))
    assert out.tolist() == [expected] * 4


def unchanged(out, n):
    a, b, c = n, n, n
    for i in range(n):
        c = c + a
        b = b
    tl.store(out, b + c)


def test_what_never_changes_is_not_carried(interpret, ir):
    out = ints(0)
    interpret(unchanged, out, 3)
    assert out[0] == 3 + 12
    header = next(line for line in ir(unchanged, {"out": "*i32", "n": "i32"}).splitlines() if " for " in line)
    assert header.count("%c") and "%b" not in header


def takes_what_stays(out, n):
    a, b = n * 2, n * 3
    for _ in range(n):
        a, b = b, a
        b = a
    c, d, k = n * 4, n * 5, 0
    while k < n:
        c, d, k = d, c, k + 1
        d = c
    tl.store(out, a * 100 + c)


@pytest.mark.parametrize("n, expected", [(0, 0), (1, 305), (4, 1220)])
def test_a_carried_value_becomes_one_that_never_changes(interpret, n, expected):
    out = ints(-1)
    interpret(takes_what_stays, out, n)
    assert out[0] == expected


def keeps_a_tuple(out, n):
    pair = (n, 7)
    for k in tl.static_range(2):
        if n > k:
            continue
        if n > 0:
            n += 1
    tl.store(out, pair[0] * 10 + pair[1])


def test_a_tuple_is_the_same_behind_an_iteration_that_ends_early(interpret):
    out = ints(-1)
    interpret(keeps_a_tuple, out, 3)
    assert out[0] == 37


def static_changes(out, n, START: tl.constexpr):
    for i in range(n):
        START = START + i
    tl.store(out, START)


def static_stays(out, n, BLOCK: tl.constexpr):
    for i in range(n):
        if BLOCK > 1000:
            BLOCK = 1000
        tl.store(out + tl.arange(0, BLOCK), i)


def test_a_static_number_becomes_runtime_only_if_it_changes(interpret):
    out = ints(0, 0, 0, 0)
    interpret(static_changes, out, 4, START=100)
    assert out[0] == 106
    interpret(static_stays, out, 4, BLOCK=4)
    assert out.tolist() == [3, 3, 3, 3]


def none_first(out, n):
    x = None
    for i in range(n):
        x = tl.arange(0, 4) + i
        tl.store(out + tl.arange(0, 4), x)


def none_read_first(out, n):
    x = None
    for i in range(n):
        if x is not None:
            tl.store(out, x)
        x = i


def test_none_before_a_loop(interpret, ir):
    out = np.zeros(4, np.int32)
    interpret(none_first, out, 2)
    assert out.tolist() == [1, 2, 3, 4]
    with pytest.raises(CompilationError, match="loop-carried variable 'x' is constexpr None before the loop"):
        ir(none_read_first, {"out": "*i32", "n": "i32"})


def wide_index(out, n):
    for i in range(n):
        tl.store(out + i, i)


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.uint64, np.int16])
def test_index_types(interpret, dtype):
    out = np.zeros(4, np.int64)
    interpret(wide_index, out, dtype(4))
    assert out.tolist() == [0, 1, 2, 3]


def unrolled(out):
    total = 0
    for i in tl.static_range(1, 4):
        total += i * tl.arange(0, 2 * i - (i - 1) * 2).shape[0]
    for name, factor in (("a", 10), ("b", 20)):
        if name == "b":
            total += factor
    tl.store(out, total)


def test_unrolled_loops(interpret):
    out = ints(0)
    interpret(unrolled, out)
    assert out[0] == 2 * 6 + 20


def loop_then_name(out, n):
    for i in range(n):
        x = i
    tl.store(out, x)


def test_names_of_a_loop_body_have_no_value_after_it(ir):
    with pytest.raises(CompilationError, match="'x' gets its value in the loop at line"):
        ir(loop_then_name, {"out": "*i32", "n": "i32"})


def loop_variable_after_it(out, n, step):
    for a in range(3):
        tl.store(out, a)
    tl.store(out, a)
    b = 7
    for b in range(n):
        tl.store(out + 1, b)
    tl.store(out + 1, b)
    for c in range(n, -3, -2):
        tl.store(out + 2, c)
    tl.store(out + 2, c)
    for d in range(1, n, step):
        if d > 5:
            break
    tl.store(out + 3, d)
    for b in range(n - 5):  # two loops, one variable
        tl.store(out + 4, b)
    tl.store(out + 4, b + 10)
    e = n
    for row in range(n):
        for e in range(row):
            tl.store(out + 5, e)
        tl.store(out + 5, e)
    tl.store(out + 5, e)
    tl.store(out + 6, row)
    if n > 3:
        for f in range(step, n):
            tl.store(out + 7, f)
        tl.store(out + 7, f)


def after_loops(n, step):
    """What Python makes of it."""
    found = [0] * 8
    found[0] = 2
    b = 7
    for b in range(n):
        pass
    found[1], c = b, None
    for c in range(n, -3, -2):
        pass
    found[2], d = c, 1 - step
    for d in range(1, n, step):
        if d > 5:
            break
    found[3] = d
    for b in range(n - 5):
        pass
    found[4], e, row = b + 10, n, -1
    for row in range(n):
        for e in range(row):
            pass
    found[5], found[6] = e, row
    for f in range(step, n):
        found[7] = f
    return found


@pytest.mark.parametrize(("n", "step"), [(4, 2), (9, 3), (20, 1), (6, 4), (0, 2), (2, 1)])
def test_a_loop_variable_keeps_its_last_value(interpret, n, step):
    """Where the loop does not run, what it had before, else one step less than the first."""
    out = np.zeros(8, np.int32)
    interpret(loop_variable_after_it, out, n, step)
    expected = after_loops(n, step)
    if n <= 3:
        expected[7] = 0
    assert out.tolist() == expected


def loop_variable_of_another_type(out, n):
    i = 0.5
    for i in range(n):
        tl.store(out, i)
    tl.store(out, i)


def loop_variable_of_a_branch(out, n):
    i = 3
    if n > 3:
        for i in range(n):
            tl.store(out, i)
    tl.store(out, i)


def loop_variable_that_changes(out, n):
    for i in range(n):
        i = i * 2
        tl.store(out, i)
    tl.store(out, i)


def loop_variable_that_a_loop_changes(out, n):
    for i in range(n):
        tl.store(out, i)
    while i > 0:
        i -= 1


@pytest.mark.parametrize(
    "kernel",
    [loop_variable_of_another_type, loop_variable_of_a_branch, loop_variable_that_changes,
     loop_variable_that_a_loop_changes],
)  # fmt: skip
def test_loop_variables_without_a_value_after_the_loop(ir, kernel):
    with pytest.raises(CompilationError, match="hint: assign it to another variable in the loop"):
        ir(kernel, {"out": "*i32", "n": "i32"})


# -- while -------------------------------------------------------------------------------------------------


def collatz(out, n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    tl.store(out, steps)


def test_while(interpret):
    out = ints(0)
    interpret(collatz, out, 27)
    assert out[0] == 111


def walrus(out, n):
    i = 0
    while (left := n - i) > 0:
        i += 1
        tl.store(out + i, left)
    tl.store(out, i)


def test_while_with_an_assignment_in_its_condition(interpret):
    out = np.zeros(5, np.int32)
    interpret(walrus, out, 4)
    assert out.tolist() == [4, 4, 3, 2, 1]


def spin(lock, out):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + 1)
    tl.atomic_xchg(lock, 0)


def test_spin_lock(interpret):
    lock, out = ints(0), ints(0)
    interpret(spin, lock, out, grid=3)
    assert (lock[0], out[0]) == (0, 3)


# -- boolean operators -------------------------------------------------------------------------------------


def boolean(out, n, FLAG: tl.constexpr):
    a = n > 2 and n < 5
    b = FLAG and n > 2
    c = not (n > 2) or FLAG
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c)
    tl.store(out + 3, 2 < n < 5)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_boolean_operators(interpret, n, flag):
    out = np.zeros(4, np.int32)
    interpret(boolean, out, n, FLAG=flag)
    assert out.tolist() == [2 < n < 5, flag and n > 2, not (n > 2) or flag, 2 < n < 5]


def branch_in_unrolled_loop(out, n):
    total = 0
    for i in tl.static_range(3):
        if i >= n:
            local = n * 10
            total += local
    tl.store(out, total)


def test_a_branch_local_name_does_not_leave_its_branch(interpret):
    out = ints(0)
    interpret(branch_in_unrolled_loop, out, np.int32(1))
    assert out[0] == 20


def returns_before_definition(out, n):
    if n > 3:
        x = n
        return
    if n > 2:
        y = n
    else:
        return
    tl.store(out, x + y)


def test_a_name_of_the_branch_that_returned(ir):
    with pytest.raises(CompilationError, match="'x' is not defined|'x' has a value in only one branch"):
        ir(returns_before_definition, {"out": "*i32", "n": "i32"})


def test_an_early_return_yields_nothing_needless(ir):
    text = ir(early_return, {"out": "*i32", "n": "i32"})
    assert " = if" not in text


@jit
def value_on_some_paths(n):
    if n > 3:
        return n


def uses_a_missing_value(out, n):
    tl.store(out, value_on_some_paths(n))


def test_a_value_on_some_paths_only(ir):
    with pytest.raises(
        CompilationError, match="returns different types on different paths: int32 and constexpr None"
    ):
        ir(uses_a_missing_value, {"out": "*i32", "n": "i32"})
