"""Whether ``compute-sanitizer`` finds what it is for: kernels in PTX with one error each, which its tools are
to report, and one that is right by PTX's rules, of which ``synccheck`` is asked.

    python -m tests.sanitizer_controls                            every control, each under its tool
    python -m tests.sanitizer_controls --launch "half a warp"     only launch it, in this process

A tool that reports nothing of ``tests.sanitize`` means something if it reports its controls here. The exit
status is 1 if a tool overlooks an error that it is known to report. ``tests/test_sanitize.py`` runs the same
texts on the emulator.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import attrs

from tests import sanitize

BYTES = 4096
"""Of memory that a control gets, which nobody has written to."""
THREADS = 64


@attrs.frozen
class Control:
    """A kernel's instructions, which may use ``%t`` (the thread), ``%l`` (its lane), ``%out`` (an address of
    ``BYTES`` bytes, of which each thread writes its word at ``%q3``), predicates ``%p…``, words ``%r…`` and
    256 bytes of shared memory at ``%s``, the lane's word of which is at ``%w``."""

    tool: str
    body: str
    finding: str = ""
    """Of which kind the emulator's is, if it has one."""
    is_wrong: bool = True
    is_overlooked: bool = False
    """Whether the tool is known to say nothing of the error."""

    @property
    def ptx(self) -> str:
        return f"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry control(.param .u64 memory) {{
    .reg .pred %p<4>;
    .reg .b32 %r<8>, %t, %l, %s, %w;
    .reg .b64 %out, %q<4>;
    .shared .align 16 .b8 words[256];
    ld.param.u64 %out, [memory];
    cvta.to.global.u64 %out, %out;
    mov.u32 %t, %tid.x;
    and.b32 %l, %t, 31;
    mov.u32 %s, words;
    shl.b32 %w, %l, 2;
    add.u32 %w, %w, %s;
    mad.wide.u32 %q3, %t, 4, %out;
    {self.body}
END:
    ret;
}}
"""

    def on(self, device) -> None:
        """Run it there."""
        function = device.load_module(self.ptx).function("control")
        memory = device.allocate(BYTES)
        function.launch((1, 1, 1), (THREADS, 1, 1), 0, 0, struct.pack("Q", memory))
        device.synchronize()
        device.free(memory)


CONTROLS = {
    "half a warp": Control("synccheck", """
    setp.ge.u32 %p0, %l, 16;
    @%p0 bra END;
    bar.sync 0;
    st.global.u32 [%q3], %t;
    """, "barrier", is_overlooked=True),
    "a branch that not all lanes take": Control("synccheck", """
    setp.ge.u32 %p0, %l, 16;
    @%p0 bra OTHERS;
    bar.sync 0;
    st.global.u32 [%q3], %t;
    bra END;
OTHERS:
    bar.sync 0;
    st.global.u32 [%q3], %l;
    """, "barrier"),
    "two instructions": Control("synccheck", """
    setp.ge.u32 %p0, %t, 32;
    @%p0 bra OTHERS;
    st.shared.u32 [%w], %t;
    bar.sync 0;
    bra END;
OTHERS:
    bar.sync 0;
    ld.shared.u32 %r0, [%w];
    st.global.u32 [%q3], %r0;
    """, is_wrong=False),
    "out of bounds": Control("memcheck", """
    add.u64 %q0, %out, 0x10000000000;
    st.global.u32 [%q0], %t;
    """, "out-of-bounds"),
    "no barrier": Control("racecheck", """
    shl.b32 %r0, %t, 2;
    add.u32 %r1, %s, %r0;
    st.shared.u32 [%r1], %t;
    xor.b32 %r0, %r0, 128;
    add.u32 %r1, %s, %r0;
    ld.shared.u32 %r2, [%r1];
    st.global.u32 [%q3], %r2;
    """, "race"),
    "never written": Control("initcheck", """
    ld.global.u32 %r0, [%q3];
    add.u32 %r0, %r0, 1;
    st.global.u32 [%q3], %r0;
    """),
}  # fmt: skip
"""In "two instructions" whole warps meet, each at a ``bar.sync 0`` of its own, as in kernels with a warp that
copies; synccheck reports it. All else is wrong; lanes that have ended in front of a barrier count as having
come there for synccheck."""


def reported(name: str, seconds: float) -> list[str]:
    """What the tool says of a control."""
    command = ["compute-sanitizer", "--tool", CONTROLS[name].tool, sys.executable, "-m", __spec__.name]
    process = subprocess.Popen(
        [*command, "--launch", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"}, cwd=Path(__file__).parents[1], start_new_session=True,
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the tool and what it runs
        text, _ = process.communicate()
    found = sanitize.findings(text).get(name, [f"unfinished: {text.strip()[-300:]}"])
    return [line for line in found if sanitize.is_finding(line)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launch", choices=CONTROLS, help="only launch this one, in this process")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long one may take")
    options = parser.parse_args()
    if options.launch:
        from ptxforge.driver.cuda import cuda_device

        print(f"\n@@ {options.launch}", flush=True)
        CONTROLS[options.launch].on(cuda_device(0))
        print("\n@@ done", flush=True)
        return 0
    if shutil.which("compute-sanitizer") is None:
        parser.error("compute-sanitizer is not installed; it comes with CUDA's toolkit")
    overlooked = 0
    for name, control in CONTROLS.items():
        lines = reported(name, options.seconds)
        is_seen = any(not line.startswith("unfinished") for line in lines)
        overlooked += control.is_wrong and not (is_seen or control.is_overlooked)
        verdict = "an error" if control.is_wrong else "no error by PTX's rules"
        print(f"{control.tool}, {name} ({verdict}): {'reported' if is_seen else 'not reported'}")
        print(*lines[: sanitize.MOST_LINES], sep="\n      ")
    return int(overlooked > 0)


if __name__ == "__main__":
    sys.exit(main())
