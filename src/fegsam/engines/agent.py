"""One agent's side of a round: local steps of its rule, on the transitions that its stream reads.

`reference` and the deployed federation run agents through these protocols; `cpu` and `cuda` run
many agents at once in compiled code of their own, which `tests/agreement` holds to the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.errors import ProblemError

State = Mapping[str, np.ndarray]
"""What an agent or a stream needs to go on, as named arrays."""


class Stream(Protocol):
    """Where an agent's transitions come from. It hands out no transition twice."""

    @property
    def time(self) -> int:
        """The number of steps that were read."""
        ...

    @property
    def stride(self) -> int:
        """The number of rows between the windows of two successive steps."""
        ...

    def rows(self, steps: int) -> Path:
        """Room for the windows of up to `steps` steps."""
        ...

    def read(self, rows: Path, count: int) -> int:
        """Write the windows of the next `count` steps to `rows`; return for how many there were."""
        ...

    def save(self) -> dict[str, np.ndarray]:
        """Where the stream stands."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `save` gave."""
        ...


class Agent(Protocol):
    """Makes local steps on the parameters that it is handed. No sample serves two steps."""

    @property
    def time(self) -> int:
        """The number of steps since its start."""
        ...

    def local_steps(self, params: np.ndarray, count: int) -> np.ndarray:
        """Make the next `count` steps from `params` (d) and return where they led.

        A steps, and then B steps from their result, are A + B steps.
        """
        ...

    def save(self) -> dict[str, np.ndarray]:
        """All that the next step depends on, besides the parameters."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `save` gave."""
        ...


Steps = Callable[[np.ndarray, Path, int], int]
"""Make `count` steps on `params` along `rows`; return how many left all parameters finite."""


S = TypeVar("S", bound=Stream)


class StreamAgent(Generic[S]):
    """An agent that updates its parameters by a rule, along a stream.

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
            # Parameters that left the finite numbers stay as they are, but time goes on.
            finite = finite and self._steps(params, self._rows, read) == read
            left -= read
        return params

    def save(self) -> dict[str, np.ndarray]:
        return self.stream.save()

    def restore(self, state: State) -> None:
        self.stream.restore(state)
