"""Text of gpu IR with buffers in shared memory."""

from __future__ import annotations

SHARED = "#shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>"
BLOCKED = "#blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
BUFFER = f"memdesc<1024xf32, {SHARED}, mutable>"
TILE = f"tensor<1024xf32, {BLOCKED}>"


def alloc(name: str) -> str:
    return f"%{name} = local_alloc : () -> {BUFFER}\n"


LOOP = "%c0 = constant {value = 0} : i32\n%c1 = constant {value = 1} : i32\n"
