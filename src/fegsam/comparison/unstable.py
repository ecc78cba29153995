"""(j) Where the mean field is unstable, no method of averaging helps; another algorithm does.

Two states with the features 1 and 2, a behaviour that visits both equally often, and a target
policy that always goes to the second: the mean increment of off-policy TD is 0.2 theta.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.comparison.contest import ERROR
from fegsam.comparison.contestants import ComparedMethod, contestant
from fegsam.errors import DivergenceWarning
from fegsam.experiments.estimates import curve_estimate, mean_estimate
from fegsam.report import FigureData, Section, Series
from fegsam.reproduction.thresholds import ClaimSpec, certain, fresh_seeds

_TDC = "TDC, plain averaging"


def two_features(agents: int) -> fg.Federation:
    """Two states of the values theta and 2 theta; every reward is zero, and so is theta*.

    >>> two_features(4).num_agents
    4
    """
    moves = np.tile(np.eye(2), (2, 1, 1))
    return fg.Federation(
        fg.MDP(moves, np.zeros((2, 2)), 0.9),
        np.full((2, 2), 0.5),
        num_agents=agents,
        target_policy=np.array([[0.0, 1.0], [0.0, 1.0]]),
        features=np.array([[1.0], [2.0]]),
    )


def errors(spec: ClaimSpec, each: ComparedMethod, engine: Any) -> np.ndarray:
    """(seeds, rounds + 1): the squared errors of off-policy TD from theta = 1."""
    sizes = spec.sizes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        history = fg.run(
            two_features(sizes.agents),
            fg.OffPolicyLinearTD(),
            step_size=sizes.step_size,
            sync_period=sizes.sync_period,
            num_steps=sizes.num_steps,
            method=each.method(sizes.agents),
            seeds=fresh_seeds(sizes.seeds),
            record=sizes.sync_period,
            initial_params=[1.0],
            fixed_point=[0.0],
            engine=engine or "cpu",
            output_decay=0.5,
        )
    return history.data.squared_error_2.transpose("seed", "time").values


def gradient_errors(spec: ClaimSpec) -> np.ndarray:
    """(rounds + 1,): the exact squared error of TDC, of theta alone or of both parameters."""
    sizes = spec.sizes
    return fg.exact.moments(
        two_features(sizes.agents),
        fg.TDC(),
        step_size=sizes.step_size,
        sync_period=sizes.sync_period,
        times=np.arange(0, sizes.num_steps + 1, sizes.sync_period),
        initial_params=[1.0, 0.0],
        order=1,
    ).mse


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    sizes, verdicts, series = spec.sizes, [], []
    rounds = np.arange(sizes.num_steps // sizes.sync_period + 1)
    for key in sizes.contestants:
        each = contestant(key)
        table = errors(spec, each, engine)
        found = curve_estimate(table, positive=True)
        verdicts.append(
            spec.verdict(
                "stays",
                "two states",
                mean_estimate(table[:, -1] / table[:, 0], positive=True),
                method=each.name,
                steps=sizes.num_steps,
            )
        )
        series.append(Series(each.name, rounds, found.value, found.low, found.high))
    slow = gradient_errors(spec)
    verdicts.append(
        spec.verdict(
            "gradient",
            "two states",
            certain(slow[-1] / slow[0]),
            kind="exact",
            steps=sizes.num_steps,
        )
    )
    series.append(Series(_TDC, rounds, slow, style="exact"))
    return Section(
        spec.letter,
        spec.title,
        "Off-policy TD with linear features may push away from its own fixed point. Every method "
        "follows the same mean field, so none of them repairs that; an algorithm with another "
        "field does.",
        tuple(verdicts),
        (
            FigureData(
                "unstable",
                "Two states: error against rounds",
                "The squared error from a start at distance one, with the step size "
                f"{sizes.step_size:g} and rounds of {sizes.sync_period} steps.",
                "rounds",
                ERROR,
                "linear",
                "log",
                tuple(series),
            ),
        ),
    )
