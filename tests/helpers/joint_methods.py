"""Exact moments of a run of very few agents under a method: the oracle for `fegsam.exact`.

As in `joint_chain`, the moments E[X X' 1{z^1, ..., z^N}] of one long vector X are mapped from step
to step, one (D, D) matrix for each joint mode. X holds everything, in blocks of d numbers:

    x - theta*, v, S (the sum for a tail average), and for each agent i: theta_i - theta*,
    its increment F_i, its correction c_i, its reported change, its control variate g_i,

and the constant 1 at the end. Who takes part, and which cells are sent, is summed over all cases.
No code is shared with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from helpers.joint_chain import agent_of


@dataclass(frozen=True)
class MethodMoments:
    """At times 0..T, each after the synchronisation of that time."""

    mse: np.ndarray
    mean: np.ndarray
    sync_error: np.ndarray
    tail_mse: float
    tail_mean: np.ndarray


class Oracle:
    def __init__(
        self, problem: Any, algorithm: Any, method: Any, theta_star: Any, sampling: str
    ) -> None:
        self.problem, self.method = problem, method
        self.star = np.asarray(theta_star, dtype=float)
        self.N, self.d = problem.num_agents, len(self.star)
        self.D = (3 + 5 * self.N) * self.d + 1
        self.kinds = [int(kind) for kind in problem.assignment]
        every = [agent_of(problem, algorithm, k, sampling) for k in range(problem.num_kinds)]
        self.agents = [every[kind] for kind in self.kinds]
        weights = method.average.weights
        if weights is None:
            self.weights = np.full(self.N, 1 / self.N)
        elif len(weights) == self.N:
            self.weights = np.array(weights)
        else:
            self.weights = np.array([weights[k] / self.kinds.count(k) for k in self.kinds])

    # --- Blocks of X ------------------------------------------------------------------------------

    def block(self, name: str, i: int = 0) -> np.ndarray:
        """(d, D): reads a block of X."""
        server = {"x": 0, "v": 1, "S": 2}
        own = {"theta": 0, "F": 1, "c": 2, "report": 3, "g": 4}
        place = server[name] if name in server else 3 + 5 * i + own[name]
        return np.eye(self.d, self.D, place * self.d)

    def put(self, changes: dict[tuple[str, int], np.ndarray]) -> np.ndarray:
        """(D, D): the identity, but for these blocks, which become the given functions of X."""
        matrix = np.eye(self.D)
        for (name, i), value in changes.items():
            target = self.block(name, i)
            matrix += target.T @ (value - target)
        return matrix

    @staticmethod
    def apply(matrix: np.ndarray, moments: np.ndarray) -> np.ndarray:
        return matrix @ moments @ matrix.T

    # --- The run ----------------------------------------------------------------------------------

    def run(
        self,
        step_size: Callable[[int], float],
        lengths: Sequence[int],
        num_steps: int,
        tail: float = 0.5,
        over: str = "steps",
        initial_params: Any = None,
    ) -> MethodMoments:
        self.step_size, self.over = step_size, over
        self.tail_begin = num_steps - round(tail * num_steps)
        self.rows: list[Any] = [None] * (num_steps + 1)
        start = np.zeros(self.d) if initial_params is None else np.asarray(initial_params)
        X = np.zeros(self.D)
        X[: self.d], X[-1] = start - self.star, 1.0
        moments = np.outer(X, X)
        for agent in reversed(self.agents):
            moments = np.multiply.outer(agent.first, moments)
        self.rows[0] = self.readings(moments, self.block("x"), [], [])
        time, number, counted = 0, 0, 0
        while time < num_steps:
            length = lengths[min(number, len(lengths) - 1)]
            moments = self.round(moments, time, length, num_steps)
            time, number = min(time + length, num_steps), number + 1
        begin, ends, t = self.tail_begin, [], 0
        for r in range(number):
            t += lengths[min(r, len(lengths) - 1)]
            ends.append(t)
        counted = (
            num_steps - begin if over == "steps" else sum(begin < e <= num_steps for e in ends)
        )
        whole = moments.sum(axis=tuple(range(self.N)))
        S = self.block("S")
        mse, mean, apart = zip(*self.rows, strict=True)
        return MethodMoments(
            np.array(mse),
            np.array(mean),
            np.array(apart),
            float(np.trace(S @ whole @ S.T)) / max(counted, 1) ** 2,
            self.star + S @ whole[:, -1] / max(counted, 1),
        )

    def participants(self) -> list[tuple[float, list[int]]]:
        """All cases of who takes part, with their chances."""
        some, everyone = self.method.participation, range(self.N)
        if some is None:
            return [(1.0, list(everyone))]
        if some.agents is not None:
            cases = list(combinations(everyone, some.agents))
            return [(1 / len(cases), list(case)) for case in cases]
        p = some.probability
        return [
            (p**m * (1 - p) ** (self.N - m), list(case))
            for m in range(self.N + 1)
            for case in combinations(everyone, m)
        ]

    def round(self, moments: np.ndarray, begin: int, length: int, last: int) -> np.ndarray:
        total = np.zeros_like(moments)
        rows: dict[int, list[Any]] = {}
        for chance, present in self.participants():
            after, read = self.round_of(moments, begin, length, last, present)
            total += chance * after
            for time, row in read.items():
                rows.setdefault(time, []).append([chance * np.asarray(each) for each in row])
        for time, parts in rows.items():
            self.rows[time] = tuple(sum(each) for each in zip(*parts, strict=True))
        # E avg is theta* plus the mean of the reading, in every case.
        return total

    def own_steps(self, i: int, length: int) -> int:
        local = self.method.local_steps
        return length if local is None else min(local.by_kind[self.kinds[i]], length)

    def round_of(
        self, moments: np.ndarray, begin: int, length: int, last: int, present: list[int]
    ) -> tuple[np.ndarray, dict[int, Any]]:
        """One round with these participants, and what is read in it."""
        server, some = self.method.server, self.method.participation
        ahead = server.step * server.momentum if server.nesterov else 0.0
        sent = self.block("x") + ahead * self.block("v")
        moments = self.apply(self.put({("theta", i): sent for i in range(self.N)}), moments)
        moments = self.apply(self.corrections(), moments)
        first_step = (
            self.method.correction is not None and self.method.correction.source == "first_step"
        )
        share = self.weights[present] / self.weights[present].sum() if present else []
        average = sent + sum(
            (s * (self.block("theta", i) - sent) for s, i in zip(share, present, strict=True)),
            np.zeros_like(sent),
        )
        go_on = some is not None and some.others == "go_on"
        movers = present if not go_on else range(self.N)
        rows = {}
        for step in range(min(length, last - begin)):
            alpha = self.step_size(begin + step)
            going = [i for i in movers if step < self.own_steps(i, length)]
            for i in going:
                moments = self.observe(moments, i)
            if first_step and step == 0:
                moments = self.apply(self.first_corrections(present), moments)
            moves = {
                ("theta", i): self.block("theta", i)
                + alpha * (self.block("F", i) + self.block("c", i))
                for i in going
                if i in present
            }
            moments = self.apply(self.put(moves), moments)
            time = begin + step + 1
            if step + 1 == length:
                moments = self.synchronise(moments, begin, length, present, sent)
                average, share, present = self.block("x"), [], []
                whole = True
            else:
                whole = False
            if time > self.tail_begin and (whole or self.over == "steps"):
                moments = self.apply(self.put({("S", 0): self.block("S") + average}), moments)
            rows[time] = self.readings(moments, average, list(share), present)
        return moments, rows

    def observe(self, moments: np.ndarray, i: int) -> np.ndarray:
        """Agent i passes along an edge; its block F becomes the increment of that window."""
        before = np.moveaxis(moments, i, 0)
        after = np.zeros_like(before)
        for edge in self.agents[i].edges:
            value = edge.matrix @ self.block("theta", i)
            value[:, -1] += edge.matrix @ self.star + edge.offset
            matrix = self.put({("F", i): value})
            after[edge.target] += edge.probability * self.apply(matrix, before[edge.source])
        return np.moveaxis(after, 0, i)

    def corrections(self) -> np.ndarray:
        """c_i from the control variates of earlier rounds."""
        if self.method.correction is None:
            return np.eye(self.D)
        g = [self.block("g", i) for i in range(self.N)]
        mean = sum(w * each for w, each in zip(self.weights, g, strict=True))
        return self.put({("c", i): mean - g[i] for i in range(self.N)})

    def first_corrections(self, present: list[int]) -> np.ndarray:
        share = self.weights / self.weights[present].sum()
        mean = sum(share[i] * self.block("F", i) for i in present)
        return self.put({("c", i): mean - self.own(i, "F", present) for i in present})

    def own(self, i: int, name: str, present: list[int]) -> np.ndarray:
        """Block i, or by kind the mean over the participants of the kind."""
        if self.method.correction.of == "agent":
            return self.block(name, i)
        alike = [j for j in present if self.kinds[j] == self.kinds[i]]
        total = self.weights[alike].sum()
        return sum((self.weights[j] / total) * self.block(name, j) for j in alike)

    def synchronise(
        self, moments: np.ndarray, begin: int, length: int, present: list[int], sent: np.ndarray
    ) -> np.ndarray:
        local, server, some = (
            self.method.local_steps,
            self.method.server,
            self.method.participation,
        )
        steps = [self.own_steps(i, length) for i in range(self.N)]
        factor = [1.0] * self.N
        if local is not None and local.normalised:
            factor = [float(np.mean(steps)) / each for each in steps]
        changes = {i: self.block("theta", i) - sent for i in present}
        moments = self.apply(
            self.put({("report", i): factor[i] * changes[i] for i in present}), moments
        )
        for i in present:
            moments = self.rounded(moments, i)
        correction = self.method.correction
        updates: dict[tuple[str, int], np.ndarray] = {}
        if correction is not None and correction.source == "last_round":
            time = sum(self.step_size(t) for t in range(begin, begin + length))
            fresh = {i: changes[i] / time - self.block("c", i) for i in present}
            for i in range(self.N):
                alike = [j for j in present if self.kinds[j] == self.kinds[i]]
                if correction.of == "agent":
                    alike = [j for j in present if j == i]
                if alike:
                    total = self.weights[alike].sum()
                    updates["g", i] = sum((self.weights[j] / total) * fresh[j] for j in alike)
        scale = 1.0
        if present and (some is None or some.divide_by == "answered"):
            scale = 1 / self.weights[present].sum()
        mean = sum(
            (scale * self.weights[i] * self.block("report", i) for i in present),
            np.zeros_like(sent),
        )
        updates["v", 0] = server.momentum * self.block("v") + mean
        updates["x", 0] = self.block("x") + server.step * updates["v", 0]
        return self.apply(self.put(updates), moments)

    def rounded(self, moments: np.ndarray, i: int) -> np.ndarray:
        rounding, report = self.method.rounding, self.block("report", i)
        if rounding is None:
            return moments
        if type(rounding).__name__ == "SomeCells":
            cases = list(combinations(range(self.d), rounding.count))
            total = np.zeros_like(moments)
            for cells in cases:
                mask = np.isin(np.arange(self.d), cells) * self.d / rounding.count
                matrix = self.put({("report", i): mask[:, None] * report})
                total += self.apply(matrix, moments) / len(cases)
            return total
        noise = rounding.step**2 / 12 * report.T @ report
        return moments + moments[..., -1:, -1:] * noise

    def readings(
        self, moments: np.ndarray, average: np.ndarray, share: list[float], present: list[int]
    ) -> tuple[float, np.ndarray, float]:
        whole = moments.sum(axis=tuple(range(self.N)))
        apart = 0.0
        for s, i in zip(share, present, strict=True):
            gap = self.block("theta", i) - average
            apart += s * float(np.trace(gap @ whole @ gap.T))
        return (
            float(np.trace(average @ whole @ average.T)),
            self.star + average @ whole[:, -1],
            apart,
        )
