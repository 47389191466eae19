"""make_tensor_map and its memory: what it gives to copies, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.ops.tensor_map import MapWorkspace, ReleaseWorkspace
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import VerificationError
from tests.ops import copies

PARAMETER = """%map: tensormap {dtype = "float16", \
base = "x", shape = [3, "n"], strides = ["2*n", 1], box = [16, 16], swizzle = 32}) """
MADE = """  %template = local_alloc : () -> memdesc<1xtensormap, #bar, mutable>
  %work = map_workspace : i64
  %map = make_tensor_map %work, %template, %x, %rows, %stride {sizes = [0, 14], dtype = "float16", \
box = [16, 16], swizzle = 32} : tensormap
  %buffers = local_alloc"""


def parsed(*changes: tuple[str, str]):
    """A kernel that copies the box at row -1 and column 1."""
    text = copies.TEXT
    for old, new in [
        (PARAMETER, "%rows: i32, %stride: i64) "), ("  %buffers = local_alloc", MADE),
        ("  return", "  release_workspace %work\n  return"), *changes,
    ]:  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    function = parse_function(text)
    verify(function)
    assert print_function(parse_function(print_function(function))) == print_function(function)
    return function


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize(("rows", "stride"), [(3, 24), (9, 14), (0, 24), (-2, 24)])
def test_what_a_copy_reads_through_it(rows, stride, padding):
    """What lies beyond a size is padding; of a tensor without elements everything."""
    x, out = np.arange(1, 400).astype(np.float16), np.full((16, 16), -1, np.float16)
    function = parsed(("swizzle = 32}", f'swizzle = 32, padding = "{padding}"}}'))
    made = [type(op) for op in function.walk((ReleaseWorkspace, MapWorkspace))]
    assert made == [MapWorkspace, ReleaseWorkspace]
    run(function, grid=(1,), arguments=[x, 5, out, rows, stride])
    expected = np.full((16, 16), np.nan if padding == "nan" else 0, np.float16)
    for i in range(1, min(rows + 1, 16)):
        expected[i, :13] = x[(i - 1) * stride + 1 :][:13]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("old", "new", "text"), [
    ("sizes = [0, 14]", "sizes = [0, 0]", "needs"), ("box = [16, 16]", "box = [16]", "box"),
    ("swizzle = 32}", 'swizzle = 32, padding = "one"}', "has the padding 'one'"),
    ('dtype = "float16"', 'dtype = "int16", padding = "nan"', "int16 has the padding 'nan'"),
    ("1xtensormap", "128xi8", "maps in memory"), ("%x, %rows, %stride", "%x, %rows", "needs"),
])  # fmt: skip
def test_what_is_refused(old, new, text):
    with pytest.raises(VerificationError, match=text):
        parsed((old, new))


PLACED = ("%work = map_workspace", "%work = map_workspace {records = 2, record_bytes = 384}")
AT_128, AT_256 = (("swizzle = 32} :", f"swizzle = 32, offset = {n}}} :") for n in (128, 256))
ANOTHER = ("  %buffers = local_alloc", """  %other = make_tensor_map %work, %template, %x, %rows, %stride \
{sizes = [0, 14], dtype = "float16", box = [16, 16], swizzle = 32, offset = 256} : tensormap
  %buffers = local_alloc""")


def test_places_of_several_maps():
    parsed(PLACED, AT_128, ANOTHER)


@pytest.mark.parametrize(("changes", "text"), [
    ([PLACED], "a map at -1 of a record of 384"),
    ([PLACED, ("swizzle = 32} :", "swizzle = 32, offset = 0} :")], "a map at 0 of a record"),
    ([PLACED, ("swizzle = 32} :", "swizzle = 32, offset = 192} :")], "a map at 192 of"),
    ([PLACED, ("swizzle = 32} :", "swizzle = 32, offset = 384} :")], "a map at 384 of"),
    ([PLACED, AT_256, ANOTHER], "a map at 256 of"),
    ([PLACED, AT_128, ("records = 2", "records = 0")], "a map at 128 of"),
    ([("  release_workspace %work\n", "")], "nothing gives the memory of 'map_workspace' back"),
])  # fmt: skip
def test_places_that_maps_cannot_have(changes, text):
    with pytest.raises(VerificationError, match=text):
        parsed(*changes)
