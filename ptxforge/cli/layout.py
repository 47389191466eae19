"""Draw a layout: which thread holds which element, or where a shared tile's elements lie.

python -m ptxforge layout '#blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [1, 1],
                           order = [1, 0]}>' 4x32xf16
python -m ptxforge layout '#shared<{vec = 2, perPhase = 1, maxPhase = 4, order = [1, 0]}>' 4x8xf16
"""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path

from ptxforge.layouts.encodings import Distributed
from ptxforge.layouts.show import LARGEST_PICTURE, describe, show, show_hardware, show_threads, svg
from ptxforge.layouts.syntax import parse_encoding
from ptxforge.support import dtypes
from ptxforge.support.errors import PtxforgeError

_ELEMENT_TYPES = {name for kind in dtypes.ALL for name in (kind.name, kind.short, kind.ir)}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("encoding", metavar="'#NAME<{...}>'")
    parser.add_argument("tensor", metavar="SHAPE", help="such as 16x16 or 16x16xf16")
    view = parser.add_mutually_exclusive_group()
    view.add_argument("--hw-view", action="store_true", help="for each thread, the elements that it holds")
    view.add_argument("--threads", action="store_true", help="only the numbers of the threads")
    view.add_argument("--bases", action="store_true", help="the linear map: where each input bit goes")
    parser.add_argument(
        "--svg",
        type=Path,
        metavar="FILE",
        help="write a picture there; a view given beside it is printed too",
    )


def run(options: argparse.Namespace) -> int:
    encoding, shape = parse_encoding(options.encoding), parse_shape(options.tensor)
    if not options.bases or options.svg:
        _check_drawable(shape)
    if options.svg:
        options.svg.write_text(svg(encoding, shape))
        print(f"wrote {options.svg}")
        if not (options.bases or options.hw_view or options.threads):
            return 0
    if options.bases:
        print(describe(encoding.linear(shape)))
    elif not (options.hw_view or options.threads):
        print(show(encoding, shape))
    elif not isinstance(encoding, Distributed):
        raise PtxforgeError("a shared layout maps memory, not threads: it has one view only")
    else:
        print(show_hardware(encoding, shape) if options.hw_view else show_threads(encoding, shape))
    return 0


def parse_shape(text: str) -> tuple[int, ...]:
    """``16x32xf16`` as (16, 32); the element type may be left out. Raises :class:`PtxforgeError`."""
    match = re.fullmatch(r"(\d+(?:x\d+)*)(?:x([a-z]\w*))?", text.removeprefix("tensor<").removesuffix(">"))
    if match is None:
        raise PtxforgeError(f"'{text}' is not a shape such as 16x16 or 16x16xf16")
    if match[2] is not None and match[2] not in _ELEMENT_TYPES:
        raise PtxforgeError(
            f"'{match[2]}' is not an element type; there are {', '.join(sorted(_ELEMENT_TYPES))}"
        )
    return tuple(map(int, match[1].split("x")))


def _check_drawable(shape: tuple[int, ...]) -> None:
    elements = math.prod(shape)
    if elements > LARGEST_PICTURE:
        raise PtxforgeError(
            f"a picture of {elements} elements is too large, at most {LARGEST_PICTURE} can be drawn; "
            "--bases prints the linear map of any shape"
        )
