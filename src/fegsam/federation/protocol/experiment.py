"""The experiment of a server and its nodes: one setting under one seed, with a fingerprint.

A node needs only the data of its own agents: `Experiment.only` leaves out the environments and
policies of all others, and keeps the fingerprint. A server needs the sizes, the initial parameters
and the fingerprint, which are its `Terms`. With the fixed point in them it can report the error;
without it the errors in its history are NaN.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.on_data import needs_of
from fegsam.algorithms.rule import Algorithm, check_algorithm, check_part, require_fixed_policies
from fegsam.data.charter import Charter
from fegsam.data.private import OwnData
from fegsam.engines.agent import AgentGroup
from fegsam.engines.cpu.local import SimulatedAgent, SimulatedAgents
from fegsam.engines.cpu.recorded_agents import RecordedAgents
from fegsam.engines.job import Sampling, check_sampling, check_seeds
from fegsam.errors import ProblemError
from fegsam.federation.protocol.local_rounds import LocalRounds
from fegsam.federation.protocol.node import Node
from fegsam.federation.protocol.reach import reach_of
from fegsam.federation.protocol.round_plan import RoundPlan, check_deployable, check_summable
from fegsam.federation.protocol.terms import Aggregate, Terms
from fegsam.fingerprint import content_fingerprint
from fegsam.history.recorder import Truth
from fegsam.history.settings import Settings
from fegsam.methods.method import Method, check_method
from fegsam.methods.plain import method_to_plain, schedule_to_plain
from fegsam.methods.schedules import StepSchedule, SyncPeriod, rounds_of
from fegsam.prepare import prepare
from fegsam.problem.checks import flat_params, integer, positive
from fegsam.problem.federation import Federation, MarkovNoise


@dataclass(frozen=True, eq=False)
class Experiment:
    """One setting under one seed; the arguments are those of ``fegsam.run``.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> experiment = Experiment(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=52)
    >>> experiment.terms().rounds, experiment.terms().settings.record[-3:].tolist()
    (11, [45, 50, 52])
    """

    problem: Federation | MarkovNoise | Charter
    """of a charter, each node has the data of its own agents"""
    algorithm: Algorithm
    step_size: float
    sync_period: SyncPeriod
    num_steps: int
    seed: int = 0
    sampling: Sampling = "markov"
    initial_params: ArrayLike | None = None
    record: int | ArrayLike | None = None
    """times to record, each moved to the synchronisation before it; by default about 200"""
    record_params: bool = False
    output_decay: float | None = None
    fixed_point: ArrayLike | None = None
    agreed: str | None = None
    """the fingerprint, if `problem` is only a part of the experiment"""
    present: tuple[int, ...] | None = None
    """the agents whose environments and policies `problem` has; None: all"""
    method: Method = field(default_factory=Method)
    schedule: StepSchedule | None = None
    own_steps: tuple[tuple[int, float], ...] | None = None
    """if `problem` is only a part: the local steps of each present agent in a round and the factor
    of its change, where the method has unequal local steps"""
    outputs: tuple[int, ...] | None = None
    """if `problem` is only a part: the output times of the whole"""
    salt: str = ""
    """random text in the fingerprint, from which private data could be guessed without it"""
    aggregate: Aggregate = "agent"
    """whether a node reports each agent's parameters, or their exact sum over its agents"""

    def __post_init__(self) -> None:
        if isinstance(self.problem, Charter):
            needs_of(self.algorithm, self.problem)
        else:
            check = check_algorithm if self.present is None else check_part
            check(self.algorithm, self.problem)
        require_fixed_policies(self.algorithm, "agents of a federation draw paths without them")
        positive(self.step_size, "step_size")
        rounds_of(self.sync_period)
        integer(self.num_steps, "num_steps")
        check_deployable(check_method(self.method))
        if self.aggregate == "node":
            check_summable(self.method)
        schedule_to_plain(self.schedule)
        check_seeds((self.seed,))
        check_sampling(self.sampling)

    @staticmethod
    def from_spec(
        path: str | pathlib.Path,
        seed: int | None = None,
        *,
        trust: bool | None = None,
        salt: str = "",
    ) -> Experiment:
        """The first cell of a study under `seed` (by default its first seed).

        `trust` is as in `load_study`.
        """
        # Imported here, because a node with a share does not need the modules that read studies.
        from fegsam.experiments.spec.study import load_study

        whole = Experiment.from_cell(load_study(path, trust=trust).cells()[0], seed)
        return dataclasses.replace(whole, salt=salt)

    @staticmethod
    def from_cell(cell: Any, seed: int | None = None) -> Experiment:
        """One cell of a study under `seed` (by default its first seed)."""
        problem, algorithm = cell.build()
        if isinstance(problem, Charter):
            arguments = cell.arguments(needs_of(algorithm, problem).dimension)
        else:
            problem, algorithm = cell.build_simulated()
            algorithm.check(problem)
            arguments = cell.arguments(algorithm.dimension(problem))
        if arguments.pop("stop_at_output"):
            raise ProblemError(
                "run.stop_at_output is true, but a federation runs to its end: set it to false."
            )
        if arguments.pop("tail", None) is not None:
            raise ProblemError(
                "the study asks for a tail average, but a federation keeps none: leave it out, "
                "or simulate it with fegsam.run."
            )
        seeds = arguments.pop("seeds")
        return Experiment(problem, algorithm, seed=seeds[0] if seed is None else seed, **arguments)

    @property
    def num_agents(self) -> int:
        return self.problem.num_agents

    @property
    def _here(self) -> Sequence[int]:
        return range(self.num_agents) if self.present is None else self.present

    @property
    def dimension(self) -> int:
        """The number of parameters."""
        if isinstance(self.problem, Charter):
            return needs_of(self.algorithm, self.problem).dimension
        return self.algorithm.dimension(self.problem)

    @cached_property
    def start(self) -> np.ndarray:
        """(d): the initial parameters of every agent."""
        dimension = self.dimension
        return (
            np.zeros(dimension)
            if self.initial_params is None
            else flat_params(self.initial_params, "initial_params", dimension)
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that determines the parameters, equal for equal experiments everywhere."""
        if self.agreed is not None:
            return self.agreed
        rounds = self.plan.rounds
        numbers = (
            float(self.step_size),
            (*rounds.first, rounds.period) if rounds.first else rounds.period,
            self.num_steps,
            self.seed,
            self.sampling,
        )
        content = content_fingerprint(self.problem, self.algorithm, self.start)
        agreed = f"{content} {numbers!r}{self.salt}"
        if self.aggregate == "node":
            agreed += " in sums"
        if not self.method.is_plain or self.schedule is not None:
            rule = [method_to_plain(self.method), schedule_to_plain(self.schedule)]
            agreed += f" {json.dumps(rule, sort_keys=True)}"
        return hashlib.sha256(agreed.encode()).hexdigest()

    @cached_property
    def plan(self) -> RoundPlan:
        """The times and step sizes of all rounds."""
        problem = self.problem
        return RoundPlan(
            self.method,
            rounds_of(self.sync_period),
            self.num_steps,
            float(self.step_size),
            self.schedule,
            None if isinstance(problem, MarkovNoise) else problem.discount,
        )

    def agent(self, agent: int) -> SimulatedAgent:
        """Agent number `agent` in its initial state."""
        if agent not in self._here:
            raise ProblemError(
                f"agent is {agent}, but this machine has only agents {_listed(self._here)}; "
                "choose one of them."
            )
        return SimulatedAgent(
            self._simulated,
            self.algorithm,
            step_size=self.step_size,
            seed=self.seed,
            agent=agent,
            sampling=self.sampling,
        )

    @property
    def _simulated(self) -> Federation | MarkovNoise:
        if isinstance(self.problem, Charter):
            raise ProblemError(
                "the experiment is a charter, which simulates no agent; give its nodes their data."
            )
        return self.problem

    def _group(self, agents: tuple[int, ...], data: Mapping[int, OwnData] | None) -> AgentGroup:
        """These agents in their initial states."""
        options: dict[str, Any] = {"step_size": self.step_size, "seed": self.seed}
        if isinstance(self.problem, Charter):
            lacking = [agent for agent in agents if agent not in (data or {})]
            if lacking:
                raise ProblemError(
                    f"agent {lacking[0]} has no data; name it under [data] in node.toml."
                )
            return RecordedAgents(self.problem, self.algorithm, data=data or {}, **options)
        return SimulatedAgents(
            self.problem, self.algorithm, agents=agents, sampling=self.sampling, **options
        )

    def node(
        self,
        agents: Iterable[int],
        state_dir: str | pathlib.Path,
        data: Mapping[int, OwnData] | None = None,
    ) -> Node:
        """A node with these agents, without the environments and policies of the others.

        Of a charter, `data` is what each of them reads.
        """
        part = self.only(agents)
        present, own = part.present or (), part.own_steps or ()
        group = part._group(present, data)
        rounds = LocalRounds(
            part.plan,
            part.seed,
            dict(zip(present, own, strict=False)),
            lambda: self.output_times,
            part.aggregate == "node",
        )
        return Node(
            self.fingerprint,
            present,
            group,
            state_dir,
            part.dimension,
            rounds,
        )

    @cached_property
    def output_times(self) -> tuple[int, ...]:
        """The output times that a server may ask for: those of the terms with and without truth."""
        if self.outputs is not None or self.present is not None:
            return self.outputs or ()
        found = set()
        for truth in (True, False):
            with contextlib.suppress(ProblemError):
                found.add(self.terms(truth).output_time)
        return tuple(sorted(found))

    def only(self, agents: Iterable[int]) -> Experiment:
        """The experiment with the environments and behaviour policies of these agents alone.

        Markov noise is not reduced, because its operators belong to the algorithm.
        """
        agents, problem = tuple(agents), self.problem
        if not agents:
            raise ProblemError("agents is empty; give at least one.")
        for agent in agents:
            if agent not in self._here:
                raise ProblemError(
                    f"agents has {agent}, but this experiment has agents {_listed(self._here)}; "
                    "choose among them."
                )
        part = {"agreed": self.fingerprint, "present": agents, "own_steps": self._own(agents)}
        if not isinstance(problem, Federation):
            return dataclasses.replace(self, **part)
        kinds, place = np.unique(problem.assignment[list(agents)], return_inverse=True)
        # Agents on other nodes get an arbitrary kind: they never run here.
        assignment = np.zeros(problem.num_agents, np.int64)
        assignment[list(agents)] = place
        policies = problem.behavior_policies
        own = Federation(
            [problem.mdps[kind] for kind in kinds] if len(problem.mdps) > 1 else problem.mdps,
            policies[kinds] if policies is not None and len(policies) > 1 else policies,
            num_agents=problem.num_agents,
            assignment=assignment,
            target_policy=problem.target_policy,
            features=problem.features,
            initial_distribution=problem.initial_distribution,
        )
        return dataclasses.replace(self, problem=own, **part)

    def _own(self, agents: Sequence[int]) -> tuple[tuple[int, float], ...] | None:
        """The local steps of some agents in a round, and the factors of their changes."""
        local_steps = self.method.local_steps
        if local_steps is None:
            return None
        if self.own_steps is not None:
            known = dict(zip(self._here, self.own_steps, strict=True))
            return tuple(known[agent] for agent in agents)
        kinds = self.problem.assignment
        steps, factors = local_steps.of_agents(kinds), local_steps.factors(kinds)
        return tuple((int(steps[agent]), float(factors[agent])) for agent in agents)

    def terms(self, truth: bool = True) -> Terms:
        """The terms for the server; with `truth` the fixed point is solved for, unless given."""
        if self.present is not None:
            raise ProblemError(
                "the experiment is the share of some agents, but terms need all agents: make the "
                "terms from the whole experiment."
            )
        arguments: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "step_size",
                "sync_period",
                "num_steps",
                "sampling",
                "initial_params",
                "record",
                "record_params",
                "method",
                "schedule",
            )
        }
        if not truth:
            # Zeros and this decay avoid solving for a fixed point and a norm.
            decay = self.output_decay or 1 - 1 / max(2, self.num_steps)
            arguments |= {"fixed_point": np.zeros_like(self.start), "output_decay": decay}
        else:
            arguments |= {"fixed_point": self.fixed_point, "output_decay": self.output_decay}
        job = prepare(
            self.problem, self.algorithm, seeds=(self.seed,), engine_name="federation", **arguments
        )
        settings, known = job.settings, job.truth
        if not truth:
            known = Truth(np.full_like(self.start, np.nan), known.norm)
            content = content_fingerprint(self.problem, self.algorithm, self.start)
            settings = dataclasses.replace(settings, fingerprint=content)
        settings = dataclasses.replace(
            settings,
            record=_at_synchronisations(settings),
            fingerprint=_salted(settings.fingerprint, self.salt),
        )
        return Terms(
            self.fingerprint,
            settings,
            self.start,
            known,
            int(job.output_times[0]),
            kinds=np.array(self.problem.assignment, np.int64),
            num_kinds=self.problem.num_kinds,
            method=self.method,
            schedule=self.schedule,
            discount=job.discount,
            reach=None
            if isinstance(self.problem, Charter)
            else reach_of(self.algorithm, self.problem, self.sampling),
            salt=self.salt,
            aggregate=self.aggregate,
        )


def new_salt() -> str:
    """Random text for `Experiment.salt`."""
    return secrets.token_hex(16)


def _salted(fingerprint: str, salt: str) -> str:
    return hashlib.sha256((salt + fingerprint).encode()).hexdigest() if salt else fingerprint


def _listed(agents: Sequence[int]) -> str:
    return f"0 to {agents[-1]}" if isinstance(agents, range) else ", ".join(map(str, agents))


def _at_synchronisations(settings: Settings) -> np.ndarray:
    """The recorded times, each moved to the synchronisation before it; the end stays."""
    inside = settings.record[settings.record < settings.num_steps]
    ends = settings.record[settings.record == settings.num_steps]
    rounds = settings.rounds
    return np.union1d(rounds.start(rounds.containing(inside)), ends)
