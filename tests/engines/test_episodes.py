"""Runs where transitions have discounts of their own: every engine against the pseudo-code, the
deployed agents' files, and a long run against exact answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fegsam as fg
from algorithms.test_sarsa import POLICIES
from cases import EPISODES, case
from helpers.agreement import assert_agrees

EACH_ENGINE = pytest.mark.parametrize("engine", ["reference", "cpu"])


@EACH_ENGINE
@pytest.mark.parametrize("name", ["alg2", "alg3", "alg4", "alg5", "tdc"])
def test_engine_agrees_with_the_pseudocode(name: str, engine: str) -> None:
    """In one environment, and in three with discounts of their own."""
    for differ in ("policies", "both"):
        for n in (1, 3):
            found = case(name, n, differ=differ, world=EPISODES)
            assert_agrees(found, engine=engine, K=3, T=25)
