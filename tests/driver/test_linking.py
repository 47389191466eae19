"""Texts given to linkers: without the number of threads, so that registers are saved for more blocks."""

from __future__ import annotations

import functools
import re
import struct

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.driver import jit, nvjitlink
from ptxforge.runtime import tools

needs_library = pytest.mark.skipif(nvjitlink.library() is None, reason="no nvJitLink")
SIZE = ".reqntid 512, 1, 1\n"
TEXT = f".visible .entry k(\n)\n{SIZE}{{\nret;\n}}\n"


def machine_code(*registers: int) -> bytes:
    """An ELF file with a function for each number, as far as :func:`jit.registers` reads it."""
    names = b"\0.nv.info\0.shstrtab\0"
    facts = b"".join(struct.pack("<BBHII", 4, 0x2F, 8, i, count) for i, count in enumerate(registers))
    head = bytearray(64)
    struct.pack_into("<Q", head, 0x28, 64 + len(names) + len(facts))
    struct.pack_into("<HHH", head, 0x3A, 64, 2, 0)
    sections = [
        (10, 0, 0, 0, 64, len(names), 0, 0, 0, 0),
        (1, 1, 0, 0, 64 + len(names), len(facts), 0, 0, 0, 0),
    ]
    return bytes(head) + names + facts + b"".join(struct.pack("<IIQQQQIIQQ", *one) for one in sections)


@pytest.mark.parametrize("counts, expected", [((32,), 32), ((33, 20), 40), ((255,), 256), ((), 0)])
def test_registers_of_machine_code(counts, expected):
    assert jit.registers(machine_code(*counts)) == expected


@pytest.mark.parametrize("needed, texts", [(128, [False]), (136, [False, True])])
def test_a_block_that_would_not_fit_keeps_its_size(needed, texts):
    """512 threads have room for 128 registers."""
    given = []

    def link(text: str) -> bytes:
        given.append(SIZE in text)
        return machine_code(128 if SIZE in text else needed)

    assert jit.registers(jit.linked(TEXT, link)) == 128
    assert given == texts


@pytest.mark.parametrize("more", [".minnctapersm 2\n", ".maxnreg 168\n", ".explicitcluster\n"])
def test_what_says_more_about_registers_stays_as_it_is(more):
    text = TEXT.replace(SIZE, SIZE + more)
    assert jit.linked(text, str.encode) == text.encode()


@ptxforge.jit
def row_sums(x, out, n, B: tl.constexpr):
    found, row = tl.zeros((B,), tl.float32), tl.program_id(0)
    most = tl.full((B,), float("-inf"), tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        value = tl.load(x + row * n + i, mask=i < n, other=float("-inf"))
        larger = tl.maximum(most, value)
        found, most = found * tl.exp(most - larger) + tl.exp(value - larger), larger
    tl.store(out + row, tl.sum(found) + tl.max(most))


@needs_library
def test_a_linked_kernel_takes_no_more_registers_than_a_whole_one(assemble):
    """Given with its size it takes more."""
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32"}
    made = ptxforge.compile(
        row_sums, signature=signature, constants={"B": 2048}, target="sm_90a", num_warps=16
    )
    whole = jit.registers(tools.assemble(made.ptx, "sm_90a"))
    assert jit.registers(nvjitlink.assemble(made.ptx, "sm_90a")) <= whole
    as_it_is = functools.partial(nvjitlink._link, nvjitlink.library(), "sm_90a")
    assert re.search(r"^\.reqntid 512", made.ptx, re.MULTILINE)
    assert jit.registers(as_it_is(made.ptx)) > whole
