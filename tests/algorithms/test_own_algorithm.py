"""A new algorithm is one file: three that the package does not have, each a rule, a dataclass and
(but for the third) its structure, get all that the package can do for it."""

from __future__ import annotations

import itertools
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
import pseudocode
from algorithms.own_action_values import ActionValues
from algorithms.own_linear_td import NormalizedTD
from algorithms.own_tabular_td import TabularTD
from cases import DISCOUNT, SMALL, Case
from fegsam.algorithms.installed import algorithm_class
from fegsam.algorithms.rule import Path
from fegsam.algorithms.structure import Opaque, TemporalDifference, structure_of
from fegsam.errors import SpecError
from fegsam.exact import rule_windows
from fegsam.experiments.spec.foreign_code import TrustError
from fegsam.experiments.spec.study import load_study, parse_study
from fegsam.federation.errors import StateError
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.share import load_share, save_share
from fegsam.planning import plan
from helpers import joint_chain
from helpers.agreement import assert_agrees

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = {
    "tabular": lambda n: TabularTD(n),
    "linear": lambda n: NormalizedTD(n),
    "actions": lambda n: ActionValues(n),
}
EACH = pytest.mark.parametrize("name", OWN)
LINEAR = pytest.mark.parametrize("name", ["tabular", "linear"])


def small_federation(num_agents: int = 2) -> fg.Federation:
    """Three states, two kinds of agents that differ in their behaviour policies."""
    mdp = fg.examples.garnet(3, 2, 2, discount=0.7, seed=4)
    return fg.Federation(
        mdp,
        0.5 * fg.policies.uniform(3, 2) + 0.5 * fg.policies.random(3, 2, count=2, seed=5),
        num_agents=num_agents,
        target_policy=fg.policies.uniform(3, 2),
        features=[[1.0, 0.2], [0.5, 1.0], [0.1, -0.7]],
    )


# --- Engines --------------------------------------------------------------------------------------


def increments(name: str, n: int) -> Callable[..., np.ndarray]:
    """What a step adds, written plainly: of the parameters, the kind, the states and the actions of
    the window."""
    world, gamma = SMALL, DISCOUNT

    def returns(R: np.ndarray, S: list[int], A: list[int], last: float) -> float:
        return sum(gamma**j * R[S[j], A[j]] for j in range(n)) + gamma**n * last

    def tabular(v: np.ndarray, k: int, S: list[int], A: list[int]) -> np.ndarray:
        return np.eye(len(v))[S[0]] * (returns(world.rewards[0], S, A, v[S[n]]) - v[S[0]])

    def actions(q: np.ndarray, k: int, S: list[int], A: list[int]) -> np.ndarray:
        last = world.target[S[n]] @ q.reshape(world.target.shape)[S[n]]
        cell = S[0] * world.target.shape[1] + A[0]
        return np.eye(len(q))[cell] * (returns(world.rewards[0], S, A, last) - q[cell])

    def linear(v: np.ndarray, k: int, S: list[int], A: list[int]) -> np.ndarray:
        phi, total, weight = world.features, 0.0, 1.0
        for j in range(n):
            weight *= world.target[S[j], A[j]] / world.behavior[k][S[j], A[j]]
            error = world.rewards[0][S[j], A[j]] + gamma * phi[S[j + 1]] @ v - phi[S[j]] @ v
            total += gamma**j * weight * error
        return phi[S[0]] / (0.1 + phi[S[0]] @ phi[S[0]]) * total

    return {"tabular": tabular, "linear": linear, "actions": actions}[name]


def own_case(name: str, n: int, num_agents: int = 5) -> Case:
    problem = SMALL.federation(num_agents, "policies")
    algorithm, add = OWN[name](n), increments(name, n)
    dim = algorithm.dimension(problem)

    def oracle(states, actions, *, alpha, K, T, start, kinds) -> pseudocode.Trace:
        theta, trace = pseudocode.initial(start, num_agents, dim), pseudocode.Trace()
        trace.append(theta)
        for t in range(T):
            for i in range(num_agents):
                S = pseudocode.window(states[i], t, n + 1)
                A = pseudocode.window(actions[i], t, n)
                theta[i] = theta[i] + alpha * add(theta[i], kinds[i], S, A)
            if (t + 1) % K == 0:
                theta[:] = theta.mean(axis=0)
            trace.append(theta)
        return trace

    return Case(problem, algorithm, n, np.linspace(-1.0, 1.0, dim), oracle)


@EACH
@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("sampling", ["markov", "iid"])
@pytest.mark.parametrize("n", [1, 3])
def test_every_engine_runs_it_as_its_plain_formula_says(name, n, sampling, engine) -> None:
    assert_agrees(own_case(name, n), engine=engine, K=3, T=25, sampling=sampling)


_IN_SIMULATOR = """
import numpy as np, fegsam as fg
from algorithms.test_own_algorithm import OWN, small_federation
for name, make in OWN.items():
    run = dict(step_size=0.1, sync_period=3, num_steps=7, seeds=[5], record_params=True, record=1)
    one, other = (
        fg.run(small_federation(), make(2), engine=engine, **run).data.average_params.values
        for engine in ("reference", fg.engines.Cuda(precision="float64"))
    )
    assert np.abs(one - other).max() < 1e-10, name
    print(name, "agrees")
"""


def test_the_simulated_gpu_runs_it_as_the_reference_does() -> None:
    environment = {
        **os.environ,
        "NUMBA_ENABLE_CUDASIM": "1",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}",
    }
    command = [sys.executable, "-W", "ignore", "-c", _IN_SIMULATOR]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("agrees") == len(OWN)


def test_value_error_is_measured_against_the_value_of_the_target_policy() -> None:
    """And for what is no temporal difference of the state values there is none."""
    fed, settings = small_federation(), {"step_size": 0.1, "sync_period": 3, "num_steps": 20}
    data = fg.run(fed, TabularTD(2), **settings, record_params=True).data
    chain = fed.mdps[0].policy_chain(fed.target_policy).toarray()
    law = np.linalg.matrix_power(chain, 1000)[0]
    gap = data.average_params[0].values - fg.policy_value(fed.mdps[0], fed.target_policy)
    assert_allclose(data.value_error[0], gap**2 @ law, rtol=1e-9)
    assert "value_error" not in fg.run(fed, ActionValues(2), **settings).data


# --- Fixed points ---------------------------------------------------------------------------------


def kind_arrays(fed: fg.Federation, policies: np.ndarray, n: int) -> list[tuple[np.ndarray, ...]]:
    """(gamma^n P^n, r_n, mu) of each kind: look-ahead of the target policy, own distribution."""
    mdp, found = fed.mdps[0], []
    P, r = mdp.policy_chain(fed.target_policy).toarray(), mdp.policy_rewards(fed.target_policy)
    ahead = np.linalg.matrix_power(mdp.discount * P, n)
    rewards = sum(np.linalg.matrix_power(mdp.discount * P, k) @ r for k in range(n))
    for policy in policies:
        law = np.linalg.matrix_power(mdp.policy_chain(policy).toarray(), 2000)[0]
        found.append((ahead, rewards, law))
    return found


@pytest.mark.parametrize("n", [1, 2, 4])
def test_fixed_point_of_the_table_is_the_value_of_the_policy(n) -> None:
    fed = small_federation()
    ahead, rewards, _ = kind_arrays(fed, fed.target_policy[None], n)[0]
    value = np.linalg.solve(np.eye(3) - ahead, rewards)
    assert_allclose(fg.fixed_point(fed, TabularTD(n)), value, rtol=0, atol=1e-12)
    assert_allclose(fg.agent_fixed_points(fed, TabularTD(n)), [value, value], rtol=0, atol=1e-12)
    assert fg.heterogeneity(fed, TabularTD(n)) < 1e-12


@pytest.mark.parametrize("n", [1, 2])
def test_fixed_points_with_rows_of_ones_own_solve_their_equations(n) -> None:
    fed, algorithm = small_federation(), NormalizedTD(n)
    phi = fed.features
    rows = phi / (0.1 + (phi**2).sum(axis=1, keepdims=True))
    A, b = [], []
    for ahead, rewards, law in kind_arrays(fed, fed.behavior_policies, n):
        A.append(rows.T @ np.diag(law) @ (phi - ahead @ phi))
        b.append(rows.T @ np.diag(law) @ rewards)
    common = np.linalg.solve(np.mean(A, axis=0), np.mean(b, axis=0))
    own = [np.linalg.solve(matrix, offset) for matrix, offset in zip(A, b, strict=True)]
    assert_allclose(fg.fixed_point(fed, algorithm), common, rtol=0, atol=1e-12)
    assert_allclose(fg.agent_fixed_points(fed, algorithm), own, rtol=0, atol=1e-12)
    spread = np.linalg.norm(np.array(own) - common, axis=1).mean()
    assert spread > 1e-3
    assert fg.heterogeneity(fed, algorithm) == pytest.approx(spread, rel=1e-9)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("compile_from", [1, 10**9], ids=["compiled", "interpreted"])
def test_fixed_point_of_a_rule_alone_is_the_action_value_of_the_policy(
    n, compile_from, monkeypatch
) -> None:
    monkeypatch.setattr("fegsam.exact.rule_field.COMPILE_FROM", compile_from)
    fed = small_federation()
    mdp = fed.mdps[0]
    ahead = mdp.transitions.toarray() @ fg.policy_value(mdp, fed.target_policy)
    action_values = mdp.rewards.ravel() + mdp.discount * ahead
    assert structure_of(ActionValues(n), fed) == Opaque()
    assert_allclose(fg.fixed_point(fed, ActionValues(n)), action_values, rtol=0, atol=1e-9)
    assert fg.heterogeneity(fed, ActionValues(n)) < 1e-9


@pytest.mark.parametrize("name", ["tabular", "linear", "q"])
def test_running_a_rule_finds_the_fixed_point_of_the_structure(name, monkeypatch) -> None:
    """Where the structure is said and the rule is run all the same."""
    fed = small_federation()
    algorithm: Any = fg.QLearning() if name == "q" else OWN[name](2)
    known = fg.agent_fixed_points(fed, algorithm)
    common = fg.fixed_point(fed, algorithm)
    monkeypatch.setattr(type(algorithm), "structure", lambda self, problem: Opaque())
    assert_allclose(fg.fixed_point(fed, algorithm), common, rtol=0, atol=1e-8)
    assert_allclose(fg.agent_fixed_points(fed, algorithm), known, rtol=0, atol=1e-8)


def test_too_many_windows_are_refused_unless_the_fixed_point_is_given(monkeypatch) -> None:
    monkeypatch.setattr(rule_windows, "MOST_RULE_WINDOWS", 20)
    fed = small_federation()
    with pytest.raises(
        fg.ProblemError, match=r"windows of 3 transitions where at most 20 are run.*fixed_point="
    ):
        fg.fixed_point(fed, ActionValues(3))
    settings = {"step_size": 0.1, "sync_period": 3, "num_steps": 10}
    fg.run(fed, ActionValues(3), **settings, fixed_point=np.zeros(6))


def test_a_structure_that_does_not_fit_is_refused() -> None:
    fed = small_federation()

    class Wrong(NormalizedTD):
        given: Any = None

        def structure(self, problem: Any) -> Any:
            return self.given

    target, ratios = fed.target_policy, np.ones((2, 3, 2))
    for given, words in (
        (TemporalDifference(2, target, fed.features, ratios), "Wrong has window 1"),
        (TemporalDifference(1, target), "Wrong has dimension 2, .* asks for 3"),
        (TemporalDifference(1, target, fed.features, ratios[:, :2]), "ratios of shape"),
        (TemporalDifference(1, target, fed.features, ratios), "ratio times behaviour policy is"),
        (TemporalDifference(1, target, fed.features), "the agents' policy is"),
        (3, "The structure of Wrong is 3"),
        (Opaque({"gamma": 0.5}), "assumptions names 'gamma'"),
    ):
        Wrong.given = given
        with pytest.raises(fg.ProblemError, match=words):
            fg.fixed_point(fed, Wrong())


# --- Moments, small steps, bound, plan ------------------------------------------------------------


def rule_agent(
    problem: fg.Federation, algorithm: Any, kind: int, sampling: str
) -> joint_chain.Agent:
    """The oracle's agent, from the rule alone: its matrix and offset on each window are found by
    running it at zero and at the unit vectors."""
    n, dim = algorithm.window, algorithm.dimension(problem)
    tables, policies = algorithm.tables(problem), algorithm.policies(problem)
    policy, mdp = policies[kind % len(policies)], problem.mdps[0]
    S, A = mdp.num_states, mdp.num_actions
    kernel = mdp.transitions.toarray().reshape(S, A, S)
    letters = [range(S), range(A)]
    modes = list(itertools.product(*(letters[k % 2] for k in range(2 * n - 1))))
    number = {mode: m for m, mode in enumerate(modes)}

    def increment(params: np.ndarray, window: tuple[int, ...]) -> np.ndarray:
        states, actions = np.array(window[::2], np.uint32), np.array(window[1::2], np.uint32)
        mine = np.uint64(kind % len(policies))
        path = Path(states, actions, np.uint64(kind), np.uint64(0), mine)
        index, scale = algorithm.rule(params, path, np.uint64(0), tables)
        return scale * (np.eye(dim) if algorithm.form == "cell" else tables.rows)[index]

    edges = []
    for mode, a, s in itertools.product(modes, range(A), range(S)):
        window, probability = (*mode, a, s), policy[mode[-1], a] * kernel[mode[-1], a, s]
        if probability > 0:
            offset = increment(np.zeros(dim), window)
            columns = [increment(unit, window) - offset for unit in np.eye(dim)]
            matrix = np.column_stack(columns)
            edges.append(
                joint_chain.Edge(number[mode], number[window[2:]], probability, matrix, offset)
            )
    first = [
        problem.initial_distribution[mode[0]]
        * np.prod(
            [
                policy[s, a] * kernel[s, a, after]
                for s, a, after in zip(mode[::2], mode[1::2], mode[2::2], strict=False)
            ]
        )
        for mode in modes
    ]
    return joint_chain.Agent(np.array(first), edges)


@LINEAR
@pytest.mark.parametrize("n", [1, 2])
def test_moments_are_those_of_the_joint_chain_of_its_rule(name, n, monkeypatch) -> None:
    monkeypatch.setattr(joint_chain, "agent_of", rule_agent)
    fed, algorithm = small_federation(), OWN[name](n)
    truth, settings = fg.fixed_point(fed, algorithm), {"step_size": 0.2, "sync_period": 3}
    expected = joint_chain.joint_moments(fed, algorithm, truth, 0.2, 3, 12)
    found = fg.exact.moments(fed, algorithm, times=range(13), order=2, **settings)
    assert_allclose(found.mse, expected.mse, rtol=1e-9)
    assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-10)
    assert_allclose(found.sync_error, expected.sync_error, rtol=1e-8, atol=1e-12)


@LINEAR
def test_many_runs_have_the_exact_moments(name, assert_mean) -> None:
    fed, algorithm = small_federation(num_agents=6), OWN[name](2)
    settings = {"step_size": 0.1, "sync_period": 5}
    exact = fg.exact.moments(fed, algorithm, times=[40], order=1, **settings)
    history = fg.run(fed, algorithm, num_steps=40, record=[40], seeds=range(400), **settings)
    # Sets of one agent leave out what agents know of each other: a part of the error's own size.
    assert_mean(history.data.squared_error_2[:, 0], exact.mse[0], 0.02 * exact.mse[0])


@LINEAR
def test_small_step_law_is_the_limit_of_the_exact_error(name) -> None:
    fed, algorithm = small_federation(), OWN[name](2)
    gaps = []
    for step_size in (0.02, 0.005):
        settings = {"step_size": step_size, "sync_period": 2}
        exact = fg.exact.stationary_error(fed, algorithm, **settings)
        gaps.append(abs(fg.theory.small_step_law(fed, algorithm, **settings).mse / exact - 1))
    assert gaps[0] < 0.1
    assert gaps[1] < 0.4 * gaps[0]


@LINEAR
def test_bound_lies_above_the_error_in_the_long_run(name) -> None:
    fed, algorithm = small_federation(), OWN[name](2)
    settings = {"step_size": fg.theory.largest_step(fed, algorithm) / 2, "sync_period": 1}
    bound = fg.theory.error_bound(fed, algorithm, num_steps=10**9, **settings)
    assert bound.total_2 > fg.theory.small_step_law(fed, algorithm, **settings).mse > 0


def same_numbers(one: Any, other: Any) -> None:
    for key in ("contraction", "A_1", "B", "A_cap", "B_cap", "m_1", "m_2", "m_3", "lag_sum"):
        assert getattr(one, key) == pytest.approx(getattr(other, key), rel=1e-6, nan_ok=True), key


@pytest.mark.parametrize("n", [1, 3])
def test_constants_are_those_of_the_packages_algorithm_where_both_do_the_same(n) -> None:
    fed = small_federation()
    followed = fg.Federation(
        fed.mdps[0], fed.target_policy, num_agents=2, target_policy=fed.target_policy
    )
    same_numbers(
        fg.theory.assumptions(followed, TabularTD(n)),
        fg.theory.assumptions(followed, fg.OffPolicyTabularTD(n)),
    )
    unit = fed.features / np.linalg.norm(fed.features, axis=1, keepdims=True) * np.sqrt(0.9)
    scaled = fg.Federation(
        fed.mdps[0],
        fed.behavior_policies,
        num_agents=2,
        target_policy=fed.target_policy,
        features=unit,
    )
    same_numbers(
        fg.theory.assumptions(scaled, NormalizedTD(n)),
        fg.theory.assumptions(scaled, fg.OffPolicyLinearTD(n)),
    )


@LINEAR
def test_planner_plans_by_the_law_of_small_steps_or_by_moments(name) -> None:
    fed, algorithm = small_federation(num_agents=4), OWN[name](1)
    start = fg.fixed_point(fed, algorithm)
    found = plan(fed, algorithm, accuracy=0.05 * float(start @ start), verify_seeds=50)
    assert found.source in ("exact", "small_step")
    assert found.met


def test_what_needs_a_structure_says_so_in_one_sentence() -> None:
    fed, algorithm = small_federation(), ActionValues(2)
    settings = {"step_size": 0.1, "sync_period": 3}
    with pytest.raises(fg.ProblemError, match="linear in their parameters, and ActionValues is no"):
        fg.exact.moments(fed, algorithm, times=[3], **settings)
    with pytest.raises(fg.ProblemError, match="ActionValues is not linear in its parameters"):
        fg.theory.small_step_law(fed, algorithm, **settings)
    with pytest.raises(fg.ProblemError, match=r"theorem needs gamma_c, A_1, A_2, B of your rule"):
        fg.theory.error_bound(fed, algorithm, num_steps=100, **settings)
    with pytest.raises(fg.ProblemError, match=r"orders was given ActionValues\(.*theorem ="):
        fg.theory.orders(algorithm)


def test_planner_sends_pilots_where_the_structure_is_not_known() -> None:
    fed = small_federation(num_agents=4)
    start = fg.fixed_point(fed, ActionValues(1))
    found = plan(fed, ActionValues(1), accuracy=0.1 * float(start @ start), verify_seeds=20)
    assert found.source == "pilot"


# --- Studies --------------------------------------------------------------------------------------

STUDY = """
[study]
name = "own"
seeds = 2
engine = "reference"
[problem]
generator = "two_state"
[problem.target]
kind = "uniform"
[algorithm]
name = "algorithms.own_tabular_td:TabularTD"
horizon = 2
[run]
num_steps = 20
[grid]
num_agents = 2
sync_period = 5
step_size = 0.1
"""


@pytest.fixture
def installed(tmp_path, monkeypatch) -> None:
    """A package that provides the algorithms as entry points, on the path."""
    info = tmp_path / "site" / "own_td-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-td\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fegsam.algorithms]\nown_td = algorithms.own_tabular_td:TabularTD\n"
        "normalized_td = algorithms.own_linear_td:NormalizedTD\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_a_study_names_it_by_its_import_path() -> None:
    study = parse_study(
        STUDY.replace("horizon = 2\n", "").replace("[grid]", "[grid]\nhorizon = [1, 3]")
    )
    assert [cell.build()[1] for cell in study.cells()] == [TabularTD(1), TabularTD(3)]
    assert len({cell.key for cell in study.cells()}) == 2
    cell = study.cells()[1]
    assert pickle.loads(pickle.dumps(cell)).build()[1] == TabularTD(3)
    assert cell.run().settings.algorithm == "TabularTD(horizon=3)"


def test_a_study_names_it_as_an_entry_point(installed) -> None:
    text = STUDY.replace("algorithms.own_tabular_td:TabularTD", "own_td")
    assert parse_study(text).cells()[0].build()[1] == TabularTD(2)
    assert parse_study(text, trust=False).cells()[0].build()[1] == TabularTD(2)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("horizon = 2", "horizont = 2", r"line 12: algorithm.horizont is not a known .*'horizon'"),
        ("horizon = 2", 'horizon = "2"', r"line 12: algorithm.horizon is '2', but must be a whole"),
        ("horizon = 2", "horizon = 0", r"line 12: algorithm.horizon is 0"),
        (":TabularTD", ":Tabular", r"line 11: algorithm.name is .* cannot be imported .*Attribute"),
        (":TabularTD", ":tabular_td_rule", r"line 11: algorithm.name is .*not a dataclass"),
        ("algorithms.own_tabular_td:", "no.module:", r"line 11: algorithm.name is .*no module"),
        (
            "algorithms.own_tabular_td:TabularTD",
            "a b:C",
            r"line 11: .* is written .package.module:Class",
        ),
        (
            "algorithms.own_tabular_td:TabularTD",
            "own_td",
            r"line 11: .*'own_td', which is not know",
        ),
        ("problem.target", "problem.behavior", r"line 6: problem cannot be used .TabularTD evalu"),
    ],
)
def test_what_is_wrong_with_its_table_is_one_sentence_with_the_line(old, new, words) -> None:
    with pytest.raises(SpecError, match=f"(?i){words}") as caught:
        parse_study(STUDY.replace(old, new, 1))
    assert "\n" not in str(caught.value)


def test_an_entry_point_that_cannot_be_imported_is_named(tmp_path, installed) -> None:
    entry_points = next((tmp_path / "site").glob("*.dist-info")) / "entry_points.txt"
    entry_points.write_text("[fegsam.algorithms]\nown_td = no.module:TD\n")
    text = STUDY.replace("algorithms.own_tabular_td:TabularTD", "own_td")
    with pytest.raises(SpecError, match=r"line 11: algorithm.name is 'own_td', which cannot be im"):
        parse_study(text)
    with pytest.raises(
        fg.ProblemError, match=r"'own_td' of the group fegsam\.algorithms cannot be"
    ):
        algorithm_class("own_td")


def test_a_study_gives_arrays_as_lists(tmp_path, monkeypatch) -> None:
    (tmp_path / "array_td.py").write_text(
        "from dataclasses import dataclass\nimport numpy as np\n"
        "from algorithms.own_tabular_td import TabularTD\n"
        "@dataclass(frozen=True, eq=False)\nclass ArrayTD(TabularTD):\n"
        "    weights: np.ndarray = None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = STUDY.replace("algorithms.own_tabular_td:TabularTD", "array_td:ArrayTD")
    given = text.replace("horizon = 2", "weights = [[1, 2], [3, 4]]")
    built: Any = parse_study(given).cells()[0].build()[1]
    np.testing.assert_array_equal(built.weights, [[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(
        SpecError, match=r"line 12: algorithm.weights has rows of different lengths"
    ):
        parse_study(text.replace("horizon = 2", "weights = [[1, 2], [3]]"))
    with pytest.raises(SpecError, match=r"algorithm.weights is 'w', but must be a list of numbers"):
        parse_study(text.replace("horizon = 2", "weights = 'w'"))


def test_a_stored_copy_of_a_study_imports_nothing(tmp_path, monkeypatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "strangers_td.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    (tmp_path / "cells").mkdir()
    text = STUDY.replace("algorithms.own_tabular_td:TabularTD", "strangers_td:TD")
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(TrustError, match="would run strangers_td:TD, which the study names"):
        load_study(tmp_path / "study.toml")
    assert "strangers_td" not in sys.modules


def test_a_cell_has_one_key_whether_or_not_its_algorithm_may_be_imported() -> None:
    trusted, other = (parse_study(STUDY, trust=trust).cells()[0].key for trust in (True, False))
    assert trusted == other


# --- Shares ---------------------------------------------------------------------------------------


def test_a_run_is_not_resumed_by_another_version_of_its_rule() -> None:
    class Edited(TabularTD):
        @property
        def rule(self) -> Any:
            def edited_rule(params: Any, path: Path, t: Any, tables: Any) -> tuple[Any, Any]:
                return path.states[t], 0.0 * params[path.states[t]]

            return edited_rule

    Edited.__name__ = "TabularTD"
    federation = small_federation()
    settings: dict[str, Any] = {"step_size": 0.1, "sync_period": 2, "fixed_point": np.zeros(3)}
    first = fg.run(federation, TabularTD(), num_steps=4, engine="reference", **settings)
    settings |= {"num_steps": 8, "engine": "reference", "resume_from": first}
    assert fg.run(federation, TabularTD(), **settings).settings.num_steps == 8
    with pytest.raises(fg.ProblemError, match="differs in the problem, its operator"):
        fg.run(federation, Edited(), **settings)


def test_a_share_holds_its_name_and_its_fields(tmp_path, installed, assert_same_bits) -> None:
    settings = {"step_size": 0.1, "sync_period": 5, "num_steps": 20}
    for algorithm in (TabularTD(2), NormalizedTD(2, offset=0.3)):
        experiment = Experiment(small_federation(), algorithm, **settings)
        save_share(experiment, [1], tmp_path / "share")
        share = load_share(tmp_path / "share")
        assert share.algorithm == algorithm
        assert share.fingerprint == experiment.fingerprint


def test_a_share_whose_algorithm_is_not_installed_is_refused(tmp_path) -> None:
    """Nor does an import path in its place import anything."""
    settings = {"step_size": 0.1, "sync_period": 5, "num_steps": 20}
    save_share(Experiment(small_federation(), TabularTD(2), **settings), [1], tmp_path / "share")
    with pytest.raises(
        fg.ProblemError, match="'TabularTD' is not installed here; install the pack"
    ):
        load_share(tmp_path / "share")


def test_a_share_of_another_version_of_its_algorithm_is_refused(tmp_path, installed) -> None:
    settings = {"step_size": 0.1, "sync_period": 5, "num_steps": 20}
    experiment = Experiment(small_federation(), NormalizedTD(2), **settings)
    save_share(experiment, [0], tmp_path / "share")
    entry_points = next((tmp_path / "site").glob("*.dist-info")) / "entry_points.txt"
    entry_points.write_text(
        "[fegsam.algorithms]\nnormalized_td = algorithms.own_tabular_td:TabularTD\n"
    )
    with pytest.raises(StateError, match="fields horizon, offset of the algorithm 'normalized_td'"):
        load_share(tmp_path / "share")


def test_an_algorithm_with_a_field_that_is_no_number_has_no_share(tmp_path) -> None:
    object_field = ActionValues(2)
    object.__setattr__(object_field, "horizon", np.array([2], object))
    experiment = Experiment(small_federation(), ActionValues(2), 0.1, 5, 20)
    object.__setattr__(experiment, "algorithm", object_field)
    with pytest.raises(fg.ProblemError, match="its field horizon is neither a number, a text nor"):
        save_share(experiment, [0], tmp_path / "share")
