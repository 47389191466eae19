"""``python -m benchmarks.same_ptx OLD NEW``: which kernels have another PTX text in NEW than in OLD.

OLD and NEW are revisions of this repository, or folders with a checkout (``.`` is this one as it is, changes
included). In both, every configuration of the benchmarks and everything that the tests of kernels, of the
code generator and of the examples compile, with a shard of the random programs, is compiled for each target;
no GPU is needed and no kernel runs. Lines that only say where a source line was (``.loc``, ``.file``) do not
count. Prints a line for each text that differs, is new, or is gone; ends with 1 when there is one that
differs.

    python -m benchmarks.same_ptx main .                     all of it
    python -m benchmarks.same_ptx main . --only f16-NN       the names that contain this
    python -m benchmarks.same_ptx main . --diff --only …     with unified diffs
    python -m benchmarks.same_ptx main . --what benchmarks   no tests; or: --what tests

What a revision gave is kept in the folder for temporary files, by its commit, so OLD is compiled once.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
TARGETS = "sm_80,sm_90,sm_90a,sm_100,sm_120"
SHARDS = [f"tests/fuzz/test_programs.py::test_executors_agree[{i}]" for i in range(4)]
TESTS = ["tests/kernels", "tests/codegen_ptx", "tests/examples", *SHARDS]
KEPT = Path(tempfile.gettempdir()) / "ptxforge-same-ptx"
PLUGINS_OFF = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]


def record(tree: Path, what: str, targets: str, only: str) -> dict[str, str]:
    """The PTX texts of a source tree by name, ``what`` being ``benchmarks`` or ``tests``."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("record_ptx.py", "configurations.py"):
            Path(folder, name).write_text((HERE / name).read_text())
        out = Path(folder, "out.json")
        variables = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(tree), folder)), "OMP_NUM_THREADS": "1",
            "PTXFORGE_CACHE_DIR": "off",
        }  # fmt: skip
        if what == "benchmarks":
            command = [f"{folder}/record_ptx.py", str(out), "--targets", targets, "--only", only]
        else:
            command = ["-m", "pytest", "-q", *PLUGINS_OFF, "-p", "record_ptx", *TESTS]
            variables |= {"PTX_RECORD": str(out), "PTX_TARGETS": targets, "PTX_ONLY": only}
        done = subprocess.run(
            [sys.executable, *command], cwd=tree, env=variables, capture_output=True, text=True, check=False
        )
        if not out.exists():
            raise SystemExit(f"{tree}: nothing was recorded\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return json.loads(out.read_text())


def texts_of(revision: str, what: str, targets: str, only: str) -> dict[str, str]:
    """The PTX texts of a folder, or of a revision (which are kept)."""
    if Path(revision).is_dir():
        return record(Path(revision).resolve(), what, targets, only)
    commit = _git("rev-parse", f"{revision}^{{commit}}").strip()
    recorder = b"".join((HERE / name).read_bytes() for name in ("record_ptx.py", "configurations.py"))
    asked = f"{what} {targets} {only} {TESTS}".encode() + recorder
    kept = KEPT / f"{commit[:16]}-{hashlib.sha256(asked).hexdigest()[:16]}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "tree.tar")
        _git("archive", "--output", str(archive), commit)
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
        archive.unlink()
        found = record(Path(folder), what, targets, only)
    KEPT.mkdir(exist_ok=True)
    kept.write_text(json.dumps(found))
    return found


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout


def compare(old: dict[str, str], new: dict[str, str], with_diff: bool = False) -> Iterator[str]:
    """A line for each name whose text is not the same, with its unified diff if asked for."""
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"gone     {name}"
        elif name not in old:
            yield f"new      {name}"
        elif old[name] != new[name]:
            before, after = old[name].splitlines(), new[name].splitlines()
            lines = list(difflib.unified_diff(before, after, "old", "new", lineterm="", n=2))
            added = sum(line.startswith("+") for line in lines) - 1
            removed = sum(line.startswith("-") for line in lines) - 1
            yield f"differs  {name}  (+{added} -{removed} of {len(before)} lines)"
            yield from lines if with_diff else ()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.same_ptx", description=__doc__.splitlines()[0]
    )
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--targets", default=TARGETS, help="separated by commas (default: %(default)s)")
    parser.add_argument("--only", default="", help="the names that contain this")
    parser.add_argument("--what", choices=("benchmarks", "tests", "all"), default="all")
    parser.add_argument("--diff", action="store_true", help="show unified diffs")
    options = parser.parse_args(arguments)
    parts = ("benchmarks", "tests") if options.what == "all" else (options.what,)
    count, differences = 0, 0
    for what in parts:
        old, new = (texts_of(r, what, options.targets, options.only) for r in (options.old, options.new))
        count += len(old.keys() & new.keys())
        for line in compare(old, new, options.diff):
            differences += line.startswith("differs ")
            print(line, flush=True)
    print(f"{count} texts in both, {differences} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
