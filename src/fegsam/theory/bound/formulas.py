"""The definitions of the theorem's constants, one line each.

They are from the section "Analysis of Federated Stochastic Approximation". Where the paper's
statement differs from the result of its proof, or of a correct proof, both forms are given, with
the difference in words. X abbreviates L / (psi l_cs^2), the smoothness of the Lyapunov function in
the contraction norm.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Formula:
    """A constant's definition.

    Attributes
    ----------
    corrected : str
        The formula that holds.
    printed : str
        The paper's formula if it differs; empty otherwise.
    erratum : str
        The difference in words.

    Examples
    --------
    >>> FORMULAS["C_2"].corrected
    '3 C_1 + 8'
    """

    corrected: str
    printed: str = ""
    erratum: str = ""


_OLD_LEMMA = (
    "the statement has m_2, which may be zero where the mean of the average noise is not; "
    "docs/sharper_bound.md"
)

FORMULAS = {
    "alpha": Formula("step_size beta"),
    "beta": Formula(
        "the scale of the linear algorithms, Gbar = I - A / beta; 1 otherwise",
        "2 lambda_max^2 / delta on-policy",
    ),
    "tau": Formula(
        "max(1, n, ceil(2 ln(1/alpha) / ln(1/rho))); n + 1 if rho = 0",
        "ceil(2 log_rho(1/alpha)) in the theorem; ceil(2 log_rho alpha) in C_14 to C_16",
        "the theorem's is negative, and windows of n transitions need tau >= n",
    ),
    "rho": Formula("rate of TV(P^t(s, .), mu) <= m rho^t, the slowest over agents"),
    "gamma_c": Formula(
        "1 - mu_min (1 - gamma^n) in tabular TD",
        "1 - mu_min (1 - gamma^(n+1)) in tabular TD; 1 - delta^2 / (8 lambda_max^2) on-policy",
        "the mean operator of tabular TD has gamma^n P^n",
    ),
    "A_1": Formula(
        "the largest Lipschitz constant of G(., y) over windows y",
        "1 + (1 + gamma) sum_{k<n} (gamma I_max)^k in tabular TD; 2 in Q-learning",
        "the proof for tabular TD has another factor I_max; Q-learning has 1",
    ),
    "A_2": Formula("the largest ||G(theta, y)||_c / ||theta||_c", "as A_1", "as A_1"),
    "B": Formula(
        "the largest ||b(y)||_c",
        "2 I_max / (1 - gamma) sum_{k<n} (gamma I_max)^k in tabular TD; 2 / (1 - gamma) in "
        "Q-learning",
        "holds for rewards of at most 1 only",
    ),
    "m_1": Formula("2 A_2 m rho^-n", "2 A_2 m in Q-learning", "the window y_0 contains S_1"),
    "m_2": Formula(
        "2 B m rho^-n, 0 where E b = 0 from lag n on",
        "2 B m on-policy",
        "windows n steps apart share a state",
    ),
    "m_3": Formula("the largest ||bbar_i|| / eta_i"),
    "m_4": Formula(
        "m_2",
        "0 on-policy",
        "E[b(y_t) | y_0] is not 0 before the chain has mixed, and agents do not cancel it",
    ),
    "p": Formula(
        "max(2, 2 ln d), sup norm; 2 otherwise",
        "2 ln|S|",
        "below 2 the square is not smooth; Q has d = |S||A|",
    ),
    "L": Formula("p - 1"),
    "l_cs": Formula(
        "d^(-1/p), sup norm; 1 otherwise", "e^(-1/2)", "d^(-1/p) is that only if p = 2 ln d"
    ),
    "u_cs": Formula("1"),
    "l_cD": Formula("d^(-1/2), sup norm; 1 otherwise", "|S|^(-1/2)", "Q-learning has d = |S||A|"),
    "u_cD": Formula("1"),
    "l_c2": Formula("l_cD; in a weighted norm the consensus lemma runs in that inner product"),
    "u_c2": Formula("1"),
    "psi": Formula("((1 + gamma_c) / (2 gamma_c))^2 - 1, sup norm; 1 otherwise"),
    "X": Formula("L / (psi l_cs^2)"),
    "l_cm": Formula("sqrt(1 + psi l_cs^2)"),
    "u_cm": Formula("sqrt(1 + psi u_cs^2)"),
    "phi_1": Formula(
        "(1 + psi u_cs^2) / (1 + psi l_cs^2)",
        "(1 + psi) / (1 + psi / sqrt(e))",
        "l_cs is not squared",
    ),
    "phi_2": Formula(
        "1 - gamma_c sqrt(phi_1)",
        "1 - e^(1/4) (1 + gamma_c) / 2 / sqrt(sqrt(e) - 1 + ((1 + gamma_c) / (2 gamma_c))^2)",
        "e^(1/2) and e - 1 replace them once l_cs is squared; the printed value is too large",
    ),
    "phi_3": Formula("114 L (1 + psi u_cs^2) / (psi l_cs^2), never used"),
    "zeta_1": Formula("sqrt(phi_2 / 10)"),
    "zeta_2": Formula("sqrt(phi_2 / (20 X A_2))"),
    "zeta_3": Formula("sqrt(phi_2 / (10 X (A_1 + 1)))"),
    "zeta_4": Formula("sqrt(phi_2 / 10)"),
    "zeta_6": Formula("sqrt(phi_2 / 10)"),
    "C_1": Formula("3 sqrt(A_2^2 + 1)"),
    "C_2": Formula("3 C_1 + 8"),
    "C_3": Formula("m_4 X"),
    "C_4": Formula(
        "X (X/2 + alpha A_2 (1 + u_cm^2/zeta_2^2) + alpha (A_1+1) (3 u_cm^2/(2 zeta_3^2) + 2) + 3 "
        "m_1 alpha^2)",
    ),
    "C_5": Formula(
        "X ((3 u_cm^2/(2 zeta_3^2) + 3/2) (A_1+1) + A_2 + X u_cm^2/(2 zeta_4^2) + 3/2 A_1^2 alpha)",
        "X ((3 u_cm^2/(2 zeta_3^2) + 3/2) (A_1+1) + A_2 + X u_cm^2/(2 zeta_4^2) + 3/2 A_1^2 "
        "alpha^2)",
        "one power of alpha too many: one of the two in T_5 is already outside",
    ),
    "C_6": Formula("X/2 ((3 u_cm^2/zeta_3^2 + 3) (A_1+1) + m_1 alpha)"),
    "C_7": Formula("alpha m_4^2 u_cm^2 X^2 / (2 zeta_1^2)"),
    "C_8": Formula("(1 + 3 X) / 2"),
    "C_9": Formula("8 B u_cD/l_cD"),
    "C_10": Formula("8 m_4 u_cD/l_cD / (1 - rho)", "8 m_2 u_cD/l_cD / (1 - rho)", _OLD_LEMMA),
    "C_11": Formula("8 C_1^2 C_3^2 u_cm^2 / zeta_6^2"),
    "C_12": Formula("8 C_4 B^2 u_cD^2/l_cD^2"),
    "C_13": Formula(
        "8 C_4 m_4^2 u_cD^2/l_cD^2 / (1 - rho^2)",
        "14 C_4 m_2^2 u_cD^2/l_cD^2 / (1 - rho^2)",
        _OLD_LEMMA,
    ),
    "C_14": Formula(
        "tau^2 (C_7 + C_3^2 C_9^2/2 + alpha (C_11 + C_3 C_10 + 6 A_1 C_3 + alpha C_13 + alpha^5 "
        "C_8 m_4^2 u_cD^2/l_cD^2))",
        "tau^2 (C_7 + C_11 + C_3^2 C_9^2/2 + C_3 C_10 + 2 C_1 C_3 C_10 + 3 A_1 C_3 + C_13 + 2 C_8 "
        "m_2^2 alpha^2 u_cD^2/l_cD^2)",
        _OLD_LEMMA,
    ),
    "C_15": Formula("tau^2 u_cm^2 (6 m_1 X + 3 X (A_2+1)^2 + 16 C_1^2 C_4)"),
    "C_16": Formula(
        "tau^2 (C_8 B^2 u_cD^2/l_cD^2 + h + C_12), h = 1/2 if m_4 > 0, else 0",
        "tau^2 (C_8 B^2 u_cD^2/l_cD^2 + 1/2 + C_12)",
        "the 1/2 bounds a term of C_3, so it goes where m_4 = 0; it does not scale with the "
        "rewards",
    ),
    "C_17": Formula("3 A_1 C_3 + 8 A_1^2 C_4 + C_5 + C_6"),
    "A_tilde_1": Formula("2 A_1^2 u_c2^2/l_c2^2"),
    "A_tilde_2": Formula("2 A_2^2 u_c2^2/l_c2^2"),
    "B_tilde": Formula(
        "B u_c2/l_c2",
        "B^2 u_c2^2/l_c2^2 in the proofs for the sup norm",
        "squared once more in S_3",
    ),
    "Lag": Formula(
        "8 sum_k sup ||E[b(y_k) | y_0]|| / B where that is known, else 4 (m_2 + m_4) rho / (B (1 "
        "- rho))",
        "4 (m_2 + m_4) rho / (B (1 - rho))",
        "tabular TD has m_2 = m_4 = 0 from lag n on only; lags 1 to n-1 count here",
    ),
    "M_0": Formula("((B + (A_2+1) (||theta_0|| + B/(2 C_1)))^2 / C_1^2 + ||theta_0||^2) / l_cm^2"),
    "S_1": Formula("16 u_cm^2 M_0 (1/ln(1/rho) + 1/phi_2)"),
    "S_2": Formula(
        "8 u_cm^2 (C_8 B^2 u_cD^2/l_cD^2 + h + C_12) / phi_2",
        "8 u_cm^2 (C_8 B^2 u_cD^2/l_cD^2 + 1/2 + C_12) / phi_2",
        "as C_16",
    ),
    "S_3": Formula("80 u_cm^2 B_tilde^2 C_17 (1 + Lag) / phi_2"),
    "S_4": Formula(
        "160 u_cm^2 B_tilde^2 C_17 m_3 / (phi_2 B)",
        "320 u_cm^2 B_tilde^2 C_17 m_3 / (phi_2 B)",
        "the proof counts every pair of times twice",
    ),
    "S_5": Formula("8 u_cm^2 C_14 / (tau^2 phi_2)"),
}
