"""A module under another name, whose contents come from elsewhere."""

from __future__ import annotations

import importlib.machinery
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ptxforge.support import settings
from ptxforge.triton_compat.refused import reason

VERSION = settings.TRITON_VERSION.get()  # the release of Triton whose answers to probes are given
Source = types.ModuleType | Mapping[str, Any]


class Alias(types.ModuleType):
    """A module that takes each attribute from the first of its ``sources`` (modules or dictionaries) that has
    it.

    It has the ``__spec__``, ``__path__`` and ``__file__`` that ``importlib.util.find_spec`` and the import
    statement ask for. ``forget`` is called when the module is reloaded.
    """

    def __init__(self, name: str, sources: Sequence[Source], forget: Callable[[], None] | None = None):
        super().__init__(name, f"'{name}', provided by ptxforge")
        self.__spec__ = importlib.machinery.ModuleSpec(name, loader=None, origin=__file__, is_package=True)
        self.__path__: list[str] = []  # a package without files: unknown submodules are not found
        self.__package__ = name
        self.__file__ = __file__
        self.__version__ = VERSION
        self._sources = tuple(sources)
        self._forget = forget
        self._taken: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for source in self._sources:
            found = source.get(name, self) if isinstance(source, Mapping) else getattr(source, name, self)
            if found is not self:
                setattr(self, name, found)
                self._taken.append(name)
                return found
        full = f"{self.__name__}.{name}"
        why = reason(full)
        raise AttributeError(f"ptxforge does not cover '{full}'" + (f": {why}" if why else ""))

    def _reload(self) -> None:
        """Take the attributes from the sources again."""
        if self._forget is not None:
            self._forget()
        for name in self._taken:
            self.__dict__.pop(name, None)
        self._taken.clear()

    def __dir__(self) -> list[str]:
        names = {
            name
            for source in self._sources
            for name in (source if isinstance(source, Mapping) else dir(source))
        }
        return sorted(name for name in names if not name.startswith("_"))


class Reloads:
    """The finder and loader behind ``importlib.reload`` of an alias. Nothing else is found by it: an import
    finds modules in ``sys.modules``."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A new description of the alias ``target``; ``None`` for what is none."""
        if not isinstance(target, Alias):
            return None
        return importlib.machinery.ModuleSpec(name, loader=cls, origin=__file__, is_package=True)

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> None:
        """Nothing: the module is there."""

    @staticmethod
    def exec_module(module: Alias) -> None:
        """What running the module's text again would do."""
        module._reload()
