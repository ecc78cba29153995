"""What is in a log, as text for a terminal of 80 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fegsam.data.demands import ALGORITHMS
from fegsam.data.log import LogSource
from fegsam.data.tally import LogSummary
from fegsam.text import short, text_table

WIDTH = 80
_LABEL = 15
_OFF = "; the average must be 1: log the probabilities that chose the actions"
_MOST_AGENTS = 20
"""Agents beyond this number are counted, not listed."""


def describe(
    source: LogSource, found: Mapping[Any, LogSummary], *, discount: float | None = None
) -> str:
    """What is in a log, which algorithms it can feed, and at which step sizes.

    Parameters
    ----------
    source : LogSource
    found : mapping
        What `summarise` or `check_log` returned.
    discount : float, optional
        The discount for which the truncation eigenvalue was found.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(f"{folder}/log.csv", walk, go, episodes=3, length=5, seed=0)
    ...     source = fg.LogSource(path)
    ...     print(fg.data.describe(source, fg.data.summarise(source, target_policy=go)))
    log.csv
      transitions    15 in 3 episodes of 5 on average
      ends           0 terminated, 3 truncated
      observations   states 0 to 1, of which 2 occur
      actions        0 to 1
      coverage       4 of 4 pairs of state and action occur, the rarest 3 times
      rewards        -1 to 1, 0.0667 on average
      probabilities  0.5 or more
      ratios         1 +- 0 on average, at most 1 (row 0 of log.csv)
      effective rows 15 of 15
    It can feed
      OnPolicyTD          step sizes below 1: the value of the policy that acted
      OffPolicyTabularTD  step sizes below 1
      QLearning           step sizes up to 1
      OffPolicyLinearTD   step sizes below 1
      TDC                 step sizes below 1, without a theorem
      LinearQLearning     step sizes below 1, without a theorem
    """
    lines = [title_of(source)]
    if len(found) > 1:
        lines += _agents(source, found)
    for agent, summary in found.items() if len(found) == 1 else ():
        lines += [] if agent is None else [f"  {source.by} {agent}"]
        for label, text in facts_of(summary, discount):
            lines += textwrap.wrap(
                text,
                WIDTH,
                initial_indent=f"  {label:{_LABEL}}",
                subsequent_indent=" " * (_LABEL + 2),
            )
    lines.append(feeds_title(found))
    for name, text in feeds(worst_of(found)):
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=f"  {name:20}", subsequent_indent=" " * 22
        )
    return "\n".join(lines)


def title_of(source: LogSource) -> str:
    """The name of a log of one or several files.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     names = [pathlib.Path(folder) / name for name in ("a.csv", "b.csv")]
    ...     print([name.touch() for name in names], title_of(LogSource(names)))
    [None, None] a.csv and 1 more
    """
    names = [file.name for file in source.files]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def feeds_title(found: Mapping[Any, LogSummary]) -> str:
    """What stands above the algorithms.

    >>> feeds_title({})
    'Every agent can feed'
    """
    return "It can feed" if len(found) == 1 else "Every agent can feed"


def worst_of(found: Mapping[Any, LogSummary]) -> LogSummary:
    """One agent's summary, with the worst of all agents in what limits algorithms.

    >>> import dataclasses
    >>> names = [field.name for field in dataclasses.fields(LogSummary)]
    >>> one = LogSummary(**dict.fromkeys(names, 1.0))
    >>> two = dataclasses.replace(one, ratio_max=2.0, truncation_eigenvalue=0.5)
    >>> worst = worst_of({"a": one, "b": two})
    >>> worst.ratio_max, worst.truncation_eigenvalue
    (2.0, 1.0)
    """
    every = list(found.values())
    if len(every) == 1:
        return every[0]
    largest = ("ratio_max", "feature_norm", "truncation_eigenvalue")
    worst = {
        name: max((x for x in (getattr(each, name) for each in every) if x == x), default=math.nan)
        for name in largest
    }
    probabilities = [each.least_probability for each in every]
    least = math.nan if any(map(math.isnan, probabilities)) else min(probabilities)
    judged = next((each for each in every if each.ratios_are_off or each.uncovered), every[0])
    return replace(judged, least_probability=least, **worst)


def facts_of(summary: LogSummary, discount: float | None) -> list[tuple[str, str]]:
    """What is in one agent's log, as labels and sentences.

    >>> from fegsam.data import Rows
    >>> from fegsam.data.facts import summarise_rows
    >>> import numpy as np
    >>> rows = Rows(*np.zeros((6, 2)), np.array([False, True]))._replace(behavior=np.ones(2))
    >>> found = summarise_rows(rows._replace(observation=np.zeros(2, int), action=np.zeros(2, int)))
    >>> facts_of(found, None)[0]
    ('transitions', '1 in 1 episodes of 1 on average')
    """
    length = summary.transitions / max(summary.episodes, 1)
    facts = [
        (
            "transitions",
            f"{summary.transitions} in {summary.episodes} episodes of {short(length)} on average",
        ),
        ("ends", f"{summary.terminated} terminated, {summary.truncated} truncated"),
        *_spaces(summary),
    ]
    if summary.transitions:
        low, high = map(short, summary.reward_range)
        several = f"{low} to {high}, {short(summary.mean_reward)} on average"
        facts.append(("rewards", several if low != high else f"{low} always"))
    if math.isnan(summary.least_probability):
        facts.append(("probabilities", "none are logged"))
    else:
        facts.append(("probabilities", f"{short(summary.least_probability)} or more"))
    if not math.isnan(summary.ratio_mean):
        place = summary.ratio_place
        where = "" if place is None else f" (row {place.row} of {place.file.name})"
        facts += [
            (
                "ratios",
                f"{short(summary.ratio_mean)} +- {short(summary.ratio_error)} on average, at most "
                f"{short(summary.ratio_max)}{where}{_OFF if summary.ratios_are_off else ''}",
            ),
            ("effective rows", f"{summary.effective_rows:.0f} of {summary.transitions}"),
        ]
    if not math.isnan(summary.truncation_eigenvalue):
        facts.append(("truncation", _truncation(summary, discount)))
    return facts


def _truncation(summary: LogSummary, discount: float | None) -> str:
    of = "" if discount is None else f" for discount {discount:g}"
    says = "TD with one step is stable" if stable(summary) else "TD may diverge; use TDC"
    return f"eigenvalue {short(summary.truncation_eigenvalue)}{of}: {says}"


def stable(summary: LogSummary) -> bool:
    """Whether no eigenvalue was found, or one that is below 1."""
    return not summary.truncation_eigenvalue >= 1.0


def _spaces(summary: LogSummary) -> list[tuple[str, str]]:
    if summary.width is not None:
        return [
            ("observations", f"{summary.width} number{'s' if summary.width != 1 else ''} each"),
            ("actions", f"0 to {summary.num_actions - 1}"),
        ]
    if summary.counts is None:
        return [("observations", "states, too many to count")]
    states, actions = summary.counts.shape
    seen = int(summary.counts.any(axis=1).sum())
    rarest = int(summary.counts[summary.counts > 0].min()) if summary.cells_seen else 0
    times = "once" if rarest == 1 else f"{rarest} times"
    hole = ""
    if summary.uncovered is not None:
        state, action = summary.uncovered
        hole = f"; the target takes action {action} in state {state}, which never occurs"
    return [
        ("observations", f"states 0 to {states - 1}, of which {seen} occur"),
        ("actions", f"0 to {actions - 1}"),
        (
            "coverage",
            f"{summary.cells_seen} of {states * actions} pairs of state and action occur, the "
            f"rarest {times}{hole}",
        ),
    ]


def agent_table(
    by: str | None, found: Mapping[Any, LogSummary], most: int
) -> tuple[list[str], list[list[str]]]:
    """The head and a row for each of the first agents; columns that nobody knows are left out.

    >>> agent_table("ward", {}, 20)
    (['ward', 'transitions', 'episodes', 'terminated'], [])
    """
    shown = dict(list(found.items())[:most])
    columns: dict[str, list[str]] = {str(by)[:20]: [str(agent)[:20] for agent in shown]}
    for name in ("transitions", "episodes", "terminated"):
        columns[name] = [str(getattr(each, name)) for each in shown.values()]
    if any(each.counts is not None for each in shown.values()):
        columns["pairs"] = [
            "-" if each.counts is None else str(each.cells_seen) for each in shown.values()
        ]
    if not all(math.isnan(each.effective_rows) for each in shown.values()):
        columns["effective"] = [
            "-" if math.isnan(each.effective_rows) else f"{each.effective_rows:.0f}"
            for each in shown.values()
        ]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _agents(source: LogSource, found: Mapping[Any, LogSummary]) -> list[str]:
    head, rows = agent_table(source.by, found, _MOST_AGENTS)
    table = text_table(head, rows, right=range(1, len(head))).splitlines()
    more = len(found) - len(rows)
    return [f"  {line}" for line in table] + ([f"  and {more} more agents"] if more else [])


def feeds(summary: LogSummary) -> list[tuple[str, str]]:
    """For each algorithm, the step sizes at which this log can feed it, or what is missing.

    A step that is larger than one over the largest ratio times the largest squared feature row can
    move beyond its own target.

    Examples
    --------
    >>> import dataclasses
    >>> names = [field.name for field in dataclasses.fields(LogSummary)]
    >>> empty = LogSummary(**{name: float("nan") for name in names} | {"width": 2, "counts": None})
    >>> feeds(empty)[2]
    ('QLearning', 'not: its observations are not states')
    """
    discrete = summary.width is None
    norm = summary.feature_norm if not math.isnan(summary.feature_norm) else 1.0
    has_rows = discrete or not math.isnan(summary.feature_norm)
    ratio = summary.ratio_max
    unstable = "" if stable(summary) else "; it may diverge"

    def below(size: float) -> str:
        return f"step sizes below {1.0 / size:.2g}" if size > 0.0 else "any step size"

    missing = (
        "not: no behavior_probability is logged"
        if math.isnan(summary.least_probability)
        else "needs a target policy (--target)"
        if math.isnan(ratio)
        else "not: the ratios do not average 1"
        if summary.ratios_are_off
        else "not: the target takes actions that never occur"
        if summary.uncovered is not None
        else ""
    )
    says = dict.fromkeys(ALGORITHMS, missing)
    says["QLearning"] = "step sizes up to 1" if discrete else "not: its observations are not states"
    says["OnPolicyTD"] = f"{below(norm)}: the value of the policy that acted{unstable}"
    says["OffPolicyTabularTD"] = missing or below(ratio)
    says["OffPolicyLinearTD"] = missing or f"{below(ratio * norm)}{unstable}"
    says["TDC"] = missing or f"{below(ratio * norm)}, without a theorem"
    says["LinearQLearning"] = f"{below(norm)}, without a theorem"
    if not discrete:
        says["OffPolicyTabularTD"] = "not: its observations are not states"
    if not has_rows:
        linear = ("OnPolicyTD", "OffPolicyLinearTD", "TDC", "LinearQLearning")
        says |= dict.fromkeys(linear, "needs features (--features)")
    return list(says.items())


def checked(source: LogSource, found: Mapping[Any, LogSummary]) -> str:
    """One line for a log in which no damage was found."""
    total = sum(summary.transitions for summary in found.values())
    episodes = int(np.sum([summary.episodes for summary in found.values()]))
    agents = "" if source.by is None else f" of {len(found)} agents"
    return f"{source.files[0].name}: {total} transitions in {episodes} episodes{agents}, no damage"
