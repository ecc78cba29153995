"""A sweep runs every cell of a study once and stores it: on this machine, or on Ray."""

from fegsam.experiments.sweep.executors import Executor, LocalExecutor
from fegsam.experiments.sweep.sweep import Results, SweepError, load_results, run_sweep

__all__ = ["Executor", "LocalExecutor", "Results", "SweepError", "load_results", "run_sweep"]
