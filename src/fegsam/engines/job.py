"""A job: a problem, an algorithm and settings as flat arrays, which is all that an engine sees."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from fegsam.algorithms.on_data import OnData
from fegsam.data.federation import DataFederation, Reader
from fegsam.errors import ProblemError, shown
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import Measure, Truth
from fegsam.history.settings import Settings
from fegsam.methods.method import Method
from fegsam.methods.rounds import Rounds
from fegsam.methods.schedules import StepSchedule
from fegsam.problem.acting import Acting
from fegsam.problem.chains import stationary_laws
from fegsam.problem.checks import several
from fegsam.problem.federation import Federation, Problem
from fegsam.randomness import alias_rows, index_rows

Sampling = Literal["markov", "iid"]

LARGEST = 1e140
"""A parameter beyond this counts as no longer finite.

The sum of its square over parameters and agents would overflow soon after.
"""


class Chain(NamedTuple):
    """The distributions that paths are drawn from, as alias tables (see `randomness`).

    They cover any number of MDPs and policies. All tables are flat arrays of uint32, one entry
    after the other. Markov noise, which has no actions, is a chain with one action.
    """

    policy: np.ndarray
    """threshold and alias of each entry; row ``policy * S + s`` has A entries"""
    row: np.ndarray
    """first entry and number of entries of each row ``(mdp * S + s) * A + a``"""
    entry: np.ndarray
    """threshold, next state and other next state of each entry; only reachable states have one"""
    first: np.ndarray
    """the distribution of the first state: threshold and alias of each entry"""
    law: np.ndarray
    """the stationary distribution of each kind, as in `first`; empty unless sampling is i.i.d."""
    num_states: np.uint64
    num_actions: np.uint64


class Agents(NamedTuple):
    """The kind of each agent, and the MDP and policy of each kind."""

    kinds: np.ndarray
    """uint32 (N)"""
    mdps: np.ndarray
    """uint32 (M): the MDP of each kind"""
    policies: np.ndarray
    """uint32 (M): the policy of each kind"""


@dataclass(frozen=True, eq=False)
class Job:
    """One run, ready for an engine."""

    settings: Settings
    form: str
    """the shape of an update: "cell", "row" or "dense" (see `algorithms.rule`)"""
    rule: Callable[..., Any]
    tables: Any
    window: int
    dimension: int
    agents: Agents
    chain: Chain
    initial_params: np.ndarray
    """(d): where every agent starts at time 0"""
    start: Checkpoint
    """time 0, or the last synchronisation of the run that this one continues"""
    truth: Truth
    output_times: np.ndarray
    """int64 (seeds): the time of each seed's output, drawn before the run"""
    acting: Acting | None = None
    """how actions follow from an agent's own parameters; None: by the policies of `chain`"""
    method: Method = field(default_factory=Method)
    schedule: StepSchedule | None = None
    """the shape of the step sizes; None: constant"""
    discount: float | None = None
    """the problem's, for schedules that depend on it"""
    data: DataFederation | None = None
    """the recorded data of the agents, which then have no chain"""
    on_data: OnData | None = None
    """how the rule runs on it"""
    reader: Callable[[int, int], Reader] | None = None
    """opens the rows that an agent learns from, given its number and a seed"""
    measure: Measure | None = None
    """what else is measured of the averages"""
    facts: Mapping[str, np.ndarray] = field(default_factory=dict)
    """(N) each: what is known of the agents' data"""

    @property
    def num_agents(self) -> int:
        return self.settings.num_agents

    @property
    def rounds(self) -> Rounds:
        return self.settings.rounds

    @property
    def alone(self) -> bool:
        """Whether there is one agent, which never averages."""
        return self.num_agents == 1 and self.is_plain

    @property
    def is_plain(self) -> bool:
        """Whether rounds are as in the paper: equal lengths, constant steps, a plain average."""
        constant = self.schedule is None and not self.settings.periods
        return self.method.is_plain and constant and not self.settings.tail

    def step_sizes(self, begin: int, end: int) -> np.ndarray:
        """(end - begin): the step sizes of the steps begin..end-1."""
        size = self.settings.step_size
        if self.schedule is None:
            return np.full(end - begin, size)
        return size * self.schedule.factors(np.arange(begin, end), self.discount)

    @property
    def checkpoint_time(self) -> int:
        """The time of the run's checkpoint: its last synchronisation, or for one agent its end."""
        if self.alone:
            return self.settings.num_steps
        return max(self.start.time, self.rounds.last_sync(self.settings.num_steps))

    def only(self, places: np.ndarray) -> Job:
        """The same job for some of the seeds."""
        return dataclasses.replace(
            self,
            settings=dataclasses.replace(
                self.settings, seeds=tuple(self.settings.seeds[place] for place in places)
            ),
            start=self.start.only(places),
            output_times=self.output_times[places],
        )


def require_simulated(job: Job, engine: str) -> None:
    """Raise `ProblemError` unless the agents' paths are simulated."""
    if job.data is not None:
        raise ProblemError(
            f"The {engine} engine runs simulated agents alone, and these read data; use "
            "engine='cpu'."
        )


def require_plain(job: Job, engine: str) -> None:
    """Raise `ProblemError` unless the rounds are as in the paper."""
    if not job.is_plain:
        raise ProblemError(
            f"The {engine} engine runs plain averaging with constant steps and rounds alone; use "
            "engine='reference'."
        )


Engine = Callable[[Job], History]

E = TypeVar("E")


def takes_a_job(call: Callable[[E, Job], History]) -> Callable[[E, Job], History]:
    """Let an engine's ``__call__`` also accept its former arguments ``(plan, settings)``."""

    @functools.wraps(call)
    def accepting(self: E, job: Job, settings: Settings | None = None) -> History:
        if settings is not None:
            warnings.warn(
                "An engine takes one argument now, a Job; call engine(job).",
                DeprecationWarning,
                stacklevel=2,
            )
            job = dataclasses.replace(job, settings=settings)
        return call(self, job)

    return accepting


def lower_agents(problem: Problem, policies: np.ndarray) -> Agents:
    kinds = np.arange(problem.num_kinds, dtype=np.uint32)
    shared = np.zeros_like(kinds)
    return Agents(
        kinds=np.ascontiguousarray(problem.assignment, dtype=np.uint32),
        mdps=kinds if len(_transition_rows(problem)) > 1 else shared,
        policies=kinds if len(policies) > 1 else shared,
    )


def lower_chain(problem: Problem, policies: np.ndarray, sampling: Sampling) -> Chain:
    _, num_states, num_actions = policies.shape
    transitions = sp.csr_array(sp.vstack(_transition_rows(problem), format="csr"))
    stationary = np.empty((0, num_states))
    if sampling == "iid":
        stationary = stationary_laws(problem, policies)
    if transitions.nnz >= 2**32:
        raise ProblemError(
            f"The MDPs together have {transitions.nnz} possible transitions; at most 2**32 - 1 "
            "can be run: use fewer kinds."
        )
    start = np.asarray(transitions.indptr, np.int64)
    return Chain(
        policy=index_rows(policies.reshape(-1, num_actions)),
        row=np.stack([start[:-1], np.diff(start)], axis=1).astype(np.uint32).ravel(),
        entry=alias_rows(start, transitions.data, transitions.indices).ravel(),
        first=index_rows(problem.initial_distribution[None]),
        law=index_rows(stationary),
        num_states=np.uint64(num_states),
        num_actions=np.uint64(num_actions),
    )


def _transition_rows(problem: Problem) -> list[Any]:
    """One (S * A, S) matrix per MDP, or per kernel."""
    return (
        [mdp.transitions for mdp in problem.mdps]
        if isinstance(problem, Federation)
        else list(problem.kernels)
    )


def check_seeds(seeds: Any) -> tuple[int, ...]:
    """The seeds as a tuple: at least one, each once, whole numbers in 0..2^64-1."""
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        count = max(2, seeds) if type(seeds) is int and seeds < 10**6 else 10
        raise ProblemError(f"seeds is {shown(seeds)}; give several, for example range({count}).")
    values = several(seeds, "seeds", "but must be a list: give several, for example range(10)")
    if not values:
        raise ProblemError("seeds is empty; give at least one, for example seeds=(0,).")
    for seed in values:
        if (
            isinstance(seed, bool)
            or not isinstance(seed, int | np.integer)
            or not 0 <= seed < 2**64
        ):
            raise ProblemError(f"seeds has {shown(seed)}; give whole numbers from 0 to 2**64 - 1.")
    if len(set(values)) < len(values):
        twice = next(seed for seed in values if values.count(seed) > 1)
        raise ProblemError(
            f"seeds has {twice} more than once; give each seed once, since a seed repeats its run "
            "exactly."
        )
    return tuple(int(seed) for seed in values)


def check_sampling(sampling: Any) -> None:
    if not isinstance(sampling, str) or sampling not in ("markov", "iid"):
        raise ProblemError(f"sampling is {shown(sampling)}; give 'markov' or 'iid'.")
