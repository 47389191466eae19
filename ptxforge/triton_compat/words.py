"""What code that is written for Triton looks for in errors: under the alias it follows ptxforge's own text.

    argument 'end' of arange(): the number of elements must be a power of two, is 5
    at kernels.py:12 in kernel …
    at 3:8: of kernel                        lines from its ``def`` on, columns from its indentation on
    arange's range must be a power of 2      words that callers match

``__cause__`` is the error of the inner function whose call is at fault, or a ``ValueError`` of the words.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs

from ptxforge.support.errors import (
    AutotunerError,
    CompilationError,
    CompileTimeAssertionError,
    PtxforgeError,
    UnsupportedSyntaxError,
)
from ptxforge.support.location import Location, source_lines

_NO_CONFIGURATION = (
    "Autotuner error: No valid autotuner configs after pruning. "
    "`early_config_prune` should return at least one config."
)


def _scale(found: re.Match[str]) -> str:
    return f"{found[1]} must be a tensor of shape {found[2]}. Got {found[3].split(', ')}"


_WORDS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"of arange\(\): the number of elements must be a power": "arange's range must be a power of 2",
    r"must be (?:a power|powers) of two; dimension (\d+)": r"Shape element \1 must be a power of 2",
    r"(?:no value can be |no element type for ')(\w+)[:']": r"type \1 not supported in this architecture",
    r"^argument 'input' of dot\(\): must have at least (\d+) columns": (
        r"Input shapes should have M >= 1, N >= 1 and K >= \1"
    ),
    r"^argument '(max_num_imprecise_acc)'.* at most (\d+),.* is (\d+)": r"\1 (\3) must be <= K (\2)",
    r"^the result of (\S+) is not being used(?:: (.*))?": r"The result of \1 is not being used. \2",
    r"^argument '(\w+_scale)' .*must have shape (\[.*?\]), is \w+\[(.*)\]": _scale,
    r"^the global variable '(\w+)' cannot be read": r"Cannot access global variable \1 from within a kernel",
    r"^the global variable '(\w+)' was (.*) when .* and is (.*) now;": (
        r"Global variable \1 has changed since we compiled this kernel, from constexpr[\2] to constexpr[\3]"
    ),
    r"^the global variable '(\w+)' was (.*) when '(\w+)' was .* in '(\w+)' it is (.*), which": (
        r"Global variable \1 has value \5 when compiling \4, and had \2 in \3. This is not allowed"
    ),
    r"^(\w+) and (\w+) have different signedness": (
        r"Cannot use / or % on \1 and \2 because they have different signedness"
    ),
    r"^'.*' combines integers, not (.*) and (.*)": r"invalid operands of type \1 and \2",
    r"^too many indices": "unsupported tensor index",
    r"'axis' .*: (-?\d+) is out of range": r"invalid axis \1",
    r"'axis' .*: names a dimension twice: (.*)": r"duplicate axes, normalized axes = \1",
    r"of program_id\(\): must be 0, 1 or 2, is (-?\d+)": r"program_id axis must be 0, 1, or 2 but got \1",
    r"is a tl.const pointer, which must not": "Cannot store to a constant pointer",
    r"^'(\w+)' has different types after the branches": (
        r"Mismatched type for \1 between then block and else block"
    ),
    r"^'(\w+)' returns different types": r"Inconsistent return types of \1",
    r"^the two values of this expression have different types": (
        "Ternary expression with dynamic condition has inconsistent types"
    ),
    r"must have at least 16 bytes": "Descriptor block shape must have at least 16 bytes",
    r"^argument 'num_warps': must be a power of two": "num_warps must be a power of 2",
    r"^argument 'num_ctas': .* has no clusters": "num_ctas > 1 requires NVIDIA SM90+ (Hopper)",
    r"^out of resource: (.*): (\d+) required, (\d+)": (
        r"out of resource: \1, Required: \2, Hardware limit: \3"
    ),
    r"'strides': must be multiples of 16 bytes": "strides must be 16-byte aligned",
    r"'shape': sizes are positive": "shape must be positive",
    r"^early_config_prune left no configuration": _NO_CONFIGURATION,
}


def _words(message: str) -> str:
    for pattern, words in _WORDS.items():
        found = re.search(pattern, message)
        if found:
            return words(found) if callable(words) else found.expand(words)
    return ""


def _place(location: Location) -> str:
    """``3:8: of kernel``, or nothing where there is no text of the function."""
    lines = source_lines(location.file)[: location.line]
    head = re.compile(rf"(\s*)(?:async )?def {re.escape(location.function or '?')}\b")
    for first in range(len(lines), 0, -1):
        found = head.match(lines[first - 1])
        if found:
            column = location.column - len(found[1])
            return f"{location.line - first + 1}:{column}: of {location.function}"
    return ""


def also(error: PtxforgeError, text: str) -> str:
    """The text of an error with the places and the words that Triton's has."""
    message = error.message if isinstance(error, CompilationError) else text
    words = _words(message)
    if words and text.endswith(words):
        return text  # it tells of another error, with its text
    if isinstance(error, AutotunerError) and words:
        return words
    places = []
    if isinstance(error, CompilationError) and error.location is not None:
        places = [place for here in error.location.chain() if (place := _place(here))]
    place = f"at {', called at '.join(places)}" if places else ""
    return "\n".join(part for part in (text, place, words) if part)


def cause(error: BaseException) -> BaseException | None:
    """What an error is raised from."""
    if not isinstance(error, CompilationError):
        return None
    if error.location is not None and error.location.call_site is not None:
        inner = type(error).__new__(type(error), *error.args)  # `copy` asks who registered for the class
        inner.__dict__.update(error.__dict__)
        inner.location = attrs.evolve(error.location, call_site=None)
        inner.__cause__ = cause(inner)
        return inner
    if isinstance(error, (CompileTimeAssertionError, UnsupportedSyntaxError)):
        return None
    return ValueError(_words(error.message) or error.message)
