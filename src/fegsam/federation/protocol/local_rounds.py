"""An agent's side of a method: its local steps in a round, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fegsam.engines.agent import Agent
from fegsam.engines.round_draws import reported
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.round_plan import RoundPlan
from fegsam.federation.protocol.wire import Request


@dataclass(frozen=True, eq=False)
class LocalRounds:
    """How the agents of a node make their rounds; without a plan, as in plain averaging.

    The last row that an agent reports in a whole round is the point where it started plus its
    change as the method reports it: scaled, rounded, or as it is. All other rows are measurements
    of its parameters.
    """

    plan: RoundPlan | None = None
    seed: int = 0
    own: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    """with unequal local steps: the steps of each agent in a round, and the factor of its change"""

    @property
    def keeps_variates(self) -> bool:
        """Whether each agent keeps a control variate."""
        correction = None if self.plan is None else self.plan.method.correction
        return correction is not None and correction.of == "agent"

    def steps(self, agent: int, request: Request) -> int:
        """The number of steps of an agent in the round of a request."""
        return min(request.stops[-1], self.own.get(agent, (request.stops[-1], 1.0))[0])

    def follow(
        self, agent: int, actor: Agent, request: Request, variate: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Make the steps of a request.

        Parameters
        ----------
        variate : (d,) array, optional
            The agent's control variate, where it keeps one.

        Returns
        -------
        (stops, d) array
            What the agent reports at each stop.
        (2, d) array, optional
            Its control variate, and the one that replaces it if the round counts.
        """
        correction = self._correction(agent, request, variate)
        rows = self._steps(agent, actor, request, correction)
        if self.plan is None or not self.plan.is_whole(request.round):
            return rows, None if variate is None else np.array([variate, variate])
        change = rows[-1] - request.params[0]
        if variate is not None:
            assert correction is not None
            total = self.plan.step_sizes(request.round, request.stops[-1]).sum()
            return rows, np.array([variate, change / total - correction])
        if self.own or self.plan.method.rounding is not None:
            _, factor = self.own.get(agent, (0, 1.0))
            rounding = self.plan.method.rounding
            change = reported(rounding, factor * change, self.seed, agent, request.round)
            rows[-1] = request.params[0] + change
        return rows, None

    def _steps(
        self, agent: int, actor: Agent, request: Request, correction: np.ndarray | None
    ) -> np.ndarray:
        """(stops, d): the agent's parameters at each stop."""
        params, done, rows, most = request.params[0], 0, [], self.steps(agent, request)
        sizes = None
        if self.plan is not None and (self.plan.schedule is not None or correction is not None):
            sizes = self.plan.step_sizes(request.round, most)
        for stop in (min(stop, most) for stop in request.stops):
            if sizes is None:
                params = actor.local_steps(params, stop - done)
            else:
                params = actor.local_steps(params, stop - done, sizes[done:stop], correction)
            rows.append(params)
            done = stop
        return np.array(rows)

    def _correction(
        self, agent: int, request: Request, variate: np.ndarray | None
    ) -> np.ndarray | None:
        """(d): what the agent adds to each of its steps."""
        if len(request.params) == 1:
            return None
        # Beside the parameters stands gbar where agents keep their g, else the correction itself.
        row = request.variate(agent)
        return row.copy() if variate is None else row - variate

    def check(self, request: Request) -> None:
        """Refuse a request that makes no round."""
        corrected = self.plan is not None and self.plan.method.correction is not None
        rows = (2, 1 + len(request.agents)) if corrected else (1,)
        if (
            not request.stops
            or 0 in request.stops
            or list(request.stops) != sorted(set(request.stops))
            or len(request.params) not in rows
            or len(request.heard) != (len(request.agents) if self.keeps_variates else 0)
        ):
            raise FederationError(
                f"The request has stops {request.stops}, {len(request.params)} rows of parameters "
                f"and {len(request.heard)} rounds that were heard; give increasing stops and the "
                "rows of this experiment."
            )
