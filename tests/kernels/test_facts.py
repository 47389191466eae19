"""Losing an optimization shows without a GPU: what the benchmarks' kernels consist of stands in tables.

``facts/TARGET.json`` has a line for each configuration (``static_facts.py`` says what is counted). Whoever
changes the code on purpose rewrites them with ``--update-golden`` (without ``-n``) and reads the difference.
``facts/memory.json`` has what one block of each case does to memory, as the emulator counts it: warp
instructions, sectors of global memory, conflicts of banks; on sm_80, and of two kernels on sm_90a, by TMA and
warpgroups.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import ptxforge
from benchmarks.configurations import Configuration, configurations
from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import PtxforgeError
from tests.kernels.configured import BY_NAME, compiled, kernels
from tests.kernels.static_facts import facts_of

TABLES = Path(__file__).parent / "facts"
TARGETS = ("sm_80", "sm_90a")
CASES = sorted({one.case for one in configurations()})


def ptx_of(one: Configuration, target: str) -> str | PtxforgeError:
    """The PTX of a configuration, or why there is none."""
    try:
        return compiled(one.name, target).ptx
    except PtxforgeError as error:
        return error


def counted(ptx: str | PtxforgeError) -> dict:
    return facts_of(ptx) if isinstance(ptx, str) else {"refused": type(ptx).__name__}


def table(target: str) -> dict[str, dict]:
    return json.loads((TABLES / f"{target}.json").read_text())


def write(target: str, found: dict[str, dict]) -> None:
    """A line for each configuration, so that differences can be read."""
    rows = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    (TABLES / f"{target}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_kernels_consist_of_what_they_did(case, target, request):
    made = {one.name: ptx_of(one, target) for one in configurations() if one.case == case}
    found = {name: counted(ptx) for name, ptx in made.items()}
    if request.config.getoption("--update-golden"):
        write(target, table(target) | found)
    expected = table(target)
    for name, facts in found.items():
        assert facts == expected[name], f"{name} for {target}"


SIZES = {"M": 128, "N": 128, "K": 256, "rows": 256, "length": 256, "heads": 1, "stride_b": 0, "stride_h": 0,
         "stride_l": 128}  # fmt: skip
"""Arguments of the block that runs; rows have as many elements as a block, strides are 512."""
PACKED = {"fp32": "<f", "i64": "<q"}
"""How arguments that are no pointers are packed; others are 32-bit integers."""
WHOLE = re.compile("add|softmax|layer-norm|transpose|column-sum|cumsum|histogram")
"""Cases of which every configuration runs; blocks with loops of products take longer, one of a case does."""


def configurations_to_run(case: str) -> list[Configuration]:
    """Those that fit into a multiprocessor of sm_80."""
    facts = table("sm_80")
    fitting = [one for one in configurations() if one.case == case and "refused" not in facts[one.name]]
    return fitting if WHOLE.match(case) else fitting[-1:]


def run_of_one_block(one: Configuration) -> dict[str, int]:
    """What the first block does on sm_80, with zeros in memory."""
    made = compiled(one.name, "sm_80")
    device = EmulatorDevice(counters=True, target="sm_80")
    parameters = b""
    row = 781 if "781" in one.case else one.constants.get("BLOCK", 1024)
    sizes = SIZES | dict.fromkeys(("n", "columns", "stride"), row)
    for name, type in made.parameters:
        if type.startswith("*"):
            packed = struct.pack("<Q", device.allocate(1 << 20))
        else:
            kind = type.split(":")[0]
            packed = struct.pack(PACKED.get(kind, "<i"), 1 if kind == "fp32" else sizes.get(name, 512))
        parameters += b"\0" * (-len(parameters) % len(packed)) + packed
    function = device.load_module(made.ptx).function(made.name)
    function.launch((1, 1, 1), (32 * made.num_warps, 1, 1), made.shared_bytes, 0, parameters)
    return facts_of_report(device.last_report)


def facts_of_report(report) -> dict[str, int]:
    names = ("instructions", "global_requests", "global_sectors", "shared_requests", "bank_conflicts")
    return {name: getattr(report.total, name) for name in names}


@pytest.mark.parametrize("case", CASES)
def test_blocks_touch_memory_as_they_did(case, request):
    found = {one.name: run_of_one_block(one) for one in configurations_to_run(case)}
    if request.config.getoption("--update-golden"):
        write("memory", table("memory") | found)
    expected = table("memory")
    for name, facts in found.items():
        assert facts == expected[name], name


MAPPED = ("f16-NN-128-128-64-w4-s3", "attention-64-64-64-w4-s2")


@pytest.mark.parametrize("name", MAPPED)
def test_blocks_with_tensor_maps_touch_memory_as_they_did(name, request):
    one = BY_NAME[name]
    device = EmulatorDevice(target="sm_90a", counters=True)
    arguments = {
        parameter: ptxforge.to_device(np.zeros(1 << 16, np.float16), device) if type.startswith("*")
        else 1.0 if type == "fp32" else SIZES.get(parameter, 128)
        for parameter, type in one.signature.items() if parameter not in one.constants
    }  # fmt: skip
    ptxforge.compile(getattr(kernels, one.kernel))[(1,)](**arguments, **one.constants, **one.options)
    report = device.last_report
    assert any("cp.async.bulk.tensor" in line.text for line in report.lines)
    found = facts_of_report(report)
    key = f"sm_90a {name}"
    if request.config.getoption("--update-golden"):
        write("memory", table("memory") | {key: found})
    assert found == table("memory")[key]


def test_the_table_of_memory_has_nothing_else():
    run = {one.name for case in CASES for one in configurations_to_run(case)}
    assert table("memory").keys() == run | {f"sm_90a {name}" for name in MAPPED}


@pytest.mark.parametrize("target", TARGETS)
def test_tables_have_nothing_else(target):
    assert table(target).keys() == {one.name for one in configurations()}


PTX = """
{
    ld.param.u64 %q0, [x_0];
    @%p0 bra.uni $for_end_1;
$for_2:
    cp.async.wait_group 2;
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r0];
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0}, {%r1}, {%r5}, {%f0};
    @%p1 cp.async.cg.shared.global [%r6], [%q1], 16;
    cp.async.cg.shared.global [%r7], [%q1+64], 16;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r5}, {%f1};
    cp.async.commit_group;
    @%p2 bra.uni $for_2;
$for_end_1:
    st.global.v4.b32 [%q2], {%r1, %r2, %r3, %r4};
    ret;
}
"""


def test_what_is_counted():
    found = facts_of(PTX)
    assert found["kernel"]["st.global.v4.b32"] == 1 and found["kernel"]["bra"] == 2
    loop = found["loop 0"]
    assert loop["instructions"] == {
        "bar.sync": 1, "bra": 1, "cp.async.cg": 2, "cp.async.commit_group": 1, "cp.async.wait_group": 1,
        "ldmatrix.sync.aligned": 1, "mma": 2,
    }  # fmt: skip
    assert loop["copies after products"] == "1:2" and loop["reads after products"] == "0:1"
    assert loop["groups in flight"] == [2] and "loop 1" not in found


WARPGROUPS = """
$for_2:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+64], %r2;
    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f0}, %q1, %q2, 1, 1, 1, 0, 1;
    wgmma.commit_group.sync.aligned;
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+72], %r2;
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+80], %r2;
    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f0}, %q1, %q3, 1, 1, 1, 0, 1;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 1;
    @%p2 bra $for_2;
    wgmma.wait_group.sync.aligned 0;
"""


def test_what_waits_for_warpgroups_and_phases():
    loop = facts_of(WARPGROUPS)["loop 0"]
    assert loop["products in flight"] == [1] and loop["phases after products"] == "0:1 1:2"
    assert "groups in flight" not in loop
