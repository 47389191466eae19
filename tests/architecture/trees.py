"""The syntax trees of files, which several tests read and none changes: each file is parsed once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
