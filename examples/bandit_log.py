"""What would another policy of a shop earn? An answer from the shop's log of clicks.

The shop showed one of three articles at random and logged the click and the probability of what it
showed: every row is an episode of one step. Off-policy TD gives the self-normalised importance
estimate, sum(rho r) / sum(rho), for each of two kinds of visitors.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import fegsam as fg

VISITS, SHOWN = 20_000, np.array([0.5, 0.3, 0.2])
CLICKS = np.array([[0.05, 0.10, 0.20], [0.15, 0.10, 0.05]])
"""The probability of a click, by kind of visitor and article; the log does not have it."""
NEW = np.array([[0.1, 0.2, 0.7], [0.7, 0.2, 0.1]])
"""The policy that is to be judged."""


def main() -> None:
    random = np.random.default_rng(0)
    visitor, article = random.integers(0, 2, VISITS), random.choice(3, VISITS, p=SHOWN)
    click = random.random(VISITS) < CLICKS[visitor, article]
    head = "episode,observation,action,reward,terminated,behavior_probability"
    rows = zip(range(VISITS), visitor, article, click.astype(int), SHOWN[article], strict=True)
    lines = [f"{visit},{who},{what},{got},true,{p}" for visit, who, what, got, p in rows]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "clicks.csv"
        log.write_text("\n".join([head, *lines]) + "\n")
        data = fg.DataFederation(
            fg.LogSource(log),
            discount=0.9,
            num_states=2,
            num_actions=3,
            target_policy=NEW,
            held_out=0.0,
        )
        history = fg.run(
            data,
            fg.OffPolicyTabularTD(),
            step_size=0.01,
            sync_period=100,
            num_steps=VISITS,
            tail=0.95,
        )
    learned, known = history.data.tail_params.values[0], (NEW * CLICKS).sum(axis=1)
    ratio = NEW[visitor, article] / SHOWN[article]
    for kind in range(2):
        own = visitor == kind
        weighted = (ratio * click)[own].sum() / ratio[own].sum()
        print(
            f"visitors of kind {kind}: {learned[kind]:.4f} clicks a visit, sum(rho r) / sum(rho) "
            f"{weighted:.4f}, in truth {known[kind]:.4f}"
        )


if __name__ == "__main__":
    main()
