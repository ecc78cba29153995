"""What is measured over time where no fixed point is known: names, words and what comes first."""

from __future__ import annotations

from collections.abc import Iterable

MEASURES = {
    "distance_to_estimate": (
        "squared distance from an estimate",
        "The squared distance of the average from the solution on held-out episodes.",
    ),
    "residual": (
        "residual on held-out episodes",
        "The mean update on held-out episodes, squared. It is zero in mean at the fixed point.",
    ),
    "greedy_return": (
        "return of the greedy policy",
        "The mean return of the greedy policy in its own episodes.",
    ),
    "ope_return": (
        "estimated return",
        "The return of the policy, estimated from held-out episodes by weighted importance "
        "sampling.",
    ),
    "ope_return_robust": (
        "estimated return, doubly robust",
        "The return of the policy, estimated from held-out episodes by the doubly robust estimate.",
    ),
    "start_value": (
        "value of the start",
        "The learned value of the first observations of held-out episodes.",
    ),
    "return_error": (
        "squared error of returns",
        "The squared difference of the learned values from the returns of held-out episodes.",
    ),
    "td_error": (
        "squared TD error",
        "The squared TD error on held-out episodes. It is not zero at the fixed point, either.",
    ),
}
"""What each quantity is in a few words, and in a sentence; the most telling ones come first."""
DISTANCES = ("residual", "distance_to_estimate", "td_error", "return_error", "sync_error")
"""Quantities that fall by orders of magnitude."""
DEVIATION = "_standard_error"
"""The end of the name of a quantity's standard error."""
NORMAL = 1.96
"""Standard errors on either side of a 95 % interval."""


def leading(names: Iterable[str]) -> str | None:
    """The most telling of the quantities that were measured.

    >>> leading({"td_error", "residual", "residual_standard_error"})
    'residual'
    """
    known = set(names)
    return next((name for name in MEASURES if name in known), None)
