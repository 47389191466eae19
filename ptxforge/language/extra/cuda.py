"""What is particular to NVIDIA's GPUs."""

from ptxforge.language.extra import libdevice

__all__ = ["libdevice"]
