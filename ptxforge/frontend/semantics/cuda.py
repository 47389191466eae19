"""What is particular to NVIDIA's GPUs."""

from __future__ import annotations

from ptxforge.frontend.context import Context
from ptxforge.frontend.semantics.registry import implements
from ptxforge.ir.ops.inline_asm import InlineAsm
from ptxforge.language.extra import cuda as language
from ptxforge.support.errors import CompilationError
from ptxforge.support.target import parse_target


@implements(language.num_warps)
def num_warps(ctx):
    return ctx.num_warps


@implements(language.num_threads)
def num_threads(ctx):
    return 32 * ctx.num_warps


@implements(language.gdc_wait)
def gdc_wait(ctx):
    _control(ctx, "wait")


@implements(language.gdc_launch_dependents)
def gdc_launch_dependents(ctx):
    _control(ctx, "launch_dependents")


def _control(ctx: Context, action: str) -> None:
    target = parse_target(ctx.target)
    if not target.has_grid_dependencies:
        raise CompilationError(
            f"{target} has no dependent launches (griddepcontrol)", hint="they came with sm_90"
        )
    text = f"griddepcontrol.{action};"
    ctx.builder.create(InlineAsm, text=text, constraints="", elements=(), pure=False, ptx_version=(7, 8))
