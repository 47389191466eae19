"""The environment variables that ptxforge reads, each declared once, with its meaning.

They are read when asked for, so that a test or a script can change them. ``python -m ptxforge env`` prints
this table.
"""

from __future__ import annotations

import os

import attrs


@attrs.frozen(slots=True)
class Setting:
    """One variable: its name, its default and what it does."""

    name: str
    default: str
    meaning: str

    def get(self) -> str:
        """The value in force."""
        return os.environ.get(self.name, self.default)

    def flag(self) -> bool:
        """The value as a switch: anything but empty, ``0``, ``off``, ``no``, ``none`` and ``false`` is on."""
        return self.get().strip().lower() not in ("", "0", "off", "no", "none", "false")


DEVICE = Setting(
    "PTXFORGE_DEVICE", "", "default device: 'emulator', 'cuda' or 'cuda:N' (unset: CUDA when there is a GPU)"
)
TARGET = Setting(
    "PTXFORGE_TARGET", "", "target of kernels run by the emulator, such as sm_80 (unset: sm_90a)"
)
CHECK = Setting("PTXFORGE_CHECK", "off", "emulator's checked mode: 'off', 'one' (one CTA) or 'all'")
DUMP = Setting("PTXFORGE_DUMP", "", "print the IR after these passes (comma separated, or 'all') to stderr")
STOP_AFTER = Setting(
    "PTXFORGE_STOP_AFTER", "", "end the pass pipeline after this pass (for looking, not for running)"
)
VERIFY = Setting("PTXFORGE_VERIFY", "0", "verify the IR after every pass")
CACHE_DIR = Setting(
    "PTXFORGE_CACHE_DIR", "", "folder of the disk cache ('off' disables it; unset: the user's cache folder)"
)
PRINT_AUTOTUNING = Setting("PTXFORGE_PRINT_AUTOTUNING", "0", "print each autotuner's result to stderr")

ALL = (DEVICE, TARGET, CHECK, DUMP, STOP_AFTER, VERIFY, CACHE_DIR, PRINT_AUTOTUNING)
