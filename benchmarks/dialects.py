"""One kernel file, two compilers.

``kernels.py`` uses the names ``jit`` and ``tl`` without importing them: :func:`load` executes it with
ptxforge's or with Triton's, so that both compile the very same source. The module that it returns has the
dialect's ``TensorDescriptor``, too.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def load(dialect: str, file: str = "kernels.py") -> ModuleType:
    """The kernels of ``file`` in ``dialect`` (``ptxforge`` or ``triton``)."""
    name = f"benchmarks._{Path(file).stem}_{dialect}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, HERE / file)
    module = importlib.util.module_from_spec(spec)
    if dialect == "ptxforge":
        import ptxforge
        import ptxforge.language as tl

        module.jit, module.tl, module.TensorDescriptor = ptxforge.jit, tl, ptxforge.TensorDescriptor
    else:
        import triton
        import triton.language as tl
        from triton.tools.tensor_descriptor import TensorDescriptor

        module.jit, module.tl, module.TensorDescriptor = triton.jit, tl, TensorDescriptor
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
