"""The instructions of tensor cores, in one table: what each multiplies, sums in, and how large it is.

Passes ask it which products can be done, the code generator how the instruction is called. A row is a family
of instructions that differ in nothing but the types in its columns. Types are those of the IR; PTX's names
stand in ``PTX_TYPES``.

Source: PTX ISA 9.0, "Warp Level Matrix Instructions: mma" and "Asynchronous Warpgroup Level Matrix
Instructions: wgmma.mma_async", tables of shapes and types. Their smaller shapes along k are left
out: a tile that is less deep wraps, and repeats its elements.
"""

from __future__ import annotations

from attrs import frozen

from ptxforge.support.target import Target

MMA_SYNC, WGMMA = "mma.sync", "wgmma"

PTX_TYPES = {
    "f16": "f16", "bf16": "bf16", "f32": "tf32", "f64": "f64", "f8e4m3": "e4m3", "f8e5m2": "e5m2", "i8": "s8",
}  # fmt: skip
"""How an operand's type is called in an instruction; unsigned bytes are ``u8``."""
PTX_SUMS = {"f32": "f32", "f16": "f16", "f64": "f64", "i32": "s32"}


@frozen
class Family:
    """One row. ``operands`` may be mixed, A of one type and B of another; ``m``, ``n``, ``k`` are rows,
    columns and depth of one instruction (``n`` 0: any multiple of 8 to 256). ``feature`` is the property of a
    target that has it (``""``: all have), ``ptx`` the PTX version that knows it if it is not the target's.
    ``figure`` says where PTX ISA 9.0 draws the fragments.
    """

    name: str
    operands: tuple[str, ...]
    sums: tuple[str, ...]
    m: int
    n: int
    k: int
    figure: str
    feature: str = ""
    ptx: tuple[int, int] = (0, 0)

    def is_on(self, target: Target) -> bool:
        """Whether the target has it."""
        return not self.feature or getattr(target, self.feature)

    @property
    def bits(self) -> int:
        """The width of an operand's element."""
        return 256 // self.k

    @property
    def k_width(self) -> int:
        """Elements of A and B in a register, neighbours along k."""
        return max(1, 32 // self.bits)

    @property
    def instr_shape(self) -> tuple[int, int]:
        """What :class:`~ptxforge.layouts.encodings.Mma` takes (of ``mma.sync``)."""
        return self.m, self.n

    def kinds(self, a: str, b: str, total: str, a_unsigned: bool = False, b_unsigned: bool = False) -> tuple:
        """PTX's names of the types of A, B and the sums."""
        return _ptx_type(a, a_unsigned), _ptx_type(b, b_unsigned), PTX_SUMS[total]


def _ptx_type(operand: str, unsigned: bool) -> str:
    return "u8" if unsigned and operand == "i8" else PTX_TYPES[operand]


_FLOATS_8 = ("f8e4m3", "f8e5m2")
_WARPGROUP = "Register Fragments for wgmma.mma_async.m64nNk"

FAMILIES: tuple[Family, ...] = (
    Family(MMA_SYNC, ("f16",), ("f32", "f16"), 16, 8, 16, "mma.m16n8k16 with floating point type"),
    Family(MMA_SYNC, ("bf16",), ("f32",), 16, 8, 16, "mma.m16n8k16 with floating point type"),
    Family(MMA_SYNC, ("f32",), ("f32",), 16, 8, 8, "mma.m16n8k8"),
    Family(MMA_SYNC, ("i8",), ("i32",), 16, 8, 32, "mma.m16n8k32"),
    Family(MMA_SYNC, _FLOATS_8, ("f32",), 16, 8, 32, "mma.m16n8k32", "has_fp8_mma", (8, 4)),
    Family(MMA_SYNC, ("f64",), ("f64",), 8, 8, 4, "mma.m8n8k4 with .f64 floating point type"),
    Family(WGMMA, ("f16",), ("f32", "f16"), 64, 0, 16, f"{_WARPGROUP}16", "has_wgmma"),
    Family(WGMMA, ("bf16",), ("f32",), 64, 0, 16, f"{_WARPGROUP}16", "has_wgmma"),
    Family(WGMMA, ("f32",), ("f32",), 64, 0, 8, f"{_WARPGROUP}8", "has_wgmma"),
    Family(WGMMA, ("i8",), ("i32",), 64, 0, 32, f"{_WARPGROUP}32", "has_wgmma"),
    Family(WGMMA, _FLOATS_8, ("f32",), 64, 0, 32, f"{_WARPGROUP}32", "has_wgmma"),
)


def find_family(name: str, a: str, b: str, total: str) -> Family | None:
    """The row of an instruction that multiplies elements of types ``a`` and ``b`` and sums in ``total``; None
    when there is none."""
    for row in FAMILIES:
        if row.name == name and a in row.operands and b in row.operands and total in row.sums:
            return row
    return None
