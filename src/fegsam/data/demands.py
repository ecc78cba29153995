"""What a run demands of a whole log: probabilities, coverage, ratios and enough transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.files import schema
from fegsam.data.log import LogSource
from fegsam.data.summary import summarise
from fegsam.data.tally import FEWEST_ROWS, LogSummary
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import integer, positive
from fegsam.problem.feature_maps import FeatureMap
from fegsam.text import short

OFF_POLICY = {
    "OffPolicyTabularTD": "Algorithm 3",
    "OffPolicyLinearTD": "Algorithm 5",
    "TDC": "TDC",
}
"""The algorithms that need importance ratios, by the names of their classes."""
TABULAR = ("OffPolicyTabularTD", "QLearning")
"""The algorithms that learn a table, which needs states."""
ALGORITHMS = (
    "OnPolicyTD",
    "OffPolicyTabularTD",
    "QLearning",
    "OffPolicyLinearTD",
    "TDC",
    "LinearQLearning",
)

FEWEST_EFFECTIVE = 10.0
"""Rows that must be left of a log by its ratios."""


def check_log(
    source: LogSource,
    *,
    algorithm: str | None = None,
    num_steps: int | None = None,
    step_size: float | None = None,
    expected_digest: str | None = None,
    discount: float = 1.0,
    num_states: int | None = None,
    num_actions: int | None = None,
    target_policy: ArrayLike | Callable[[np.ndarray], ArrayLike] | None = None,
    features: FeatureMap | None = None,
) -> dict[Any, LogSummary]:
    """Check a log before any step is made; raise a `ProblemError` in one sentence if it is damaged.

    Parameters
    ----------
    source : LogSource
    algorithm : str, optional
        The name of an algorithm's class, whose demands are checked, too.
    num_steps : int, optional
        The steps of each agent.
    step_size : float, optional
    expected_digest : str, optional
        What ``source.digest()`` was when the agent began.
    discount, num_states, num_actions, target_policy, features
        As in `summarise`. A target policy may also be a function of observations, whose ratios are
        not judged.

    Returns
    -------
    dict
        A `LogSummary` for each agent.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(f"{folder}/log.csv", walk, go, episodes=3, length=5, seed=0)
    ...     check_log(fg.LogSource(path), num_steps=100)
    Traceback (most recent call last):
    fegsam.errors.ProblemError: ...log.csv: 15 transitions for num_steps 100: fewer steps or
    passes=7
    """
    file = source.files[0]
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise ProblemError(
            f"algorithm is {shown(algorithm)}, but logs feed {', '.join(ALGORITHMS)}: name one"
        )
    if num_steps is not None:
        integer(num_steps, "num_steps")
    if step_size is not None:
        positive(step_size, "step_size")
    if expected_digest is not None and source.digest() != expected_digest:
        raise ProblemError(f"{file}: it is not the file this agent began with: put it back")
    if algorithm in TABULAR:
        _require_states(source, algorithm)
    if algorithm in OFF_POLICY:
        _require_probabilities(source, OFF_POLICY[algorithm], target_policy is not None)
    table = None if callable(target_policy) else target_policy
    found = summarise(
        source,
        discount=discount,
        num_states=num_states,
        num_actions=num_actions,
        target_policy=table,
        features=features,
    )
    for agent, summary in found.items():
        name = _name(source, agent)
        if summary.uncovered is not None:
            state, action = summary.uncovered
            raise ProblemError(
                f"{name}: the target takes action {action} in state {state}, which this log never "
                "shows: widen the behaviour or change the target"
            )
        _require_ratios(name, summary, step_size)
        if num_steps is not None:
            require_steps(source, agent, summary, num_steps)
    return found


def require_steps(source: LogSource, agent: Any, summary: LogSummary, num_steps: int) -> None:
    """Raise a `ProblemError` if an agent's log has too few transitions for its steps."""
    if summary.transitions * source.passes < num_steps:
        passes = -(-num_steps // max(summary.transitions, 1))
        raise ProblemError(
            f"{_name(source, agent)}: {summary.transitions * source.passes} transitions for "
            f"num_steps {num_steps}: fewer steps or passes={passes}"
        )


def _name(source: LogSource, agent: Any) -> str:
    file = source.files[0]
    return f"{file}" if agent is None else f"{file} ({source.by} {agent})"


def _require_states(source: LogSource, algorithm: str) -> None:
    for file, layout in zip(source.files, source.layouts(), strict=True):
        if layout.width is not None:
            names = layout.names["observation"]
            kinds = sorted({str(schema(file).field(name).type) for name in names})
            raise ProblemError(
                f"{file}: {', '.join(map(repr, names))} has values of type {', '.join(kinds)}, but "
                f"{algorithm} learns a table of states: store states as whole numbers, or use "
                "features and a linear algorithm"
            )


def _require_probabilities(source: LogSource, algorithm: str, has_target: bool) -> None:
    for file, layout in zip(source.files, source.layouts(), strict=True):
        if "behavior_probability" not in layout.names and source.policy is None:
            raise ProblemError(
                f"{file}: {algorithm} needs behavior_probability: log it, give policy=, or use "
                "Q-learning, which does without"
            )
        if "target_probability" not in layout.names and not has_target:
            raise ProblemError(
                f"{file}: {algorithm} needs a target policy: give target_policy= (--target), or "
                "log target_probability"
            )


def _require_ratios(name: str, summary: LogSummary, step_size: float | None) -> None:
    if np.isnan(summary.ratio_mean) or summary.transitions < FEWEST_ROWS:
        return
    too_large = step_size is not None and step_size * summary.ratio_max > 1.0
    if too_large or summary.effective_rows < FEWEST_EFFECTIVE:
        raise ProblemError(
            f"{summary.ratio_place}: the ratio {summary.ratio_max:.6g} allows step sizes below "
            f"{1.0 / summary.ratio_max:.2g} only ({summary.effective_rows:.0f} effective rows of "
            f"{summary.transitions}): change the target or the data"
        )
    if summary.ratios_are_off:
        raise ProblemError(
            f"{name}: the ratios average {short(summary.ratio_mean)} +- "
            f"{short(summary.ratio_error)} instead of 1: log the probabilities that chose the "
            "actions"
        )
