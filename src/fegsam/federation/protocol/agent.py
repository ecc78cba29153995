"""An agent: who owns an environment, makes local steps on parameters that it is handed, and can be
put away and woken.

`Agent` is all that a node asks for. `SimulatedAgent` is agent i of the simulator: the rule of
`algorithms`, compiled as the `cpu` engine compiles it, on the random numbers that the engine draws
for agent i. An agent's path depends on the seed, on i and on its own environment and policy, so
agents can sit on any machines and the numbers stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.compilation import explained
from fegsam.engines.cpu.local import LocalAgent, LocalMemory, compiled_local_steps, first_window
from fegsam.engines.cpu.memory import ProblemArrays, StepLog
from fegsam.engines.cpu.sampling import make_tile
from fegsam.engines.plan import Sampling, check_sampling, check_seeds, lower_agents, lower_chain
from fegsam.errors import ProblemError
from fegsam.federation.errors import StateError
from fegsam.problem.chains import check_chains
from fegsam.problem.checks import integer, positive
from fegsam.problem.federation import Federation, MarkovNoise

_STEPS_PER_TILE = 1 << 12
"""Steps whose path is drawn ahead of the updates."""

Arrays = Mapping[str, np.ndarray]


class Agent(Protocol):
    """What a node asks of an agent. No sample may serve two steps, whatever happens between `save`
    and `restore`."""

    @property
    def time(self) -> int:
        """How many steps it has made since its start."""
        ...

    def local_steps(self, params: np.ndarray, count: int) -> np.ndarray:
        """Make the next `count` steps from `params` (d) and return where they led; `time` grows by
        `count`.

        Calls may be cut anywhere: a steps and then b from their result are a + b steps.
        """
        ...

    def save(self) -> dict[str, np.ndarray]:
        """All that the next step depends on besides the parameters."""
        ...

    def restore(self, state: Arrays) -> None:
        """Go on from what `save` gave."""
        ...


class SimulatedAgent:
    """Agent `agent` of ``fegsam.run(problem, algorithm, step_size=..., sampling=...)`` under
    `seed`.

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
        problem: Federation | MarkovNoise,
        algorithm: Algorithm,
        *,
        step_size: float,
        seed: int,
        agent: int,
        sampling: Sampling = "markov",
    ) -> None:
        algorithm.check(problem)
        check_seeds((seed,))
        check_sampling(sampling)
        check_chains(problem, algorithm.policies(problem))
        if integer(agent, "agent", least=-1) not in range(problem.num_agents):
            raise ProblemError(f"agent is {agent}; there are agents 0 to {problem.num_agents - 1}.")
        self._rule = algorithm.rule
        self._steps = compiled_local_steps(algorithm.form, algorithm.rule)
        self._problem = ProblemArrays(
            lower_chain(problem, algorithm, sampling),
            lower_agents(problem, algorithm),
            algorithm.tables(problem),
        )
        self._dimension, self._time = algorithm.dimension(problem), 0
        window, iid = algorithm.window, sampling == "iid"
        step_size = np.float64(positive(step_size, "step_size"))
        self._local = LocalAgent(np.uint64(seed), agent, window, iid, step_size)
        ahead = max(window, 1)
        self._memory = LocalMemory(
            tile=make_tile(1, _STEPS_PER_TILE * (window + 1 if iid else 1) + ahead + 1),
            states=np.zeros(ahead, np.uint32),
            actions=np.zeros(ahead - 1, np.uint32),
            log=StepLog(np.zeros(0, np.uint32), np.zeros(0), np.zeros(0)),
        )
        first_window(self._problem.chain, self._problem.agents, self._local, self._memory)

    @property
    def time(self) -> int:
        return self._time

    def local_steps(self, params: np.ndarray, count: int) -> np.ndarray:
        params = np.array(params, np.float64)
        if params.shape != (self._dimension,):
            raise ProblemError(
                f"params has shape {params.shape}; this agent has {self._dimension} parameters."
            )
        with explained(self._rule):
            out = np.zeros_like(params)
            self._steps(self._problem, self._local, self._memory, self._time, count, params, out)
        self._time += count
        return params

    def save(self) -> dict[str, np.ndarray]:
        return {
            "time": np.array(self._time, np.int64),
            "states": self._memory.states.copy(),
            "actions": self._memory.actions.copy(),
        }

    def restore(self, state: Arrays) -> None:
        now: dict[str, Any] = self.save()
        for name, value in now.items():
            found = state.get(name)
            if found is None or found.dtype != value.dtype or found.shape != value.shape:
                raise StateError(
                    f"The state of agent {self._local.agent} has no fitting {name!r}; it is of "
                    "another algorithm."
                )
        self._time = int(state["time"])
        self._memory.states[:], self._memory.actions[:] = state["states"], state["actions"]
