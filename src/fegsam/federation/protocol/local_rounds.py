"""The agents' side of a method: their local steps in a round, and what they report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fegsam.engines.agent import AgentGroup
from fegsam.engines.round_draws import reported
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.round_plan import RoundPlan
from fegsam.federation.protocol.wire import Request, Start


@dataclass(frozen=True, eq=False)
class Work:
    """The steps that a server asks some agents of a node for."""

    round: int
    stops: tuple[int, ...]
    start: np.ndarray
    """(1, d), or (2, d) with the mean of the agents' control variates"""
    agents: tuple[int, ...]
    corrections: np.ndarray | None = None
    """(m, d): of each agent, where the server keeps the control variates"""
    variates: np.ndarray | None = None
    """(m, d): of each agent, where agents keep them"""


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
    output_times: Callable[[], Collection[int]] = tuple
    """the times inside a round after which parameters may be asked for"""
    in_sums: bool = False
    """whether the node reports a sum over its agents"""

    @property
    def keeps_variates(self) -> bool:
        """Whether each agent keeps a control variate."""
        correction = None if self.plan is None else self.plan.method.correction
        return correction is not None and correction.of == "agent"

    @property
    def gets_corrections(self) -> bool:
        """Whether the server sends each agent its correction."""
        correction = None if self.plan is None else self.plan.method.correction
        return correction is not None and correction.of == "kind"

    def steps(self, agent: int, length: int) -> int:
        """The number of steps of an agent in a round of some length."""
        return min(length, self.own.get(agent, (length, 1.0))[0])

    def follow(self, group: AgentGroup, work: Work) -> tuple[np.ndarray, np.ndarray | None]:
        """Make the steps of a request.

        Returns
        -------
        (m, stops, d) array
            What each agent reports at each stop.
        (m, 2, d) array, optional
            The control variate of each, and the one that replaces it if the round counts.
        """
        corrections, variates = work.corrections, work.variates
        if variates is not None:
            corrections = work.start[1] - variates
        rows = self._steps(group, work, corrections)
        if self.plan is None or not self.plan.is_whole(work.round):
            return rows, None if variates is None else np.stack((variates, variates), axis=1)
        if variates is not None:
            assert corrections is not None
            total = self.plan.step_sizes(work.round, work.stops[-1]).sum()
            changes = rows[:, -1] - work.start[0]
            return rows, np.stack((variates, changes / total - corrections), axis=1)
        rounding = self.plan.method.rounding
        if self.own or rounding is not None:
            for row, agent in zip(rows, work.agents, strict=True):
                _, factor = self.own.get(agent, (0, 1.0))
                change = factor * (row[-1] - work.start[0])
                row[-1] = work.start[0] + reported(rounding, change, self.seed, agent, work.round)
        return rows, None

    def _steps(self, group: AgentGroup, work: Work, corrections: np.ndarray | None) -> np.ndarray:
        """(m, stops, d): the agents' parameters at each stop."""
        most = self._counts(work.agents, work.stops[-1])
        params = np.repeat(work.start[:1], len(work.agents), axis=0)
        sizes, done, rows = None, np.zeros_like(most), []
        if self.plan is not None and (self.plan.schedule is not None or corrections is not None):
            sizes = self.plan.step_sizes(work.round, work.stops[-1])
        before = 0
        for stop in work.stops:
            counts = np.minimum(stop, most) - done
            some = None if sizes is None else sizes[before:stop]
            params = group.local_steps(work.agents, params, counts, some, corrections)
            rows.append(params)
            done, before = done + counts, stop
        return np.stack(rows, axis=1)

    def _counts(self, agents: Sequence[int], length: int) -> np.ndarray:
        return np.array([self.steps(agent, length) for agent in agents], np.int64)

    def check(self, start: Start, request: Request) -> None:
        """Refuse what goes beyond the experiment's terms, before anything runs."""
        stops, count, plan = start.stops, len(request.agents), self.plan
        if not stops or 0 in stops or list(stops) != sorted(set(stops)):
            raise FederationError(f"The request has stops {stops[:3]}; they must increase from 1.")
        if (
            len(set(request.agents)) < count
            or len(request.times) != count
            or len(request.heard) != (count if self.keeps_variates else 0)
            or bool(request.corrections) != self.gets_corrections
        ):
            raise FederationError("The request does not say of each agent what this method needs.")
        if plan is None:
            return
        if request.round >= plan.count:
            raise FederationError(
                f"Round {request.round} was asked for, but the terms have {plan.count} rounds."
            )
        begin, end = plan.begin(request.round), plan.begin(request.round + 1)
        if stops[-1] != end - begin:
            raise FederationError(
                f"{stops[-1]} steps were asked for, but round {request.round} has {end - begin}."
            )
        if len(stops) > 1 and not {begin + stop for stop in stops[:-1]} <= set(self.output_times()):
            raise FederationError(
                f"Parameters after {len(stops) - 1} other steps of round {request.round} were "
                "asked for, but the terms name the output time alone."
            )
        if max(request.times, default=0) > begin:
            raise FederationError(
                f"{max(request.times)} samples are said to be used, but before round "
                f"{request.round} there are {begin}."
            )
