"""The constants that a user states for a rule of their own, `StochasticApproximation(...,
assumptions=...)`."""

from __future__ import annotations

from fegsam.algorithms.alg1_stochastic_approximation import StochasticApproximation
from fegsam.errors import ProblemError
from fegsam.exact.rule_field import given_contraction

NEEDED = ("gamma_c", "A_1", "A_2", "B")
MIXING = ("m_1", "m_2", "m_3", "m_4", "rho")
"""These follow from the chains where none of them is stated."""


def stated_constants(algorithm: StochasticApproximation) -> dict[str, float]:
    """The stated constants, checked: all of `NEEDED`, and all or none of `MIXING`.

    Examples
    --------
    >>> import fegsam as fg
    >>> def rule(params, y, kind, out):
    ...     out[0] = y - params[0]
    >>> stated_constants(
    ...     fg.StochasticApproximation(
    ...         rule, dim=1, assumptions={"gamma_c": 0, "A_1": 0, "A_2": 0, "B": 1}
    ...     )
    ... )
    {'gamma_c': 0.0, 'A_1': 0.0, 'A_2': 0.0, 'B': 1.0}
    """
    given_contraction(algorithm)
    stated = algorithm.assumptions or {}
    wanted = NEEDED + MIXING if any(name in stated for name in MIXING) else NEEDED
    missing = [name for name in wanted if name not in stated]
    if missing:
        raise ProblemError(
            f"The theorem needs {', '.join(missing)} of your rule; give them in "
            "StochasticApproximation(..., assumptions=...)."
        )
    for name in wanted:
        value = stated[name]
        if not 0 <= value < (1 if name == "rho" else float("inf")):
            bounds = "in [0, 1)" if name == "rho" else "finite and not negative"
            raise ProblemError(
                f'assumptions["{name}"] is {value!r}, but must be {bounds}; give such a number.'
            )
    return {name: float(stated[name]) for name in wanted}
