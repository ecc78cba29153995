"""Methods, schedules and sync periods survive a file of plain data, and a wrong file is named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.methods.plain import (
    method_from_plain,
    method_to_plain,
    schedule_from_plain,
    schedule_to_plain,
    sync_period_from_plain,
    sync_period_to_plain,
)
from helpers.method_cases import EVERY_METHOD

SCHEDULES = (
    None,
    fg.schedules.Polynomial(0.1 + 0.2, 3),
    fg.schedules.Rescaled(),
    fg.schedules.Steps((3, 9), (0.5, 1e-300)),
)


def stored(plain):
    return json.loads(json.dumps(plain))


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_a_method_comes_out_as_it_went_in(name):
    method = EVERY_METHOD[name]
    assert method_from_plain(stored(method_to_plain(method))) == method


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_comes_out_as_it_went_in(schedule):
    assert schedule_from_plain(stored(schedule_to_plain(schedule))) == schedule


@pytest.mark.parametrize("period", [4, (1, 3), fg.schedules.Growing(1, 1.5, 9)])
def test_a_sync_period_comes_out_as_it_went_in(period):
    assert sync_period_from_plain(stored(sync_period_to_plain(period))) == period


def test_equal_values_have_one_form():
    one, other = (
        method_to_plain(fg.Method(server=fg.Server(1, m))) for m in (0.5, np.float64(0.5))
    )
    assert json.dumps(one) == json.dumps(other)
    lists: tuple[Any, ...] = ([1, 2], (1, 2), np.array([1, 2]))
    assert {json.dumps(sync_period_to_plain(each)) for each in lists} == {"[1, 2]"}
    number: Any = np.int64(7)
    assert json.dumps(sync_period_to_plain(number)) == "7"


@pytest.mark.parametrize(
    "plain",
    [
        None,
        {},
        {"version": 2},
        {"version": 1, "noise": {"name": "server"}},
        {"version": 1, "server": {"name": "os.system"}},
        {"version": 1, "server": {"name": ["server"]}},
        {"version": 1, "server": {"name": "server", "rate": 1.0}},
        {"version": 1, "server": 3},
    ],
)
def test_what_is_unknown_is_named(plain):
    with pytest.raises(
        fg.ProblemError, match=r"^A stored .*; install the version that wrote it\.$"
    ):
        method_from_plain(plain)


def test_values_are_checked_as_if_they_were_given():
    with pytest.raises(fg.ProblemError, match="step is -1"):
        method_from_plain({"version": 1, "server": {"name": "server", "step": -1}})
    with pytest.raises(fg.ProblemError, match="does not know"):
        method_from_plain({"version": 1, "server": {"name": "polynomial", "power": 1}})
    with pytest.raises(fg.ProblemError, match="lacks a field"):
        method_from_plain({"version": 1, "rounding": {"name": "rounding"}})
    with pytest.raises(fg.ProblemError, match="server is"):
        method_from_plain({"version": 1, "server": {"name": "rounding", "step": 1}})
