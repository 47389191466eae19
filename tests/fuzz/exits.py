"""Steps of the random programs: loops that are left early, tuples, parts of blocks, functions on elements.

They draw from the program's generator, as the methods of :mod:`tests.fuzz.generate` do.
"""

from __future__ import annotations

from typing import Any

import attrs

HELPERS = """

@ptxforge.jit
def search(x, n, limit):
    for k in range(n):
        x = x * 3 + k
        if k % 2 == 1:
            continue
        if k * 3 + n > limit:
            return x - limit, k
        x ^= 5
    return x, n


@ptxforge.jit
def steps(a, b):
    if a % 3 == 0:
        return b - 1
    c = a if b > 2 else a + b
    if c < 0:
        c = -c
    return c * 2
"""
"""Functions that these steps call; they stand in front of the kernels."""

_HEADERS = (
    "range(s)", "range(1, s + 3)", "range(9, s, -2)", "tl.static_range(4)", "range(0, 5)",
    "tl.range(s, 7, 2)",
)  # fmt: skip
_WHEN = ("{e} % 3 == 1", "k == 1", "(k + pid) % 2 == 0", "{e} + k > 6", "(k > 0) & (n > 3)")


def _two(g: Any) -> tuple[Any, Any]:
    """Two new variables of int32 and one shape."""
    one, other = g.pair("int32")
    shape = tuple(max(a, b) for a, b in zip(one.shape, other.shape)) or one.shape or other.shape
    return tuple(
        g.assign(f"{x.name} + {y.name} * 0", "int32", shape) for x, y in ((one, other), (other, one))
    )


def leave_a_loop(g: Any) -> None:
    """``break`` and ``continue`` under conditions of the program, in a ``for`` or a ``while``."""
    (value, other), e = _two(g), g.fresh("e")
    g.emit(f"{e} = s")
    if g.rng.random() < 0.6:
        g.emit(f"for k in {g.pick(_HEADERS)}:")
        g.indent += 1
    else:
        g.emit("k = 0")
        g.emit(g.pick(("while k < s + 2:", "while True:")))
        g.indent += 1
        g.emit("k += 1")
        g.emit("if k > 7:")
        g.emit("    break")
    c, w = value.name, other.name
    updates = (f"{c} = {c} * 3 + k", f"{c} = {c} ^ {w}", f"{e} += k", f"{c} += {e}", f"{w} = {c} - k")
    for _ in range(int(g.rng.integers(2, 4))):
        g.emit(g.pick(updates))
        g.emit(f"if {g.pick(_WHEN).format(e=e)}:")
        g.emit(f"    {g.pick(updates)}")
        g.emit(f"    {g.pick(('break', 'continue', 'continue'))}")
    g.emit(g.pick(updates))
    g.indent -= 1
    g.pool.append(attrs.evolve(value, name=e, shape=()))


def leave_by_return(g: Any) -> None:
    """A function that returns from inside its loop."""
    value, e = g.converted(g.choose(lambda t: t.is_int), "int32"), g.fresh("e")
    g.emit(f"{e}x, {e} = search({value.name}, {g.pick(('s', '4', 's + pid'))}, {g.pick((2, 5, 9))})")
    g.pool += [attrs.evolve(value, name=f"{e}x"), attrs.evolve(value, name=e, shape=())]


def tuples(g: Any) -> None:
    """A tuple that a loop carries, its parts exchanged and joined."""
    (one, other), t = _two(g), g.fresh("t")
    g.emit(f"{t} = ({one.name}, ({other.name}, s))")
    g.emit(f"for k in {g.pick(_HEADERS)}:")
    g.emit(f"    {t} = ({t}[1][0] + k, ({t}[0] * 3, {t}[1][1] + 1))")
    if g.rng.random() < 0.5:
        g.emit(f"    if k == {g.pick((1, 2))}:")
        g.emit(f"        {t} = ({t}[0], ({t}[0] ^ {t}[1][0], k + 0))")
    g.emit(f"{t}a, {t}b, {t}c = ({t}[0],) + {t}[1]")
    names = ((f"{t}a", one.shape), (f"{t}b", one.shape), (f"{t}c", ()))
    g.pool += [attrs.evolve(one, name=name, shape=shape) for name, shape in names]


def part(g: Any) -> None:
    """Part of a block, aligned or not."""
    tile = g.choose(lambda t: t.is_exact and t.shape and t.shape[0] > 1 and not t.is_bool)
    if tile is None:
        return g.arithmetic()
    size = tile.shape[0]
    text, count = g.pick((
        (f":{size // 2}", size // 2), (f"{size // 2}:", size // 2), ("::2", size // 2), ("1::2", size // 2),
        ("::-1", size), (f"{size - 1}:", 1), (f"{size // 4}:{size // 4 + size // 2}", size // 2),
    ))  # fmt: skip
    g.assign(f"{tile.name}[{text}]", tile.dtype, (count, *tile.shape[1:]), tile.bound)


def elements(g: Any) -> None:
    """A function of scalars on the elements of blocks."""
    one, other = _two(g)
    if one.shape:
        g.assign(f"tl.map_elementwise(steps, {one.name}, {other.name})", "int32", one.shape)


STEPS = (leave_a_loop, leave_a_loop, leave_by_return, tuples, part, elements)
