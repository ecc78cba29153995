"""The drift of the Lyapunov function in the sharper theorem; docs/sharper_bound.md derives it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fegsam.theory.assumptions.assumptions import Assumptions

ENVELOPES = 24
"""The number of smoothings psi of the sup norm to try."""
WINDOWS = 60
"""The largest number of windows tau to try, in geometric progression."""


@dataclass(frozen=True)
class Envelope:
    """The smoothness X, the norm equivalence and the drift phi_2 of a Lyapunov function M.

    The norm equivalence is ``l2 ||x||_m^2 <= ||x||_c^2 <= u2 ||x||_m^2``.

    >>> Envelope(psi=math.inf, X=1.0, u2=1.0, l2=1.0, phi_2=0.5).phi_2
    0.5
    """

    psi: float
    X: float
    u2: float
    l2: float
    phi_2: float


def envelopes(given: Assumptions) -> list[Envelope]:
    """The Lyapunov functions to try.

    In an inner-product norm this is ``M = ||x||_c^2 / 2``; in the sup norm they are Moreau
    envelopes with several psi.
    """
    gap = 1 - given.contraction
    if given.norm != "sup":
        return [Envelope(math.inf, 1.0, 1.0, 1.0, gap)]
    order = max(2.0, 2 * math.log(given.dimension)) if given.dimension > 1 else 2.0
    lower = given.dimension ** (-2 / order)
    found = []
    for psi in np.geomspace(1e-3, 10, ENVELOPES) * gap / max(given.contraction, 1e-3):
        # 1 - gamma_c sqrt((1 + psi) / (1 + psi l_cs^2)), without subtracting nearly equal numbers
        left = gap * (1 + given.contraction) - psi * (given.contraction**2 - lower)
        phi_2 = (
            left
            / (1 + psi * lower)
            / (1 + given.contraction * math.sqrt((1 + psi) / (1 + psi * lower)))
        )
        if phi_2 > 0:
            found.append(
                Envelope(float(psi), (order - 1) / (psi * lower), 1 + psi, 1 + psi * lower, phi_2)
            )
    return found


def windows(given: Assumptions, alpha: float) -> list[int]:
    """The tau to try.

    They end where the chain's memory is below alpha^3 or alpha tau (A_2 + 1) reaches one half.
    """
    rho, least = given.mixing.rho, max(1, given.horizon)
    if rho <= 0:
        return [given.horizon + 1]
    longest = min(3 * math.log(alpha) / math.log(rho), 0.5 / (alpha * (given.A_2 + 1)))
    if not longest >= least:
        return [least]
    return sorted({int(tau) for tau in np.rint(np.geomspace(least, longest, WINDOWS))})


def drift_polynomial(
    given: Assumptions, envelope: Envelope, alpha: float, tau: int, period: int = 1
) -> tuple[float, float, float]:
    """The coefficients k, q_1 and q_0 of the drift.

    From time 2 tau + K - 1 on, ``E M`` falls by at least ``alpha (k y - q_1 sqrt(y) - q_0)`` in
    each step.
    """
    found = movement(given, alpha, tau, period)
    if found is None:
        return -math.inf, math.inf, math.inf
    way, apart = found
    X, u2, a, is_sup = envelope.X, envelope.u2, given.A_2 + 1, given.norm == "sup"
    delta, x = _forgotten(given, tau), Affine(1.0, 0.0)
    square = (given.dimension if is_sup else 1) * (
        given.B**2 / given.num_agents + (given.m_4 * delta**2) ** 2
    )
    noise = Affine(0.0, math.sqrt(square))
    earlier, moved = x + way, a * x + given.A_1 * apart
    parts = [
        # T_3, the Markov noise of G
        (X * (given.A_2 + given.contraction), way, x + apart),
        (X * (given.A_1 + given.contraction), earlier, way + 2 * apart),
        (X * given.m_1 * delta, earlier, earlier + apart),
        # T_4, the distance between the agents
        (given.contraction / math.sqrt(u2 * envelope.l2), x, apart),
        # T_5, the square of the step
        (alpha * X / 2, moved + noise, moved + noise),
        # T_2, the Markov noise b: its mean given the state tau steps ago, and its correlation with
        # the parameters' movement since
        (X * given.m_4 * delta, Affine(0.0, 1.0), earlier),
    ]
    if is_sup:
        parts.append((X, noise, way))
    else:
        heard = given.B * correlated_noise(given, tau) / given.num_agents
        known = (given.m_4 * delta) ** 2 * delta / (1 - given.mixing.rho)
        parts.append((alpha * tau, a * earlier + given.A_1 * apart, noise))
        parts.append((alpha, Affine(0.0, 1.0), Affine(0.0, heard + known)))
    q2 = sum(factor * f.slope * g.slope for factor, f, g in parts)
    q1 = sum(factor * (f.slope * g.constant + f.constant * g.slope) for factor, f, g in parts)
    q0 = sum(factor * f.constant * g.constant for factor, f, g in parts)
    return envelope.phi_2 / u2 - q2, q1, q0


class Affine(NamedTuple):
    """``slope x + constant``.

    >>> 2 * Affine(1.0, 0.5)
    Affine(slope=2.0, constant=1.0)
    """

    slope: float
    constant: float

    def __add__(self, other: Affine) -> Affine:  # type: ignore[override]
        return Affine(self.slope + other.slope, self.constant + other.constant)

    def __rmul__(self, factor: float) -> Affine:  # type: ignore[override]
        return Affine(factor * self.slope, factor * self.constant)


def movement(
    given: Assumptions, alpha: float, tau: int, period: int
) -> tuple[Affine, Affine] | None:
    """Bounds on the distance moved in tau steps and on the root of the sync error.

    Both are functions of x; None if the step is too large. Over the W = tau + K - 1 steps that
    matter, the distance D and the root omega of the sync error satisfy

        D     <= alpha (W a (x + D) + W A_1 omega + S_W),
        omega <= alpha (c (K - 1) a (x + D + omega) + beta),

    where S_W is the noise of the average in W steps and beta that of one agent in K - 1 steps; c is
    2 in the sup norm and 1 otherwise.
    """
    a, reach, local = given.A_2 + 1, tau + period - 1, period - 1
    is_sup = given.norm == "sup"
    r = math.sqrt(given.dimension) if is_sup else 1.0
    own, left = (
        given.B / math.sqrt(given.num_agents),
        _forgotten(given, tau) / (1 - given.mixing.rho),
    )
    heard = [r * (steps * own + given.m_4 * left) for steps in (reach, tau)]
    spread = (
        math.sqrt(local * given.B * (given.B + 2 * correlated_noise(given, local)))
        if local
        else 0.0
    )
    pulled = (
        local * given.m_3 * float(np.max(given.agent_heterogeneity)) + given.m_2 * left
        if local
        else 0.0
    )
    part = (2 if is_sup else 1) * local
    ways, parting, drag = 1 - alpha * reach * a, 1 - alpha * part * a, alpha * reach * given.A_1
    determinant = ways * parting - drag * alpha * part * a
    # If all three are positive, the inverse of the two inequalities has no negative entry.
    if not (ways > 0 and parting > 0 and determinant > 0):
        return None
    first = alpha * Affine(reach * a, heard[0])
    second = alpha * Affine(part * a, r * (spread + pulled))
    farthest = 1 / determinant * (parting * first + drag * second)
    apart = 1 / determinant * (alpha * part * a * first + ways * second)
    way = tau * a * (Affine(1.0, 0.0) + farthest) + tau * given.A_1 * apart + Affine(0.0, heard[1])
    return alpha * way, apart


def _forgotten(given: Assumptions, tau: int) -> float:
    return given.mixing.rho**tau if given.mixing.rho > 0 else 0.0


def correlated_noise(given: Assumptions, tau: int) -> float:
    """A bound on the sum over k = 1, ..., tau of the standard deviation of ``E[b_i(y_k) | y_0]``.

    Each of them is at most B.
    """
    if not math.isnan(given.lag_sum):
        return min(given.lag_sum, tau * given.B)
    if given.level == "given" and given.m_3 > 0:
        # m_2 then does not bound the distance of the conditional mean from the agent's own mean.
        return tau * given.B
    rho = given.mixing.rho
    if rho <= 0:
        return 0.0
    # min(B, m_2 rho^k) is B for the first `full` lags and geometric from there on.
    full = (
        0
        if given.m_2 <= given.B
        else min(tau, math.floor(math.log(given.m_2 / given.B) / -math.log(rho)))
    )
    return full * given.B + given.m_2 * rho ** (full + 1) * (1 - rho ** (tau - full)) / (1 - rho)
