"""Local steps on recorded data, compiled: the rule and the write of the `cpu` engine."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import numpy as np

from fegsam.algorithms.rule import ONE
from fegsam.compilation import compiled, explained, renewed, rule_key
from fegsam.engines.cpu.memory import LocalScratch, StepLog, StepRange, Trace, Write
from fegsam.engines.cpu.steps import make_steps
from fegsam.engines.job import Job
from fegsam.engines.recorded import RecordedAgent, RecordedWindows, recorded_agent


class RecordedSteps:
    """Makes the steps of one agent on its windows (see `RecordedAgent`)."""

    def __init__(self, form: str, rule: Any, dimension: int) -> None:
        self._rule, self._loop = rule, _loop_of(form, rule)
        self._out, self._none = np.zeros(dimension), np.zeros(0)
        self._log = StepLog(np.zeros(1, np.uint32), np.zeros(1), np.zeros(1))
        self._trace = Trace(Write(form == "cell", False, False), self._log, 0, self._out)

    def __call__(
        self,
        params: np.ndarray,
        windows: RecordedWindows,
        sizes: np.ndarray,
        correction: np.ndarray | None,
    ) -> tuple[int, int]:
        scratch = LocalScratch(params, self._out)
        added = self._none if correction is None else correction
        with explained(self._rule):
            finite = self._loop(
                scratch, windows.path, windows.tables, windows.begin, sizes, added, self._trace
            )
        return int(finite), int(self._log.cell[0])


def compiled_agent(job: Job, index: int, agent: int) -> RecordedAgent:
    """An agent on recorded data that runs the job's rule compiled."""
    return recorded_agent(job, index, agent, RecordedSteps(job.form, job.rule, job.dimension))


def _make_loop(form, rule, key):
    steps = make_steps(form, rule, key)

    @compiled(key=key)
    def recorded_steps(scratch, path, tables, begin, sizes, correction, trace):
        """A step at each row from `begin` on that is no gap; how many left all finite."""
        # Unsigned: a signed index costs a wrap-around test.
        at, params = np.uint64(begin), scratch.params
        for k in range(sizes.shape[0]):
            while path.gaps[at]:
                at += ONE
            if steps(scratch, path, tables, sizes[k], StepRange(at, ONE, 1), trace) < 1:
                return k
            for j in range(correction.shape[0]):
                params[j] += sizes[k] * correction[j]
            at += ONE
        return sizes.shape[0]

    return recorded_steps


_loops: dict[Any, Any] = {}


def _loop_of(form: str, rule: Any) -> Any:
    """The compiled loop of a rule; kept per process, since a rule may be compiled only once."""
    key = rule_key(rule)
    slot = (form, key if key is not None else rule)
    if slot not in _loops:
        _loops[slot] = _make_loop(form, renewed(rule), key)
    return _loops[slot]
