"""The claims about methods: their verdicts go both ways, and their numbers are those of others."""

from __future__ import annotations

import itertools
import pathlib
import string

import numpy as np
import pytest

import fegsam as fg
from fegsam.comparison import (
    client_sampling,
    drift,
    extrapolation,
    first_step,
    importance,
    longer_rounds,
    momentum,
    participation,
    unstable,
)
from fegsam.comparison.many_agents import after_round, limit_point, paths, windows
from fegsam.report import Section
from fegsam.reproduction.thresholds import RULES, ClaimSpec, certain, claim_spec

CLAIMS = (
    "contest", "drift", "longer_rounds", "importance", "momentum", "participation",
    "client_sampling", "first_step", "extrapolation", "unstable",
)  # fmt: skip


def spec_of(name: str) -> ClaimSpec:
    return claim_spec(name, True, "fegsam.comparison")


def outcomes(section: Section, words: str) -> set[str]:
    found = {verdict.outcome for verdict in section.verdicts if words in verdict.sentence}
    assert found
    return found


# --- Specs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", CLAIMS)
def test_every_check_is_complete_and_used(name: str, quick: bool) -> None:
    spec = claim_spec(name, quick, "fegsam.comparison")
    module = "against_plain" if name == "contest" else name
    folder = pathlib.Path(importance.__file__).parent
    code = (folder / f"{module}.py").read_text(encoding="utf-8")
    for key, check in spec.checks.items():
        assert check.rule in RULES, key
        assert min(map(len, (check.claim, check.theorem, check.fails))) > 10, key
        assert check.bounds != (None, None), key
        assert f'"{key}"' in code, key


def test_letters_are_those_of_the_claims_in_order() -> None:
    assert [spec_of(name).letter for name in CLAIMS] == list(string.ascii_lowercase[: len(CLAIMS)])


@pytest.mark.parametrize("name", CLAIMS)
def test_every_threshold_can_be_missed_and_met(name: str) -> None:
    words = dict.fromkeys(
        ("method", "budget", "many", "agents", "long", "short", "times", "what", "least", "most",
         "steps"), 1,
    )  # fmt: skip
    for key, check in spec_of(name).checks.items():
        low, high = check.bounds
        inside = low if high is None else high if low is None else (low + high) / 2
        assert inside is not None
        outside = inside - 1 if high is None else high + 1
        for value, outcome in ((inside, "holds"), (outside, "does not hold")):
            assert spec_of(name).verdict(key, "here", certain(value), **words).outcome == outcome


# --- Drift and rounds -----------------------------------------------------------------------------


def test_variates_remove_drift_but_not_the_bias_of_markov_draws() -> None:
    few = {"problems": ["policies"], "settings": [[0.16, 64], [0.04, 256]], "periods": [1, 4]}
    section = drift.examine(spec_of("drift").resized(**few))
    assert outcomes(section, "independent draws") == {"holds"}
    assert outcomes(section, "has less bias") == {"holds", "does not hold"}
    assert outcomes(section, "does not fall with the number") == {"holds"}


def test_longer_rounds_are_slower_beyond_one_time_constant() -> None:
    few = {"periods": [10, 100, 1000]}
    section = longer_rounds.examine(spec_of("longer_rounds").resized(**few))
    assert outcomes(section, "plain averaging needs") == {"holds"}
    assert outcomes(section, "SCAFFLSA by kind needs") == {"does not hold"}
    assert outcomes(section, "max(phi") == {"holds"}
    shorter = longer_rounds.examine(
        spec_of("longer_rounds").resized(**(few | {"long": 100, "short": 10}))
    )
    assert outcomes(shorter, "SCAFFLSA by kind needs") == {"holds"}


@pytest.mark.parametrize(("period", "expected"), [(100, 0.366032341273), (1000, 0.900004317125)])
def test_law_of_the_rate(period: int, expected: float) -> None:
    assert longer_rounds.law(0.01, period) == pytest.approx(expected, abs=1e-12)


def test_momentum_is_later_at_an_equal_effective_step() -> None:
    few = {"problems": ["environments"], "step_sizes": [0.16], "rounds": 200}
    section = momentum.examine(spec_of("momentum").resized(**few))
    assert outcomes(section, "fewer rounds") == {"does not hold"}
    assert outcomes(section, "smaller long-run error") == {"holds"}


# --- Participation and variates -------------------------------------------------------------------


def test_half_of_the_agents_have_the_bias_of_all_and_the_variance_of_the_law() -> None:
    few = {"problems": ["environments"], "periods": [1, 4], "agents": 4}
    section = participation.examine(spec_of("participation").resized(**few))
    assert section.outcome == "holds"


def test_control_variates_triple_the_variance_of_half_of_the_agents() -> None:
    section = client_sampling.examine(spec_of("client_sampling").resized(periods=[4], agents=4))
    [verdict] = section.verdicts
    assert verdict.outcome == "does not hold"
    assert verdict.estimate is not None
    assert verdict.estimate.value == pytest.approx(3, abs=0.02)


def test_variance_of_first_step_variates_does_not_fall() -> None:
    section = first_step.examine(spec_of("first_step").resized(step_sizes=[0.016, 0.008]))
    assert outcomes(section, "of FedHSA") == {"does not hold"}
    assert outcomes(section, "of plain averaging") == {"holds"}
    assert outcomes(section, "of SCAFFLSA") == {"holds"}


def test_extrapolation_leaves_a_bias_of_second_order() -> None:
    few = {"problems": ["environments"], "step_sizes": [0.04, 0.02]}
    section = extrapolation.examine(spec_of("extrapolation").resized(**few))
    assert section.outcome == "holds"


# --- Importance averaging -------------------------------------------------------------------------


def enumerated(mdp: fg.MDP, policy: np.ndarray, step: float, length: int, params: np.ndarray):
    """The mean of infinitely many agents after one round, path by path in plain Python."""
    moves = mdp.transitions.toarray().reshape(2, 2, 2)
    chain = np.einsum("sa,sat->st", policy, moves)
    law = np.linalg.matrix_power(chain, 200)[0]
    sums = np.zeros((2, 4)), np.zeros((2, 4))
    for start in range(2):
        for path in itertools.product(range(2), repeat=2 * length):
            chance, state, table, visits = law[start], start, params.copy(), np.zeros(4)
            for action, after in zip(path[::2], path[1::2], strict=True):
                chance *= policy[state, action] * moves[state, action, after]
                cell = 2 * state + action
                target = mdp.rewards[state, action] + mdp.discount * max(
                    table[2 * after], table[2 * after + 1]
                )
                table[cell] += step * (target - table[cell])
                visits[cell] += 1
                state = after
            for row, weight in enumerate((np.ones(4), (1 - step) ** -visits)):
                sums[0][row] += chance * weight * table
                sums[1][row] += chance * weight
    return sums[0] / sums[1]


def test_round_of_infinitely_many_agents_path_by_path() -> None:
    mdp, policy = importance.two_states()
    params = np.array([0.3, -1.0, 2.0, 0.5])
    plain, weighted = enumerated(mdp, policy, 0.3, 3, params)
    found = paths(windows(mdp, policy), 3, "markov")
    for by_visits, expected in ((False, plain), (True, weighted)):
        again = after_round(params, mdp, found, 0.3, by_visits=by_visits)
        np.testing.assert_allclose(again, expected, atol=1e-13)


def test_many_agents_are_near_the_enumerated_round() -> None:
    mdp, policy = importance.two_states()
    found = windows(mdp, policy)
    law = np.bincount(found.cells // 2, found.law)
    problem = fg.Federation(mdp, policy, num_agents=120, initial_distribution=law)
    ends = (
        fg.run(
            problem,
            fg.QLearning(),
            step_size=0.3,
            sync_period=3,
            num_steps=3,
            method=fg.methods.importance_averaging(),
            seeds=range(10),
            engine="reference",
        )
        .data.final_params.transpose("seed", "param")
        .values
    )
    limit = after_round(np.zeros(4), mdp, paths(found, 3, "markov"), 0.3, by_visits=True)
    # A ratio of means over 120 agents has a bias of order 1/120, far below this.
    assert (abs(ends.mean(axis=0) - limit) < 5 * ends.std(axis=0) / np.sqrt(10) + 1e-3).all()
    equal = after_round(np.zeros(4), mdp, paths(found, 3, "markov"), 0.3, by_visits=False)
    assert (abs(ends.mean(axis=0) - equal) > 10 * ends.std(axis=0) / np.sqrt(10)).any()


def test_bias_of_infinitely_many_agents_is_of_first_order_with_markov_draws_alone() -> None:
    mdp, policy = importance.two_states()
    star = fg.fixed_point(fg.Federation(mdp, policy, num_agents=2), fg.QLearning())
    gaps = {}
    for sampling in ("markov", "iid"):
        found = paths(windows(mdp, policy), 3, sampling)
        gaps[sampling] = [
            np.linalg.norm(limit_point(mdp, found, size, star, by_visits=True) - star)
            for size in (0.1, 0.05)
        ]
    assert gaps["markov"][0] / gaps["markov"][1] == pytest.approx(2, abs=0.2)
    assert max(gaps["iid"]) < 1e-10


# --- An unstable average --------------------------------------------------------------------------


def test_no_method_repairs_an_unstable_average_and_another_algorithm_does() -> None:
    few = {"agents": 2, "seeds": 3, "num_steps": 640, "contestants": ["plain", "fedavgm"]}
    section = unstable.examine(spec_of("unstable").resized(**few), "reference")
    assert outcomes(section, "Off-policy linear TD") <= {"does not hold", "cannot be told"}
    assert outcomes(section, "TDC") == {"holds"}
