"""Random loops that read what they have written: in this iteration, in the one before or in an outer
loop's, through the same pointer, one that is moved, a block pointer, or another parameter that points at
the same memory, of which the compiler knows nothing. Loads must not run ahead of such stores, nor leave
their loop; of tiles that feed products neither. Barriers stand wherever threads read what others wrote.
Numpy says what is right.
"""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import LaunchedProgram
from tests.fuzz.twins import Env, Known, Twin, host_type

ROWS = 12
"""Parts of the memory that a program works on."""
TYPES = ("int32", "int32", "float32", "int16", "int64", "int8", "float16")


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Echoes(seed).program()


class _Echoes(Twin):
    def __init__(self, seed: int):
        super().__init__(seed, 84)
        self.is_product = self.chance(0.35)
        self.warps = self.pick((4, 4, 8)) if self.is_product else self.pick((1, 2, 4, 8, 16))
        self.stages = self.pick((2, 3, 4))
        self.grid = self.pick((1, 1, 2))
        self.dtype = (
            self.pick(("float16", "float16", "int8", "bfloat16")) if self.is_product else self.pick(TYPES)
        )
        self.shape = (
            self.pick(((64, 32), (64, 64), (16, 32), (128, 64)))
            if self.is_product
            else self.pick(((64,), (128,), (512,), (1024,), (8, 32), (32, 16), (1, 64)))
        )
        self.size = int(np.prod(self.shape))
        self.counters: list[Known] = []

    def program(self) -> LaunchedProgram:
        data = self.rng.integers(-2, 3, self.grid * ROWS * self.size).astype(host_type(self.dtype))
        self.names = [self.keep("o", data)]
        if self.chance(0.7):
            self.names.append("o1")
            self.arrays["o1"] = data
        if self.chance(0.4):
            self.other = self.keep("x", data.copy())
        else:
            self.other = self.names[0]
        self.emit("pid = tl.program_id(0)", f"i = {self.place(self.shape)}")
        kind = (
            "int32"
            if self.is_product and self.dtype == "int8"
            else "float32"
            if self.is_product
            else self.dtype
        )
        self.acc = Known("acc", kind, self.shape if not self.is_product else (self.shape[0],) * 2)
        zeros = np.zeros(self.acc.shape, host_type(kind))
        self.assign(self.acc, f"tl.zeros({self.acc.shape}, tl.{kind})", lambda env: zeros)
        if self.chance(0.3):
            self.step()
        self.loop()
        self.keep_value(self.acc)
        target = self.pick(("sm_90a", "sm_90a", "sm_80", "sm_120"))
        return self.complete("echo", target, self.pick((1, 1, 1, 2)) if target == "sm_90a" else 1)

    def loop(self) -> None:
        """A loop of one to three steps, in another one perhaps."""
        k = Known(self.fresh("k"), "int32", ())
        trips = self.pick((0, 1, 2, 3, 4, 5, 6)) if not self.counters else self.pick((1, 2, 3))
        n = self.number(self.fresh("n"), trips)
        advice = self.pick(
            (
                "",
                "",
                ", num_stages=3",
                ", num_stages=4",
                ", loop_unroll_factor=2",
                ", warp_specialize=True",
                ", flatten=True",
                "while",
            )
        )
        if advice == "while":
            self.emit(f"{k.name} = 0", f"while {k.name} < {n}:")
        else:
            self.emit(f"for {k.name} in tl.range(0, {n}{advice}):")

        def write() -> None:
            self.counters.append(k)
            for _ in range(self.pick((1, 1, 2))):
                self.step()
            if len(self.counters) == 1 and self.chance(0.3):
                self.loop()
                if self.chance(0.5):
                    self.step()
            if advice == "while":
                self.assign(k, f"{k.name} + 1", lambda env: np.asarray(env[k.name] + np.int32(1)))
            self.counters.pop()

        body = self.block(write)

        def act(env: Env) -> None:
            for number in range(trips):
                env[k.name] = np.asarray(number, np.int32)
                for one in body:
                    one(env)

        self.acts.append(act)

    # -- accesses --------------------------------------------------------------------------------------

    def row(self) -> tuple[str, object]:
        """A part of the memory, as text and as a function."""
        offset = self.pick((0, 0, 1, 1, 2))
        if not self.counters or self.chance(0.15):
            return str(offset), lambda env: offset
        k = self.pick(self.counters).name
        by = self.pick((1, 1, 1, 2, -1))
        if by < 0:
            return f"({ROWS - 3 + offset} - {k})", lambda env: ROWS - 3 + offset - int(env[k])
        kept = offset % (2 if by == 2 else 3)
        more = self.pick(("", "", f" % {ROWS}"))
        return f"({k} * {by} + {kept}){more}", lambda env: int(env[k]) * by + kept

    def order(self) -> tuple[str, np.ndarray]:
        """Which element of a part each element is: itself, or one that another thread has."""
        linear = np.arange(self.size).reshape(self.shape)
        turn = self.pick((0, 0, 0, 1, self.size - 1, self.size // 2))
        return (f"(i ^ {turn})", linear ^ turn) if turn else ("i", linear)

    def reading(self, name: str) -> tuple[str, object]:
        text, row = self.row()
        size, shape = self.size, self.shape
        if len(shape) == 2 and self.chance(0.25):
            place = f"(tl.program_id(0) * {ROWS} + {text}) * {shape[0]}"
            total = self.grid * ROWS * shape[0]
            sizes = f"({total}, {shape[1]}), ({shape[1]}, 1)"
            how = f"tl.load(tl.make_block_ptr({name}, {sizes}, ({place}, 0), {shape}, (1, 0)))"
            at = np.arange(size).reshape(shape)
        else:
            order, at = self.order()
            mask = self.pick(("", "", f", mask=i < {size}, other=0"))
            how = f"tl.load({name} + (pid * {ROWS} + {text}) * {size} + {order}{mask})"
        return how, lambda env: env[name][(int(env["pid"]) * ROWS + row(env)) * size + at]

    def step(self) -> None:
        """Something is read, added up and stored."""
        name, goal = self.pick([*self.names, self.other]), self.pick(self.names)
        given, value = self.reading(name)
        if self.is_product:
            second, other = self.reading(self.pick([*self.names, self.other]))
            kind = host_type(self.acc.dtype)
            wide = np.int64 if self.acc.dtype == "int32" else np.float64
            self.define_step(
                f"tl.dot({given}, tl.trans({second}), acc)",
                lambda env: (
                    env["acc"].astype(wide) + value(env).astype(wide) @ other(env).astype(wide).T
                ).astype(kind),
            )
            if self.chance(0.15):
                return
            text, stored = self.changed(given, value)
        else:
            kind = host_type(self.dtype)
            three = kind.type(3)
            if self.dtype.startswith("float"):
                self.define_step(
                    f"tl.where(acc > 50, acc - 64, acc + {given})",
                    lambda env: np.where(
                        env["acc"] > 50, env["acc"] - kind.type(64), env["acc"] + value(env)
                    ),
                )
                text, stored = self.changed(given, value)
            else:
                self.define_step(f"acc * 3 + {given}", lambda env: env["acc"] * three + value(env))
                text, stored = "acc", lambda env: env["acc"]
        self.write(goal, text, stored)

    def define_step(self, text: str, value) -> None:
        self.assign(self.acc, text, value)

    def changed(self, given: str, value) -> tuple[str, object]:
        """What is read, as another small number."""
        kind = host_type(self.dtype)
        text = f"tl.where({given} > 1, -2, {given} + 1).to(tl.{self.dtype})"
        return text, lambda env: np.where(value(env) > 1, kind.type(-2), value(env) + kind.type(1)).astype(
            kind
        )

    def write(self, goal: str, text: str, value) -> None:
        part, row = self.row()
        order, at = self.order()
        self.emit(f"kept = {text}", "tl.debug_barrier()")
        self.emit(
            f"tl.store({goal} + (pid * {ROWS} + {part}) * {self.size} + {order}, kept)", "tl.debug_barrier()"
        )

        def act(env: Env) -> None:
            env[goal][(int(env["pid"]) * ROWS + row(env)) * self.size + at] = value(env)

        self.acts.append(act)
