"""One agent by itself, compiled: its stream and its local steps, as the `cpu` engine makes them.

What the `cpu` engine does for many agents in lockstep, for an agent that lives on a machine of its
own: the same rule, the same write, the same random numbers.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.rule import Algorithm, Path, check_part, require_fixed_policies
from fegsam.compilation import compiled, explained, renewed, rule_key
from fegsam.engines.agent import State, StreamAgent
from fegsam.engines.cpu.memory import StepLog, StepRange, Trace, Write
from fegsam.engines.cpu.sampling import (
    Draw,
    draw_windows,
    enter,
    extend,
    first_states,
    make_tile,
)
from fegsam.engines.cpu.steps import make_steps
from fegsam.engines.job import (
    Agents,
    Chain,
    Sampling,
    check_sampling,
    check_seeds,
    lower_agents,
    lower_chain,
)
from fegsam.errors import ProblemError
from fegsam.problem.chains import check_chains
from fegsam.problem.checks import integer, positive
from fegsam.problem.federation import Problem

STEPS_AT_ONCE = 1 << 12
"""Steps whose path is drawn ahead of the updates."""


class CompiledStream:
    """The transitions of agent `agent` under `seed`, for a rule that looks at `window` of them."""

    def __init__(
        self, chain: Chain, agents: Agents, sampling: Sampling, window: int, seed: int, agent: int
    ) -> None:
        self._chain, self._agents, self._agent = chain, agents, agent
        self._iid, self._window, self._seed = sampling == "iid", window, np.uint64(seed)
        self._ahead = max(window, 1)
        self._tile = make_tile(1, self._ahead)
        self._time = 0
        # The window of the next step as far as it is known: n states and the actions between them.
        self._states = np.zeros(self._ahead, np.uint32)
        self._actions = np.zeros(self._ahead - 1, np.uint32)
        enter(self._tile, chain, agents, agent, 1)
        first_states(chain, self._seed, agent, 1, self._states)
        self._tile.states[0, 0] = self._states[0]
        extend(self._tile, chain, Draw(self._seed, agent, 1, 0, self._ahead - 1), 1)
        self._states[:] = self._tile.states[0]
        self._actions[:] = self._tile.actions[0, : self._ahead - 1]

    @property
    def time(self) -> int:
        return self._time

    @property
    def stride(self) -> int:
        return self._window + 1 if self._iid else 1

    def rows(self, steps: int) -> Path:
        states, actions = np.zeros((2, steps * self.stride + self._ahead), np.uint32)
        kind = self._agents.kinds[self._agent]
        places = np.uint64(self._agents.mdps[kind]), np.uint64(self._agents.policies[kind])
        return Path(states, actions, np.uint64(kind), *places)

    def read(self, rows: Path, count: int) -> int:
        tile = self._tile._replace(
            states=rows.states[None],
            actions=rows.actions[None],
            flat_states=rows.states,
            flat_actions=rows.actions,
        )
        draw = Draw(self._seed, self._agent, 1, self._time, count)
        if self._iid:
            draw_windows(tile, self._chain, self._agents, draw, self._window)
        else:
            ahead = self._ahead
            rows.states[:ahead], rows.actions[: ahead - 1] = self._states, self._actions
            extend(tile, self._chain, draw, ahead)
            self._states[:] = rows.states[count : count + ahead]
            self._actions[:] = rows.actions[count : count + ahead - 1]
        self._time += count
        return count

    def save(self) -> dict[str, np.ndarray]:
        return {
            "time": np.array(self._time, np.int64),
            "states": self._states.copy(),
            "actions": self._actions.copy(),
        }

    def restore(self, state: State) -> None:
        for name, value in self.save().items():
            found = state.get(name)
            if found is None or found.dtype != value.dtype or found.shape != value.shape:
                raise ProblemError(
                    f"The state of agent {self._agent} has no fitting {name!r}; "
                    "it is of another algorithm."
                )
        self._time = int(state["time"])
        self._states[:], self._actions[:] = state["states"], state["actions"]


class SimulatedAgent(StreamAgent[CompiledStream]):
    """Agent `agent` of ``fegsam.run(problem, algorithm, step_size=...)`` under `seed`.

    Only the environment and the policy of its own kind are looked at, so `problem` may leave out
    the other agents'.

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
        check_part(algorithm, problem)
        require_fixed_policies(algorithm, "an agent of a federation draws its path without them")
        check_seeds((seed,))
        check_sampling(sampling)
        policies = algorithm.policies(problem)
        check_chains(problem, policies)
        if integer(agent, "agent", least=-1) not in range(problem.num_agents):
            raise ProblemError(f"agent is {agent}; there are agents 0 to {problem.num_agents - 1}.")
        size = positive(step_size, "step_size")
        chain, agents = lower_chain(problem, policies, sampling), lower_agents(problem, policies)
        stream = CompiledStream(chain, agents, sampling, algorithm.window, seed, agent)
        tables, dimension = algorithm.tables(problem), algorithm.dimension(problem)
        run, stride = compiled_local_steps(algorithm.form, algorithm.rule), stream.stride
        out = np.zeros(dimension)
        nothing = StepLog(np.zeros(0, np.uint32), np.zeros(0), np.zeros(0))
        trace = Trace(Write(False, False, False), nothing, 0, out)

        def steps(
            params: np.ndarray, rows: Path, sizes: np.ndarray, correction: np.ndarray | None
        ) -> int:
            reach = StepRange(np.uint64(0), np.uint64(stride), len(sizes))
            scratch = _Scratch(params, out)
            with explained(algorithm.rule):
                if correction is None and (sizes == sizes[0]).all():
                    return run.equal(scratch, rows, tables, np.float64(sizes[0]), reach, trace)
                added = nothing.old if correction is None else correction
                return run.varied(scratch, rows, tables, sizes, reach, trace, added)

        super().__init__(stream, steps, dimension, size, STEPS_AT_ONCE)


class _Scratch(NamedTuple):
    params: np.ndarray
    out: np.ndarray
    """(d): what a dense rule fills"""


class _Loops(NamedTuple):
    """The compiled loops of one rule."""

    equal: Any
    """steps of one size"""
    varied: Any
    """steps of sizes of their own, each followed by a correction"""


def make_local_steps(form, rule, key):
    """The loops for one rule; `key` identifies the rule (see `compilation`)."""
    steps = make_steps(form, rule, key)

    @compiled(key=key)
    def local_steps(scratch, path, tables, step_size, reach, trace):
        """The steps `reach` on `scratch.params` along `path`; how many of them left it finite."""
        return steps(scratch, path, tables, step_size, reach, trace)

    @compiled(key=key)
    def varied_steps(scratch, path, tables, step_sizes, reach, trace, correction):
        """The same with the `step_sizes` (steps), and a `correction` (d), or (0) for none."""
        params, at = scratch.params, reach.at
        for k in range(reach.steps):
            once = StepRange(at, reach.stride, 1)
            if steps(scratch, path, tables, step_sizes[k], once, trace) == 0:
                return k
            for j in range(correction.shape[0]):
                params[j] += step_sizes[k] * correction[j]
            at += reach.stride
        return reach.steps

    return _Loops(local_steps, varied_steps)


_local_steps_of_rule: dict[Any, _Loops] = {}


def compiled_local_steps(form: str, rule: Any) -> _Loops:
    """The compiled loops for a rule; kept per process, since a rule may be compiled only once."""
    key = rule_key(rule)
    slot = (form, key if key is not None else rule)
    if slot not in _local_steps_of_rule:
        _local_steps_of_rule[slot] = make_local_steps(form, renewed(rule), key)
    return _local_steps_of_rule[slot]
