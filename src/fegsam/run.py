"""`run`: the one entry to every engine. Checks what it was given, finds the truth, lowers, runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam import exact, theory
from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.algorithms.td import features, target_policy
from fegsam.blas_threads import one_blas_thread
from fegsam.compilation import rule_key
from fegsam.engines.cpu.engine import Cpu
from fegsam.engines.cuda.engine import Cuda
from fegsam.engines.plan import LARGEST, Plan, Sampling, check_sampling, check_seeds, lower
from fegsam.engines.randomness import OUTPUT_TIME, words
from fegsam.engines.reference import Reference
from fegsam.engines.resume import check_resumable, merge, record_after
from fegsam.errors import ProblemError, shown
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import Truth, ValueForm
from fegsam.history.settings import Settings
from fegsam.problem.chains import check_chains, stationary_laws
from fegsam.problem.checks import flag, flat_params, integer, positive
from fegsam.problem.federation import Federation, MarkovNoise
from fegsam.versions import installed_version

Engine = Callable[[Plan, Settings], History]

_ENGINES: dict[str, Callable[[], Engine]] = {"cpu": Cpu, "cuda": Cuda, "reference": Reference}
_RECORDS = 200
_MOST_RECORDS = 10**8


def run(
    problem: Federation | MarkovNoise,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: int,
    num_steps: int,
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
    """Run N agents for `num_steps` steps each, averaging every `sync_period`, and measure the
    average.

    Parameters
    ----------
    problem : Federation or MarkovNoise
        What is learned, and by whom.
    algorithm : Algorithm
        How one agent updates: `QLearning()`, `OnPolicyTD(horizon=3)`, ...
    step_size, sync_period, num_steps : float, int, int
        The paper's alpha, K and T.
    seeds : iterable of int
        One independent run each, in 0..2^64-1. Two settings compared under one seed share their
        paths.
    record : int or array of int, optional
        Every so many steps, or these times in 0..T; by default about 200 times, 0 and T among them.
    record_params : bool
        Keep the averages themselves, not only their errors.
    engine : "cpu", "cuda", "reference", or a callable ``(Plan, Settings) -> History``
        Where it runs. ``fegsam.engines.Cpu(threads=2)`` sets the number of threads,
        ``fegsam.engines.Cuda(precision="float32")`` the precision on a GPU.
    initial_params : (d,) array, optional
        Where every agent starts; zeros by default.
    sampling : "markov" or "iid"
        One path per agent (the paper's setting), or each step's window drawn afresh from the
        stationary law.
    output_decay : float, optional
        c of the output time's law q(t) ~ c^-t; by default 1 - alpha phi_2 / 2, and 1 - 1/T where no
        norm is found.
    stop_at_output : bool
        End each seed at its output time.
    fixed_point : (d,) array, optional
        A known theta*; otherwise it is solved for. (The stationary laws are found all the same,
        unless `output_decay` is given too.)
    resume_from : History, optional
        Go on from there, with the same settings and a larger `num_steps`. The result equals the
        unbroken run. An output time hangs on `num_steps`: where the new one lies in the part that
        is done, that part is run again up to it.

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
    >>> bool(
    ...     history.data.squared_error[:, -1].mean() < 0.1 * history.data.squared_error[:, 0].mean()
    ... )
    True
    """
    if resume_from is not None and not isinstance(resume_from, History):
        raise ProblemError(
            f"resume_from is {shown(resume_from)}; give a History, for example "
            "fegsam.load_history(path)."
        )
    if not isinstance(algorithm, Algorithm):
        raise ProblemError(
            f"The algorithm is {shown(algorithm)}; give one of fegsam's, for example "
            "fegsam.QLearning()."
        )
    check_algorithm(algorithm, problem)
    with one_blas_thread():
        runner = _engine(engine)
        step_size = positive(step_size, "step_size")
        sync_period = integer(sync_period, "sync_period")
        num_steps = integer(num_steps, "num_steps")
        check_sampling(sampling)
        check_chains(problem, algorithm.policies(problem))
        dimension = algorithm.dimension(problem)
        initial = np.zeros(dimension)
        if initial_params is not None:
            initial = flat_params(initial_params, "initial_params", dimension)
        known = (
            flat_params(fixed_point, "fixed_point", dimension) if fixed_point is not None else None
        )
        settings = Settings(
            algorithm=_describe(algorithm),
            num_agents=problem.num_agents,
            step_size=step_size,
            sync_period=sync_period,
            num_steps=num_steps,
            seeds=check_seeds(seeds),
            record=_record_times(record, num_steps)
            if resume_from is None
            else record_after(resume_from, record, _record_times(record, num_steps)),
            record_params=flag(record_params, "record_params"),
            engine=str(getattr(runner, "name", getattr(runner, "__name__", type(runner).__name__))),
            sampling=sampling,
            output_decay=_decay(output_decay, problem, algorithm, step_size, num_steps),
            stop_at_output=flag(stop_at_output, "stop_at_output"),
            fingerprint=content_fingerprint(problem, algorithm, initial, known),
            version=installed_version("fegsam") or "unknown",
        )
        start = Checkpoint(0, np.broadcast_to(initial, (len(settings.seeds), dimension)))
        if resume_from is not None:
            start = check_resumable(resume_from, settings)
        plan = lower(
            problem,
            algorithm,
            start=start,
            truth=_truth(problem, algorithm, known),
            output_times=_output_times(settings),
            sampling=sampling,
        )
        if resume_from is None:
            return runner(plan, settings)
        return merge(resume_from, runner, plan, settings, initial)


def _engine(engine: str | Engine) -> Engine:
    if callable(engine) and not isinstance(engine, type):
        return engine
    if not isinstance(engine, str) or engine not in _ENGINES:
        raise ProblemError(
            f"engine is {shown(engine)}; choose one of {', '.join(map(repr, sorted(_ENGINES)))}, "
            "or pass a callable (Plan, Settings) -> History."
        )
    return _ENGINES[engine]()


def _record_times(record: int | ArrayLike | None, num_steps: int) -> np.ndarray:
    """Sorted int64 times in 0..T."""
    if record is None:
        return np.unique(np.linspace(0, num_steps, min(num_steps, _RECORDS) + 1).astype(np.int64))
    if not isinstance(record, Iterable) or (isinstance(record, np.ndarray) and record.ndim == 0):
        return _every(integer(record, "record"), num_steps)
    try:
        times = np.asarray(record)
    except (TypeError, ValueError, OverflowError):
        times = np.empty(0)
    if times.size == 0 or times.ndim != 1 or not np.issubdtype(times.dtype, np.integer):
        raise ProblemError(f"record is {shown(record)}; give a whole number, or a list of times.")
    outside = times[(times < 0) | (times > num_steps)]
    if len(outside):
        raise ProblemError(
            f"record has time {outside[0]}; times run from 0 to num_steps={num_steps}."
        )
    return np.unique(times).astype(np.int64)


def _every(period: int, num_steps: int) -> np.ndarray:
    """0, `period`, ... and T."""
    if num_steps // period > _MOST_RECORDS:
        raise ProblemError(
            f"record={period} asks for {num_steps // period} times out of num_steps={num_steps}, "
            f"but at most {_MOST_RECORDS} are kept: record less often."
        )
    return np.unique(np.append(np.arange(0, num_steps + 1, period), num_steps))


def _decay(
    decay: Any, problem: Any, algorithm: Algorithm, step_size: float, num_steps: int
) -> float:
    if decay is None:
        return theory.default_output_decay(
            problem, algorithm, step_size=step_size, num_steps=num_steps
        )
    if not isinstance(decay, int | float | np.integer | np.floating) or not 0 < decay < 1:
        raise ProblemError(
            f"output_decay is {shown(decay)}; give a number between 0 and 1 (later times are then "
            "likelier)."
        )
    return float(decay)


def _output_times(settings: Settings) -> np.ndarray:
    """int64 (seeds,): drawn before the run, from words of their own."""
    seeds = np.array(settings.seeds, np.uint64)
    high, low = words(seeds, np.uint64(0), np.uint64(0), OUTPUT_TIME)
    uniform = ((high >> np.uint64(5)) * 2.0**26 + (low >> np.uint64(6))) / 2.0**53
    return theory.output_time_distribution(settings.num_steps, settings.output_decay).draw(uniform)


def _truth(
    problem: Federation | MarkovNoise, algorithm: Algorithm, known: np.ndarray | None
) -> Truth:
    fixed = known if known is not None else exact.fixed_point(problem, algorithm)
    largest = float(np.abs(fixed).max())
    if not largest <= LARGEST:
        raise ProblemError(
            f"The fixed point has an entry of size {largest:.3g}, but squares of numbers beyond "
            f"{LARGEST:g} overflow: "
            "give rewards or features in a larger unit."
        )
    return Truth(fixed, algorithm.norm, _value_form(problem, algorithm, fixed))


def _value_form(
    problem: Federation | MarkovNoise, algorithm: Algorithm, fixed: np.ndarray
) -> ValueForm | None:
    """The distance from V^pi, weighted by the mixture of the agents' stationary laws."""
    if (
        not isinstance(problem, Federation)
        or len(problem.mdps) > 1
        or not hasattr(algorithm, "horizon")
    ):
        return None
    value = exact.policy_value(next(iter(problem.mdps)), target_policy(problem, algorithm))
    law = (problem.kind_counts / problem.num_agents) @ stationary_laws(
        problem, algorithm.policies(problem)
    )
    if algorithm.form == "cell":
        off = fixed - value
        return ValueForm(law[None], law * off, float(law @ off**2))
    phi = features(problem, algorithm)
    off = phi @ fixed - value
    return ValueForm(phi.T @ (law[:, None] * phi), phi.T @ (law * off), float(law @ off**2))


def _describe(algorithm: Algorithm) -> str:
    scalars = [
        f"{name}={value!r}"
        for name, value in vars(algorithm).items()
        if isinstance(value, int | float | str)
    ]
    return f"{type(algorithm).__name__}({', '.join(scalars)})"


def content_fingerprint(
    problem: Any, algorithm: Any, initial: np.ndarray, known: np.ndarray | None = None
) -> str:
    """A hash of all that a run depends on and its settings do not say."""
    state = hashlib.sha256(
        problem.fingerprint().encode() + _describe(algorithm).encode() + initial.tobytes()
    )
    for value in vars(algorithm).values():
        if isinstance(value, np.ndarray):
            state.update(str(value.shape).encode() + value.tobytes())
        elif callable(value):
            # What has no content to hash is itself alone, in this process alone.
            state.update((rule_key(value) or f"{os.getpid()} {id(value)}").encode())
    if known is not None:
        state.update(known.tobytes())
    return state.hexdigest()
