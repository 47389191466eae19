"""Malformed PTX is an error of ours with its line, whatever is wrong with it."""

from __future__ import annotations

import random
import re

import pytest

from ptxforge.emulator import EmulatorDevice, launch
from ptxforge.emulator.launch import load_text
from ptxforge.support.errors import EmulatorError, PtxforgeError

from .harness import HEADER, fixture

BODY = HEADER.format(target="sm_80") + (
    ".visible .entry k(.param .u64 x)\n{{\n.reg .b32 %r<2>;\n.reg .pred %p;\n.reg .f32 %f<2>;\n"
    ".reg .b32 %s1<3>;\n{0}\nret;\n}}\n"
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mov.b32 %r9, 1;", "the register %r9 is not declared"),
        ("mov.b32 %r2, 1;", "the register %r2 is not declared"),
        ("mov.b32 %r01, 1;", "the register %r01 is not declared"),
        ("mov.b32 %s13, 1;", "the register %s13 is not declared"),
        ("@%q mov.b32 %r1, 1;", "the guard %q is no predicate register"),
        ("@%r1 mov.b32 %r1, 1;", "the guard %r1 is no predicate register"),
        ("@1 mov.b32 %r1, 1;", "the guard 1 is no predicate register"),
        ("mov.f32 %f0, 0f00-00000;", "cannot read the operand '0f00-00000'"),
        ("mov.f32 %f0, 0f3f8;", "cannot read the operand '0f3f8'"),
        ("ld.global.b32 %r1, [%r0;", r"'\[' is not closed"),
        ("ld.global.b32 %r1, [];", "empty operand"),
        ("ld.global.v2.b32 {%r1, %r0, [%r0];", "'{' is not closed"),
        (".reg .b32 %t<two>;", "cannot read"),
        ("bra;", "bra needs a label"),
        ("bra %r1;", "bra needs a label"),
        ("brx.idx %r1;", "brx.idx needs an index and a list of labels"),
    ],
)  # fmt: skip
def test_an_error_of_ours_with_the_line(line, message):
    with pytest.raises(EmulatorError, match=rf"PTX line 10: .*{message}"):
        EmulatorDevice().load_module(BODY.format(line))


def test_declared_registers_are_all_known():
    EmulatorDevice().load_module(
        BODY.format("mov.b32 %r1, %r0; mov.b32 %s12, %s10; @!%p bra %done; %done: mov.b32 %r0, 1;")
    )


@pytest.mark.parametrize("version", ["", "eight", "8", "8.7 8.8"])
def test_a_version_that_is_none(version):
    with pytest.raises(EmulatorError, match="PTX line 1: .version is followed by a number"):
        EmulatorDevice().load_module(f".version {version}\n.target sm_80\n.address_size 64\n")


@pytest.mark.parametrize("target", ["", "foo", "sm_", "90"])
def test_a_target_that_is_none(target):
    with pytest.raises(EmulatorError, match="PTX line 2: .target is followed by an architecture"):
        EmulatorDevice().load_module(f".version 8.7\n.target {target}\n.address_size 64\n")


_TOKEN = re.compile(r"[%\w$.]+|\S")


def _delete_line(text: str, rng: random.Random) -> str:
    lines = text.splitlines()
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def _delete_character(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text))
    return text[:place] + text[place + 1 :]


def _insert_character(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text))
    return text[:place] + rng.choice('{}[]()<>,;:.|@!%-+0x"/*') + text[place:]


def _cut_off(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def _exchange_tokens(text: str, rng: random.Random) -> str:
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    (a, b), (c, d) = sorted((rng.choice(tokens), rng.choice(tokens)))
    return text if b > c else text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]


def _copy_token(text: str, rng: random.Random) -> str:
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    (a, b), (c, d) = rng.choice(tokens), rng.choice(tokens)
    return text[:a] + text[c:d] + text[b:]


DAMAGE = (
    _delete_line, _delete_character, _insert_character, _cut_off, _exchange_tokens, _copy_token
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["reduction", "spin_lock", "scan", "tma_scale"])
def test_damaged_modules_load_or_are_refused(name, damage, seed, monkeypatch):
    monkeypatch.setattr(launch, "_TEXTS", type(launch._TEXTS)())  # keep none of these
    text = damage(fixture(name), random.Random(f"{name}{seed}"))
    try:
        load_text(text)
    except PtxforgeError as error:
        assert str(error)
