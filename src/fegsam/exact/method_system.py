"""A problem, an algorithm and a method as input of the moment recursion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError
from fegsam.exact.fixed_points import common_point
from fegsam.exact.local_maps import LazyRound, LocalMaps, LocalState, UnequalRound, VaryingRound
from fegsam.exact.method_groups import AgentGroups, agent_groups, require_exact, waits
from fegsam.exact.method_hierarchy import MethodHierarchy, Seen
from fegsam.exact.method_round import Phase, ReportNoise
from fegsam.exact.moment_system import (
    MomentSystem,
    are_alike,
    first_params,
    linear_structure,
    step_maps_of,
)
from fegsam.exact.rounds import PathRound, RoundMaps, StepMeans
from fegsam.exact.server_state import RoundSteps, StateLayout
from fegsam.exact.shares import (
    Shares,
    attendance,
    is_uniform,
    mean_shares,
    shares,
    variate_shares,
)
from fegsam.exact.step_maps import StepMaps
from fegsam.exact.window_modes import window_mode_maps
from fegsam.methods.method import Method
from fegsam.methods.rounding import Rounding, SomeCells
from fegsam.problem.federation import Problem


@dataclass(frozen=True, eq=False)
class MethodSystem(MomentSystem):
    """The step maps of all groups of agents, and what the method does with their steps."""

    method: Method
    agents: AgentGroups
    server: StateLayout
    local: LocalState
    lazy: float | None
    """the probability with which an agent moves in a round, if it waits otherwise"""
    increments: np.ndarray | None
    """(G, d, d + 1): what each window adds to the parameters, if the windows are the modes"""
    shared: dict[Any, Any] = field(default_factory=dict)
    """results that rounds share"""

    def round_seconds(self, order: int, length: int) -> float:
        # Each term costs about as much as plain averaging, and more in large sets of agents.
        terms = len(self._shares(self._keeps_variates, False).terms())
        exchanges = 1 if self.increments is None else 2
        return (terms + exchanges - 1) * max(1, order) * super().round_seconds(order, length)

    def steps(self, step_size: float) -> StepMeans:
        return self._step_means(step_size, False)

    def _step_means(self, step_size: float, counted: bool) -> StepMeans:
        key = step_size, counted
        if key not in self.shared:
            maps, state = self._local_maps(counted), self.local
            self.shared[key] = StepMeans(maps, step_size, state.size, state.dimension)
        return self.shared[key]

    def _local_maps(self, counted: bool) -> StepMaps:
        if not (self.local.corrected or self.local.summed):
            return self.maps
        if counted not in self.shared:
            self.shared[counted] = LocalMaps(self.maps, self.local, counted)
        return self.shared[counted]

    def hierarchy(self, steps: StepMeans, length: int, order: int) -> MethodHierarchy:
        return self.round(RoundSteps.plain((steps.step_size,) * length), order)

    def round(self, plan: RoundSteps, order: int) -> MethodHierarchy:
        """The map of one round of the server's state."""
        self.require_memory(order)
        order = min(order, self.num_agents)
        phases = [] if self.increments is None else [self._first_exchange()]
        phases.append(self._last_exchange(plan, order))
        seen = self._seen(self._path(plan, order))
        return MethodHierarchy(phases, self.counts, order, self.local.dimension, seen)

    # --- The agents' steps ------------------------------------------------------------------------

    def _path(self, plan: RoundSteps, order: int) -> PathRound:
        if self.agents.steps is None:
            return self._path_of(plan, plan.length, order)
        own = np.minimum(self.agents.steps, plan.length)
        rounds = {int(k): self._path_of(plan, int(k), order) for k in np.unique(own)}
        return UnequalRound(rounds, own, plan.length)

    def _path_of(self, plan: RoundSteps, steps: int, order: int) -> PathRound:
        every = list(zip(plan.step_sizes[:steps], plan.counted[:steps], strict=True))
        if len(set(every)) == 1:
            return RoundMaps(self._step_means(*every[0]), steps, order)
        taken = [(self._local_maps(counted), step_size) for step_size, counted in every]
        return VaryingRound(self.maps, taken, self.local.size, self.local.dimension)

    @property
    def _sent(self) -> np.ndarray:
        """(d, Dz): reads the point at which the agents start, minus theta*."""
        rule = self.method.server
        ahead = rule.step * rule.momentum if rule.looks_ahead else 0.0
        return self.server.params + ahead * self.server.velocity

    def _corrections(self) -> np.ndarray:
        """(M, d, Dz): the correction of each group, from the control variates in z."""
        groups, server = self.agents.groups, self.server
        own = np.stack([server.variate(number) for number in range(server.variates)])
        return np.tensordot(groups.variate_weights(), own, 1) - own[groups.variate]

    def _lift(self) -> np.ndarray:
        """(G, Da, Dz): the state of an agent at the start of a round."""
        lift = np.zeros((self.modes, self.local.size, self.server.size))
        lift[:, : self.local.dimension] = self._sent
        lift[:, -1] = self.server.one
        if self.local.corrected:
            many = np.diff(self.maps.begin)
            correction = (
                self._own_corrections()
                if self._by_window
                else np.repeat(self._corrections(), many, axis=0)
            )
            lift[:, self.local.correction] = correction
        return lift

    @property
    def _by_window(self) -> bool:
        """Whether an agent's correction depends on its own first window."""
        correction = self.method.correction
        return self.increments is not None and correction is not None and correction.of == "agent"

    def _own_corrections(self) -> np.ndarray:
        """(G, d, Dz): gbar minus the agent's own first increment."""
        return self.server.variate(0) - self._first_increments()

    def _first_increments(self) -> np.ndarray:
        """(G, d, Dz): the increment of each window at the point that the server sends."""
        assert self.increments is not None
        return self.increments @ np.concatenate([self._sent, self.server.one])

    # --- The server -------------------------------------------------------------------------------

    def _first_exchange(self) -> Phase:
        """The agents report their first increments, and the server sends the control variates."""
        server, local, groups = self.server, self.local, self.agents.groups
        size, dim = server.size, local.dimension
        lift = np.zeros((self.modes, dim + 1, size))
        lift[:, :dim] = self._first_increments()
        lift[:, -1] = server.one
        kept = np.eye(size)
        for number in range(server.variates):
            kept -= server.variate(number).T @ server.variate(number)
        numbers = np.zeros_like(groups.variate) if self._by_window else groups.variate
        report = np.eye(dim, dim + 1)
        after = np.stack([server.variate(int(number)).T @ report for number in numbers])
        cases = attendance(groups, None, True)
        value = (
            mean_shares(groups, cases, True, True)
            if self._by_window
            else variate_shares(groups, cases)[0]
        )
        moments = shares(groups, cases, value[:, None], np.ones((1, 1)), True)
        path = VaryingRound(self.maps, [], dim + 1, dim)
        before = np.zeros((1, len(after), size, size))
        return Phase(path, lift, kept[None], after[None], before, moments)

    def _last_exchange(self, plan: RoundSteps, order: int) -> Phase:
        path, fixed, families = self._path(plan, order), [self._still(plan)], []
        if self.lazy is not None:
            path = LazyRound(path, self.lazy)
        families.append(self._moved(plan))
        keeps = self._keeps_variates and plan.is_whole
        if keeps:
            families.append(self._new_variates(plan))
            each = (self.server.variate(number) for number in range(self.server.variates))
            fixed += [one.T @ one for one in each]
        if any(plan.counted):
            self._require_sums()
            families.append(self._sums(plan))
        after, before = (np.stack(each) for each in zip(*families, strict=True))
        moments = self._shares(keeps, any(plan.counted))
        noise = self._noise(plan, moments) if plan.is_whole else None
        return Phase(path, self._lift(), np.stack(fixed), after, before, moments, noise)

    def _require_sums(self) -> None:
        if self.lazy is not None:
            raise ProblemError(
                "The averages within a round are over those who take part, which ties a tail over "
                "steps to the chains that wait; give Tail(..., over='syncs'), or "
                "Participation(others='go_on')."
            )

    @property
    def _keeps_variates(self) -> bool:
        return self.method.correction is not None and self.increments is None

    def _inject(self, plan: RoundSteps) -> np.ndarray:
        """(Dz, d): how z moves by the mean change."""
        server, step = self.server, self.method.server.step
        if not plan.is_whole:
            return np.zeros((server.size, self.local.dimension))
        end = step * server.total.T if plan.counts_end else 0.0
        return step * server.params.T + server.velocity.T + end

    def _still(self, plan: RoundSteps) -> np.ndarray:
        """(Dz, Dz): where z goes if no agent moves, without control variates."""
        server, rule = self.server, self.method.server
        within = plan.within() * server.total.T @ self._sent
        if not plan.is_whole:
            return np.eye(server.size) + within
        params = server.params + rule.step * rule.momentum * server.velocity
        whole = server.one.T @ server.one + server.params.T @ params + within
        whole += rule.momentum * server.velocity.T @ server.velocity
        whole += server.total.T @ server.total
        return whole + server.total.T @ params if plan.counts_end else whole

    def _moved(self, plan: RoundSteps) -> tuple[np.ndarray, np.ndarray]:
        """C and E of the reported changes."""
        inject = self.agents.factors[:, None, None] * self._inject(plan)
        return inject @ self.local.params, -inject @ self._sent

    def _new_variates(self, plan: RoundSteps) -> tuple[np.ndarray, np.ndarray]:
        """C and E of the new control variates: the mean increment without the correction."""
        variate = self.agents.groups.variate
        inject = np.stack([self.server.variate(int(number)).T for number in variate])
        time = sum(plan.step_sizes)
        return (
            inject @ self.local.params / time,
            -inject @ (self._sent / time + self._corrections()),
        )

    def _sums(self, plan: RoundSteps) -> tuple[np.ndarray, np.ndarray]:
        """C and E of the sum of the agents' changes over the counted times of a round."""
        groups, read = len(self.counts), self.local.params
        own = self.agents.steps
        own = np.full(groups, plan.length) if own is None else np.minimum(own, plan.length)
        # An agent that has made its steps stands still, and a synchronisation ends its sum.
        rest = np.array(
            [
                plan.within(steps) - sum(plan.counted[plan.length - plan.is_whole : steps])
                for steps in own.tolist()
            ]
        )
        total = np.eye(self.local.size)[self.local.total]
        after = self.server.total.T @ (total + rest[:, None, None] * read)
        before = -plan.within() * self.server.total.T @ self._sent
        return after, np.broadcast_to(before, (groups, *before.shape))

    # --- Who takes part ---------------------------------------------------------------------------

    def _shares(self, variates: bool, summed: bool) -> Shares:
        """The moments of the shares in the changes, the control variates and the sums."""
        groups = self.agents.groups
        some = None if self.lazy is not None else self.method.participation
        by_group = some is None or variates or not is_uniform(groups)
        cases = attendance(groups, some, by_group)
        divided = some is None or some.divide_by == "answered"
        values = [mean_shares(groups, cases, divided, by_group)]
        fixed = [np.ones((len(cases.probability), 1))]
        if variates:
            share, nobody = variate_shares(groups, cases)
            values.append(share)
            fixed.append(nobody)
        if summed:
            values.append(mean_shares(groups, cases, True, by_group))
        return shares(
            groups, cases, np.stack(values, axis=1), np.concatenate(fixed, axis=1), by_group
        )

    def _seen(self, path: PathRound) -> Seen:
        """The shares of the participants in the average within a round."""
        groups, some = self.agents.groups, self.method.participation
        by_group = some is None or not is_uniform(groups)
        cases = attendance(groups, some, by_group)
        values = mean_shares(groups, cases, True, by_group)[:, None]
        found = shares(groups, cases, values, np.ones((len(values), 1)), by_group)
        agents = float(self.num_agents)
        return Seen(
            path,
            self._sent,
            self.local.params,
            found.mean[1:] / agents,
            found.same[:, 1, 1] / agents**2,
            found.pair[1:, 1:] / agents**2,
        )

    def _noise(self, plan: RoundSteps, moments: Shares) -> ReportNoise | None:
        rounding, dim = self.method.rounding, self.local.dimension
        if rounding is None:
            return None
        excess, variance = np.zeros((dim, dim)), 0.0
        if isinstance(rounding, SomeCells):
            excess[:] = dim * (rounding.count - 1) / (rounding.count * max(dim - 1, 1))
            np.fill_diagonal(excess, dim / rounding.count)
            excess -= 1.0
        if isinstance(rounding, Rounding):
            variance = rounding.step**2 / 12.0
        place = moments.fixed
        return ReportNoise(
            self._inject(plan),
            self._sent,
            self.local.params,
            excess,
            variance,
            moments.same[:, place, place],
            self.agents.factors,
        )


def method_system(
    problem: Problem,
    algorithm: Algorithm,
    method: Method,
    initial_params: ArrayLike | None,
    sampling: str,
    with_sum: bool = False,
) -> MethodSystem:
    """The moment recursion of a method; `with_sum` keeps the sum of a tail average."""
    structure = linear_structure(problem, algorithm, sampling)
    method = _with_all(method, problem.num_agents)
    require_exact(method, problem.num_agents, sampling)
    root = common_point(problem, algorithm, method)
    agents = agent_groups(problem, method, are_alike(problem, algorithm, structure))
    variates, increments = method.correction, None
    if variates is not None and variates.source == "first_step":
        maps = window_mode_maps(problem, algorithm, structure, agents.kinds, root, sampling)
        increments = maps.increments[:, :-1]
    else:
        maps = step_maps_of(problem, algorithm, structure, agents.kinds, root, sampling)
    number = 0
    if variates is not None:
        alone = increments is not None and variates.of == "agent"
        number = 1 if alone else agents.groups.num_variates
    server = StateLayout(len(root), method.server.momentum > 0, number, with_sum)
    local = LocalState(len(root), variates is not None, with_sum)
    start = np.zeros(server.size - 1)
    start[: len(root)] = first_params(initial_params, root) - root
    counts = agents.groups.counts.astype(np.int64)
    lazy = None
    if waits(method, sampling):
        assert method.participation is not None
        lazy = method.participation.probability
    return MethodSystem(maps, counts, root, start, method, agents, server, local, lazy, increments)


def _with_all(method: Method, num_agents: int) -> Method:
    """The same method without a participation that asks for all agents."""
    some = method.participation
    if some is None or some.agents != num_agents:
        return method
    return Method(
        method.average,
        method.correction,
        method.server,
        None,
        method.rounding,
        method.local_steps,
    )
