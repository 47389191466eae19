"""Work in a process of its own that has torch already, and has not touched the GPU.

The parent imports torch, which takes seconds, and forks: each child makes its own CUDA context, has its own
empty modules of ptxforge and Triton and, by environment variables, its own caches. What is to be told in
fractions of a millisecond needs processes that Python starts anew: a fork shares its memory with its parent
and pays for the copy of each page that it first writes to.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

CACHES = ("TRITON_CACHE_DIR", "PTXFORGE_CACHE_DIR", "XDG_CACHE_HOME")


def in_new_process(work: Callable[..., Any], *arguments: Any, caches: str | Path | None = None) -> Any:
    """What ``work(*arguments)`` gives, as JSON carries it, with all caches in the folder ``caches`` and the
    driver's own switched off.

    Raises ``RuntimeError`` when the process fails, and when this one has a CUDA context, which no fork
    survives.
    """
    if torch.cuda.is_initialized():
        raise RuntimeError("this process uses the GPU already: its forks cannot")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _answer(writer, work, arguments, caches)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not text:
        raise RuntimeError(f"{work.__name__}{arguments} failed in its process (status {status})")
    return json.loads(text)


def _answer(writer: int, work: Callable[..., Any], arguments: tuple, caches: str | Path | None) -> None:
    status = 1
    try:
        sys.dont_write_bytecode = False  # Python files are compiled once, as in an installed package
        os.environ["CUDA_CACHE_DISABLE"] = "1"
        if caches is not None:
            os.environ |= dict.fromkeys(CACHES, str(caches))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(work(*arguments)).encode())
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def in_fresh_process(work: Callable[..., Any], *arguments: Any, caches: str | Path) -> Any:
    """As :func:`in_new_process`, in a process that Python starts anew, which takes as long as importing
    torch. ``arguments`` go there as JSON."""
    module = sys.modules["__main__"].__spec__.name if work.__module__ == "__main__" else work.__module__
    here = str(Path(__file__).parents[1])
    program = f"import sys; sys.path.insert(0, {here!r}); from benchmarks.processes import answer; answer()"
    command = [sys.executable, "-c", program, module, work.__name__, json.dumps(arguments)]
    environment = os.environ | dict.fromkeys(CACHES, str(caches)) | {"CUDA_CACHE_DISABLE": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Python files are compiled once
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise RuntimeError(f"{work.__name__}{arguments} failed in its process (status {done.returncode})")
    return json.loads(done.stdout.splitlines()[-1])


def answer() -> None:
    """The part of :func:`in_fresh_process` in that process."""
    module, name, arguments = sys.argv[1:]
    print(json.dumps(getattr(importlib.import_module(module), name)(*json.loads(arguments))))


def report(rows: list[dict[str, Any]], path: Path | None, commit: str) -> None:
    """Write rows and the machine that they are from to a file, as all results of benchmarks are."""
    if path is None:
        return
    facts = in_new_process(_environment)
    path.write_text(json.dumps({"environment": facts | {"commit": commit}, "rows": rows}, indent=1) + "\n")


def _environment() -> dict[str, Any]:
    from benchmarks.harness import environment  # which imports ptxforge

    return environment()
