"""Reading what the command line names: kernels of files, constants, signatures, options of compiling."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from ptxforge import language, triton_compat
from ptxforge.compiler import Artifact
from ptxforge.language.types import dtype
from ptxforge.runtime.heuristics import Wrapper
from ptxforge.runtime.jit import JITFunction, jit
from ptxforge.support.errors import PtxforgeError
from ptxforge.support.target import DEFAULT_TARGET


def add_kernel_options(parser: argparse.ArgumentParser) -> None:
    """Declare what every command takes that compiles a kernel: which one, for what, and how."""
    parser.add_argument("kernel", metavar="FILE.py:FUNCTION")
    parser.add_argument("--signature", default="", help="types by order, or name=type, separated by commas")
    parser.add_argument("--constants", default="", help="NAME=VALUE, separated by commas")
    parser.add_argument("--target", default=DEFAULT_TARGET, help="such as sm_80 (default: %(default)s)")
    parser.add_argument("--num-warps", type=int, default=4)
    parser.add_argument("--num-ctas", type=int, default=1, help="CTAs of a program (1, 2, 4 or 8)")
    parser.add_argument("--num-stages", type=int, default=3)
    parser.add_argument("--maxnreg", type=int, help="registers per thread at most")


def compile_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options of :meth:`JITFunction.compile` that the command line gives."""
    return {name: getattr(options, name) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")}


def compile_kernel(options: argparse.Namespace, **others: Any) -> Artifact:
    """Compile the kernel that the command line names. Raises :class:`PtxforgeError`."""
    kernel, constants = load_kernel(options.kernel), parse_constants(options.constants)
    signature = parse_signature(options.signature, kernel, constants)
    return kernel.compile(signature, constants, options.target, **compile_options(options), **others)


def load_kernel(where: str) -> JITFunction:
    """The kernel of ``FILE.py:FUNCTION``. Triton's names are ptxforge's while the file is executed.

    Raises :class:`PtxforgeError` when there is no such file or function, or the file cannot be executed.
    """
    file, _, name = where.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise PtxforgeError(f"'{where}' is not FILE.py:FUNCTION with a file that exists")
    triton_compat.install()
    module = _execute(path)
    found = getattr(module, name, None)
    if isinstance(found, Wrapper):
        found = found.base_fn
    if found is None or not callable(found):
        raise PtxforgeError(f"{path} has no function '{name}'")
    return jit(found)


def _execute(path: Path) -> ModuleType:
    """The module that the file is, with its own folder first on the path, as for a script. What the file
    prints goes to standard error: a command's own output may be a file's content."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except PtxforgeError:
        raise
    except Exception as error:  # whatever the user's file raises
        line = _line_of(error, path)
        raise PtxforgeError(f"{path}{line} cannot be executed: {type(error).__name__}: {error}") from error
    return module


def _line_of(error: Exception, path: Path) -> str:
    """``:LINE``, where in the file an error came from; empty when it did not."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


def parse_constants(text: str) -> dict[str, Any]:
    """``BLOCK=1024,EPS=1e-5,DTYPE=tl.float16`` as a dictionary. Raises :class:`PtxforgeError`."""
    constants = {}
    for item in _split(text):
        name, equals, value = item.partition("=")
        if not equals:
            raise PtxforgeError(f"'{item}' is not NAME=VALUE")
        constants[name.strip()] = _value(value.strip())
    return constants


def _value(text: str) -> Any:
    found = getattr(language, text.removeprefix("tl."), None)
    if isinstance(found, dtype):
        return found
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse_signature(text: str, kernel: JITFunction, constants: dict[str, Any]) -> dict[str, str]:
    """``*fp32:16,i32`` for the parameters without a constant, in order, or ``x=*fp32:16,n=i32`` by name.

    Raises :class:`PtxforgeError` when the number of types is wrong.
    """
    items = _split(text)
    if any("=" in item for item in items):
        return {name.strip(): kind.strip() for name, _, kind in (item.partition("=") for item in items)}
    open_names = [p.name for p in kernel.params if p.name not in constants and not p.constexpr]
    if len(items) != len(open_names):
        raise PtxforgeError(
            f"the signature has {len(items)} types for {len(open_names)} parameters: {', '.join(open_names)}"
        )
    return dict(zip(open_names, items, strict=True))


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
