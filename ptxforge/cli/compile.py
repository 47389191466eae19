"""Compile a kernel of a file and print what was made.

    python -m ptxforge compile kernels.py:add --constants BLOCK=1024 \\
        --signature '*fp32:16,*fp32:16,*fp32:16,i32'

A signature type is *TYPE for a pointer or TYPE for a number (fp16 bf16 fp32 fp64 i1 i8 ... u64); ':16' behind
it says that the pointer is aligned to 16 bytes or the integer divisible by 16, ':1' that the integer is 1.
"""

from __future__ import annotations

import argparse

from ptxforge.cli.source import add_kernel_options, compile_kernel
from ptxforge.codegen_ptx import emit
from ptxforge.compiler import Artifact
from ptxforge.ir.parser import parse_function
from ptxforge.runtime import tools
from ptxforge.support.target import parse_target

EMITTED = ("tile", "gpu", "ptx", "sass")


def configure(parser: argparse.ArgumentParser) -> None:
    add_kernel_options(parser)
    parser.add_argument(
        "--emit",
        choices=(*EMITTED, "stages", "all"),
        default="ptx",
        help="'stages': the IR after every pass; 'all': IR, PTX and, if possible, sass (default: ptx)",
    )
    parser.add_argument(
        "--remarks",
        action="store_true",
        help="print how products are made and what the compiler left alone, in place of the code",
    )
    parser.add_argument(
        "--why",
        action="store_true",
        help="print PTX with comments that say which rule of the code generator made an instruction so",
    )


def run(options: argparse.Namespace) -> int:
    artifact = compile_kernel(options)
    if options.remarks:
        for remark in artifact.remarks:
            print(remark.explain())
        return 0
    if options.why:
        print(emit(parse_function(artifact.asm["gpu"]), parse_target(options.target), why=True), end="")
        return 0
    if options.emit == "all":
        for name in EMITTED if tools.can_disassemble() else EMITTED[:-1]:
            print(f"// {name}\n{_text(artifact, name)}")
        return 0
    print(_text(artifact, options.emit), end="")
    return 0


def _text(artifact: Artifact, name: str) -> str:
    if name == "stages":
        return "\n".join(f"// after {stage}\n{text}" for stage, text in artifact.stages)
    if name == "sass":
        return tools.disassemble(tools.assemble(artifact.ptx, artifact.target))
    text = artifact.asm[name]
    return text if text.endswith("\n") else text + "\n"
