"""``triton.knobs``."""

from __future__ import annotations

import os

import pytest

from ptxforge.triton_compat import knobs


def test_a_knob_reads_its_variable_until_it_is_assigned(monkeypatch):
    monkeypatch.delenv("TRITON_DEBUG", raising=False)
    assert knobs.runtime.debug is False
    for value, expected in (("1", True), ("0", False), ("off", False), ("yes", True)):
        monkeypatch.setenv("TRITON_DEBUG", value)
        assert knobs.runtime.debug is expected
    knobs.runtime.debug = False
    assert knobs.runtime.debug is False
    del knobs.runtime.debug
    assert knobs.runtime.debug is True
    assert knobs.runtime.knobs["debug"] is True and "launch_enter_hook" not in knobs.runtime.knobs


def test_a_scope_undoes(monkeypatch):
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    before = knobs.cache.dir
    with knobs.cache.scope():
        knobs.cache.dir = "/elsewhere"
        os.environ["TRITON_CACHE_DIR"] = "/there"
        assert knobs.cache.dir == "/elsewhere" and knobs.cache.copy().dir == "/elsewhere"
    assert knobs.cache.dir == before and "TRITON_CACHE_DIR" not in os.environ
    knobs.cache.dir = "/elsewhere"
    assert knobs.cache.reset().dir == before


def test_a_chain_of_hooks():
    seen = []

    def first(value):
        seen.append(("first", value))

    def second(value):
        seen.append(("second", value))

    chain = knobs.HookChain()
    assert not chain
    for hook in (first, second, first):
        chain.add(hook)
    chain(1)
    assert chain and seen == [("first", 1), ("second", 1)]
    chain.reversed = True
    chain.remove(first)
    chain.remove(first)
    chain.add(first)
    chain(2)
    assert seen[2:] == [("first", 2), ("second", 2)]


@pytest.mark.parametrize(
    "group", ["build", "cache", "compilation", "autotuning", "runtime", "language", "nvidia"]
)
def test_every_group_tells_its_values(group):
    assert getattr(knobs, group).knobs
