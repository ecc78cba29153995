"""Where a run of the `cpu` engine lies in memory: how much it takes, what is split when it does not
fit, and what the rounding of sums may depend on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from cases import case
from fegsam.engines.cpu.layout import (
    BLOCK,
    LOG_BYTES,
    ROW_BYTES,
    SLOT_BYTES,
    STEPS_PER_CALL,
    STEPS_PER_TILE,
    CpuLayout,
)
from fegsam.prepare import prepare
from helpers.small_buffers import shrink


def lay_out(
    *,
    form: str = "cell",
    dim: int = 600,
    num_agents: int = 1000,
    window: int = 1,
    start: int = 0,
    period: int = 10,
    num_steps: int = 1000,
    record: Any = (0, 1000),
    sampling: str = "markov",
    team: int = 1,
) -> CpuLayout:
    settings = dataclasses.replace(
        JOB.settings,
        num_agents=num_agents,
        sync_period=period,
        num_steps=num_steps,
        record=np.array(record),
        sampling=sampling,
    )
    job = dataclasses.replace(
        JOB,
        settings=settings,
        form=form,
        dimension=dim,
        window=window,
        start=dataclasses.replace(JOB.start, time=start),
    )
    return CpuLayout(job, team)


JOB = prepare(case("alg4").problem, fg.QLearning(), step_size=0.1, sync_period=2, num_steps=3)
"""A small run, whose sizes `lay_out` changes."""
SHAPES = [
    {"form": form, "dim": dim, "num_agents": agents, "period": period}
    for form, dim, agents, period in itertools.product(
        ("cell", "row", "dense"), (1, 600, 10**5), (1, 67, 10**6), (1, 10, 10**5)
    )
]
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(tuple(shape.values())))


def arrays(memory: Any) -> Iterator[np.ndarray]:
    """All arrays in a tree of tuples."""
    if isinstance(memory, np.ndarray):
        yield memory
    else:
        for part in memory:
            yield from arrays(part)


def num_bytes(memory: Any) -> int:
    return sum(array.nbytes for array in arrays(memory))


# --- How much it takes ----------------------------------------------------------------------------


@EVERY_SHAPE
@pytest.mark.parametrize("team", [1, 4])
def test_memory_grows_with_parameters_times_threads_and_with_agents_but_not_with_both(
    shape, team
) -> None:
    layout = lay_out(**shape, team=team, record=range(1001))
    agents, dim = shape["num_agents"], shape["dim"]
    windows = 8 * agents
    squares = 8 * layout.slots * -(-agents // BLOCK)
    buffers = SLOT_BYTES * 3 // 2 + LOG_BYTES
    assert num_bytes(layout.shared()) <= windows + squares + buffers + 300 * dim * team
    assert num_bytes(layout.own()) <= 16 * dim + 20 * STEPS_PER_TILE + 8 * layout.slots


def test_a_million_agents_take_eight_bytes_each_more_than_a_thousand() -> None:
    few, many = (num_bytes(lay_out(num_agents=n).shared()) for n in (1000, 10**6))
    assert many - few <= 8.2 * 10**6


@EVERY_SHAPE
def test_a_call_hands_over_no_more_than_its_buffers_hold(shape) -> None:
    layout = lay_out(**shape, record=range(1001))
    agents, dim = shape["num_agents"], shape["dim"]
    assert layout.limits.rows == max(1, ROW_BYTES // (8 * dim))
    assert layout.limits.steps == max(1, STEPS_PER_CALL // agents)
    assert layout.slots <= max(2, SLOT_BYTES // (16 * dim))


def test_a_round_has_slots_for_its_record_points_an_output_and_an_end() -> None:
    slots = {
        10: lay_out(record=range(1001)).slots,
        1000: lay_out(record=[3, 4, 700], period=1000).slots,
    }
    # One more is for the average at the round's end.
    assert slots == {10: 9 + 2 + 1, 1000: 3 + 2 + 1}
    assert lay_out(record=range(1001), num_agents=1).slots == 2


def test_threads_of_a_team_share_no_cache_line() -> None:
    layout = lay_out(team=2)
    memories = [layout.own(), layout.own()]
    one, two = (
        {
            byte // 64
            for array in arrays(memory)
            for byte in range(array.ctypes.data, array.ctypes.data + array.nbytes, 8)
        }
        for memory in memories
    )
    assert one
    assert not one & two


# --- What is split when it does not fit -----------------------------------------------------------


@EVERY_SHAPE
@pytest.mark.parametrize("window", [1, 4])
@pytest.mark.parametrize("sampling", ["markov", "iid"])
def test_a_tile_holds_whole_rounds_of_its_agents_or_parts_of_one_agents(
    shape, window, sampling
) -> None:
    layout = lay_out(**shape, window=window, sampling=sampling)
    agents, period = shape["num_agents"], min(shape["period"], 1000)
    tile, span = int(layout.fed.tile), int(layout.fed.span)
    drawn = window + 1 if sampling == "iid" else 1
    assert 1 <= tile <= agents
    assert tile == 1 or span >= period
    assert tile * span * drawn <= STEPS_PER_TILE


def test_a_tile_of_a_long_round_is_one_agent_that_takes_it_in_parts(monkeypatch) -> None:
    shrink(monkeypatch, STEPS_PER_TILE=100)
    shape = {"num_steps": 10**6, "num_agents": 50, "form": "row"}
    tiles = [(100, 1, 100), (101, 1, 100), (50, 2, 50), (51, 1, 51), (4, 25, 4)]
    for period, tile, span in tiles:
        layout = lay_out(period=period, **shape)
        assert (layout.fed.tile, layout.fed.span) == (tile, span), period


def test_record_points_that_do_not_fit_are_left_to_another_run_of_the_round(monkeypatch) -> None:
    shrink(monkeypatch, SLOT_BYTES=16 * 600 * 5, ROW_BYTES=8 * 600 * 7)
    layout = lay_out(record=range(1001))
    assert layout.slots == 5
    assert layout.limits.rows == 7
    shrink(monkeypatch, SLOT_BYTES=1, ROW_BYTES=1)
    layout = lay_out(record=range(1001))
    assert (layout.slots, layout.limits.rows) == (2, 1)


def test_a_wave_of_blocks_is_as_large_as_its_sums_allow(monkeypatch) -> None:
    dense = {"form": "dense", "num_agents": 10**4}
    assert lay_out(**dense, team=1).fed.wave == 1
    assert lay_out(**dense, team=4).fed.wave == 32
    assert lay_out(**dense | {"num_agents": 130}, team=2).fed.wave == 3
    shrink(monkeypatch, SLOT_BYTES=8 * 600 * 3 * 5)
    assert lay_out(**dense, team=4).fed.wave == 5


# --- What the rounding of sums may depend on ------------------------------------------------------


@EVERY_SHAPE
def test_rounding_depends_neither_on_threads_nor_on_where_the_run_begins_and_ends(shape) -> None:
    """Or a resumed run, or one with more threads, would differ in the last bit."""
    kept = {
        (bool(found.fed.logged), bool(found.fed.sparse), found.slots)
        for team in (1, 2, 16)
        for start, num_steps in ((0, 1000), (0, 100_000), (990, 1000), (0, 1))
        for found in [lay_out(**shape, team=team, start=start, num_steps=num_steps)]
    }
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("changed", "logged", "sparse", "touched"),
    [
        ({"period": 99, "num_agents": 7}, True, False, False),
        ({"period": 100, "num_agents": 7}, False, False, False),
        ({"period": 9, "num_agents": 10**6}, True, True, False),
        ({"period": 10, "num_agents": 10**6}, True, False, False),
        ({"period": 9, "num_agents": 66}, True, True, True),
        ({"period": 9, "num_agents": 67}, True, True, False),
        ({"period": 9, "num_agents": 599, "num_steps": 1}, True, True, True),
        ({"period": 9, "num_agents": 600, "num_steps": 1}, True, True, False),
        ({"period": 9, "num_agents": 1}, False, False, False),
        ({"period": 9, "form": "row"}, False, False, False),
        ({"period": 9, "form": "dense"}, False, False, False),
    ],
)
def test_rounds_that_write_few_of_600_cells_are_logged(changed, logged, sparse, touched) -> None:
    """Logged: an agent's K steps write less than a sixth of the cells. Sparse: so few that lists of
    a block's cells are shorter than the table. Touched: all agents write fewer cells than there
    are, and the average is applied to those."""
    fed = lay_out(**changed).fed
    assert (bool(fed.logged), bool(fed.sparse), bool(fed.touched)) == (logged, sparse, touched)
