"""Copies of an environment that step at once: each is the live agent that it would be alone."""

from __future__ import annotations

import numpy as np
import pytest

import fegsam as fg
from fegsam import ProblemError
from fegsam.data import Rows

gymnasium = pytest.importorskip("gymnasium")

from helpers.environments import Walker  # noqa: E402

TABLE = fg.policies.random(5, 3, count=1, seed=4)[0]
AGENTS = (3, 0, 7)


def walkers(num_envs, **options):
    """As many walkers, each with its own seeds."""
    each = [lambda: Walker(**options)] * num_envs
    return gymnasium.vector.SyncVectorEnv(each, autoreset_mode="Disabled")


def tilted(observations: np.ndarray) -> np.ndarray:
    """Chances that depend on the first two numbers of an observation."""
    chances = 0.2 + np.stack([observations[:, 0], observations[:, 1], 0 * observations[:, 0]], 1)
    observations[:] = np.nan  # a function may change what it is given
    return chances / chances.sum(axis=1, keepdims=True)


CASES = {
    "states": (TABLE, {}),
    "states from -1": (TABLE, {"start": -1}),
    "a function of states": (lambda states: TABLE[states], {}),
    "vectors, function": (tilted, {"vectors": True}),
    "vectors, constant": ([[0.2, 0.3, 0.5]], {"vectors": True}),
}


def opened(name: str, ends: str = "stop", agents=AGENTS) -> list:
    policy, options = CASES[name]
    source = fg.VectorSource(walkers, policy, options=options, ends=ends)
    return [source.open(discount=0.9, seed=3, agent=agent) for agent in agents]


def alone(name: str, ends: str = "stop", agents=AGENTS) -> list:
    policy, options = CASES[name]
    source = fg.LiveSource(Walker, policy, options=options, ends=ends)
    return [source.open(discount=0.9, seed=3, agent=agent) for agent in agents]


def assert_same(one: Rows, other: Rows) -> None:
    for found, expected in zip(one, other, strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ends", ["stop", "restart"])
def test_each_copy_is_the_live_agent_that_it_would_be_alone(name, ends) -> None:
    for copy, agent in zip(opened(name, ends), alone(name, ends), strict=True):
        for count in (1, 0, 130, 269):
            assert_same(copy.read(count), agent.read(count))


@pytest.mark.parametrize("ends", ["stop", "restart"])
def test_copies_that_are_saved_and_restored_anywhere_yield_the_rest(ends) -> None:
    name = "vectors, function"
    whole = [reader.read(90) for reader in alone(name, ends)]
    now = opened(name, ends)
    for step in range(60):
        again, lone = opened(name, ends), alone(name, ends)
        for copy, reader in enumerate(again):
            # What a live reader saves is the same, and either continues from the other's.
            state = now[copy].save()
            reader.restore(state)
            lone[copy].restore(state)
        for copy in (2, 0, 1):
            expected = Rows(*(array[step + copy : step + copy + 9] for array in whole[copy]))
            if step == 0:
                now[copy].read(copy)
                again[copy].read(copy)
                lone[copy].read(copy)
            assert_same(again[copy].read(9), expected)
            assert_same(lone[copy].read(9), expected)
        for reader in now:
            reader.read(1)


def test_a_copy_goes_back_to_rows_at_hand_and_to_rows_long_gone() -> None:
    readers, whole = opened("states"), [reader.read(2000) for reader in alone("states")]
    early = readers[0].save()
    readers[0].read(700)
    late = readers[0].save()
    for reader in readers:
        reader.read(600)
    readers[0].restore(late)
    assert_same(readers[0].read(50), Rows(*(array[700:750] for array in whole[0])))
    for _ in range(5):
        readers[0].save()
    readers[0].restore(early)
    assert_same(readers[0].read(50), Rows(*(array[:50] for array in whole[0])))
    # The others, which were replayed with it, go on where they were.
    for copy in (1, 2):
        assert_same(readers[copy].read(50), Rows(*(array[600:650] for array in whole[copy])))


def test_an_agents_rows_do_not_depend_on_who_shares_its_environment() -> None:
    shared, single = opened("states", agents=(4, 9, 2)), opened("states", agents=(9,))
    assert_same(shared[1].read(300), single[0].read(300))


def federation(source, agents=4):
    return fg.DataFederation(source, discount=0.9, num_agents=agents)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_a_run_and_its_continuation_equal_those_of_live_agents(tmp_path, engine) -> None:
    settings = {"step_size": 0.1, "sync_period": 7, "engine": engine, "seeds": [0, 5]}
    source = fg.VectorSource(walkers, TABLE)
    begun = fg.run(federation(source), fg.QLearning(), num_steps=33, **settings)
    begun.save(tmp_path / "begun.nc")
    history = fg.run(
        federation(source),
        fg.QLearning(),
        num_steps=90,
        resume_from=fg.load_history(tmp_path / "begun.nc"),
        **settings,
    )
    live = federation(fg.LiveSource(Walker, TABLE))
    expected = fg.run(live, fg.QLearning(), num_steps=90, **settings)
    np.testing.assert_array_equal(history.data.final_params, expected.data.final_params)
    np.testing.assert_array_equal(
        history.data.residual.values[:, -1], expected.data.residual.values[:, -1]
    )


def test_the_greedy_policy_is_tried_in_a_single_copy() -> None:
    found = []
    for source in (fg.VectorSource(walkers, TABLE), fg.LiveSource(Walker, TABLE)):
        tried = fg.Evaluation(episodes=5, longest=20)
        values = np.random.default_rng(0).normal(size=(2, 15))
        found.append(tried.measure(source.make, values)["greedy_return"])
    np.testing.assert_array_equal(*found)


def test_an_environment_that_forgets_its_seed_is_refused_when_it_is_resumed() -> None:
    policy, options = CASES["vectors, function"]
    source = fg.VectorSource(walkers, policy, options=options | {"honest": False})
    reader = source.open(discount=0.9, seed=3, agent=3)
    while reader.save()["place"][2:].tolist() != [int(reader.save()["place"][1]) + 3, 0]:
        reader.read(1)
    again = source.open(discount=0.9, seed=3, agent=3)
    again.restore(reader.save())
    with pytest.raises(ProblemError, match=r"agent 3: episode \d+, replayed from its seed, shows"):
        again.read(1)


def native(num_envs):
    return gymnasium.make_vec(
        "CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point"
    )


def faulty(num_envs, fault=""):
    made = walkers(num_envs, vectors=fault != "state")
    step = made.step

    def wrong(actions):
        seen, rewards, *ends = step(actions)
        if fault == "state":
            seen = seen + 7
        return seen, rewards * (np.nan if fault == "reward" else 1.0), *ends

    made.step = wrong
    return made


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: fg.VectorSource("CartPole-v1", TABLE), "make_copies is 'CartPole-v1': give a"),
        (lambda: fg.VectorSource(walkers, TABLE, ends="go"), "ends is 'go'"),
        (
            lambda: fg.VectorSource(lambda count: walkers(count), TABLE).spaces(),
            r"<lambda> makes no environment with num_envs=1 and the options \{\} \(.*num_envs",
        ),
        (lambda: fg.VectorSource(walkers, TABLE[:4]).spaces(), r"give shape \(5, 3\)"),
        (lambda: _read(native, [[0.5, 0.5]]), "cannot begin episodes of single copies"),
        (lambda: _read(faulty, [[0.2, 0.3, 0.5]], fault="reward"), "faulty: reward is nan"),
        (lambda: _read(faulty, TABLE, fault="state"), "but there are 5 states"),
        (lambda: _read(walkers, lambda seen: np.ones(3), vectors=True), r"shape \(3,\) for 1 obs"),
        (
            lambda: _read(walkers, lambda seen: np.full((1, 3), 0.3), vectors=True),
            "policy returns no probabilities",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(make, told) -> None:
    with pytest.raises(ProblemError, match=told):
        make()


def _read(make, policy, **options) -> None:
    fg.VectorSource(make, policy, options=options).open(discount=0.9, seed=0, agent=0).read(9)
