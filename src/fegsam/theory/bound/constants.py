"""Every constant of the theorem on FeGSAM (Theorem "main").

The constants of the assumptions (gamma_c, A_1, A_2, B, m_1 to m_4, rho) and the step size determine
those of the Lyapunov function, of the two drift propositions (C_1 to C_17), of the consensus lemma
(A_tilde, B_tilde, Lag) and of the bound itself (S_1 to S_5, script C in the paper); `formulas` says
how, line by line. They are corrected where the paper's statement is wrong; ``printed=True`` gives
the paper's values. C_4 to C_7, C_12 to C_14 and S_2 to S_5 contain alpha, although the paper calls
the latter independent of it.

In the sup norm the smooth norm is the p-norm. Inner-product norms are smooth themselves, so every
norm equivalence is 1.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError
from fegsam.problem.checks import flag, positive
from fegsam.problem.federation import Problem
from fegsam.text import html_table, number, text_table
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.assumptions.drift import sup_norm_drift
from fegsam.theory.assumptions.printed import printed_assumptions
from fegsam.theory.bound.formulas import FORMULAS


@dataclass(frozen=True, eq=False, repr=False)
class Constants(Mapping[str, float]):
    """The constants by name, as ``constants["C_4"]`` or ``constants.C_4``; see `constants`.

    Attributes
    ----------
    numbers : dict
        The values by name, in the order of their definitions.
    step_size : float
        The algorithm's own step size; ``alpha`` is this times beta.
    printed : bool
        Whether the values are those that the paper prints.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=2, target_policy=[[1.0]])
    >>> found = constants(fed, fg.OffPolicyTabularTD(), step_size=1e-4)
    >>> found.gamma_c, found["C_2"] == 3 * found.C_1 + 8
    (0.5, True)
    >>> found.formula("C_2")
    'C_2 = 3 C_1 + 8'
    """

    numbers: dict[str, float]
    step_size: float
    printed: bool

    def __getitem__(self, name: str) -> float:
        return self.numbers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getattr__(self, name: str) -> float:
        numbers = self.__dict__.get("numbers", {})
        if name not in numbers:
            raise AttributeError(f"There is no constant {name!r}.")
        return numbers[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.numbers]

    def formula(self, name: str) -> str:
        """The definition of a constant, with the paper's where that was corrected.

        >>> import fegsam as fg
        >>> fed = fg.Federation(
        ...     fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=2, target_policy=[[1.0]]
        ... )
        >>> print(constants(fed, fg.OffPolicyTabularTD(), step_size=1e-4).formula("phi_1"))
        phi_1 = (1 + psi u_cs^2) / (1 + psi l_cs^2)   [paper: (1 + psi) / (1 + psi / sqrt(e)); l_cs
        is not squared]
        """
        if name not in FORMULAS:
            raise ProblemError(
                f"There is no constant {name!r}; the names are {', '.join(FORMULAS)}."
            )
        found = FORMULAS[name]
        if not found.printed:
            return f"{name} = {found.corrected}"
        if self.printed:
            return f"{name} = {found.printed}" + (f"   [{found.erratum}]" if found.erratum else "")
        return f"{name} = {found.corrected}   [paper: {found.printed}" + (
            f"; {found.erratum}]" if found.erratum else "]"
        )

    def _rows(self) -> list[list[str]]:
        return [
            [name, number(value), self.formula(name).partition(" = ")[2]]
            for name, value in self.numbers.items()
        ]

    @property
    def _title(self) -> str:
        how = "as printed" if self.printed else "corrected"
        return f"Constants of the theorem, {how}, at step size {self.step_size:.4g}"

    def __repr__(self) -> str:
        return f"<{self._title}: {len(self)} of them>"

    def __str__(self) -> str:
        return self._title + "\n\n" + text_table(["name", "value", "formula"], self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._title, ["name", "value", "formula"], self._rows())


def constants(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float | None = None,
    printed: bool = False,
) -> Constants:
    """Every constant of the theorem, by name and with its formula.

    Parameters
    ----------
    step_size : float, optional
        The algorithm's step size; by default the largest that the theorem admits at sync period 1.
    printed : bool
        Whether to give the values that the paper prints, including its lemmas' gamma_c, A and B,
        instead of the corrected ones. A printed form that is undefined is NaN; a negative tau is
        kept.

    Returns
    -------
    Constants
        NaN if no norm is found in which the agents contract.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=2, target_policy=[[1.0]])
    >>> constants(fed, fg.OffPolicyTabularTD()).C_3
    0.0
    """
    # Imported here, since `conditions` itself imports this module.
    from fegsam.theory.bound.conditions import largest_alpha

    found = assumptions(problem, algorithm)
    step = (
        largest_alpha(found, 1) / found.beta
        if step_size is None
        else positive(step_size, "step_size")
    )
    printed = flag(printed, "printed")
    values = constants_from(
        printed_assumptions(problem, algorithm, found) if printed else found, step, printed=printed
    )
    # zeta_2 is rightly infinite if G has no noise.
    lost = [name for name, value in values.items() if not math.isfinite(value) and name != "zeta_2"]
    if lost:
        cure = (
            "use a smaller step_size, or rewards in a larger unit"
            if found.holds
            else "look at fegsam.theory.assumptions"
        )
        warnings.warn(
            f"The constants {', '.join(lost)} are not finite at step_size {step:g}; {cure}.",
            RuntimeWarning,
            stacklevel=2,
        )
    return values


def constants_from(
    assumptions: Assumptions, step_size: float, *, printed: bool = False, tau_factor: float = 2.0
) -> Constants:
    """The constants from known assumptions; `tau_factor` is r in ``tau = r log_rho alpha``."""
    alpha = step_size * assumptions.beta
    if not 0 < alpha < math.inf:
        raise ProblemError(
            f"The theorem's step size, step_size {step_size:g} times beta {assumptions.beta:g}, "
            f"is {alpha:g} in double precision, but must be positive and finite; give another "
            "step_size."
        )
    tau = mixing_window(alpha, assumptions.mixing.rho, assumptions.horizon, tau_factor)
    return Constants(numbers_at(assumptions, alpha, tau, printed=printed), step_size, printed)


def mixing_window(alpha: float, rho: float, horizon: int, factor: float = 2.0) -> int:
    """The number tau of steps after which the chain's memory is below ``alpha^factor``.

    It is at least `horizon`, so that windows tau steps apart do not overlap. Independent draws
    (rho = 0) are forgotten one step after the window of `horizon` transitions.

    Examples
    --------
    >>> mixing_window(alpha=0.01, rho=0.8, horizon=1)
    42
    """
    if rho <= 0:
        return horizon + 1
    return max(1, horizon, math.ceil(factor * math.log(alpha) / math.log(rho)))


def numbers_at(
    assumptions: Assumptions, alpha: float, tau: int, *, printed: bool = False
) -> dict[str, float]:
    """The constants by name at a FeGSAM step `alpha` and any `tau`, not only that of `alpha`."""
    given = assumptions
    values: dict[str, Any] = {
        name: np.float64(value)
        for name, value in {
            "alpha": alpha,
            "beta": given.beta,
            "tau": tau,
            "rho": given.mixing.rho,
            "gamma_c": given.contraction,
            "A_1": given.A_1,
            "A_2": given.A_2,
            "B": given.B,
            "m_1": given.m_1,
            "m_2": given.m_2,
            "m_3": given.m_3,
            "m_4": given.m_4,
        }.items()
    }
    # Division by zero is intended: zeta_2 is infinite without noise, and 1 / ln(1/rho) is zero for
    # independent draws.
    with np.errstate(all="ignore"):
        windows = 2 * np.log(values["alpha"]) / np.log(values["rho"])
        if printed:
            values["tau"] = np.ceil(windows)
        values |= _norm_constants(given.norm == "sup", given.dimension, values["gamma_c"], printed)
        values |= _drift_constants(values, printed)
        values |= _bound_constants(values, given, printed)
        if printed:
            values["tau"] = np.ceil(-windows)
    return {name: float(values[name]) for name in FORMULAS}


def _norm_constants(is_sup: bool, dim: int, contraction: Any, printed: bool) -> dict[str, Any]:
    """The constants p to phi_3: norm equivalences and the Lyapunov function."""
    one = np.float64(1.0)
    if not is_sup:
        p, lower_s, lower_2, psi = np.float64(2.0), one, one, one
    else:
        p = np.float64(2 * math.log(dim) if printed else max(2.0, 2 * math.log(dim)))
        lower_s = np.float64(math.exp(-0.5)) if printed else dim ** (-1 / p)
        lower_2 = one / math.sqrt(dim)
        # At gamma_c = 0 phi_2 is 1 for every psi.
        gap = 1 - contraction
        psi = gap * (1 - gap / 2 + contraction) / (2 * contraction**2) if contraction != 0 else one
    smooth = p - 1
    phi_1 = (1 + psi) / (1 + psi * (lower_s if printed else lower_s**2))
    if is_sup and printed:
        half = (1 + contraction) / 2
        phi_2 = 1 - math.exp(0.25) * half / np.sqrt(math.exp(0.5) - 1 + (half / contraction) ** 2)
    else:
        phi_2 = (
            np.float64(sup_norm_drift(float(1 - contraction), dim).drift)
            if is_sup
            else 1 - contraction
        )
    slope = smooth / (psi * lower_s**2)
    return {
        "p": p,
        "L": smooth,
        "l_cs": lower_s,
        "u_cs": one,
        "l_cD": lower_2,
        "u_cD": one,
        "l_c2": lower_2,
        "u_c2": one,
        "psi": psi,
        "X": slope,
        "l_cm": np.sqrt(1 + psi * lower_s**2),
        "u_cm": np.sqrt(1 + psi),
        "phi_1": phi_1,
        "phi_2": phi_2,
        "phi_3": 114 * (1 + psi) * slope,
    }


def _drift_constants(v: dict[str, Any], printed: bool) -> dict[str, Any]:
    """The constants zeta_1 to C_17 of the two drift propositions, and those of the bound from them.

    The propositions are "intermediate_lem" and "intermediate_lem2".
    """
    alpha, tau, rho, A1, A2, B = v["alpha"], v["tau"], v["rho"], v["A_1"], v["A_2"], v["B"]
    m1, m2, m4, X, phi_2 = v["m_1"], v["m_2"], v["m_4"], v["X"], v["phi_2"]
    u2, r2 = v["u_cm"] ** 2, (v["u_cD"] / v["l_cD"]) ** 2
    z1, z2, z3 = phi_2 / 10, phi_2 / (20 * X * A2), phi_2 / (10 * X * (A1 + 1))
    C1 = 3 * np.sqrt(A2**2 + 1)
    C3 = m4 * X
    C4 = X * (
        X / 2
        + alpha * A2 * (1 + u2 / z2)
        + alpha * (A1 + 1) * (1.5 * u2 / z3 + 2)
        + 3 * m1 * alpha**2
    )
    power = alpha**2 if printed else alpha
    C5 = X * ((1.5 * u2 / z3 + 1.5) * (A1 + 1) + A2 + X * u2 / (2 * z1) + 1.5 * A1**2 * power)
    C6 = X / 2 * ((3 * u2 / z3 + 3) * (A1 + 1) + m1 * alpha)
    C7 = alpha * m4**2 * u2 * X**2 / (2 * z1)
    C8 = (1 + 3 * X) / 2
    C9 = 8 * np.sqrt(r2) * B
    C11 = 8 * C1**2 * C3**2 * u2 / z1
    C12 = 8 * C4 * r2 * B**2
    if printed:
        C10, C13 = 8 * m2 * np.sqrt(r2) / (1 - rho), 14 * C4 * r2 * m2**2 / (1 - rho**2)
        rest = C11 + (1 + 2 * C1) * C3 * C10 + 3 * A1 * C3 + C13 + C8 * r2 * 2 * m2**2 * alpha**2
    else:
        C10, C13 = 8 * m4 * np.sqrt(r2) / (1 - rho), 8 * C4 * r2 * m4**2 / (1 - rho**2)
        rest = alpha * (C11 + C3 * C10 + 6 * A1 * C3 + alpha * C13 + alpha**5 * C8 * r2 * m4**2)
    third_order = C7 + C3**2 * C9**2 / 2 + rest
    noise = C8 * r2 * B**2 + (0.5 if printed or m4 > 0 else 0.0) + C12
    return {
        "zeta_1": np.sqrt(z1),
        "zeta_2": np.sqrt(z2),
        "zeta_3": np.sqrt(z3),
        "zeta_4": np.sqrt(z1),
        "zeta_6": np.sqrt(z1),
        "C_1": C1,
        "C_2": 3 * C1 + 8,
        "C_3": C3,
        "C_4": C4,
        "C_5": C5,
        "C_6": C6,
        "C_7": C7,
        "C_8": C8,
        "C_9": C9,
        "C_10": C10,
        "C_11": C11,
        "C_12": C12,
        "C_13": C13,
        "C_14": tau**2 * third_order,
        "C_15": tau**2 * u2 * (6 * m1 * X + 3 * X * (A2 + 1) ** 2 + 16 * C1**2 * C4),
        "C_16": tau**2 * noise,
        "C_17": 3 * A1 * C3 + 8 * A1**2 * C4 + C5 + C6,
        "S_2": 8 * u2 * noise / phi_2,
        "S_5": 8 * u2 * third_order / phi_2,
    }


def _bound_constants(v: dict[str, Any], given: Assumptions, printed: bool) -> dict[str, Any]:
    """The constants of the consensus lemma, and those of the bound that depend on them."""
    rho, A2, B, C1, phi_2 = v["rho"], v["A_2"], v["B"], v["C_1"], v["phi_2"]
    u2, k = v["u_cm"] ** 2, v["u_c2"] / v["l_c2"]
    lag = 4 * (v["m_2"] + v["m_4"]) * rho / (1 - rho)
    if not printed and not math.isnan(given.lag_sum):
        lag = np.float64(8 * given.lag_sum)
    # Without noise there is no lagged correlation.
    lag = lag / B if B != 0 else np.float64(0.0)
    spread = (k * B) ** 2 if printed and given.norm == "sup" else k * B
    start = given.start_error
    first = ((B + (A2 + 1) * (start + B / (2 * C1))) / C1) ** 2 + start**2
    M0 = first / v["l_cm"] ** 2
    drift = spread**2 * v["C_17"]
    return {
        "A_tilde_1": 2 * (v["A_1"] * k) ** 2,
        "A_tilde_2": 2 * (A2 * k) ** 2,
        "B_tilde": spread,
        "Lag": lag,
        "M_0": M0,
        "S_1": 16 * u2 * M0 * (1 / np.log(1 / rho) + 1 / phi_2),
        "S_3": 80 * u2 * drift * (1 + lag) / phi_2,
        "S_4": (320 if printed else 160) * u2 * (drift / B if B != 0 else B) * v["m_3"] / phi_2,
    }
