"""What the compiler makes of random programs: in each kind are some whose tensor cores are fed as Hopper
feeds them. Source text does not say that: who asks for warps that copy tiles that TMA cannot copy gets none.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxforge.compiler import Artifact, compile_function
from ptxforge.support.errors import OutOfResourcesError
from tests.fuzz.generate import LARGE, SEVERAL, WALKING, generate
from tests.fuzz.kinds import KINDS, load, load_programs, options_of

TARGET = "sm_90a"
WGMMA = r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k\d+"
FEATURES = {  # name: which text of an artifact shows it, and how that looks
    "f16": ("ptx", WGMMA + r"\.f32\.f16"),
    "bf16": ("ptx", WGMMA + r"\.f32\.bf16"),
    "tf32": ("ptx", WGMMA + r"\.f32\.tf32"),
    "8-bit floats": ("ptx", WGMMA + r"\.f32\.e[45]m[23]"),
    "8-bit integers": ("ptx", WGMMA + r"\.s32\.[su]8"),
    "left operands in registers": ("ptx", WGMMA + r"\S+\s+\{[^}]*\}, \{"),
    "tiles by TMA": ("ptx", r"cp\.async\.bulk\.tensor\.[1-5]d\.shared"),
    "tiles that TMA stores": ("ptx", r"cp\.async\.bulk\.tensor\.[1-5]d\.global"),
    "tiles that TMA adds": ("ptx", r"cp\.reduce\.async\.bulk\.tensor"),
    "tiles for several CTAs": ("ptx", r"\.multicast::cluster"),
    "warps that copy": ("gpu", r"partition "),
    "registers that change hands": ("ptx", r"setmaxnreg"),
    "groups that take turns": ("gpu", r"consumer_groups = 2"),
    "programs that walk over tiles": ("gpu", r"get_num_programs"),
    "maps that kernels make": ("gpu", r"make_tensor_map"),
}
LEAST = {  # kind: how many programs are compiled, widths of wgmma, and in how many programs a feature is
    "loops": (40, 4, {
        "f16": 12, "left operands in registers": 1, "tiles by TMA": 8,
        "tiles for several CTAs": 1, "warps that copy": 3, "registers that change hands": 1,
        "groups that take turns": 1, "programs that walk over tiles": 1,
    }),
    "products": (40, 4, {
        "f16": 3, "bf16": 3, "tf32": 1, "8-bit floats": 3, "8-bit integers": 3, "tiles by TMA": 6,
        "left operands in registers": 3, "tiles that TMA stores": 2, "warps that copy": 1,
        "maps that kernels make": 1,
    }),
    "attentions": (40, 3, {
        "f16": 5, "bf16": 1, "left operands in registers": 6, "tiles by TMA": 3, "warps that copy": 2,
        "registers that change hands": 1,
    }),
    "corners": (26, 2, {"f16": 2, "bf16": 1, "8-bit integers": 1, "tiles by TMA": 1}),
    "programs": (20, 3, {
        "f16": 5, "bf16": 1, "8-bit integers": 1, "tiles by TMA": 5, "tiles that TMA adds": 1,
        "tiles for several CTAs": 1, "warps that copy": 1, "programs that walk over tiles": 1,
    }),
}  # fmt: skip


@pytest.mark.parametrize("kind", LEAST)
def test_generators_reach_the_tensor_cores(kind, tmp_path):
    count, widths, least = LEAST[kind]
    made = list(artifacts(kind, count, tmp_path))
    for name, number in least.items():
        text, pattern = FEATURES[name]
        found = sum(bool(re.search(pattern, one.asm[text])) for one in made)
        assert found >= number, f"{name}: {found} programs"
    assert len({width for one in made for width in re.findall(WGMMA, one.ptx)}) >= widths


def artifacts(kind: str, count: int, folder: Path) -> Iterator[Artifact]:
    """What the first ``count`` programs of a kind for Hopper become."""
    source = _general if kind == "programs" else _launched
    for kernel, signature, options in source(kind, count, folder):
        with contextlib.suppress(OutOfResourcesError):
            yield compile_function(kernel, signature, {}, target=TARGET, line_info=False, **options)


def _launched(kind: str, count: int, folder: Path) -> Iterator[tuple]:
    for seed in range(count):
        program = KINDS[kind][0](seed)
        if program.target == TARGET:
            yield load(program, folder), program.signature, program.options


def _general(kind: str, count: int, folder: Path) -> Iterator[tuple]:
    """Those of ``generate`` that are written for tensor cores."""
    seeds = (seed for seed in range(50 * count) if seed % 50 in WALKING or seed % 150 in (SEVERAL, LARGE))
    for_hopper = (one for one in map(generate, seeds) if str(options_of(one)[0]) == TARGET)
    programs = list(itertools.islice(for_hopper, count))
    kernels = load_programs(programs, folder)
    for program in programs:
        yield kernels[program.name], program.signature, options_of(program)[1]
