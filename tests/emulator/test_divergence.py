"""Random structured programs, diverging at every turn, against a thread-by-thread interpreter in Python.

On the emulator lanes must also have met again after every top-level statement: `activemask` there names all
lanes that are left.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from .harness import HEADER, run

REGISTERS = 6
OPERATIONS = {
    "add.u32": lambda a, b: a + b, "sub.u32": lambda a, b: a - b, "mul.lo.u32": lambda a, b: a * b,
    "xor.b32": lambda a, b: a ^ b, "and.b32": lambda a, b: a & b, "or.b32": lambda a, b: a | b,
    "min.u32": min,
}  # fmt: skip
ONES = 0xFFFFFFFF


class Exit(Exception):
    """The thread has left the kernel."""


class Operation:
    def __init__(self, r: random.Random):
        self.name = r.choice(list(OPERATIONS))
        self.target, self.a, self.b = (r.randrange(REGISTERS) for _ in range(3))

    def run(self, v: list[int]) -> None:
        v[self.target] = OPERATIONS[self.name](v[self.a], v[self.b]) & ONES

    def emit(self, out: list[str], serial: list[int]) -> None:
        out.append(f"{self.name} %v{self.target}, %v{self.a}, %v{self.b};")


class Branch:
    """if (v % modulus == 0) then ... else ..."""

    def __init__(self, r: random.Random, depth: int):
        self.on, self.modulus = r.randrange(REGISTERS), r.randrange(2, 5)
        self.then, self.other = sequence(r, depth), sequence(r, depth) if r.random() < 0.6 else []

    def run(self, v: list[int]) -> None:
        for statement in self.then if v[self.on] % self.modulus == 0 else self.other:
            statement.run(v)

    def emit(self, out: list[str], serial: list[int]) -> None:
        serial[0] += 1
        number = serial[0]
        out.append(f"rem.u32 %x, %v{self.on}, {self.modulus}; setp.ne.u32 %p, %x, 0; @%p bra ELSE{number};")
        emit_all(self.then, out, serial)
        out.append(f"bra FI{number}; ELSE{number}:")
        emit_all(self.other, out, serial)
        out.append(f"FI{number}:")


class Loop:
    """for k in range(v % 5 + 1), with a conditional break or continue at its head."""

    def __init__(self, r: random.Random, depth: int):
        self.on, self.leave, self.test = (
            r.randrange(REGISTERS),
            r.choice(["break", "continue", ""]),
            r.randrange(REGISTERS),
        )
        self.body = sequence(r, depth)

    def run(self, v: list[int]) -> None:
        for k in range(v[self.on] % 5 + 1):
            v[5] = v[5] + k & ONES
            if self.leave == "break" and v[self.test] % 3 == 1:
                break
            if self.leave == "continue" and v[self.test] % 3 == 1:
                continue
            for statement in self.body:
                statement.run(v)

    def emit(self, out: list[str], serial: list[int]) -> None:
        serial[0] += 1
        n = serial[0]
        out.append(f"{{ .reg .u32 %n, %k; rem.u32 %n, %v{self.on}, 5; mov.u32 %k, 0;")
        out.append(f"HEAD{n}: setp.gt.u32 %p, %k, %n;")
        out.append(f"@%p bra TAIL{n}; add.u32 %v5, %v5, %k; add.u32 %k, %k, 1;")
        if self.leave:
            target = f"TAIL{n}" if self.leave == "break" else f"HEAD{n}"
            out.append(f"rem.u32 %x, %v{self.test}, 3; setp.eq.u32 %p, %x, 1; @%p bra {target};")
        emit_all(self.body, out, serial)
        out.append(f"bra HEAD{n}; TAIL{n}: mov.u32 %k, 0; }}")


class Leave:
    """Some threads are done here."""

    def __init__(self, r: random.Random):
        self.on, self.value = r.randrange(REGISTERS), r.randrange(64)

    def run(self, v: list[int]) -> None:
        if v[self.on] % 64 == self.value:
            raise Exit

    def emit(self, out: list[str], serial: list[int]) -> None:
        out.append(f"rem.u32 %x, %v{self.on}, 64; setp.eq.u32 %p, %x, {self.value}; @%p bra OUT;")


def sequence(r: random.Random, depth: int) -> list:
    makers = [lambda: Operation(r)] * 5
    if depth:
        makers += [lambda: Branch(r, depth - 1)] * 3 + [lambda: Loop(r, depth - 1)] * 2 + [lambda: Leave(r)]
    return [r.choice(makers)() for _ in range(r.randint(1, 4))]


def emit_all(statements: list, out: list[str], serial: list[int]) -> None:
    for statement in statements:
        statement.emit(out, serial)


def kernel(program: list) -> str:
    lines: list[str] = []
    serial = [0]
    for statement in program:
        statement.emit(lines, serial)
        lines.append("activemask.b32 %x; mad.lo.u32 %met, %met, 31, %x;")
    body = "\n".join(lines)
    stores = " ".join(f"st.global.u32 [%a+{4 * n}], %v{n};" for n in range(REGISTERS))
    return (
        HEADER.format(target="sm_90")
        + f"""
    .visible .entry k(.param .u64 out) {{
      .reg .b32 %v<{REGISTERS}>, %x, %t, %c, %met; .reg .b64 %a; .reg .pred %p;
      mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %x, %ntid.x; mad.lo.u32 %v0, %c, %x, %t;
      ld.param.u64 %a, [out]; mad.wide.u32 %a, %v0, {4 * REGISTERS + 4}, %a; mov.u32 %met, 0;
      mul.lo.u32 %v1, %v0, 7; xor.b32 %v2, %v0, 21; mov.u32 %v3, 3; add.u32 %v4, %c, 5; mov.u32 %v5, 1;
      {body}
      OUT: {stores} st.global.u32 [%a+{4 * REGISTERS}], %met; ret;
    }}"""
    )


def expected(program: list, blocks: int, threads: int) -> np.ndarray:
    """What every thread leaves, and the fold of the masks that it saw."""
    values = [[n, n * 7 & ONES, n ^ 21, 3, n // threads + 5, 1] for n in range(blocks * threads)]
    met = [0] * len(values)
    alive = list(range(len(values)))
    for statement in program:
        still = []
        for n in alive:
            try:
                statement.run(values[n])
                still.append(n)
            except Exit:
                pass
        alive = still
        for n in alive:
            warp = n // threads, n % threads // 32
            mask = sum(1 << m % threads % 32 for m in alive if (m // threads, m % threads // 32) == warp)
            met[n] = met[n] * 31 + mask & ONES
    return np.array([v + [m] for v, m in zip(values, met)], np.uint32)


@pytest.mark.parametrize("seed", range(60))
def test_random_program(machine, seed):
    r = random.Random(seed)
    program = sequence(r, 3)
    blocks, threads = 3, r.choice([32, 48, 64])
    out = np.zeros((blocks * threads, REGISTERS + 1), np.uint32)
    run(machine, kernel(program), "k", blocks, threads, out)
    want = expected(program, blocks, threads)
    # Hardware does not promise where lanes meet again.
    columns = slice(None) if machine.name == "emulator" else slice(0, REGISTERS)
    np.testing.assert_array_equal(out[:, columns], want[:, columns])
