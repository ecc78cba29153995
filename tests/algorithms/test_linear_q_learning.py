"""Q-learning with linear features: a table where it has one, and no theorem."""

from __future__ import annotations

import numpy as np
import pytest

import fegsam as fg

MDP = fg.examples.garnet(5, 2, 3, discount=0.8, seed=0)


def _federation(features) -> fg.Federation:
    return fg.Federation(MDP, fg.policies.uniform(5, 2), num_agents=3, features=features)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_with_a_feature_for_each_state_it_is_tabular_q_learning(engine) -> None:
    settings = {"step_size": 0.3, "sync_period": 4, "num_steps": 60, "record_params": True}
    found = [
        fg.run(_federation(np.eye(5)), algorithm, record=1, engine=engine, **settings)
        for algorithm in (fg.LinearQLearning(), fg.QLearning())
    ]
    np.testing.assert_allclose(*(each.data.average_params.values for each in found), 0, 1e-14)


@pytest.mark.parametrize("ask", [fg.theory.assumptions, fg.theory.constants])
def test_no_theorem_is_claimed_for_it(ask) -> None:
    features = np.random.default_rng(0).normal(size=(5, 3))
    with pytest.raises(fg.ProblemError, match=r"^No theorem covers Q-learning with linear"):
        ask(_federation(features), fg.LinearQLearning())
