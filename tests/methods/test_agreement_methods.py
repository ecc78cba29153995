"""Every engine does in a round what the papers' pseudo-code says, at every time, for every method;
neither the layout of a run nor a break in it changes a bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fegsam as fg
from cases import ALGORITHMS, case, large
from helpers.method_cases import AGENTS, EVERY_METHOD, METHODS, methods_of
from helpers.replayed import ALPHA, ENGINES, SEEDS, assert_replays, on_cpu, replay

T, K = 15, 4
# One algorithm for each form of update: cell, row, dense.
FORMS = ("alg4", "alg5", "alg1-linear")
MATRIX = [
    pytest.param(name, kind, id=f"{name}-{kind}", marks=() if name in FORMS else pytest.mark.slow)
    for name in ALGORITHMS
    for kind in methods_of(name)
]
SCHEDULES = {
    "polynomial": fg.schedules.Polynomial(0.75),
    "rescaled": fg.schedules.Rescaled(),
    "steps": fg.schedules.Steps((3, 9), (0.5, 0.25)),
}
PERIODS = {"list": (1, 3, 2), "growing": fg.schedules.Growing(1, 1.6, 5)}
# What a round leaves behind for the next one: variates, a velocity, clocks.
WITH_MEMORY = (
    "last round by agent",
    "last round by kind",
    "momentum",
    "m of N wait",
    "raw local steps",
    "last round of some agents",
    "last round with nesterov",
)
EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES)


def small(name: str, num_agents: int = AGENTS):
    return case(name, n=2, num_agents=num_agents)


# --- The reference engine against the papers ------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), MATRIX)
def test_reference_agrees_with_the_papers_at_every_time(name, kind) -> None:
    assert_replays(small(name), EVERY_METHOD[kind], engine="reference", K=K, T=T)


@pytest.mark.parametrize("kind", EVERY_METHOD)
def test_reference_agrees_with_the_papers_on_iid_windows(kind) -> None:
    assert_replays(small("alg3"), EVERY_METHOD[kind], engine="reference", K=K, T=T, sampling="iid")


@pytest.mark.parametrize("periods", [4, *PERIODS.values()], ids=["equal", *PERIODS])
@pytest.mark.parametrize("shape", [None, *SCHEDULES.values()], ids=["constant", *SCHEDULES])
@pytest.mark.parametrize(
    "kind", ["plain", "last round of some agents", "first step by kind", "by visits of some"]
)
def test_reference_agrees_with_the_papers_where_step_sizes_and_periods_change(
    kind, shape, periods
) -> None:
    method = EVERY_METHOD[kind]
    assert_replays(
        small("alg4"), method, engine="reference", K=periods, T=16, alpha=0.5, schedule=shape
    )


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kind", ["momentum", "nesterov", "rounding", "last round by agent"])
def test_reference_agrees_with_the_papers_for_one_agent(kind, name) -> None:
    assert_replays(small(name, num_agents=1), METHODS[kind], engine="reference", K=K, T=T)


@pytest.mark.parametrize("name", FORMS)
def test_reference_agrees_with_the_papers_for_one_agent_that_may_miss_a_round(name) -> None:
    method = fg.Method(participation=fg.Participation(probability=0.5))
    assert_replays(small(name, num_agents=1), method, engine="reference", K=3, T=T)


# --- The cpu engine against the papers ------------------------------------------------------------

# The compiled code depends on the form of the update and on what a method does in it, so that the
# other forms need fewer methods than the first.
ON_OTHER_FORMS = (
    "weights of agents",
    "last round by agent",
    "last round by kind",
    "first step by agent",
    "nesterov",
    "m of N wait",
    "often nobody, divided by all",
    "dithered rounding",
    "some cells",
    "rounded local steps of some",
    "last round of some by kind",
    "first step of some",
)
ON_CPU = [pytest.param("alg4", kind, id=f"alg4-{kind}") for kind in methods_of("alg4")] + [
    pytest.param(name, kind, id=f"{name}-{kind}") for name in FORMS[1:] for kind in ON_OTHER_FORMS
]
# More agents than a block holds, more than one block.
MANY = {
    "last round by agent": METHODS["last round by agent"],
    "last round by kind": METHODS["last round by kind"],
    "first step by agent": METHODS["first step by agent"],
    "weights of kinds": METHODS["weights of kinds"],
    "half of the agents": fg.Method(participation=fg.Participation(agents=65)),
    "some cells": METHODS["some cells"],
    "normalised local steps": METHODS["normalised local steps"],
    "by visits": EVERY_METHOD["by visits"],
}


@on_cpu
@pytest.mark.parametrize(("name", "kind"), ON_CPU)
def test_cpu_agrees_with_the_papers_at_every_time(name, kind) -> None:
    assert_replays(small(name), EVERY_METHOD[kind], engine="cpu", K=K, T=T)


@on_cpu
@pytest.mark.parametrize("kind", ["last round by agent", "m of N wait", "by visits"])
def test_cpu_agrees_with_the_papers_on_iid_windows(kind) -> None:
    assert_replays(small("alg4"), EVERY_METHOD[kind], engine="cpu", K=K, T=T, sampling="iid")


@on_cpu
@pytest.mark.parametrize("periods", PERIODS.values(), ids=PERIODS)
@pytest.mark.parametrize("kind", ["plain", "last round of some agents", "by visits of some"])
def test_cpu_agrees_with_the_papers_where_step_sizes_and_periods_change(kind, periods) -> None:
    for shape in (None, *SCHEDULES.values()):
        assert_replays(
            small("alg4"),
            EVERY_METHOD[kind],
            engine="cpu",
            K=periods,
            T=16,
            alpha=0.5,
            schedule=shape,
        )


@on_cpu
@pytest.mark.parametrize("kind", MANY)
def test_cpu_agrees_with_the_papers_for_more_agents_than_a_block_holds(kind) -> None:
    assert_replays(
        small("alg4", num_agents=130), MANY[kind], engine="cpu", K=K, T=9, seeds=SEEDS[:1]
    )


@on_cpu
@pytest.mark.parametrize(("num_agents", "K", "T"), [(5, 4, 15), (67, 4, 9), (3, 40, 90)])
@pytest.mark.parametrize(
    "kind", ["last round by agent", "last round by kind", "momentum", "by visits", "rounding"]
)
def test_cpu_agrees_with_the_papers_on_a_large_table(kind, num_agents, K, T) -> None:
    """A round touches from a few cells of the table to each of them."""
    some = case("alg4", num_agents=num_agents, world=large(60))
    assert_replays(some, EVERY_METHOD[kind], engine="cpu", K=K, T=T, seeds=SEEDS[:1])


@on_cpu
@pytest.mark.parametrize("kind", WITH_MEMORY)
def test_an_engine_takes_over_from_another_within_a_method(kind) -> None:
    some, method = small("alg4"), EVERY_METHOD[kind]
    settings = {"alpha": ALPHA, "K": K, "seeds": SEEDS, "method": method}
    whole = some.run(**settings, T=T, engine="reference").data
    for begins, ends in (("reference", "cpu"), ("cpu", "reference")):
        first = some.run(**settings, T=9, engine=begins)
        data = some.run(**settings, T=T, engine=ends, resume_from=first).data
        np.testing.assert_allclose(data.average_params, whole.average_params, rtol=0, atol=1e-12)


# --- What a run keeps of its end ------------------------------------------------------------------


@EACH_ENGINE
@pytest.mark.parametrize("over", ["steps", "syncs"])
@pytest.mark.parametrize("fraction", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("kind", ["plain", "last round by agent", "often nobody, divided by all"])
def test_tail_average_is_the_mean_of_the_last_averages(kind, fraction, over, engine) -> None:
    some, method = small("alg5"), METHODS[kind]
    history = some.run(
        alpha=ALPHA,
        K=3,
        T=T,
        seeds=SEEDS,
        method=method,
        engine=engine,
        tail=fg.Tail(fraction, over=over),
    )
    truth = fg.fixed_point(some.problem, some.algorithm)
    for row, seed in enumerate(SEEDS):
        expected = replay(some, method, seed, K=3, T=T).tail(fraction, over)
        np.testing.assert_allclose(history.data.tail_params[row], expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            history.data.tail_squared_error[row], ((expected - truth) ** 2).sum(), rtol=1e-9
        )


@pytest.mark.parametrize(
    ("kind", "periods", "expected"),
    [
        ("plain", 4, 3),
        ("last round by agent", 4, 3),
        ("first step by agent", 4, 6),
        ("plain", (1, 3, 2), 7),
        ("plain", fg.schedules.Growing(1, 2, 100), 4),
    ],
)
def test_communications_count_every_exchange(kind, periods, expected) -> None:
    history = small("alg4").run(
        alpha=ALPHA, K=periods, T=T, method=METHODS[kind], engine="reference"
    )
    assert history.settings.communications == expected


@EACH_ENGINE
@pytest.mark.parametrize("name", FORMS)
def test_a_server_whose_parameters_are_no_longer_finite_ends_the_seed(name, engine) -> None:
    """After one round the server is at about 1e80, after the next beyond what can be squared."""
    some, method = small(name), fg.Method(server=fg.Server(step=1e80))
    with pytest.warns(fg.DivergenceWarning, match=r"at time 8\b.* at the server"):
        history = some.run(alpha=ALPHA, K=K, T=T, seeds=SEEDS, method=method, engine=engine)
    assert history.data.diverged_at.values.tolist() == [8, 8]
    assert np.isfinite(history.data.average_params[:, :8]).all()
    assert np.isnan(history.data.average_params[:, 8:]).all()


# --- A broken run ---------------------------------------------------------------------------------


BROKEN = [pytest.param("alg4", kind, id=f"alg4-{kind}") for kind in methods_of("alg4")] + [
    pytest.param(name, kind, id=f"{name}-{kind}") for name in FORMS[1:] for kind in WITH_MEMORY
]


@EACH_ENGINE
@pytest.mark.parametrize(("name", "kind"), BROKEN)
def test_run_broken_before_at_and_after_a_sync_equals_the_unbroken_one(
    name, kind, engine, tmp_path, assert_same_bits
) -> None:
    """The second part goes through a file."""
    some = small(name)
    settings = {
        "alpha": ALPHA,
        "K": K,
        "seeds": SEEDS,
        "method": EVERY_METHOD[kind],
        "engine": engine,
        "tail": 0.2,
    }
    first = some.run(**settings, T=3)
    second = some.run(**settings, T=8, resume_from=first)
    second.save(tmp_path / "second.nc")
    third = some.run(**settings, T=13, resume_from=fg.load_history(tmp_path / "second.nc"))
    resumed = some.run(**settings, T=T, resume_from=third)
    whole = some.run(**settings, T=T)
    assert_same_bits(resumed, whole)
    for kept in (resumed, whole):
        assert kept.checkpoint is not None
    assert resumed.checkpoint.memory.keys() == whole.checkpoint.memory.keys()
    for part, values in whole.checkpoint.memory.items():
        np.testing.assert_array_equal(resumed.checkpoint.memory[part], values, err_msg=part)


@EACH_ENGINE
def test_run_with_other_periods_and_step_sizes_goes_on_from_a_break(
    engine, assert_same_bits
) -> None:
    some = small("alg4")
    for kind in ("last round of some agents", "by visits of some", "raw local steps"):
        settings: dict[str, Any] = {
            "alpha": 0.5,
            "K": K if kind == "raw local steps" else (1, 3, 5),
            "seeds": SEEDS,
            "method": EVERY_METHOD[kind],
            "schedule": fg.schedules.Polynomial(0.75),
            "engine": engine,
        }
        whole = some.run(**settings, T=17)
        for stop in (1, 4, 6, 9, 16):
            first = some.run(**settings, T=stop)
            assert_same_bits(some.run(**settings, T=17, resume_from=first), whole)
