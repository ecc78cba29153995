"""One agent's side of a round: local steps of its rule, on the transitions that its stream reads.

`reference` and the deployed federation run agents through these protocols; `cpu` and `cuda` run
many agents at once in their own compiled code, and `tests/agreement` checks that the results agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    def local_steps(self, params: np.ndarray, count: int) -> np.ndarray:
        """Make the next `count` steps from `params` (d) and return the resulting parameters.

        A steps followed by B steps from their result equal A + B steps.
        """
        ...

    def save(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on, besides the parameters."""
        ...

    def restore(self, state: State) -> None:
        """Continue from what `save` returned."""
        ...


Steps = Callable[[np.ndarray, Path, int], int]
"""Make `count` steps on `params` along `rows`; return how many kept all parameters finite."""


S = TypeVar("S", bound=Stream)


class StreamAgent(Generic[S]):
    """An agent that applies a rule to the transitions of a stream.

    `steps` runs the rule; `at_once` is the number of steps whose windows are read together.
    """

    def __init__(self, stream: S, steps: Steps, dimension: int, at_once: int) -> None:
        self.stream = stream
        self._steps, self._dimension, self._at_once = steps, dimension, at_once
        self._rows = stream.rows(at_once)

    @property
    def time(self) -> int:
        return self.stream.time

    def local_steps(self, params: np.ndarray, count: int) -> np.ndarray:
        params = np.array(params, np.float64)
        if params.shape != (self._dimension,):
            raise ProblemError(
                f"params has shape {params.shape}; this agent has {self._dimension} parameters."
            )
        finite, left = True, count
        while left > 0:
            read = self.stream.read(self._rows, min(left, self._at_once))
            # Parameters that are no longer finite stay as they are, but time continues.
            finite = finite and self._steps(params, self._rows, read) == read
            left -= read
        return params

    def save(self) -> dict[str, np.ndarray]:
        return self.stream.save()

    def restore(self, state: State) -> None:
        self.stream.restore(state)
