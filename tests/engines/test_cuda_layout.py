"""Where a run of the `cuda` engine lies on a GPU: who runs where, what is kept in which memory, and
what does not fit."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.engines.cuda.layout import Device, Shape, global_arrays, make_layout

H200 = Device("an H200", 132, 232448, 233472, 140 * 10**9, 2048, 65536, reserved=1024)
SHAPE = Shape(form="cell", dim=500, num_agents=65536, num_seeds=1, sync_period=10, ahead=1, item=4)
SMALL = 48 * 1024
"""Bytes that a block keeps of a table that all its agents share."""


def lay_out(
    name: str | None = None,
    wanted: int = 1,
    device: Device = H200,
    free_bytes: int | None = None,
    **changed: Any,
) -> Any:
    """The layout of `SHAPE` with something `changed`, for `wanted` record points inside a round."""
    shape = dataclasses.replace(SHAPE, **changed)
    device = dataclasses.replace(device, free_bytes=free_bytes or device.free_bytes)
    return make_layout(shape, device, name, wanted, 0)


def every_layout() -> list[tuple[Shape, Any]]:
    """Layouts of many shapes, with their shapes, as far as they fit."""
    found = []
    for form, dim, agents, seeds, period, item in itertools.product(
        ("cell", "row", "dense"),
        (3, 500, 10**5),
        (1, 40, 4096, 10**6),
        (1, 50),
        (1, 10, 1000),
        (4, 8),
    ):
        shape = Shape(form, dim, agents, seeds, period, 2, item)
        for name in ("shared", "overlay", "table"):
            try:
                found.append((shape, make_layout(shape, H200, name, 5, 0)))
            except fg.ProblemError:
                assert name != "table"
    return found


# --- Which layout, which threads ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "layout"),
    [
        ({}, "overlay"),
        ({"sync_period": 100}, "shared"),
        ({"sync_period": 1000}, "shared"),
        ({"item": 8, "num_agents": 256}, "shared"),
        ({"item": 8, "num_agents": 8192}, "overlay"),
        ({"dim": 10**5}, "overlay"),
        ({"dim": 10**5, "num_agents": 2}, "overlay"),
        ({"dim": 10**5, "sync_period": 10**5}, "table"),
        ({"num_agents": 1}, "shared"),
        ({"num_agents": 4096}, "shared"),
        ({"num_agents": 4096, "num_seeds": 64}, "overlay"),
        ({"form": "row", "dim": 10}, "shared"),
        ({"form": "dense", "dim": 10**4}, "table"),
    ],
)
def test_layout_goes_with_the_size(changed, layout) -> None:
    assert lay_out(**changed).name == layout


def test_every_agent_has_a_thread_and_blocks_fit() -> None:
    for agents in (2, 31, 256, 257, 4096, 10**6, 10**8):
        for seeds in (1, 7, 1000):
            found = lay_out(num_agents=agents, num_seeds=seeds, wanted=3)
            assert found.slots * found.lanes <= found.threads <= 1024
            assert found.shared_bytes <= H200.shared_bytes
            assert found.blocks * found.lanes >= agents or found.blocks * found.threads >= 132 * 256
            assert found.agent_blocks == found.blocks * (found.seeds // found.slots)
            assert found.grid == (
                2 * found.agent_blocks if found.where.producers else found.agent_blocks
            )


def test_memory_is_planned_and_refused_with_numbers() -> None:
    changed = {"dim": 10**6, "sync_period": 10**6, "num_agents": 10**5, "name": "table"}
    roomy, tight = (lay_out(**changed, free_bytes=free) for free in (140 * 10**9, 20 * 10**9))
    assert tight.blocks < roomy.blocks
    with pytest.raises(
        fg.ProblemError,
        match=r"100000 agents with 1000000 parameters need .* bytes of GPU memory .* free",
    ):
        lay_out(**changed, free_bytes=10**9)
    assert lay_out(num_seeds=1000, num_agents=10**6).seeds < 1000


def test_shared_layout_that_does_not_fit_is_refused() -> None:
    with pytest.raises(fg.ProblemError, match=r"layout='shared' needs .* give 'table'"):
        lay_out(dim=10**5, name="shared")


def test_overlay_is_for_tables() -> None:
    with pytest.raises(fg.ProblemError, match="layout='overlay' is for several agents with tables"):
        lay_out(form="row", name="overlay")


def test_few_agents_lie_side_by_side_on_many_processors() -> None:
    found = lay_out(num_agents=4096)
    assert found.threads * found.blocks >= 4096
    assert 32 < found.threads <= 128
    assert found.blocks <= H200.processors


@pytest.mark.parametrize(
    ("changed", "producers"),
    [
        ({}, True),
        ({"num_agents": 2}, True),
        ({"num_agents": 1}, False),
        ({"num_agents": 65536}, False),
        ({"num_seeds": 64}, False),
        ({"chained": False}, False),
        ({"dim": 10**5, "sync_period": 10**5}, False),
        ({"sync_period": 200}, True),
        ({"sync_period": 10**4}, False),
    ],
)
def test_producers_run_ahead_where_half_of_the_gpu_is_enough(changed, producers) -> None:
    found = lay_out(**{"num_agents": 4096, **changed})
    assert found.where.producers == producers
    assert found.shared_bytes <= H200.shared_bytes
    assert not producers or found.grid <= H200.processors


def test_few_summands_go_straight_to_the_sums_of_all_blocks() -> None:
    few, many = (lay_out(num_agents=agents) for agents in (256, 4096))
    assert few.where.producers
    assert many.where.producers
    assert (few.where.sums, many.where.sums) == (False, True)
    assert few.where.near_log
    assert not lay_out(num_agents=4096, sync_period=200).where.near_log


def test_where_blocks_run_in_turn_there_is_one_and_it_fits() -> None:
    simulator = Device(
        "a simulator", 1, 1 << 16, 1 << 17, 1 << 30, 8, 1 << 16, reserved=0, warp=2, in_turn=True
    )
    rows = {"form": "row", "dim": 1000, "sync_period": 3, "item": 8, "device": simulator}
    assert lay_out(**rows, num_agents=5).blocks == 1
    assert lay_out(**rows, num_agents=1, num_seeds=100).agent_blocks == 1
    cells = rows | {"form": "cell", "dim": 5000}
    assert lay_out(**cells, num_agents=2).name == "overlay"


# --- What lies where ------------------------------------------------------------------------------


def shared_arrays(shape: Shape, layout: Any) -> dict[str, tuple[int, int]]:
    """First and last byte, exclusive, of each array in a block's shared memory, counted by hand."""
    where, place = layout.where, layout.place
    threads, slots, dim, item = layout.threads, layout.slots, shape.dim, shape.item
    own = shape.entries if layout.name == "overlay" else dim
    sizes = {
        "sums": (4, 2 * slots * dim * where.sums),
        "tree": (8, threads),
        "base": (item, slots * dim * where.base),
        "own": (item, own * threads * where.own),
        "out": (item, dim * threads * (where.own and shape.form == "dense")),
        "keys": (4, own * threads * (where.own and layout.name == "overlay")),
        "log": (4, shape.sync_period * threads * where.near_log),
        "box": (4, 2),
        "size": (4, 2 * slots),
    }
    begins = {name: int(getattr(place, name)) * width for name, (width, _) in sizes.items()}
    return {
        name: (begins[name], begins[name] + width * count)
        for name, (width, count) in sizes.items()
        if count
    }


def test_arrays_in_shared_memory_do_not_overlap_and_fit() -> None:
    for shape, layout in every_layout():
        arrays = sorted(shared_arrays(shape, layout).values())
        for (_, end), (begin, _) in itertools.pairwise(arrays):
            assert end <= begin, (shape, layout)
        assert arrays[-1][1] <= layout.shared_bytes <= H200.shared_bytes, (shape, layout)


def test_arrays_in_global_memory_fit() -> None:
    """Besides the agents' windows, two of them to a seed, and the averages."""
    for shape, layout in every_layout():
        real = np.float32 if shape.item == 4 else np.float64
        arrays = global_arrays(layout, shape, real).values()
        total = sum(int(np.prod(size)) * np.dtype(kind).itemsize for size, kind in arrays)
        windows = 16 * shape.ahead * shape.num_agents * layout.seeds
        assert total + windows <= H200.free_bytes, (shape, layout)


def test_less_memory_means_fewer_seeds_at_once() -> None:
    needed = {"num_seeds": 64, "num_agents": 1000, "dim": 10**5, "name": "table"}
    at_once = [lay_out(**needed, free_bytes=10**9 * size).seeds for size in (140, 20, 5)]
    assert at_once == sorted(at_once, reverse=True)
    assert at_once[0] > at_once[-1] >= 1


def test_record_points_that_do_not_fit_are_left_to_further_launches() -> None:
    few, many = (lay_out(wanted=wanted) for wanted in (3, 10**6))
    assert few.points == 3
    assert 3 < many.points <= many.rows < 10**6


@pytest.mark.parametrize("item", [4, 8])
def test_a_block_copies_the_average_and_the_sums_up_to_48_kilobytes(item) -> None:
    overlay = {"name": "overlay", "item": item, "num_agents": 65536}
    assert lay_out(**overlay, dim=SMALL // item).where.base
    assert not lay_out(**overlay, dim=SMALL // item + 1).where.base
    assert lay_out(**overlay, dim=SMALL // 8).where.sums
    assert not lay_out(**overlay, dim=SMALL // 8 + 1).where.sums


def test_a_round_that_writes_at_most_half_of_the_cells_is_logged() -> None:
    for period, logged in ((100, True), (250, True), (251, False), (300, False)):
        assert lay_out(sync_period=period, name="shared").where.logged == logged


def test_the_largest_table_in_shared_memory_fills_it() -> None:
    def fits(dim: int) -> bool:
        try:
            return lay_out(dim=dim, name="shared").shared_bytes <= H200.shared_bytes
        except fg.ProblemError:
            return False

    fitting = [dim for dim in range(1000, 2500) if fits(dim)]
    assert fitting == list(range(1000, fitting[-1] + 1))
    # A warp's tables, the average, and sums of twice its size.
    assert H200.shared_bytes - 2000 < fitting[-1] * 4 * (32 + 1 + 2) <= H200.shared_bytes


@pytest.mark.parametrize("period", [1, 2, 5, 6, 10, 100, 1000])
def test_an_overlay_has_room_for_half_as_many_cells_again_as_a_round_writes(period) -> None:
    entries = dataclasses.replace(SHAPE, sync_period=period).entries
    assert entries >= max(8, 3 * period // 2)
    assert entries & (entries - 1) == 0
    assert entries == 8 or entries // 2 < 3 * period // 2
