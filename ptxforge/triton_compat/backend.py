"""A compiler backend under Triton's names: its options, its name for caches."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

from ptxforge.runtime import compiler_state, options
from ptxforge.runtime.variants import GPUTarget

DEFAULTS = {
    "num_warps": 4, "num_stages": 3, "num_ctas": 1, "cluster_dims": (1, 1, 1), "warp_size": 32,
    "maxnreg": None, "debug": False, "enable_fp_fusion": True, "launch_cooperative_grid": False,
    "launch_pdl": False, "sanitize_overflow": False, "enable_reflect_ftz": True, "extern_libs": None,
    "arch": None, "backend_name": "cuda", "default_dot_input_precision": "tf32",
    "allowed_dot_input_precisions": ("tf32", "tf32x3", "ieee"),
    "supported_fp8_dtypes": ("fp8e4b15", "fp8e4nv", "fp8e5"), "max_num_imprecise_acc_default": 0,
}  # fmt: skip


class Options(SimpleNamespace):
    """Compile options as attributes."""

    def hash(self) -> str:
        """A digest of all of them."""
        return hashlib.sha256(repr(sorted(self.__dict__.items())).encode()).hexdigest()


class BaseBackend:
    """What backends descend from."""


class Backend(BaseBackend):
    """The compiler for one target."""

    binary_ext = "cubin"

    def __init__(self, target: GPUTarget):
        self.target = target

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Whether kernels can be made for it."""
        return target.backend in ("cuda", "cpu")

    def hash(self) -> str:
        """A text that is another for every version of the compiler and every target."""
        return f"ptxforge-{compiler_state.digest()}-{self.target}"

    @staticmethod
    def parse_attr(text: str) -> list[list[Any]]:
        """An attribute of a specialised argument: ``"D"`` is divisible by 16."""
        return [["tt.divisibility", 16]] if "D" in text else []

    def load_dialects(self, context: Any) -> None:
        """Nothing to load."""

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        """Nothing that others could replace."""
        return {}

    def get_module_map(self) -> dict[str, Any]:
        """Nothing that others could replace."""
        return {}

    def parse_options(self, given: dict[str, Any]) -> Options:
        """The options with their defaults; those that ptxforge does not know are left out, as Triton does."""
        known = {name: value for name, value in given.items() if name in DEFAULTS}
        defaults = {"arch": f"sm_{self.target.arch}", "enable_fp_fusion": options.fuses_by_default()}
        return Options(**DEFAULTS | defaults | known)


def make_backend(target: GPUTarget) -> Backend:
    """The backend for ``target``."""
    return Backend(target)
