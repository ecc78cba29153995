"""`run`: prepare a job, hand it to an engine, return the history. Every run begins here."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable

from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm
from fegsam.blas_threads import one_blas_thread
from fegsam.data.federation import DataFederation
from fegsam.engines.cpu.engine import Cpu
from fegsam.engines.cuda.engine import Cuda
from fegsam.engines.job import Engine, Job, Sampling
from fegsam.engines.reference import Reference
from fegsam.engines.resume import merge
from fegsam.errors import ProblemError, shown
from fegsam.history.history import History
from fegsam.methods.method import Method
from fegsam.methods.schedules import StepSchedule, SyncPeriod
from fegsam.methods.tail import Tail
from fegsam.prepare import prepare
from fegsam.problem.federation import Problem

_ENGINES: dict[str, Callable[[], Engine]] = {"cpu": Cpu, "cuda": Cuda, "reference": Reference}


def run(
    problem: Problem | DataFederation,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: SyncPeriod,
    num_steps: int,
    method: Method | None = None,
    schedule: StepSchedule | None = None,
    tail: float | Tail | None = None,
    seeds: Iterable[int] = (0,),
    record: int | ArrayLike | None = None,
    record_params: bool = False,
    engine: str | Engine = "cpu",
    initial_params: ArrayLike | None = None,
    sampling: Sampling = "markov",
    output_decay: float | None = None,
    stop_at_output: bool = False,
    fixed_point: ArrayLike | None = None,
    resume_from: History | None = None,
) -> History:
    """Run N agents for `num_steps` steps, averaging every `sync_period`, and measure the average.

    Parameters
    ----------
    problem : Federation, MarkovNoise or DataFederation
        What is learned, and by which agents.
    algorithm : Algorithm
        How one agent updates its parameters: `QLearning()`, `OnPolicyTD(horizon=3)`, ...
    step_size, sync_period, num_steps : float, int, int
        The paper's alpha, K and T. The period may also be a tuple of the lengths of the rounds, of
        which the last repeats, or ``schedules.Growing(...)``.
    method : Method, optional
        How a round goes; plain averaging by default. `fegsam.methods` has some by their names.
    schedule : optional
        The shape of the step sizes over time, for example ``schedules.Polynomial(power=0.75)``,
        which multiplies `step_size`; constant by default.
    tail : float or Tail, optional
        Keep the mean of the averages over this last fraction of the run: ``data.tail_params``.
    seeds : iterable of int
        One independent run each, in 0..2^64-1. Two settings compared under one seed share their
        paths.
    record : int or array of int, optional
        The number of steps between two records, or the recorded times in 0..T; by default about
        200 times, including 0 and T.
    record_params : bool
        Keep the averages themselves, not only their errors.
    engine : "cpu", "cuda", "reference", or a callable ``engine(job) -> History``
        What runs it. ``fegsam.engines.Cpu(threads=2)`` sets the number of threads,
        ``fegsam.engines.Cuda(precision="float32")`` the precision on a GPU.
    initial_params : (d,) array, optional
        Where every agent starts; zeros by default.
    sampling : "markov" or "iid"
        One path per agent (the paper's setting), or each step's window drawn independently
        from the stationary distribution.
    output_decay : float, optional
        c of the output time's distribution q(t) ~ c^-t; by default 1 - alpha phi_2 / 2, and
        1 - 1/T where no norm is found.
    stop_at_output : bool
        End each seed at its output time.
    fixed_point : (d,) array, optional
        A known theta*; by default it is solved for. (The stationary distributions are computed
        anyway, unless `output_decay` is given, too.)
    resume_from : History, optional
        Continue that run, with the same settings and a larger `num_steps`. The result equals the
        uninterrupted run. An output time depends on `num_steps`: if the new one lies within the
        earlier part, that part is run again up to it.

    Returns
    -------
    History

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(states=20, actions=4, branching=3, discount=0.8, seed=0)
    >>> fed = fg.Federation(mdp, fg.policies.random(20, 4, count=10, seed=1), num_agents=10)
    >>> history = fg.run(
    ...     fed, fg.QLearning(), step_size=0.1, sync_period=10, num_steps=20_000, seeds=range(4)
    ... )
    >>> errors = history.data.squared_error.mean("seed")
    >>> bool(errors[-1] < 0.1 * errors[0])
    True
    """
    runner = _engine(engine)
    with one_blas_thread():
        job = prepare(
            problem,
            algorithm,
            step_size=step_size,
            sync_period=sync_period,
            num_steps=num_steps,
            method=method,
            schedule=schedule,
            tail=tail,
            seeds=seeds,
            record=record,
            record_params=record_params,
            engine_name=_name(runner),
            initial_params=initial_params,
            sampling=sampling,
            output_decay=output_decay,
            stop_at_output=stop_at_output,
            fixed_point=fixed_point,
            resume_from=resume_from,
        )
        if job.num_agents > 1 and not job.settings.communications:
            warnings.warn(
                f"sync_period is {shown(sync_period)} and num_steps is {job.settings.num_steps}, "
                "so the agents never synchronise: give a sync_period of at most "
                f"{job.settings.num_steps}.",
                UserWarning,
                stacklevel=2,
            )
        return runner(job) if resume_from is None else merge(resume_from, runner, job)


def _engine(engine: str | Engine) -> Engine:
    if callable(engine) and not isinstance(engine, type):
        return _of_a_job(engine)
    if not isinstance(engine, str) or engine not in _ENGINES:
        raise ProblemError(
            f"engine is {shown(engine)}; choose one of {', '.join(map(repr, sorted(_ENGINES)))}, "
            "or pass a callable engine(job) -> History."
        )
    return _ENGINES[engine]()


def _of_a_job(engine: Callable[..., History]) -> Engine:
    """`engine`, wrapped if it still has the former signature ``(plan, settings) -> History``."""
    try:
        needed = [
            parameter
            for parameter in inspect.signature(engine).parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        return engine
    if len(needed) < 2:
        return engine
    warnings.warn(
        "An engine takes one argument now, a Job, with the former plan's fields and `settings`; "
        "define it as engine(job).",
        DeprecationWarning,
        stacklevel=4,
    )

    def wrapped(job: Job) -> History:
        return engine(job, job.settings)

    wrapped.__name__ = _name(engine)
    return wrapped


def _name(engine: Callable[..., History]) -> str:
    return str(getattr(engine, "name", getattr(engine, "__name__", type(engine).__name__)))
