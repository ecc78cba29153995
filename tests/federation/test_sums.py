"""Nodes that report exact sums over their agents: the same bits however agents are grouped."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import cases
import fegsam as fg
from fegsam.federation.protocol.exact_sums import LARGEST_NUMBER, are_sums, limbs_of, number_of
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.server import Rules
from fegsam.federation.protocol.share import load_share, load_terms, save_share, save_terms
from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.wire import FROM_NODE, NodeSum, Reply, decode, encode
from helpers.deployed import assert_equal
from helpers.in_memory import InMemory, serve, spread

GROUPINGS = [[(0, 1, 2, 3, 4)], [(0,), (1,), (2,), (3,), (4,)], [(3, 1), (4, 0, 2)]]
METHODS = {
    "plain": fg.Method(),
    "momentum": fg.Method(server=fg.Server(0.5, momentum=0.5)),
    "drawn": fg.Method(participation=fg.Participation(agents=3)),
    "rounded": fg.Method(rounding=fg.Rounding(0.05)),
    "unequal": fg.methods.fednova((1, 4, 3)),
}


def experiment_of(name="alg4", method=None, aggregate="node"):
    case = cases.case(name, n=2, num_agents=5, differ="both")
    return Experiment(
        case.problem,
        case.algorithm,
        step_size=0.1,
        sync_period=4,
        num_steps=37,
        seed=5,
        record_params=True,
        method=fg.Method() if method is None else method,
        aggregate=aggregate,
    )


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e4, 1e9])
def test_sums_are_those_of_fsum_in_any_grouping(scale):
    rng = np.random.default_rng(0)
    numbers = scale * rng.normal(size=(251, 200))
    numbers = np.clip(numbers, -LARGEST_NUMBER / 2, LARGEST_NUMBER / 2)
    limbs = limbs_of(numbers)
    total = limbs.sum(axis=1)
    assert number_of(total).tolist() == [math.fsum(column) for column in numbers.T]
    order = rng.permutation(251)
    parts = [limbs[:, order[begin:end]].sum(axis=1) for begin, end in ((0, 3), (3, 99), (99, 251))]
    np.testing.assert_array_equal(sum(parts), total)
    assert are_sums(total, 251)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_for_any_grouping_and_the_simulators_numbers(
    folder, assert_same_bits, method
):
    experiment = experiment_of(method=METHODS[method])
    histories = [
        serve(experiment, InMemory(spread(experiment, folder / str(i), homes)), folder / str(i))[0]
        for i, homes in enumerate(GROUPINGS)
    ]
    for other in histories[1:]:
        assert_same_bits(histories[0].history, other.history)
        np.testing.assert_array_equal(histories[0].participation, other.participation)
    alone = experiment_of(method=METHODS[method], aggregate="agent")
    expected, _ = serve(
        alone, InMemory(spread(alone, folder / "alone", GROUPINGS[2])), folder / "alone"
    )
    assert_equal(histories[0].history, expected.history)


def test_a_sum_of_many_agents_is_as_short_as_that_of_one(folder):
    experiment = experiment_of()
    transport = InMemory(spread(experiment, folder, GROUPINGS[0]))
    serve(experiment, transport, folder)
    (sizes,) = {
        len(message.sums) / (8 * 3 * (len(experiment.start) + 1))
        for _, payload in transport.received[1:3]
        for message in decode(payload, FROM_NODE)
    }
    assert sizes in (1, 2)


def test_shares_and_terms_hold_the_aggregate(folder):
    experiment = experiment_of()
    save_share(experiment, [1], folder / "share")
    save_terms(experiment.terms(), folder / "terms")
    assert load_share(folder / "share").aggregate == load_terms(folder / "terms").aggregate
    assert load_terms(folder / "terms").aggregate == "node"
    assert experiment.fingerprint != experiment_of(aggregate="agent").fingerprint


def beyond(message):
    """The same numbers, in integers that overflow when others are added."""
    limbs = np.frombuffer(message.sums, "<i8").reshape(3, -1).copy()
    limbs[0] -= 2**22
    limbs[1] += 2**62
    return dataclasses.replace(message, sums=limbs.tobytes())


LIES = {
    "wrong shape": [
        lambda message: dataclasses.replace(message, sums=message.sums[:-8]),
        lambda message: dataclasses.replace(message, sums=b""),
        lambda message: dataclasses.replace(message, times=message.times[:-1]),
    ],
    "change too large": [
        beyond,
        lambda message: dataclasses.replace(message, sums=b"\x7f" * len(message.sums)),
        lambda message: dataclasses.replace(message, sums=b"\x80" * len(message.sums)),
        lambda message: dataclasses.replace(
            message, sums=(np.frombuffer(message.sums, "<i8") + 2**20).tobytes()
        ),
    ],
    "step counter ran ahead": [
        lambda message: dataclasses.replace(
            message, times=(message.times[0] + 1, *message.times[1:])
        )
    ],
    "duplicate agent": [
        lambda message: dataclasses.replace(
            message, agents=(4, 4), times=(message.times[0], message.times[0])
        )
    ],
    "not a message that is expected": [
        lambda message: Reply(
            message.fingerprint, message.round, 3, 4, message.times[0], pack_rows(np.zeros((1, 18)))
        )
    ],
}


@pytest.mark.parametrize(
    ("reason", "number"), [(reason, i) for reason, lies in LIES.items() for i in range(len(lies))]
)
def test_a_node_that_lies_is_refused_with_all_its_agents(folder, reason, number):
    experiment = experiment_of()

    def lying(node, payload):
        (message,) = decode(node.answer(payload), FROM_NODE)
        if isinstance(message, NodeSum) and message.round >= 3:
            message = LIES[reason][number](message)
        return encode(message)

    nodes = spread(experiment, folder, [(0, 1, 2), (3, 4)])
    outcome, events = serve(experiment, InMemory(nodes, {"n1": lying}), folder, Rules(quorum=3))
    refused = {
        (event["node"], event["reason"], *event["agents"])
        for event in events
        if event["event"] == "refused"
    }
    assert refused == {("n1", reason, 3, 4)}
    assert outcome.left_out == (3, 4)
    expected = np.ones((10, 5), bool)
    expected[3:, 3:] = False
    np.testing.assert_array_equal(outcome.participation, expected)


def test_a_sum_in_the_names_of_others_counts_against_the_node(folder):
    experiment = experiment_of()

    def lying(node, payload):
        (message,) = decode(node.answer(payload), FROM_NODE)
        if isinstance(message, NodeSum) and message.round >= 3:
            message = dataclasses.replace(message, agents=(0, 1))
        return encode(message)

    nodes = spread(experiment, folder, [(0, 1, 2), (3, 4)])
    claims = Claims({"n0": [0, 1, 2], "n1": [3, 4]})
    outcome, _ = serve(
        experiment, InMemory(nodes, {"n1": lying}), folder, Rules(quorum=3), claims=claims
    )
    assert outcome.left_out == (3, 4)
    assert outcome.participation[:, :3].all()


@pytest.mark.parametrize(
    "method",
    [fg.Method(fg.Mean((0.2, 0.1, 0.3, 0.2, 0.2))), fg.methods.scafflsa()],
)
def test_what_needs_more_than_a_sum_is_refused(method):
    with pytest.raises(fg.ProblemError, match="aggregate='node' adds up the agents of a node"):
        experiment_of(method=method)
