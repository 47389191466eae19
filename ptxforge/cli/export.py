"""Compile a kernel of a file for programs without Python: PTX, machine code, and a C header that launches it.

    python -m ptxforge export kernels.py:add --constants BLOCK=1024 \\
        --signature '*fp32:16,*fp32:16,*fp32:16,i32' --target sm_90a -o build

writes build/add.ptx, build/add.cubin (where nvJitLink or ptxas is installed), build/add.h, which holds the
machine code (with --portable the PTX, for newer GPUs as well), and build/add.ptxf for ptxforge.load.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ptxforge.cli.source import load_kernel, parse_constants, parse_signature
from ptxforge.compiler import Artifact
from ptxforge.driver import nvjitlink
from ptxforge.runtime import tools
from ptxforge.runtime.c_header import c_header
from ptxforge.runtime.jit import DEFAULT_TARGET
from ptxforge.support import container


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE.py:FUNCTION")
    parser.add_argument("--signature", default="", help="types by order, or name=type, separated by commas")
    parser.add_argument("--constants", default="", help="NAME=VALUE, separated by commas")
    parser.add_argument("--target", default=DEFAULT_TARGET, help="such as sm_80 (default: %(default)s)")
    parser.add_argument("--num-warps", type=int, default=4)
    parser.add_argument("--num-ctas", type=int, default=1, help="CTAs of a program (1, 2, 4 or 8)")
    parser.add_argument("--num-stages", type=int, default=3)
    parser.add_argument("--maxnreg", type=int, help="registers per thread at most")
    parser.add_argument(
        "--tensor-maps", action="store_true", help="let it take tensor maps, which the program has to encode"
    )
    parser.add_argument("--portable", action="store_true", help="PTX in the header in place of machine code")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="folder (default: this one)")
    parser.add_argument("--name", help="of the files (default: the kernel's)")


def run(options: argparse.Namespace) -> int:
    kernel = load_kernel(options.kernel)
    constants = parse_constants(options.constants)
    signature = parse_signature(options.signature, kernel, constants)
    artifact = kernel.compile(
        signature, constants, options.target,
        num_warps=options.num_warps, num_stages=options.num_stages, num_ctas=options.num_ctas,
        maxnreg=options.maxnreg,
        tensor_maps=options.tensor_maps,
    )  # fmt: skip
    options.output.mkdir(parents=True, exist_ok=True)
    for path, data in _files(artifact, options).items():
        container.write(path, data)
        print(path)
    return 0


def _files(artifact: Artifact, options: argparse.Namespace) -> dict[Path, bytes]:
    stem = options.output / (options.name or artifact.name)
    has_assembler = nvjitlink.library() is not None or tools.find("ptxas") is not None
    ptx = artifact.ptx.encode()
    files = {stem.with_suffix(".ptx"): ptx}
    image = ptx + b"\0"
    if has_assembler:
        files[stem.with_suffix(".cubin")] = artifact.asm["cubin"]
        image = image if options.portable else artifact.asm["cubin"]
    files[stem.with_suffix(".h")] = c_header(artifact, image).encode()
    files[stem.with_suffix(".ptxf")] = artifact.packed(machine_code=has_assembler)
    return files
