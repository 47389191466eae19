"""Targets: what an architecture can do, as data.

Passes and the code generator ask a :class:`Target` for a feature; nobody compares architecture numbers
elsewhere. Sources: PTX ISA 9.0, the "Target ISA Notes" and "PTX ISA Notes" of each instruction, and the
CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (limits).
"""

from __future__ import annotations

import functools
import re

import attrs

from ptxforge.support import machine
from ptxforge.support.errors import CompilationError

DEFAULT_TARGET = "sm_90a"
"""What is compiled for where nobody says it and there is no GPU."""

# compute capability -> (PTX version that introduced it, opt-in shared bytes per block, per multiprocessor;
#                        threads, blocks of a multiprocessor)
_ARCHITECTURES: dict[int, tuple[tuple[int, int], int, int, int, int]] = {
    80: ((7, 0), 163 * 1024, 164 * 1024, 2048, 32),
    86: ((7, 1), 99 * 1024, 100 * 1024, 1536, 16),
    87: ((7, 4), 163 * 1024, 164 * 1024, 1536, 16),
    89: ((7, 8), 99 * 1024, 100 * 1024, 1536, 24),
    90: ((7, 8), 227 * 1024, 228 * 1024, 2048, 32),
    100: ((8, 6), 227 * 1024, 228 * 1024, 2048, 32),
    103: ((8, 8), 227 * 1024, 228 * 1024, 2048, 32),
    120: ((8, 7), 99 * 1024, 100 * 1024, 1536, 24),
}
_ACCELERATED_PTX = {90: (8, 0), 100: (8, 6), 103: (8, 8), 120: (8, 7)}


@attrs.frozen(slots=True)
class FunctionAttributes:
    """What loading a kernel tells about it: ``registers`` and local bytes (spills and stack) per thread,
    and the largest block that its registers allow."""

    registers: int
    local_bytes: int
    max_threads_per_block: int


@attrs.frozen(slots=True)
class Occupancy:
    """``blocks`` fit on a multiprocessor, ``warps`` of ``most``; ``limits`` is how many would for each
    resource."""

    blocks: int
    warps: int
    most: int
    limits: dict[str, int]

    @property
    def limiter(self) -> str:
        """The resource that lets the fewest blocks in."""
        return min(self.limits, key=self.limits.__getitem__)


@attrs.frozen(slots=True)
class Target:
    """An architecture, such as ``sm_80`` or ``sm_90a``
    (``accelerated``: its own, not forward-compatible, features)."""

    sm: int
    accelerated: bool = False

    def __str__(self) -> str:
        return f"sm_{self.sm}{'a' if self.accelerated else ''}"

    @property
    def ptx_version(self) -> tuple[int, int]:
        """The lowest PTX ISA version that knows this target."""
        return _ACCELERATED_PTX[self.sm] if self.accelerated else _ARCHITECTURES[self.sm][0]

    @property
    def max_shared_bytes(self) -> int:
        """Shared memory that one block can have, with the opt-in above 48 KiB."""
        return _ARCHITECTURES[self.sm][1]

    def shared_bytes_for_as_many_blocks(self, total: int) -> int:
        """How many bytes a block may take in place of ``total`` without there being fewer blocks: all of them
        where ``total`` leaves no room for a second one."""
        return self.max_shared_bytes if 2 * total > self.max_shared_bytes else total

    @property
    def shared_bytes_per_multiprocessor(self) -> int:
        """Shared memory of a multiprocessor, for all of its blocks and what the system takes for each."""
        return _ARCHITECTURES[self.sm][2]

    @property
    def threads_per_multiprocessor(self) -> int:
        """Threads of all blocks together that a multiprocessor holds."""
        return _ARCHITECTURES[self.sm][3]

    @property
    def blocks_per_multiprocessor(self) -> int:
        """Blocks that a multiprocessor holds."""
        return _ARCHITECTURES[self.sm][4]

    def occupancy(self, threads: int, registers: int, shared_bytes: int) -> Occupancy:
        """How many blocks of so many ``threads`` fit on a multiprocessor, by the ``registers`` of a thread
        (0: unknown, no limit) and the shared memory of a block."""
        warps = -(-threads // machine.WARP_SIZE)
        fit = {"threads": self.threads_per_multiprocessor // (warps * machine.WARP_SIZE),
               "blocks": self.blocks_per_multiprocessor}  # fmt: skip
        if registers:
            per_warp = _in_units(registers * machine.WARP_SIZE, machine.REGISTER_UNIT)
            fit["registers"] = machine.REGISTERS_PER_MULTIPROCESSOR // per_warp // warps
        per_block = _in_units(shared_bytes, machine.SHARED_UNIT) + machine.SYSTEM_SHARED_BYTES
        fit["shared memory"] = self.shared_bytes_per_multiprocessor // per_block
        blocks = min(fit.values())
        return Occupancy(blocks, blocks * warps, self.threads_per_multiprocessor // machine.WARP_SIZE, fit)

    @property
    def max_threads_per_block(self) -> int:
        """Threads that one block can have."""
        return 1024

    @property
    def has_native_fp8_cvt(self) -> bool:
        """``cvt`` between e4m3x2/e5m2x2 and f16x2 or f32."""
        return self.sm >= 89

    @property
    def has_fp8_mma(self) -> bool:
        """``mma.sync`` of e4m3 and e5m2."""
        return self.sm >= 89

    @property
    def has_bf16_arithmetic(self) -> bool:
        """``add/sub/mul.bf16`` and ``cvt`` between bf16 and integers, as single instructions."""
        return self.sm >= 90

    @property
    def has_bf16_cvt(self) -> bool:
        """``cvt.bf16.*`` from types other than f32, and to f16/f64."""
        return self.sm >= 90

    @property
    def has_grid_dependencies(self) -> bool:
        """``griddepcontrol``: a kernel that starts before the one in front of it has ended."""
        return self.sm >= 90

    @property
    def has_redux_f32(self) -> bool:
        """``redux.sync`` of f32."""
        return self.sm >= 100 and self.accelerated

    @property
    def has_packed_atomics(self) -> bool:
        """Vector ``red/atom.global.v2/v4.f32`` and ``.v8.f16``-like forms."""
        return self.sm >= 90

    @property
    def has_cluster(self) -> bool:
        """Clusters of blocks with distributed shared memory."""
        return self.sm >= 90

    @property
    def has_tma(self) -> bool:
        """Copies of boxes of tensors by the tensor memory accelerator, and mbarriers that count their
        bytes."""
        return self.sm >= 90

    @property
    def has_wgmma(self) -> bool:
        """``wgmma`` (Hopper with its own features, ``sm_90a``)."""
        return self.sm == 90 and self.accelerated

    @property
    def widest_global_access(self) -> int:
        """The most bits that one ``ld/st.global`` moves for a thread."""
        return 256 if self.sm >= 100 else 128


def _in_units(size: int, unit: int) -> int:
    return -(-size // unit) * unit


@functools.lru_cache(maxsize=None)
def parse_target(text: str) -> Target:
    """``"sm_90a"`` → :class:`Target`. Raises :class:`CompilationError` for an architecture that is not
    known."""
    match = re.fullmatch(r"sm_(\d+)(a|f)?", text)
    known = ", ".join(f"sm_{sm}" for sm in _ARCHITECTURES)
    if match is None or int(match[1]) not in _ARCHITECTURES:
        hint = f"known targets: {known} (and an 'a' suffix from sm_90)"
        raise CompilationError(f"unknown target '{text}'", hint=hint)
    sm, accelerated = int(match[1]), match[2] == "a"
    if match[2] == "f" or (accelerated and sm not in _ACCELERATED_PTX):
        raise CompilationError(
            f"unknown target '{text}'", hint=f"known targets: {known} (and an 'a' suffix from sm_90)"
        )
    return Target(sm, accelerated)
