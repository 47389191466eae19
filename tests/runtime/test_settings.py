"""The environment variables: read when asked for, refused by name when they cannot be."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.cli import main
from ptxforge.emulator import DefaultEmulator
from ptxforge.runtime.devices import default_device
from ptxforge.support import settings
from ptxforge.support.errors import PtxforgeError, SettingError


@ptxforge.jit
def fill(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 1.0)


@ptxforge.jit
def race(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK) * 0, tl.arange(0, BLOCK))


def launch(kernel=fill):
    out = np.zeros(64, np.float32)
    kernel[(1,)](out, BLOCK=64)
    return out


WRONG = [
    ("PTXFORGE_CHECK", "some", "PTXFORGE_CHECK='some': it can be off, one or all"),
    ("PTXFORGE_TARGET", "sm_12", "PTXFORGE_TARGET='sm_12': unknown target 'sm_12'; known targets: sm_80"),
    ("PTXFORGE_DEVICE", "gpu", "='gpu': it can be 'emulator', 'interpreter', 'cuda' or 'cuda:N'"),
    ("PTXFORGE_VERIFY", "maybe", r"PTXFORGE_VERIFY='maybe': it can be on \(1, on, yes, true\) or off"),
    ("PTXFORGE_STOP_AFTER", "coalesc", "PTXFORGE_STOP_AFTER='coalesc': no pass 'coalesc' in this pipeline"),
    ("PTXFORGE_DUMP", "cse,coalesc", "PTXFORGE_DUMP='cse,coalesc': no pass 'coalesc' in this pipeline"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_a_value_that_cannot_be(name, value, message, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=message):
        launch(ptxforge.jit(fill.fn))
    assert issubclass(SettingError, PtxforgeError) and issubclass(SettingError, ValueError)


@pytest.mark.parametrize("text", ["new", "3", "3.6.0 beta", "=3.6"])
def test_a_release_that_cannot_be(text, monkeypatch):
    monkeypatch.setenv("PTXFORGE_TRITON_VERSION", text)
    with pytest.raises(SettingError, match="it is a version, such as 3.7.1"):
        settings.TRITON_VERSION.get()
    monkeypatch.setenv("PTXFORGE_TRITON_VERSION", "3.7.1.post2+git1a2b")
    assert settings.TRITON_VERSION.get() == "3.7.1.post2+git1a2b"


@pytest.mark.parametrize("setting", settings.ALL, ids=lambda setting: setting.name)
def test_an_empty_value_is_the_default(setting, monkeypatch):
    monkeypatch.setenv(setting.name, "")
    assert setting.get() == setting.default


def test_a_change_after_the_device_was_made(monkeypatch):
    kernel = ptxforge.jit(race.fn)
    on_device = ptxforge.to_device(np.zeros(64, np.float32))
    launch(kernel)
    monkeypatch.setenv("PTXFORGE_CHECK", "all")
    with pytest.warns(UserWarning, match="race"):
        launch(kernel)
    with pytest.warns(UserWarning, match="race"):
        kernel[(1,)](on_device, BLOCK=64)
    monkeypatch.setenv("PTXFORGE_CHECK", "nonsense")
    with pytest.raises(SettingError, match="PTXFORGE_CHECK='nonsense'"):
        launch(kernel)


def test_another_target_compiles_another_variant(monkeypatch):
    kernel = ptxforge.jit(fill.fn)
    launch(kernel)
    monkeypatch.setenv("PTXFORGE_TARGET", "sm_80")
    launch(kernel)
    assert [variant.metadata.arch for variant in kernel.variants] == ["sm_90a", "sm_80"]


def test_what_is_set_on_the_device_counts(monkeypatch):
    monkeypatch.setenv("PTXFORGE_CHECK", "one")
    device = DefaultEmulator()
    assert device.check == "one" and device.target == "sm_90a"
    device.check, device.target = "all", "sm_80"
    assert device.check == "all" and device.target == "sm_80"


def test_a_misspelt_variable_is_told_once(monkeypatch):
    monkeypatch.setenv("PTXFORGE_CHEKC", "all")
    settings._told.clear()
    with pytest.warns(
        UserWarning, match="PTXFORGE_CHEKC is not one of ptxforge's; did you mean 'PTXFORGE_CHECK'"
    ):
        launch(ptxforge.jit(fill.fn))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(ptxforge.jit(fill.fn))


def test_an_environment_of_another_kind(monkeypatch):
    monkeypatch.setattr(os, "environ", {"PTXFORGE_CHEK": "all", "HOME": "/"})
    (sentence,) = settings.unknown()
    assert "PTXFORGE_CHEK is not one of ptxforge's; did you mean 'PTXFORGE_CHECK'?" in sentence


def test_the_table_shows_what_is_wrong(monkeypatch, capsys):
    monkeypatch.setenv("PTXFORGE_CHECK", "nonsense")
    monkeypatch.setenv("PTXFORGE_DEVISE", "cuda")
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["env"]) == 0
    shown = capsys.readouterr().out
    assert "wrong: PTXFORGE_CHECK='nonsense'" in shown and "did you mean 'PTXFORGE_DEVICE'?" in shown
    assert default_device().name == "emulator"
