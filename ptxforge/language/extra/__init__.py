"""Functions beyond the language proper."""

from ptxforge.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
