"""What the groups of ``triton.knobs`` are made of: settings that read an environment variable until they are
assigned, and groups that can be copied, reset and put in a scope. Programs derive groups of their own."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import attrs

from ptxforge.support.errors import DeviceError

T = TypeVar("T")
_FALSE = ("", "0", "n", "no", "off", "false")


class Env:
    """Assigned to a knob, it means: read the environment again."""


env = Env()


def setenv(key: str, value: str | None) -> None:
    """Set a variable for this process and its children, or remove it; nothing while
    ``triton.knobs.propagate_env`` is false."""
    if not getattr(sys.modules.get("triton.knobs"), "propagate_env", True):
        return
    if value is None:
        os.environ.pop(key, None)
    else:
        os.environ[key] = value


class env_base(Generic[T]):  # noqa: N801 - Triton's names
    """One setting of a group: the environment variable ``key``, and ``default`` where that is unset."""

    def __init__(self, key: str, default: Any = None):
        self.key, self.default = key, default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, group: Any, owner: type | None = None) -> Any:
        if group is None:
            return self
        if self.name in group.__dict__:
            return self.assigned(group.__dict__[self.name])
        text = os.environ.get(self.key)
        if text is not None:
            return self.read(text)
        return self.default(group) if callable(self.default) else self.default

    def __set__(self, group: Any, value: Any) -> None:
        if isinstance(value, Env):
            group.__dict__.pop(self.name, None)
            return
        group.__dict__[self.name] = value
        if value is None or isinstance(value, (bool, int, str)):
            number = int(value) if isinstance(value, bool) else value
            setenv(self.key, None if value is None else str(number))

    def __delete__(self, group: Any) -> None:
        group.__dict__.pop(self.name, None)

    def assigned(self, value: Any) -> Any:
        """What an assigned value reads as."""
        return value

    def read(self, text: str) -> Any:
        """The value that the variable's text means."""
        return text


class env_str(env_base[str]):  # noqa: N801
    """A text."""


class env_opt_str(env_base[str | None]):  # noqa: N801
    """A text, or ``None``."""


class env_bool(env_base[bool]):  # noqa: N801
    """On or off."""

    def __init__(self, key: str, default: bool | None = False):
        super().__init__(key, default)

    def read(self, text: str) -> bool:
        return text.strip().lower() not in _FALSE


class env_opt_bool(env_bool):  # noqa: N801
    """On, off, or ``None``."""

    def __init__(self, key: str):
        super().__init__(key, None)


class env_int(env_base[int]):  # noqa: N801
    """A whole number. Reading another text raises ``RuntimeError``."""

    def __init__(self, key: str, default: int = 0):
        super().__init__(key, default)

    def read(self, text: str) -> int:
        try:
            return int(text)
        except ValueError as error:
            raise RuntimeError(f"{self.key}={text} is not a whole number") from error


class env_class(env_base[type]):  # noqa: N801
    """A class, ``module:name`` in the variable, that descends from one called ``kind``. Reading anything
    else raises ``RuntimeError``."""

    def __init__(self, key: str, kind: str):
        super().__init__(key)
        self.kind = kind

    def read(self, text: str) -> type:
        module, colon, name = text.partition(":")
        if not colon:
            raise RuntimeError(f"{self.key}={text} is not of the form MODULE:CLASS")
        found = getattr(importlib.import_module(module), name)
        if self.kind not in (base.__name__ for base in found.mro()):
            raise RuntimeError(f"{self.key}={text} is no {self.kind}")
        return found


@attrs.frozen
class NvidiaTool:
    """A program of CUDA's toolkit: where it is, and its release."""

    path: str
    version: str

    @classmethod
    def from_path(cls, path: str) -> NvidiaTool | None:
        """The tool at a path; ``None`` when nothing there tells its release."""
        try:
            told = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        except OSError:
            return None
        release = re.search(r"release (\d+\.\d+)", told)
        return cls(path, release.group(1)) if release else None


class env_nvidia_tool(env_base[NvidiaTool]):  # noqa: N801
    """A tool: the variable's path, else the one on ``PATH``. Reading it where there is none raises
    :class:`DeviceError`."""

    def __init__(self, binary: str):
        self.binary = binary
        super().__init__(f"TRITON_{binary.upper().replace('-', '_')}_PATH", lambda group: self.read(""))

    def assigned(self, value: str) -> NvidiaTool:
        return self.read(value)

    def read(self, text: str) -> NvidiaTool:
        for path in filter(None, (text, shutil.which(self.binary))):
            tool = NvidiaTool.from_path(path)
            if tool is not None:
                return tool
        raise DeviceError(f"{self.binary} was not found")


class base_knobs:  # noqa: N801
    """Knobs that belong together."""

    @property
    def knob_descriptors(self) -> dict[str, env_base]:
        """The knobs by name."""
        return {name: held for name, held in vars(type(self)).items() if isinstance(held, env_base)}

    @property
    def knobs(self) -> dict[str, Any]:
        """The values in force by name; ``None`` for a tool that is not installed."""
        return {name: _value(lambda name=name: getattr(self, name)) for name in self.knob_descriptors}

    def copy(self) -> base_knobs:
        """A group with the same values, independent of this one."""
        other = type(self)()
        other.__dict__.update(self.__dict__)
        return other

    def reset(self) -> base_knobs:
        """Forget what was assigned; hooks stay."""
        for name in self.knob_descriptors:
            self.__dict__.pop(name, None)
        return self

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Undo what is assigned inside, and what is done to the group's environment variables."""
        before = dict(self.__dict__)
        environment = {held.key: os.environ.get(held.key) for held in self.knob_descriptors.values()}
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)
            for key, value in environment.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


def _value(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DeviceError:
        return None
