"""What Triton offers of compiling: kernels ahead of a launch (``triton.compile``), modules of C
(``triton.runtime.build``; ptxforge itself compiles none), machine code as text (``triton.tools.disasm``).

What Inductor reads afterwards lies where Triton's cache would be, as outputs:
``<hash in base 32>/<name>.cubin`` and ``.ptx`` below ``TRITON_CACHE_DIR``. They are never read back here;
ptxforge's own cache is :mod:`ptxforge.runtime.cache`.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from ptxforge.compiler import OPTIONS, Artifact, Assembly, NoSuchTextError, compile_ir
from ptxforge.runtime import compiler_state, compiling, tools
from ptxforge.runtime import hooks as new_kernels
from ptxforge.runtime.slots import Nested, Shape
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.runtime.variants import GPUTarget
from ptxforge.support import settings
from ptxforge.support.errors import ArgumentError, DeviceError
from ptxforge.support.target import parse_target
from ptxforge.triton_compat import hooks, knobs
from ptxforge.triton_compat.drivers import Options, compiled, driver, make_backend
from ptxforge.triton_compat.host import get_cache_manager, get_dump_manager, replace_file


@functools.cache
def platform_key() -> str:
    """The machine and the system, as part of keys."""
    return ",".join([platform.machine(), platform.system(), *platform.architecture()])


def compile_module_from_src(
    src: str,
    name: str,
    library_dirs: Sequence[str] | None = None,
    include_dirs: Sequence[str] | None = None,
    libraries: Sequence[str] | None = None,
    ccflags: Sequence[str] | None = None,
    language: str = "c",
) -> ModuleType:
    """The extension module ``name`` of a source in C or ``c++``, perhaps out of the cache. Raises
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
        source = Path(folder) / f"{name}.{'c' if language == 'c' else 'cpp'}"
        source.write_text(src)
        linked = [*(libraries or ()), *(["stdc++"] if language == "c++" else [])]
        made = _build(name, str(source), folder, library_dirs or (), include_dirs or (), linked,
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


def path_to_cuobjdump() -> str | None:
    """Where ``cuobjdump`` is installed."""
    return tools.find("cuobjdump")


def path_to_nvdisasm() -> str | None:
    """Where ``nvdisasm`` is installed."""
    return tools.find("nvdisasm")


def get_sass(cubin_asm: bytes, fun: str | None = None) -> str:
    """The SASS of machine code. Raises :class:`DeviceError` where no disassembler is installed."""
    return tools.disassemble(cubin_asm)


def extract(file_path: str, fun: str | None = None) -> str:
    """The SASS of a file with machine code."""
    return get_sass(Path(file_path).read_bytes(), fun)


Constants = Mapping[Any, Any]
Kind = Any
"""A type as a signature has it: a text, or a tuple of types."""


class ASTSource:
    """A kernel with the types of its parameters (``{"x": "*fp32", "BLOCK": "constexpr"}``), its constants by
    name or by position (``{(1,): 128}``), and attributes by position (``{(0,): [["tt.divisibility", 16]]}``).

    The type of a tuple is the tuple of its elements' types (``{"pair": ("*fp32", ("i32", "constexpr"))}``), a
    named tuple's the named tuple of them. What lies in it is meant by its path: ``{(1, 1, 1): 3}`` for the
    last element of the last element of parameter 1. Launches take tuples of the same form.
    """

    ext = "ttir"
    language = "triton"

    def __init__(
        self,
        fn: Any,
        signature: Mapping[str, Kind],
        constexprs: Constants | None = None,
        attrs: Mapping[tuple, list] | None = None,
    ):
        self.fn, self.name = fn, fn.__name__
        self.signature = {_name(fn, key): kind for key, kind in signature.items()}
        self.constants = {_path(fn, key): value for key, value in (constexprs or {}).items()}
        self.attrs = dict(attrs or {})

    @functools.cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """How the arguments of a launch are nested."""
        return tuple(map(_shape, self._kinds()))

    def _kinds(self) -> list[Kind]:
        """The type of each parameter; what has a constant is one."""
        names = self.fn.arg_names
        return [self._kind((i,), self.signature.get(name, "constexpr")) for i, name in enumerate(names)]

    def _kind(self, path: tuple[int, ...], kind: Kind) -> Kind:
        if path in self.constants:
            return "constexpr"
        if not isinstance(kind, tuple):
            return kind
        items = [self._kind((*path, index), item) for index, item in enumerate(kind)]
        return type(kind)(*items) if hasattr(kind, "_fields") else tuple(items)

    def hash(self) -> str:
        """A digest of the kernel's source and of all that specialises it."""
        constants = [
            (path, type(value).__name__, getattr(value, "cache_key", None) or repr(value))
            for path, value in sorted(self.constants.items())
        ]
        parts = (self.fn.cache_key, sorted(self.attrs.items()), sorted(self.signature.items()), constants)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def specialization(self) -> tuple[Any, dict[str, str], dict[str, Any]]:
        """The kernel that takes the elements of tuples, and its signature and constants as
        :meth:`JITFunction.compile` takes them: ``*fp32:16`` for a pointer that is divisible by 16. Raises
        :class:`ArgumentError` for a constant of something that the signature does not have."""
        nested = any(isinstance(shape, tuple) for shape in self.shapes)
        kernel = self.fn._apart.kernel(self.shapes) if nested else self.fn
        structure = getattr(kernel, "__ptxforge_structure__", {})
        parts = [structure.get(name, name) for name in self.fn.arg_names]
        signature, constants, unknown = {}, {}, dict(self.constants)
        for path, name, kind in _leaves(self._kinds(), parts):
            if kind == "constexpr":
                constants[name] = unknown.pop(path, None)
            marks = self.attrs.get(path, ())
            divisible = any(mark[0] == "tt.divisibility" and mark[1] % 16 == 0 for mark in marks)
            signature[name] = f"{kind}:16" if divisible and kind != "constexpr" else kind
        for path in unknown:
            raise ArgumentError(f"constexprs has a value for {path}, where the signature has no element")
        return kernel, signature, constants

    def settle(self) -> None:
        """Find out what has to be known of the function before others take it away."""
        self.fn.settle()

    def artifact(self, machine: str, chosen: Options) -> Artifact:
        """The kernel compiled for ptxforge's name of a target."""
        kernel, signature, constants = self.specialization()
        options = {name: getattr(chosen, name) for name in OPTIONS if hasattr(chosen, name)}
        # Who asks for this launches by itself, and would have to make the tensor maps of TMA, too.
        return kernel.compile(signature, constants, machine, **options | {"tensor_maps": False})

    def make_ir(
        self, target: GPUTarget, options: Any, codegen_fns: Any, module_map: Any, context: Any
    ) -> hooks.Module:
        """What the kernel reads and writes, as a module of Triton's IR that others can walk."""
        kernel, signature, constants = self.specialization()
        made = kernel.compile(signature, constants, _machine(target))
        parameters = [name for name, kind in signature.items() if kind != "constexpr"]
        arrays = [name for name in parameters if signature[name].startswith("*")]
        return hooks.Module(
            made.name, parameters, arrays, [name for name in parameters if name in made.written]
        )


class IRSource:
    """A file of ptxforge's own IR: ``asm["ttir"]`` in ``.ttir``, ``asm["ttgir"]`` in ``.ttgir``. The
    options of the kernel stand in it. ``context`` and ``backend`` are Triton's, and ignored. Raises
    :class:`ArgumentError` for a file of another kind."""

    def __init__(self, path: str | os.PathLike, context: Any = None, backend: Any = None):
        self.path = Path(path)
        self.ext = self.path.suffix[1:]
        if self.ext not in ("ttir", "ttgir"):
            raise ArgumentError(f"{path} is not IR of ptxforge; compile() takes .ttir and .ttgir files")
        self.src = self.path.read_text()
        self.name = self.path.stem

    def hash(self) -> str:
        """A digest of the text."""
        return hashlib.sha256(self.src.encode()).hexdigest()

    def settle(self) -> None:
        """All is known."""

    def artifact(self, machine: str, chosen: Options) -> Artifact:
        """The kernel compiled for ptxforge's name of a target."""
        return compile_ir(self.src, machine)


def _shape(kind: Kind) -> Shape:
    return (type(kind), tuple(map(_shape, kind))) if isinstance(kind, tuple) else kind == "constexpr"


def _leaves(
    kinds: Sequence[Kind], parts: Sequence[Nested | str], path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], str, str]]:
    """Path, name and type of every parameter behind the types of a signature."""
    for index, (kind, part) in enumerate(zip(kinds, parts, strict=True)):
        if isinstance(part, Nested):
            yield from _leaves(kind, part.parts, (*path, index))
        else:
            yield (*path, index), part, kind


def _path(fn: Any, key: Any) -> tuple[int, ...]:
    """Where a constant lies, given by a parameter's name, its position, or a path."""
    first, *rest = key if isinstance(key, tuple) else (key,)
    return (fn.arg_names.index(first) if isinstance(first, str) else first, *rest)


def _name(fn: Any, key: Any) -> str:
    """A parameter's name, given as a name, a position, or a path of one position."""
    key = key[0] if isinstance(key, tuple) else key
    return key if isinstance(key, str) else fn.arg_names[key]


def triton_key() -> str:
    """Another text for every version of the compiler: what caches of other programs are keyed by."""
    return compiler_state.digest()


def compile(
    src: ASTSource | str | os.PathLike,
    target: GPUTarget | None = None,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> CompiledKernel:
    """``triton.compile``: the kernel, with its machine code, compiled for ``target`` without loading it.

    ``src`` is an :class:`ASTSource`, or the path of a file with ptxforge's IR (see :class:`IRSource`).

    A target whose ``backend`` is ``cpu`` is the emulator's: the kernel runs on CPU tensors. Raises
    :class:`CompilationError`, and :class:`DeviceError` where no assembler is installed.
    """
    target = target or driver.active.get_current_target()
    src = src if isinstance(src, ASTSource) else IRSource(src)
    src.settle()
    chosen = make_backend(target).parse_options(dict(options or {}))
    machine = _machine(target)
    digest = hashlib.sha256(
        repr((triton_key(), src.hash(), str(target), machine, chosen.hash())).encode()
    ).hexdigest()
    artifact = _with_cubin(src.artifact(machine, chosen), target)
    kernel = CompiledKernel(artifact, None, src=src, target=target)
    kernel.hash = digest
    compiled[digest] = kernel
    _write_outputs(kernel)
    knobs.warn_of_idle()
    dump(kernel)
    return kernel


def _machine(target: GPUTarget) -> str:
    """ptxforge's name of a target, with the architecture's own features where it has some."""
    if target.backend == "cpu":
        return settings.TARGET.get() or "sm_90a"
    if target.backend != "cuda":
        raise ArgumentError(
            f"'{target.backend}' is not a backend of ptxforge: it makes PTX, for NVIDIA's GPUs"
        )
    plain = parse_target(f"sm_{target.arch}")
    return f"{plain}a" if plain.sm >= 90 else str(plain)


class _Texts(Assembly):
    """Those of a kernel that goes from process to process: without the IR's, as it only launches there."""

    def __reduce__(self) -> tuple:
        return _Texts, ({key: self[key] for key in _FILES if key in self},)


_FILES = ("ptx", "cubin")


def _with_cubin(made: Artifact, target: GPUTarget) -> Artifact:
    """The artifact with its machine code."""
    texts: dict[str, Any] = {key: functools.partial(made.asm.get, key) for key in ("tile", "gpu")}
    texts["ptx"] = made.ptx
    if target.backend == "cuda":
        texts["cubin"] = compiling.machine_code(made.ptx, made.name, made.target)
    return attrs.evolve(made, asm=_Texts(texts), stages=[], remarks=(), assembled=())


# What other programs read


def base32(digest: str) -> str:
    """The folder of Triton's cache for hexadecimal digits."""
    return base64.b32encode(bytes.fromhex(digest)).decode().rstrip("=")


def cache_folder() -> Path:
    """``TRITON_CACHE_DIR``, else Triton's default."""
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")


def _write_outputs(kernel: CompiledKernel) -> None:
    folder = cache_folder() / base32(kernel.hash)
    texts = kernel.artifact.asm
    for stage in filter(texts.__contains__, _FILES):
        data = texts[stage]
        replace_file(folder / f"{kernel.src.name}.{stage}", data.encode() if isinstance(data, str) else data)


def dump(kernel: CompiledKernel | None) -> None:
    """With ``TRITON_KERNEL_DUMP``, write the texts of a kernel and its machine code below
    ``TRITON_DUMP_DIR``; the latter where there is an assembler."""
    if kernel is None or not knobs.compilation.dump_ir:
        return
    files = get_dump_manager(base32(kernel.hash))
    for stage in ("ttir", "ttgir", "ptx", "cubin", "sass"):
        with contextlib.suppress(DeviceError, NoSuchTextError):
            files.put(kernel.asm[stage], f"{kernel.name[:_LONGEST]}.{stage}")


_LONGEST = 150
"""Characters of a file's name, which may have 255 with what is added to it while it is written."""
new_kernels.COMPILE.append(lambda told: dump(told.variant))
