"""The command line: one module per command, loaded when it is asked for.

A command's module has ``configure(parser)``, which declares its arguments, and ``run(options) -> exit
status``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from ptxforge import __version__
from ptxforge.support.errors import PtxforgeError

COMMANDS = {
    "demo": "compile and run three kernels, and compare them with numpy",
    "compile": "compile a kernel of a file and print its IR, PTX or machine code",
    "opt": "run passes on IR text",
    "explain": "what a kernel becomes and what limits it, as text or as a page",
    "layout": "draw a layout",
    "passes": "the pipeline: every pass and why it stands where it does",
    "export": "compile a kernel for programs without Python: PTX, machine code, a C header",
    "cache": "look at the disk cache, check it, make it smaller, carry it elsewhere",
    "env": "the environment variables, the device and the tools",
    "run": "run a script of Triton kernels with ptxforge",
    "check": "run a script's kernels under every check, without a GPU",
    "triton-path": "the folder for PYTHONPATH that makes 'import triton' give ptxforge",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, 1 for an error of ptxforge's own tree, 2 for a wrong command
    line."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments:
        _overview().print_help(sys.stderr)
        return 2
    name = arguments[0]
    if name not in COMMANDS:
        _overview().parse_args(arguments)  # prints and leaves
    module = _module(name)
    parser = argparse.ArgumentParser(
        prog=f"python -m ptxforge {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    options = parser.parse_args(arguments[1:])
    try:
        return module.run(options)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        return 0
    except (PtxforgeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"ptxforge.cli.{name.replace('-', '_')}")


def _overview() -> argparse.ArgumentParser:
    """The parser of a command line that names no command: it prints the commands, or what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m ptxforge",
        description="A tile-language GPU compiler in pure Python.",
        epilog="commands:\n" + "\n".join(f"  {name:11} {text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ptxforge {__version__}")
    parser.add_argument(
        "command", choices=COMMANDS, metavar="COMMAND", help="one of the commands below; each has --help"
    )
    return parser
