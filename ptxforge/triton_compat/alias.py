"""A module under another name, whose contents come from elsewhere."""

from __future__ import annotations

import importlib.machinery
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ptxforge.triton_compat.refused import reason

VERSION = "3.6.0"  # the release of Triton whose answers to probes are given
Source = types.ModuleType | Mapping[str, Any]


class Alias(types.ModuleType):
    """A module that takes each attribute from the first of its ``sources`` (modules or dictionaries) that has
    it.

    It has the ``__spec__``, ``__path__`` and ``__file__`` that ``importlib.util.find_spec`` and the import
    statement ask for.
    """

    def __init__(self, name: str, sources: Sequence[Source]):
        super().__init__(name, f"'{name}', provided by ptxforge")
        self.__spec__ = importlib.machinery.ModuleSpec(name, loader=None, origin=__file__, is_package=True)
        self.__path__: list[str] = []  # a package without files: unknown submodules are not found
        self.__package__ = name
        self.__file__ = __file__
        self.__version__ = VERSION
        self._sources = tuple(sources)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for source in self._sources:
            found = source.get(name, self) if isinstance(source, Mapping) else getattr(source, name, self)
            if found is not self:
                setattr(self, name, found)
                return found
        full = f"{self.__name__}.{name}"
        why = reason(full)
        raise AttributeError(f"ptxforge does not cover '{full}'" + (f": {why}" if why else ""))

    def __dir__(self) -> list[str]:
        names = {
            name
            for source in self._sources
            for name in (source if isinstance(source, Mapping) else dir(source))
        }
        return sorted(name for name in names if not name.startswith("_"))
