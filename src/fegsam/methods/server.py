"""How the server moves its parameters by the change of a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import flag, positive


@dataclass(frozen=True)
class Server:
    """A step size and a momentum at the server; plain averaging has 1 and 0.

    With the round's change D, the velocity becomes ``v <- momentum v + D`` and the parameters
    ``x <- x + step v``. With `nesterov` the agents start a round at the look-ahead point
    ``x + step momentum v`` instead of x.

    Examples
    --------
    >>> import numpy as np
    >>> server = Server(step=0.5, momentum=0.9)
    >>> server.update(np.zeros(1), np.ones(1), np.full(1, 2.0))
    (array([1.45]), array([2.9]))
    """

    step: float = 1.0
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", positive(self.step, "step"))
        momentum = self.momentum
        is_number = isinstance(momentum, int | float | np.integer | np.floating)
        if not is_number or isinstance(momentum, bool) or not 0 <= momentum < 1:
            raise ProblemError(
                f"momentum is {shown(momentum)}; give a number of at least 0 and below 1."
            )
        # The sum turns -0.0 into 0.0: equal servers have one form.
        object.__setattr__(self, "momentum", float(momentum) + 0.0)
        object.__setattr__(self, "nesterov", flag(self.nesterov, "nesterov"))

    def update(
        self, params: np.ndarray, velocity: np.ndarray, change: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The parameters and the velocity after a round with the given change."""
        velocity = self.momentum * velocity + change
        return params + self.step * velocity, velocity

    def sent(self, params: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """The parameters at which the agents start the next round."""
        return params + self.step * self.momentum * velocity if self.looks_ahead else params

    @property
    def looks_ahead(self) -> bool:
        """Whether agents start a round at the look-ahead point."""
        return self.nesterov and self.momentum > 0
