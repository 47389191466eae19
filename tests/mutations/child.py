"""``python -m tests.mutations.child CHECK [MUTANT]``: a check, in a compiler with a mutant or without.

Ends with 0 when the check finds nothing, with :data:`FOUND` when it does.
"""

from __future__ import annotations

import sys
import traceback
from importlib.machinery import PathFinder, SourceFileLoader

from tests.mutations.mutants import MUTANTS, Mutant

FOUND = 3


class Mutated(SourceFileLoader):
    """Loads a module whose text has the mutant; no file changes, and none is written."""

    mutant: Mutant

    def get_code(self, fullname: str):
        text = self.get_source(fullname)
        assert text.count(self.mutant.old) == 1, f"{self.mutant.name}: its text is there no more, or twice"
        return compile(text.replace(self.mutant.old, self.mutant.new), self.path, "exec")


class Finder(PathFinder):
    """Finds the module of a mutant, and leaves all others to the next finder."""

    def __init__(self, mutant: Mutant):
        self.mutant = mutant

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.mutant.module:
            return None
        spec = super().find_spec(fullname, path, target)
        spec.loader = Mutated(fullname, spec.origin)
        spec.loader.mutant = self.mutant
        return spec


def main(check: str, name: str = "") -> int:
    """The exit status."""
    mutant = next((mutant for mutant in MUTANTS if mutant.name == name), None)
    if mutant is not None:
        sys.meta_path.insert(0, Finder(mutant))
    from tests.mutations import checks

    status = 0
    try:
        checks.run(check)
    except Exception:
        traceback.print_exc()
        status = FOUND
    if mutant is not None:
        assert isinstance(sys.modules[mutant.module].__loader__, Mutated)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
