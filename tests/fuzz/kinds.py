"""The kinds of random programs, and how they are loaded and compiled."""

from __future__ import annotations

from pathlib import Path

from ptxforge.support.target import Target, parse_target
from tests.fuzz import (
    attentions,
    combinations,
    corners,
    crossings,
    crowds,
    echoes,
    flows,
    generate,
    loops,
    orders,
    places,
    pointers,
    products,
    roundings,
    truths,
    values,
)
from tests.fuzz.draw import LaunchedProgram
from tests.fuzz.generate import Program

KINDS = {  # name: what generates them, and how many there are
    "loops": (loops.generate, 48), "places": (places.generate, 60), "values": (values.generate, 60),
    "pointers": (pointers.generate, 48), "products": (products.generate, 48),
    "attentions": (attentions.generate, 12), "flows": (flows.generate, 48), "corners": (corners.generate, 24),
    "truths": (truths.generate, 48), "crowds": (crowds.generate, 36), "echoes": (echoes.generate, 36),
    "roundings": (roundings.generate, 36), "crossings": (crossings.generate, 24),
}  # fmt: skip
HEADER = "import ptxforge\nimport ptxforge.language as tl\n" + orders.HELPERS + combinations.HELPERS
TARGETS = ("sm_90a", "sm_80", "sm_89", "sm_90a", "sm_120")
CTAS = (1, 1, 2, 1, 4, 1)
"""Of a program, on targets that have clusters."""


def load(program: LaunchedProgram, folder: Path):
    """The kernel as a function, from a file, as the frontend wants to see its source."""
    path = folder / f"{program.name}.py"
    path.write_text(f"{HEADER}\n\n{program.source}\n")
    names = {"__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names[program.name]


def options_of(program: Program) -> tuple[Target, dict[str, int]]:
    """What a program is compiled for, and how."""
    target = parse_target(TARGETS[program.seed % len(TARGETS)])
    ctas = CTAS[program.seed // len(TARGETS) % len(CTAS)] if target.has_cluster else 1
    return target, {"num_warps": program.num_warps, "num_stages": program.num_stages, "num_ctas": ctas}


def load_programs(programs: list[Program], folder: Path) -> dict:
    """The kernels as functions, from a file, as the frontend wants to see their source."""
    path = folder / f"programs_{programs[0].seed}.py"
    path.write_text("\n\n".join([generate.HEADER, *[program.source for program in programs]]) + "\n")
    names = {"__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names
