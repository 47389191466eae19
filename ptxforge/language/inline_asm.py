"""Assembly in kernels. Constraints, texts and types that do not fit together are compile-time errors."""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin


@builtin
def inline_asm_elementwise(
    asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int
) -> Any:
    """The results of PTX instructions for each element of ``args``: a block of ``dtype``, or a tuple of
    blocks for a tuple of types.

    ``asm`` has ``$0``, ``$1`` … for its operands, results first. ``constraints`` say what registers these
    are: ``=r`` a 32-bit result, then the inputs; ``h`` 16 bits, ``r`` 32, ``l`` 64, ``f`` float32, ``d``
    float64, ``b`` a predicate, ``n`` a constant, a number the register of that result. ``args`` are blocks,
    scalars, numbers and pointers of any types, broadcast to a common shape; without any the results are
    scalars. Bits of a register above an element are zeros.

    ``pack`` elements at a time are computed: those of 8 and 16 bits come four and two to a 32-bit register,
    lowest first, others in as many registers; which elements come together is not defined. With a true
    ``is_pure`` the text may run any number of times, and not at all where nobody needs its results;
    otherwise it runs in every thread that has the elements (a scalar's: all). Exact as the instructions are.

    As in Triton the text is not checked: an error in it is one of the assembler, and names that it declares
    (``.reg``, labels) are its own. It sees the registers of one thread: the interpreter, which has none,
    refuses texts that ask for the thread or exchange values.

        # four int8 in one register: each one's upper and lower half, as two blocks of int8
        high, low = tl.inline_asm_elementwise(
            "shr.b32 $0, $2, 4; and.b32 $0, $0, 0x0F0F0F0F; and.b32 $1, $2, 0x0F0F0F0F;",
            "=r,=r,r", [x], dtype=(tl.int8, tl.int8), is_pure=True, pack=4)
    """
