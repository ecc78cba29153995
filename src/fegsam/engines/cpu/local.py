"""Agents on a machine of their own, compiled: their paths and local steps, as `cpu` makes them.

What the `cpu` engine does for all agents in lockstep, for agents that live on a node of a
federation: the same rule, the same write, the same random numbers. All steps of all agents of a
request are one compiled call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fegsam.algorithms.rule import Algorithm, check_part, require_fixed_policies
from fegsam.compilation import explained
from fegsam.engines.agent import State
from fegsam.engines.cpu.local_loops import (
    PathSource,
    Positions,
    Todo,
    compiled_local_steps,
    read_path,
)
from fegsam.engines.cpu.memory import StepLog, Trace, Write
from fegsam.engines.cpu.sampling import first_states, make_tile
from fegsam.engines.job import Sampling, check_sampling, check_seeds, lower_agents, lower_chain
from fegsam.errors import ProblemError
from fegsam.problem.chains import check_chains
from fegsam.problem.checks import integer, positive
from fegsam.problem.federation import Problem

STEPS_AT_ONCE = 1 << 12
"""Steps whose path is drawn ahead of the updates."""


class SimulatedAgents:
    """Agents of ``fegsam.run(problem, algorithm, step_size=...)`` under `seed`, together.

    Only the environments and policies of their own kinds are looked at, so `problem` may leave out
    the other agents'.

    Examples
    --------
    >>> import numpy as np
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> both = SimulatedAgents(fed, fg.QLearning(), step_size=0.1, seed=0, agents=[1, 3])
    >>> moved = both.local_steps([3], np.zeros((1, 4)), np.array([50]))
    >>> alone = SimulatedAgent(fed, fg.QLearning(), step_size=0.1, seed=0, agent=3)
    >>> bool((moved[0] == alone.local_steps(np.zeros(4), 50)).all()), both.time(3), both.time(1)
    (True, 50, 0)
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        *,
        step_size: float,
        seed: int,
        agents: Sequence[int],
        sampling: Sampling = "markov",
    ) -> None:
        check_part(algorithm, problem)
        require_fixed_policies(algorithm, "an agent of a federation draws its path without them")
        check_seeds((seed,))
        check_sampling(sampling)
        policies = algorithm.policies(problem)
        check_chains(problem, policies)
        for agent in agents:
            if integer(agent, "agent", least=-1) not in range(problem.num_agents):
                raise ProblemError(
                    f"agent is {agent}; there are agents 0 to {problem.num_agents - 1}."
                )
        self._step_size = positive(step_size, "step_size")
        self._rule, self._tables = algorithm.rule, algorithm.tables(problem)
        self._dimension = algorithm.dimension(problem)
        self._run = compiled_local_steps(algorithm.form, algorithm.rule)
        window, ahead, count = algorithm.window, max(algorithm.window, 1), len(agents)
        stride = window + 1 if sampling == "iid" else 1
        self._at_once = STEPS_AT_ONCE
        self._source = PathSource(
            lower_chain(problem, policies, sampling),
            lower_agents(problem, policies),
            np.uint64(seed),
            sampling == "iid",
            window,
            make_tile(1, self._at_once * stride + ahead),
        )
        self._places = {agent: place for place, agent in enumerate(agents)}
        states = np.zeros((count, ahead), np.uint32)
        self._positions = Positions(
            np.array(agents, np.int64),
            np.zeros(count, np.int64),
            states,
            np.zeros((count, ahead - 1), np.uint32),
        )
        for place, agent in enumerate(agents):
            first_states(self._source.chain, self._source.seed, agent, 1, states[place])
            if sampling == "markov":
                read_path(self._positions, self._source, place, 1, ahead - 1)
        self._out = np.zeros(self._dimension)
        nothing = StepLog(np.zeros(0, np.uint32), np.zeros(0), np.zeros(0))
        self._trace = Trace(Write(False, False, False), nothing, 0, self._out)

    def time(self, agent: int) -> int:
        """The number of steps of an agent since its start."""
        return int(self._positions.times[self._places[agent]])

    def local_steps(
        self,
        agents: Sequence[int],
        params: np.ndarray,
        counts: np.ndarray,
        step_sizes: np.ndarray | None = None,
        corrections: np.ndarray | None = None,
    ) -> np.ndarray:
        """(m, d): make the next `counts` (m) steps of some agents from `params` (m, d).

        The step sizes (of the longest) are the constant one by default. The `corrections` (m, d)
        are added to what the rule says at every step.
        """
        params = np.array(params, np.float64)
        if params.shape != (len(agents), self._dimension):
            raise ProblemError(
                f"params has shape {params.shape[1:]}; this agent has {self._dimension} parameters."
            )
        places = np.array([self._places[agent] for agent in agents], np.int64)
        todo = Todo(places, np.asarray(counts, np.int64), params, self._out, self._at_once)
        with explained(self._rule):
            if corrections is None and (step_sizes is None or len(np.unique(step_sizes)) < 2):
                size = self._step_size if step_sizes is None else step_sizes.max(initial=0.0)
                self._run.equal(
                    self._positions, self._source, self._tables, todo, np.float64(size), self._trace
                )
                return params
            if corrections is None:
                corrections = np.zeros((len(agents), 0))
            if step_sizes is None:
                step_sizes = np.full(int(todo.counts.max()), self._step_size)
            self._run.varied(
                self._positions,
                self._source,
                self._tables,
                todo,
                np.asarray(step_sizes, np.float64),
                corrections,
                self._trace,
            )
        return params

    def skip(self, agent: int, count: int) -> None:
        """Let an agent's path move on by `count` steps that are not made."""
        place, ahead = self._places[agent], self._positions.states.shape[1]
        while count > 0:
            some = min(count, self._at_once)
            read_path(self._positions, self._source, place, ahead, some)
            self._positions.times[place] += some
            count -= some

    def save(self, agent: int) -> dict[str, np.ndarray]:
        """The position of an agent's path."""
        place, at = self._places[agent], self._positions
        return {
            "time": at.times[place].copy(),
            "states": at.states[place].copy(),
            "actions": at.actions[place].copy(),
        }

    def restore(self, agent: int, state: State) -> None:
        """Continue from what `save` returned."""
        for name, value in self.save(agent).items():
            found = state.get(name)
            if found is None or found.dtype != value.dtype or found.shape != value.shape:
                raise ProblemError(
                    f"The state of agent {agent} has no fitting {name!r}; it is of another "
                    "algorithm."
                )
        place, at = self._places[agent], self._positions
        at.times[place] = state["time"]
        at.states[place], at.actions[place] = state["states"], state["actions"]


class SimulatedAgent:
    """Agent `agent` of ``fegsam.run(problem, algorithm, step_size=...)`` under `seed`.

    Examples
    --------
    >>> import numpy as np
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> agent = SimulatedAgent(fed, fg.QLearning(), step_size=0.1, seed=0, agent=3)
    >>> halfway = agent.save()
    >>> params = agent.local_steps(np.zeros(4), 50)
    >>> agent.restore(halfway)
    >>> bool((params == agent.local_steps(np.zeros(4), 50)).all()), agent.time
    (True, 50)
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        *,
        step_size: float,
        seed: int,
        agent: int,
        sampling: Sampling = "markov",
    ) -> None:
        self._agent = agent
        self._alone = SimulatedAgents(
            problem, algorithm, step_size=step_size, seed=seed, agents=(agent,), sampling=sampling
        )

    @property
    def time(self) -> int:
        return self._alone.time(self._agent)

    def local_steps(
        self,
        params: np.ndarray,
        count: int,
        step_sizes: np.ndarray | None = None,
        correction: np.ndarray | None = None,
    ) -> np.ndarray:
        """Make the next `count` steps, as `Agent.local_steps` says."""
        corrections = None if correction is None else correction[None]
        row, counts = np.asarray(params)[None], np.array([count])
        return self._alone.local_steps((self._agent,), row, counts, step_sizes, corrections)[0]

    def direction(self, params: np.ndarray) -> np.ndarray:
        """(d): what the rule says at `params` for the next step, which is not made."""
        place = self.save()
        moved = self.local_steps(params, 1, np.ones(1))
        self.restore(place)
        return moved - params

    def save(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on, besides the parameters."""
        return self._alone.save(self._agent)

    def restore(self, state: State) -> None:
        """Continue from what `save` returned."""
        self._alone.restore(self._agent, state)
