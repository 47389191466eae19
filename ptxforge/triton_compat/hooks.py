"""The hooks of ``triton.knobs.runtime``, tied to those of ptxforge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxforge.runtime import hooks


class HookChain:
    """Functions that are called one after the other; ``reversed`` calls the last one first. False while it
    is empty."""

    def __init__(self, reversed: bool = False):
        self.calls: list[Callable[..., Any]] = []
        self.reversed = reversed

    def add(self, function: Callable[..., Any]) -> None:
        """Call it too, unless it is called already."""
        if function not in self.calls:
            self.calls.append(function)

    def remove(self, function: Callable[..., Any]) -> None:
        """Call it no longer."""
        if function in self.calls:
            self.calls.remove(function)

    def set(self, function: Callable[..., Any] | None) -> None:
        """Call it alone, or nothing."""
        for known in list(self.calls):
            self.remove(known)
        if isinstance(function, HookChain):
            for called in function.calls:
                self.add(called)
        elif function is not None:
            self.add(function)

    def __bool__(self) -> bool:
        return bool(self.calls)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for function in self.calls[::-1] if self.reversed else list(self.calls):
            function(*args, **kwargs)


class LaunchMetadata:
    """What a launch hook gets: ``get()`` tells the kernel's name, its function, the stream, and what the
    kernel's own ``launch_metadata`` says."""

    def __init__(self, launch: hooks.Launch):
        self._launch = launch

    def get(self) -> dict[str, Any]:
        """All facts by name."""
        launch = self._launch
        facts = {"name": launch.name, "function": launch.variant.function, "stream": launch.stream}
        return facts | launch.metadata

    @property
    def data(self) -> dict[str, Any]:
        """The same."""
        return self.get()


class LaunchChain(HookChain):
    """Called around every launch, with :class:`LaunchMetadata`. ptxforge knows of it only while it is not
    empty, so that launches pay for hooks only then."""

    def __init__(self, before: bool):
        super().__init__(reversed=not before)
        tell = lambda launch: self(LaunchMetadata(launch))  # noqa: E731 - one function for either end
        self._hook = hooks.Hook(enter=tell) if before else hooks.Hook(exit=tell)

    def add(self, function: Callable[..., Any]) -> None:
        """Call it too, unless it is called already."""
        super().add(function)
        if self._hook not in hooks.LAUNCH:
            hooks.LAUNCH.append(self._hook)

    def remove(self, function: Callable[..., Any]) -> None:
        """Call it no longer."""
        super().remove(function)
        if not self.calls:
            self._hook.remove()


class Chain:
    """An attribute that is a chain of hooks; assigning a function replaces what is in it, ``None`` empties
    it."""

    def __init__(self, chain: HookChain):
        self._chain = chain

    def __get__(self, group: Any, owner: type | None = None) -> HookChain:
        return self._chain

    def __set__(self, group: Any, function: Any) -> None:
        self._chain.set(function)
