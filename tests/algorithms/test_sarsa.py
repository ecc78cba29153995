"""SARSA: both engines against its transcription; the same bits however it is laid out; its fixed
point against an independent search."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fegsam as fg
import pseudocode
from cases import ACTIONS, DISCOUNT, EPISODES, KINDS, SMALL
from fegsam.engines.job import lower_chain
from fegsam.federation.protocol.experiment import Experiment
from fegsam.randomness import FIRST_STATE, PATH, choose, choose_index, words

ENGINES = ("reference", "cpu")
EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES)
POLICIES = {
    "softmax": fg.policies.Softmax(0.4),
    "cold softmax": fg.policies.Softmax(0.01),
    "epsilon-greedy": fg.policies.EpsilonGreedy(0.3),
    "uniform": fg.policies.EpsilonGreedy(1.0),
}
EACH_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
ALPHA, T, SEEDS = 0.1, 60, (3, 2**63 + 11)
START = np.linspace(-1, 1, SMALL.states * ACTIONS)


def probabilities(policy, values: np.ndarray) -> np.ndarray:
    """Of each action in one state."""
    if isinstance(policy, fg.policies.Softmax):
        weights = np.exp((values - max(values)) / policy.temperature)
        return weights / weights.sum()
    chances = np.full(len(values), policy.epsilon / len(values))
    chances[int(np.argmax(values))] += 1 - policy.epsilon
    return chances


def choose_by(policy, values: np.ndarray, share: float) -> int:
    """The action at `share` in [0, 1): by its place in the cumulative distribution; epsilon-greedy
    divides [0, epsilon) among all actions and gives the rest to the best."""
    if isinstance(policy, fg.policies.Softmax):
        return int(np.searchsorted(np.cumsum(probabilities(policy, values)), share, side="right"))
    if share < policy.epsilon:
        return int(share / policy.epsilon * len(values))
    return int(np.argmax(values))


def trace(problem: fg.Federation, policy, seed: int, K: int, num_steps: int) -> pseudocode.Trace:
    algorithm = fg.Sarsa(policy)
    chain = lower_chain(problem, algorithm.policies(problem), "markov")
    mdp_of = np.arange(KINDS) if len(problem.mdps) > 1 else np.zeros(KINDS, int)
    count = problem.num_states * ACTIONS

    def word(i: int, t: int, purpose: np.uint64 = PATH) -> tuple:
        return words(np.uint64(seed), np.uint64(i), np.uint64(t), purpose)

    def move(i: int, t: int, s: int, a: int) -> int:
        row = 2 * (int(mdp_of[problem.assignment[i]]) * count + s * ACTIONS + a)
        begin, size = (np.uint64(chain.row[row + j]) for j in (0, 1))
        return int(choose(word(i, t)[1], begin, size, chain.entry))

    def act(i: int, t: int, values: np.ndarray) -> int:
        return choose_by(policy, values, int(word(i, t)[0]) / 2**32)

    first = [
        int(choose_index(word(i, 0, FIRST_STATE)[0], np.uint64(0), chain.num_states, chain.first))
        for i in range(problem.num_agents)
    ]
    return pseudocode.sarsa(
        first,
        move,
        act,
        rewards=SMALL.rewards[mdp_of],
        gamma=DISCOUNT if problem.discounts is None else EPISODES.gamma[mdp_of],
        kinds=problem.assignment,
        alpha=ALPHA,
        K=K,
        T=num_steps,
        start=START,
    )


def run(problem: fg.Federation, policy, K: int, num_steps: int = T, **options) -> fg.History:
    settings = {
        "seeds": SEEDS,
        "record": 1,
        "record_params": True,
        "initial_params": START,
        "fixed_point": np.zeros_like(START),
    } | options
    return fg.run(
        problem, fg.Sarsa(policy), step_size=ALPHA, sync_period=K, num_steps=num_steps, **settings
    )


# --- The engines against the transcription --------------------------------------------------------


@EACH_ENGINE
@EACH_POLICY
@pytest.mark.parametrize("K", [1, 3, 10])
@pytest.mark.parametrize("differ", ["policies", "mdps"])
def test_engine_agrees_with_the_pseudocode_at_every_time(policy, K, differ, engine) -> None:
    assert_agrees(SMALL.federation(5, differ), policy, K, engine)


@pytest.mark.parametrize("engine", ["reference", pytest.param("cpu", marks=pytest.mark.slow)])
@pytest.mark.parametrize("differ", ["policies", "mdps"])
def test_engine_agrees_with_the_pseudocode_where_episodes_end(differ, engine) -> None:
    assert_agrees(EPISODES.federation(5, differ), POLICIES["softmax"], 3, engine)


def assert_agrees(problem: fg.Federation, policy, K: int, engine: str) -> None:
    data = run(problem, policy, K, engine=engine).data
    for row, seed in enumerate(SEEDS):
        truth = trace(problem, policy, seed, K, T)
        np.testing.assert_allclose(data.average_params[row], truth.average, rtol=0, atol=1e-12)
        np.testing.assert_allclose(data.sync_error[row], truth.sync_error, rtol=0, atol=1e-12)
        np.testing.assert_allclose(data.final_params[row], truth.average[-1], rtol=0, atol=1e-12)


@EACH_POLICY
def test_the_engines_take_the_same_actions_over_a_long_run(policy) -> None:
    problem = SMALL.federation(3, "mdps")
    one, other = (
        run(problem, policy, 7, num_steps=2100, seeds=[5], record=[2100], engine=engine)
        for engine in ENGINES
    )
    np.testing.assert_array_equal(one.checkpoint.states, other.checkpoint.states)
    np.testing.assert_allclose(one.data.final_params, other.data.final_params, rtol=0, atol=1e-12)


@EACH_POLICY
def test_actions_are_drawn_by_the_probabilities_of_the_policy(policy) -> None:
    from fegsam.problem.acting import choose_action

    values = np.array([9.0, 0.3, 0.5, 0.1])  # the first belongs to another state
    shares = (np.arange(20_000) + 0.5) / 20_000
    drawn = [
        int(
            choose_action(
                np.uint64(share * 2**32),
                values,
                np.uint64(1),
                np.uint64(3),
                policy.code,
                policy.amount,
            )
        )
        for share in shares
    ]
    found = np.bincount(drawn, minlength=3) / len(drawn)
    np.testing.assert_allclose(found, probabilities(policy, values[1:]), atol=2e-4)
    np.testing.assert_allclose(
        policy.probabilities(values[None, 1:])[0], probabilities(policy, values[1:]), rtol=1e-12
    )


# --- The layout of a run changes no bit -----------------------------------------------------------


@EACH_POLICY
def test_one_thread_and_two_give_the_same_bits(policy, assert_same_bits) -> None:
    problem = SMALL.federation(20, "mdps")
    one, two = (
        run(problem, policy, 4, seeds=(1, 2, 3), engine=fg.engines.Cpu(threads=threads))
        for threads in (1, 2)
    )
    assert_same_bits(one, two)


@EACH_ENGINE
def test_what_is_recorded_changes_no_bit(engine) -> None:
    problem, policy = SMALL.federation(5, "policies"), POLICIES["softmax"]
    full = run(problem, policy, 4, engine=engine).data
    for record in ([0, T], [5], [1, 2, 4, 7, 8, 11]):
        data = run(problem, policy, 4, engine=engine, record=record).data
        for name in ("average_params", "sync_error"):
            np.testing.assert_array_equal(data[name], full[name].sel(time=data.time))
        np.testing.assert_array_equal(data.final_params, full.final_params)
        np.testing.assert_array_equal(data.output_params, full.output_params)


@EACH_ENGINE
@pytest.mark.parametrize("num_agents", [1, 4])
def test_a_run_that_is_continued_equals_the_unbroken_one(engine, num_agents) -> None:
    problem, policy = SMALL.federation(num_agents, "mdps"), POLICIES["softmax"]
    whole = run(problem, policy, 7, engine=engine)
    for broken in (1, 7, 23):
        first = run(problem, policy, 7, num_steps=broken, engine=engine)
        rest = run(problem, policy, 7, engine=engine, resume_from=first)
        for name in ("average_params", "sync_error", "final_params", "output_params"):
            np.testing.assert_array_equal(rest.data[name], whole.data[name], err_msg=name)
        np.testing.assert_array_equal(rest.checkpoint.states, whole.checkpoint.states)


@EACH_ENGINE
def test_one_agent_has_the_same_bits_for_every_period(engine) -> None:
    problem, policy = SMALL.federation(1, "policies"), POLICIES["softmax"]
    never, often = (run(problem, policy, K, engine=engine).data for K in (1000, 3))
    np.testing.assert_array_equal(never.average_params, often.average_params)
    assert np.all(often.sync_error == 0)


def test_both_engines_say_the_same_of_a_run_that_diverges() -> None:
    problem = SMALL.federation(5, "mdps")
    found = []
    for engine in ENGINES:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            data = fg.run(
                problem,
                fg.Sarsa(),
                step_size=1e20,
                sync_period=4,
                num_steps=60,
                record=1,
                engine=engine,
                fixed_point=np.zeros_like(START),
            ).data
        told = [str(each.message) for each in caught if each.category is fg.DivergenceWarning]
        found.append((int(data.diverged_at[0]), told))
        assert np.isnan(data.squared_error[0, int(data.diverged_at[0]) :]).all()
        assert np.isfinite(data.squared_error[0, : int(data.diverged_at[0])]).all()
    assert found[0] == found[1]
    assert found[0][0] > 1


# --- The fixed point ------------------------------------------------------------------------------


def own_fixed_point(problem: fg.Federation, policy) -> np.ndarray:
    """By small steps of the mean increment of all agents, each under its own stationary law."""
    q, kinds = np.zeros((problem.num_states, ACTIONS)), problem.assignment
    for _ in range(3000):
        pi = np.array([probabilities(policy, row) for row in q])
        step, size = np.zeros_like(q), np.zeros_like(q)
        for k in kinds:
            mdp = k if len(problem.mdps) > 1 else 0
            P, R = SMALL.transitions[mdp], SMALL.rewards[mdp]
            visits = pseudocode.stationary_law(P, pi)[:, None] * pi
            step += visits * (R + DISCOUNT * P @ (pi * q).sum(axis=1) - q)
            size += visits
        q = q + step / size
    return q.ravel()


@pytest.mark.parametrize("name", ["softmax", "epsilon-greedy"])
@pytest.mark.parametrize("differ", ["policies", "mdps"])
def test_fixed_point_is_the_root_of_the_mean_increment_under_its_own_policy(name, differ) -> None:
    problem, policy = SMALL.federation(5, differ), POLICIES[name]
    found = fg.fixed_point(problem, fg.Sarsa(policy))
    np.testing.assert_allclose(found, own_fixed_point(problem, policy), rtol=0, atol=1e-8)
    assert (fg.heterogeneity(problem, fg.Sarsa(policy)) > 0) == (differ == "mdps")


@pytest.mark.parametrize("differ", ["policies", "mdps"])
def test_a_run_goes_to_the_fixed_point(differ) -> None:
    problem, algorithm = SMALL.federation(50, differ), fg.Sarsa(fg.policies.Softmax(1.0))
    data = fg.run(
        problem, algorithm, step_size=0.02, sync_period=5, num_steps=40_000, record=[0, 40_000]
    ).data
    assert data.squared_error[0, 1] < 2e-3 < 1 < data.squared_error[0, 0]


def test_where_no_policy_is_that_of_its_own_values_the_search_says_so() -> None:
    """Two agents in two MDPs: which action is best depends on which MDP its visits come from."""
    rng, states = np.random.default_rng(2), np.arange(2)
    tables = [
        (0.98 * rng.dirichlet(np.ones(2) * 0.5, size=(2, 2)) + 0.01, rng.normal(size=(2, 2)))
        for _ in range(2)
    ]
    policy = fg.policies.EpsilonGreedy(0.1)
    for best in np.ndindex(2, 2):
        pi = np.full((2, 2), 0.05)
        pi[states, best] += 0.9
        visits = [pseudocode.stationary_law(P, pi)[:, None] * pi for P, _ in tables]
        shares = np.array(visits) / sum(visits)
        kernel = sum(w[:, :, None] * P for w, (P, _) in zip(shares, tables, strict=True))
        rewards = sum(w * R for w, (_, R) in zip(shares, tables, strict=True))
        chain = np.einsum("sa,sat->st", pi, kernel)
        value = np.linalg.solve(np.eye(2) - 0.9 * chain, (pi * rewards).sum(axis=1))
        assert tuple((rewards + 0.9 * kernel @ value).argmax(axis=1)) != best
    problem = fg.Federation([fg.MDP(*table, 0.9) for table in tables], num_agents=2)
    with pytest.raises(fg.ProblemError, match=r"did not settle.*fixed_point="):
        fg.fixed_point(problem, fg.Sarsa(policy))
    settings = {"step_size": 0.1, "sync_period": 2, "num_steps": 4}
    fg.run(problem, fg.Sarsa(policy), fixed_point=np.zeros(4), **settings)


# --- What it refuses ------------------------------------------------------------------------------


def test_what_needs_fixed_policies_is_refused() -> None:
    problem, algorithm = SMALL.federation(3, "policies"), fg.Sarsa()
    settings = {"step_size": 0.1, "sync_period": 2, "num_steps": 4}
    refused = r"actions of Sarsa depend on its parameters"
    with pytest.raises(fg.ProblemError, match=refused):
        fg.run(problem, algorithm, sampling="iid", **settings)
    with pytest.raises(fg.ProblemError, match=refused):
        fg.sample_path(problem, algorithm, seed=0, agent=0, num_steps=3)
    with pytest.raises(fg.ProblemError, match=refused):
        Experiment(problem, algorithm, **settings)
    with pytest.raises(fg.ProblemError, match=r"cuda engine draws paths before the updates"):
        fg.run(problem, algorithm, engine="cuda", **settings)
    with pytest.raises(fg.ProblemError, match=r"theorems.*those of Sarsa do"):
        fg.theory.error_bound(problem, algorithm, **settings)
    for ask in (fg.exact.stationary_error, fg.theory.small_step_law):
        with pytest.raises(fg.ProblemError, match="Sarsa is not linear"):
            ask(problem, algorithm, step_size=0.1, sync_period=2)


@pytest.mark.parametrize("policy", ["softmax", None, fg.policies.uniform(2, 2)])
def test_a_policy_of_another_kind_is_refused(policy) -> None:
    with pytest.raises(fg.ProblemError, match=r"give fegsam\.policies\.Softmax\(temperature\)"):
        fg.Sarsa(policy)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(fg.ProblemError, match="temperature is 0"):
        fg.policies.Softmax(0)
    for epsilon, message in ((0, "epsilon is 0"), (1.5, r"epsilon is 1\.5; give at most 1")):
        with pytest.raises(fg.ProblemError, match=message):
            fg.policies.EpsilonGreedy(epsilon)


def test_another_temperature_is_another_run() -> None:
    problem = SMALL.federation(3, "policies")
    first = run(problem, fg.policies.Softmax(0.4), 2, num_steps=4)
    with pytest.raises(fg.ProblemError, match="differs in algorithm"):
        run(problem, fg.policies.Softmax(0.5), 2, num_steps=8, resume_from=first)
