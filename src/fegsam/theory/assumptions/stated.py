"""The constants that the author of a rule states for it.

They are given as `StochasticApproximation(..., assumptions=...)`, or in the `Opaque` structure of
an algorithm.
"""

from __future__ import annotations

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import Opaque
from fegsam.errors import ProblemError
from fegsam.exact.rule_field import given_contraction

NEEDED = ("gamma_c", "A_1", "A_2", "B")
MIXING = ("m_1", "m_2", "m_3", "m_4", "rho")
"""These follow from the chains if none of them is stated."""


def no_theorem(algorithm: Algorithm) -> ProblemError:
    """What to raise where no theorem is about an algorithm, since its noise is not Markovian."""
    return ProblemError(
        f"The theorems are about agents whose paths do not depend on their parameters, and those "
        f"of {type(algorithm).__name__} do; measure the error with fegsam.run."
    )


def stated_constants(known: Opaque) -> dict[str, float]:
    """The stated constants, checked: all of `NEEDED`, and all or none of `MIXING`.

    Examples
    --------
    >>> stated_constants(Opaque({"gamma_c": 0, "A_1": 0, "A_2": 0, "B": 1}))
    {'gamma_c': 0.0, 'A_1': 0.0, 'A_2': 0.0, 'B': 1.0}
    """
    if known.uncovered:
        raise ProblemError(known.uncovered)
    given_contraction(known)
    stated = known.assumptions
    wanted = NEEDED + MIXING if any(name in stated for name in MIXING) else NEEDED
    missing = [name for name in wanted if name not in stated]
    if missing:
        raise ProblemError(
            f"The theorem needs {', '.join(missing)} of your rule; give them in "
            "StochasticApproximation(..., assumptions=...), or give your algorithm a structure."
        )
    for name in wanted:
        value = stated[name]
        if not 0 <= value < (1 if name == "rho" else float("inf")):
            bounds = "in [0, 1)" if name == "rho" else "finite and not negative"
            raise ProblemError(
                f'assumptions["{name}"] is {value!r}, but must be {bounds}; give such a number.'
            )
    return {name: float(stated[name]) for name in wanted}
