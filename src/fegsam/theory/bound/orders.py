"""How the theorems' terms, sample complexity and communication grow: as printed and corrected.

Theorems fed_TD_on, fed_TD_off, fed_Q and fed_TD_off_lin, and Corollary sample_complexity_main. For
the sup-norm algorithms, with Delta = mu_min (1 - gamma^n) and phi_2 >= Delta / 2, A = O(I_max^n)
and B = O(I_max^n / (1 - gamma)), and with alpha <= phi_2 / (2 C_15) to keep alpha out of C_4,

    C_4 = O(log^2 d / Delta^2),   C_17 = O(A^2 log^2 d / Delta^3),
    S_2 = O(d B^2 log^2 d / Delta^3),   S_3 = O(d A^2 B^2 log^2 d / Delta^4),
    T = O~(max(S_2 / phi_2, S_3 / phi_2^2) / (N epsilon)),

d = |S|, or |S||A| for Q-learning. The paper drops a factor 1 / phi_2 from S_2 and from T, squares
B_tilde once too often in S_3, and has |S| for |S||A|.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError, shown
from fegsam.text import html_table, text_table

Exponents = Mapping[str, float]
"""The exponent of each symbol.

The symbols are |S|, |A|, log d, I_max, mu_min, 1-gamma, N, K-1, alpha, varepsilon and epsilon.
"""


@dataclass(frozen=True)
class Order:
    """How one quantity grows.

    Attributes
    ----------
    quantity : str
        A term of the bound, "sample complexity" or "communication".
    printed, corrected : dict
        The exponent of each symbol.
    note : str
        The reason why they differ.

    Examples
    --------
    >>> Order("variance", {"N": -1.0}, {"N": -1.0}).agree
    True
    """

    quantity: str
    printed: Exponents
    corrected: Exponents
    note: str = ""

    @property
    def agree(self) -> bool:
        """Whether the paper's order is the right one."""
        return self.printed == self.corrected


@dataclass(frozen=True)
class Orders:
    """The orders of one algorithm's theorem; see `orders`."""

    algorithm: str
    theorem: str
    rows: tuple[Order, ...]

    def __getitem__(self, quantity: str) -> Order:
        return next(row for row in self.rows if row.quantity == quantity)

    def _table(self) -> list[list[str]]:
        return [
            [row.quantity, spelled(row.printed), spelled(row.corrected), row.note]
            for row in self.rows
        ]

    @property
    def _title(self) -> str:
        return f"{self.algorithm}: orders in {self.theorem}"

    def __str__(self) -> str:
        return (
            self._title
            + "\n\n"
            + text_table(["quantity", "printed", "corrected", "why"], self._table())
        )

    def _repr_html_(self) -> str:
        return html_table(self._title, ["quantity", "printed", "corrected", "why"], self._table())


def spelled(exponents: Exponents) -> str:
    """A product of powers, with the negative exponents in the denominator.

    >>> spelled({"|S|": 1, "mu_min": -3, "N": -1})
    '|S| / (mu_min^3 N)'
    """

    def product(sign: int) -> str:
        parts = [
            (f"({s})" if "-" in s or " " in s else s, sign * e)
            for s, e in exponents.items()
            if sign * e > 0
        ]
        return " ".join(symbol if power == 1 else f"{symbol}^{power:g}" for symbol, power in parts)

    above, below = product(1) or "1", product(-1)
    return above if not below else f"{above} / ({below})" if " " in below else f"{above} / {below}"


def orders(algorithm: Algorithm | type[Algorithm]) -> Orders:
    """How the terms of an algorithm's theorem grow, as printed and corrected.

    Parameters
    ----------
    algorithm
        An algorithm or its class, whose attribute `theorem` names its theorem in the paper. The
        exponents of I_max are those for its window n, which is 1 for a class.

    Returns
    -------
    Orders
        Indexed by quantity: the bound's terms, "sample complexity", "communication".

    Examples
    --------
    >>> import fegsam as fg
    >>> table = orders(fg.OffPolicyTabularTD(horizon=2))
    >>> table["variance"].corrected["mu_min"], table["variance"].printed["mu_min"]
    (-3, -2)
    """
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    theorem = getattr(kind, "theorem", None)
    title, rows = f"Theorem {theorem}", _general_rows(heterogeneous=True)
    match theorem:
        case "fed_TD_off":
            horizon = 1 if isinstance(algorithm, type) else algorithm.window
            title, rows = f"{title}, n = {horizon}", _sup_norm_rows(horizon, {"|S|": 1})
        case "fed_Q":
            rows = _sup_norm_rows(None, {"|S|": 1, "|A|": 1})
        case "fed_TD_on":
            rows = _general_rows(heterogeneous=False)
        case "main_body":
            title = f"{title} and its corollary"
        case "fed_TD_off_lin":
            pass
        case _:
            raise ProblemError(
                f"orders was given {shown(algorithm)}; give one of fegsam's algorithms or its "
                "class, or one with a class attribute theorem, for example theorem = 'fed_TD_off'."
            )
    return Orders(kind.__name__, title, rows)


def _sup_norm_rows(horizon: int | None, size: Exponents) -> tuple[Order, ...]:
    """The rows of Algorithms 3 and 4; `horizon` is None if there is no importance sampling."""

    def powers(
        states: Exponents, ratios: tuple[int, int], rarest: int, gap: int, **others: int
    ) -> Exponents:
        logs = {"log d": 2} if states else {}
        sampled = (
            {"I_max": ratios[0] * horizon + ratios[1]}
            if horizon is not None and ratios != (0, 0)
            else {}
        )
        return {**states, **logs, **sampled, "mu_min": rarest, "1-gamma": gap, **others}

    one, two = {"|S|": 1}, {"|S|": 2}
    return (
        Order(
            "initial",
            powers({}, (4, -2), -1, -3),
            powers({}, (0, 0), -1, -3),
            "M_0 divides B by C_1, so I_max cancels; plus t_mix / (1-gamma)^2",
        ),
        Order(
            "variance",
            powers(one, (3, -1), -2, -4, N=-1),
            powers(size, (2, 0), -3, -5, N=-1),
            "the last line of the derivation drops 1 / phi_2",
        ),
        Order(
            "local_steps",
            {**powers(two, (7, -3), -4, -8), "K-1": 1},
            {**powers(size, (4, 0), -4, -6), "K-1": 1},
            "B_tilde is squared once too often",
        ),
        Order(
            "sample complexity",
            powers(two, (7, -3), -5, -9, N=-1, epsilon=-1),
            powers(size, (4, 0), -6, -8, N=-1, epsilon=-1),
            "S_3 alpha^2 carries phi_2^-2",
        ),
        _communication(heterogeneous=False),
    )


def _general_rows(*, heterogeneous: bool) -> tuple[Order, ...]:
    """The rows of theorems whose constants depend on the problem; N, K, alpha, epsilon remain."""
    rows = [
        Order("variance", {"alpha": 1, "N": -1}, {"alpha": 1, "N": -1}),
        Order("local_steps", {"alpha": 2, "K-1": 1}, {"alpha": 2, "K-1": 1}),
    ]
    if heterogeneous:
        both = {"alpha": 2, "K-1": 2, "varepsilon": 1}
        rows.append(
            Order(
                "heterogeneity",
                both,
                both,
                "an upper bound: the drift is 0 where all mean operators agree",
            )
        )
    third = {"alpha": 3}
    rows.append(Order("higher_order", third, third, "tau = r log_rho alpha makes it alpha^(2r-1)"))
    rows.append(Order("sample complexity", {"N": -1, "epsilon": -1}, {"N": -1, "epsilon": -1}))
    return (*rows, _communication(heterogeneous=heterogeneous))


def _communication(*, heterogeneous: bool) -> Order:
    if heterogeneous:
        note = "K = sqrt(T / N) is enough, instead of the paper's K = sqrt(T) / N"
        return Order("communication", {"N": 0.5, "epsilon": -0.5}, {"epsilon": -0.5}, note)
    note = (
        "K = T / N violates c2a and c2b for large T: T / K = max(N, polylog(N T) times a constant)"
    )
    return Order("communication", {"N": 1}, {"N": 1}, note)
