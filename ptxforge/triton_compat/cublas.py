"""``triton._C.libtriton.nvidia.cublas``: matrix products by the library cublasLt, where it is installed.

Structures and numbers: NVIDIA, "cuBLAS Library", chapter 3 ("Using the cuBLASLt API").
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

from ptxforge.support.errors import ArgumentError, DeviceError

_LIBRARIES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so")
_COMPUTE_32F, _REAL_32F = 68, 0
_TYPES = {"torch.float16": 2, "torch.bfloat16": 14, "torch.float32": 0, "torch.float8_e4m3fn": 28}
"""``cudaDataType`` of element types."""
_F8 = _TYPES["torch.float8_e4m3fn"]
_TRANSA, _FAST_ACCUM = 3, 25
"""Attributes of a product's description."""
_MAX_WORKSPACE_BYTES = 1
_ALGORITHM_BYTES = 64 + 8 + 4 + 4 + 16
"""cublasLtMatmulHeuristicResult_t: algorithm, bytes of workspace, state, waves, reserved."""


class LibraryError(DeviceError, RuntimeError):
    """cublasLt is not there, or refuses a call."""


@functools.cache
def _library() -> ctypes.CDLL:
    """cublasLt, of torch or of the system. Raises :class:`LibraryError` where there is none."""
    for name in _LIBRARIES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise LibraryError(f"cublasLt was not found ({', '.join(_LIBRARIES)})")


def _call(function: str, *args: Any) -> None:
    status = getattr(_library(), function)(*args)
    if status:
        raise LibraryError(f"{function} failed with status {status}")


class _Owned:
    """An object of the library that is destroyed with this one."""

    def __init__(self, kind: str, *args: Any):
        self._kind = kind
        self.handle = ctypes.c_void_p()
        _call(f"cublasLt{kind}Create", ctypes.byref(self.handle), *args)

    def set(self, attribute: int, value: Any) -> _Owned:
        """Set an attribute to a number of C."""
        _call(f"cublasLt{self._kind}SetAttribute", self.handle, attribute, ctypes.byref(value),
              ctypes.c_size_t(ctypes.sizeof(value)))  # fmt: skip
        return self

    def __del__(self) -> None:
        if self.handle:
            getattr(_library(), f"cublasLt{self._kind}Destroy")(self.handle)


def _layout(kind: int, rows: int, columns: int) -> _Owned:
    """A matrix by columns without gaps."""
    return _Owned("MatrixLayout", kind, *map(ctypes.c_uint64, (rows, columns)), ctypes.c_int64(rows))


class CublasLt:
    """``handle.matmul(a, b, c)`` makes c = a · bᵀ for a of (M, K), b of (N, K) and c of (M, N); ``gemm`` adds
    ``beta`` times another matrix. ``workspace`` is a tensor of bytes on the GPU. Raises :class:`LibraryError`
    where the library is not installed or refuses a product."""

    def __init__(self, workspace: Any):
        self.workspace = workspace
        self._handle = _Owned("")

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        """Raises :class:`ArgumentError` for shapes that do not fit or element types that differ."""
        self._product(a, b, c, c, 1.0, 0.0)

    def gemm(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        """d = ``alpha`` · a · bᵀ + ``beta`` · c."""
        self._product(a, b, c, d, alpha, beta)

    def _product(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        kind = self._check(a, b, c, d)
        (m, k), n = a.shape, b.shape[0]
        # by columns, dᵀ (N by M) = b (stored as K by N, hence transposed) · aᵀ (stored as K by M)
        product = _Owned("MatmulDesc", _COMPUTE_32F, _REAL_32F).set(_TRANSA, ctypes.c_int32(1))
        if kind == _F8:
            product.set(_FAST_ACCUM, ctypes.c_int8(1))
        added, made = _addend_type(c, beta), _TYPES[str(d.dtype)]
        sides = [_layout(kind, k, n), _layout(kind, k, m), _layout(added, n, m), _layout(made, n, m)]
        handles = [side.handle for side in sides]
        size = ctypes.c_size_t(self.workspace.numel() * self.workspace.element_size())
        algorithm = self._algorithm(product, handles, size)
        place = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (b, a, c, d, self.workspace)]
        if not beta:  # nobody reads it; "in place" the library would ask for the layout of d
            place[2] = None
        _call("cublasLtMatmul", self._handle.handle, product.handle, ctypes.byref(ctypes.c_float(alpha)),
              place[0], handles[0], place[1], handles[1], ctypes.byref(ctypes.c_float(beta)), place[2],
              handles[2], place[3], handles[3], algorithm, place[4], size, _stream())  # fmt: skip

    def _algorithm(self, product: _Owned, handles: list, size: ctypes.c_size_t) -> Any:
        """What the library's heuristics choose."""
        preference = _Owned("MatmulPreference").set(_MAX_WORKSPACE_BYTES, ctypes.c_uint64(size.value))
        found, count = ctypes.create_string_buffer(_ALGORITHM_BYTES), ctypes.c_int()
        _call("cublasLtMatmulAlgoGetHeuristic", self._handle.handle, product.handle, *handles,
              preference.handle, 1, found, ctypes.byref(count))  # fmt: skip
        if not count.value:
            raise LibraryError("cublasLt has no algorithm for this product")
        return found

    @staticmethod
    def _check(a: Any, b: Any, c: Any, d: Any) -> int:
        for name, tensor in zip("abcd", (a, b, c, d), strict=True):
            if tensor.dim() != 2 or not tensor.is_contiguous() or str(tensor.dtype) not in _TYPES:
                known = ", ".join(_TYPES)
                raise ArgumentError(f"must be a contiguous matrix of {known}, is {tensor.dtype}", name)
        if a.dtype != b.dtype:
            raise ArgumentError(f"must hold {a.dtype} as 'a' does, holds {b.dtype}", "b")
        if a.shape[1] != b.shape[1] or tuple(c.shape) != (a.shape[0], b.shape[0]) or d.shape != c.shape:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (a, b, c))
            raise ArgumentError(f"the shapes must be (M, K), (N, K) and (M, N), are {shapes}", "a")
        return _TYPES[str(a.dtype)]


def _addend_type(c: Any, beta: float) -> int:
    """The element type that c is described with. The library adds no 8-bit floats (cuBLAS, table of
    cublasLtMatmul's types: with d in fp8, c is f16 or bf16); one that is not added is not read either."""
    kind = _TYPES[str(c.dtype)]
    if kind != _F8:
        return kind
    if beta:
        raise ArgumentError(f"must hold 16-bit floats or f32 to be added, holds {c.dtype}", "c")
    return _TYPES["torch.float16"]


def _stream() -> ctypes.c_void_p:
    """torch's current stream."""
    torch = sys.modules.get("torch")
    current: Callable[[], Any] | None = getattr(getattr(torch, "cuda", None), "current_stream", None)
    return ctypes.c_void_p(current().cuda_stream if current else 0)
