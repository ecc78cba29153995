"""`agent_paths`: make some rounds with the reference engine and keep what every agent held."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.algorithms.structure import TemporalDifference, TransitionOperator, structure_of
from fegsam.blas_threads import one_blas_thread
from fegsam.engines.reference import simulated_agent
from fegsam.engines.reference_round import ReferenceServer
from fegsam.errors import ProblemError
from fegsam.history.agent_paths import AgentPaths
from fegsam.methods.method import Method
from fegsam.methods.schedules import StepSchedule, SyncPeriod
from fegsam.prepare import prepare
from fegsam.problem.checks import integer, read_only
from fegsam.problem.federation import Federation, Problem

_MOST_NUMBERS = 10**7
"""Of all agents and steps together; plain Python would take minutes for more."""


@one_blas_thread()
def agent_paths(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: SyncPeriod,
    num_steps: int,
    method: Method | None = None,
    schedule: StepSchedule | None = None,
    seed: int = 0,
    initial_params: ArrayLike | None = None,
) -> AgentPaths:
    """Make a short run and keep the parameters of every agent at every step.

    The arguments are those of `fegsam.run`, and so are the paths: an agent of this run holds what
    it holds in that one. It is plain Python, for some rounds of some agents.

    Returns
    -------
    AgentPaths
        Its `plot` draws the agents, and its `save` writes an SVG picture in which they move.

    Examples
    --------
    >>> import numpy as np
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(6, 2, 3, discount=0.8, seed=3)
    >>> line = np.column_stack([np.ones(6), np.linspace(-1, 1, 6)])
    >>> private, uniform = fg.policies.random(6, 2, count=3, seed=4), fg.policies.uniform(6, 2)
    >>> fed = fg.Federation(mdp, private, num_agents=3, target_policy=uniform, features=line)
    >>> fg.agent_paths(fed, fg.OffPolicyLinearTD(), step_size=0.1, sync_period=20, num_steps=60)
    AgentPaths(agents=3, steps=60, synchronisations=3, parameters=2)
    """
    check_algorithm(algorithm, problem)
    steps = integer(num_steps, "num_steps")
    numbers = steps * problem.num_agents * algorithm.dimension(problem)
    if numbers > _MOST_NUMBERS:
        raise ProblemError(
            f"num_steps={steps} of {problem.num_agents} agents are {numbers:.2g} numbers, more "
            f"than the {_MOST_NUMBERS:.0e} that are kept; give fewer steps or agents."
        )
    job = prepare(
        problem,
        algorithm,
        step_size=step_size,
        sync_period=sync_period,
        num_steps=steps,
        method=method,
        schedule=schedule,
        seeds=(seed,),
        record=[steps],
        engine_name="reference",
        initial_params=initial_params,
    )
    agents = [simulated_agent(job, 0, i) for i in range(job.num_agents)]
    server = ReferenceServer(job, 0)
    current = server.open(agents, 0)
    params = np.full((steps + 1, job.num_agents, job.dimension), np.nan)
    averages = np.empty((steps + 1, job.dimension))
    params[0], averages[0], syncs = server.params, server.params, []
    for t in range(1, steps + 1):
        current.advance(t - 1, t)
        params[t, current.present] = current.params
        averages[t] = current.average()[0]
        if job.rounds.is_sync(np.asarray(t)) and not job.alone:
            averages[t] = server.close(current)
            current = server.open(agents, t)
            syncs.append(t)
    return AgentPaths(
        read_only(params),
        read_only(averages),
        read_only(np.array(syncs, np.int64)),
        job.truth.fixed_point,
        _features(problem, algorithm),
        job.settings.num_actions,
        _grid(problem),
    )


def _features(problem: Problem, algorithm: Algorithm) -> np.ndarray | None:
    """(S, d): the values of the states are these features times the parameters; None if not."""
    structure = structure_of(algorithm, problem)
    if isinstance(structure, TemporalDifference) and structure.features is None:
        return np.eye(problem.num_states)
    if isinstance(structure, TemporalDifference | TransitionOperator):
        return structure.features
    return None


def _grid(problem: Problem) -> tuple[int, int] | None:
    """Rows and columns, where the labels of the states are the cells of a grid, row by row."""
    labels = next(iter(problem.mdps)).labels if isinstance(problem, Federation) else None
    if labels is None:
        return None
    last = labels[-1]
    if not isinstance(last, tuple) or len(last) != 2 or not all(isinstance(n, int) for n in last):
        return None
    rows, columns = last[0] + 1, last[1] + 1
    cells = tuple((row, column) for row in range(rows) for column in range(columns))
    return (rows, columns) if labels == cells else None
