"""Which rows agents learn from, and which are held out to measure what they have learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fegsam.data.environments import LAST_AGENT
from fegsam.data.federation import DataFederation, Reader
from fegsam.data.holding import SplitReader, is_held_out, read_held_out
from fegsam.data.log import LogSource
from fegsam.data.rows import Rows, part
from fegsam.data.tally import LogSummary
from fegsam.errors import ProblemError

FEWEST_EPISODES = 20
"""Of a log with fewer episodes nothing is held out."""
MOST_ROWS = 1 << 16
"""Held-out rows of an agent at most."""
LIVE_ROWS = 4096
"""Rows of each live agent on which its quality is measured; it does not learn from them."""
_SEED = 0
"""The division does not depend on the seed of a run, so that runs are measured on the same rows."""


@dataclass(frozen=True)
class Division:
    """The episodes of each agent's log that are held out; those of live agents are drawn apart."""

    data: DataFederation
    episodes: Mapping[int, int]
    """the episodes in one pass of each agent whose log is divided"""

    def learning(self, agent: int, seed: int) -> Reader:
        """The reader of the rows that an agent learns from."""
        reader = self.data.reader(agent, seed)
        if agent not in self.episodes:
            return reader
        return SplitReader(
            reader,
            self.data.held_out,
            seed=_SEED,
            agent=agent,
            episodes=self.episodes[agent],
        )

    def held_out(self) -> list[Rows]:
        """The held-out rows of each agent that has some."""
        found = [self._of_log(agent) for agent in self.episodes]
        live = [
            self.data.reader(LAST_AGENT - agent, _SEED, like=agent)
            for agent in range(self.data.num_agents)
            if self.data.held_out and self.data.kinds[self.data.assignment[agent]].live
        ]
        # Readers that share a vector environment are opened before the first row is read.
        found += [_whole_episodes(reader.read(LIVE_ROWS)) for reader in live]
        return [rows for rows in found if len(rows.gap)]

    def _of_log(self, agent: int) -> Rows:
        reader = self.data.reader(agent, _SEED, passes=1)
        return read_held_out(reader, self.data.held_out, seed=_SEED, agent=agent, most=MOST_ROWS)


def _whole_episodes(rows: Rows) -> Rows:
    """Whole episodes of an agent of its own, as many as fit."""
    ends = np.flatnonzero(rows.gap)
    if len(ends):
        return part(rows, 0, int(ends[-1]) + 1)
    # One endless episode: its last row only ends it.
    last = np.arange(len(rows.gap)) == len(rows.gap) - 1
    return rows._replace(
        gap=last,
        reward=np.where(last, 0.0, rows.reward),
        discount=np.where(last, 0.0, rows.discount),
    )


def divide(data: DataFederation, summaries: Mapping[int, LogSummary], num_steps: int) -> Division:
    """Hold out episodes of the agents' logs, given a summary of each.

    A `ProblemError` says if the rest does not suffice for `num_steps` steps.
    """
    divided = {
        agent: summary.episodes
        for agent, summary in summaries.items()
        if data.held_out and summary.episodes >= FEWEST_EPISODES
    }
    for agent, episodes in divided.items():
        source = data.kinds[data.assignment[agent]].source
        assert isinstance(source, LogSource)
        held = is_held_out(
            np.arange(episodes), fraction_held=data.held_out, seed=_SEED, agent=agent
        )
        # What remains is known to the row only if the episodes that are left out are read.
        share = 1.0 - held.mean()
        left = int(summaries[agent].transitions * source.passes * share)
        if left < num_steps * (1.0 - 1.0 / FEWEST_EPISODES) or share == 0.0:
            raise ProblemError(
                f"{source.path}: about {left} transitions remain for num_steps {num_steps} when "
                f"{held.sum()} of {episodes} episodes are held out: fewer steps, "
                f"passes={source.passes + 1} or held_out=0"
            )
    return Division(data, divided)
