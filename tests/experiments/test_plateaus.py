"""A plateau counts as reached where the exact curve has settled, and as not reached where it has
not."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr

import fegsam as fg
from fegsam.experiments.plateaus import find_plateau

POINTS = np.linspace(0.0, 1.0, 201)
"""recorded times, as shares of the run"""
STUDIES = 200
SETTINGS: dict[str, Any] = {"step_size": 0.1, "sync_period": 10}


def history(curves: np.ndarray, times: np.ndarray | None = None) -> Any:
    times = (1000 * POINTS).round() if times is None else times
    data = xr.Dataset(
        {"squared_error_2": (("seed", "time"), curves)},
        coords={"seed": range(len(curves)), "time": times},
    )
    return SimpleNamespace(
        data=data, settings=SimpleNamespace(seeds=tuple(range(len(curves))), num_steps=1000)
    )


def sampled(folds: float, seeds: int, study: int) -> np.ndarray:
    """(seeds, time): ||way + noise||^2 of mean `geometric(folds)`; the noise is stationary,
    correlated over 1/20 of the run."""
    rng, memory = np.random.default_rng(study), math.exp(-20 / len(POINTS))
    noise = np.empty((seeds, len(POINTS), 4))
    noise[:, 0] = rng.normal(size=(seeds, 4))
    for t in range(1, len(POINTS)):
        noise[:, t] = memory * noise[:, t - 1] + math.sqrt(1 - memory**2) * rng.normal(
            size=(seeds, 4)
        )
    way = np.sqrt(geometric(folds) - 1.0)
    return ((way[:, None] + noise) ** 2).mean(axis=2)


def geometric(folds: float, start: float = 100.0, floor: float = 1.0) -> np.ndarray:
    """An error whose distance from the floor shrinks by the given number of factors e during the
    run."""
    return floor + (start - floor) * np.exp(-folds * POINTS)


@pytest.mark.parametrize("folds", [0.1, 1.0, 3.0, 5.0, 7.0, 9.0])
def test_without_noise_the_limit_is_the_floor_of_a_geometric_fall(folds) -> None:
    """The quarters of 200 recorded steps are of 50 each but for the last, of 51: hence the
    tolerance."""
    noise = np.array([[0.99], [1.0], [1.01]])
    found = find_plateau(history(noise * geometric(folds)))
    level = geometric(folds)[100:].mean()
    assert found.level.value == pytest.approx(level)
    assert level - found.limit.value == pytest.approx(level - 1.0, rel=0.05)


@pytest.mark.parametrize("seeds", [4, 8, 32])
def test_a_fall_that_has_not_ended_is_noticed_and_a_settled_curve_raises_no_alarm(seeds) -> None:
    def outcomes(folds: float) -> list[bool | None]:
        return [
            find_plateau(history(sampled(folds, seeds, study))).reached for study in range(STUDIES)
        ]

    falling, settled = outcomes(5.0), outcomes(40.0)
    # The level of the first is 5.6 times its floor; that of the second is the floor to eight
    # digits.
    assert falling.count(True) == 0
    assert falling.count(False) >= (0.5 if seeds == 4 else 0.95) * STUDIES
    # By the interval at most 2.5 % are expected; four standard errors of that over 200 studies are
    # 4.4 %.
    assert settled.count(False) <= (0.025 + 0.044) * STUDIES
    assert settled.count(True) >= 0.8 * STUDIES


def walkers(agents: int) -> fg.Federation:
    line = np.column_stack([np.ones(9), np.linspace(-1, 1, 9)])
    walk = fg.examples.random_walk(9, discount=0.8)
    return fg.Federation(
        walk, num_agents=agents, target_policy=fg.policies.uniform(9, 2), features=line
    )


@pytest.mark.parametrize("agents", [4, 64])
@pytest.mark.parametrize("steps", [40, 100, 200, 2000, 4000])
def test_runs_are_judged_as_their_exact_curves(agents, steps) -> None:
    """Ten studies of 16 seeds each, with what is known of the exact curve and without."""
    times = np.unique(np.linspace(0, steps, 101).astype(int))
    whole = fg.run(
        walkers(agents),
        fg.OnPolicyTD(),
        num_steps=steps,
        seeds=range(160),
        record=times,
        **SETTINGS,
    )
    exact = fg.exact.moments(
        walkers(agents), fg.OnPolicyTD(), times=times[times >= steps / 2], order=1, **SETTINGS
    )
    floor = fg.exact.stationary_error(walkers(agents), fg.OnPolicyTD(), **SETTINGS)
    excess = float(exact.mse.mean() - floor)
    alone = []
    for first in range(0, 160, 16):
        run = dataclasses.replace(whole, data=whole.data.isel(seed=slice(first, first + 16)))
        known = find_plateau(run, excess=excess)
        assert known.reached is (excess <= known.level.value - known.level.low)
        assert known.reached is (steps >= 2000), f"excess {excess / floor:.2g} of the floor"
        alone.append(find_plateau(run).reached)
    assert alone.count(steps < 2000) <= 2, "the seeds alone seldom say the contrary"
    if agents == 64 or steps >= 2000:
        assert alone.count(steps >= 2000) >= 9, "and mostly say the same"


def test_an_error_that_has_hardly_moved_is_on_no_plateau() -> None:
    """A step size so small that all quarters look alike."""
    run = fg.run(
        walkers(4), fg.OnPolicyTD(), step_size=1e-5, sync_period=10, num_steps=1000, seeds=range(8)
    )
    error = run.data.squared_error_2.mean("seed").values
    assert error[-1] > 0.9 * error[0]
    assert find_plateau(run).reached is False


def test_an_error_that_still_rises_from_the_fixed_point_is_on_no_plateau() -> None:
    start = fg.fixed_point(walkers(4), fg.OnPolicyTD())
    settings = SETTINGS | {"step_size": 0.01, "seeds": range(128), "initial_params": start}
    short, long = (
        fg.run(walkers(4), fg.OnPolicyTD(), num_steps=steps, **settings) for steps in (400, 20_000)
    )
    assert find_plateau(short).reached is False
    assert find_plateau(short).limit.value > find_plateau(short).level.value
    assert find_plateau(long).reached is True


def test_where_the_seeds_or_the_records_are_too_few_it_cannot_be_told() -> None:
    few = sampled(40.0, 2, 0)
    assert find_plateau(history(few)).reached is None, "two seeds"
    many = sampled(40.0, 16, 0)
    for kept in ([-1], [0, 120, 130]):
        times = (1000 * POINTS).round()[kept]
        assert find_plateau(history(many[:, kept], times)).reached is None, (
            "no recorded time in some quarter"
        )
    lost = many.copy()
    lost[3, 150:] = math.nan
    assert find_plateau(history(lost)).reached is None, "a seed diverged"


def test_a_run_without_noise_that_has_settled_to_the_last_digit_is_on_its_plateau() -> None:
    flat = np.tile(geometric(200.0), (4, 1)) * (
        1 + 1e-15 * np.random.default_rng(0).normal(size=(1, 201))
    )
    assert find_plateau(history(flat)).reached is True
    assert find_plateau(history(np.tile(geometric(9.0), (4, 1)))).reached is False, (
        "the interval has no width"
    )
