"""Values of which equal ones are one object."""

from __future__ import annotations


class _Interning(type):
    """Gives the object that was made first of equal arguments."""

    def __call__(cls, *arguments, **named):
        made = super().__call__(*arguments, **named)
        return _KNOWN.setdefault((cls, *made.parts()), made)


_KNOWN: dict[tuple, Interned] = {}


class Interned(metaclass=_Interning):
    """Base of ``frozen(eq=False)`` classes: to compare two values, or to look one up, takes no look at their
    fields. Compilers do little else with layouts, and with what operations do."""

    __slots__ = ()

    def parts(self) -> tuple:
        """The fields' values."""
        return tuple([getattr(self, name) for name in self.__match_args__])

    def __reduce__(self) -> tuple:
        return type(self), self.parts()
