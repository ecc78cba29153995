"""What the paper's theorems say about a problem: whether they apply, constants and error bounds.

`small_step_law` adds what the bounds leave open: the true error for small step sizes.
"""

from __future__ import annotations

from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.assumptions.horizons import HorizonScan, scan_horizons
from fegsam.theory.bound.bound import Bound, error_bound
from fegsam.theory.bound.complexity import Complexity, complexity
from fegsam.theory.bound.conditions import Condition, largest_step, largest_sync_period
from fegsam.theory.bound.constants import Constants, constants
from fegsam.theory.bound.corollary import Schedule, schedule
from fegsam.theory.bound.large_enough import LargeEnough, large_enough
from fegsam.theory.bound.orders import orders
from fegsam.theory.bound.output_time import (
    OutputTimeDistribution,
    default_output_decay,
    output_time_distribution,
)
from fegsam.theory.bound.sharper import SharperBound, largest_sharper_step, sharper_error_bound
from fegsam.theory.small_step.small_step import SmallStepLaw, small_step_law

__all__ = [
    "Assumptions",
    "Bound",
    "Complexity",
    "Condition",
    "Constants",
    "HorizonScan",
    "LargeEnough",
    "OutputTimeDistribution",
    "Schedule",
    "SharperBound",
    "SmallStepLaw",
    "assumptions",
    "complexity",
    "constants",
    "default_output_decay",
    "error_bound",
    "large_enough",
    "largest_sharper_step",
    "largest_step",
    "largest_sync_period",
    "orders",
    "output_time_distribution",
    "scan_horizons",
    "schedule",
    "sharper_error_bound",
    "small_step_law",
]


def __dir__() -> list[str]:
    return list(__all__)
