"""What ``import triton`` finds first where ``ptxforge/triton_compat/shadow`` leads ``sys.path``.

ptxforge takes the name. Child processes come here: they inherit the folder in ``PYTHONPATH`` or, from
multiprocessing, in ``sys.path``. They get the ptxforge that this file belongs to, whether it is installed or
not and whatever other copy their own path would find; only one that is imported already stays.
"""

import importlib.util
import sys
from pathlib import Path

if "ptxforge" not in sys.modules:
    folder = Path(__file__).absolute().parents[3]
    spec = importlib.util.spec_from_file_location(
        "ptxforge", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    sys.modules["ptxforge"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["ptxforge"])
del sys.modules["triton"]  # the alias goes in its place, and the import statement gives what it finds there

from ptxforge import triton_compat  # noqa: E402 - not before ptxforge can be found

triton_compat.install()
