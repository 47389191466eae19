"""``python -m ptxforge cache``."""

from __future__ import annotations

import zipfile

import pytest

from ptxforge.cli import main
from ptxforge.cli.demo_kernels import add
from ptxforge.runtime import store
from ptxforge.support import container

TYPES = {"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i32"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    for block in (16, 32):
        add.compile(TYPES, {"BLOCK": block})
    return tmp_path / "cache"


def kernels(folder):
    return [entry for entry in store.entries(folder) if store.read(entry.name, "kernel")]


def told(capsys, *arguments: str, status: int = 0) -> str:
    assert main(["cache", *arguments]) == status
    return capsys.readouterr().out


def test_list(folder, capsys):
    shown = told(capsys, "list")
    assert "x=*fp32:16, y=*fp32:16, out=*fp32:16, n=i32, BLOCK=32, num_warps=4" in shown
    assert shown.count("kernel ") >= 2 and "sm_90a" in shown and str(folder) in shown


def test_verify(folder, capsys):
    assert "0 damaged" in told(capsys, "verify")
    path = kernels(folder)[0].path
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path}: the checksum does not fit" in told(capsys, "verify", status=1)
    assert "damaged" in told(capsys, "list")
    assert "1 damaged and removed" in told(capsys, "verify", "--remove")
    assert "0 damaged" in told(capsys, "verify") and len(kernels(folder)) == 1


def test_prune(folder, capsys):
    assert "removed 0 entries" in told(capsys, "prune")
    told(capsys, "prune", "--size", "1K")
    assert sum(entry.bytes for entry in store.entries(folder)) <= 1024
    assert main(["cache", "prune", "--size", "much"]) == 1
    assert "--size much: a number of bytes" in capsys.readouterr().err


def test_export_and_import(folder, tmp_path, monkeypatch, capsys):
    before = {entry.name: entry.path.read_bytes() for entry in store.entries(folder)}
    told(capsys, "export", str(tmp_path / "kernels.zip"))
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path / "other"))
    assert f"took {len(before)} entries" in told(capsys, "import", str(tmp_path / "kernels.zip"))
    assert {e.name: e.path.read_bytes() for e in store.entries(tmp_path / "other")} == before


def test_an_archive_that_was_made_to_do_harm(folder, tmp_path, capsys):
    """Neither a path that leads out of the folder, nor an entry whose name does, is followed."""
    archive = tmp_path / "wrong.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../../outside.ptxf", b"text")
        file.writestr("inside.ptxf", container.pack("kernel", {"entry": "../../outside"}, {}))
    assert "left out 2 that are damaged" in told(capsys, "import", str(archive), status=1)
    assert not [path for path in tmp_path.rglob("outside*")]
    (tmp_path / "no.zip").write_text("text")
    assert main(["cache", "import", str(tmp_path / "no.zip")]) == 1
    assert "is no file of cache export" in capsys.readouterr().err


def test_off(monkeypatch, capsys):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", "off")
    assert main(["cache", "list"]) == 1
    assert "switched off" in capsys.readouterr().err
