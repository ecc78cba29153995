"""Random linear problems for the tests of stability, and their oracle: the round of the joint chain
as one dense matrix.

After a synchronisation all agents hold the same x = (theta - theta*, 1). K steps take it to T^i x
on agent i's own path, so one round maps the joint moments E[x x' 1{z^1, ..., z^N}] by

    (1/N^2) [ sum_i Q_i prod_{k != i} P_k + sum_{i != j} L_i R_j prod_{k != i, j} P_k ],

P_k agent k's K-step kernel, and L, R, Q the kernels that also multiply by T on the left, T' on the
right, and both. Every factor is a dense matrix here, and the sum is taken over the joint modes as
it stands. No code is shared with the library.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import fegsam as fg
from helpers.joint_chain import Agent, agent_of


@dataclass(frozen=True)
class Drawn:
    problem: Any
    algorithm: Any
    sync_period: int


def draw(rng: np.random.Generator) -> Drawn:
    """A small problem of any linear algorithm, with chains from fast to very slow; its average is
    stable for small steps."""
    while True:
        agents = int(rng.integers(1, 5))
        kinds = int(rng.integers(1, min(agents, 2) + 1))
        period = int(rng.choice([1, 1, 2, 5]))
        name = rng.choice(["noise", "on", "tabular", "linear", "preconditioned"])
        laziness = rng.choice([0.0, 0.5, 0.9, 0.98])
        make = _noise if name == "noise" else _learning
        problem, algorithm = make(rng, str(name), agents, kinds, laziness)
        try:
            fg.fixed_point(problem, algorithm)
        except fg.ProblemError:
            continue
        return Drawn(problem, algorithm, period)


def _lazy(
    rng: np.random.Generator, shape: tuple[int, ...], states: int, laziness: float
) -> np.ndarray:
    """Kernels that stay where they are with at least the given probability."""
    stay = np.eye(states) if len(shape) == 1 else np.eye(states)[:, None, :]
    return laziness * stay + (1 - laziness) * rng.dirichlet(np.full(states, 0.7), shape)


def _noise(
    rng: np.random.Generator, _: str, agents: int, kinds: int, laziness: float
) -> tuple[Any, Any]:
    states, dim = (2, 2) if agents > 2 else (3, 2)
    matrices = rng.normal(scale=0.8, size=(kinds, states, dim, dim)) - 0.7 * np.eye(dim)
    algorithm = fg.LinearSA(matrices, rng.normal(size=(kinds, states, dim)))
    kernels = 0.02 / states + 0.98 * np.array(
        [_lazy(rng, (states,), states, laziness) for _ in range(kinds)]
    )
    return fg.MarkovNoise(kernels, num_agents=agents), algorithm


def _learning(
    rng: np.random.Generator, name: str, agents: int, kinds: int, laziness: float
) -> tuple[Any, Any]:
    horizon = 2 if agents == 1 and rng.random() < 0.5 else 1
    states = 2 if agents > 3 else 3
    table = 0.01 / states + 0.99 * _lazy(rng, (states, 2), states, laziness)
    mdp = fg.MDP(table, rng.normal(size=(states, 2)), discount=float(rng.choice([0.5, 0.9, 0.99])))
    behavior = 0.1 + 0.8 * rng.dirichlet(np.ones(2), (kinds, states))
    features = rng.normal(size=(states, 1 if agents > 2 else 2))
    tables = {"target_policy": rng.dirichlet(np.ones(2), states), "features": features}
    algorithm = {
        "on": fg.OnPolicyTD(horizon),
        "tabular": fg.OffPolicyTabularTD(horizon),
        "linear": fg.OffPolicyLinearTD(horizon),
        "preconditioned": fg.OffPolicyLinearTD(horizon, preconditioned=True),
    }[name]
    return fg.Federation(mdp, behavior, num_agents=agents, **tables), algorithm


# --- The oracle -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernels:
    """K steps of one agent; m modes, D entries of x."""

    alone: np.ndarray
    """(m, m): from column to row"""
    left: np.ndarray
    """(m, D, m, D)"""
    both: np.ndarray
    """(m, D, D, m, D, D)"""
    stationary: np.ndarray


class JointRound:
    """The round of all agents at some step size."""

    def __init__(self, drawn: Drawn, step_size: float) -> None:
        problem, algorithm = drawn.problem, drawn.algorithm
        star = np.asarray(fg.fixed_point(problem, algorithm), dtype=float)
        agents = [agent_of(problem, algorithm, kind, "markov") for kind in range(problem.num_kinds)]
        kernels = [_kernels(each, star, step_size, drawn.sync_period) for each in agents]
        self._kernels = [kernels[kind] for kind in problem.assignment]
        self._size = len(star) + 1
        # A single agent never averages, so its error does not depend on the sync period.
        self.matrix = _joint(self._kernels, self._size)

    def radius(self) -> float:
        """The spectral radius of what a round does to the moments of theta - theta*, without the
        constant."""
        return float(np.abs(np.linalg.eigvals(self._split()[0])).max())

    def slowest(self) -> float:
        """The factor by which a round forgets its start: the radius, or what the slowest chain
        keeps."""
        kept = [np.sort(np.abs(np.linalg.eigvals(each.alone)))[-2] for each in self._kernels]
        return max(self.radius(), *kept)

    def stationary_error(self) -> float:
        inner, push = self._split()
        found = np.linalg.solve(np.eye(len(inner)) - inner, push)
        size, free = self._size, self._free()
        whole = np.zeros(self._joint_modes() * size * size)
        whole[free] = found
        moments = whole.reshape(-1, size, size).sum(axis=0)
        return float(np.trace(moments[:-1, :-1]))

    def _joint_modes(self) -> int:
        return int(np.prod([len(each.alone) for each in self._kernels]))

    def _free(self) -> np.ndarray:
        """The entries that involve theta; the others are probabilities of the modes."""
        size = self._size
        return np.flatnonzero(
            np.tile(np.arange(size * size) < size * size - 1, self._joint_modes())
        )

    def _split(self) -> tuple[np.ndarray, np.ndarray]:
        free = self._free()
        law = np.ones(1)
        for each in self._kernels:
            law = np.multiply.outer(law, each.stationary).ravel()
        constant = np.setdiff1d(np.arange(len(self.matrix)), free)
        return self.matrix[np.ix_(free, free)], self.matrix[np.ix_(free, constant)] @ law


def _kernels(agent: Agent, star: np.ndarray, step_size: float, period: int) -> Kernels:
    modes, size = len(agent.first), len(star) + 1
    alone = np.zeros((modes, modes))
    left = np.zeros((modes, size, modes, size))
    both = np.zeros((modes, size, size, modes, size, size))
    for edge in agent.edges:
        T = np.eye(size)
        T[:-1, :-1] += step_size * edge.matrix
        T[:-1, -1] += step_size * (edge.matrix @ star + edge.offset)
        alone[edge.target, edge.source] += edge.probability
        left[edge.target, :, edge.source, :] += edge.probability * T
        both[edge.target, :, :, edge.source, :, :] += edge.probability * np.einsum(
            "ac,bd->abcd", T, T
        )
    power = np.linalg.matrix_power
    values, vectors = np.linalg.eig(alone)
    law = vectors[:, np.argmin(np.abs(values - 1))].real
    return Kernels(
        power(alone, period),
        power(left.reshape(modes * size, -1), period).reshape(left.shape),
        power(both.reshape(modes * size**2, -1), period).reshape(both.shape),
        law / law.sum(),
    )


def _joint(kernels: list[Kernels], size: int) -> np.ndarray:
    """The round as a matrix over (z^1, ..., z^N, D, D)."""
    count = len(kernels)
    modes = [len(each.alone) for each in kernels]
    whole = int(np.prod(modes)) * size * size
    total = np.zeros((whole, whole))
    for i in range(count):
        for j in range(count):
            total += _term(kernels, i, j).reshape(whole, whole)
    return total / count**2


def _term(kernels: list[Kernels], i: int, j: int) -> np.ndarray:
    """T_i x x' T_j' with all other agents walking, as an array over (z'..., a', b', z..., a, b)."""
    if i == j:
        core, touched = kernels[i].both, [i]  # z'_i a' b' z_i a b
        labels = [f"p{i}", "A", "B", f"q{i}", "a", "b"]
    else:
        core = np.multiply.outer(kernels[i].left, kernels[j].left)  # z'_i a' z_i a  z'_j b' z_j b
        touched = [i, j]
        labels = [f"p{i}", "A", f"q{i}", "a", f"p{j}", "B", f"q{j}", "b"]
    for k in range(len(kernels)):
        if k not in touched:
            core = np.multiply.outer(core, kernels[k].alone)
            labels += [f"p{k}", f"q{k}"]
    after = [f"p{k}" for k in range(len(kernels))] + ["A", "B"]
    before = [f"q{k}" for k in range(len(kernels))] + ["a", "b"]
    return core.transpose([labels.index(label) for label in after + before])


def largest_stable(drawn: Drawn) -> float:
    """About the smallest step size at which the joint round is not stable, to a percent."""
    low, high = 0.0, 0.05
    while JointRound(drawn, high).radius() < 1 and high < 100:
        low, high = high, 2 * high
    while low == 0.0 or high > 1.01 * low:
        middle = high / 2 if low == 0.0 else (low * high) ** 0.5
        if JointRound(drawn, middle).radius() < 1:
            low = middle
        else:
            high = middle
        if high < 1e-7:
            return high
    return high


# --- The comparison -------------------------------------------------------------------------------

DIGITS = 1e-8


def disagreement(seed: int) -> str:
    """What the library says otherwise than the oracle about one drawn problem at up to twice its
    limit; empty if nothing."""
    rng = np.random.default_rng([15, seed])
    drawn = draw(rng)
    step = float(largest_stable(drawn) * rng.uniform(0.02, 2.0))
    joint = JointRound(drawn, step)
    radius = joint.radius()
    settings = {"step_size": step, "sync_period": drawn.sync_period}
    where = f"seed {seed}, step {step:.6g}, radius {radius:.8f}: "
    try:
        found = fg.exact.stationary_error(drawn.problem, drawn.algorithm, **settings)
    except fg.ProblemError as refused:
        return _refused_wrongly(drawn, step, radius, str(refused), where)
    if radius >= 1:
        return f"{where}diverges, and stationary_error is {found}"
    truth = joint.stationary_error()
    rounds = int(np.ceil(np.log(1e-13) / np.log(joint.slowest())))
    late = fg.exact.moments(
        drawn.problem, drawn.algorithm, times=[rounds * drawn.sync_period], **settings
    ).mse[0]
    for name, value in (("stationary_error", found), ("moments", late)):
        if not abs(value - truth) <= DIGITS * truth:
            return f"{where}{name} is {value!r} and should be {truth!r}"
    return ""


def _refused_wrongly(drawn: Drawn, step: float, radius: float, message: str, where: str) -> str:
    advised = re.search(r"converges at step_size=([\d.e+-]*\d)", message)
    if radius < 1 or advised is None:
        return f"{where}refused with {message!r}"
    if JointRound(drawn, float(advised[1])).radius() >= 1:
        return f"{where}advised {advised[1]}, which diverges"
    rounds = np.ceil(np.log(1e8) / np.log(radius)) * np.array([1, 2])
    times = (np.minimum(rounds, 10**9) * drawn.sync_period).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fg.DivergenceWarning)
        settings = {"step_size": step, "sync_period": drawn.sync_period, "times": times}
        early, late = fg.exact.moments(drawn.problem, drawn.algorithm, **settings).mse
    return (
        ""
        if late > 1e4 * early
        else f"{where}moments go from {early} to {late} although the error diverges"
    )
