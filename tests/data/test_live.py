"""Live environments as agents: their rows, their paths, and how they continue."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fegsam as fg
from fegsam import ProblemError
from fegsam.data import Rows
from fegsam.data.choosing import EpisodeSeeds

gymnasium = pytest.importorskip("gymnasium")

from helpers.environments import MdpEnvironment, Walker, rows_of  # noqa: E402

TABLE = fg.policies.random(5, 3, count=1, seed=4)[0]


def tilted(observations: np.ndarray) -> np.ndarray:
    """Chances that depend on the first two numbers of an observation."""
    chances = 0.2 + np.stack([observations[:, 0], observations[:, 1], 0 * observations[:, 0]], 1)
    observations[:] = np.nan  # a function may change what it is given
    return chances / chances.sum(axis=1, keepdims=True)


def walker(**options) -> fg.LiveSource:
    policy = tilted if options.get("vectors") else TABLE
    return fg.LiveSource(Walker, policy, options=options)


SOURCES = {
    "states": walker(),
    "states from -1": walker(start=-1),
    "vectors, function": walker(vectors=True),
    "vectors, constant": fg.LiveSource(Walker, [[0.2, 0.3, 0.5]], options={"vectors": True}),
    "integers": fg.LiveSource(Walker, tilted, options={"vectors": True, "dtype": "uint8"}),
    "restart": fg.LiveSource(Walker, TABLE, ends="restart"),
    "vectors, restart": fg.LiveSource(Walker, tilted, options={"vectors": True}, ends="restart"),
}


def same(one: Rows, other: Rows) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


def joined(parts: list[Rows]) -> Rows:
    return Rows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


@pytest.fixture(scope="module")
def federation() -> fg.Federation:
    mdp = fg.examples.garnet(7, 3, branching=3, discount=0.9, seed=0)
    policy = fg.policies.random(7, 3, count=1, seed=1)[0]
    target = fg.policies.random(7, 3, count=1, seed=2)[0]
    return fg.Federation(mdp, policy, num_agents=4, target_policy=target)


@pytest.mark.parametrize(("seed", "agent"), [(0, 0), (2**63 + 5, 3)])
def test_an_mdp_as_an_environment_gives_the_path_of_the_simulated_agent(
    federation, seed, agent
) -> None:
    source = fg.LiveSource(
        lambda: MdpEnvironment(federation, seed, agent), federation.behavior_policies[0]
    )
    reader = source.open(discount=0.9, seed=seed, agent=agent)
    rows = joined([reader.read(count) for count in (1, 700, 0, 1299)])
    path = fg.sample_path(federation, fg.QLearning(), seed=seed, agent=agent, num_steps=2000)
    np.testing.assert_array_equal(rows.observation, path.states[:2000])
    np.testing.assert_array_equal(rows.action, path.actions[:2000])
    np.testing.assert_array_equal(
        rows.reward, federation.mdps[0].rewards[rows.observation, rows.action]
    )
    assert not rows.gap.any()
    assert (rows.discount == 0.9).all()


@pytest.mark.parametrize("algorithm", [fg.QLearning(), fg.OffPolicyTabularTD(3)])
def test_a_run_on_an_mdp_as_an_environment_is_the_simulated_run(federation, algorithm) -> None:
    policy, seed = federation.behavior_policies[0], 11
    environments = [MdpEnvironment(federation, seed, agent) for agent in range(4)]
    sources = [fg.LiveSource(lambda made=made: made, policy) for made in environments]
    target = federation.target_policy
    data = fg.DataFederation(sources, discount=0.9, target_policy=target, held_out=0)
    settings = {"step_size": 0.1, "sync_period": 7, "num_steps": 300, "record": 1, "seeds": [seed]}
    runs = [
        fg.run(problem, algorithm, engine=engine, record_params=True, **settings)
        for problem, engine in (
            (data, "reference"),
            (federation, "reference"),
            (data, "cpu"),
            (federation, "cpu"),
        )
    ]
    live, simulated, *compiled = [run.data.average_params.values for run in runs]
    np.testing.assert_array_equal(live, simulated)
    for found in compiled:
        np.testing.assert_allclose(found, simulated, 0, 1e-12)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_a_path_does_not_depend_on_agents_rounds_or_step_sizes(engine) -> None:
    def seen_by_agent_2(num_agents: int, sync_period: int, step_size: float) -> list:
        made: list[Walker] = []
        source = fg.LiveSource(lambda: made.append(Walker()) or made[-1], TABLE)
        data = fg.DataFederation(source, discount=0.9, num_agents=num_agents, held_out=0)
        settings = {"sync_period": sync_period, "step_size": step_size}
        # More than what is read at once, so that reading on is tried, too.
        fg.run(data, fg.QLearning(), num_steps=1400, engine=engine, **settings)
        return [walker.told for walker in made if walker.told][2][:1500]

    expected = seen_by_agent_2(3, 10, 0.1)
    assert len(expected) == 1500
    for settings in ((5, 10, 0.1), (3, 1, 0.1), (3, 700, 0.1), (3, 10, 0.7)):
        assert seen_by_agent_2(*settings) == expected


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("start", [0, -1])
def test_rows_and_gaps_are_those_of_the_environments_own_log(vectors, start) -> None:
    made = Walker(vectors=vectors, start=start)
    source = fg.LiveSource(lambda: made, tilted if vectors else TABLE)
    rows = source.open(discount=0.9, seed=1, agent=2).read(500)
    expected = rows_of(made.told, start=start, discount=0.9)[:500]
    found = zip(
        rows.observation.tolist(),
        *(x.tolist() for x in (rows.action, rows.reward)),
        rows.discount.tolist(),
        rows.gap.tolist(),
        strict=True,
    )
    assert list(found) == expected
    ends = [event[2:4] for event in made.told if len(event) == 5]
    assert {(True, False), (False, True), (True, True)} <= set(ends)
    on = ~rows.gap
    assert np.isnan(rows.behavior[rows.gap]).all()
    assert np.isnan(rows.target).all()
    chances = tilted(rows.observation.copy()) if vectors else TABLE[rows.observation]
    expected_chances = chances[np.arange(500), rows.action]
    np.testing.assert_allclose(rows.behavior[on], expected_chances[on], rtol=1e-15)
    seeds = [event[1] for event in made.told if len(event) == 3]
    assert len(set(seeds)) == len(seeds) > 50


@pytest.mark.parametrize("name", SOURCES)
def test_a_reader_that_is_saved_and_restored_anywhere_yields_the_rest(name) -> None:
    source = SOURCES[name]
    every = source.open(discount=0.9, seed=3, agent=1).read(60)
    reader, again = (source.open(discount=0.9, seed=3, agent=1) for _ in range(2))
    pieces = []
    for _ in range(50):
        again.restore(reader.save())
        again.restore(again.save())
        assert same(again.read(10), Rows(*(a[len(pieces) : len(pieces) + 10] for a in every)))
        pieces.append(reader.read(1))
    assert same(joined(pieces), Rows(*(a[:50] for a in every)))


def test_another_agent_or_seed_sees_another_path() -> None:
    found = [
        SOURCES["states"].open(discount=0.9, seed=seed, agent=agent).read(40).action.tolist()
        for seed, agent in [(0, 0), (0, 1), (1, 0)]
    ]
    assert found[0] != found[1] != found[2] != found[0]


def test_episodes_have_the_same_seeds_in_whatever_order_they_are_asked_for() -> None:
    seeds = EpisodeSeeds(5, 7)
    forward = [seeds[episode] for episode in range(3000)]
    assert [EpisodeSeeds(5, 7)[episode] for episode in (2999, 1024, 0)] == [
        forward[episode] for episode in (2999, 1024, 0)
    ]
    assert len(set(forward)) == 3000
    assert 0 <= min(forward) < max(forward) < 2**31


def test_actions_follow_the_policy() -> None:
    rows = SOURCES["states"].open(discount=0.9, seed=0, agent=0).read(20_000)
    on = ~rows.gap
    states, actions = rows.observation[on], rows.action[on]
    seen = np.zeros((5, 3))
    np.add.at(seen, (states, actions), 1.0)
    mean = TABLE * seen.sum(axis=1, keepdims=True)
    statistic = ((seen - mean) ** 2 / mean).sum()
    assert abs(statistic - 10) < 4 * np.sqrt(20)


def test_a_function_that_looks_up_a_table_is_the_table(federation) -> None:
    by_table, by_function = (
        fg.LiveSource(Walker, policy).open(discount=0.9, seed=0, agent=0).read(300)
        for policy in (TABLE, lambda states: TABLE[states])
    )
    assert same(by_table, by_function)
    constant, called = (
        fg.LiveSource(Walker, policy, options={"vectors": True})
        .open(discount=0.9, seed=0, agent=0)
        .read(300)
        for policy in (TABLE[:1], lambda seen: np.repeat(TABLE[:1], len(seen), axis=0))
    )
    assert same(constant, called)


def test_with_restarts_a_live_lake_is_the_mdp_of_the_same_lake() -> None:
    """Without slipping and with one start, only actions are random: the paths must be equal."""
    options = {"is_slippery": False}
    mdp = fg.examples.from_gymnasium("FrozenLake-v1", 0.9, **options)
    policy = fg.policies.random(16, 4, count=1, seed=3)[0]
    fed = fg.Federation(mdp, policy, num_agents=2, initial_distribution=np.eye(mdp.num_states)[0])
    path = fg.sample_path(fed, fg.QLearning(), seed=5, agent=1, num_steps=1500)
    source = fg.LiveSource(
        "FrozenLake-v1", policy, options={**options, "max_episode_steps": -1}, ends="restart"
    )
    rows = source.open(discount=0.9, seed=5, agent=1).read(1500)
    assert list(mdp.labels) == list(range(16))
    np.testing.assert_array_equal(rows.observation, path.states[:1500])
    np.testing.assert_array_equal(rows.action, path.actions[:1500])
    np.testing.assert_array_equal(rows.reward, mdp.rewards[rows.observation, rows.action])
    np.testing.assert_array_equal(rows.behavior, policy[rows.observation, rows.action])
    assert not rows.gap.any()
    assert (rows.discount == 0.9).all()


def test_with_restarts_a_truncated_episode_is_cut_all_the_same() -> None:
    made = Walker()
    source = fg.LiveSource(lambda: made, TABLE, ends="restart")
    rows = source.open(discount=0.9, seed=0, agent=0).read(400)
    ends = [(event[2], event[3]) for event in made.told if len(event) == 5]
    cut = ends.count((False, True))
    assert 0 < cut == rows.gap.sum() < len([end for end in ends if any(end)])
    assert (rows.discount[~rows.gap] == 0.9).all()


def test_blackjack_with_an_index_and_the_same_without_gymnasiums_spaces() -> None:
    def number(hand: tuple[int, int, int]) -> int:
        return (hand[0] * 11 + hand[1]) * 2 + hand[2]

    source = fg.LiveSource("Blackjack-v1", fg.policies.uniform(704, 2), index=number)
    assert source.spaces().num_states == 704
    rows = source.open(discount=0.9, seed=0, agent=0).read(300)
    assert 0 < rows.observation.min() < rows.observation.max() < 704
    assert set(rows.reward.tolist()) <= {-1.0, 0.0, 1.0}
    assert (rows.discount[np.flatnonzero(rows.gap) - 1] == 0.0).all()


def test_float32_observations_are_kept_exactly() -> None:
    source = fg.LiveSource("CartPole-v1", [[0.5, 0.5]])
    rows = source.open(discount=0.9, seed=0, agent=0).read(100)
    assert rows.observation.shape == (100, 4)
    assert rows.observation.dtype == np.float64
    np.testing.assert_array_equal(rows.observation, rows.observation.astype(np.float32))
    assert source.spaces().width == 4


def test_an_environment_that_forgets_its_seed_is_refused_when_it_is_resumed() -> None:
    source = walker(vectors=True, honest=False)
    reader = source.open(discount=0.9, seed=0, agent=0)
    assert not reader.read(3).gap.any()
    again = source.open(discount=0.9, seed=0, agent=0)
    with pytest.raises(ProblemError, match=r"Walker, agent 0: episode \d+, replayed.*Spool"):
        again.restore(reader.save())


class Odd(Walker):
    """A walker with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault
        if fault == "actions":
            self.action_space = gymnasium.spaces.Box(-1, 1)
        if fault == "observations":
            self.observation_space = gymnasium.spaces.Text(3)

    def step(self, action):
        shown, reward, *ends = super().step(action)
        return (
            (7 if self._fault == "state" else shown),
            (np.nan if self._fault == "reward" else reward),
            *ends,
        )


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("actions", "a policy chooses among finitely many: wrap it"),
        ("observations", "give index=, a function"),
        ("state", "Odd, agent 0: observation is 7, but there are 5 states"),
        ("reward", "Odd, agent 0: reward is nan before step 9: correct"),
    ],
)
def test_environments_that_cannot_be_used_are_refused(fault, told) -> None:
    source = fg.LiveSource(Odd, TABLE, options={"fault": fault})
    with pytest.raises(ProblemError, match=told):
        source.open(discount=0.9, seed=0, agent=0).read(9)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: fg.LiveSource(3, TABLE), "env is 3: give a Gymnasium id"),
        (lambda: fg.LiveSource("Nowhere-v0", TABLE).spaces(), "cannot make 'Nowhere-v0'"),
        (lambda: fg.LiveSource(Walker, TABLE, ends="go"), "ends is 'go'"),
        (lambda: fg.LiveSource(Walker, TABLE, index=3), "index is 3"),
        (lambda: fg.LiveSource(Walker, tilted, index=len), "give a table"),
        (lambda: fg.LiveSource(Walker, TABLE, options=3), "options is 3"),
        (lambda: fg.LiveSource(Walker, [0.5, 0.5]), r"give shape \(S, A\)"),
        (lambda: fg.LiveSource(Walker, [[0.5, 0.6]]), "sums to 1.1"),
        (lambda: fg.LiveSource(Walker, TABLE[:4]).spaces(), r"give shape \(5, 3\)"),
        (lambda: fg.LiveSource("CartPole-v1", TABLE).spaces(), "give a function of observations"),
        (lambda: SOURCES["states"].open(discount=2, seed=0, agent=0), "discount is 2"),
        (lambda: SOURCES["states"].open(discount=0.5, seed=-1, agent=0), "seed is -1"),
        (lambda: SOURCES["states"].open(discount=0.5, seed=0, agent=2**32), "agent is"),
        (lambda: SOURCES["states"].open(discount=0.5, seed=0, agent=0).read(-1), "count is -1"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, told) -> None:
    with pytest.raises(ProblemError, match=told):
        make()


def test_errors_of_making_and_of_the_first_reset_name_the_environment() -> None:
    class Unseeded(Walker):
        def reset(self):
            return super().reset(seed=0)

    class Bare(Walker):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0]

    for env, options, told in (
        (Walker, {"speed": 3}, r"Walker makes no environment with the options {'speed': 3} \(.*sp"),
        ("FrozenLake-v1", {"map_name": "9x9"}, "Gymnasium cannot make 'FrozenLake-v1': '9x9'"),
        (Unseeded, {}, r"Unseeded, agent 4: its first episode cannot begin \(.*'seed'"),
        (Bare, {}, r"Bare, agent 4: its first episode cannot begin \(.*let reset\(seed="),
    ):
        with pytest.raises(ProblemError, match=told):
            fg.LiveSource(env, TABLE, options=options).open(discount=0.9, seed=0, agent=4)


@pytest.mark.parametrize(
    ("vectors", "policy", "told"),
    [
        (True, lambda seen: np.ones(3) / 3, r"shape \(3,\) for 1 observations"),
        (True, lambda seen: np.full((1, 3), 0.3), r"returns \[0.3, 0.3, 0.3\]"),
        (True, lambda seen: np.array([[0.5, 0.75, -0.25]]), "not negative"),
        (True, lambda seen: np.full((1, 3), np.nan), "nan"),
        (False, lambda states: np.ones((4, 3)) / 3, r"here \(5, 3\)"),
        (False, lambda states: np.ones((5, 3)), "sums to 3"),
    ],
)
def test_functions_that_return_no_probabilities_are_refused(vectors, policy, told) -> None:
    source = fg.LiveSource(Walker, policy, options={"vectors": vectors})
    with pytest.raises(ProblemError, match=told):
        source.open(discount=0.9, seed=0, agent=0).read(1)


def test_without_gymnasium_the_message_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ProblemError, match=r"pip install 'fegsam\[gymnasium\]'"):
        fg.LiveSource("FrozenLake-v1", TABLE).spaces()
    assert SOURCES["states"].open(discount=0.9, seed=0, agent=0).read(5).gap.shape == (5,)


def test_a_reader_closes_its_environment() -> None:
    closed = []

    class Closing(Walker):
        def close(self) -> None:
            closed.append(self)

    fg.LiveSource(Closing, TABLE).open(discount=0.9, seed=0, agent=0).close()
    assert len(closed) == 1
