"""The axes: lines through one base setting along which everything is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fegsam.bench import gpu_limit
from fegsam.bench.contestants import Contestant, c_threads, cpu, cuda, everyone, thread_counts
from fegsam.bench.cpu_limit import path_limit
from fegsam.bench.problems import ALGORITHMS, BenchCase, BenchSetting, make_case
from fegsam.bench.results import Limit, TimedCell
from fegsam.bench.timing import Effort, Field
from fegsam.errors import ProblemError

QUICK = Effort(seconds=0.06, repeats=3)
FULL = Effort(seconds=0.2, repeats=5)
BASE = BenchSetting()
SPARSE_BRANCHING = 5
SEEDS = 64

Lane = tuple[str, float, BenchSetting, list[Contestant]]
"""A cell: its label, its place on the axis, its setting and its contestants."""


def run_axes(
    axes: Sequence[str], effort: Effort, quick: bool, wanted: Sequence[str] | None = None
) -> Iterator[TimedCell]:
    """Time every cell of the axes in turn.

    `wanted` selects contestants by the first words of their names.
    """
    for axis in axes:
        if axis not in AXES:
            raise ProblemError(f"There is no axis {axis!r}; choose among {', '.join(AXES)}.")
    known = list(dict.fromkeys(_first_word(one) for one in everyone(quick)))
    unknown = next((name for name in wanted or () if name not in known), None)
    if unknown is not None:
        raise ProblemError(f"There is no contestant {unknown!r}; choose among {', '.join(known)}.")
    field = Field(effort)
    for axis in axes:
        for label, place, setting, contestants in AXES[axis](quick):
            chosen = [one for one in contestants if wanted is None or _first_word(one) in wanted]
            if chosen:
                case = make_case(setting)
                yield TimedCell(
                    axis, label, place, setting, tuple(field.race(axis, case, chosen)), limits(case)
                )


def _first_word(contestant: Contestant) -> str:
    return contestant.family.split()[0]


def limits(case: BenchCase) -> tuple[Limit, ...]:
    if case.setting.num_seeds > 1 or case.setting.record is not None:
        return ()
    chains, seconds = path_limit(case.job.chain, case.job.num_agents)
    found = [
        Limit(f"limit, {chains} loads at once" if chains > 1 else "limit, load by load", seconds)
    ]
    if gpu_limit.gpu_missing() is None:
        in_a_row = Limit("limit, GPU load by load", gpu_limit.path_limit(case.job))
        moved = Limit(
            "limit, GPU sectors", gpu_limit.sector_limit(case.job, case.setting.sync_period)
        )
        found.append(max(in_a_row, moved, key=lambda limit: limit.seconds_per_step))
    return tuple(found)


def _agents(quick: bool) -> Iterator[Lane]:
    small = (1, 256, 4096) if quick else (1, 16, 256, 4096, 65_536, 10**6)
    for agents in small:
        yield f"N={agents}", agents, replace(BASE, num_agents=agents), everyone(quick)
    if not quick and gpu_limit.gpu_missing() is None:
        for agents in (10**7, 10**8):
            yield f"N={agents}", agents, replace(BASE, num_agents=agents), cuda()


def _period(quick: bool) -> Iterator[Lane]:
    for period in (1, 100) if quick else (1, 10, 100, 1000):
        yield f"K={period}", period, replace(BASE, sync_period=period), everyone(quick)


def _scale(quick: bool) -> Iterator[Lane]:
    for period in () if quick else (1, 10, 100, 1000):
        yield (
            f"K={period}",
            period,
            replace(BASE, num_agents=10**6, sync_period=period),
            everyone(quick),
        )


def _table(quick: bool) -> Iterator[Lane]:
    for size in (100, 10_000) if quick else (100, 1000, 10_000, 100_000, 10**6):
        setting = replace(BASE, states=size // BASE.actions, branching=SPARSE_BRANCHING)
        yield f"d={size}", size, setting, everyone(quick)


def _algorithm(quick: bool) -> Iterator[Lane]:
    for rank, name in enumerate(ALGORITHMS, start=1):
        yield f"{rank} {name}", rank, replace(BASE, algorithm=name), _engines(quick)


def _horizon(quick: bool) -> Iterator[Lane]:
    for name in (
        ("off_policy_tabular_td",)
        if quick
        else [name for name in ALGORITHMS if name.endswith("td")]
    ):
        for horizon in (1, 5):
            yield (
                f"n={horizon}, {name}",
                horizon,
                replace(BASE, algorithm=name, horizon=horizon),
                _engines(quick),
            )


def _engines(quick: bool) -> list[Contestant]:
    """The engines alone, since the baselines are written for Q-learning.

    A quick run also leaves out the reference engine.
    """
    return [
        one
        for one in everyone(quick)
        if one.family.startswith(("cpu", "cuda") if quick else ("cpu", "cuda", "reference"))
    ]


def _threads(quick: bool) -> Iterator[Lane]:
    counts = thread_counts()
    side_by_side = [entrant for threads in counts for entrant in (cpu(threads), c_threads(threads))]
    yield (
        f"{SEEDS} seeds",
        SEEDS,
        replace(BASE, num_agents=64 if quick else 256, num_seeds=SEEDS),
        side_by_side,
    )
    large = replace(BASE, num_agents=16_384 if quick else 65_536, sync_period=100)
    yield "one seed", 1, large, [cpu(threads) for threads in counts]


def _recording(quick: bool) -> Iterator[Lane]:
    for label, record in (
        ("at the end", None),
        ("every sync", BASE.sync_period),
        ("every step", 1),
    ):
        yield label, record or 0, replace(BASE, num_agents=256, record=record), _engines(quick=True)


AXES: dict[str, Callable[[bool], Iterator[Lane]]] = {
    "agents": _agents,
    "period": _period,
    "scale": _scale,
    "table": _table,
    "algorithm": _algorithm,
    "horizon": _horizon,
    "threads": _threads,
    "recording": _recording,
}
