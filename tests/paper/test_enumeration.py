"""The oracle itself against exact expectations: every path of the golden problem, weighted by its
probability.

No sampling and no library code here: `pseudocode` runs once for each joint path of the agents, so
the golden numbers and the transcription of Algorithms 3, 4 and 5 vouch for each other. Step size
1/2, sync period 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod

import numpy as np
from numpy.testing import assert_allclose

import pseudocode
from helpers import golden

B1, B2 = golden.B1, golden.B2
DIGITS = {"rtol": 0, "atol": 1e-11}  # the golden numbers carry twelve decimals


def all_paths(policy: np.ndarray, length: int) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Every path of `length` transitions from state 0 under `policy`: its states, its actions, its
    probability."""
    for draws in product(range(2), repeat=2 * length):
        actions, states = draws[::2], (0, *draws[1::2])
        steps = zip(states[:-1], actions, states[1:], strict=True)
        probability = prod(
            policy[s, a] * golden.TRANSITIONS[s, a, s_next] for s, a, s_next in steps
        )
        yield np.array(states), np.array(actions), probability


class Law:
    """The law of a run: its parameters on every joint path of one agent per policy, and that path's
    probability."""

    def __init__(
        self, algorithm: Callable, policies: Sequence[np.ndarray], T: int, n: int = 1, **settings
    ) -> None:
        rewards, kinds = [golden.REWARDS] * len(policies), range(len(policies))
        params, weights = [], []
        for joint in product(*(list(all_paths(policy, T + n - 1)) for policy in policies)):
            states, actions, probabilities = zip(*joint, strict=True)
            shared = {
                "rewards": rewards,
                "gamma": golden.DISCOUNT,
                "kinds": kinds,
                "alpha": 0.5,
                "K": 2,
                "T": T,
            }
            params.append(algorithm(states, actions, **shared, **settings).params)
            weights.append(prod(probabilities))
        self.params = np.array(params)  # (paths, T+1, N, d)
        self.weights = np.array(weights)  # (paths,)
        self.average = self.params.mean(axis=2)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """E of what has one entry per path, at times 1..T."""
        return np.tensordot(self.weights, values, axes=1)[1:]

    def sync_error(self) -> np.ndarray:
        return self.mean(((self.params - self.average[:, :, None]) ** 2).sum(axis=3).mean(axis=2))

    def square(self, truth: np.ndarray | float = 0.0) -> np.ndarray:
        return self.mean(((self.average - truth) ** 2).sum(axis=2))

    def square_sup(self, truth: np.ndarray) -> np.ndarray:
        return self.mean(((self.average - truth) ** 2).max(axis=2))


def linear_td(policies: Sequence[np.ndarray], T: int, n: int) -> Law:
    tables = {"features": golden.FEATURES, "target": golden.TARGET, "behavior": policies}
    return Law(
        lambda *path, **settings: pseudocode.algorithm_5(*path, n=n, **settings),
        policies,
        T,
        n,
        **tables,
    )


def tabular_td(policies: Sequence[np.ndarray], T: int, n: int) -> Law:
    tables = {"target": golden.TARGET, "behavior": policies}
    return Law(
        lambda *path, **settings: pseudocode.algorithm_3(*path, n=n, **settings),
        policies,
        T,
        n,
        **tables,
    )


def test_the_probabilities_of_all_paths_sum_to_one() -> None:
    for policy in (B1, B2):
        assert sum(probability for *_, probability in all_paths(policy, 3)) == 1.0


def test_oracle_has_the_exact_law_of_linear_td_with_one_step_windows() -> None:
    law = linear_td([B1, B2], T=4, n=1)
    assert_allclose(law.mean(law.average)[:, 0], golden.ALG5_N1_MEAN, **DIGITS)
    assert_allclose(law.square(), golden.ALG5_N1_SQUARE, **DIGITS)
    assert_allclose(law.sync_error(), golden.ALG5_N1_SYNC_ERROR, **DIGITS)


def test_oracle_has_the_exact_law_of_linear_td_with_two_step_windows() -> None:
    law = linear_td([B1, B2], T=3, n=2)
    assert_allclose(law.mean(law.average)[:, 0], golden.ALG5_N2_MEAN, **DIGITS)
    assert_allclose(law.square(), golden.ALG5_N2_SQUARE, **DIGITS)


def test_oracle_has_the_exact_law_of_one_agent() -> None:
    assert_allclose(linear_td([B1], T=4, n=1).square(), golden.ONE_AGENT_SQUARE, **DIGITS)


def test_oracle_has_the_exact_law_of_two_like_agents() -> None:
    assert_allclose(linear_td([B1, B1], T=4, n=1).square(), golden.TWO_LIKE_AGENTS_SQUARE, **DIGITS)


def test_oracle_has_the_exact_law_of_tabular_td() -> None:
    for n, T, (mean, square, square_sup) in (
        (1, 3, golden.TABULAR_N1_T3),
        (2, 2, golden.TABULAR_N2_T2),
    ):
        law = tabular_td([B1, B2], T, n)
        assert_allclose(law.mean(law.average)[-1], mean, **DIGITS)
        assert_allclose(law.square(golden.VALUE)[-1], square, **DIGITS)
        assert_allclose(law.square_sup(golden.VALUE)[-1], square_sup, **DIGITS)


def test_oracle_has_the_exact_law_of_q_learning() -> None:
    law = Law(pseudocode.algorithm_4, [B1, B2], T=3)
    assert_allclose(law.mean(law.average)[-1], golden.Q_T3_MEAN, **DIGITS)
    errors = np.column_stack([law.square(golden.OPTIMAL_Q), law.square_sup(golden.OPTIMAL_Q)])
    assert_allclose(errors[1:], [golden.Q_T2_ERRORS, golden.Q_T3_ERRORS], **DIGITS)


def test_on_policy_oracle_is_the_off_policy_one_where_all_ratios_are_one() -> None:
    paths = list(all_paths(golden.TARGET, 4))
    shared = {
        "rewards": [golden.REWARDS],
        "gamma": golden.DISCOUNT,
        "features": golden.FEATURES,
        "kinds": [0],
    }
    settings = {"n": 2, "alpha": 0.5, "K": 2, "T": 3}
    for states, actions, _ in paths[::7]:
        on = pseudocode.algorithm_2([states], [actions], **shared, **settings)
        policies = {"target": golden.TARGET, "behavior": [golden.TARGET]}
        off = pseudocode.algorithm_5([states], [actions], **shared, **settings, **policies)
        assert_allclose(on.params, off.params, rtol=0, atol=1e-15)


def test_stationary_laws_and_preconditioners_of_the_oracle() -> None:
    laws = (
        (golden.B1, golden.STATIONARY_B1),
        (golden.B2, golden.STATIONARY_B2),
        (golden.TARGET, golden.STATIONARY_TARGET),
    )
    for policy, law in laws:
        assert_allclose(
            pseudocode.stationary_law(golden.TRANSITIONS, policy), law, rtol=0, atol=1e-14
        )
        inverse = pseudocode.preconditioner(golden.TRANSITIONS, policy, golden.FEATURES)
        assert_allclose(inverse, [[1 / (law[0] + law[1] / 4)]], rtol=1e-14)
