"""``python -m ptxforge check``: what it prints and writes, and its exit status."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from ptxforge.checking.issues import SEVERITIES
from ptxforge.cli import main
from ptxforge.runtime import findings

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """The command changes the process that it runs in; these tests run many in one."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.chdir(HERE / "scripts")
    yield
    assert not findings.listeners


def check_command(*arguments) -> int:
    return main(["check", *map(str, arguments)])


def test_the_report(capsys, golden):
    assert check_command("faults.py") == 1
    golden(GOLDEN / "faults.txt", capsys.readouterr().out)


def test_json(tmp_path, golden, capsys):
    check_command("--json", tmp_path / "found.json", "faults.py")
    found = json.loads((tmp_path / "found.json").read_text())
    for issue in found["issues"]:
        assert re.match(r"@?[%!\w ]*(st|ld|atom|red)\b", issue.pop("ptx"))
    golden(GOLDEN / "faults.json", json.dumps(found, indent=2) + "\n")


def test_sarif(tmp_path, golden, capsys):
    check_command("--sarif", tmp_path / "found.sarif", "faults.py")
    log = json.loads((tmp_path / "found.sarif").read_text())
    _check_sarif(log)
    log["runs"][0]["tool"]["driver"]["version"] = "0"
    golden(GOLDEN / "faults.sarif", json.dumps(log, indent=2) + "\n")


def test_addresses_in_sarif_are_addresses(tmp_path, monkeypatch, capsys):
    """A path with a space, in the folder that the command runs in and elsewhere."""
    (tmp_path / "my scripts").mkdir()
    (tmp_path / "my scripts" / "faults.py").write_text((HERE / "scripts" / "faults.py").read_text())
    monkeypatch.chdir(tmp_path)
    for name in ("my scripts/faults.py", tmp_path / "my scripts" / "faults.py"):
        check_command("--sarif", "found.sarif", name)
        (run,) = json.loads(Path("found.sarif").read_text())["runs"]
        places = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]]
        assert set(places) == {"my%20scripts/faults.py"}


def test_a_script_that_goes_elsewhere(tmp_path, monkeypatch, capsys):
    (tmp_path / "elsewhere").mkdir()
    text = (HERE / "scripts" / "faults.py").read_text()
    head, _, rest = text.partition("import numpy")
    (tmp_path / "moves.py").write_text(f"{head}import os\nimport numpy{rest}\nos.chdir('elsewhere')\n")
    monkeypatch.chdir(tmp_path)
    check_command("--sarif", "found.sarif", "--html", "found.html", "moves.py")
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "moves.py"
    assert "<pre>" in (tmp_path / "found.html").read_text()


def _check_sarif(log: dict) -> None:
    """The properties that SARIF 2.1.0 requires, sections 3.13, 3.14, 3.18, 3.19, 3.27, 3.29 and 3.30."""
    assert log["version"] == "2.1.0" and isinstance(log["runs"], list)
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"] and all(rule["id"] for rule in driver["rules"])
        for result in run["results"]:
            assert result["message"]["text"] and result["level"] in SEVERITIES
            assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
            for location in result["locations"] + result.get("relatedLocations", []):
                physical = location["physicalLocation"]
                assert physical["artifactLocation"]["uri"] and physical["region"]["startLine"] >= 1


def test_the_page(tmp_path, golden, capsys):
    check_command("--html", tmp_path / "found.html", "faults.py")
    text = (tmp_path / "found.html").read_text()
    assert "http" not in text  # it needs nothing from elsewhere
    golden(GOLDEN / "faults.html", re.sub(r"<dt>PTX</dt><dd>.*?</dd>", "", text))


@pytest.mark.parametrize(("fail_on", "status"), [("error", 1), ("warning", 1), ("note", 1), ("never", 0)])
def test_the_exit_status(fail_on, status, capsys):
    assert check_command("--fail-on", fail_on, "faults.py") == status


def test_a_clean_script_gets_its_arguments(capsys):
    assert check_command("clean.py", "2.5") == 0
    shown = capsys.readouterr().out
    assert shown == "sum 320.0\n1 kernel in 1 launch checked: 0 errors, 0 warnings, 0 notes\n"


def test_a_script_that_fails_is_shown_from_its_first_line(capsys):
    assert check_command("clean.py") == 1
    shown = capsys.readouterr()
    assert shown.err.splitlines()[0] == "Traceback (most recent call last):"
    assert 'File "clean.py", line 18' in shown.err.splitlines()[1]
    assert "IndexError" in shown.err and "runpy" not in shown.err
    assert "0 kernels in 0 launches checked" in shown.out


@pytest.mark.parametrize(("code", "status"), [("sys.exit(3)", 1), ("sys.exit()", 0), ("sys.exit('bad')", 1)])
def test_a_script_that_exits(code, status, tmp_path, capsys):
    script = tmp_path / "leaves.py"
    script.write_text(f"import sys\n{code}\n")
    assert check_command(script) == status


def test_no_such_script(capsys):
    assert check_command("nowhere.py") == 1
    assert "there is no file nowhere.py" in capsys.readouterr().err


def test_a_module(capsys, monkeypatch, tmp_path):
    (tmp_path / "package").mkdir()
    text = (HERE / "scripts" / "clean.py").read_text()
    (tmp_path / "package" / "__main__.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert check_command("-m", "package", "2.5") == 0
    assert capsys.readouterr().out.startswith("sum 320.0\n1 kernel in 1 launch checked: 0 errors")
    assert check_command("-m", "no_such_package") == 1
    assert "No module named" in capsys.readouterr().err


def test_ctrl_c_leaves_a_report(capsys, tmp_path):
    script = tmp_path / "long.py"
    faults = (HERE / "scripts" / "faults.py").read_text()
    script.write_text(f"{faults}\nraise KeyboardInterrupt  # what Ctrl-C does\n")
    assert check_command(script) == 1
    shown = capsys.readouterr()
    assert "KeyboardInterrupt" in shown.err and "runpy" not in shown.err
    assert "error: race in kernel" in shown.out
