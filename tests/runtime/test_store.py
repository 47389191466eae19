"""Files that many processes share: whole or not there, whatever happens to them."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ptxforge
from ptxforge.cli.demo_kernels import add
from ptxforge.runtime import cache, store
from ptxforge.support import container, settings

NAME = "ab" * 32


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_complained", set())
    return tmp_path / "cache"


def launched() -> np.ndarray:
    """A sum by a kernel that this process has not seen, on the emulator."""
    x = np.arange(16, dtype=np.float32)
    out = np.zeros_like(x)
    ptxforge.jit(add.fn)[(1,)](x, x, out, 16, BLOCK=16)
    return out


def counted(action):
    before = (cache.counters.compiled, cache.counters.found)
    action()
    return cache.counters.compiled - before[0], cache.counters.found - before[1]


def entry_of(folder) -> Path:
    (path,) = (
        e.path for e in store.entries(folder) if container.unpack(e.path.read_bytes())[0]["kind"] == "kernel"
    )
    return path


def environment(folder) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))
    return os.environ | {"PTXFORGE_CACHE_DIR": str(folder), "PYTHONPATH": paths}


# The format


def test_what_is_packed_is_unpacked():
    data = container.pack(
        "kernel", {"a": [1, "ü"]}, {"ptx": b"text\n\0", "empty": b"", "cubin": bytes(range(256))}
    )
    facts, sections = container.unpack(data, "kernel")
    assert (
        facts["a"] == [1, "ü"] and sections["ptx"] == b"text\n\0" and sections["cubin"] == bytes(range(256))
    )
    with pytest.raises(container.DamagedFileError, match="holds a 'kernel', not a 'timings'"):
        container.unpack(data, "timings")


def test_every_flipped_bit_and_every_length_is_seen():
    data = container.pack("kernel", {"a": 1}, {"ptx": b"ld.global", "cubin": b"\x7fELF"})
    for place in range(len(data)):
        for bit in (0, 3, 7):
            wrong = bytearray(data)
            wrong[place] ^= 1 << bit
            with pytest.raises(container.DamagedFileError):
                container.unpack(bytes(wrong), "kernel")
        with pytest.raises(container.DamagedFileError):
            container.unpack(data[:place], "kernel")
    with pytest.raises(container.DamagedFileError):
        container.unpack(data + b"\0", "kernel")


@pytest.mark.parametrize("header", [b"", b"[]", b"{}", b'{"kind": "kernel"}', b'{"kind":"kernel","sections":3}', b'{"kind":"kernel","sections":{"ptx":9}}'])  # fmt: skip # noqa: E501
def test_a_header_that_is_none(header):
    """With a checksum that fits, as from another version of ptxforge."""
    body = header + b"\n"
    data = b"ptxforge 1\n" + hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    with pytest.raises(container.DamagedFileError):
        container.unpack(data, "kernel")


# Damage


def test_a_damaged_entry_is_compiled_again_with_a_note(folder, caplog):
    launched()
    path = entry_of(folder)
    whole = path.read_bytes()
    step = max(1, len(whole) // 40)
    for place in range(0, len(whole), step):  # every region: magic, checksum, header, PTX
        wrong = bytearray(whole)
        wrong[place] ^= 0x10
        path.write_bytes(wrong)
        caplog.clear()
        assert counted(launched) == (1, 0)
        assert f"ignoring the damaged cache entry {path}" in caplog.text
        assert path.read_bytes() == whole  # mended
    for length in (0, 10, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert counted(launched) == (1, 0)
    assert counted(launched) == (0, 1)


def test_a_file_under_another_name(folder, caplog):
    store.write(NAME, "kernel", {}, {"ptx": b"text"})
    (entry,) = store.entries(folder)
    other = "cd" * 32
    target = folder / other[:2] / f"{other[2:]}.ptxf"
    target.parent.mkdir()
    target.write_bytes(entry.path.read_bytes())
    assert store.read(other, "kernel") is None and "content of another entry" in caplog.text
    assert [found.name for found, _ in store.verify(folder)] == [other]


def test_a_folder_in_the_place_of_a_file(folder):
    store.write(NAME, "kernel", {}, {"ptx": b"text"})
    (entry,) = store.entries(folder)
    entry.path.unlink()
    entry.path.mkdir()
    assert store.read(NAME, "kernel") is None
    store.write(NAME, "kernel", {}, {"ptx": b"text"})


# What the file system refuses


def failing(times: int, code: int, action):
    """``action``, which fails that often before it works."""
    left = [times]

    def attempt(*arguments, **options):
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return action(*arguments, **options)

    return attempt


@pytest.mark.parametrize("code", [errno.EBUSY, errno.ESTALE])
def test_a_shared_file_system_that_is_busy(folder, monkeypatch, code):
    monkeypatch.setattr(store, "_PAUSE", 0)
    monkeypatch.setattr(os, "replace", failing(2, code, os.replace))
    store.write(NAME, "kernel", {}, {"ptx": b"text"})
    monkeypatch.setattr(store, "_content", failing(2, code, store._content))
    assert store.read(NAME, "kernel")[1] == {"ptx": b"text"}


def test_a_file_system_that_reads_in_small_pieces(folder, monkeypatch):
    store.write(NAME, "kernel", {}, {"ptx": b"text" * 1000})
    read = os.read
    monkeypatch.setattr(os, "read", lambda handle, count: read(handle, min(count, 100)))
    assert store.read(NAME, "kernel")[1] == {"ptx": b"text" * 1000}
    monkeypatch.setattr(os, "read", lambda handle, count: read(handle, 100)[:100] if count > 2000 else b"")
    assert store.read(NAME, "kernel") is None  # it was cut meanwhile


def test_use_is_noted_once_an_hour(folder):
    store.write(NAME, "kernel", {}, {"ptx": b"text"})
    (path,) = folder.rglob("*.ptxf")
    lately, long_ago = time.time() - 60, time.time() - 7200
    for date, is_kept in ((lately, True), (long_ago, False)):
        os.utime(path, (date, date))
        assert store.read(NAME, "kernel")
        assert (path.stat().st_mtime == pytest.approx(date, abs=1)) is is_kept


def test_the_users_folder_is_where_the_environment_says_now(tmp_path, monkeypatch):
    monkeypatch.delenv("PTXFORGE_CACHE_DIR", raising=False)
    for name in ("one", "other", "one"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        assert store.folder() == tmp_path / name / "ptxforge"


@pytest.mark.parametrize("code", [errno.EBUSY, errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_file_system_that_stays_broken_costs_time_only(folder, monkeypatch, caplog, code):
    monkeypatch.setattr(store, "_PAUSE", 0)
    launched()
    monkeypatch.setattr(store, "_content", failing(10**6, code, store._content))
    monkeypatch.setattr(os, "replace", failing(10**6, code, os.replace))
    assert counted(lambda: np.testing.assert_array_equal(launched(), 2 * np.arange(16))) == (1, 0)
    assert "cannot read the cache entry" in caplog.text and "cannot write the cache entry" in caplog.text
    assert not list(folder.rglob("*.tmp"))


def test_a_full_disk(folder, monkeypatch, caplog):
    class Full:
        def __init__(self, handle, mode):
            self.file = open(handle, mode)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def write(self, data):
            self.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", Full)
    for _ in range(2):
        assert counted(lambda: np.testing.assert_array_equal(launched(), 2 * np.arange(16))) == (1, 0)
    assert not [path for path in folder.rglob("*") if path.is_file() and path.name != "looked-at"]
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "No space left on device" in warnings[0].message  # told once


def test_others_may_read_what_is_written_as_the_umask_says(folder):
    before = os.umask(0o027)
    try:
        launched()
    finally:
        os.umask(before)
    assert stat.S_IMODE(entry_of(folder).stat().st_mode) == 0o640


def test_a_folder_that_may_only_be_read(folder, monkeypatch, caplog):
    """``chmod`` does not stop root, so the system's answer is simulated."""
    launched()
    path = entry_of(folder)
    refuse = failing(10**6, errno.EROFS, None)
    for name in ("mkdir", "utime", "unlink"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(container, "beside", refuse)
    assert counted(launched) == (0, 1)
    path.write_bytes(b"damaged")
    assert counted(lambda: np.testing.assert_array_equal(launched(), 2 * np.arange(16))) == (1, 0)
    assert "Read-only file system" in caplog.text


# Layers


def test_layers_that_are_only_read(folder, tmp_path, monkeypatch):
    launched()
    below = tmp_path / "below"
    folder.rename(below)
    before = sorted(path.stat().st_mtime_ns for path in below.rglob("*"))
    monkeypatch.setenv("PTXFORGE_CACHE_PATH", os.pathsep.join([str(tmp_path / "nowhere"), str(below)]))
    assert counted(launched) == (0, 1)
    assert sorted(path.stat().st_mtime_ns for path in below.rglob("*")) == before
    entry_of(below).write_bytes(b"damaged")
    assert counted(launched) == (1, 0) and counted(launched) == (0, 1)  # into the folder that is written
    assert entry_of(folder)


# Size


def fill(count: int) -> list[str]:
    names = [f"{number:02x}" * 32 for number in range(count)]
    for number, name in enumerate(names):
        store.write(name, "kernel", {}, {"ptx": b"x" * 1000})
        path = store.folder() / name[:2] / f"{name[2:]}.ptxf"
        os.utime(path, (10**9 + number, 10**9 + number))
    return names


def test_pruning_takes_what_was_not_used_for_the_longest_time(folder):
    names = fill(10)
    assert store.read(names[0], "kernel")  # used again
    each = next(store.entries(folder)).bytes
    removed = store.prune(folder, 4 * each)
    assert [entry.name for entry in removed] == names[1:7]
    assert {entry.name for entry in store.entries(folder)} == {names[0], *names[7:]}


def test_the_cache_stays_below_its_size(folder, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_SIZE", "20K")
    monkeypatch.setattr(store, "_WRITES_BETWEEN_LOOKS", 5)
    fill(60)
    store.write("ff" * 32, "kernel", {}, {"ptx": b"x"})
    assert sum(entry.bytes for entry in store.entries(folder)) <= 20 << 10
    assert store.read("ff" * 32, "kernel")  # the newest stays


def test_files_of_killed_processes_are_removed_in_time(folder):
    fill(1)
    old, new = folder / "00" / "old.tmp", folder / "00" / "new.tmp"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (1, 1))
    store.prune(folder, 1 << 30)
    assert not old.exists() and new.exists()


def test_sizes():
    assert [settings.parse_size(text) for text in ("7", "2k", "1.5M", "2 GiB")] == [7, 2048, 1572864, 2 << 30]


# Many processes


WRITER = """
import sys
from ptxforge.runtime import store
for round in range(150):
    store.write("ab" * 32, "kernel", {}, {"ptx": sys.argv[1].encode() * 50000})
    found = store.read("ab" * 32, "kernel")
    assert found is not None and len(found[1]["ptx"]) == 50000 and len(set(found[1]["ptx"])) == 1
"""


def test_writers_never_show_half_an_entry(folder):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, letter], env=environment(folder), stderr=subprocess.PIPE
        )
        for letter in "xyz"
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert errors == [b""] * 3  # no damage was noted either
    assert [path.suffix for path in folder.rglob("*") if path.is_file() and path.name != "looked-at"] == [
        ".ptxf"
    ]


COMPILERS = """
import hashlib, os
from ptxforge.cli.demo_kernels import add
types = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
folder = os.environ["PTXFORGE_CACHE_DIR"]
os.environ["PTXFORGE_CACHE_DIR"] = "off"
add.compile(types, {"BLOCK": 32})
os.environ["PTXFORGE_CACHE_DIR"] = folder
def compile_one():
    try:
        ptx = add.compile(types, {"BLOCK": 16}).ptx
        os.write(1, hashlib.sha256(ptx.encode()).hexdigest().encode() + b"\\n")
    finally:
        os._exit(0)
children = [os.fork() or compile_one() for _ in range(32)]
print([os.waitpid(child, 0)[1] for child in children])
"""


def test_32_processes_on_one_cold_cache(folder):
    """Every one gets the right result, and what they leave is whole. They are forks of a process that has
    loaded the compiler and written nothing, so that all begin at once."""
    command = [sys.executable, "-c", COMPILERS]
    done = subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=300)
    right = add.compile({"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 16}).ptx
    line = hashlib.sha256(right.encode()).hexdigest() + "\n"
    assert (done.stdout, done.stderr) == (line * 32 + f"{[0] * 32}\n", "")
    assert store.verify(folder) == [] and not list(folder.rglob("*.tmp"))


def test_writers_that_are_killed_in_the_middle(folder):
    for delay in (0.0, 0.01, 0.05):
        worker = subprocess.Popen(
            [sys.executable, "-c", WRITER.replace("150", "10**9"), "x"], env=environment(folder)
        )
        deadline = time.monotonic() + 60
        while store.read(NAME, "kernel") is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(delay)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        found = store.read(NAME, "kernel")
        assert found is not None and set(found[1]["ptx"]) == {ord("x")} and store.verify(folder) == []
