"""``triton.runtime.build``: modules of C, compiled when a program needs them.

ptxforge itself compiles no C; programs written for Triton call this with sources of their own.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ptxforge.triton_compat import knobs
from ptxforge.triton_compat.files import get_cache_manager


@functools.cache
def platform_key() -> str:
    """The machine and the system, as part of keys."""
    return ",".join([platform.machine(), platform.system(), *platform.architecture()])


def compile_module_from_src(
    src: str,
    name: str,
    library_dirs: Sequence[str] = (),
    include_dirs: Sequence[str] = (),
    libraries: Sequence[str] = (),
    ccflags: Sequence[str] = (),
) -> ModuleType:
    """The extension module ``name`` of a C source, out of the cache when it was compiled before. Raises
    ``RuntimeError`` where there is no C compiler, and ``CalledProcessError`` when it fails."""
    cache = get_cache_manager(hashlib.sha256((src + platform_key()).encode()).hexdigest())
    file = f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    known = cache.get_file(file)
    if known is not None:
        try:
            return _load(name, known)
        except (ImportError, RuntimeError):
            pass  # a damaged file: compiled again
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{name}.c"
        source.write_text(src)
        made = _build(name, str(source), folder, library_dirs or (), include_dirs or (), libraries or (),
                      ccflags or ())  # fmt: skip
        return _load(name, cache.put(Path(made).read_bytes(), file, binary=True))


def _build(
    name: str,
    src: str,
    srcdir: str,
    library_dirs: Sequence[str],
    include_dirs: Sequence[str],
    libraries: Sequence[str],
    ccflags: Sequence[str],
) -> str:
    """The path of a shared library. ``knobs.build.impl`` is asked first."""
    if knobs.build.impl:
        return knobs.build.impl(name, src, srcdir, library_dirs, include_dirs, libraries)
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("no C compiler was found; name one in CC, or set triton.knobs.build.impl")
    made = os.path.join(srcdir, f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
    folders = [*include_dirs, srcdir, sysconfig.get_paths()["include"], *knobs.build.backend_dirs]
    subprocess.check_call(
        [compiler, src, "-O3", "-shared", "-fPIC", "-o", made]
        + [f"-l:{library}" if ".so" in library or library.endswith(".a") else f"-l{library}"
           for library in libraries]
        + [f"-L{folder}" for folder in library_dirs]
        + [f"-I{folder}" for folder in folders]
        + list(ccflags),
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return made


def _load(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
