"""Steps of random programs of which numpy says what is right (``truths.py``) about places in memory:
promises that hold (``multiple_of``, ``max_contiguous``, ``max_constancy``, ``assume``), strides that are
arguments, loops whose loads may run ahead while their pointers are carried, exchanged, chosen by a
condition, or lead where another load says, under masks that a loop changes; backwards, by no step at all,
and with bounds that are loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.twins import Env, Known, host_type

TYPES = ("int32", "int32", "int16", "uint8", "int64", "uint32")
PARTS = 8
"""Tiles of an array in which loops walk."""


def promised(g: Any) -> None:
    """A load through places of which something true is said."""
    shape, dtype = g.shape, g.pick(TYPES)
    count, last = int(np.prod(shape)), shape[-1]
    first, stride = g.pick((0, 16, 48)), g.pick((1, 1, 2, 0, 3, -1))
    base = first if stride >= 0 else first + count
    data = g.rng.integers(0, 100, base + count * abs(stride) + 1).astype(host_type(dtype))
    array, n, s = g.keep("x", data), g.fresh("n"), g.fresh("n")
    g.scalars[n], g.scalars[s] = base, stride
    linear = np.arange(count, dtype=np.int64).reshape(shape)
    at = linear * stride + base
    if base % 16 == 0 and g.chance(0.5):
        g.emit(f"{n} = tl.multiple_of({n}, 16)")
    if g.chance(0.4):
        g.emit(f"tl.assume({n} >= 0)", *([f"tl.assume({s} > 0)"] if stride > 0 else []))
    place = f"({g.place(shape)})"
    ones = ", ".join(["1"] * (len(shape) - 1) + [str(last)])
    if g.chance(0.6):
        place = f"tl.max_contiguous({place}, [{ones}])"
    if g.chance(0.4):
        place = f"tl.multiple_of({place}, [{ones}])"
    if stride == 0 and g.chance(0.5):
        place = f"tl.max_constancy({place} * {s}, [{ones}])"
    else:
        place = f"{place} * {s}"
    end, mask, keeps = base + int(g.rng.integers(count + 1)), "", np.ones(shape, bool)
    if g.chance(0.5):
        m = g.number(g.fresh("n"), end)
        mask, keeps = f", mask={n} + {place} < {m}, other=9", at < end
    nine = host_type(dtype).type(9)
    g.define(
        f"tl.load({array} + {n} + {place}{mask})",
        lambda env: np.where(keeps, env[array][np.where(keeps, at, base)], nine),
        dtype,
        shape,
    )


class _Walk:
    """A loop that adds up what it loads."""

    def __init__(self, g: Any):
        self.g, self.shape = g, g.shape
        self.size = int(np.prod(g.shape))
        self.dtype = g.pick(TYPES)
        self.linear = np.arange(self.size).reshape(g.shape)
        self.array = self.data()
        self.other = self.data() if g.chance(0.5) else self.array
        self.trips = g.pick((0, 1, 2, 3, 5, 7))
        self.k = Known(g.fresh("k"), "int32", ())

    def data(self) -> str:
        kind = host_type(self.dtype)
        return self.g.keep("x", self.g.rng.integers(0, 100, PARTS * self.size).astype(kind))

    def head(self) -> None:
        """Numbers of steps may be known, given, or loaded."""
        g, n = self.g, str(self.trips)
        how = g.pick(("known", "given", "given", "loaded"))
        if how == "given":
            n = g.fresh("n")
            g.scalars[n] = self.trips
        elif how == "loaded":
            n = f"tl.load({g.keep('x', np.array([self.trips], np.int32))})"
        self.advice = g.pick(
            (
                "",
                "num_stages=2",
                "num_stages=3",
                "num_stages=4",
                "loop_unroll_factor=2",
                "num_stages=3, loop_unroll_factor=2",
                "flatten=True",
                "warp_specialize=True",
            )
        )
        self.is_turned = g.chance(0.3)
        bounds = f"{n} - 1, -1, -1" if self.is_turned else f"0, {n}"
        g.emit(f"for {self.k.name} in tl.range({bounds}{', ' * bool(self.advice)}{self.advice}):")

    def numbers(self) -> Any:
        return range(self.trips - 1, -1, -1) if self.is_turned else range(self.trips)

    def loads(self) -> list[tuple[str, str, Any, Any]]:
        """Lines in front of the loop, of the loop, and what is loaded in a step."""
        g, k, size = self.g, self.k.name, self.size
        place = f"({g.place(self.shape)})"
        how = g.pick(("carried", "exchanged", "chosen", "listed", "counted", "rest", "still", "branch"))
        p, q = g.fresh("p"), g.fresh("p")
        a, b = self.array, self.other
        if how == "carried":
            by = g.pick((size, 0, -size))
            start = (PARTS - 1) * size if by < 0 else 0
            return [
                [f"{p} = {a} + {place} + {start}"],
                f"tl.load({p})",
                [f"{p} += {by}"],
                lambda env, turn, number: env[a][self.linear + start + turn * by],
            ]
        if how == "exchanged":
            return [
                [f"{p} = {a} + {place}", f"{q} = {b} + {place} + {size}"],
                f"tl.load({p})",
                [f"{p}, {q} = {q}, {p}"],
                lambda env, turn, number: env[b][self.linear + size] if turn % 2 else env[a][self.linear],
            ]
        if how == "chosen":
            return [
                [],
                f"tl.load(tl.where({k} % 3 == 1, {a}, {b}) + {k} * {size} + {place})",
                [],
                lambda env, turn, number: env[a if number % 3 == 1 else b][self.linear + number * size],
            ]
        if how == "branch":
            return [
                [f"{p} = {a} + {place}"],
                f"tl.load({p})",
                [f"if {k} % 2 == 0:", f"    {p} = {b} + {place} + {k} * {size}"],
                None,
            ]
        if how == "listed":
            rows = g.rng.integers(0, PARTS, PARTS).astype(np.int32)
            listed = g.keep("x", rows)
            return [
                [],
                f"tl.load({a} + tl.load({listed} + {k}) * {size} + {place})",
                [],
                lambda env, turn, number: env[a][self.linear + int(rows[number]) * size],
            ]
        if how == "rest":
            by = g.pick((3, 5))
            return [
                [],
                f"tl.load({a} + ({k} * {by} + 1) % {PARTS} * {size} + {place})",
                [],
                lambda env, turn, number: env[a][self.linear + (number * by + 1) % PARTS * size],
            ]
        if how == "still":
            return [
                [],
                f"tl.load({a} + {size} + {place})",
                [],
                lambda env, turn, number: env[a][self.linear + size],
            ]
        end = int(g.rng.integers(PARTS * size + 1))
        m = g.number(g.fresh("n"), end)
        kind = host_type(self.dtype).type
        return [
            [],
            f"tl.load({a} + {k} * {size} + {place}, mask={k} * {size} + {place} < {m}, other=5)",
            [],
            lambda env, turn, number: np.where(
                self.linear + number * size < end, env[a][self.linear + number * size], kind(5)
            ),
        ]


def walk(g: Any) -> None:
    """A loop of one or two loads."""
    if g.depth:
        return promised(g)
    one = _Walk(g)
    parts = [one.loads() for _ in range(g.pick((1, 2)))]
    acc = Known(g.fresh("v"), one.dtype, g.shape)
    kind = host_type(one.dtype)
    g.emit(*[line for part in parts for line in part[0]])
    g.assign(acc, f"tl.zeros({g.shape}, tl.{one.dtype})", lambda env: np.zeros(g.shape, kind))
    one.head()
    step, three = g.pick(("plain", "masked", "max", "reduced")), kind.type(3)
    body = " + ".join(part[1] for part in parts)
    lines = {
        "plain": [f"{acc.name} = {acc.name} * 3 + {body}"],
        "masked": [f"{acc.name} = tl.where({one.k.name} % 2 == 1, {acc.name} * 3, {acc.name} + {body})"],
        "max": [f"{acc.name} = tl.maximum({acc.name} + 1, {body}).to(tl.{one.dtype})"],
        "reduced": [f"{acc.name} = {acc.name} * 3 + tl.sum({body}, 0, keep_dims=True).to(tl.{one.dtype})"],
    }[step]
    g.emit(*[f"    {line}" for line in lines], *[f"    {line}" for part in parts for line in part[2]])

    def change(held: np.ndarray, value: np.ndarray, number: int) -> np.ndarray:
        if step == "plain":
            return held * three + value
        if step == "masked":
            return held * three if number % 2 == 1 else held + value
        if step == "max":
            return np.maximum(held + kind.type(1), value)
        return held * three + value.sum(0, keepdims=True, dtype=kind)

    def act(env: Env) -> None:
        chosen = [env[one.array][one.linear] for _ in parts]
        with np.errstate(all="ignore"):
            for turn, number in enumerate(one.numbers()):
                values = [
                    held if part[3] is None else part[3](env, turn, number)
                    for part, held in zip(parts, chosen, strict=True)
                ]
                env[acc.name] = change(env[acc.name], sum(values[1:], values[0]), number).astype(kind)
                if number % 2 == 0:
                    chosen = [env[one.other][one.linear + number * one.size] for _ in parts]

    g.acts.append(act)
    g.pool.append(acc)


STEPS = (promised, promised, *[walk] * 3)
