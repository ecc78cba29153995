"""Recorded data: logs as agents, what is in them, and what they say about a policy."""

from fegsam.data.charter import Charter
from fegsam.data.demands import check_log
from fegsam.data.describe import describe
from fegsam.data.estimates import (
    FittedQ,
    ReturnEstimate,
    doubly_robust,
    fitted_q_evaluation,
    weighted_importance_sampling,
)
from fegsam.data.facts import TruncationWarning, summarise_rows, warn_of_truncation
from fegsam.data.holding import Split, SplitReader, hold_out, read_held_out
from fegsam.data.live_reader import LiveReader
from fegsam.data.log import LogReader
from fegsam.data.minari import import_minari
from fegsam.data.private import OwnData, private_reader
from fegsam.data.quality import HeldOut
from fegsam.data.rows import Rows
from fegsam.data.simulated import simulate_log
from fegsam.data.spool_reader import SpoolReader
from fegsam.data.summary import summarise
from fegsam.data.tally import LogSummary

__all__ = [
    "Charter",
    "FittedQ",
    "HeldOut",
    "LiveReader",
    "LogReader",
    "LogSummary",
    "OwnData",
    "ReturnEstimate",
    "Rows",
    "Split",
    "SplitReader",
    "SpoolReader",
    "TruncationWarning",
    "check_log",
    "describe",
    "doubly_robust",
    "fitted_q_evaluation",
    "hold_out",
    "import_minari",
    "private_reader",
    "read_held_out",
    "simulate_log",
    "summarise",
    "summarise_rows",
    "warn_of_truncation",
    "weighted_importance_sampling",
]


def __dir__() -> list[str]:
    return list(__all__)
