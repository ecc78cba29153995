"""What is in a log: one pass in fixed memory, which also makes every check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.columns import without_codes
from fegsam.data.log import Found, LogSource
from fegsam.data.scanner import Scanner
from fegsam.data.tally import LogSummary, Tally
from fegsam.errors import ProblemError
from fegsam.problem.checks import real_array
from fegsam.problem.feature_maps import FeatureMap
from fegsam.problem.policies import check_policy


def summarise(
    source: LogSource,
    *,
    discount: float = 1.0,
    num_states: int | None = None,
    num_actions: int | None = None,
    target_policy: ArrayLike | None = None,
    features: FeatureMap | None = None,
) -> dict[Any, LogSummary]:
    """Check every row of a log and say what is in it, for each agent.

    Parameters
    ----------
    source : LogSource
    discount : float
        The discount of a transition that does not terminate, for the truncation eigenvalue.
    num_states, num_actions : int, optional
        Larger numbers are refused.
    target_policy : (S, A) array, optional
        The policy to evaluate; by default the log's column `target_probability`. Where observations
        are not states, shape (1, A) gives the same probabilities everywhere.
    features : optional
        A map of `fegsam.features`.

    Returns
    -------
    dict
        A `LogSummary` for each value of the column `by`, or for None.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(f"{folder}/log.csv", walk, go, episodes=3, length=5, seed=0)
    ...     found = summarise(fg.LogSource(path), target_policy=go)
    >>> found[None].ratio_max, found[None].effective_rows
    (1.0, 15.0)
    """
    _check_width(source, features)
    target = None
    if target_policy is not None:
        target = real_array(target_policy, "target_policy", "(S, A)")
        if target.ndim != 2:
            raise ProblemError(f"target_policy has shape {target.shape}: give shape (S, A)")
        target = check_policy(target, target.shape[0], target.shape[1], "target_policy")
        num_states, num_actions = target.shape
    limits = source.limits(discount=discount, num_states=num_states, num_actions=num_actions)
    agents: dict[Any, tuple[Scanner, Tally]] = {}
    for found in source.batches():
        for agent, numbers, table in _by_agent(source, found):
            if agent not in agents:
                agents[agent] = Scanner(source.files, limits), Tally(limits, target, features)
            scanner, tally = agents[agent]
            tally.add(scanner.feed(found.decoder, found.file, numbers, table), scanner)
    for scanner, tally in agents.values():
        rest = scanner.finish()
        if rest is not None:
            tally.add(rest, scanner)
    if not agents:
        raise ProblemError(f"{source.files[0]}: there is no row: give a log with at least one")
    return {agent: tally.summary(limits) for agent, (_, tally) in agents.items()}


def _check_width(source: LogSource, features: FeatureMap | None) -> None:
    if features is None or features.kind == "function":
        return
    for file, layout in zip(source.files, source.layouts(), strict=True):
        if layout.width != features.width and layout.width != 0:
            has = "is a state number" if layout.width is None else f"has {layout.width} numbers"
            takes = "a state number" if features.width is None else f"{features.width}"
            raise ProblemError(
                f"{file}: observation {has}, the {features.kind} features take {takes}: log what "
                "was agreed"
            )


def _by_agent(source: LogSource, found: Found) -> Iterator[tuple[Any, np.ndarray, Any]]:
    """The rows of a batch for each agent that has some."""
    if source.by is None:
        if len(found.numbers):
            yield None, found.numbers, found.table
        return
    column = without_codes(found.table.column(source.by))
    coded = column.dictionary_encode(null_encoding="encode")
    codes = coded.indices.to_numpy()
    for code, agent in enumerate(coded.dictionary.to_pylist()):
        own = np.flatnonzero(codes == code)
        yield agent, found.numbers[own], found.table.take(own)
