"""What the code of matrix products on the FMA units must be: vectors from shared memory, no bank conflicts,
no spills, and copies that transpose what lies along k.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.kernels.assembly import spilled_bytes
from tests.kernels.tensor_core import Configuration, loops, matmul

TILES = {
    "128x128x16": ((128, 128, 16), 8, 3), "128x256x16": ((128, 256, 16), 8, 3),
    "64x128x16": ((64, 128, 16), 4, 3),
}  # fmt: skip
CONFIGURATIONS = {
    f"{layout}-{name}": matmul(np.float32, *tile, layout, 0, "ieee")
    for layout in ("NN", "NT", "TN", "TT") for name, tile in TILES.items()
}


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def launched(request):
    """(which operands lie along k, configuration, the emulator after a launch, PTX)."""
    configuration = CONFIGURATIONS[request.param]
    along_k = (request.param[0] == "N", request.param[1] == "T")
    return along_k, configuration, *configuration.launch()


def sizes(configuration: Configuration) -> tuple[int, int, int, int]:
    """M, N, K of the tile, and threads."""
    return *(configuration.constants[f"BLOCK_{d}"] for d in "MNK"), 32 * configuration.num_warps


def test_nothing_spills(launched, tmp_path):
    assert spilled_bytes(launched[3], tmp_path) == 0


def test_there_are_no_bank_conflicts(launched):
    report = launched[2].last_report
    assert report.total.shared_requests > 0
    assert {line.text: line.bank_conflicts for line in report.lines if line.bank_conflicts} == {}


def test_a_step_along_k_reads_vectors(launched):
    """A quarter as many reads as a thread has rows and columns, 8 and products / 8."""
    _, configuration, _, ptx = launched
    m, n, k, threads = sizes(configuration)
    products = m * n // threads
    (body,) = loops(ptx)
    assert body.count("fma.rn.f32") == products * k
    reads = re.findall(r"ld\.shared\.(\w+)\.", body)
    assert set(reads) == {"v4"} and len(reads) * 4 == (8 + products // 8) * k


def test_copies_transpose_what_lies_along_k(launched):
    """In pieces of 4 bytes; all else is copied in pieces of 16."""
    along_k, configuration, _, ptx = launched
    m, n, k, threads = sizes(configuration)
    (body,) = loops(ptx)
    transposed = sum(size * k for size, along in zip((m, n), along_k) if along)
    assert body.count("cp.async.ca.shared.global") == transposed // threads
    assert body.count("cp.async.cg.shared.global") == ((m + n) * k - transposed) // (4 * threads)
    assert body.count("cp.async.wait_group") == body.count("bar.sync") == 1
    assert "st.shared" not in body and "ld.global" not in body


def test_results_leave_in_wide_stores(launched):
    assert set(re.findall(r"st\.global\.(\S+) ", launched[3])) == {"v4.b32"}


def test_one_warp_copies_whole_rows():
    """A thread has neighbours along k and all rows: what it transposes it copies one by one, also where its
    elements of several rows are neighbours in shared memory."""
    configuration = matmul(np.float32, (32, 32, 128), 1, 2, "NN", 0, "ieee")
    _, ptx = configuration.launch()
    sizes = re.findall(r"cp\.async\.\w+\.shared\.global \[\S+\], \[\S+\], (\d+)", ptx)
    assert (sizes.count("4"), sizes.count("16")) == (2 * 128, 2 * 32)
