"""Runs cells on Ray.

It uses the cluster that ``RAY_ADDRESS`` names or that runs on this machine; otherwise it starts Ray
for the sweep. One cell is one task on one core, and also on one GPU if its engine is `cuda`: Ray
gives each such task its own GPU. Only histories travel back, so the machines need no shared disk.
They need the same version of fegsam, and the files that a study names under the same paths. A task
whose process or machine is lost runs again elsewhere. A Ray that is started here listens on this
machine's network address, even if it is told to use 127.0.0.1; it sends no usage statistics.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fegsam.errors import ProblemError
from fegsam.experiments.sweep.executors import TICK
from fegsam.experiments.sweep.worker import Answer, attempt, environment
from fegsam.problem.checks import integer

try:
    import ray
    from ray.exceptions import RayError
except ImportError as error:
    raise ProblemError("The executor 'ray' needs Ray; run: pip install 'fegsam[ray]'") from error

if TYPE_CHECKING:
    from fegsam.experiments.spec.cells import Cell

_RETRIES = 3
"""Retries of a task whose process dies."""

_AHEAD = 2
"""Submitted tasks per core: the next one is ready, and finished histories do not pile up."""


class RayExecutor:
    """Tasks on a Ray cluster.

    Parameters
    ----------
    workers : int, optional
        Largest number of submitted cells; by default enough to keep every core of the cluster
        busy.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._most = None if workers is None else integer(workers, "workers")
        self._started = False

    def outcomes(self, cells: Sequence[Cell], engine: Any) -> Iterator[tuple[Cell, Answer] | None]:
        self._connect()
        claims = claimed(cells[0].engine if engine is None and cells else engine)
        most = self._most or _AHEAD * places(claims, ray.cluster_resources())
        task = ray.remote(
            **claims, max_retries=_RETRIES, runtime_env={"env_vars": environment(threads=1)}
        )(attempt)
        waiting = iter(cells)
        under_way: dict[Any, Cell] = {}
        try:
            while True:
                while len(under_way) < most and (cell := next(waiting, None)) is not None:
                    under_way[task.remote(cell, engine, 1)] = cell
                if not under_way:
                    return
                ready, _ = ray.wait(list(under_way), timeout=TICK)
                if not ready:
                    yield None
                for reference in ready:
                    yield under_way.pop(reference), _answer(reference)
        finally:
            for reference in under_way:
                ray.cancel(reference, force=True)

    def close(self) -> None:
        """Leave the cluster; a Ray that this executor started ends."""
        if self._started:
            ray.shutdown()
            self._started = False

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Tasks see the machine's accelerators; Ray would otherwise hide them from a task that
        # claims none.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ProblemError(
                f"Ray cannot be reached or started ({error}); check RAY_ADDRESS and `ray status`."
            ) from error
        self._started = True

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def claimed(engine: Any) -> dict[str, Any]:
    """The resources of a cluster that one cell takes."""
    on_gpu = str(getattr(engine, "name", engine)).startswith("cuda")
    return {"num_cpus": 1, "num_gpus": 1} if on_gpu else {"num_cpus": 1}


def places(claims: dict[str, Any], resources: Mapping[str, float]) -> int:
    """The number of cells with these claims that a cluster runs at once."""
    cores = max(1, int(resources.get("CPU", 1)))
    if "num_gpus" not in claims:
        return cores
    cards = int(resources.get("GPU", 0))
    if cards == 0:
        raise ProblemError(
            "engine is 'cuda', but the Ray cluster has no GPU; add a machine with one, or use "
            "engine='cpu'."
        )
    return min(cores, cards)


def _answer(reference: Any) -> Answer:
    try:
        return ray.get(reference)
    except RayError as error:
        return Answer(error=f"Ray lost it ({str(error).splitlines()[0]})", trace=str(error))
