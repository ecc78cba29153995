"""Runs where transitions have discounts of their own: every engine against the pseudo-code, the
deployed agents' files, and a long run against exact answers."""

from __future__ import annotations

import pytest

from cases import EPISODES, case
from helpers.agreement import assert_agrees

# The loops of the cpu engine take long to compile for each rule.
CPU = [
    pytest.param("cpu", name, marks=() if name in ("alg3", "alg4") else pytest.mark.slow)
    for name in ("alg2", "alg3", "alg4", "alg5", "tdc")
]


@pytest.mark.parametrize(
    ("engine", "name"), [*(("reference", name) for name in ("alg2", "alg3", "alg5", "tdc")), *CPU]
)
def test_engine_agrees_with_the_pseudocode(engine: str, name: str) -> None:
    """In one environment, and in three with discounts of their own."""
    for differ, n in (("policies", 1), ("both", 3)):
        found = case(name, n, differ=differ, world=EPISODES)
        assert_agrees(found, engine=engine, K=3, T=25)
