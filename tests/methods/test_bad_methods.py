"""A method, a schedule or a tail that does not fit gets one sentence that names the value or the
cure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from helpers import golden

RUN = {"step_size": 0.1, "sync_period": 4, "num_steps": 10, "engine": "reference"}
VISITS = fg.methods.importance_averaging()
VARIATES = fg.ControlVariates()


def run(method: Any = None, algorithm: Any = None, **changes: Any) -> Any:
    """Two agents of two kinds with four cells."""
    return fg.run(
        golden.federation(),
        fg.QLearning() if algorithm is None else algorithm,
        method=method,
        **(RUN | changes),
    )


def noise_run(**changes: Any) -> Any:
    coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    pull = fg.LinearSA([[[-1.0]], [[-1.0]]], [[0.0], [1.0]])
    return fg.run(coin, pull, **(RUN | changes))


def tail_error(tail: Any) -> Any:
    coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    average = fg.LinearSA([[[-1.0]], [[-1.0]]], [[0.0], [1.0]])
    settings = {"step_size": 0.1, "sync_period": 4, "num_steps": 10}
    return fg.exact.tail_error(coin, average, tail=tail, **settings)


def resumed(first: dict[str, Any], second: dict[str, Any]) -> Any:
    return run(**(second | {"num_steps": 20}), resume_from=run(**first))


def steps(*by_kind: int) -> fg.Method:
    return fg.Method(local_steps=fg.LocalSteps(by_kind))


def some(**settings: Any) -> fg.Method:
    return fg.Method(participation=fg.Participation(**settings))


Bad = dict[str, tuple[Callable[[], Any], str]]

AVERAGES: Bad = {
    "weights that do not sum to one": (
        lambda: fg.Mean((0.5, 0.4)),
        r"sum to 0\.9, .*to one; divide",
    ),
    "a weight of zero": (lambda: fg.Mean((1.0, 0.0)), r"weights\[1\] is 0, .*positive; leave out"),
    "a negative weight": (lambda: fg.Mean((1.5, -0.5)), r"weights\[1\] is -0\.5, .*positive"),
    "no weights": (lambda: fg.Mean([]), r"weights is \[\], .*; give one .*or leave out weights"),
    "a weight that is not a number": (lambda: fg.Mean((np.nan, 1.0)), r"weights\[0\] is nan"),
    "weights in a table": (
        lambda: fg.Mean([[0.5, 0.5]]),
        r"weights is \[\[0\.5, 0\.5\]\], .*list of numbers; give one for each agent",
    ),
    "weights that are words": (lambda: fg.Mean(("a", "b")), "weights"),
    "one number as weights": (lambda: fg.Mean(1.0), "weights"),
    "too many weights": (
        lambda: run(fg.Method(fg.Mean((0.5, 0.25, 0.25)))),
        "3 weights, but 2 agents of 2 kinds",
    ),
    "by visits without cells": (
        lambda: run(VISITS, fg.OffPolicyLinearTD(1)),
        r"does not update single cells; use it with QLearning\(\)",
    ),
    "by visits in algorithm 1": (lambda: noise_run(method=VISITS), "single cells"),
    "by visits with a step of one": (lambda: run(VISITS, step_size=1.0), "reaches 1; give one"),
    "by visits with a step above one": (lambda: run(VISITS, step_size=1.5), r"reaches 1\.5"),
    "by visits with a schedule that reaches one": (
        lambda: run(VISITS, step_size=0.5, schedule=fg.schedules.Steps((5,), (2.0,))),
        "reaches 1; give one below 1",
    ),
    "by visits with a schedule that peaks late": (
        lambda: run(
            VISITS,
            step_size=0.5,
            num_steps=100_000,
            record=50_000,
            schedule=fg.schedules.Steps((50_001, 50_002), (2.0, 0.5)),
        ),
        "reaches 1; give one below 1",
    ),
    "another average": (lambda: fg.Method("mean"), r"average is 'mean'; give fegsam\.Mean"),
    "an average that is a class": (lambda: fg.Method(fg.ByVisits), "average is"),
}


def pull(params: Any, y: Any, kind: Any, out: Any) -> None:
    for j in range(params.shape[0]):
        out[j] = y - params[j]


def too_many_variates() -> Any:
    """A million agents with ten thousand parameters each."""
    coin, dim = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=1_000_000), 10_000
    operator = fg.StochasticApproximation(pull, dim=dim)
    given = {"method": fg.methods.scafflsa(), "engine": "cpu", "fixed_point": np.zeros(dim)}
    return fg.run(coin, operator, **(RUN | given), output_decay=0.9)


COMBINATIONS: Bad = {
    "variates beyond memory": (
        too_many_variates,
        r"of 1000000 agents need 80 GB of memory; use ControlVariates\(of='kind'\)",
    ),
    "variates with unequal steps": (
        lambda: fg.Method(correction=VARIATES, local_steps=fg.LocalSteps((1, 2))),
        "same number of steps of every agent; leave one",
    ),
    "variates with rounding": (
        lambda: fg.Method(correction=VARIATES, rounding=fg.Rounding(0.1)),
        "leave one of them out",
    ),
    "variates with some cells": (
        lambda: fg.Method(correction=VARIATES, rounding=fg.SomeCells(1)),
        "leave one of them out",
    ),
    "variates by visits": (lambda: fg.Method(fg.ByVisits(), VARIATES), "leave one of them out"),
    "visits with rounding": (
        lambda: fg.Method(fg.ByVisits(), rounding=fg.Rounding(0.1)),
        "rounding would scale or replace; leave",
    ),
    "visits with local steps": (
        lambda: fg.Method(fg.ByVisits(), local_steps=fg.LocalSteps((1, 2))),
        "local_steps would scale or replace; leave",
    ),
}
PLACES: Bad = {
    "variates of someone else": (lambda: fg.ControlVariates("server"), "of is 'server'; give"),
    "variates of another source": (
        lambda: fg.ControlVariates(source="last_step"),
        "source is 'last_step'; give",
    ),
    "a correction that is a word": (
        lambda: fg.Method(correction="scaffold"),
        r"correction is 'scaffold'; give fegsam\.ControlVariates",
    ),
    "no server": (lambda: fg.Method(server=None), r"server is None; give fegsam\.Server"),
    "a server step of zero": (lambda: fg.Server(step=0), "step is 0"),
    "a negative server step": (lambda: fg.Server(step=-1.0), r"step is -1\.0"),
    "a momentum of one": (lambda: fg.Server(momentum=1.0), r"momentum is 1\.0"),
    "a negative momentum": (lambda: fg.Server(momentum=-0.1), r"momentum is -0\.1"),
    "a momentum that is a word": (lambda: fg.Server(momentum="much"), "momentum is 'much'"),
    "a momentum that is not a number": (
        lambda: fg.Server(momentum=np.nan),
        "momentum is nan; give",
    ),
    "a momentum of the name": (lambda: fg.methods.fedavgm(np.nan), "momentum is nan; give"),
    "a momentum that is true or false": (lambda: fg.Server(momentum=False), "momentum is False"),
    "nesterov that is a number": (lambda: fg.Server(nesterov=2), "nesterov is 2"),
    "a participation that is a number": (
        lambda: fg.Method(participation=3),
        r"participation is 3; give fegsam\.Participation",
    ),
    "a rounding that is a number": (
        lambda: fg.Method(rounding=0.1),
        r"rounding is 0\.1; give fegsam\.Rounding\(\.\.\.\) or fegsam\.SomeCells",
    ),
    "local steps that are a list": (
        lambda: fg.Method(local_steps=[1, 2]),
        r"local_steps is \[1, 2\]; give fegsam\.LocalSteps",
    ),
    "a method that is a word": (lambda: run("scafflsa"), r"method is 'scafflsa'; give"),
    "a method that is a function": (lambda: run(fg.methods.scafflsa), "method is <function"),
    "a rounding step of zero": (lambda: fg.Rounding(0.0), r"step is 0\.0"),
    "a rounding step beyond division": (
        lambda: fg.Rounding(1e-320),
        "step is 1e-320, .*overflow; give at least 1e-100",
    ),
    "an infinite rounding step": (lambda: fg.Rounding(np.inf), "step is inf"),
    "a dither that is a word": (lambda: fg.Rounding(0.1, dither="yes"), "dither is 'yes'"),
    "no cells": (lambda: fg.SomeCells(0), "count is 0"),
    "half a cell": (lambda: fg.SomeCells(0.5), r"count is 0\.5"),
    "more cells than there are": (
        lambda: run(fg.Method(rounding=fg.SomeCells(5))),
        "5 cells of 4; give at most 4",
    ),
}
WHO: Bad = {
    "nobody asked for": (lambda: fg.Participation(), "either agents.* or probability.*give one"),
    "both ways of asking": (
        lambda: fg.Participation(agents=2, probability=0.5),
        "either agents.* or probability.*give one",
    ),
    "no agents": (lambda: fg.Participation(agents=0), "agents is 0"),
    "half an agent": (lambda: fg.Participation(agents=1.5), r"agents is 1\.5"),
    "more agents than there are": (lambda: run(some(agents=3)), "3 agents of 2; give at most 2"),
    "agents that could not act": (
        lambda: run(some(agents=1), fg.Sarsa()),
        "could not act; leave out participation",
    ),
    "a probability of zero": (lambda: fg.Participation(probability=0.0), r"probability is 0\.0"),
    "a probability that no word is below": (
        lambda: fg.Participation(probability=1e-320),
        r"probability is 1e-320, so nobody .*; give at least 2\^-32",
    ),
    "a probability above one": (lambda: fg.Participation(probability=2), "probability is 2"),
    "others that do something else": (
        lambda: fg.Participation(agents=1, others="sleep"),
        "others is 'sleep'; give 'wait' or 'go_on'",
    ),
    "a sum divided by something else": (
        lambda: fg.Participation(agents=1, divide_by="N"),
        "divide_by is 'N'; give 'answered' or 'all'",
    ),
}
LOCAL_STEPS: Bad = {
    "no numbers": (lambda: fg.LocalSteps(()), "by_kind is empty; give"),
    "one number": (lambda: fg.LocalSteps(5), "by_kind is 5"),
    "a kind without steps": (lambda: fg.LocalSteps((1, 0)), r"by_kind\[1\] is 0"),
    "half a step": (lambda: fg.LocalSteps((1.5, 2)), r"by_kind\[0\] is 1\.5"),
    "too few numbers": (lambda: run(steps(2)), "1 numbers? for 2 kinds of agents; give one"),
    "too many numbers": (lambda: run(steps(1, 2, 3)), "3 numbers for 2 kinds"),
    "more steps than a round has": (
        lambda: run(steps(2, 5)),
        "5 steps in a round of sync_period=4; give at most",
    ),
    "with a list of periods": (
        lambda: run(steps(1, 2), sync_period=(2, 4)),
        "one length; give a whole number as sync_period",
    ),
    "with growing periods": (
        lambda: run(steps(1, 2), sync_period=fg.schedules.Growing(2, 2.0, 8)),
        "one length; give a whole number as sync_period",
    ),
}
TIMES: Bad = {
    "rescaled without a discount": (
        lambda: noise_run(schedule=fg.schedules.Rescaled()),
        r"needs a discount, .*give schedules\.Polynomial\(power=1\)",
    ),
    "a schedule that is a word": (lambda: run(schedule="linear"), "schedule is 'linear'; give"),
    "a schedule that is a class": (lambda: run(schedule=fg.schedules.Rescaled), "schedule is"),
    "a power of zero": (lambda: fg.schedules.Polynomial(0), "power is 0"),
    "a negative offset": (lambda: fg.schedules.Polynomial(1, offset=-1), "offset is -1"),
    "an offset whose factor overflows": (
        lambda: run(schedule=fg.schedules.Polynomial(1, offset=1e-320)),
        "factor inf; give one whose factors are positive and finite",
    ),
    "one number as times": (
        lambda: fg.schedules.Steps(np.nan, np.nan),
        "times is nan, .*list of times: give one",
    ),
    "one number as factors": (
        lambda: fg.schedules.Steps((1,), 0.5),
        r"values is 0\.5, .*list of factors: give one",
    ),
    "times that fall": (lambda: fg.schedules.Steps((5, 3), (1, 1)), "give increasing times"),
    "fewer values than times": (lambda: fg.schedules.Steps((3, 5), (1,)), "one value for each"),
    "a factor of zero": (lambda: fg.schedules.Steps((3,), (0.0,)), r"values\[0\] is 0\.0"),
    "no periods": (lambda: run(sync_period=()), "sync_period is empty; give"),
    "a period of zero in a list": (lambda: run(sync_period=(2, 0)), r"sync_period\[1\] is 0"),
    "a list as a period": (lambda: run(sync_period=[[1], 2]), r"sync_period\[0\] is \[1\], but"),
    "an array as a period": (
        lambda: run(sync_period=[np.array([1.0]), 2]),
        r"sync_period\[0\] is array\(\[1\.\]\), but must be a whole number",
    ),
    "half a period": (lambda: run(sync_period=(1.5,)), r"sync_period\[0\] is 1\.5"),
    "periods that are words": (lambda: run(sync_period="ab"), "sync_period is 'ab'"),
    "rounds that do not grow": (lambda: fg.schedules.Growing(1, 1.0, 5), "factor is 1, .*give"),
    "rounds that shrink": (lambda: fg.schedules.Growing(5, 2.0, 3), "most is 3"),
    "rounds that hardly grow": (
        lambda: fg.schedules.Growing(1, 1 + 1e-9, 10**6),
        "give a larger factor",
    ),
    "a tail of more than the run": (lambda: run(tail=1.5), r"tail is 1\.5"),
    "a negative tail": (lambda: run(tail=-0.5), r"tail is -0\.5"),
    "a tail of no step": (lambda: run(tail=0.01), r"0\.01 of 10 steps, has no step; give a larger"),
    "a tail without a synchronisation": (
        lambda: run(tail=fg.Tail(0.1, "syncs")),
        r"has no synchronisation; give a larger",
    ),
    "an exact tail of nothing": (lambda: tail_error(0), "tail is 0, .*; give a fraction above 0"),
    "no exact tail": (lambda: tail_error(None), "tail is None, .*; give a fraction above 0"),
    "a tail that is a word": (lambda: run(tail="half"), "tail is 'half'"),
    "a tail over something else": (lambda: fg.Tail(0.5, over="rounds"), "over is 'rounds'; give"),
}


def point(method: fg.Method, algorithm: Any = None) -> Any:
    """The fixed point of two agents of two kinds with four cells."""
    return fg.fixed_point(
        golden.federation(), fg.QLearning() if algorithm is None else algorithm, method=method
    )


FIXED_POINT: Bad = {
    "too many weights": (
        lambda: point(fg.Method(fg.Mean((0.5, 0.25, 0.25)))),
        "3 weights, but 2 agents of 2 kinds",
    ),
    "more agents than there are": (lambda: point(some(agents=3)), "3 agents of 2; give at most 2"),
    "too few local steps": (lambda: point(steps(2)), "1 numbers for 2 kinds of agents; give one"),
    "too many local steps": (lambda: point(steps(1, 2, 3)), "3 numbers for 2 kinds"),
    "more cells than there are": (
        lambda: point(fg.Method(rounding=fg.SomeCells(5))),
        "5 cells of 4; give at most 4",
    ),
    "by visits without cells": (
        lambda: point(VISITS, fg.OffPolicyLinearTD(1)),
        r"does not update single cells; use it with QLearning\(\)",
    ),
    "agents that could not act": (
        lambda: point(some(agents=1), fg.Sarsa()),
        "could not act; leave out participation",
    ),
}
RESUMED: Bad = {
    "with another method": (
        lambda: resumed({"method": fg.methods.fedavgm(0.5)}, {"method": fg.methods.fedavgm(0.6)}),
        "method",
    ),
    "without the method": (lambda: resumed({"method": fg.methods.scafflsa()}, {}), "method"),
    "with another schedule": (
        lambda: resumed({}, {"schedule": fg.schedules.Polynomial(1)}),
        "schedule",
    ),
    "with other periods": (lambda: resumed({}, {"sync_period": (2, 4)}), "periods"),
    "with another tail": (lambda: resumed({"tail": 0.2}, {"tail": 0.3}), "tail"),
    "within the tail": (lambda: resumed({"tail": 0.9}, {"tail": 0.9}), "tail .*begins at time 2"),
}
EVERY = {
    f"{group}: {what}": bad
    for group, cases in {
        "average": AVERAGES,
        "combination": COMBINATIONS,
        "place": PLACES,
        "participation": WHO,
        "local steps": LOCAL_STEPS,
        "time": TIMES,
        "fixed point": FIXED_POINT,
        "resumed": RESUMED,
    }.items()
    for what, bad in cases.items()
}


@pytest.mark.parametrize("what", EVERY)
def test_what_does_not_fit_is_named_in_one_sentence(what) -> None:
    call, expected = EVERY[what]
    with pytest.raises(fg.ProblemError) as caught:
        call()
    message = str(caught.value)
    assert re.search(expected, message), message
    assert "\n" not in message
    assert not re.search(r"\.\s", message), message
    assert len(message) < 400


@pytest.mark.parametrize("momentum", [0, -0.0, np.float32(0.0), np.int64(0)])
def test_equal_servers_have_one_form_so_that_a_run_goes_on(momentum) -> None:
    server = fg.Server(2.0, momentum)
    assert repr(server) == repr(fg.Server(2.0, 0.0))
    go_on = resumed(
        {"method": fg.Method(server=server)}, {"method": fg.Method(server=fg.Server(2))}
    )
    assert go_on.settings.num_steps == 20


def test_the_former_check_of_a_method_still_works_and_warns() -> None:
    fits = {"num_kinds": 1, "form": "cell", "dimension": 3, "largest_step": 0.1, "periods": (3,)}
    method = fg.Method(participation=fg.Participation(5))
    with pytest.warns(DeprecationWarning, match="use Method.check_agents and Method.check_steps"):
        method.check(num_agents=5, **fits)
    with (
        pytest.warns(DeprecationWarning, match="divided"),
        pytest.raises(fg.ProblemError, match="5 agents of 2"),
    ):
        method.check(num_agents=2, **fits)
