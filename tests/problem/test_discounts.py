"""Discounts of transitions: how they are given, kept, compared and carried, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fegsam as fg
from algorithms.own_tabular_td import TabularTD
from cases import EPISODES, SMALL
from fegsam.algorithms.structure import Opaque
from fegsam.data.simulated import simulate_log
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.share import load_share, save_share

MOVES = np.array([[[0.5, 0.5, 0.0]] * 2, [[0.0, 0.5, 0.5]] * 2, [[1.0, 0.0, 0.0]] * 2])
PAID = np.arange(6.0).reshape(3, 2)


def mdp(discount: Any) -> fg.MDP:
    return fg.MDP(MOVES, PAID, discount)


GIVEN = {
    "by the state entered": np.array([0.5, 0.25, 0.0]),
    "by the action": np.array([[0.5], [0.25]]),
    "by the state left": np.array([[[0.5]], [[0.25]], [[0.0]]]),
    "by the transition": np.linspace(0.0, 0.9, 18).reshape(3, 2, 3),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_every_shape_says_the_discount_of_each_transition(given: np.ndarray) -> None:
    each = np.broadcast_to(given, (3, 2, 3))
    found = mdp(given)
    assert found.discount == each[MOVES > 0].max()
    assert found.discounts is not None
    np.testing.assert_array_equal(np.broadcast_to(found.discounts, each.shape), each)
    assert found.discounts.size == given.size
    s, a, after = np.nonzero(MOVES)
    np.testing.assert_array_equal(found.discounts_of(s, a, after), each[s, a, after])
    weighted = found.discount * found.continuing.toarray().reshape(MOVES.shape)
    np.testing.assert_allclose(weighted, MOVES * each, rtol=1e-15)
    policy = np.array([[0.3, 0.7]] * 3)
    chain = found.discount * found.continuing_chain(policy).toarray()
    np.testing.assert_allclose(chain, np.einsum("sa,sat->st", policy, MOVES * each), rtol=1e-14)


def test_axes_along_which_nothing_varies_are_dropped() -> None:
    whole = np.broadcast_to(GIVEN["by the state entered"], (3, 2, 3)).copy()
    found = mdp(whole).discounts
    assert found is not None
    assert found.shape == (1, 1, 3)
    assert not found.flags.writeable
    whole[0] = 0.1
    assert found[0, 0, 0] == 0.5


def test_printing_says_the_range() -> None:
    varied = mdp(GIVEN["by the state entered"])
    assert "discount=0 to 0.5" in repr(varied)
    assert "0 to 0.5" in varied._repr_html_()
    several = fg.Federation([mdp(0.5), varied], num_agents=2)
    assert "discount=0 to 0.5" in repr(several)
    assert "0 to 0.5" in several._repr_html_()


def test_discounts_of_several_environments_lie_together() -> None:
    by_state, by_action = mdp(GIVEN["by the state entered"]), mdp(GIVEN["by the action"])
    fed = fg.Federation([by_state, by_action, mdp(0.5)], num_agents=3)
    assert fed.discount == 0.5
    assert fed.discounts is not None
    assert fed.discounts.shape == (3, 1, 2, 3)
    np.testing.assert_array_equal(fed.discounts[0], [[[0.5, 0.25, 0.0]] * 2])
    np.testing.assert_array_equal(fed.discounts[1], [[[0.5] * 3, [0.25] * 3]])
    np.testing.assert_array_equal(fed.discounts[2], 0.5)
    alike = fg.Federation([by_state, mdp([0.5, 0.25, 0.0])], num_agents=2)
    assert alike.discounts is not None
    assert alike.discounts.shape == (1, 1, 1, 3)
    assert fg.Federation([mdp(0.5)] * 2, num_agents=2).discounts is None


def test_fingerprint_knows_the_discounts() -> None:
    several = [0.5, [0.5, 0.25, 0.0], [0.5, 0.0, 0.25], [[0.5], [0.25]]]
    prints = [fg.Federation(mdp(each), num_agents=1).fingerprint() for each in several]
    assert len(set(prints)) == len(several)


BAD = {
    "one": ([0.5, 1.0, 0.5], r"has the entry 1\.0 at \(1,\).*lies in \[0, 1\)"),
    "negative": ([[[-0.1]], [[0.5]], [[0.5]]], r"has the entry -0\.1 at \(0, 0, 0\)"),
    "not a number": ([0.5, np.nan, 0.5], "discount has the entry nan"),
    "wrong length": ([0.5, 0.5], r"shape \(2,\), which does not broadcast to .* \(3, 2, 3\)"),
    "too many axes": (np.full((1, 3, 2, 3), 0.5), "does not broadcast"),
    "empty": ([], "does not broadcast"),
    "ragged": ([[0.5], [0.5, 0.4]], "discount"),
    "words": (["a", "b", "c"], "discount"),
    "nothing continues": (np.array([0.0, 0.0, 0.0]), "discount is 0"),
    "nothing possible continues": (
        np.where(MOVES > 0, 0.0, 0.5),
        "0 on every possible transition, but some must continue",
    ),
    "zero for all": (np.zeros(3), "discount is 0"),
}


@pytest.mark.parametrize(("discount", "message"), BAD.values(), ids=BAD)
def test_bad_discounts_are_named(discount: Any, message: str) -> None:
    with pytest.raises(fg.ProblemError, match=message):
        mdp(discount)


def test_environments_share_their_largest_discount() -> None:
    with pytest.raises(fg.ProblemError, match=r"MDP 1 has discount 0\.4 and MDP 0 has 0\.5"):
        fg.Federation([mdp(0.5), mdp([0.4, 0.0, 0.1])], num_agents=2)


def test_ends_is_a_word() -> None:
    with pytest.raises(fg.ProblemError, match="ends is 'never'; give 'restart'"):
        fg.examples.from_gymnasium("FrozenLake-v1", 0.9, ends="never")  # type: ignore[arg-type]


def test_rule_that_reads_one_discount_is_refused() -> None:
    """The largest discount would give it wrong values, in a run and in exact answers alike."""
    fed, algorithm = EPISODES.federation(3, "policies"), TabularTD(1)
    run = {"step_size": 0.1, "sync_period": 1, "num_steps": 1}
    for call in (
        lambda: fg.run(fed, algorithm, engine="reference", **run),
        lambda: fg.fixed_point(fed, algorithm),
        lambda: fg.theory.assumptions(fed, algorithm),
        lambda: Experiment(fed, algorithm, **run).terms(),
    ):
        with pytest.raises(fg.ProblemError, match=r"TabularTD does not say that its rule reads"):
            call()
    assert len(fg.fixed_point(SMALL.federation(3, "policies"), algorithm)) == SMALL.states


class OfUnknownStructure(fg.QLearning):
    """Q-learning of which only the rule is known."""

    def structure(self, problem: Any) -> Any:
        return Opaque()


@pytest.mark.parametrize("differ", ["policies", "both"])
def test_rule_alone_has_the_fixed_point_of_its_structure(differ: str) -> None:
    fed = EPISODES.federation(3, differ)
    found = fg.fixed_point(fed, OfUnknownStructure())
    np.testing.assert_allclose(found, fg.fixed_point(fed, fg.QLearning()), rtol=0, atol=1e-8)


@pytest.mark.parametrize("differ", ["policies", "both"])
def test_share_of_a_machine_has_the_discounts(tmp_path: Any, differ: str) -> None:
    fed = EPISODES.federation(4, differ)
    whole = Experiment(fed, fg.QLearning(), step_size=0.1, sync_period=2, num_steps=4)
    for agents in ([1], [0, 3]):
        save_share(whole, agents, tmp_path / "share")
        read: Any = load_share(tmp_path / "share").problem
        kept: Any = whole.only(agents).problem
        assert read.fingerprint() == kept.fingerprint()
        for one, other in zip(read.mdps, kept.mdps, strict=True):
            np.testing.assert_array_equal(one.discounts, other.discounts)


def test_log_carries_ends_and_one_discount(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    uniform = fg.policies.uniform(3, 2)
    settings: dict[str, Any] = {"episodes": 3, "length": 9, "seed": 0}
    ends = mdp([0.5, 0.5, 0.0])
    rows = fg.LogSource(
        simulate_log(tmp_path / "log.csv", ends, uniform, ends=[2], **settings)
    ).read(discount=ends.discount)
    state, after = rows.observation[:-1], rows.observation[1:]
    on = ~rows.gap[:-1]
    each = ends.discounts_of(state[on], np.zeros(on.sum(), int), after[on])
    np.testing.assert_array_equal(rows.discount[:-1][on], each)
    for discount, states in (
        ([0.5, 0.5, 0.0], ()),
        ([0.5, 0.4, 0.0], (2,)),
        ([0.5, 0.5, 0.0], (1, 2)),
    ):
        with pytest.raises(fg.ProblemError, match="has a discount that no log can say: give as"):
            simulate_log(tmp_path / "log.csv", mdp(discount), uniform, ends=states, **settings)
