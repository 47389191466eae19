"""What Triton's host side offers beside kernels: tensors seen as another type, and smaller names.

``triton.runtime.cache``: files of programs' own by key and name, below ``triton.knobs.cache.dir``. (Compiled
kernels are :mod:`ptxforge.runtime.cache`'s.)

``triton.language.target_info``: questions about the target; kernels ask them while they are compiled.
"""

from __future__ import annotations

import abc
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ptxforge.language.constexpr import constexpr
from ptxforge.language.registry import constexpr_function
from ptxforge.runtime.specialize import Parameter, specialize
from ptxforge.support import container
from ptxforge.support.errors import PtxforgeError
from ptxforge.triton_compat import knobs
from ptxforge.triton_compat.drivers import driver


class CacheManager(abc.ABC):
    """Files of one key."""

    def __init__(self, key: str, override: bool = False, dump: bool = False):  # noqa: B027 - may be empty
        pass

    @abc.abstractmethod
    def get_file(self, filename: str) -> str | None:
        """The path of a file; ``None`` when there is none."""

    @abc.abstractmethod
    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Write a file; its path."""

    @abc.abstractmethod
    def get_group(self, filename: str) -> dict[str, str] | None:
        """Paths by name that belong together; ``None`` when nothing was put there."""

    @abc.abstractmethod
    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        """Note paths by name that belong together."""


class FileCacheManager(CacheManager):
    """In a folder of the key's name. ``override`` and ``dump`` choose the other folders of the knobs."""

    def __init__(self, key: str, override: bool = False, dump: bool = False):
        chosen = knobs.cache.override_dir if override else knobs.cache.dump_dir if dump else knobs.cache.dir
        self.key = key
        self.cache_dir = str(Path(chosen) / key)

    def has_file(self, filename: str) -> bool:
        """Whether there is such a file."""
        return os.path.exists(self._path(filename))

    def get_file(self, filename: str) -> str | None:
        path = self._path(filename)
        return path if os.path.exists(path) else None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        content = data if isinstance(data, bytes) else str(data).encode()
        path = Path(self._path(filename))
        replace_file(path, content)
        return str(path)

    def get_group(self, filename: str) -> dict[str, str] | None:
        path = self.get_file(f"__grp__{filename}")
        if path is None:
            return None
        group = json.loads(Path(path).read_text()).get("child_paths")
        return group and {name: child for name, child in group.items() if os.path.exists(child)}

    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        return self.put(json.dumps({"child_paths": dict(group)}), f"__grp__{filename}", binary=False)

    def _path(self, filename: str) -> str:
        return os.path.join(self.cache_dir, filename)


class RemoteCacheBackend(abc.ABC):
    """Files of one key on another machine, which programs implement for themselves."""

    def __init__(self, key: str):  # noqa: B027 - may be empty
        pass

    @abc.abstractmethod
    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """The contents of those files that are there."""

    @abc.abstractmethod
    def put(self, filename: str, data: bytes) -> None:
        """Store a file."""


def get_cache_manager(key: str) -> CacheManager:
    """The manager of a key: of ``knobs.cache.manager_class``, else files."""
    return (knobs.cache.manager_class or FileCacheManager)(key)


def get_override_manager(key: str) -> CacheManager:
    """The manager of files that stand in for compiled ones; nothing here reads them."""
    return (knobs.cache.manager_class or FileCacheManager)(key, override=True)


def get_dump_manager(key: str) -> CacheManager:
    """The manager of dumped files."""
    return (knobs.cache.manager_class or FileCacheManager)(key, dump=True)


def replace_file(path: Path, data: bytes) -> None:
    """Write a whole file or none: other processes read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    container.write(path, data)


class TensorWrapper:
    """A tensor whose elements are read as ``dtype``; see :func:`reinterpret`."""

    def __init__(self, base: Any, dtype: Any):
        self.base, self.dtype = base, dtype
        self.data, self.shape, self.device = getattr(base, "data", base), base.shape, base.device

    @property
    def is_cuda(self) -> bool:
        """Whether it lies on a GPU."""
        return self.base.is_cuda

    def data_ptr(self) -> int:
        return self.base.data_ptr()

    def stride(self, *axis: int) -> Any:
        return self.base.stride(*axis)

    def numel(self) -> int:
        return self.base.numel()

    def dim(self) -> int:
        return self.base.dim()

    def element_size(self) -> int:
        return self.base.element_size()

    def untyped_storage(self) -> Any:
        return self.base.untyped_storage()

    def cpu(self) -> TensorWrapper:
        return TensorWrapper(self.base.cpu(), self.dtype)

    def clone(self) -> TensorWrapper:
        return TensorWrapper(self.base.clone(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        return TensorWrapper(self.base.to(device), self.dtype)

    def new_empty(self, *sizes: Any) -> TensorWrapper:
        return TensorWrapper(self.base.new_empty(*sizes), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        self.base.copy_(other.base)

    def __repr__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base!r})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """``tensor`` with its memory read as elements of ``dtype`` (one of the language's, or of torch's), which
    must be as wide."""
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    name = str(dtype.base.name if hasattr(dtype, "base") else dtype)
    same = str(base.dtype).removeprefix("torch.") == name.removeprefix("torch.")
    return base if same else TensorWrapper(base, dtype)


class MockTensor:
    """A tensor's element type without a tensor, for ``kernel.warmup``; its memory is aligned."""

    ptr_range = staticmethod(lambda: 0)

    def __init__(self, dtype: Any, shape: Any = None):
        self.dtype, self.shape = dtype, [1] if shape is None else shape
        self.device = "cpu"

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        """A mock tensor of an element type of torch; anything else itself."""
        is_type = type(arg).__name__ == "dtype" and type(arg).__module__ == "torch"
        return MockTensor(arg) if is_type else arg

    @staticmethod
    def data_ptr() -> int:
        return 0

    def stride(self) -> tuple[int, ...]:
        """The distances between neighbours along each dimension, of a contiguous tensor."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))


def set_allocator(allocator: Callable[[int, int, Any], Any]) -> None:
    """Accepted: ``allocator`` is for kernels that need scratch memory on the device, and ptxforge's need
    none."""


class NullAllocator:
    """The allocator of a program that set none."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Any:
        """Raises :class:`PtxforgeError`: there is nothing to allocate with."""
        raise PtxforgeError("no allocator was set; call triton.set_allocator")


class InterpretedFunction:
    """What ``TRITON_INTERPRET=1`` makes of kernels in Triton. There is none here: kernels run in the
    emulator, with ``PTXFORGE_DEVICE=emulator``, as they are."""


def must_use_result(x: Any, s: bool | str = True) -> Any:
    """Mark the function ``x`` that kernels call: a call whose result nobody uses is an error. A text
    (instead of the function, as a decorator with an argument; or as ``s``) is added to the error."""
    if isinstance(x, str):
        return lambda marked: must_use_result(marked, x)
    x.__triton_must_use_result__ = s
    return x


def native_specialize_impl(
    backend: Any, value: Any, is_const: bool = False, specialize_value: bool = True, align: bool = True
) -> tuple[Any, Any]:
    """``(type, key)`` of an argument. The key of an integer or array is ``"D"`` when 16 divides it, else
    empty (``None`` where it is not specialised), a constant's itself, a function's its digest. Tuples give
    tuples of both, specialised whatever is said."""
    if isinstance(value, tuple):
        kinds, keys = zip(*(native_specialize_impl(backend, part) for part in value)) if value else ((), ())
        return (type(value)(*kinds), type(value)(*keys)) if hasattr(value, "_fields") else (kinds, keys)
    if isinstance(value, constexpr):
        return "constexpr", value
    made = specialize(Parameter(name="value", index=0, const=is_const, ones=specialize_value), value)
    if made.is_constant:
        return "constexpr", getattr(made.constant, "cache_key", made.constant)
    kind, _, divisor = made.type.partition(":")
    if kind == "i1":
        return "u1", None
    if not specialize_value or not kind.startswith(("i", "u", "*")):
        return kind, None
    return kind, "D" if align and divisor else ""


def mangle_type(arg: Any, specialize: bool = False) -> str:
    """The signature type of an argument: ``*fp32``, ``i32``, ``constexpr`` for ``None``."""
    return native_specialize_impl(None, arg, False, specialize, False)[0]


def current_target() -> Any:
    """What kernels are compiled for on the default device."""
    return driver.active.get_current_target()


current_target.__triton_builtin__ = True  # type: ignore[attr-defined] - kernels may call it as it is


@constexpr_function
def is_cuda() -> bool:
    """Whether the target is NVIDIA's, which the emulator's is as well."""
    return current_target().backend in ("cuda", "cpu")


@constexpr_function
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Whether the compute capability is at least that."""
    return current_target().arch >= 10 * major + minor


@constexpr_function
def is_hip() -> bool:
    """Whether the target is AMD's: never."""
    return False


is_hip_cdna3 = is_hip_cdna4 = is_hip_gfx1250 = is_hip
