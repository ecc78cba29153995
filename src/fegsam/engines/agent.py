"""One agent's side of a round: local steps of its rule, on the transitions that its stream reads.

`reference` and the deployed federation run agents through these protocols; `cpu` and `cuda` run
many agents at once in their own compiled code, and `tests/agreement` checks that the results agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.errors import ProblemError

State = Mapping[str, np.ndarray]
"""What an agent or a stream needs in order to continue, as named arrays."""


class Stream(Protocol):
    """A source of an agent's transitions. It returns no transition twice."""

    @property
    def time(self) -> int:
        """The number of steps that have been read."""
        ...

    @property
    def stride(self) -> int:
        """The number of rows between the windows of two successive steps."""
        ...

    def rows(self, steps: int) -> Path:
        """A buffer for the windows of up to `steps` steps."""
        ...

    def read(self, rows: Path, count: int) -> int:
        """Write the windows of the next `count` steps to `rows`; return the number written."""
        ...

    def save(self) -> dict[str, np.ndarray]:
        """The position of the stream."""
        ...

    def restore(self, state: State) -> None:
        """Continue from what `save` returned."""
        ...


class Agent(Protocol):
    """Makes local steps from given parameters. No sample serves two steps."""

    @property
    def time(self) -> int:
        """The number of steps since its start."""
        ...

    def local_steps(
        self,
        params: np.ndarray,
        count: int,
        step_sizes: np.ndarray | None = None,
        correction: np.ndarray | None = None,
    ) -> np.ndarray:
        """Make the next `count` steps from `params` (d) and return the resulting parameters.

        A steps followed by B steps from their result equal A + B steps. The step sizes (count) are
        the agent's own constant one by default. A `correction` (d) is added to what the rule says
        at every step.
        """
        ...

    def direction(self, params: np.ndarray) -> np.ndarray:
        """(d): what the rule says at `params` for the next step, which is not made."""
        ...

    def save(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on, besides the parameters."""
        ...

    def restore(self, state: State) -> None:
        """Continue from what `save` returned."""
        ...


class AgentGroup(Protocol):
    """Agents on one machine, which make their steps together."""

    def time(self, agent: int) -> int:
        """The number of steps of an agent since its start."""
        ...

    def local_steps(
        self,
        agents: Sequence[int],
        params: np.ndarray,
        counts: np.ndarray,
        step_sizes: np.ndarray | None = None,
        corrections: np.ndarray | None = None,
    ) -> np.ndarray:
        """(m, d): what `Agent.local_steps` says for each of `agents`, from `params` (m, d)."""
        ...

    def skip(self, agent: int, count: int) -> None:
        """Let an agent move on by `count` steps that are not made."""
        ...

    def save(self, agent: int) -> dict[str, np.ndarray]:
        """Everything that an agent's next step depends on, besides the parameters."""
        ...

    def restore(self, agent: int, state: State) -> None:
        """Let an agent continue from what `save` returned."""
        ...


class SeparateAgents:
    """A group of agents that know nothing of each other; `make` makes each in its first state."""

    def __init__(self, make: Callable[[int], Agent]) -> None:
        self._make, self._made = make, dict[int, Agent]()

    def _agent(self, agent: int) -> Agent:
        if agent not in self._made:
            self._made[agent] = self._make(agent)
        return self._made[agent]

    def time(self, agent: int) -> int:
        return self._agent(agent).time

    def local_steps(
        self,
        agents: Sequence[int],
        params: np.ndarray,
        counts: np.ndarray,
        step_sizes: np.ndarray | None = None,
        corrections: np.ndarray | None = None,
    ) -> np.ndarray:
        moved = []
        for row, agent in enumerate(agents):
            count, options = int(counts[row]), ()
            if step_sizes is not None or corrections is not None:
                sizes = None if step_sizes is None else step_sizes[:count]
                options = sizes, None if corrections is None else corrections[row]
            moved.append(self._agent(agent).local_steps(params[row], count, *options))
        return np.array(moved)

    def skip(self, agent: int, count: int) -> None:
        raise ProblemError(
            f"Agent {agent} is {count} steps behind, which it cannot skip; restore its newest "
            "state."
        )

    def save(self, agent: int) -> dict[str, np.ndarray]:
        return self._agent(agent).save()

    def restore(self, agent: int, state: State) -> None:
        self._agent(agent).restore(state)


Steps = Callable[[np.ndarray, Path, np.ndarray, np.ndarray | None], int]
"""Make a step on `params` along `rows` for each step size, with a correction or none; return how
many kept all parameters finite."""


S = TypeVar("S", bound=Stream)


class StreamAgent(Generic[S]):
    """An agent that applies a rule to the transitions of a stream.

    `steps` runs the rule; `at_once` is the number of steps whose windows are read together.
    """

    def __init__(
        self, stream: S, steps: Steps, dimension: int, step_size: float, at_once: int
    ) -> None:
        self.stream = stream
        self._steps, self._dimension, self._at_once = steps, dimension, at_once
        self._step_size = step_size
        self._rows = stream.rows(at_once)

    @property
    def time(self) -> int:
        return self.stream.time

    def local_steps(
        self,
        params: np.ndarray,
        count: int,
        step_sizes: np.ndarray | None = None,
        correction: np.ndarray | None = None,
    ) -> np.ndarray:
        params = np.array(params, np.float64)
        if params.shape != (self._dimension,):
            raise ProblemError(
                f"params has shape {params.shape}; this agent has {self._dimension} parameters."
            )
        sizes = np.full(count, self._step_size) if step_sizes is None else step_sizes
        finite, done = True, 0
        while done < count:
            read = self.stream.read(self._rows, min(count - done, self._at_once))
            # Parameters that are no longer finite stay as they are, but time continues.
            now = sizes[done : done + read]
            finite = finite and self._steps(params, self._rows, now, correction) == read
            done += read
        return params

    def direction(self, params: np.ndarray) -> np.ndarray:
        place = self.stream.save()
        moved = self.local_steps(params, 1, np.ones(1))
        self.stream.restore(place)
        return moved - params

    def skip(self, count: int) -> None:
        """Let the stream move on by `count` steps that are not made."""
        while count > 0:
            count -= self.stream.read(self._rows, min(count, self._at_once))

    def save(self) -> dict[str, np.ndarray]:
        return self.stream.save()

    def restore(self, state: State) -> None:
        self.stream.restore(state)
