"""What is in the rows of an agent, once they are in memory, as `summarise` says it of a log."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.describe import stable
from fegsam.data.estimates import policy_of
from fegsam.data.rows import Rows
from fegsam.data.scanner import RowLimits
from fegsam.data.tally import LogSummary, Tally
from fegsam.problem.checks import FloatArray, integer
from fegsam.problem.feature_maps import FeatureMap


class TruncationWarning(RuntimeWarning):
    """Episodes that are cut short may make temporal differences with these features diverge.

    Examples
    --------
    >>> issubclass(TruncationWarning, RuntimeWarning)
    True
    """


def summarise_rows(
    rows: Rows,
    *,
    num_states: int | None = None,
    num_actions: int | None = None,
    target_policy: ArrayLike | None = None,
    features: FeatureMap | None = None,
) -> LogSummary:
    """Say what is in the rows of one agent: ends, cells seen, ratios, the truncation eigenvalue.

    Parameters
    ----------
    rows : Rows
    num_states, num_actions : int, optional
        By default, as many as occur.
    target_policy : (S, A) array, optional
        By default the rows' own `target`.
    features : optional
        A map of `fegsam.features`.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(f"{folder}/log.csv", walk, go, episodes=3, length=5, seed=0)
    ...     rows = fg.LogSource(path).read(discount=0.9)
    >>> found = fg.data.summarise_rows(rows, target_policy=go)
    >>> found.truncated, found.ratio_max, found.effective_rows
    (3, 1.0, 15.0)
    """
    target = None if target_policy is None else policy_of(rows, target_policy)
    if target is not None:
        num_states, num_actions = target.shape
    limits = RowLimits(
        -1 if num_states is None else integer(num_states, "num_states"),
        -1 if num_actions is None else integer(num_actions, "num_actions"),
    )
    tally = Tally(limits, target, features)
    tally.add(rows, None)
    return tally.summary(limits)


FACTS = (
    "transitions",
    "episodes",
    "terminated",
    "cells_seen",
    "ratio_mean",
    "ratio_max",
    "effective_rows",
    "truncation_eigenvalue",
)
"""What a history has of each agent's log, with `data_` before the name."""


def facts_by_agent(summaries: Mapping[int, LogSummary], num_agents: int) -> dict[str, FloatArray]:
    """What is in the logs of agents, (N) each; NaN where it is not known, or the agent has no log.

    Facts that are known of no agent are left out.

    >>> import numpy as np
    >>> rows = Rows(*np.zeros((6, 2)), np.array([False, True]))._replace(behavior=np.ones(2))
    >>> rows = rows._replace(observation=np.zeros(2, int), action=np.zeros(2, int))
    >>> found = facts_by_agent({1: summarise_rows(rows)}, 2)
    >>> found["data_episodes"], "data_ratio_mean" in found
    (array([nan,  1.]), False)
    """
    found = {f"data_{name}": np.full(num_agents, np.nan) for name in FACTS}
    for agent, summary in summaries.items():
        for name in FACTS:
            known = name != "cells_seen" or summary.counts is not None
            found[f"data_{name}"][agent] = getattr(summary, name) if known else np.nan
    return {name: values for name, values in found.items() if not np.isnan(values).all()}


def warn_of_truncation(summary: LogSummary, who: str, *, control: bool = False) -> None:
    """Warn where the truncation eigenvalue of an agent's rows is 1 or larger.

    Parameters
    ----------
    summary : LogSummary
    who : str
        The name of the rows.
    control : bool
        Whether action values are learned from them, which TDC does not do.

    Examples
    --------

    >>> import numpy as np, warnings
    >>> import fegsam as fg
    >>> gap = np.array([False, True])
    >>> rows = fg.data.Rows(
    ...     np.array([0, 1]),
    ...     np.zeros(2, int),
    ...     np.zeros(2),
    ...     np.array([0.9, 0]),
    ...     *np.ones((2, 2)),
    ...     gap,
    ... )
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     found = fg.data.summarise_rows(rows, features=fg.features.table([[1.0], [2.0]]))
    ...     warn_of_truncation(found, "agent 0")
    >>> print(caught[0].message)
    The truncation eigenvalue of agent 0 is 3.24: cut episodes may make TD diverge; use TDC, longer
    episodes or other features.
    """
    if not stable(summary):
        rule, instead = ("linear Q-learning", "") if control else ("TD", "TDC, ")
        warnings.warn(
            f"The truncation eigenvalue of {who} is {summary.truncation_eigenvalue:.3g}: cut "
            f"episodes may make {rule} diverge; use {instead}longer episodes or other features.",
            TruncationWarning,
            stacklevel=2,
        )
