"""Compile a kernel of a file for programs without Python: PTX, machine code, and a C header that launches it.

    python -m ptxforge export kernels.py:add --constants BLOCK=1024 \\
        --signature '*fp32:16,*fp32:16,*fp32:16,i32' --target sm_90a -o build

writes build/add.ptx, build/add.cubin (where nvJitLink or ptxas is installed), build/add.h, which holds the
machine code (with --portable the PTX, for newer GPUs as well), and build/add.ptxf for ptxforge.load.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ptxforge.cli.source import add_kernel_options, compile_kernel
from ptxforge.compiler import Artifact
from ptxforge.driver import nvjitlink
from ptxforge.runtime import tools
from ptxforge.runtime.loaded import c_header
from ptxforge.support import container


def configure(parser: argparse.ArgumentParser) -> None:
    add_kernel_options(parser)
    parser.add_argument(
        "--tensor-maps", action="store_true", help="let it take tensor maps, which the program has to encode"
    )
    parser.add_argument("--portable", action="store_true", help="PTX in the header in place of machine code")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="folder (default: this one)")
    parser.add_argument("--name", help="of the files (default: the kernel's)")


def run(options: argparse.Namespace) -> int:
    artifact = compile_kernel(options, tensor_maps=options.tensor_maps, persistent=False)
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
