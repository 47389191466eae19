"""A compiled kernel as plain data, for a file: what JSON can say, and its texts."""

from __future__ import annotations

from typing import Any

import attrs

FIELDS = (
    "name", "target", "num_warps", "num_stages", "num_ctas", "shared_bytes", "parameters", "written",
    "options", "signature",
)  # fmt: skip


def described(artifact: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    """An :class:`~ptxforge.compiler.Artifact` as facts and sections of a file
    (:mod:`ptxforge.support.container`). ``shown`` is for readers only."""
    facts = {field: getattr(artifact, field) for field in FIELDS}
    facts["tensor_maps"] = [attrs.asdict(recipe) for recipe in artifact.tensor_maps]
    facts["shown"] = {name: repr(value) for name, value in artifact.constants.items()}
    return facts, {"ptx": artifact.ptx.encode()}
