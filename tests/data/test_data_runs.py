"""Runs on recorded data: against an oracle that knows episodes alone, and against simulation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fegsam as fg
import pseudocode_episodes as oracle
from fegsam.algorithms.on_data import needs_of
from fegsam.engines.recorded import DataUsedUp, RecordedStream
from helpers.logs import Episode, observation_log, random_episodes, write

STATES, ACTIONS, GAMMA, ALPHA, K, T = 5, 3, 0.9, 0.1, 7, 45
TARGET = np.random.default_rng(5).dirichlet(np.ones(ACTIONS), STATES)
TABLE = np.random.default_rng(6).normal(size=(STATES, 2))
CUBE = fg.features.fourier([-2.0, -2.0], [2.0, 2.0], order=1)
TILES = fg.features.tiles([-2.0, -2.0], [2.0, 2.0], tiles=3, tilings=2)


def _one_hot(state):
    return np.eye(STATES)[state]


def _logged(observation):
    return TARGET[int(abs(observation[0]) * 2) % STATES]


def _logged_many(observations):
    return np.array([_logged(each) for each in np.atleast_2d(observations)])


def _map(features):
    return lambda observation: features.dense([observation])[0]


def _on(made):
    """A linear case over vectors: algorithm, features, target, oracle."""
    return {
        "on-policy": (fg.OnPolicyTD(4), made, None, oracle.values(_map(made), GAMMA, 4)),
        "off-policy": (
            fg.OffPolicyLinearTD(3),
            made,
            _logged_many,
            oracle.values(_map(made), GAMMA, 3, _logged),
        ),
        "TDC": (
            fg.TDC(0.5),
            made,
            _logged_many,
            oracle.gradient_corrected(_map(made), GAMMA, 0.5, _logged),
        ),
    }


def _linear_control(made):
    phi = _map(made)

    def step(theta, episode, t):
        here, there = phi(episode.observations[t]), phi(episode.observations[t + 1])
        weights, out = theta.reshape(-1, ACTIONS), np.zeros((made.dimension, ACTIONS))
        follows, a = oracle.discounts(episode, GAMMA)[t], episode.actions[t]
        error = episode.rewards[t] + follows * (there @ weights).max() - here @ weights[:, a]
        out[:, a] = error * here
        return out.ravel()

    return fg.LinearQLearning(), made, None, step


TABULAR = {
    "Q": (fg.QLearning(), None, None, oracle.control(STATES, ACTIONS, GAMMA)),
    **{
        f"table, n = {n}": (
            fg.OffPolicyTabularTD(n),
            None,
            TARGET,
            oracle.values(_one_hot, GAMMA, n, lambda state: TARGET[state]),
        )
        for n in (1, 3, 9)
    },
    "rows of a table": (
        fg.OnPolicyTD(2),
        fg.features.table(TABLE),
        None,
        oracle.values(lambda state: TABLE[state], GAMMA, 2),
    ),
}
VECTORS = {f"{name}, cosines": case for name, case in _on(CUBE).items()} | {
    f"{name}, tiles": case for name, case in _on(TILES).items()
}
VECTORS |= {"linear Q, cosines": _linear_control(CUBE), "linear Q, tiles": _linear_control(TILES)}


def _federation(folder, episodes, features=None, target=None, **options):
    sources = [
        fg.LogSource(write(folder / f"{i}.parquet", observation_log(own), group=11))
        for i, own in enumerate(episodes)
    ]
    return fg.DataFederation(
        sources,
        discount=GAMMA,
        num_states=STATES,
        num_actions=ACTIONS,
        features=features,
        target_policy=target,
        held_out=0,
        **options,
    )


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *((name, "reference") for name in (*TABULAR, *VECTORS)),
        *((name, "cpu") for name in ("Q", "table, n = 3", "on-policy, tiles")),
    ],
)
def test_a_run_equals_the_oracle_at_every_time(tmp_path, name, engine) -> None:
    _compare(tmp_path, name, *(TABULAR | VECTORS)[name], engine)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TABULAR, *VECTORS])
def test_every_compiled_run_equals_the_oracle(tmp_path, name) -> None:
    _compare(tmp_path, name, *(TABULAR | VECTORS)[name], "cpu")


def _compare(folder, name, algorithm, features, target, step, engine) -> None:
    width = 2 if name in VECTORS else 0
    episodes = [random_episodes(seed=i, count=25, width=width) for i in range(3)]
    data = _federation(folder, episodes, features, target)
    history = fg.run(
        data,
        algorithm,
        step_size=ALPHA,
        sync_period=K,
        num_steps=T,
        record=1,
        record_params=True,
        engine=engine,
    )
    dimension = needs_of(algorithm, data).dimension
    expected = oracle.federated(step, episodes, dimension, ALPHA, K, T)
    np.testing.assert_allclose(history.data.average_params.values[0], expected, 0, 1e-12)


def test_the_oracle_tells_terminated_from_truncated(tmp_path) -> None:
    episodes = [random_episodes(seed=0, count=25)]
    other = [[each._replace(terminated=not each.terminated) for each in episodes[0]]]
    step = TABULAR["table, n = 3"][3]
    runs = [oracle.federated(step, each, STATES, ALPHA, K, T)[-1] for each in (episodes, other)]
    assert abs(runs[0] - runs[1]).max() > 0.05


def _simulated(num_agents):
    mdp = fg.examples.garnet(STATES, ACTIONS, 3, discount=GAMMA, seed=3)
    behaviour = fg.policies.random(STATES, ACTIONS, count=2, seed=4)
    return fg.Federation(
        mdp,
        behaviour,
        num_agents=num_agents,
        target_policy=TARGET,
        features=np.random.default_rng(0).normal(size=(STATES, 2)),
    )


def _path_as_log(federation, algorithm, agent, steps):
    """The path of a simulated agent, as one episode that is cut after the last window."""
    path = fg.sample_path(federation, algorithm, seed=0, agent=agent, num_steps=steps)
    states, actions = path.states.tolist(), path.actions.tolist()
    policy = federation.behavior_policies[federation.assignment[agent]]
    rewards = federation.mdps[0].rewards
    seen = list(zip(states, actions, strict=False))
    chances = [policy[s, a] for s, a in seen]
    return [Episode(0, states, actions, [rewards[s, a] for s, a in seen], chances, False)]


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("algorithm", [fg.QLearning(), fg.OffPolicyTabularTD(3)])
def test_a_log_of_simulated_agents_gives_the_bits_of_the_simulation(
    tmp_path, algorithm, engine
) -> None:
    federation = _simulated(4)
    logs = [_path_as_log(federation, algorithm, i, 60) for i in range(4)]
    data = _federation(tmp_path, logs, None, TARGET)
    run = {"step_size": ALPHA, "sync_period": K, "num_steps": 60, "record": 1, "engine": engine}
    recorded = fg.run(data, algorithm, record_params=True, **run).data.average_params
    simulated = fg.run(federation, algorithm, record_params=True, **run).data.average_params
    if engine == "reference":
        np.testing.assert_array_equal(recorded.values, simulated.values)
    else:
        np.testing.assert_allclose(recorded.values, simulated.values, 0, 1e-13)


@pytest.mark.parametrize("name", [*TABULAR, *VECTORS])
def test_what_stands_in_a_gap_changes_nothing(tmp_path, monkeypatch, name) -> None:
    algorithm, features, target, _ = (TABULAR | VECTORS)[name]
    episodes = [random_episodes(seed=1, count=25, width=2 if name in VECTORS else 0)]
    data = _federation(tmp_path, episodes, features, target)
    run = {"step_size": ALPHA, "sync_period": K, "num_steps": T, "engine": "reference"}
    found = [fg.run(data, algorithm, **run).data.final_params.values]
    plain = fg.DataFederation.reader
    monkeypatch.setattr(
        fg.DataFederation, "reader", lambda self, *given: _Spoiling(plain(self, *given))
    )
    found.append(fg.run(data, algorithm, **run).data.final_params.values)
    assert np.isfinite(found[1]).all()
    np.testing.assert_array_equal(*found)


class _Spoiling:
    """A reader whose gaps have NaN in every field that may hold one, and a wild action."""

    def __init__(self, reader) -> None:
        self.save, self.restore, self._reader = reader.save, reader.restore, reader

    def read(self, count):
        rows = self._reader.read(count)
        spoilt = {
            name: np.where(rows.gap, np.nan, getattr(rows, name))
            for name in ("reward", "discount", "behavior", "target")
        }
        return rows._replace(**spoilt, action=np.where(rows.gap, ACTIONS - 1, rows.action))


@pytest.mark.parametrize("name", ["Q", "table, n = 9"])
def test_a_run_resumed_anywhere_has_the_same_bits(tmp_path, name) -> None:
    algorithm, features, target, _ = TABULAR[name]
    episodes = [random_episodes(seed=i, count=25) for i in range(2)]
    data = _federation(tmp_path, episodes, features, target)
    run = {"step_size": ALPHA, "sync_period": K, "engine": "reference"}
    whole = fg.run(data, algorithm, num_steps=T, **run).data.final_params.values
    for stop in (1, 7, 20, 44):
        begun = fg.run(data, algorithm, num_steps=stop, **run)
        begun.save(tmp_path / f"{stop}.nc")
        rest = fg.run(
            data,
            algorithm,
            num_steps=T,
            resume_from=fg.load_history(tmp_path / f"{stop}.nc"),
            **run,
        )
        np.testing.assert_array_equal(rest.data.final_params.values, whole)


@pytest.mark.parametrize("change", [{"columns": {"action": "other"}}, {"passes": 2}])
def test_a_run_is_not_continued_on_a_log_that_is_read_otherwise(tmp_path, change) -> None:
    table = observation_log(random_episodes(seed=0, count=25))
    log = write(tmp_path / "log.parquet", table | {"other": table["action"]})
    run = {"step_size": ALPHA, "sync_period": K, "engine": "reference"}
    begun = fg.run(_sized(fg.LogSource(log)), fg.QLearning(), num_steps=20, **run)
    other = _sized(fg.LogSource(log, **change))
    with pytest.raises(fg.ProblemError, match="to resume from differs in the problem"):
        fg.run(other, fg.QLearning(), num_steps=40, resume_from=begun, **run)


def test_a_stream_restored_at_every_step_goes_on_where_it_was(tmp_path) -> None:
    data = _federation(tmp_path, [random_episodes(seed=2, count=25)], None, TARGET)
    algorithm = fg.OffPolicyTabularTD(4)

    def stream(at_once):
        needs = needs_of(algorithm, data)
        return RecordedStream(data.reader(0, 0), needs, TARGET, window=4, kind=0, at_once=at_once)

    def seen(windows):
        path, begin = windows.path, windows.begin
        row = begin + int(np.argmin(path.gaps[begin:]))
        stop = row + 5
        return [np.nan_to_num(part[row:stop], nan=-1.0).tolist() for part in path if np.ndim(part)]

    whole, steps = stream(0), []
    for _ in range(T):
        steps.append(seen(whole.take(1)))
    for at_once in (0, 3, 1000):
        current = stream(at_once)
        for expected in steps:
            state = current.save()
            current = stream(at_once)
            current.restore(state)
            assert seen(current.take(1)) == expected


def test_every_method_of_a_round_runs_on_data_and_equals_the_reference(tmp_path) -> None:
    episodes = [random_episodes(seed=i, count=25) for i in range(3)]
    data = _federation(tmp_path, episodes)
    for method in (
        fg.methods.scafflsa(),
        fg.methods.fedavgm(0.5),
        fg.methods.importance_averaging(),
        fg.Method(participation=fg.Participation(agents=2)),
        fg.Method(rounding=fg.Rounding(0.01)),
    ):
        found = [
            fg.run(
                data,
                fg.QLearning(),
                step_size=ALPHA,
                sync_period=K,
                num_steps=T,
                method=method,
                engine=engine,
            ).data.final_params.values
            for engine in ("cpu", "reference")
        ]
        np.testing.assert_allclose(*found, 0, 1e-12)


BAD = {
    "two agents of one log": (
        lambda log: fg.DataFederation(log, discount=GAMMA, num_agents=2),
        "a log feeds one agent",
    ),
    "three agents of one part": (
        lambda log: fg.DataFederation(
            dataclasses.replace(log, by="action"), discount=GAMMA, num_agents=9
        ),
        "'action' has 4 values; a part feeds one agent: give it at most 4 agents",
    ),
    "no sizes": (
        lambda log: _go(fg.DataFederation(log, discount=GAMMA), fg.QLearning()),
        "num_states=",
    ),
    "no features": (
        lambda log: _go(fg.DataFederation(log, discount=GAMMA), fg.OnPolicyTD()),
        "features=",
    ),
    "i.i.d. sampling": (
        lambda log: _go(_sized(log), fg.QLearning(), sampling="iid"),
        "sampling='iid'",
    ),
    "SARSA": (
        lambda log: _go(_sized(log), fg.Sarsa(fg.policies.Softmax(1.0))),
        "does not run on recorded data",
    ),
    "too many steps": (
        lambda log: _go(_sized(log), fg.QLearning(), num_steps=5000),
        "fewer steps or passes=",
    ),
    "no target": (
        lambda log: _go(_sized(log), fg.OffPolicyTabularTD()),
        "needs a target policy",
    ),
    "a GPU": (lambda log: _go(_sized(log), fg.QLearning(), engine="cuda"), "these read data"),
}


def _sized(log):
    return fg.DataFederation(log, discount=GAMMA, num_states=STATES, num_actions=ACTIONS)


def _go(data, algorithm, num_steps=10, **options):
    fg.run(data, algorithm, step_size=ALPHA, sync_period=K, num_steps=num_steps, **options)


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_run_is_refused_in_one_sentence(tmp_path, name) -> None:
    call, words = BAD[name]
    log = fg.LogSource(
        write(tmp_path / "log.parquet", observation_log(random_episodes(seed=0, count=25)))
    )
    with pytest.raises(fg.ProblemError, match=words):
        call(log)


def test_data_that_is_used_up_says_so(tmp_path) -> None:
    data = _federation(tmp_path, [random_episodes(seed=2, count=3)])
    needs = needs_of(fg.QLearning(), data)
    stream = RecordedStream(data.reader(0, 0), needs, None, window=1, kind=0)
    with pytest.raises(DataUsedUp, match="transitions are left and 1000 are needed"):
        stream.take(1000)


NO_PROBABILITIES = {
    "too many": (lambda seen: np.ones((len(seen), ACTIONS)), "sum to one"),
    "negative": (lambda seen: np.tile([1.5, -0.5, 0.0], (len(seen), 1)), "not negative"),
    "an action more": (lambda seen: np.full((len(seen), 4), 0.25), r"shape \(\d+, 4\)"),
    "one alone": (lambda seen: np.ones((len(seen), 1)), r"shape \(\d+, 1\)"),
    "NaN": (lambda seen: np.full((len(seen), ACTIONS), np.nan), "must be finite"),
}


@pytest.mark.parametrize("held_out", [0, 0.5])
@pytest.mark.parametrize("name", NO_PROBABILITIES)
def test_a_target_policy_that_returns_no_probabilities_stops_a_run(
    tmp_path, name, held_out
) -> None:
    policy, told = NO_PROBABILITIES[name]
    path = write(tmp_path / "log.parquet", observation_log(random_episodes(seed=0, count=25)))
    data = fg.DataFederation(
        fg.LogSource(path, passes=9),
        discount=GAMMA,
        num_states=STATES,
        num_actions=ACTIONS,
        target_policy=policy,
        held_out=held_out,
    )
    with pytest.raises(fg.ProblemError, match=told):
        _go(data, fg.OffPolicyTabularTD())


def test_a_target_policy_in_single_precision_is_the_one_in_double_precision(tmp_path) -> None:
    finals = []
    for kind in (np.float32, np.float64):
        table = TARGET.astype(kind)
        target = lambda seen, table=table: table[np.int64(seen)]  # noqa: E731
        data = _federation(tmp_path, [random_episodes(seed=0, count=25)], target=target)
        history = fg.run(data, fg.OffPolicyTabularTD(), step_size=ALPHA, sync_period=K, num_steps=T)
        finals.append(history.data.final_params.values)
    np.testing.assert_allclose(*finals, rtol=1e-5)
