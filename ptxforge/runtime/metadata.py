"""Facts of a compiled kernel under Triton's names."""

from __future__ import annotations

from typing import Any, NamedTuple

from ptxforge.compiler import Artifact
from ptxforge.support.target import parse_target


class GPUTarget(NamedTuple):
    """``backend`` is ``"cuda"``; ``arch`` the compute capability times ten, such as 90."""

    backend: str
    arch: int
    warp_size: int

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"


class Metadata(NamedTuple):
    """``shared`` is bytes of dynamic shared memory per block, ``hash`` hexadecimal digits; ``constants`` are
    the values compiled in by parameter."""

    name: str
    shared: int
    num_warps: int
    num_stages: int
    num_ctas: int
    cluster_dims: tuple[int, int, int]
    target: GPUTarget
    arch: str
    maxnreg: int | None
    debug: bool
    launch_cooperative_grid: bool
    launch_pdl: bool
    hash: str
    signature: dict[str, str]
    constants: dict[str, Any]


def metadata_of(made: Artifact, digest: str, target: GPUTarget | None = None) -> Metadata:
    """The metadata of an artifact whose kernel has that hash; ``target`` says what it was compiled for where
    the artifact's own target does not."""
    return Metadata(
        name=made.name,
        shared=made.shared_bytes,
        num_warps=made.num_warps,
        num_stages=made.num_stages,
        num_ctas=made.num_ctas,
        cluster_dims=(made.num_ctas, 1, 1),
        target=target or GPUTarget("cuda", parse_target(made.target).sm, 32),
        arch=made.target,
        maxnreg=made.options.get("maxnreg"),
        debug=bool(made.options.get("debug")),
        launch_cooperative_grid=bool(made.options.get("launch_cooperative_grid")),
        launch_pdl=bool(made.options.get("launch_pdl")),
        hash=digest,
        signature=made.signature,
        constants=made.constants,
    )
