"""Requests of a server that asks for more than the terms of its federation allow."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

import cases
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.wire import FROM_NODE, Failure, Reply, Trouble, decode
from helpers.requests import request, state_files

PERIOD = 5000
BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "every step": ({"stops": tuple(range(1, PERIOD + 1))}, "the output time alone"),
    "one more stop": ({"stops": (1, PERIOD)}, "the output time alone"),
    "more steps": ({"stops": (PERIOD + 1,)}, "steps were asked for"),
    "fewer steps": ({"stops": (1,)}, "steps were asked for"),
    "more rounds": ({"number": 3, "times": (0,)}, "the terms have 3 rounds"),
    "more samples": ({"times": (PERIOD + 1,)}, "samples are said to be used"),
    "not a number": ({"first": np.nan}, "not finite"),
    "infinite": ({"first": -np.inf}, "not finite"),
}
"""How the request differs from an honest one, and what the node's log says of it."""


def agreed() -> Experiment:
    """Two agents, K = 5000, three rounds."""
    case = cases.case("alg4", num_agents=2, differ="both")
    return Experiment(
        case.problem, case.algorithm, step_size=0.1, sync_period=PERIOD, num_steps=3 * PERIOD
    )


def asked(experiment: Experiment, **changes: Any) -> bytes:
    """An honest request to agent 0 for round 1, but for `changes`."""
    values = {"number": 1, "stops": (PERIOD,), "times": (PERIOD,), "first": None} | changes
    rows = experiment.start[None].copy()
    if values["first"] is not None:
        rows[0, 0] = values["first"]
    return request(
        experiment.fingerprint, values["number"], (0,), values["stops"], rows, times=values["times"]
    )


def assert_refused(
    experiment: Experiment, answer: bytes, state_dir: pathlib.Path, way: str
) -> None:
    """The node refuses, says why in its log alone, and has computed nothing."""
    changes, reason = BEYOND[way]
    (message,) = decode(answer, FROM_NODE)
    assert message == Failure(
        experiment.fingerprint, changes.get("number", 1), (0,), Trouble.BEYOND_TERMS
    )
    (log,) = state_dir.glob("*/node.jsonl")
    line = json.loads(log.read_text().splitlines()[-1])
    assert line["event"] == "failed"
    assert reason in line["detail"]
    assert not state_files(state_dir, experiment.fingerprint)


def assert_served(answer: bytes) -> None:
    """The node has made the steps of an honest request, for round 1."""
    (message,) = decode(answer, FROM_NODE)
    assert isinstance(message, Reply)
    assert message.time == 2 * PERIOD
