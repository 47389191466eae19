"""Warm-ups that are compiled by an executor, while the program goes on: Triton's ``AsyncCompileMode``.

    with AsyncCompileMode(ThreadPoolExecutor()):
        for block in blocks:
            kernel.warmup(np.float32, block, grid=(1,))      # submitted
        kernel[(1,)](x, blocks[0])                           # waits for this one alone

Threads take turns in the compiler, which is Python; ``kernel.precompile`` compiles in processes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ptxforge.runtime import compiling

if TYPE_CHECKING:
    from ptxforge.compiler import Artifact
    from ptxforge.driver.protocol import Device
    from ptxforge.runtime.jit import JITFunction
    from ptxforge.runtime.variant import CompiledKernel
    from ptxforge.runtime.variants import Key


class FutureKernel:
    """A kernel that an executor compiles; who asks for the result first makes it a variant of the kernel.
    Reading an attribute of the compiled kernel asks, too."""

    def __init__(self, future: Future, keep: Callable[[Artifact], CompiledKernel]):
        self._future, self._keep = future, keep

    def result(self, ignore_errors: bool = False) -> Any:
        """The compiled kernel. Raises what compiling raised, or is ``None`` then."""
        if ignore_errors and self._future.exception() is not None:
            return None
        return self._keep(self._future.result())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.result(), name)


class AsyncCompileMode:
    """Inside a ``with`` block of it, ``warmup`` submits to ``executor``, each variant once. Its end waits for
    all and raises the first error, unless ``ignore_errors``."""

    def __init__(self, executor: Executor, ignore_errors: bool = False):
        self.executor, self.ignore_errors = executor, ignore_errors
        self._submitted: dict[tuple, FutureKernel] = {}
        self._token: Token | None = None

    def __enter__(self) -> AsyncCompileMode:
        self._token = _active.set(self)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._token is not None:
            _active.reset(self._token)
        if error is None:
            for kernel in self._submitted.values():
                kernel.result(self.ignore_errors)

    def submit(self, kernel: JITFunction, key: Key, device: Device) -> FutureKernel:
        """Have a variant compiled, unless that is under way."""
        name = (id(kernel), key.identity())
        if name not in self._submitted:
            future = self.executor.submit(compiling.artifact_of, kernel, key)
            keep = lambda artifact: kernel._variant_of(key, device, made=artifact)  # noqa: E731 - one call
            self._submitted[name] = FutureKernel(future, keep)
        return self._submitted[name]

    def wait(self, kernel: JITFunction, key: Key) -> CompiledKernel | None:
        """The variant, where it was submitted."""
        found = self._submitted.get((id(kernel), key.identity()))
        return None if found is None else found.result()


_active: ContextVar[AsyncCompileMode | None] = ContextVar("ptxforge_async_compile", default=None)


def active() -> AsyncCompileMode | None:
    """The innermost mode that this thread is in."""
    return _active.get()
