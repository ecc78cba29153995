"""A round under a method, as it acts on the server's state z.

Agent i starts its local state at ``u = L z`` and ends it at ``Phi u``, where Phi is the random
product of its steps. The server's next state is

    z' = sum_a nu_a A_a z + (1/N) sum_i sum_b sigma_bi (C_b Phi_i L + E_b) z,

where the shares nu and sigma depend on who takes part alone (`shares`). A `Phase` holds these
matrices. Its second moments split into terms with two different agents, each of which has the form
of plain averaging with ``T_i = a + c Phi_i L``, and into terms with one agent twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from fegsam.exact.packing import Packing
from fegsam.exact.rounds import PathRound
from fegsam.exact.shares import Shares
from fegsam.exact.step_maps import StepMaps

_NEGLIGIBLE = 1e-15


@dataclass(frozen=True, eq=False)
class ReportNoise:
    """What rounding adds to the second moments of the changes that agents report."""

    inject: np.ndarray
    """(Dz, d): how the server's state moves by the mean change"""
    read: np.ndarray
    """(d, Dz): the point at which the agents start"""
    report: np.ndarray
    """(d, Da): reads the parameters of an agent at the end of its steps"""
    excess: np.ndarray
    """(d, d): the factor of E[change change'], entry by entry, minus one"""
    variance: float
    """that of each entry, independent of the change"""
    squares: np.ndarray
    """(M,): the mean square of an agent's share in the mean change"""
    factors: np.ndarray
    """(M,): what multiplies the change before it is rounded"""


@dataclass(frozen=True, eq=False)
class Phase:
    """One exchange of the agents and the server, and the agents' steps before it."""

    path: PathRound
    lift: np.ndarray
    """(G, Da, Dz): L for each first mode"""
    fixed: np.ndarray
    """(a, Dz, Dz): A"""
    after: np.ndarray
    """(b, M, Dz, Da): C"""
    before: np.ndarray
    """(b, M, Dz, Dz): E"""
    shares: Shares
    noise: ReportNoise | None = None

    @property
    def size(self) -> int:
        return self.lift.shape[-1]

    @cached_property
    def kind(self) -> np.ndarray:
        """(G,): the group of each mode."""
        many = np.diff(self.path.maps.begin)
        return np.repeat(np.arange(len(many)), many)

    def terms(self) -> list[tuple[float, TermRound]]:
        """Factors, and rounds of plain averaging whose sum this phase is."""
        found = []
        for factor, vector in self.shares.terms():
            fixed, families = self.shares.by_group(vector)
            a = np.tensordot(fixed, self.fixed, 1) + np.einsum(
                "bm,bmij->mij", families, self.before
            )
            c = np.einsum("bm,bmij->mij", families, self.after)
            found.append((factor, TermRound(self, a, c, None if found else self.squares())))
        return found

    def squares(self) -> OneAgent:
        """The terms with one agent twice."""
        same, low = self.shares.same, self.shares.fixed
        values, vectors = np.linalg.eigh(same)
        kept = np.any(values > _NEGLIGIBLE * values.max(), axis=0)
        values, vectors = values[:, kept].T, np.moveaxis(vectors[:, :, kept], 2, 0)
        a = np.einsum("rma,aij->rmij", vectors[:, :, :low], self.fixed)
        a += np.einsum("rmb,bmij->rmij", vectors[:, :, low:], self.before)
        c = np.einsum("rmb,bmij->rmij", vectors[:, :, low:], self.after)
        return OneAgent(values, a, c, self.noise)


@dataclass(frozen=True, eq=False)
class OneAgent:
    """The map of z z' by the terms with one agent twice, for each group."""

    values: np.ndarray
    """(r, M)"""
    a: np.ndarray
    """(r, M, Dz, Dz)"""
    c: np.ndarray
    """(r, M, Dz, Da)"""
    noise: ReportNoise | None

    def __call__(
        self, still: np.ndarray, once: np.ndarray, twice: np.ndarray, group: np.ndarray
    ) -> np.ndarray:
        """The sum over the terms, from X, ``Phi L X`` and ``Phi L X L' Phi'``.

        All have the shape (n, q, ., .), and the first axis belongs to the groups `group` (n,).
        """
        total = np.zeros((*still.shape[:2], *self.a.shape[-2:]))
        for values, every_a, every_c in zip(self.values, self.a, self.c, strict=True):
            a, c = every_a[group][:, None], every_c[group][:, None]
            cross = c @ once @ a.swapaxes(-1, -2)
            square = a @ still @ a.swapaxes(-1, -2) + c @ twice @ c.swapaxes(-1, -2)
            total += values[group][:, None, None, None] * (square + cross + cross.swapaxes(-1, -2))
        if self.noise is not None:
            total += _noise(self.noise, still, once, twice, group)
        return total


def _noise(
    noise: ReportNoise, still: np.ndarray, once: np.ndarray, twice: np.ndarray, group: np.ndarray
) -> np.ndarray:
    start, end = noise.read, noise.report
    cross = end @ once @ start.T
    changes = end @ twice @ end.T - cross - cross.swapaxes(-1, -2) + start @ still @ start.T
    scaled = (noise.factors[group] ** 2)[:, None, None, None] * changes * noise.excess
    # The constant coordinate of z: the chance of the modes alone.
    scaled += noise.variance * still[..., -1:, -1:] * np.eye(len(start))
    return noise.inject @ (noise.squares[group][:, None, None, None] * scaled) @ noise.inject.T


class TermRound:
    """One agent's round ``T = a + c Phi L`` on z, in the form that `Hierarchy` takes.

    Its second moments of one agent are those of `squares`, or zero.
    """

    def __init__(
        self, phase: Phase, a: np.ndarray, c: np.ndarray, squares: OneAgent | None
    ) -> None:
        self._phase, self._a, self._c, self._squares = phase, a, c, squares
        self.packing = Packing(phase.size)

    @property
    def maps(self) -> StepMaps:
        return self._phase.path.maps

    @property
    def length(self) -> int:
        return self._phase.path.length

    def mix(self, f: np.ndarray) -> np.ndarray:
        return self._phase.path.mix(np.ascontiguousarray(f))

    def left(self, f: np.ndarray) -> np.ndarray:
        kind = self._phase.kind
        moved = self._phase.path.left(self._phase.lift[:, None] @ f)
        return self._a[kind][:, None] @ self.mix(f) + self._c[kind][:, None] @ moved

    def both(self, f: np.ndarray) -> np.ndarray:
        if self._squares is None:
            return np.zeros_like(f)
        lift = self._phase.lift[:, None]
        once = lift @ f
        twice = self._phase.path.both(once @ lift.swapaxes(-1, -2))
        return self._squares(self.mix(f), self._phase.path.left(once), twice, self._phase.kind)

    def left_mean(self, steps: int) -> np.ndarray:
        assert steps == self.length
        kind, moved = self._phase.kind, self._phase.path.left_mean(steps) @ self._phase.lift
        return self._a[kind] + self._c[kind] @ moved

    def both_mean(self, before: np.ndarray) -> np.ndarray:
        groups = len(self._a)
        if self._squares is None:
            return np.zeros((groups, self.packing.entries, self.packing.entries))
        path, lift = self._phase.path, self._phase.lift
        begin = path.maps.begin
        basis = self.packing.unpacked(np.eye(self.packing.entries))
        moved = before[:, None, None] * (path.left_mean(self.length) @ lift)
        means = []
        for g, (low, high) in enumerate(pairwise(begin.tolist())):
            once = moved[low:high].sum(axis=0) @ basis
            twice = self._twice(before[low:high], lift[low:high], basis, slice(low, high))
            image = self._squares(basis[None], once[None], twice[None], np.array([g]))[0]
            means.append(self.packing.packed(image).T)
        return np.stack(means)

    def _twice(
        self, before: np.ndarray, lift: np.ndarray, basis: np.ndarray, modes: slice
    ) -> np.ndarray:
        """The mean of ``Phi L X L' Phi'`` for each X of the basis."""
        inner, maps = self._phase.path.packing, self._phase.path.both_means()[modes]
        if np.array_equal(lift[:1].repeat(len(lift), 0), lift):
            lift, maps = lift[:1], np.tensordot(before, maps, 1)[None]
            before = np.ones(1)
        total = np.zeros((len(basis), inner.entries))
        for chance, own, each in zip(before, lift, maps, strict=True):
            total += chance * (inner.packed(own @ basis @ own.T) @ each.T)
        return inner.unpacked(total)
