"""No step leads further than the bound says, some lead as far, and beyond it is a lie."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cases
import fegsam as fg
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.reach import reach_of
from fegsam.federation.protocol.server import Rules
from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.wire import FROM_NODE, Reply, decode, encode
from helpers.in_memory import InMemory, serve, spread

BOUNDED = [name for name in cases.ALGORITHMS if name != "alg1-general"]
CHAIN = np.array([[[0.0, 1.0]], [[0.5, 0.5]]])
"""From state 0 always to state 1."""


@pytest.mark.parametrize("name", BOUNDED)
def test_no_agent_gets_further(name):
    case = cases.case(name, n=3, num_agents=3, differ="both")
    reach = reach_of(case.algorithm, case.problem)
    assert reach is not None
    rng = np.random.default_rng(0)
    for size, steps in ((0.1, 1), (0.1, 40), (0.9, 40), (1.7, 12)):
        experiment = Experiment(
            case.problem, case.algorithm, step_size=size, sync_period=steps, num_steps=99
        )
        for scale in (0.0, 1.0, 100.0):
            start = scale * rng.normal(size=len(case.start))
            bound = reach.furthest(start, np.full(steps, size))
            for agent in range(3):
                change = experiment.agent(agent).local_steps(start, steps) - start
                assert reach.size(change) <= bound


def test_one_step_of_q_learning_gets_as_far():
    """In a chain of two states whose values are -M and M, with the largest reward."""
    mdp = fg.MDP(CHAIN, np.ones((2, 1)), 0.75)
    fed = fg.Federation(mdp, np.ones((2, 1)), num_agents=1, initial_distribution=[1.0, 0.0])
    start = np.array([-4.0, 4.0])
    reach = reach_of(fg.QLearning(), fed)
    assert reach.ceiling == 4.0
    moved = Experiment(fed, fg.QLearning(), step_size=0.1, sync_period=1, num_steps=9).agent(0)
    change = np.abs(moved.local_steps(start, 1) - start).max()
    assert change == pytest.approx(0.1 * (1 + 0.75 * 4 + 4), rel=1e-12)
    assert reach.furthest(start, np.full(1, 0.1)) == pytest.approx(change, rel=1e-6)


def test_one_step_of_linear_td_gets_as_far():
    """From a state to one with the opposite features, with parameters along them."""
    mdp = fg.MDP(CHAIN, np.ones((2, 1)), 0.75)
    fed = fg.Federation(
        mdp,
        np.ones((2, 1)),
        num_agents=1,
        initial_distribution=[1.0, 0.0],
        target_policy=np.ones((2, 1)),
        features=np.array([[0.6], [-0.6]]),
    )
    algorithm, start = fg.OnPolicyTD(horizon=1), np.array([-5.0])
    reach = reach_of(algorithm, fed)
    agent = Experiment(fed, algorithm, step_size=0.1, sync_period=1, num_steps=9).agent(0)
    change = np.linalg.norm(agent.local_steps(start, 1) - start)
    assert reach.furthest(start, np.full(1, 0.1)) == pytest.approx(change, rel=1e-6)


def windows(rng, states, horizon, first=None):
    """All successors of some windows of states in a complete graph."""
    window = list(rng.integers(states, size=horizon)) if first is None else list(first[1:])
    return [[*window, following] for following in range(states)]


@pytest.mark.parametrize(("horizon", "largest"), [(1, 0.5), (1, 0.15), (3, 0.08)])
def test_on_policy_no_path_however_bad_leads_a_linear_agent_further(horizon, largest):
    """The next state and the rewards are chosen so that the parameters grow the most."""
    rng, states, gamma = np.random.default_rng(3), 5, 0.8
    features = rng.normal(size=(states, 3))
    features *= 1 / np.linalg.norm(features, axis=1).max()
    features[0] *= 0.3
    mdp = fg.MDP(np.full((states, 2, states), 1 / states), np.tile([1.0, -1.0], (states, 1)), gamma)
    fed = fg.Federation(
        mdp, num_agents=1, target_policy=np.full((states, 2), 0.5), features=features
    )
    reach = reach_of(fg.OnPolicyTD(horizon=horizon), fed)
    factors = gamma ** np.arange(horizon)
    for sizes in (np.full(120, largest), np.geomspace(largest, largest / 30, 120)):
        for scale in (0.0, 3.0):
            start = params = scale * features[1]
            window, furthest = None, []
            for size in sizes:
                tried = [
                    (
                        params
                        + size
                        * features[path[0]]
                        * (
                            sign * factors.sum()
                            + gamma**horizon * features[path[-1]] @ params
                            - features[path[0]] @ params
                        ),
                        path,
                    )
                    for path in windows(rng, states, horizon, window)
                    for sign in (1.0, -1.0)
                ]
                params, window = max(tried, key=lambda one: np.linalg.norm(one[0]))
                furthest.append(np.linalg.norm(params - start))
            for count in (1, 10, 60, 120):
                bound = reach.furthest(start, sizes[:count])
                assert furthest[count - 1] <= bound < 1e3


def test_on_policy_four_times_the_steps_lead_a_linear_agent_twice_as_far():
    case = cases.case("alg2", n=3, num_agents=3, differ="both")
    reach = reach_of(case.algorithm, case.problem)
    start, size = np.zeros(len(case.start)), 0.01
    near, far = (reach.furthest(start, np.full(count, size)) for count in (50_000, 200_000))
    assert far == pytest.approx(2 * near, rel=1e-6)
    drawn_anew = reach_of(case.algorithm, case.problem, "iid")
    assert drawn_anew.furthest(start, np.full(50_000, size)) == np.inf


def test_no_window_however_bad_leads_a_table_above_its_ceiling():
    """With ratios between 0.9 and 1.1, and windows chosen so that a value becomes the largest."""
    rng, states, horizon, gamma, size = np.random.default_rng(4), 4, 3, 0.7, 0.9
    target, behavior = np.full((states, 2), 0.5), np.full((states, 2), 0.5)
    behavior[:, 0] += 0.04
    behavior[:, 1] -= 0.04
    mdp = fg.MDP(np.full((states, 2, states), 1 / states), np.tile([1.0, -1.0], (states, 1)), gamma)
    fed = fg.Federation(mdp, behavior, num_agents=1, target_policy=target)
    reach = reach_of(fg.OffPolicyTabularTD(horizon=horizon), fed)
    assert 1 / (1 - gamma) < reach.ceiling < 6.0
    ratios, values = (target / behavior)[0], np.zeros(states)
    for _ in range(300):
        tried = []
        for path in rng.integers(states, size=(200, horizon + 1)):
            acts, error = rng.integers(2, size=horizon), 0.0
            for l in reversed(range(horizon)):
                reward = (1.0, -1.0)[acts[l]]
                one = reward + gamma * values[path[l + 1]] - values[path[l]]
                error = ratios[acts[l]] * (one + gamma * error)
            tried.append((abs(values[path[0]] + size * error), path[0], error))
        _, state, error = max(tried)
        values[state] += size * error
    assert 0.8 / (1 - gamma) < np.abs(values).max() <= reach.ceiling


def experiment_of(method=None):
    case = cases.case("alg4", num_agents=4, differ="both")
    return Experiment(
        case.problem,
        case.algorithm,
        step_size=0.1,
        sync_period=7,
        num_steps=40,
        seed=5,
        method=fg.Method() if method is None else method,
    )


@pytest.mark.parametrize(("factor", "refused"), [(0.99, False), (1.01, True)])
def test_what_is_beyond_the_bound_is_refused(folder, factor, refused):
    experiment = experiment_of()
    reach, start = experiment.terms().reach, experiment.start
    lie = start.copy()
    lie[0] += factor * reach.furthest(start, np.full(7, 0.1))

    def lying(node, payload):
        (message,) = decode(node.answer(payload), FROM_NODE)
        if isinstance(message, Reply) and message.round == 0:
            message = dataclasses.replace(message, params=pack_rows(lie[None]))
        return encode(message)

    nodes = spread(experiment, folder, [(0,), (1,), (2,), (3,)])
    _, events = serve(experiment, InMemory(nodes, {"n3": lying}), folder)
    reasons = {event["reason"] for event in events if event["event"] == "refused"}
    assert reasons == ({"change too large"} if refused else set())


def test_an_operator_may_allow_less(folder):
    experiment = experiment_of()
    nodes = spread(experiment, folder, [(0, 1), (2, 3)])
    with pytest.raises(fg.ProblemError, match="not quarantined"):
        serve(experiment, InMemory(nodes), folder, Rules(norm_bound=1e-6))


@pytest.mark.parametrize(
    "method",
    [
        fg.Method(rounding=fg.Rounding(0.5)),
        fg.Method(rounding=fg.SomeCells(2)),
        fg.methods.fednova((1, 7, 3)),
        fg.methods.scafflsa(),
    ],
)
def test_honest_agents_are_not_refused_whatever_they_report(folder, method):
    experiment = experiment_of(method)
    nodes = spread(experiment, folder, [(0, 1), (2, 3)])
    _, events = serve(experiment, InMemory(nodes), folder)
    assert not [event for event in events if event["event"] == "refused"]
