"""The environment variables that ptxforge reads, each declared once, with its meaning.

They are read when asked for, so that a test or a script can change them; a value that cannot be is an error
that names the variable. ``python -m ptxforge env`` prints this table.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import attrs

from ptxforge.support.errors import (
    CompilationError,
    SettingError,
    did_you_mean,
)  # fmt: skip
from ptxforge.support.target import parse_target

PREFIX = "PTXFORGE_"
_ON = ("1", "on", "yes", "true")
_OFF = ("", "0", "off", "no", "none", "false")
_OF_TESTS = ("PTXFORGE_FUZZ",)  # read by tests/fuzz, meaningless outside


@attrs.frozen(slots=True)
class Setting:
    """One variable: its name, its default, what it does, and a function that tells what is wrong with a value
    (an empty text when nothing is)."""

    name: str
    default: str
    meaning: str
    complaint: Callable[[str], str] = lambda text: ""
    key: Any = attrs.Factory(lambda self: _key_of(self), takes_self=True)
    """The name as the environment's own dictionary has it."""

    def get(self) -> str:
        """The value in force; an empty one means the default.

        Raises :class:`SettingError` for a value that the variable cannot have.
        """
        held = self.held()
        if not held:  # most are not set, and the environment's own ``get`` needs an exception to tell
            return self.default
        known = _READ.get(self.name)
        if known is not None and known[0] is held:
            return known[1]
        given = os.environ[self.name]
        wrong = self.complaint(given)
        if wrong:
            raise self.error(wrong)
        _READ[self.name] = held, given
        return given

    def held(self) -> Any:
        """The text of the variable as the environment holds it, to tell changes by. ``get`` decodes it, which
        takes a microsecond; this is a look-up."""
        try:
            return os.environ._data.get(self.key)
        except AttributeError:  # another mapping was put in the place of Python's
            return os.environ.get(self.name)

    def flag(self) -> bool:
        """The value as a switch: ``1``, ``on``, ``yes`` and ``true`` are on; empty, ``0``, ``off``, ``no``,
        ``none`` and ``false`` are off. A variable that is a switch refuses others; for a variable with other
        values, those are on."""
        return self.get().strip().lower() not in _OFF

    def error(self, why: str) -> SettingError:
        """The error for this variable's value, to be raised where it is found wrong."""
        return SettingError(f"{self.name}={os.environ.get(self.name, '')!r}: {why}")


_READ: dict[str, tuple[Any, str]] = {}
"""The variables that were read, by name: what the environment holds, and its text."""


def _key_of(setting: Setting) -> Any:
    encode = getattr(os.environ, "encodekey", None)
    return encode(setting.name) if encode is not None else setting.name


def one_of(*values: str) -> Callable[[str], str]:
    """Complains of a value that is none of these."""

    def complaint(text: str) -> str:
        return "" if text in values else f"it can be {', '.join(values[:-1])} or {values[-1]}"

    return complaint


def _not_a_switch(text: str) -> str:
    if text.strip().lower() in (*_ON, *_OFF):
        return ""
    return "it can be on (1, on, yes, true) or off (0, off, no, false)"


def _not_a_device(text: str) -> str:
    kind, _, number = text.partition(":")
    fits = text in ("emulator", "interpreter") or (kind == "cuda" and (number.isdigit() or text == "cuda"))
    return "" if fits else "it can be 'emulator', 'interpreter', 'cuda' or 'cuda:N'"


def _not_a_target(text: str) -> str:
    try:
        parse_target(text)
    except CompilationError as error:
        return f"{error.message}; {error.hint}"
    return ""


def parse_size(text: str) -> int:
    """``"2G"`` in bytes. Raises ``ValueError`` for text that is no size.

    >>> parse_size("100"), parse_size("1.5k"), parse_size("2GiB")
    (100, 1536, 2147483648)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", text.strip().upper())
    if match is None:
        raise ValueError(text)
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


def _not_a_size(text: str) -> str:
    try:
        parse_size(text)
    except ValueError:
        return "it is a number of bytes, or a number with K, M, G or T"
    return ""


def _not_a_count(text: str) -> str:
    return "" if text.isdigit() else "it is a number, such as 1000000"


def _not_seconds(text: str) -> str:
    is_number = re.fullmatch(r"\d+(\.\d*)?|\.\d+", text) is not None
    return "" if is_number else "it is a number of seconds, such as 60"


def _not_a_release(text: str) -> str:
    is_release = re.fullmatch(r"\d+\.\d+(\.\d+)?([.+]?\w+)*", text) is not None
    return "" if is_release else "it is a version, such as 3.7.1"


DEVICE = Setting(
    "PTXFORGE_DEVICE",
    "",
    "default device: 'emulator', 'interpreter', 'cuda' or 'cuda:N' (unset: CUDA when there is a GPU)",
    _not_a_device,
)
TARGET = Setting(
    "PTXFORGE_TARGET",
    "",
    "target of kernels run by the emulator, such as sm_80 (unset: sm_90a)",
    _not_a_target,
)
CHECK = Setting(
    "PTXFORGE_CHECK",
    "off",
    "emulator's checked mode: 'off', 'one' (one CTA) or 'all'",
    one_of("off", "one", "all"),
)
STEP_LIMIT = Setting(
    "PTXFORGE_STEP_LIMIT",
    "100000000",
    "basic blocks after which a launch on the emulator is stopped, per batch of programs (0: never)",
    _not_a_count,
)
TIME_LIMIT = Setting(
    "PTXFORGE_TIME_LIMIT",
    "0",
    "seconds after which a launch on the emulator or interpreter is stopped (0: never)",
    _not_seconds,
)
TRACEBACK = Setting(
    "PTXFORGE_TRACEBACK",
    "short",
    "'full' shows ptxforge's own frames in the traceback of an error, 'short' the user's only",
    one_of("short", "full"),
)
DUMP = Setting("PTXFORGE_DUMP", "", "print the IR after these passes (comma separated, or 'all') to stderr")
STOP_AFTER = Setting(
    "PTXFORGE_STOP_AFTER", "", "end the pass pipeline after this pass (for looking, not for running)"
)
VERIFY = Setting("PTXFORGE_VERIFY", "0", "verify the IR after every pass", _not_a_switch)
CACHE_DIR = Setting(
    "PTXFORGE_CACHE_DIR", "", "folder of the disk cache ('off' disables it; unset: the user's cache folder)"
)
CACHE_PATH = Setting(
    "PTXFORGE_CACHE_PATH",
    "",
    "more folders to look for compiled kernels in, which are not written to (separated as in PATH)",
)
CACHE_SIZE = Setting(
    "PTXFORGE_CACHE_SIZE",
    "2G",
    "how large the disk cache may grow: bytes, or a number with K, M, G or T; the oldest entries go first",
    _not_a_size,
)
ASSEMBLER = Setting(
    "PTXFORGE_ASSEMBLER",
    "",
    "what makes machine code: 'driver' (needs a GPU), 'nvjitlink' or 'ptxas' (unset: the driver for a kernel "
    "that is loaded, else nvJitLink if it is installed, else ptxas)",
    one_of("driver", "nvjitlink", "ptxas"),
)
JIT = Setting(
    "PTXFORGE_JIT",
    "allow",
    "'forbid' makes a launch that would have to compile an error (see docs/launching.md)",
    one_of("allow", "forbid"),
)
PRINT_AUTOTUNING = Setting(
    "PTXFORGE_PRINT_AUTOTUNING", "0", "print each autotuner's result to stderr", _not_a_switch
)
TRITON_VERSION = Setting(
    "PTXFORGE_TRITON_VERSION",
    "3.6.0",
    "the release of Triton that the alias calls itself, and whose types kernels get where releases differ",
    _not_a_release,
)

ALL = (
    DEVICE, TARGET, CHECK, STEP_LIMIT, TIME_LIMIT, TRACEBACK, DUMP, STOP_AFTER, VERIFY, CACHE_DIR, CACHE_PATH,
    CACHE_SIZE, ASSEMBLER, JIT,
    PRINT_AUTOTUNING, TRITON_VERSION,
)  # fmt: skip


def follows(*release: int) -> bool:
    """Whether kernels mean what they mean since that release of Triton, where releases differ."""
    return tuple(map(int, re.findall(r"\d+", TRITON_VERSION.get())[:2])) >= release


def unknown() -> list[str]:
    """A sentence for each variable of the environment that has ptxforge's prefix and that nobody reads."""
    known = [setting.name for setting in ALL]
    strange = sorted(name for name in _with_prefix() if name not in (*known, *_OF_TESTS))
    return [f"the environment variable {name} is not one of ptxforge's{_nearest(name)}" for name in strange]


def _with_prefix() -> list[str]:
    """The variables with ptxforge's prefix; the others are not even decoded, which takes a microsecond
    each."""
    environment = os.environ
    try:
        prefix = environment.encodekey(PREFIX)
        return [environment.decodekey(key) for key in list(environment._data) if key.startswith(prefix)]
    except AttributeError:  # another mapping was put in the place of Python's
        return [name for name in environment if name.startswith(PREFIX)]


def _nearest(name: str) -> str:
    hint = did_you_mean(name, [setting.name for setting in ALL])
    return hint and f"; {hint}"


_told: set[str] = set()


def warn_of_unknown() -> None:
    """Warn, once a process, of each misspelt variable; called where a device is chosen or a kernel
    compiled."""
    for sentence in unknown():
        if sentence not in _told:
            _told.add(sentence)
            warnings.warn(f"{sentence} (python -m ptxforge env lists them)", stacklevel=2)
