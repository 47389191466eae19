"""Errors without ptxforge's own frames: what a user did wrong is in the message and in the user's frames."""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.support import settings
from ptxforge.support.errors import InternalCompilerError, LaunchInterrupt, PtxforgeError

SHORTENED = (PtxforgeError, LaunchInterrupt)
"""What is raised in place of itself by :func:`short`."""

cause_of: Callable[[BaseException], BaseException | None] | None = None
"""What an error is raised from, under the alias ``triton``."""


def short(error: BaseException) -> BaseException:
    """The error to raise in place of ``error`` where ptxforge hands it to its caller.

    It is the same object without the frames and causes that led to it inside ptxforge, but for
    ``PTXFORGE_TRACEBACK=full`` and for a fault of ptxforge itself.
    """
    if isinstance(error, InternalCompilerError) or settings.TRACEBACK.get() == "full":
        return error
    error.__cause__, error.__suppress_context__ = cause_of and cause_of(error), True
    return error.with_traceback(None)
